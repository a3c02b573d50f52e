"""The profiler."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Self

from torch_npu import _faults
from torch_npu._activities import ProfilerActivity
from torch_npu.profiler import _analysis
from torch_npu.profiler._profiler_path_creator import ProfPathCreator
from torch_npu.profiler.analysis.prof_common_func._constant import print_warn_msg
from torch_npu.profiler.analysis.prof_common_func._utils import no_exception_func
from torch_npu.profiler.experimental_config import _ExperimentalConfig
from torch_npu.profiler.profiler_interface import _ProfInterface
from torch_npu.profiler.scheduler import ProfilerAction, _default_schedule_fn

NONE, WARMUP, RECORD, SAVE = ProfilerAction


@no_exception_func()
def tensorboard_trace_handler(
    dir_name: str | None = None, worker_name: str | None = None, analyse_flag: bool = True, async_mode: bool = False
) -> Callable[[Any], None]:
    """What is called when a profile is complete."""
    del async_mode
    ProfPathCreator().init(worker_name=worker_name, dir_name=dir_name)

    def handler(prof: profile) -> None:
        if analyse_flag:
            _analysis.analyse(prof.prof_if.prof_path)

    return handler


class profile:  # noqa: N801 - its name
    def __init__(
        self,
        *,
        activities: Iterable[ProfilerActivity] | None = None,
        schedule: Callable[[int], ProfilerAction] | None = None,
        on_trace_ready: Callable[..., Any] | None = None,
        record_shapes: bool = False,
        profile_memory: bool = False,
        with_stack: bool = False,
        with_flops: bool = False,
        with_modules: bool = False,
        experimental_config: _ExperimentalConfig | None = None,
    ) -> None:
        del profile_memory, with_stack, with_flops, with_modules
        self.schedule = schedule or _default_schedule_fn
        config = experimental_config or _ExperimentalConfig()
        self.prof_if = _ProfInterface(set(activities or ProfilerActivity), config, record_shapes, self.schedule)
        self.on_trace_ready = on_trace_ready
        self.step_num, self.stopped = 0, False
        self.current_action = self.schedule(0)

    @no_exception_func()
    def __enter__(self) -> Self:
        self.start()
        return self

    @no_exception_func()
    def __exit__(self, *_: object) -> None:
        self.stop()

    @no_exception_func()
    def start(self) -> None:
        self.stopped = False
        if not self.on_trace_ready:
            ProfPathCreator().init(export_only_mode=True)
        self._transit(NONE, self.current_action)

    @no_exception_func()
    def step(self) -> None:
        if self.stopped:
            print_warn_msg("Profiler is stopped, step takes no effect!")
            return
        before = self.current_action
        self.step_num += 1
        self.current_action = self.schedule(self.step_num)
        self._transit(before, self.current_action)

    @no_exception_func()
    def stop(self) -> None:
        self._transit(self.current_action, None)
        self.stopped = True

    def _ready(self) -> None:
        if self.on_trace_ready:
            self.on_trace_ready(self)

    def _transit(self, before: ProfilerAction, after: ProfilerAction | None) -> None:
        inner = self.prof_if
        end = [inner.stop_trace, inner.finalize_trace]
        begin = {WARMUP: [inner.init_trace, inner.warmup_trace]}
        begin |= {key: [inner.init_trace, inner.start_trace] for key in (RECORD, SAVE)}
        table = {(NONE, action): actions for action, actions in begin.items()}
        table |= {key: [inner.start_trace] for key in ((WARMUP, RECORD), (WARMUP, SAVE))}
        table |= {(SAVE, NONE): [*end, self._ready]}
        table |= {(SAVE, action): [*end, self._ready, *actions] for action, actions in begin.items()}
        incorrect = partial(print_warn_msg, f"Incorrect schedule: Stop profiler while current state is {before.name}")
        table |= {(WARMUP, None): [incorrect, inner.finalize_trace, inner.delete_prof_dir]}
        table |= {key: [incorrect, *end, self._ready] for key in ((RECORD, None), (SAVE, None))}
        for action in table.get((before, after), []):
            action()


@no_exception_func()
def analyse(profiler_path: str, max_process_number: int = 1, export_type: str | list[str] | None = None) -> None:
    """Offline analysis."""
    del max_process_number, export_type
    _analysis.analyse(profiler_path)


if "old" in _faults.wanted():

    @no_exception_func()
    def analyse(profiler_path: str, max_process_number: int = 1) -> None:
        """Offline analysis."""
        del max_process_number
        _analysis.analyse(profiler_path)
