"""Device records → the op of torch that asked for them, and the call that launched them, by a trace view's arrows.

With its task queue on, torch's thread only puts work into a queue (``Enqueue``), and another thread launches it. What
the device waits for is the thread that runs the ops, so a launch begins where that thread puts the work in, and is over
when the other thread's call returns.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from roofwatch.collectors.ascend.common import Origins, Rows
from roofwatch.collectors.kineto.link import Host, Launches, host_side
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
class Linked:
    """Records with what the host did for them; ``launches`` are rows of the columns' host calls."""

    host: Host
    launches: Launches
    returned: Ints  # when the launch was over, as far as it is told
    origins: Origins


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


def linked(view: View, rows: Rows) -> Linked:
    """Ties records to ops and launches. Adds the launches to the view's host calls, and fills in its device records."""
    columns = view.columns
    asked, launched = _tails(view.torch, rows.start), _tails(view.launched, rows.start)
    call, over = _calls(columns, launched)
    begin, end, name = _begun(view, asked, launched, call)
    thread = np.where(asked.known, asked.thread, launched.thread)
    known = thread >= 0
    first = len(columns.host)
    _add_launches(columns, begin[known], end[known], name[known], thread[known])
    fill_devices(columns, rows)
    row = np.full(len(rows), NONE, dtype=np.int64)
    row[known] = first + np.arange(int(known.sum()))
    launches = Launches(row, thread, np.where(known, begin, NONE), ~known & bool(known.any()))
    host = host_side(columns)
    return Linked(host, launches, np.where(known, np.maximum(over, end), NONE), _origins(host, launches, asked))


def unlinked(columns: Columns, rows: Rows, in_step: Mask | None) -> Linked:
    """Records of which nothing of the host is told."""
    fill_devices(columns, rows)
    none = np.broadcast_to(np.int64(NONE), (len(rows),))
    launches = Launches(none, none, none, np.broadcast_to(np.bool_(False), (len(rows),)))
    return Linked(host_side(columns), launches, none, Origins.unknown(len(rows), in_step))


def fill_devices(columns: Columns, rows: Rows) -> None:
    """Makes the records the device records of a Kineto trace, one launch each."""
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


def _add_launches(columns: Columns, begin: Ints, end: Ints, name: Ints, thread: Ints) -> None:
    """Appends a host call for each launch."""
    more = {"start": begin, "end": end, "name": name, "thread": thread}
    names = ("thread", "correlation", "grid", "block", "kernel")
    joined = Table(*names)
    nothing = np.full(len(begin), UNKNOWN, dtype=np.int64)
    for key in ("start", "end", "name", *names):
        joined.add(**{key: np.append(columns.host[key], more.get(key, nothing))})
    joined.close()
    columns.host = joined


def _origins(host: Host, launches: Launches, asked: _Tail) -> Origins:
    """Where in the model each record is from: asked at the begin of the op that wanted it."""
    columns = host.columns
    time = np.where(asked.known, asked.time, launches.time)
    places = host.places(launches.thread, time)
    shaped = places.shaped
    op = np.where(shaped >= 0, columns.ops["name"][shaped], NONE) if len(columns.ops) else shaped
    return Origins(
        op=op, op_row=shaped, phase=places.phase, module=places.module, backlog=launches.backlog,
        linked=places.op >= 0, in_step=places.in_step,
        names=columns.names.values_seen, modules=host.ranges.texts,
    )  # fmt: skip
