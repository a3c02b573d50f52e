"""The profiler's public names."""

from torch_npu._activities import ProfilerActivity
from torch_npu.profiler import dynamic_profile
from torch_npu.profiler.experimental_config import AiCMetrics, ExportType, ProfilerLevel, _ExperimentalConfig
from torch_npu.profiler.profiler import profile, tensorboard_trace_handler
from torch_npu.profiler.scheduler import Schedule as schedule  # noqa: N813 - as in the real one

__all__ = [
    "AiCMetrics",
    "ExportType",
    "ProfilerActivity",
    "ProfilerLevel",
    "_ExperimentalConfig",
    "dynamic_profile",
    "profile",
    "schedule",
    "tensorboard_trace_handler",
]
