"""Levels, metrics, formats."""

from __future__ import annotations

from torch_npu import _faults
from torch_npu.profiler.analysis.prof_common_func._constant import print_warn_msg


class ProfilerLevel:
    Level0 = "Level0"
    Level1 = "Level1"
    Level2 = "Level2"


class AiCMetrics:
    PipeUtilization = "ACL_AICORE_PIPE_UTILIZATION"
    ArithmeticUtilization = "ACL_AICORE_ARITHMETIC_UTILIZATION"
    AiCoreNone = "ACL_AICORE_NONE"
    MemoryAccess = "ACL_AICORE_MEMORY_ACCESS"


class ExportType:
    Db = "db"
    Text = "text"


class _ExperimentalConfig:
    def __init__(
        self,
        profiler_level: str = ProfilerLevel.Level0,
        aic_metrics: str = AiCMetrics.PipeUtilization,
        l2_cache: bool = False,
        data_simplification: bool = True,
        export_type: str | list[str] = ExportType.Text,
    ) -> None:
        if profiler_level == ProfilerLevel.Level0:
            print_warn_msg("Please use level1 or level2 if you want to collect aic metrics, reset aic metrics to None!")
            aic_metrics = AiCMetrics.AiCoreNone
        self._profiler_level, self._aic_metrics = profiler_level, aic_metrics
        self._l2_cache, self._data_simplification = l2_cache, data_simplification
        old = "old" in _faults.wanted()
        self._export_type = export_type if old or isinstance(export_type, list) else [export_type]
