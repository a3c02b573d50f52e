"""Device record → launch by correlation → innermost op on that thread at the launch's time.

Never by ``External id``: in traces of the integer-microsecond era it equals the correlation and lives in another id
space than the ops' (links that look right and are wrong).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from roofwatch.collectors.kineto import calls
from roofwatch.collectors.kineto.describing import Ops, describe, ops_of
from roofwatch.collectors.kineto.nesting import NONE, Nest, nest
from roofwatch.collectors.kineto.ranges import Ranges, ranges_of
from roofwatch.collectors.kineto.tables import small

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from roofwatch.collectors.kineto.bounds import Taken
    from roofwatch.collectors.kineto.columns import Columns

    Ints = NDArray[np.int64]
    Mask = NDArray[np.bool_]

FORWARD, BACKWARD, OPTIMIZER, NO_PHASE = range(4)
_AUTOGRAD_SHARE = 0.9  # of a thread's outermost ops, so that one hook's op does not hide an autograd thread


@dataclass(frozen=True, slots=True)
class Places:
    """Where on the host each of a list of records came from; NONE where that is not known."""

    op: Ints  # row of ops: the innermost one
    shaped: Ints  # row of ops: the one that says what was done (``describing``), else the innermost
    call: Ints  # row of ops: the call whose inputs tell the work; the same, but for autograd's nodes
    phase: Ints
    module: Ints  # id among the texts of the trace's ranges
    in_step: Mask


@dataclass(frozen=True, slots=True)
class Launches:
    """The host call that launched each device record; -1 where it is not known."""

    row: Ints  # of the host calls
    thread: Ints
    time: Ints
    backlog: Mask  # launched before the window


@dataclass(frozen=True, slots=True)
class Host:
    """The host's side of a trace, nested and ready to be asked."""

    columns: Columns
    ops: Nest
    ranges: Ranges
    optimizer: Nest
    backward: Mask  # by position in ops: inside a backward op
    has_inputs: Mask  # by inputs id
    asked: Ops
    autograd: Mask  # by thread
    step_starts: Ints  # of the profiler's steps, or of the one window whose bounds are known
    step_ends: Ints
    steps: int | None

    def places(self, thread: Ints, time: Ints) -> Places:
        """Where the host was at ``time`` on ``thread``; -1 as thread means unknown."""
        inner = self.ops.at(thread, time)
        described = describe(self.asked, inner, thread, time)
        return Places(
            op=_rows(self.ops, inner),
            shaped=_rows(self.ops, described.op),
            call=described.inputs,
            phase=self._phase(thread, time, inner),
            module=self.ranges.at(thread, time),
            in_step=(thread >= 0) & self.inside_steps(time),
        )

    def own_places(self) -> Places:
        """Where each op itself is, by position in ``ops``."""
        thread, time = self.ops.thread, self.ops.start
        own = np.arange(len(thread))
        return Places(
            op=self.ops.order,
            shaped=self.ops.order,
            call=self.ops.order,
            phase=self._phase(thread, time, own),
            module=self.ranges.at(thread, time),
            in_step=self.inside_steps(time),
        )

    def with_shapes(self, inputs: Ints) -> Ints:
        """Inputs ids, -1 where the op did not record any."""
        known = inputs >= 0
        known[known] = self.has_inputs[inputs[known]]
        return np.where(known, inputs, NONE)

    def _phase(self, thread: Ints, time: Ints, position: Ints) -> Ints:
        phase = np.full(len(thread), NO_PHASE, dtype=np.int64)
        if len(self.ops.order):
            known = thread >= 0
            phase[known] = FORWARD
            phase[known & ((position >= 0) & self.backward[position] | self.autograd[thread])] = BACKWARD
            phase[known & (self.optimizer.at(thread, time) >= 0)] = OPTIMIZER
        return phase

    def inside_steps(self, time: Ints) -> Mask:
        """Whether each time lies in a profiler step."""
        if not len(self.step_starts):
            return np.zeros(len(time), dtype=np.bool_)
        last = np.searchsorted(self.step_starts, time, side="right") - 1
        result: Mask = (last >= 0) & (time <= np.maximum.accumulate(self.step_ends)[last])
        return result


def host_side(columns: Columns, window: Taken | None = None, backward: Mask | None = None) -> Host:
    """Nests the host events of a trace. A window whose bounds are known is one stretch of steps, counted elsewhere.

    ``backward``: which ops are surely of a backward pass, where the source tells it better than their names.
    """
    ops, notes = columns.ops, columns.notes
    names: Sequence[str] = columns.names.values_seen
    nested = nest(ops["thread"], ops["start"], ops["end"])
    has_inputs = np.fromiter(map(_has_shapes, columns.inputs.values_seen), dtype=np.bool_)
    optimizer = calls.mask(names, calls.is_optimizer)[notes["name"]]
    starts, ends, steps = steps_of(columns) if window is None else _as_steps(window)
    is_backward = calls.mask(names, calls.is_backward)[ops["name"]]
    if backward is not None:
        is_backward |= backward
    return Host(
        columns=columns,
        ops=nested,
        ranges=ranges_of(columns),
        optimizer=nest(notes["thread"][optimizer], notes["start"][optimizer], notes["end"][optimizer]),
        backward=_inherited(nested, is_backward[nested.order]),
        has_inputs=has_inputs,
        asked=ops_of(columns, nested, has_inputs),
        autograd=_autograd_threads(columns, nested),
        step_starts=starts,
        step_ends=ends,
        steps=steps,
    )


