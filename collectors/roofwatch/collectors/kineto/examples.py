"""An example of each cause of idle time: what the host was in, what the device waited for, and where in the window."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from roofwatch.model.record import Cause

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from roofwatch.collectors.kineto.columns import Columns
    from roofwatch.collectors.kineto.gaps import Gaps
    from roofwatch.collectors.kineto.link import Launches
    from roofwatch.collectors.kineto.waits import Events, Waits

    Ints = NDArray[np.int64]

# Characters of a name: nearly all ops' and most kernels' whole; each window in a store has up to 16 examples.
_LONGEST_NAME = 240
_HEAD = 160  # of a longer one what stands before the cut: libraries tell two kernels apart at both ends


@dataclass(frozen=True, slots=True)
class Examples:
    """Says in words what one gap's part of a cause was. The part's length stands beside the text, as the longest."""

    columns: Columns
    launches: Launches
    waits: Waits
    gaps: Gaps
    split: Ints  # until when the host was looked at over each gap
    window: tuple[int, int]

    def of(self, cause: Cause, at: int) -> str:
        """What the host was in over gap ``at``, and the kernel that the device waited for."""
        start, end, row = (int(one[at]) for one in (self.gaps.start, self.gaps.end, self.gaps.following))
        what = self._launch(at) if cause in (Cause.LAUNCH_GAP, Cause.UNKNOWN) else self._host(cause, at)
        kernel = self._name(self.columns.device["name"][row]) if row >= 0 else "the window's end"
        return f"{what}, before {kernel}; {place((start, end), self.window[0])}"

    def _launch(self, at: int) -> str:
        row = self.gaps.following[at]
        call = self.launches.row[row] if row >= 0 else -1
        if self.gaps.in_graph[at]:
            return "inside one graph launch"
        if self.gaps.queued[at]:
            return "launched before the window"
        if call < 0:
            return "launch not known"
        waited = max(0, int(self.gaps.end[at] - self.launches.time[row]))
        return f"{waited / 1e6:.3f} ms after {self._name(self.columns.host['name'][call])}"

    def _host(self, cause: Cause, at: int) -> str:
        thread, start, until = (int(one[at]) for one in (self.gaps.thread, self.gaps.start, self.split))
        if thread < 0:
            return "no event on any thread"
        if cause is Cause.HOST:
            return self._silent(thread, start, until)
        begun = max(int(self.gaps.launch[at]), start)
        if cause is Cause.LAUNCH_BOUND and until - begun > begun - start:
            call = self.launches.row[self.gaps.following[at]]
            return f"in {self._name(self.columns.host['name'][call])}{self._of_op(thread, begun)}"
        events = self.waits.events(thread, None if cause is Cause.LAUNCH_BOUND else cause)
        found = self._longest(events, start, until)
        if found is None:
            return "between two ops" if cause is Cause.LAUNCH_BOUND else self._drained(thread, start, until)
        inside = min(int(events.end[found]), until) - max(int(events.start[found]), start)
        if cause is Cause.SYNC and 2 * inside < until - start:
            return self._drained(thread, start, until)
        name = self._name(events.name[found])
        return f"in {name}{self._of_op(thread, int(events.start[found])) if cause is Cause.COPY else ''}"

    def _of_op(self, thread: int, time: int) -> str:
        op = self.waits.op_at(thread, time)
        return "" if op is None else f" of {self._name(op)}"

    def _silent(self, thread: int, start: int, until: int) -> str:
        begun, ended = self.waits.of_thread(thread, *self.window).silent
        longest = np.argmax(np.minimum(ended, until) - np.maximum(begun, start))
        stretch = begun[longest]
        function = self._function(thread, max(int(stretch), start), min(int(ended[longest]), until))
        if function is not None:
            return f"in {function}"
        last = self._last(self.waits.events(thread), int(stretch))
        return "no event on its thread yet" if last is None else f"no event after {last}"

    def _function(self, thread: int, start: int, until: int) -> str | None:
        """The innermost of the long Python functions, where they were recorded, that was on for most of a stretch."""
        table = self.columns.functions
        shared = np.minimum(table["end"], until) - np.maximum(table["start"], start)
        (most,) = np.nonzero((table["thread"] == thread) & (2 * shared > until - start))
        if not len(most):
            return None
        length = table["end"][most] - table["start"][most]
        return self._name(int(table["name"][most[np.lexsort((-table["start"][most], length))[0]]])).rpartition("/")[2]

    def _drained(self, thread: int, start: int, until: int) -> str:
        """The wait may have been short: what costs is that the host had nothing launched ahead when it returned."""
        sync, copy = self.waits.events(thread, Cause.SYNC), self.waits.events(thread, Cause.COPY)
        blocking = sync.and_also(copy)
        returned = blocking.end[blocking.end <= until]
        if not len(returned):
            return "after a wait"
        since = max(int(returned.max()), start)
        return f"after {self._last(blocking, until)} the host took {(until - since) / 1e6:.3f} ms to launch again"

    def _longest(self, events: Events, start: int, until: int) -> int | None:
        """The event that takes most of a stretch; of equal ones the outermost."""
        shared = np.minimum(events.end, until) - np.maximum(events.start, start)
        if not len(shared) or shared.max() <= 0:
            return None
        return self._first_of(events, shared == shared.max(), events.end - events.start)

    def _last(self, events: Events, until: int) -> str | None:
        """The name of the last event that ended by ``until``; of equal ones the outermost."""
        ended = events.end <= until
        if not ended.any():
            return None
        last = ended & (events.end == events.end[ended].max())
        return self._name(int(events.name[self._first_of(events, last, -events.start)]))

    def _first_of(self, events: Events, equal: NDArray[np.bool_], size: Ints) -> int:
        (among,) = np.nonzero(equal & (size == size[equal].max()))
        return int(min(among.tolist(), key=lambda i: self._name(int(events.name[i]))))

    def _name(self, name: int) -> str:
        return short(self.columns.names.values_seen[name])


def short(name: str) -> str:
    """A name that fits, else without its middle."""
    return name if len(name) <= _LONGEST_NAME else f"{name[:_HEAD]}…{name[_HEAD + 1 - _LONGEST_NAME :]}"


def place(gap: tuple[int, int], low: int) -> str:
    """Where in a window a gap is and how long, in milliseconds; ``low`` is the window's begin."""
    return f"at {(gap[0] - low) / 1e6:.3f} ms, a gap of {(gap[1] - gap[0]) / 1e6:.3f} ms"


def neighbours(names: Sequence[str], ops: Sequence[Ints], gap: tuple[int, int]) -> str:
    """The ops (starts, ends, name ids) on both sides of a stretch without any."""
    start, end, name = ops
    before, after = np.flatnonzero(end <= gap[0]), np.flatnonzero(start >= gap[1])
    first = min((-int(end[i]), names[name[i]]) for i in before)[1] if len(before) else "the window's begin"
    last = min((int(start[i]), names[name[i]]) for i in after)[1] if len(after) else "the window's end"
    return f"between {short(first)} and {short(last)}"
