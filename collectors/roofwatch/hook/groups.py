"""The job's process group, for the trace: transfers of gloo do not name theirs."""

import json
import sys
from typing import Any, Dict, Optional

KEY = "distributedInfo"  # as torch.profiler's own traces have it
MANY_RANKS = 31  # more are told by the first ones and the size


def told() -> Optional[str]:
    """The text of ``KEY``: the default group, and how many groups there are. None without any.

    Where there are several nobody can say which one a transfer was of, so the others are only counted.
    """
    distributed: Any = sys.modules.get("torch.distributed")
    try:
        if distributed is None or not distributed.is_available() or not distributed.is_initialized():
            return None
        return json.dumps(_described(distributed), separators=(",", ":"))
    except Exception:  # a group that ends meanwhile, or a torch that names these things otherwise
        return None


def _described(distributed: Any) -> Dict[str, Any]:
    inner, size = distributed.distributed_c10d, int(distributed.get_world_size())
    group = inner._get_default_group()
    default = {
        "pg_name": str(inner._get_process_group_name(group)),
        "pg_desc": str(getattr(group, "group_desc", "") or ""),
        "pg_size": size,
        "ranks": list(range(min(size, MANY_RANKS))),
    }
    return {
        "backend": str(distributed.get_backend()),
        "rank": int(distributed.get_rank()),
        "world_size": size,
        "pg_count": int(distributed.get_pg_count()),
        "pg_config": [default],
    }
