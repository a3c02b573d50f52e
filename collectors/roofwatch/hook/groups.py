"""The job's process group, for the trace: transfers of gloo do not name theirs. And how gloo's threads are left."""

import json
import sys
from typing import Any, Dict, Optional

from .quiesce import asleep, threads

KEY = "distributedInfo"  # as torch.profiler's own traces have it
MANY_RANKS = 31  # more are told by the first ones and the size
WORKER = "pt_gloo_runloop"  # as torch calls gloo's threads
WAIT_S = 1.0


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


def leave() -> None:
    """At exit, before Python shuts down: let gloo's threads put away the transfers that the job has seen done.

    One that puts a tensor away afterwards wants the GIL, which Python up to 3.13 answers by ending the thread: the
    process is aborted, with the hook or without, where such a thread has had no CPU time since. Without gloo: nothing.
    """
    workers = {tid for tid in threads() if _name(tid) == WORKER}
    if workers:
        asleep(workers, WAIT_S)


def _name(tid: int) -> str:
    try:
        with open("/proc/self/task/%d/comm" % tid) as file:
            return file.read().strip()
    except (OSError, UnicodeDecodeError):
        return ""
