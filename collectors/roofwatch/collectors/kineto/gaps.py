"""The idle stretches of a device, and what is known of the record that ends each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from roofwatch.collectors.kineto.tables import small

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from roofwatch.collectors.kineto.columns import Columns
    from roofwatch.collectors.kineto.intervals import Spans
    from roofwatch.collectors.kineto.link import Launches

    Ints = NDArray[np.int64]
    Mask = NDArray[np.bool_]

NEVER = np.iinfo(np.int64).max


@dataclass(frozen=True, slots=True)
class Gaps:
    """Idle stretches of one device, in order."""

    start: Ints
    end: Ints
    following: Ints  # row of the record that ends the gap, -1 at the end of the window
    thread: Ints  # of that launch, -1 where it is not known; at the end of the window of the last record's launch
    launch: Ints  # when that launch call began
    returned: Ints  # and when it returned
    queued: Mask  # surely launched before the gap, since it was before the window
    in_graph: Mask  # between two records of one graph launch


def gaps_of(rows: Ints, idle: Spans, columns: Columns, launches: Launches) -> Gaps:
    """The gaps of the device that has the records ``rows``.

    Of records that begin together the one launched first ends the gap, so that the order in a file means nothing.
    """
    start, end, correlation = (taken(columns.device[key], rows) for key in ("start", "end", "correlation"))
    order = np.argsort(start, kind="stable")
    filled = end > start
    if not filled.all():
        order = order[filled[order]]  # an empty record ends no gap
    begun = start[order]
    (tied,) = np.nonzero(np.append(False, begun[1:] == begun[:-1]) | np.append(begun[1:] == begun[:-1], False))
    if len(tied):
        among = order[tied]
        row = rows[among]
        launched = np.where(launches.backlog[row], -NEVER, NEVER)
        launched = np.where(launches.thread[row] >= 0, launches.time[row], launched)
        order[tied] = among[np.lexsort((end[among], correlation[among], launched, start[among]))]
    at = np.searchsorted(begun, idle[1])
    has_next = at < len(order)
    following = np.full(len(at), -1, dtype=np.int64)
    following[has_next] = order[at[has_next]]
    row = np.where(has_next, rows[following], -1)
    thread = np.where(has_next, launches.thread[row], _last_known_thread(rows, columns, launches))
    call = np.where(has_next, launches.row[row], -1)
    otherwise = np.where(has_next, idle[0], idle[1])
    return Gaps(
        start=idle[0],
        end=idle[1],
        following=row,
        thread=small(thread),
        launch=small(_at(columns.host["start"], call, otherwise)),
        returned=small(_at(columns.host["end"], call, otherwise)),
        queued=has_next & launches.backlog[row],
        in_graph=has_next & (_launch_began(start, correlation)[following] <= idle[0]),
    )


def taken(column: Ints, rows: Ints) -> Ints:
    """The values of a column at rows in order; the column itself where these are all."""
    return column if len(rows) == len(column) else column[rows]


def _at(column: Ints, row: Ints, otherwise: Ints) -> Ints:
    """The values of a column at rows, and others where a row is -1."""
    result = otherwise.copy()
    result[row >= 0] = column[row[row >= 0]]
    return result


def _launch_began(start: Ints, correlation: Ints) -> Ints:
    """For each record when the first record of the same launch began; all records of a graph launch share its id."""
    if not (correlation >= 0).any() or (np.diff(np.sort(correlation)) != 0).all():
        return start
    order = np.lexsort((start, correlation))
    edges = np.flatnonzero(np.append(True, np.diff(correlation[order]) != 0))
    began = np.empty(len(start), dtype=np.int64)
    began[order] = np.repeat(start[order[edges]], np.diff(np.append(edges, len(order))))
    none = correlation < 0
    began[none] = start[none]
    return began


def _last_known_thread(rows: Ints, columns: Columns, launches: Launches) -> int:
    """The thread that launched the record that ended last, of those with a known launch: asked about the window's end.

    Not of the record that began last: a short one beside others says less about what comes next.
    """
    known = rows[launches.thread[rows] >= 0]
    if not len(known):
        return -1
    device = columns.device
    keys = (device["correlation"][known], launches.time[known], device["start"][known], device["end"][known])
    return int(launches.thread[known[np.lexsort(keys)[-1]]])
