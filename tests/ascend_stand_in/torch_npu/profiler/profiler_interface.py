"""From init to finalize: what the device and the host write."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

from torch_npu import _faults, npu
from torch_npu.profiler._profiler_path_creator import ProfPathCreator


def get_cann_version() -> str:
    """Walks through all of CANN to find a version."""
    _faults.happened("walk")
    return "8.3.RC1"


class _ProfInterface:
    def __init__(self, activities: set, experimental_config: Any, record_shapes: bool, schedule: Any) -> None:
        self.activities, self.config, self.record_shapes = activities, experimental_config, record_shapes
        self.schedule = schedule
        self.prof_path = ""
        self.began_ns = 0
        self.used = False
        npu._lazy_init()

    def init_trace(self) -> None:
        if self.used:
            raise RuntimeError("[ERROR] ERR00100 stand-in: this profiler has recorded once")
        self.used = True
        _faults.fail("start")
        if ProfPathCreator().is_prof_inited:
            raise RuntimeError("[ERROR] ERR00100 stand-in: another profile is being taken")
        ProfPathCreator().create_prof_dir()
        self.prof_path = ProfPathCreator().get_prof_dir()
        _faults.happened(f"init {self.prof_path}")

    def warmup_trace(self) -> None:
        pass

    def start_trace(self) -> None:
        _faults.fail("begin")
        self.began_ns = time.time_ns()
        _faults.happened(f"start {self.config._profiler_level} {self.config._aic_metrics} {self.record_shapes}")

    def stop_trace(self) -> None:
        npu.synchronize()
        _faults.fail("stop")
        _faults.happened("stop")

    def finalize_trace(self) -> None:
        self._write()
        ProfPathCreator().is_prof_inited = False

    def delete_prof_dir(self) -> None:
        ProfPathCreator().delete_prof_dir()

    def _write(self) -> None:
        folder = Path(self.prof_path)
        (folder / "FRAMEWORK").mkdir()
        (folder / "FRAMEWORK" / "torch.op_range").write_bytes(b"\0" * 4096)
        if self.began_ns:
            raw = folder / "PROF_000001_20260101000000000_ABCDEFGH"
            for part in ("host", "device_0"):
                (raw / part / "data").mkdir(parents=True)
            if "nodata" not in _faults.wanted():
                (raw / "device_0" / "data" / "ffts_profile.data.0.slice_0").write_bytes(b"\1" * 65536)
            else:
                os.removedirs(raw / "device_0" / "data")
        rank = os.environ.get("RANK")
        info = {
            "config": {"experimental_config": vars(self.config)},
            "start_info": {"syscnt_enable": True, "freq": 100, "began_ns": self.began_ns},
            "end_info": {"collectionTimeEnd": time.time_ns(), "MonotonicTimeEnd": time.monotonic_ns()},
            "cann_version": get_cann_version(),
        }
        if rank is not None:
            info["rank_id"] = int(rank) if "old" in _faults.wanted() else rank
        name = "profiler_info.json" if rank is None else f"profiler_info_{rank}.json"
        (folder / name).write_text(json.dumps(info, indent=4))
