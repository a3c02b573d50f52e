"""Which element of a captured sequence each kernel of a replay is: the best monotone assignment, and how clear it is.

A kernel takes the next element, takes the same one again (an op that launches several), or none; an element may launch
nothing. Each choice has a score, and the assignment with the largest sum is found exactly, within a band around the
diagonal where the two sequences are too long for the whole plane (dynamic programming, as in sequence alignment:
Needleman and Wunsch, J. Mol. Biol. 48, 1970). The margin of a kernel is how much the best assignment loses when that
kernel must be something else: none, or an element of another group. Elements of one group are alike, so that it does
not matter which of them a kernel is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]
    Scores = NDArray[np.int32]

CELLS = 6_000_000  # of each of two planes of 4 bytes; 2,000 kernels fit 3,000 elements whole
NARROWEST = 64
NONE = -1
FORBIDDEN = -(1 << 20)  # a score that no path gains back
_LOST = -(1 << 28)


@dataclass(frozen=True, slots=True)
class Costs:
    """Scores, by classes. ``first`` and ``again`` have a row a class of kernels and a column a class of elements."""

    first: Scores
    again: Scores
    unmatched: Scores  # by class of kernels
    skip: Scores  # by class of elements


@dataclass(frozen=True, slots=True)
class Assignment:
    """For each kernel its element (NONE where it is best left without) and the margin of that choice."""

    element: Ints
    margin: Ints


def assign(kernels: Ints, elements: Ints, group: Ints, costs: Costs) -> Assignment:
    """The best assignment of kernels to elements.

    Args:
        kernels: class of each kernel, in order.
        elements: class of each element, in order.
        group: of each element; elements of one group are the same answer.
        costs: what each choice scores.
    """
    if not len(kernels) or not len(elements):
        return Assignment(np.full(len(kernels), NONE, dtype=np.int64), np.zeros(len(kernels), dtype=np.int64))
    return _Plane(kernels, elements, group, costs).solve()


class _Plane:
    """Rows are kernels, columns elements from ``low[row]`` on; a row of boundaries has one column more."""

    def __init__(self, kernels: Ints, elements: Ints, group: Ints, costs: Costs) -> None:
        self.kernels, self.costs = kernels, costs
        self.count, self.size = len(kernels), len(elements)
        self.width = min(self.size, max(NARROWEST, CELLS // (self.count + 1)))
        last = self.size - self.width
        middle = np.arange(self.count + 1) * self.size // self.count - self.width // 2
        self.low = np.clip(middle, 0, last)
        self.low[0], self.low[-1] = 0, last
        self.elements, self.group = elements, group
        skips = costs.skip[elements].astype(np.int32)
        self.skips = np.append(0, np.cumsum(skips)).astype(np.int32)  # of all elements before a boundary
        self.taken = np.full((self.count + 1, self.width), _LOST, dtype=np.int32)  # kernel row − 1 took this element
        self.best = np.full((self.count + 1, self.width + 1), _LOST, dtype=np.int32)  # so many kernels are placed

    def solve(self) -> Assignment:
        self._forward()
        return Assignment(self._path(), self._margins())

    def _row(self, values: Scores, at: int, low: int, width: int, empty: int = _LOST) -> Scores:
        """``values``, which begin at column ``at``, as the columns from ``low`` on."""
        if at == low and len(values) == width:
            return values
        result = np.full(width, empty, dtype=np.int32)
        start, end = max(at, low), min(at + len(values), low + width)
        if end > start:
            result[start - low : end - low] = values[start - at : end - at]
        return result

    def _scores(self, row: int) -> tuple[Scores, Scores, int]:
        """Of the kernel that leads to a row: first and again of each element in its band, and left without."""
        low, kind = int(self.low[row]), int(self.kernels[row - 1])
        here = self.elements[low : low + self.width]
        return self.costs.first[kind, here], self.costs.again[kind, here], int(self.costs.unmatched[kind])

    def _forward(self) -> None:
        self.best[0] = self.skips[: self.width + 1]
        for row in range(1, self.count + 1):
            low, before = int(self.low[row]), int(self.low[row - 1])
            first, again, unmatched = self._scores(row)
            best = self._row(self.best[row - 1], before, low, self.width + 1)
            taken = np.maximum(best[:-1] + first, self._row(self.taken[row - 1], before, low, self.width) + again)
            reached = best + unmatched
            np.maximum(reached[1:], taken, out=reached[1:])
            skips = self.skips[low : low + self.width + 1]
            self.taken[row] = taken
            self.best[row] = np.maximum.accumulate(reached - skips) + skips

    def _path(self) -> Ints:
        """Back along one best path. Scores are integers, so that equality is exact."""
        element = np.full(self.count, NONE, dtype=np.int64)
        row, at, inside = self.count, self.size, False  # ``at``: a boundary, or when ``inside`` the element just taken
        while row > 0:
            low = int(self.low[row])
            first, _, unmatched = self._scores(row)
            if inside:
                element[row - 1] = at
                came = self._at(self.best, row - 1, at) + int(first[at - low])
                inside = came != int(self.taken[row, at - low])
                row -= 1
                continue
            value = int(self.best[row, at - low])
            if at > low and value == self._at(self.taken, row, at - 1):
                at, inside = at - 1, True
            elif value == self._at(self.best, row - 1, at) + unmatched:
                row -= 1
            else:
                at -= 1
        return element

    def _at(self, plane: Scores, row: int, column: int) -> int:
        column -= int(self.low[row])
        return int(plane[row, column]) if 0 <= column < plane.shape[1] else _LOST

    def _margins(self) -> Ints:
        """From the end backwards: what is best after each kernel, and so what each choice for it costs."""
        margin = np.zeros(self.count, dtype=np.int64)
        low = int(self.low[self.count])
        rest = (self.skips[-1] - self.skips)[low : low + self.width + 1].astype(np.int32)  # from each boundary on
        after = np.full(self.width, _LOST, dtype=np.int32)  # with the next kernel taking the same element again
        for row in range(self.count, 0, -1):
            at = int(self.low[row])
            first, again, unmatched = self._scores(row)
            rest, after = self._row(rest, low, at, self.width + 1), self._row(after, low, at, self.width)
            follows = np.maximum(after, rest[1:])
            before = self._row(self.best[row - 1], int(self.low[row - 1]), at, self.width + 1)
            left_out = int((before + rest).max()) + unmatched
            margin[row - 1] = self._margin(self.taken[row] + follows, left_out, at)
            after = again + follows
            found = rest + unmatched
            np.maximum(found[:-1], first + follows, out=found[:-1])
            skips = self.skips[at : at + self.width + 1]
            rest = np.maximum.accumulate((found + skips)[::-1])[::-1] - skips
            low = at
        return margin

    def _margin(self, through: Scores, left_out: int, low: int) -> int:
        """How far the best choice for a kernel is above the best one that means something else."""
        best = int(through.argmax())
        groups = self.group[low : low + self.width]
        others = through[groups != groups[best]]
        other = int(others.max()) if len(others) else _LOST
        return min(int(through[best]) - max(other, left_out), -FORBIDDEN)
