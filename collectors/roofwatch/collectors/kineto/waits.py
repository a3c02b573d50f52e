"""What a host thread was in while the device waited for its next launch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from roofwatch.collectors.kineto import calls
from roofwatch.collectors.kineto.columns import MEMCPY
from roofwatch.collectors.kineto.intervals import Layers, Spans, joined, outside, union
from roofwatch.collectors.kineto.nesting import Nest, nest
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


@dataclass(frozen=True, slots=True)
class ThreadWaits:
    """One thread: its waits as layers in the order of ``WAITS``, and when its blocking calls returned."""

    layers: Layers
    returns: Ints  # sorted

    def returned(self, since: Ints, until: Ints) -> Mask:
        """Whether a blocking call returned in each [since, until]."""
        result: Mask = np.searchsorted(self.returns, until, side="right") > np.searchsorted(self.returns, since)
        return result


class Waits:
    """The waits of all threads of a trace."""

    def __init__(self, columns: Columns, host: Host, launches: Launches) -> None:
        self._ops = host.ops
        self._calls = _nested(columns.host)
        self._notes = _nested(columns.notes)
        names = columns.names.values_seen
        op_names = columns.ops["name"][self._ops.order]
        call_names = columns.host["name"][self._calls.order]
        note_names = columns.notes["name"][self._notes.order]
        loader, collective = calls.mask(names, calls.is_input), calls.mask(names, calls.is_communication_call)
        sync_op = calls.mask(names, calls.is_sync_op)[op_names]
        copy, sync = _blocking(columns, host, launches, self._calls, call_names)
        self._masks = (  # ops, calls, notes of each cause
            (loader[op_names], np.zeros(len(copy), dtype=np.bool_), loader[note_names]),
            (np.zeros(len(op_names), dtype=np.bool_), copy, np.zeros(len(note_names), dtype=np.bool_)),
            (sync_op, sync, np.zeros(len(note_names), dtype=np.bool_)),
            (collective[op_names], np.zeros(len(copy), dtype=np.bool_), collective[note_names]),
        )

    def of_thread(self, thread: int, start: int, end: int) -> ThreadWaits:
        """The waits of a thread within [start, end)."""
        layers = [self._spans(thread, masks) for masks in self._masks]
        events = [self._own(nested, thread) for nested in (self._ops, self._calls)]
        silent = outside(joined([*layers, *events]), start, end)
        long = silent[1] - silent[0] > SILENT_NS
        _, copies, syncs, _ = (self._returns(thread, masks) for masks in self._masks)
        return ThreadWaits(
            layers=Layers([*layers, (silent[0][long], silent[1][long])]), returns=np.sort(np.append(copies, syncs))
        )

    def _own(self, nested: Nest, thread: int) -> Spans:
        own = nested.of_thread(thread)
        return union(nested.start[own], nested.end[own])

    def _spans(self, thread: int, masks: tuple[Mask, Mask, Mask]) -> Spans:
        return joined([(n.start[o][m[o]], n.end[o][m[o]]) for n, o, m in self._parts(thread, masks)])

    def _returns(self, thread: int, masks: tuple[Mask, Mask, Mask]) -> Ints:
        return np.concatenate([n.end[o][m[o]] for n, o, m in self._parts(thread, masks)])

    def _parts(self, thread: int, masks: tuple[Mask, Mask, Mask]) -> list[tuple[Nest, slice, Mask]]:
        nests = (self._ops, self._calls, self._notes)
        return [(nested, nested.of_thread(thread), mask) for nested, mask in zip(nests, masks, strict=True)]


def _nested(table: Table) -> Nest:
    return nest(table["thread"], table["start"], table["end"], parents=False)


def _blocking(columns: Columns, host: Host, launches: Launches, nested: Nest, names: Ints) -> tuple[Mask, Mask]:
    """Which calls are blocking copies between host and device, and which are waits for the device.

    A synchronize directly inside ``aten::copy_`` is the second half of a blocking copy; a copy directly inside
    ``aten::item`` and its like is the first half of a wait for one value.
    """
    texts = columns.names.values_seen
    copy = calls.mask(texts, calls.is_blocking_copy)[names]
    sync = calls.mask(texts, calls.is_sync_call)[names]
    pageable = calls.mask(texts, calls.is_pageable)[columns.device["name"]] & (columns.device["sort"] == MEMCPY)
    is_row = np.zeros(len(names), dtype=np.bool_)
    rows = launches.row[pageable]
    is_row[rows[rows >= 0]] = True
    copy |= is_row[nested.order]
    (asked,) = np.nonzero(copy | sync)
    inner = host.ops.at(nested.thread[asked], nested.start[asked])
    op_names = np.full(len(asked), -1, dtype=np.int64)
    op_names[inner >= 0] = columns.ops["name"][host.ops.order[inner[inner >= 0]]]
    in_copy = (op_names >= 0) & calls.mask(texts, calls.is_copy_op)[op_names]
    in_wait = (op_names >= 0) & calls.mask(texts, calls.is_sync_op)[op_names]
    was_copy, was_sync = copy[asked], sync[asked]
    copy[asked] = (was_copy & ~in_wait) | (was_sync & in_copy)
    sync[asked] = (was_sync & ~in_copy) | (was_copy & in_wait)
    return copy, sync
