"""What times a trace can have: the rest is damage or made up, and would not fit in sums and columns of a store."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from roofwatch.collectors.kineto.tables import Table

    Ints = NDArray[np.int64]

_DAY_NS = 86_400 * 10**9
# No profiler records for days. A lone event that far from the others has a clock of its own, or none.
FAR_NS = 2 * _DAY_NS
MAX_TOTAL_NS = 1 << 49  # 6.5 days of device time, or of ops: more in one trace is made up


def leave_out_far(tables: Sequence[Table], about: Table) -> int:
    """Leaves out of all tables what begins far from the middle event; how many. What is left lies within 11 days.

    The middle one of all, or of ``about`` where nothing of that is near it: its clock is another one.
    """
    filled = [table for table in tables if len(table)]
    if not len(about) or not filled:
        return 0
    low, high = min(int(t["start"].min()) for t in filled), max(int(t["start"].max()) for t in filled)
    if high - low <= FAR_NS:
        return 0
    middle = _middle(np.concatenate([table["start"] for table in filled]))
    if (np.abs(about["start"] - middle) > FAR_NS).all():
        middle = _middle(about["start"])
    lost = 0
    for table in filled:
        near = np.abs(table["start"] - middle) <= FAR_NS
        lost += int(np.count_nonzero(~near))
        table.keep(near)
    return lost


def _middle(starts: Ints) -> int:
    return int(np.partition(starts, len(starts) // 2)[len(starts) // 2])


def leave_out_endless(table: Table) -> int:
    """Leaves out the longest events where all together last longer than can be; how many."""
    if not len(table):
        return 0
    long: NDArray[np.float64] = (table["end"] - table["start"]).astype(np.float64)  # sums beyond 64 bits
    if long.sum() <= MAX_TOTAL_NS:
        return 0
    order = np.argsort(long, kind="stable")
    kept = np.zeros(len(long), dtype=np.bool_)
    kept[order[np.cumsum(long[order]) <= MAX_TOTAL_NS]] = True
    table.keep(kept)
    return int(np.count_nonzero(~kept))
