"""Beside other profilers of an NPU: who comes first, whose lines are whose, and what must not be touched.

torch_npu has one profiler a process, and one at a time on a device: msprof, mspti, dynamic profiling, the job's own.
"""

import builtins
import functools
import os
import sys
import threading
import time
from typing import Any, Callable, Dict, List, Mapping, Optional, Set

from .log import failure
from .npu_names import Vendor
from .protocol import OWN_PROFILER

HAND_OVER_S = 1.0  # in which the stepping thread is waited for, so that it closes our window before the job's opens
_SAID_MOST = 200

# Environment variables with which somebody else profiles, and what the refusal calls them.
_OTHERS = (
    ("PROFILER_SAMPLECONFIG", "msprof"),
    ("PROFILING_MODE", "msprof"),
    ("PROF_CONFIG_PATH", "dynamic_profile"),
    ("MSMONITOR_USE_DAEMON", "msmonitor"),
    ("KINETO_USE_DAEMON", "msmonitor"),
)


def others(vendor: Optional[Vendor], environ: Mapping[str, str] = os.environ) -> str:
    """Who else profiles this process, or has reserved the right to; "" where nobody has."""
    for variable, who in _OTHERS:
        if environ.get(variable, "") not in ("", "0"):
            return who
    if "mspti" in environ.get("LD_PRELOAD", "") or "mspti" in sys.modules:
        return "mspti"
    # A singleton's box: asking it for its object would make one.
    made = getattr(getattr(vendor, "dynamic", None), "_instance", None) or {}
    return "dynamic_profile" if any(getattr(one, "repeat_init", False) for one in made.values()) else ""


class Quiet:
    """While a thread is inside this, the vendor's profiler prints nothing on that thread; all others are as before.

    The profiler prints with ``print`` from one module. That module gets a ``print`` of its own, which passes on
    everything but our lines; the last of those says why something failed.
    """

    def __init__(self, vendor: Vendor) -> None:
        self._ours: Set[int] = set()
        self.said: List[str] = []
        module: Any = sys.modules[vendor.messages.__module__]

        def quiet_print(*values: Any, **options: Any) -> None:
            if threading.get_ident() in self._ours:
                self.said = [*self.said[-3:], " ".join(map(str, values))[-_SAID_MOST:]]
            else:
                builtins.print(*values, **options)  # noqa: T201 - the vendor's; looked up now, for jobs replace it

        module.print = quiet_print

    def inside(self) -> bool:
        """Whether this thread's call of torch_npu is ours."""
        return threading.get_ident() in self._ours

    def __enter__(self) -> None:
        self.said = []
        self._ours.add(threading.get_ident())

    def __exit__(self, *_: object) -> None:
        self._ours.discard(threading.get_ident())

    def why(self) -> str:
        """The last thing it said, without its time stamp."""
        return self.said[-1].rpartition("profiler.py: ")[2] if self.said else ""


class Place:
    """Where the next profile of this process goes: one object of torch_npu's, which the job has set up for itself."""

    def __init__(self, vendor: Vendor) -> None:
        self._creator = vendor.creator()
        self._before: Dict[str, Any] = {}

    def busy(self) -> bool:
        """Whether a profile is being taken, ours included."""
        return bool(self._creator.is_prof_inited)

    def remember(self) -> None:
        """Before ours is set up."""
        self._before = dict(vars(self._creator))

    def give_back(self, ours: Optional[str]) -> None:
        """Once ours has begun in the folder ``ours``: the job's settings again, but for ours under way."""
        fields = vars(self._creator)
        for key, value in self._before.items():
            if key != "is_prof_inited" and (ours is None or fields.get(key) != ours):
                fields[key] = value

    def end(self, ours: Optional[str]) -> None:
        """Once ours has ended: nothing points to it any more, unless the job has begun another meanwhile."""
        fields = vars(self._creator)
        for key, value in self._before.items():
            if ours is not None and fields.get(key) == ours:
                fields[key] = value
        self._before = {}


def install(vendor: Vendor, taker: Any, path: Any) -> None:
    """Put the guard around the begin and end of every collection, around graph captures, and around a slow look-up."""
    _around(vendor.interface, "init_trace", lambda: _begins(taker, path), None, path.quiet.inside)
    _around(vendor.interface, "finalize_trace", None, lambda: _ends(taker), path.quiet.inside)
    if vendor.graph is not None:
        taker.captures.watch(vendor.graph, heard=False)
    if vendor.walk is not None:
        sys.modules[vendor.interface.__module__].__dict__["get_cann_version"] = functools.lru_cache(None)(vendor.walk)


def _begins(taker: Any, path: Any) -> None:
    """The job's own profiler starts: ours is gone before it does.

    A window is closed by the thread that opened it. Where that is another, it is given some steps' time.
    """
    taker.job_profiler = 1
    taker.give_up(OWN_PROFILER)
    end = time.monotonic() + HAND_OVER_S
    while path.foreign() and time.monotonic() < end:
        taker.steps.at = min(taker.steps.at, taker.steps.count + 1)
        time.sleep(0.002)


def _ends(taker: Any) -> None:
    taker.job_profiler = 0


def _around(
    kind: Any,
    name: str,
    before: Optional[Callable[[], None]],
    after: Optional[Callable[[], None]],
    skip: Callable[[], bool] = lambda: False,
) -> None:
    function = getattr(kind, name)

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if skip():
            return function(*args, **kwargs)
        _quietly(name, before)
        try:
            return function(*args, **kwargs)
        finally:
            _quietly(name, after)

    setattr(kind, name, call)


def _quietly(name: str, act: Optional[Callable[[], None]]) -> None:
    try:
        if act is not None:
            act()
    except Exception as error:
        failure(name, error)
