"""Records that are far from all others: their clock is another one, or damaged. They are left out before anything else.

What is made of rows (links, groups, metrics) goes by their place, so none may be left out later.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from roofwatch.collectors.kineto.columns import Columns
from roofwatch.collectors.kineto.possible import FAR_NS, MAX_TOTAL_NS

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]
    Mask = NDArray[np.bool_]


class Whole(Columns):
    """Columns whose rows were chosen before: none is left out at the end."""

    def close(self) -> None:
        """Ends taking rows."""
        for table in (self.ops, self.host, self.device, self.notes, self.modules, self.functions, self.messages.table):
            table.close()


def middle_of(starts: Sequence[Ints]) -> int | None:
    """The middle one of all; None where there are none."""
    every = np.concatenate([np.empty(0, dtype=np.int64), *starts])
    return int(np.partition(every, len(every) // 2)[len(every) // 2]) if len(every) else None


def near(start: Ints, middle: int | None) -> Mask:
    """Which begin within two days of a time."""
    if middle is None:
        return np.ones(len(start), dtype=np.bool_)
    return np.abs(start - middle) <= FAR_NS


def elsewhen(parts: Sequence[Ints], start: Ints) -> bool:
    """Whether nothing of the parts is within days of the middle one of records."""
    middle, parts = middle_of([start]), [part for part in parts if len(part)]
    return bool(parts) and middle is not None and not any(near(part, middle).any() for part in parts)


def kept(start: Ints, end: Ints, middle: int | None, dropped: Counter[str]) -> Mask:
    """Which of the records count: near the middle one, and not the longest of what is longer than can be in all."""
    mask = near(start, middle)
    dropped["bad_time"] += int(np.count_nonzero(~mask))
    length = np.where(mask, end - start, 0).astype(np.float64)  # sums beyond 64 bits
    if length.sum() > MAX_TOTAL_NS:
        order = np.argsort(length, kind="stable")
        endless = order[np.cumsum(length[order]) > MAX_TOTAL_NS]
        dropped["bad_duration"] += int(np.count_nonzero(mask[endless]))
        mask[endless] = False
    return mask
