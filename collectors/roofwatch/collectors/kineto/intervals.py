"""Sets of time: unions, lengths, and how much of many gaps lies in each of several sets. Ends are exclusive."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]
    Mask = NDArray[np.bool_]

Spans = tuple["Ints", "Ints"]  # starts and ends


def union(start: Ints, end: Ints) -> Spans:
    """The union as disjoint spans in order; spans that touch are one, empty ones are none."""
    filled = end > start
    if not filled.all():
        start, end = start[filled], end[filled]
    if not len(start):
        return start, end
    if not (start[1:] >= start[:-1]).all():
        order = np.argsort(start, kind="stable")
        start, end = start[order], end[order]
    reach = np.maximum.accumulate(end)
    new = np.append(True, start[1:] > reach[:-1])
    last = np.append(new[1:], True)
    return start[new], reach[last]


def joined(parts: Sequence[Spans]) -> Spans:
    """The union of several sets."""
    starts, ends = zip(*parts, strict=True) if parts else ((), ())
    empty = np.empty(0, dtype=np.int64)
    return union(np.concatenate([empty, *starts]), np.concatenate([empty, *ends]))


def length(spans: Spans) -> int:
    """The length of disjoint spans."""
    return int((spans[1] - spans[0]).sum())


def outside(spans: Spans, start: int, end: int) -> Spans:
    """What of [start, end) disjoint ordered spans leave over."""
    starts = np.append(start, np.clip(spans[1], start, end))
    ends = np.append(np.clip(spans[0], start, end), end)
    filled = ends > starts
    return starts[filled], ends[filled]


def silences(starts: Ints, ends: Ints, low: int, high: int, *, longer_than: int) -> Spans:
    """The long stretches of [low, high) that no event reaches into; an event without length ends one too."""
    order = np.argsort(starts, kind="stable")
    begun = np.clip(np.append(starts[order], high), low, high)
    reach = np.maximum.accumulate(np.append(low, np.clip(ends[order], low, high)))
    long = begun - reach > longer_than
    return reach[long], begun[long]


class Layers:
    """Several sets of disjoint spans, of which an earlier one covers the later: each instant belongs to one at most."""

    def __init__(self, layers: Sequence[Spans]) -> None:
        self._bounds = np.unique(np.concatenate([edge for layer in layers for edge in layer]))
        self._owner = np.full(len(self._bounds), -1, dtype=np.int64)  # of the stretch from each bound to the next
        for index in reversed(range(len(layers))):
            start, end = layers[index]
            begun = np.searchsorted(start, self._bounds, side="right")
            ended = np.searchsorted(end, self._bounds, side="right")
            self._owner[begun > ended] = index
        stretch = np.diff(self._bounds, append=self._bounds[-1:])
        self._before = [
            np.append(0, np.cumsum(np.where(self._owner == index, stretch, 0))) for index in range(len(layers))
        ]

    def within(self, index: int, start: Ints, end: Ints) -> Ints:
        """How much of each [start, end) belongs to a layer."""
        return self._until(index, end) - self._until(index, start)

    def _until(self, index: int, time: Ints) -> Ints:
        at = np.searchsorted(self._bounds, time, side="right") - 1
        known = at >= 0
        result = np.zeros(len(time), dtype=np.int64)
        at = at[known]
        partial = np.where(self._owner[at] == index, time[known] - self._bounds[at], 0)
        result[known] = self._before[index][at] + partial
        return result
