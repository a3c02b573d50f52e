"""The window that was really taken, on the clock of its trace.

A trace tells only what was recorded; how long the recorder listened before its first event and after its last one, or
heard nothing at all, is known to whoever opened the window.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from roofwatch.collectors.kineto.link import launches_of

if TYPE_CHECKING:
    from roofwatch.collectors.kineto.columns import Columns

# Measured on torch 2.13, one busy machine: the first op at the earliest 0.08 ms after the noted start, the last one
# begun at the latest 0.7 ms after the noted end. Whoever notes a time may wait for the GIL: 5 ms for each busy thread.
CLOCK_SLACK_NS = 20_000_000


@dataclass(frozen=True, slots=True)
class Taken:
    """Begin and end of the window in the trace's own nanoseconds, and whether the two clocks agree on them."""

    start: int
    end: int
    agrees: bool = True


def taken(bounds: tuple[int, int], base_ns: int | None, columns: Columns) -> Taken:
    """Where bounds in Unix nanoseconds lie on a clock that counts from ``base_ns`` (None: from 1970, or not known).

    Nothing begins outside a window. So where something seems to, the bounds are moved by the least that takes it in:
    their length, which comes from one clock alone, stays. Where that cannot do, they are widened.
    """
    low, high = (bound - (base_ns or 0) for bound in bounds)
    first, last = _latest_start_and_earliest_end(columns) or (low, high)
    early, late = max(0, low - first), max(0, last - high)
    agrees = max(early, late) <= CLOCK_SLACK_NS
    if early and late:
        return Taken(first, last, agrees)
    return Taken(low - early + late, high - early + late, agrees)


def _latest_start_and_earliest_end(columns: Columns) -> tuple[int, int] | None:
    """When a window with these events began at the latest and ended at the earliest; None without any.

    Ops and annotations end with the cut, calls and device records go on until the recorder is closed, and a device
    also runs what was launched before. So calls and records can tell less.
    """
    host = [table["start"] for table in (columns.ops, columns.notes) if len(table)]
    device = columns.device
    if host:
        begun = [*host, columns.host["start"]] if len(columns.host) else host
        return min(int(start.min()) for start in begun), max(int(start.max()) for start in host)
    if len(columns.host):
        start = columns.host["start"]
        return int(start.min()), int(start.min())
    if len(device):
        return int(device["end"].max()), int(device["start"].min())
    return None


def leave_out_later(columns: Columns, end: int) -> int:
    """Leaves out calls begun after the end of the window, and the records they launched: how many records.

    A device's recorder goes on until it is closed, when no op is recorded any more.
    """
    late = columns.host["start"] > end
    if not late.any():
        return 0
    launches = launches_of(columns)
    after = (launches.row >= 0) & (launches.time > end)
    columns.device.keep(~after)
    columns.host.keep(~late)
    return int(np.count_nonzero(after))
