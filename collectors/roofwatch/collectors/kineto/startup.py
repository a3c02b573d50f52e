"""Idle stretches that are a program's start: they do not come back, so nothing about them says what a step needs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from roofwatch.collectors.kineto import calls
from roofwatch.collectors.kineto.graphs_captured import capture_spans
from roofwatch.collectors.kineto.intervals import length, union
from roofwatch.model.record import Cause

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from roofwatch.collectors.kineto.columns import Columns
    from roofwatch.collectors.kineto.gaps import Gaps

    Ints = NDArray[np.int64]
    Mask = NDArray[np.bool_]

# A launch or an allocation takes microseconds. One of a millisecond loads code, makes a context, or grows a pool.
LOADING_NS = 1_000_000
FILLED = 0.5  # of a stretch: then such calls are what it is made of
# Of the span. A recording without steps may begin anywhere; what its first hundredth leads into, and takes a quarter
# of it, is not what the rest is like.
ONSET, WHOLE = 0.01, 0.25
MAX_ASKED = 1000  # stretches whose calls are looked at, the longest first; keeps a hostile trace quick


def startup_of(
    rows: Ints, gaps: Gaps, shares: Mapping[Cause, Ints], columns: Columns, span: tuple[int, int], *, stepped: bool
) -> Mask:
    """Which gaps of the device with the records ``rows`` are start-up.

    Where neither steps nor bounds say what was meant to be recorded (not ``stepped``): the idle time before the first
    record, unless it is mostly a data loader's. Everywhere: a gap before the first record of its name in the window
    that is mostly runtime calls of a millisecond and more, other than waits, copies and graphs: code is loaded, or a
    context made. And a gap of a millisecond that is mostly the capture of graphs: its launches run nothing.
    """
    long = gaps.end - gaps.start
    found = np.zeros(len(long), dtype=np.bool_)
    if not stepped:
        low, high = span
        onset = (gaps.start - low <= ONSET * (high - low)) & (long >= WHOLE * (high - low))
        found |= (gaps.following >= 0) & ((gaps.start == low) | onset) & (2 * shares[Cause.INPUT] < long)
    capturing = capture_spans(columns)
    if capturing:
        thread, start, end = (np.array(column) for column in zip(*capturing, strict=True))
        found |= _filled(long >= LOADING_NS, long, gaps, (thread, start, end))
    return found | _filled((long >= LOADING_NS) & _is_first(rows, gaps, columns), long, gaps, _loading(columns))


def _filled(asked: Mask, long: Ints, gaps: Gaps, calls_: tuple[Ints, Ints, Ints]) -> Mask:
    """Which of the gaps ``asked`` are filled with calls (threads, starts, ends) of the thread that launched next."""
    found = np.zeros(len(long), dtype=np.bool_)
    rows = np.flatnonzero(asked)
    thread, start, end = calls_
    for at in rows[np.argsort(-long[rows], kind="stable")[:MAX_ASKED]].tolist() if len(thread) else ():
        own = (thread == gaps.thread[at]) & (start < gaps.end[at]) & (end > gaps.start[at])
        begun, ended = np.maximum(start[own], gaps.start[at]), np.minimum(end[own], gaps.end[at])
        found[at] = length(union(begun, ended)) >= FILLED * long[at]
    return found


def _is_first(rows: Ints, gaps: Gaps, columns: Columns) -> Mask:
    """Whether the record that ends each gap is the first of its name on the device."""
    name, start = columns.device["name"], columns.device["start"]
    first = np.full(len(columns.names.values_seen), np.iinfo(np.int64).max)
    np.minimum.at(first, name[rows], start[rows])
    known = gaps.following >= 0
    result = known.copy()
    result[known] = start[gaps.following[known]] <= first[name[gaps.following[known]]]
    return result


def _loading(columns: Columns) -> tuple[Ints, Ints, Ints]:
    """Thread, start and end of long calls that neither copy nor wait, nor launch a graph: those take as long each time.

    Freeing memory waits, too, but where it takes milliseconds it makes a context.
    """
    texts, host = columns.names.values_seen, columns.host
    waiting = calls.mask(texts, calls.is_copy_call) | calls.mask(texts, calls.is_graph_launch)
    waiting |= calls.mask(texts, calls.is_sync_call) & ~calls.mask(texts, calls.is_free_call)
    chosen = (host["end"] - host["start"] >= LOADING_NS) & ~waiting[host["name"]]
    return host["thread"][chosen], host["start"][chosen], host["end"][chosen]
