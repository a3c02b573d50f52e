"""``trace_view.json`` → what the host did and what ran on the device, as columns.

A list of events without an object around it. Times are texts in microseconds, lengths are numbers. Events of the host
have a category; what CANN and the device did has none and is told apart by its process's name, which may stand anywhere
in the file. Arrows (``async_npu``) lead from an op of torch to what it ran: their two ends share an id.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec import Raw

from roofwatch.collectors.ascend.trace_events import (
    KINDS,
    FlowBegin,
    FlowEnd,
    Flows,
    Sample,
    args_of,
    clock_hz,
    lengths,
    numbers,
    process_name,
)
from roofwatch.collectors.ascend.trace_inputs import as_kineto
from roofwatch.collectors.ascend.values import is_communication
from roofwatch.collectors.kineto import calls
from roofwatch.collectors.kineto.columns import MAX_DURATION_NS, Columns
from roofwatch.collectors.kineto.document import Document
from roofwatch.collectors.kineto.events import Complete, Meta
from roofwatch.collectors.kineto.tables import UNKNOWN, Interner, Table
from roofwatch.collectors.kineto.times import NO_TIME, texts_to_ns

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from roofwatch.collectors.base import Limits
    from roofwatch.collectors.kineto.source import Source

    Ints = NDArray[np.int64]
    Mask = NDArray[np.bool_]

HARDWARE, CANN, COMMUNICATION = "Ascend Hardware", "CANN", "Communication"
_ALIKE = {"HCCL": COMMUNICATION}  # an older name
_NO_ARGS = Raw(b"{}")
MAX_NAMES = 4096  # of processes, and of ranges that are told apart by name
_RANGES = (calls.is_step, calls.is_optimizer, calls.is_input)  # which torch_npu writes as if they were ops
_TORCH_ARROW, _CANN_ARROW = "async_npu", "HostToDevice"


@dataclass(frozen=True, slots=True)
class Arrows:
    """Arrows from the host to what it ran, a row each, those that have both ends."""

    thread: Ints
    time: Ints
    stream: Ints
    began: Ints  # when what it ran began


@dataclass(frozen=True, slots=True)
class View:
    """What a trace view holds. Times are Unix nanoseconds, texts ids in ``columns.names``, threads in its threads.

    ``columns`` has the host's side as a Kineto trace has it: ops, ranges, and CANN's calls, whose correlation is their
    connection id. ``tasks`` of the device: stream, connection, sort (a text). ``collectives``: connection, dtype (a
    text), count. ``enqueued``, calls that hand work to the thread that launches it: thread.
    """

    columns: Columns
    tasks: Table
    collectives: Table
    enqueued: Table
    torch: Arrows  # from ops
    launched: Arrows  # from CANN's calls
    clock_hz: float | None
    dropped: Counter[str]
    problems: list[str]


def read_view(source: Source, limits: Limits) -> View:
    """Reads a trace view.

    Raises:
        RoofwatchError: it is no list of events.
    """
    document = Document(source, KINDS)
    reader = _Reader(limits)
    for batch in document.batches():
        reader.add(batch)
    return reader.view(document)


class _Reader:
    """Takes events as they stream by."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._columns = Columns(limits.max_name)
        self._bare = Table("process", "tid", "connection", "sort", "dtype", "count")
        self._enqueued = Table("thread")
        sides = [(arrow, kind) for arrow in (_TORCH_ARROW, _CANN_ARROW) for kind in (FlowBegin, FlowEnd)]
        self._flows: dict[tuple[str, type], Flows] = {side: Flows() for side in sides}
        self._processes = Interner()  # (pid,)
        self._process_names: dict[Any, str] = {}
        self._clocks: Counter[float] = Counter()
        self._ranges: dict[str, bool] = {}
        self._events = 0
        self._dropped: Counter[str] = Counter()

    def add(self, batch: Sequence[Any]) -> None:
        """Takes a chunk."""
        room = max(0, self._limits.max_events - self._events)
        self._dropped["over_event_limit"] += max(0, len(batch) - room)
        host: list[Any] = []
        bare: list[Complete] = []
        queued: list[Complete] = []
        for event in batch[:room]:
            kind = type(event)
            if kind is Complete:
                if not event.cat:
                    bare.append(event)
                elif event.cat == "enqueue":
                    queued.append(event)
                else:
                    if event.cat == "cpu_op":
                        self._settle(event)
                    host.append(event)
            elif kind is FlowBegin or kind is FlowEnd:
                flows = self._flows.get((event.cat, kind))
                if flows is not None:
                    flows.add(event)
            else:
                self._other(event, host)
        self._events += min(len(batch), room)
        self._columns.add(host)
        self._add_bare(bare)
        self._add_queued(queued)
        for flows in self._flows.values():
            flows.flush()

    def _other(self, event: Any, host: list[Any]) -> None:
        if isinstance(event, Meta):
            name = process_name(event.args) if event.name == "process_name" else None
            if name is not None and len(self._process_names) < MAX_NAMES:
                self._process_names[event.pid] = _ALIKE.get(name, name)
        elif isinstance(event, Sample):
            clock = clock_hz(event.args) if event.name == "AI Core Freq" else None
            if clock is not None:
                self._clocks[clock] += 1
        else:
            host.append(event)

    def _settle(self, event: Complete) -> None:
        """Ranges are no ops; and what HCCL records of a call inside c10d's op are not that op's inputs."""
        if event.name.startswith("Hccl"):
            event.args = _NO_ARGS
        elif self._is_range(event.name):
            event.cat = "user_annotation"

    def _is_range(self, name: str) -> bool:
        found = self._ranges.get(name)
        if found is None:
            found = any(test(name) for test in _RANGES)
            if len(self._ranges) < MAX_NAMES:
                self._ranges[name] = found
        return found

    def _add_bare(self, events: list[Complete]) -> None:
        events, times = self._timed(events)
        args, bad = args_of(events)
        self._dropped["unreadable_args"] += bad
        names, processes = self._columns.names, self._processes
        self._bare.add(
            **times,
            process=_ints([processes[(event.pid,)] for event in events]),
            tid=numbers([event.tid for event in events]),
            connection=numbers([a.connection for a in args]),
            sort=_ints([names[a.task] if isinstance(a.task, str) else UNKNOWN for a in args]),
            dtype=_ints([names[a.dtype] if isinstance(a.dtype, str) else UNKNOWN for a in args]),
            count=numbers([a.count for a in args]),
        )

    def _add_queued(self, events: list[Complete]) -> None:
        events, times = self._timed(events)
        threads = self._columns.threads
        self._enqueued.add(**times, thread=_ints([threads[event.pid, event.tid] for event in events]))

    def _timed(self, events: list[Complete]) -> tuple[list[Complete], dict[str, Ints]]:
        """Events whose times can be, and these; the others are counted."""
        start, length = texts_to_ns([event.ts for event in events]), lengths([event.dur for event in events])
        lost = (start == NO_TIME) | (length == NO_TIME)
        wrong = ~lost & ((length < 0) | (length > MAX_DURATION_NS))
        self._dropped["bad_time"] += int(lost.sum())
        self._dropped["bad_duration"] += int(wrong.sum())
        if (lost | wrong).any():
            kept = ~(lost | wrong)
            events = [event for event, keep in zip(events, kept.tolist(), strict=True) if keep]
            start, length = start[kept], length[kept]
        names = self._columns.names
        return events, {"start": start, "end": start + length, "name": _ints([names[e.name] for e in events])}

    def view(self, document: Document) -> View:
        """All that was taken."""
        columns = self._columns
        self._bare.close()
        self._enqueued.close()
        python = next((thread[0] for thread in columns.threads.values_seen), UNKNOWN)
        named = [self._process_names.get(pid, "") for (pid,) in self._processes.values_seen]
        of = np.array([*named, ""])[self._bare["process"]]
        self._add_calls(of == CANN, python)
        columns.close()
        columns.events = self._events
        columns.inputs.values_seen[:] = [as_kineto(text) for text in columns.inputs.values_seen]
        problems = list(document.problems)
        if self._dropped["over_event_limit"]:
            problems.append(f"only the first {self._limits.max_events} events were kept (the event limit)")
        is_call = np.array([is_communication(name, None) for name in columns.names.values_seen] or [False])
        collective = (of == COMMUNICATION) & is_call[self._bare["name"]]
        return View(
            columns,
            tasks=_part(self._bare, of == HARDWARE, stream="tid", connection="connection", sort="sort"),
            collectives=_part(self._bare, collective, connection="connection", dtype="dtype", count="count"),
            enqueued=self._enqueued,
            torch=self._arrows(_TORCH_ARROW, python),
            launched=self._arrows(_CANN_ARROW, python),
            clock_hz=self._clocks.most_common(1)[0][0] if self._clocks else None,
            dropped=self._dropped + columns.dropped + document.dropped,
            problems=problems,
        )

    def _add_calls(self, chosen: Mask, python: object) -> None:
        """CANN's calls are of the same threads as torch's ops, under a process of their own."""
        unknown = np.full(int(chosen.sum()), UNKNOWN, dtype=np.int64)
        self._columns.host.add(
            **{name: self._bare[name][chosen] for name in ("start", "end", "name")},
            thread=self._threads(self._bare["tid"][chosen], python),
            correlation=self._bare["connection"][chosen],
            grid=np.zeros(len(unknown), dtype=np.int64), block=np.zeros(len(unknown), dtype=np.int64), kernel=unknown,
        )  # fmt: skip

    def _threads(self, tids: Ints, python: object) -> Ints:
        threads = self._columns.threads
        return _ints([threads[python, tid] for tid in tids.tolist()])

    def _arrows(self, name: str, python: object) -> Arrows:
        tail, head = (self._flows[name, side].columns() for side in (FlowBegin, FlowEnd))
        order = np.argsort(tail[0], kind="stable")
        if not len(order):
            return Arrows(*(np.empty(0, dtype=np.int64),) * 4)
        at = np.minimum(np.searchsorted(tail[0][order], head[0]), len(order) - 1)
        tied = tail[0][order][at] == head[0]
        row = order[at[tied]]
        return Arrows(self._threads(tail[1][row], python), tail[2][row], head[1][tied], head[2][tied])


def _part(table: Table, chosen: Mask, **columns: str) -> Table:
    """Some rows of a table, under new names."""
    names = {"start": "start", "end": "end", "name": "name", **columns}
    result = Table(*columns)
    result.add(**{name: table[source][chosen] for name, source in names.items()})
    result.close()
    return result


def _ints(values: Sequence[int]) -> Ints:
    return np.array(values, dtype=np.int64)
