"""torch's own entry points to the profiler, the same on every path."""

import threading
from typing import Any, Dict, Optional, Set

from . import groups
from .log import failure


class Bindings:
    """torch's own entry points to the profiler, as they were before the hook put its guard around them."""

    def __init__(self, torch: Any) -> None:
        from torch._C._profiler import (
            ProfilerActivity,
            ProfilerConfig,
            ProfilerState,
            _ExperimentalConfig,
        )

        self.torch = torch
        self.prepare = torch._C._autograd._prepare_profiler
        self.enable = torch._C._autograd._enable_profiler
        self.disable = torch._C._autograd._disable_profiler
        self._note = getattr(torch._C._autograd, "_add_metadata_json", None)
        self._config, self._state, self._extra = ProfilerConfig, ProfilerState.KINETO, _ExperimentalConfig
        self._only = _understood(_ExperimentalConfig, trace_only=True)
        self._cpu, self._device = ProfilerActivity.CPU, ProfilerActivity.CUDA
        self.importer = threading.get_ident()

    def config(self, shapes: bool, all_threads: bool) -> Any:
        """Shapes as asked; no stacks, no memory, no FLOPs."""
        threads: Dict[str, Any] = {"profile_all_threads": True} if all_threads else {}
        extra = self._extra(**threads, **self._only)
        arguments = (self._state, shapes, False, False, False, False, extra)
        try:
            return self._config(*arguments, "")  # the trace id came with torch 2.7
        except TypeError:
            return self._config(*arguments)

    def activities(self) -> Set[Any]:
        """CPU, and the device once the job uses it."""
        cuda = self.torch.cuda
        return {self._cpu, self._device} if cuda.is_available() and cuda.is_initialized() else {self._cpu}

    def note_groups(self, text: Optional[str]) -> None:
        """Write the process groups into the trace of the window that has just been opened."""
        if text is None or self._note is None:
            return
        try:
            self._note(groups.KEY, text)
        except Exception as error:
            failure("groups", error)

    def enabled(self) -> bool:
        """Whether Python or this thread already has a profiler open."""
        profiler = self.torch.autograd.profiler
        return bool(getattr(profiler, "_is_profiler_enabled", False) or self.torch._C._autograd._profiler_enabled())


def _understood(config: Any, **options: bool) -> Dict[str, Any]:
    """The options, where this torch knows them.

    ``trace_only`` came with torch 2.13: nothing but the trace is made of the window's events, which takes a quarter
    off the closing thread's time and most of what freeing the result costs the job.
    """
    try:
        config(**options)
    except TypeError:
        return {}
    return options
