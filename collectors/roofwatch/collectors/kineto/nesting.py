"""Which event of a thread encloses which, and which one is running at a given time."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]

NONE = -1
MAX_DEPTH = 1000  # deeper than any real call stack; keeps a hostile trace from costing quadratic time


@dataclass(frozen=True, slots=True)
class Nest:
    """Events of all threads, sorted by thread, then start, longest first. Positions count in this order."""

    order: Ints  # position → row of the table
    thread: Ints
    start: Ints
    end: Ints
    parent: Ints  # position of the event that was open when this one began, NONE where there is none
    first: Ints  # by thread: its first position; one more at the end

    def of_thread(self, thread: int) -> slice:
        """The positions of a thread."""
        if not 0 <= thread < len(self.first) - 1:
            return slice(0, 0)
        return slice(int(self.first[thread]), int(self.first[thread + 1]))

    def at(self, thread: Ints, time: Ints) -> Ints:
        """The innermost event of ``thread`` running at ``time`` (ends included): the last begun. Positions or NONE."""
        found = begun_before(self, thread, time)
        return self._outwards(found, time)

    def enclosing(self, position: Ints, time: Ints) -> Ints:
        """The next event outwards from ``position`` that is running at ``time``."""
        found = np.where(position >= 0, self.parent[position], NONE) if len(self.parent) else position
        return self._outwards(found, time)

    def _outwards(self, position: Ints, time: Ints) -> Ints:
        found = position.copy()
        if not len(self.end):
            return np.full_like(found, NONE)
        for _ in range(MAX_DEPTH):
            (ended,) = np.nonzero((found >= 0) & (self.end[found] < time))
            if not len(ended):
                return found
            found[ended] = self.parent[found[ended]]
        found[(found >= 0) & (self.end[found] < time)] = NONE
        return found


def nest(thread: Ints, start: Ints, end: Ints, *, parents: bool = True) -> Nest:
    """Nests the events of a table. Events that overlap without nesting are kept: the later one counts as inside.

    Without ``parents``, which take the most time, nothing has one: enough where only ranges are wanted.
    """
    order = np.lexsort((-end, start, thread))
    thread, start, end = thread[order], start[order], end[order]
    count = int(thread[-1]) + 1 if len(thread) else 0
    first = np.searchsorted(thread, np.arange(count + 1))
    parent = np.full(len(order), NONE, dtype=np.int64)
    for low, high in pairwise(first.tolist()):
        if parents and high > low:
            parent[low:high] = _parents(start[low:high].tolist(), end[low:high].tolist(), low)
    return Nest(order, thread, start, end, parent, first)


def _parents(starts: list[int], ends: list[int], offset: int) -> list[int]:
    parents: list[int] = []
    stack: list[int] = []
    pop, push, add = stack.pop, stack.append, parents.append
    for i, begun in enumerate(starts):
        while stack and ends[stack[-1]] <= begun:
            pop()
        add(stack[-1] + offset if stack else NONE)
        push(i)
    return parents


def begun_before(nested: Nest, thread: Ints, time: Ints) -> Ints:
    """The last event of each thread begun at or before each time: one bisection for all, whatever their threads."""
    known = (thread >= 0) & (thread < len(nested.first) - 1)
    own = np.where(known, thread, 0)
    first = nested.first[own] if known.any() else np.zeros(len(thread), dtype=np.int64)
    low, high = first, np.where(known, nested.first[own + 1], first) if known.any() else first
    while (open_ := low < high).any():
        middle = (low + high) // 2
        begun = nested.start[np.where(open_, middle, 0)] <= time
        low = np.where(open_ & begun, middle + 1, low)
        high = np.where(open_ & ~begun, middle, high)
    return np.where(known & (low > first), low - 1, NONE)
