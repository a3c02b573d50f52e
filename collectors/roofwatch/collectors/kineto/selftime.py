"""Self time: the part of an op in which no later op of its thread is running, so that nothing counts twice."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from roofwatch.collectors.kineto.nesting import Nest

    Ints = NDArray[np.int64]


def self_times(nested: Nest) -> Ints:
    """Nanoseconds of self time by position. On each thread they add up to the union of its events exactly.

    At each instant the op begun last of those still running owns the time; that is the innermost one where ops nest.
    """
    result = np.zeros(len(nested.order), dtype=np.int64)
    edges = np.flatnonzero(np.diff(nested.thread, prepend=-1, append=-1))
    for low, high in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True):
        result[low:high] = _sweep(nested.start[low:high].tolist(), nested.end[low:high].tolist())
    return result


def _sweep(starts: list[int], ends: list[int]) -> list[int]:
    own = [0] * len(starts)
    stack: list[int] = []
    now = 0
    for i, begun in enumerate(starts):
        now = _advance(stack, ends, own, now, begun)
        stack.append(i)
    if ends:
        _advance(stack, ends, own, now, max(ends))
    return own


def _advance(stack: list[int], ends: list[int], own: list[int], now: int, until: int) -> int:
    """Gives the time from ``now`` to ``until`` to the ops on the stack, innermost first; drops those that ended."""
    while stack:
        top = stack[-1]
        stop = ends[top]
        if stop > until:
            own[top] += until - now
            return until
        if stop > now:
            own[top] += stop - now
            now = stop
        stack.pop()
    return until
