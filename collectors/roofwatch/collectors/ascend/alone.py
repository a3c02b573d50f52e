"""A device of which nothing but its records is told: busy and idle time, and nothing of why it was idle.

The general timeline asks the host about each gap; where there is no host it would hold a million empty answers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from roofwatch.collectors.ascend.common import Rows
from roofwatch.collectors.base import RawDevice
from roofwatch.collectors.kineto.examples import place, short
from roofwatch.collectors.kineto.intervals import joined, length, outside, union
from roofwatch.model.record import Cause, IdleCause

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]


def add_timelines(devices: Sequence[RawDevice], rows: Rows, bounds: tuple[int, int] | None = None) -> None:
    """Fills in span, busy and idle time of devices. The span is the hull of a device's records, or ``bounds``."""
    communication = rows.communication
    for index, device in enumerate(devices):
        of = slice(None) if len(devices) == 1 else np.flatnonzero(rows.device == index)
        start, end, collective = rows.start[of], rows.end[of], communication[of]
        low, high = int(start.min()), int(end.max())
        if bounds is not None:
            low, high = min(low, bounds[0]), max(high, bounds[1])
        busy = union(start, end)
        compute = union(start[~collective], end[~collective])
        device.span_ns = high - low
        device.busy_ns = length(busy)
        beside = (start[collective], end[collective])
        device.exposed_communication_ns = length(joined([compute, beside])) - length(compute)
        device.causes = _idle(rows, of, outside(busy, low, high), low)


def _idle(rows: Rows, of: slice | Ints, idle: tuple[Ints, Ints], low: int) -> tuple[IdleCause, ...]:
    gap = idle[1] - idle[0]
    if not len(gap):
        return ()
    at = int(np.argmax(gap))
    bounds = int(idle[0][at]), int(idle[1][at])
    (after,) = np.nonzero(rows.start[of] == bounds[1])
    what = short(rows.whats[int(rows.what[of][after[0]])].kernel) if len(after) else "the window's end"
    example = f"nothing is told of the host, before {what}; {place(bounds, low)}"
    return (IdleCause(Cause.UNKNOWN, int(gap.sum()), len(gap), int(gap[at]), example),)
