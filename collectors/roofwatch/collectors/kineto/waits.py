"""What a host thread was in while the device waited for its next launch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from roofwatch.collectors.kineto import calls
from roofwatch.collectors.kineto.columns import MEMCPY
from roofwatch.collectors.kineto.intervals import Layers, Spans, silences, union
from roofwatch.collectors.kineto.nesting import MAX_DEPTH, Nest, nest
from roofwatch.model.record import Cause

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from roofwatch.collectors.kineto.columns import Columns
    from roofwatch.collectors.kineto.link import Host, Launches
    from roofwatch.collectors.kineto.tables import Table

    Ints = NDArray[np.int64]
    Mask = NDArray[np.bool_]

# A Python stretch of a millisecond is far beyond what lies between two ops of a running model (tens of microseconds):
# the thread was in other code, collecting garbage, or waiting for another thread.
SILENT_NS = 1_000_000
# First match wins; the last one is what no event of the thread tells anything about.
WAITS = (Cause.INPUT, Cause.COPY, Cause.SYNC, Cause.COMMUNICATION, Cause.HOST)
_NAMED = WAITS[:-1]


@dataclass(frozen=True, slots=True)
class Events:
    """Some events of one thread."""

    start: Ints
    end: Ints
    name: Ints

    def and_also(self, others: Events) -> Events:
        """These and others."""
        pairs = ((self.start, others.start), (self.end, others.end), (self.name, others.name))
        return Events(*map(np.concatenate, pairs))


@dataclass(frozen=True, slots=True)
class ThreadWaits:
    """One thread: its waits as layers in the order of ``WAITS``, and when its blocking calls returned."""

    layers: Layers
    silent: Spans
    returns: Ints  # sorted

    def returned(self, since: Ints, until: Ints) -> Mask:
        """Whether a blocking call returned in each [since, until]."""
        result: Mask = np.searchsorted(self.returns, until, side="right") > np.searchsorted(self.returns, since)
        return result


class Waits:
    """The waits of all threads of a trace."""

    def __init__(self, columns: Columns, host: Host, launches: Launches) -> None:
        tables = (columns.ops, columns.host, columns.notes)
        self._nests = (host.ops, _nested(columns.host), _nested(columns.notes))
        self._names = tuple(table["name"][nested.order] for table, nested in zip(tables, self._nests, strict=True))
        texts = self._texts = columns.names.values_seen
        op, call, note = self._names
        loader, collective = calls.mask(texts, calls.is_input), calls.mask(texts, calls.is_communication_call)
        item, copy, sync = _blocking(columns, host, launches, self._nests[1], call)
        no_op, no_call, no_note = (np.zeros(len(names), dtype=np.bool_) for names in self._names)
        self._masks = {  # of ops, calls and notes
            Cause.INPUT: (loader[op], no_call, loader[note]),
            Cause.COPY: (no_op, copy, no_note),
            Cause.SYNC: (item, sync, no_note),
            Cause.COMMUNICATION: (collective[op], no_call, collective[note]),
        }

    def of_thread(self, thread: int, start: int, end: int) -> ThreadWaits:
        """The waits of a thread within [start, end)."""
        waits = {cause: self.events(thread, cause) for cause in _NAMED}
        own = [self.events(thread), waits[Cause.INPUT], waits[Cause.COMMUNICATION]]
        begun, ended = (np.concatenate(parts) for parts in zip(*((e.start, e.end) for e in own), strict=True))
        silent = silences(begun, ended, start, end, longer_than=SILENT_NS)
        return ThreadWaits(
            layers=Layers([*(union(e.start, e.end) for e in waits.values()), silent]),
            silent=silent,
            returns=np.sort(np.concatenate([waits[Cause.COPY].end, waits[Cause.SYNC].end])),
        )

    def events(self, thread: int, cause: Cause | None = None) -> Events:
        """A thread's ops and calls, or its events of one cause, annotations included."""
        slices = [nested.of_thread(thread) for nested in self._nests]
        if cause is None:
            masks: tuple[Mask | slice, ...] = (slice(None), slice(None), slice(0, 0))
        else:
            masks = tuple(mask[own] for mask, own in zip(self._masks[cause], slices, strict=True))
        parts = list(zip(self._nests, self._names, slices, masks, strict=True))
        return Events(
            start=np.concatenate([nested.start[own][mask] for nested, _, own, mask in parts]),
            end=np.concatenate([nested.end[own][mask] for nested, _, own, mask in parts]),
            name=np.concatenate([names[own][mask] for _, names, own, mask in parts]),
        )

    def blocked(self, low: int, high: int) -> tuple[int, int, int]:
        """Calls within [low, high) that returned when the device was done: how many, total and longest in ns.

        Freeing memory is not among them: it is long only where it makes a context.
        """
        nested, name = self._nests[1], self._names[1]
        free = calls.mask(self._texts, calls.is_free_call)[name]
        chosen = (self._masks[Cause.COPY][1] | self._masks[Cause.SYNC][1]) & ~free
        inside = np.minimum(nested.end[chosen], high) - np.maximum(nested.start[chosen], low)
        inside = inside[inside >= 0]
        return len(inside), int(inside.sum()), int(inside.max(initial=0))

    def op_at(self, thread: int, time: int) -> int | None:
        """The name id of the innermost op of a thread at a time."""
        found = int(self._nests[0].at(np.array([thread]), np.array([time]))[0])
        return int(self._names[0][found]) if found >= 0 else None


