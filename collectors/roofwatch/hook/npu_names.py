"""What the hook uses of torch_npu: all of it, once. Tests look each name up in the vendor's own wheel.

Beside the public profiler there are a few private names, each for what has no public one: not to overwrite where the
job's next profile goes, to know when the job profiles, to keep the vendor's lines out of the job's output.
"""

import importlib
from typing import Any, Dict, NamedTuple, Optional, Tuple

METRICS = ("PipeUtilization", "ArithmeticUtilization", "MemoryAccess")  # of which a request may ask one


class Name(NamedTuple):
    """One name: where it is, which arguments the hook gives it, what of it is touched, and what its value must be."""

    module: str
    path: str
    arguments: Tuple[str, ...] = ()
    members: Tuple[str, ...] = ()
    value: Optional[str] = None
    needed: bool = True


_PROFILER = "torch_npu.profiler"
_PROFILE = ("activities", "schedule", "on_trace_ready", "record_shapes", "profile_memory", "with_stack", "with_flops")
_CONFIG = ("profiler_level", "aic_metrics", "l2_cache", "data_simplification", "export_type")

USED: Dict[str, Name] = {
    "profile": Name(
        _PROFILER, "profile", (*_PROFILE, "with_modules", "experimental_config"), ("start", "step", "stop")
    ),
    "schedule": Name(_PROFILER, "schedule", ("wait", "active", "warmup", "repeat")),
    "handler": Name(_PROFILER, "tensorboard_trace_handler", ("dir_name", "analyse_flag")),
    "config": Name(_PROFILER, "_ExperimentalConfig", _CONFIG),
    "cpu": Name(_PROFILER, "ProfilerActivity.CPU"),
    "npu": Name(_PROFILER, "ProfilerActivity.NPU"),
    "level": Name(_PROFILER, "ProfilerLevel.Level1", value="Level1"),
    "PipeUtilization": Name(_PROFILER, "AiCMetrics.PipeUtilization", value="ACL_AICORE_PIPE_UTILIZATION"),
    "ArithmeticUtilization": Name(
        _PROFILER, "AiCMetrics.ArithmeticUtilization", value="ACL_AICORE_ARITHMETIC_UTILIZATION"
    ),
    "MemoryAccess": Name(_PROFILER, "AiCMetrics.MemoryAccess", value="ACL_AICORE_MEMORY_ACCESS", needed=False),
    "db": Name(_PROFILER, "ExportType.Db", value="db"),
    # In the analysing child, never in the job; export_type is newer than the rest and given where it is known.
    "analyse": Name(
        _PROFILER + ".profiler", "analyse", ("profiler_path", "max_process_number", "export_type"), needed=False
    ),
    # Private: where the next profile of this process goes, and whether one is being taken.
    "creator": Name(_PROFILER + "._profiler_path_creator", "ProfPathCreator", members=("is_prof_inited",)),
    # Private: begin and end of every collection, whatever schedule or tool drives it.
    "interface": Name(_PROFILER + ".profiler_interface", "_ProfInterface", members=("init_trace", "finalize_trace")),
    # Private: the one place where the profiler prints to stdout.
    "messages": Name(_PROFILER + ".analysis.prof_common_func._constant", "print_error_msg"),
    # Private: it walks the whole CANN folder, on the stepping thread, at the end of every window.
    "walk": Name(_PROFILER + ".profiler_interface", "get_cann_version", needed=False),
    # Private: whether somebody has switched dynamic profiling on.
    "dynamic": Name(_PROFILER + ".dynamic_profile", "_DynamicProfile", members=("repeat_init",), needed=False),
    "graph": Name("torch_npu.npu", "NPUGraph", members=("capture_begin", "capture_end"), needed=False),
    "capturing": Name("torch_npu.npu", "is_current_stream_capturing", needed=False),
    "is_available": Name("torch_npu.npu", "is_available"),
    "is_initialized": Name("torch_npu.npu", "is_initialized"),
    "device_count": Name("torch_npu.npu", "device_count"),
    "current_device": Name("torch_npu.npu", "current_device"),
    "memory_reserved": Name("torch_npu.npu", "memory_reserved"),
    "device_name": Name("torch_npu.npu", "get_device_name"),
    "properties": Name("torch_npu.npu", "get_device_properties"),
    "version": Name("torch_npu.npu.utils", "get_cann_version", ("module",), needed=False),
}


class Vendor:
    """The names of a torch_npu that the job has imported, each as an attribute; None where one is not needed."""

    def __init__(self) -> None:
        """Raises AttributeError or ImportError where this torch_npu lacks a name that is needed."""
        for key, name in USED.items():
            if key != "analyse":
                setattr(self, key, _found(name))

    def __getattr__(self, key: str) -> Any:  # for type checkers: what __init__ has not set does not exist
        raise AttributeError(key)


def _found(name: Name) -> Any:
    try:
        found: Any = importlib.import_module(name.module)
        for part in name.path.split("."):
            found = getattr(found, part)
    except (AttributeError, ImportError):
        if name.needed:
            raise
        return None
    return found
