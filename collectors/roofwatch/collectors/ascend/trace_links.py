"""Device records → the op of torch that asked for them, and the call that launched them, by a trace view's arrows.

With its task queue on, torch's thread only puts work into a queue (``Enqueue``), and another thread launches it. What
the device waits for is the thread that runs the ops, so a launch begins where that thread puts the work in, and is over
when the other thread's call returns.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from roofwatch.collectors.ascend.common import NOTHING, Rows
from roofwatch.collectors.kineto.nesting import NONE, nest
from roofwatch.collectors.kineto.tables import UNKNOWN, Table

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from roofwatch.collectors.ascend.trace_view import Arrows, View
    from roofwatch.collectors.kineto.columns import Columns

    Ints = NDArray[np.int64]
    Mask = NDArray[np.bool_]

SAME_NS = 2  # two tables of one run write a time in different ways: they differ in the last digit


@dataclass(frozen=True, slots=True)
class _Tail:
    """The host's end of one arrow to each record; NONE where there is none."""

    thread: Ints
    time: Ints

    @property
    def known(self) -> Mask:
        """Which records have one."""
        found: Mask = self.thread >= 0
        return found


def link(view: View, rows: Rows) -> Ints:
    """Adds a call for each record's launch to those of the view's host; when each launch was over.

    The call's correlation is the record's row. NOTHING where no launch is told.
    """
    columns = view.columns
    asked, launched = _tails(view.torch, rows.start), _tails(view.launched, rows.start)
    call, over = _calls(columns, launched)
    begin, end, name = _begun(view, asked, launched, call)
    thread = np.where(asked.known, asked.thread, launched.thread)
    (known,) = np.nonzero(thread >= 0)
    launches = {"start": begin, "end": end, "name": name, "thread": thread, "correlation": np.arange(len(rows))}
    _put_launches(columns, {key: column[known] for key, column in launches.items()})
    return np.where(thread >= 0, np.maximum(over, end), NOTHING)


def fill_devices(columns: Columns, rows: Rows) -> None:
    """Makes the records the device records of a Kineto trace: the correlation of each is its row."""
    names = np.array([columns.names[what.kernel] for what in rows.whats] or [0], dtype=np.int64)
    sorts = np.array([what.category for what in rows.whats] or [0], dtype=np.int8)
    device = Table("sort", "correlation", "device")
    device.add(
        start=rows.start, end=rows.end, name=names[rows.what], sort=sorts[rows.what],
        correlation=np.arange(len(rows)), device=rows.device,
    )  # fmt: skip
    device.close()
    columns.device = device


def _tails(arrows: Arrows, start: Ints) -> _Tail:
    """The tail of the arrow to what began when each record began."""
    none = np.full(len(start), NONE, dtype=np.int64)
    if not len(arrows.began):
        return _Tail(none, none)
    order = np.argsort(arrows.began, kind="stable")
    began = arrows.began[order]
    after = np.minimum(np.searchsorted(began, start), len(began) - 1)
    before = np.maximum(after - 1, 0)
    nearer = np.abs(began[before] - start) < np.abs(began[after] - start)
    at = np.where(nearer, before, after)
    tied = np.abs(began[at] - start) <= SAME_NS
    return _Tail(np.where(tied, arrows.thread[order[at]], NONE), np.where(tied, arrows.time[order[at]], NONE))


def _calls(columns: Columns, launched: _Tail) -> tuple[Ints, Ints]:
    """CANN's call that launched each record (a row of host calls), and when it was over; NONE where not told."""
    host = columns.host
    nested = nest(host["thread"], host["start"], host["end"])
    at = nested.at(launched.thread, launched.time)
    row = np.where(at >= 0, nested.order[at], NONE) if len(host) else at
    over = np.where(row >= 0, host["end"][row], launched.time) if len(host) else launched.time
    return row, over


def _begun(view: View, asked: _Tail, launched: _Tail, call: Ints) -> tuple[Ints, Ints, Ints]:
    """Begin, end and name of each launch on the thread that asked for it.

    That is where it puts the work into the queue, else its own call of CANN; without either, the op from its begin.
    """
    columns, queued = view.columns, view.enqueued
    ops = nest(columns.ops["thread"], columns.ops["start"], columns.ops["end"])
    op = ops.at(asked.thread, asked.time)
    op_end = np.where(op >= 0, ops.end[op], asked.time) if len(ops.end) else asked.time
    op_name = columns.ops["name"][ops.order[op]] if len(ops.end) else np.zeros(len(op), dtype=np.int64)
    begin, end = np.where(asked.known, asked.time, launched.time), np.where(asked.known, asked.time, launched.time)
    name = np.where(op >= 0, op_name, columns.names["launch"])
    if len(columns.host):
        own = (call >= 0) & (~asked.known | (launched.thread == asked.thread))
        begin, end = (np.where(own, columns.host[key][call], other) for key, other in (("start", begin), ("end", end)))
        name = np.where(call >= 0, columns.host["name"][call], name)
    put = _first_after(queued, asked)
    if len(queued):
        through = (put >= 0) & (queued["start"][put] <= op_end)
        begin, end = (np.where(through, queued[key][put], other) for key, other in (("start", begin), ("end", end)))
    return begin, end, name


def _first_after(queued: Table, asked: _Tail) -> Ints:
    """The first row of a thread's events that begins at or after a time on it; NONE where there is none."""
    result = np.full(len(asked.time), NONE, dtype=np.int64)
    order = np.lexsort((queued["start"], queued["thread"]))
    threads = queued["thread"][order]
    for thread in np.unique(asked.thread[asked.known]).tolist():
        low, high = np.searchsorted(threads, [thread, thread + 1]).tolist()
        (mine,) = np.nonzero(asked.thread == thread)
        at = low + np.searchsorted(queued["start"][order[low:high]], asked.time[mine])
        found = at < high
        result[mine[found]] = order[at[found]]
    return result


def _put_launches(columns: Columns, launches: dict[str, Ints]) -> None:
    """Appends launches to the host's calls. Only they launch: what ties a call to its own task is given up."""
    names = ("thread", "correlation", "grid", "block", "kernel")
    joined = Table(*names)
    calls, count = columns.host, len(launches["start"])
    nothing = np.full(len(calls) + count, UNKNOWN, dtype=np.int64)
    for key in ("start", "end", "name", "thread"):
        joined.add(**{key: np.append(calls[key], launches[key])})
    joined.add(correlation=np.append(nothing[: len(calls)], launches["correlation"]))
    joined.add(grid=nothing, block=nothing, kernel=nothing)
    joined.close()
    columns.host = joined