def steps_of(columns: Columns) -> tuple[Ints, Ints, int | None]:
    """Starts and ends of the profiler's steps, by start, and how many different ones there are."""
    tables = (columns.notes, columns.ops)  # the oldest writers recorded steps as ops
    is_step = calls.mask(columns.names.values_seen, calls.is_step)
    masks = [is_step[table["name"]] for table in tables]
    start, end, name = (
        np.concatenate([table[column][mask] for table, mask in zip(tables, masks, strict=True)])
        for column in ("start", "end", "name")
    )
    if columns.recorded_until is not None and len(end):  # a step that went on after the recording ends with it
        last = max((int(table["end"].max()) for table in (columns.device, columns.host) if len(table)), default=0)
        end = np.maximum(np.minimum(end, max(columns.recorded_until, last)), start)
    order = np.argsort(start, kind="stable")
    return start[order], end[order], len(np.unique(name)) or None


def _as_steps(window: Taken) -> tuple[Ints, Ints, None]:
    return np.array([window.start]), np.array([window.end]), None


def launches_of(columns: Columns) -> Launches:
    """The launch of each device record, by correlation. A graph launch may have launched many records.

    A record whose correlation no call of the window has was launched before the window (backlog), provided that the
    window holds launches at all.
    """
    host, wanted = columns.host, columns.device["correlation"]
    unknown = np.full(len(wanted), NONE, dtype=np.int64)
    if not len(host):
        return Launches(unknown, unknown, unknown, np.zeros(len(wanted), dtype=np.bool_))
    order = np.lexsort((host["start"], host["correlation"]))  # of several calls with one id the first launched
    ids = host["correlation"][order]
    at = np.minimum(np.searchsorted(ids, wanted), len(ids) - 1)
    known = (ids[at] == wanted) & (wanted >= 0)
    row = np.where(known, order[at], NONE)
    any_launch = known.any() or calls.mask(columns.names.values_seen, calls.is_launch)[host["name"]].any()
    return Launches(
        row=small(row),
        thread=small(np.where(known, host["thread"][row], NONE)),
        time=small(np.where(known, host["start"][row], NONE)),
        backlog=~known & (wanted >= 0) & bool(any_launch),
    )


def unfinished(columns: Columns, captured: Ints) -> int:
    """How many calls that launch device work have no device record, nor were ``captured`` (rows of calls)."""
    launch = calls.mask(columns.names.values_seen, calls.is_launch)[columns.host["name"]]
    ids = columns.host["correlation"][launch]
    if len(captured):
        ids = ids[~np.isin(ids, columns.host["correlation"][captured])]
    return int((~np.isin(ids, columns.device["correlation"]) & (ids >= 0)).sum())


def _has_shapes(text: bytes) -> bool:
    shapes = text.split(b"\0", 1)[0]
    return shapes.strip(b"[] \r\n\t") != b"" or b"[" in shapes[1:]


def _rows(nested: Nest, position: Ints) -> Ints:
    """Positions in ``nested`` as rows of its table; NONE stays."""
    result = position.copy()
    result[position >= 0] = nested.order[position[position >= 0]]
    return result


def _inherited(nested: Nest, flag: Mask) -> Mask:
    """Whether an event or one that encloses it has the flag. Parents stand before their children in the order."""
    flags = flag.tolist()
    for at, parent in enumerate(nested.parent.tolist()):
        if parent >= 0 and flags[parent]:
            flags[at] = True
    return np.array(flags, dtype=np.bool_)


def _autograd_threads(columns: Columns, nested: Nest) -> Mask:
    """Threads that run nothing but backward: not the main one, without annotations of steps or optimizers.

    The caller's thread runs backward as well on the CPU, so its outermost ops alone cannot tell.
    """
    names = columns.names.values_seen
    threads = columns.threads.values_seen
    outer = nested.parent < 0
    evaluate = calls.mask(names, calls.is_evaluate)[columns.ops["name"]][nested.order]
    all_ops = np.bincount(nested.thread[outer], minlength=len(threads))
    backward = np.bincount(nested.thread[outer & evaluate], minlength=len(threads))
    busy = (all_ops > 0) & (backward >= _AUTOGRAD_SHARE * all_ops)
    marks = calls.mask(names, lambda name: calls.is_step(name) or calls.is_optimizer(name))[columns.notes["name"]]
    busy[np.unique(columns.notes["thread"][marks])] = False
    main = np.fromiter((len(t) == 2 and t[0] == t[1] for t in threads), dtype=np.bool_, count=len(threads))
    result: Mask = busy & ~main
    return result
