"""Profiling that is switched on from outside."""

from torch_npu.profiler._profiler_path_creator import Singleton


@Singleton
class _DynamicProfile:
    def __init__(self) -> None:
        self.prof = None
        self.repeat_init = False


def init(path: str) -> None:
    """Watch a folder for a configuration."""
    del path
    _DynamicProfile().repeat_init = True