def _nested(table: Table) -> Nest:
    return nest(table["thread"], table["start"], table["end"], parents=False)


def _blocking(columns: Columns, host: Host, launches: Launches, nested: Nest, names: Ints) -> tuple[Mask, Mask, Mask]:
    """Which ops are waits for one value; which calls are blocking copies, and which are waits for the device.

    A synchronize directly inside ``aten::copy_`` is the second half of a blocking copy; a copy inside ``aten::item``
    and its like is the first half of a wait for one value. ``aten::item`` of a tensor on the CPU calls neither, and
    waits for nothing.
    """
    texts = columns.names.values_seen
    any_copy = calls.mask(texts, calls.is_copy_call)[names]
    copy = calls.mask(texts, calls.is_blocking_copy)[names]
    sync = calls.mask(texts, calls.is_sync_call)[names]
    pageable = calls.mask(texts, calls.is_pageable)[columns.device["name"]] & (columns.device["sort"] == MEMCPY)
    is_row = np.zeros(len(names), dtype=np.bool_)
    rows = launches.row[pageable]
    is_row[rows[rows >= 0]] = True
    copy |= is_row[nested.order]
    (asked,) = np.nonzero(any_copy | copy | sync)
    inner = host.ops.at(nested.thread[asked], nested.start[asked])
    op_names = np.full(len(asked), -1, dtype=np.int64)
    op_names[inner >= 0] = columns.ops["name"][host.ops.order[inner[inner >= 0]]]
    in_copy = (op_names >= 0) & calls.mask(texts, calls.is_copy_op)[op_names]
    is_item = calls.mask(texts, calls.is_sync_op)[columns.ops["name"]][host.ops.order]
    in_item, waiting = _inside(is_item, host.ops, inner, nested.start[asked])
    was_copy, was_sync = copy[asked], sync[asked]
    copy[asked] = ~in_item & (was_copy | (was_sync & in_copy))
    sync[asked] = (was_sync & ~in_copy) | (in_item & (was_copy | was_sync))
    return waiting, copy, sync


def _inside(chosen: Mask, ops: Nest, inner: Ints, time: Ints) -> tuple[Mask, Mask]:
    """Which calls (by innermost op and time) are inside chosen ops at any depth, and which chosen ops hold a call."""
    inside, holding = np.zeros(len(inner), dtype=np.bool_), np.zeros(len(chosen), dtype=np.bool_)
    (asking,) = np.nonzero(inner >= 0)
    at = inner[asking]
    for _ in range(MAX_DEPTH if chosen.any() else 0):
        if not len(asking):
            break
        hit = chosen[at]
        inside[asking[hit]] = True
        holding[at[hit]] = True
        at = ops.enclosing(at, time[asking])
        asking, at = asking[at >= 0], at[at >= 0]
    return inside, holding
