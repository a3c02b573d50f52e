"""Typed events → columns of numbers: what is kept of a trace while it streams by."""

from __future__ import annotations

from array import array
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
from msgspec import Raw

from roofwatch.collectors.kineto import calls
from roofwatch.collectors.kineto.arguments import DeviceArgs, HostArgs, OpArgs, device_args, host_args, op_args
from roofwatch.collectors.kineto.events import DECODE_ERRORS, Begin, Complete, End, Meta
from roofwatch.collectors.kineto.messages import RECORD, Messages
from roofwatch.collectors.kineto.possible import leave_out_endless, leave_out_far
from roofwatch.collectors.kineto.repair import repairs
from roofwatch.collectors.kineto.tables import UNKNOWN, Extents, Interner, Table
from roofwatch.collectors.kineto.times import NO_TIME, text_to_ns, texts_to_ns

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]

MAX_DURATION_NS = 7 * 86_400 * 10**9  # a longer event is an overflow of the writer's, not a measurement
MAX_OPEN = 10_000  # events begun and not ended on one thread

# The same as for silent stretches (``waits``), which they explain; a thousandth of a second's stacks are not many.
LONG_FUNCTION_NS, MAX_FUNCTIONS = 1_000_000, 10_000

OP, HOST, DEVICE, NOTE, PYTHON, FUNCTION = "op", "host", "device", "note", "python", "function"
_RECORD = "Trace"  # the category of the profiler's own span
KERNEL, MEMCPY, MEMSET = range(3)
# Category → table and, for the device, sort. Older writers used the capitalised ones.
_TABLES: dict[str, tuple[str, int]] = {
    "cpu_op": (OP, 0),
    "Operator": (OP, 0),
    "cuda_runtime": (HOST, 0),
    "cuda_driver": (HOST, 0),
    "xpu_runtime": (HOST, 0),
    "xpu_driver": (HOST, 0),
    "mtia_runtime": (HOST, 0),
    "privateuse1_runtime": (HOST, 0),
    "privateuse1_driver": (HOST, 0),
    "Runtime": (HOST, 0),
    "kernel": (DEVICE, KERNEL),
    "Kernel": (DEVICE, KERNEL),
    "concurrent_kernel": (DEVICE, KERNEL),
    "gpu_memcpy": (DEVICE, MEMCPY),
    "Memcpy": (DEVICE, MEMCPY),
    "gpu_memset": (DEVICE, MEMSET),
    "Memset": (DEVICE, MEMSET),
    "user_annotation": (NOTE, 0),
    "python_function": (PYTHON, 0),
}
_MODULE_PREFIX = "nn.Module: "


class Columns:
    """All that is kept of a trace. ``add`` batches, then ``close``.

    Tables (times in nanoseconds on the trace's own clock): ``ops`` thread, inputs, sequence (autograd's number, the
    same for an op and its backward node); ``host`` (calls of the runtime and the driver) thread, correlation, grid,
    block, kernel (a name, where the call tells it); ``device`` sort, correlation, device, grid, grid_x, grid_y, block,
    bytes, message, message_sequence (what the kernel of a collective tells of it), graph, node (ids, where a graph
    launched it); ``notes``, ``modules`` and ``functions`` (of Python, those of a millisecond
    and more) thread. Grid and block are products over the three dimensions. ``messages``
    are the calls of collectives.
    """

    def __init__(self, longest_name: int) -> None:
        self.names = Interner(longest_name)
        self.threads = Interner()  # (pid, tid)
        self.inputs = Interner()  # shapes, dtypes, strides, concrete inputs as text, joined by NUL
        self.dropped: Counter[str] = Counter()
        self.events = 0
        self.python = 0  # Python functions, of which only the ranges of modules are kept
        self.ascend = False
        self.xla = False
        self.ops = Table("thread", "inputs", "sequence")
        self.host = Table("thread", "correlation", "grid", "block", "kernel")
        self.device = Table(
            "sort",
            "correlation",
            "device",
            "grid",
            "grid_x",
            "grid_y",
            "block",
            "bytes",
            "message",
            "message_sequence",
            "graph",
            "node",
        )
        self.notes = Table("thread")
        self.modules = Table("thread")
        self.functions = Table("thread")
        self.recorded_until: int | None = None
        self.messages = Messages(self.names)
        self._extents = Extents()
        self._functions = 0
        self._open: dict[tuple[Any, Any], list[Begin]] = defaultdict(list)

    def add(self, batch: Sequence[Any]) -> None:
        """Takes the events of a chunk."""
        self.events += len(batch)
        by_category: dict[str, list[Complete]] = defaultdict(list)
        adders = _Adders(by_category)
        for event in batch:
            kind = type(event)
            if kind is Complete:
                adders[event.cat](event)
            elif kind is Begin or kind is End:
                self._pair(event, by_category)
            elif kind is Meta:
                self.ascend |= event.name == "process_name" and _names_ascend(bytes(event.args))
        for category, events in by_category.items():
            table, sort = _TABLES.get(category, ("", 0))
            kept = events
            if table == PYTHON:
                self._add_functions(events)
                kept = [event for event in events if event.name.startswith(_MODULE_PREFIX)]
            elif category == _RECORD:
                self._take_record(events)
            elif category == "" and not self.xla:
                self.xla = any(b'"hlo_' in bytes(event.args) for event in events)
            if table and kept:
                self._add(table, sort, kept)

    def close(self) -> None:
        """Ends taking events."""
        unmatched = sum(len(stack) for stack in self._open.values())
        if unmatched:
            self.dropped["unmatched"] += unmatched
        tables = (self.ops, self.host, self.device, self.notes, self.modules, self.functions, self.messages.table)
        for table in tables:
            table.close()
        self.dropped["changed_name"] += self.names.changed
        self.dropped["bad_time"] += leave_out_far(tables, self.device if len(self.device) else self.ops)
        self.dropped["bad_duration"] += leave_out_endless(self.device if len(self.device) else self.ops)

    def _pair(self, event: Begin | End, by_category: dict[str, list[Complete]]) -> None:
        stack = self._open[event.pid, event.tid]
        if isinstance(event, Begin):
            if len(stack) < MAX_OPEN:
                stack.append(event)
            else:
                self.dropped["unmatched"] += 1
            return
        if not stack:
            self.dropped["unmatched"] += 1
            return
        begin = stack.pop()
        start, end = text_to_ns(bytes(begin.ts)), text_to_ns(bytes(event.ts))
        if NO_TIME in (start, end):
            self.dropped["bad_time"] += 1
            return
        sign, length = ("-" if end < start else ""), abs(end - start)
        duration = Raw(b"%s%d.%03d" % (sign.encode(), length // 1000, length % 1000))
        by_category[begin.cat].append(
            Complete(
                cat=begin.cat, name=begin.name, pid=begin.pid, tid=begin.tid, ts=begin.ts, dur=duration, args=begin.args
            )
        )

    def _add(self, table: str, sort: int, events: list[Complete]) -> None:
        start = texts_to_ns([event.ts for event in events])
        length = texts_to_ns([event.dur for event in events])
        bad_time = (start == NO_TIME) | (length == NO_TIME)
        bad_length = ~bad_time & ((length < 0) | (length > MAX_DURATION_NS))
        bad = bad_time | bad_length
        if bad.any():
            self.dropped["bad_time"] += int(bad_time.sum())
            self.dropped["bad_duration"] += int(bad_length.sum())
            events = [event for event, drop in zip(events, bad.tolist(), strict=True) if not drop]
            start, length = start[~bad], length[~bad]
        if not events:
            return
        names = self.names
        common = {"start": start, "end": start + length, "name": _ints([names[event.name] for event in events])}
        if table == DEVICE:
            self._add_device(sort, events, common)
            return
        threads = self.threads
        common["thread"] = _ints([threads[event.pid, event.tid] for event in events])
        if table == OP:
            self._add_ops(events, common)
        elif table == HOST:
            args = self._args(HostArgs, host_args, events)
            self.host.add(
                **common,
                correlation=_numbers([a.correlation for a in args]),
                grid=self._extents.volumes([a.grid for a in args]),
                block=self._extents.volumes([a.block for a in args]),
                kernel=_ints([UNKNOWN if (k := a.kernel) is None else self._named(k) for a in args]),
            )
        elif table == NOTE:
            self.messages.take_calls(events, common)
            self.notes.add(**common)
        elif table == FUNCTION:
            self.functions.add(**common)
        else:
            self.modules.add(**common)

    def _add_functions(self, events: list[Complete]) -> None:
        """Counts Python functions, and keeps the first long ones: they name what the host did where no op says it."""
        self.python += len(events)
        if self._functions >= MAX_FUNCTIONS:
            return
        length = texts_to_ns([event.dur for event in events])
        rows = np.flatnonzero((length >= LONG_FUNCTION_NS) & (length <= MAX_DURATION_NS))[
            : MAX_FUNCTIONS - self._functions
        ]
        long = [events[row] for row in rows.tolist() if not events[row].name.startswith(_MODULE_PREFIX)]
        self._functions += len(long)
        if long:
            self._add(FUNCTION, 0, long)

    def _take_record(self, events: list[Complete]) -> None:
        """Until when the profiler says that it recorded."""
        for event in events:
            start, length = text_to_ns(bytes(event.ts)), text_to_ns(bytes(event.dur))
            if calls.is_record(event.name) and NO_TIME not in (start, length) and 0 <= length <= MAX_DURATION_NS:
                self.recorded_until = max(self.recorded_until or 0, start + length)

    def _named(self, kernel: Any) -> int:
        return self.names[kernel] if isinstance(kernel, str) else UNKNOWN

    def _add_ops(self, events: list[Complete], common: dict[str, Ints]) -> None:
        args = self._args(OpArgs, op_args, events)
        for row in self.messages.take_calls(events, common):
            if events[row].name == RECORD:
                args[row].concrete = Raw(b"")  # has numbers that differ with every call, and no formula reads it
        inputs = self.inputs
        ids = [inputs[b"\0".join((a.shapes, a.dtypes, a.strides, a.concrete))] for a in args]
        self.ops.add(**common, inputs=_ints(ids), sequence=_numbers([a.sequence for a in args]))

    def _add_device(self, sort: int, events: list[Complete], common: dict[str, Ints]) -> None:
        args = self._args(DeviceArgs, device_args, events)
        devices = [e.pid if a.device is None else a.device for a, e in zip(args, events, strict=True)]
        grid, grid_x, grid_y = self._extents.sides(self._extents.ids([a.grid for a in args]))
        message, message_sequence = self.messages.of_kernels(events, common["name"])
        self.device.add(
            **common,
            sort=np.full(len(events), sort, dtype=np.int64),
            correlation=_numbers([a.correlation for a in args]),
            device=_numbers(devices),
            grid=grid,
            grid_x=grid_x,
            grid_y=grid_y,
            block=self._extents.volumes([a.block for a in args]),
            bytes=_numbers([a.bytes for a in args]),
            message=message,
            message_sequence=message_sequence,
            graph=_numbers([a.graph for a in args]),
            node=_numbers([a.node for a in args]),
        )

    def _args(self, kind: Any, decoder: msgspec.json.Decoder[Any], events: list[Complete]) -> list[Any]:
        """The arguments of all ``events`` at once; one by one where that fails."""
        try:
            decoded: list[Any] = decoder.decode(b"[" + b",".join([event.args for event in events]) + b"]")
        except DECODE_ERRORS:
            return [self._one_args(kind, bytes(event.args)) for event in events]
        return decoded

    def _one_args(self, kind: Any, text: bytes) -> Any:
        try:
            return msgspec.json.decode(text, type=kind)
        except DECODE_ERRORS:
            pass
        for _, mended in repairs(text):
            try:
                return msgspec.json.decode(mended, type=kind)
            except DECODE_ERRORS:
                continue
        self.dropped["unreadable_args"] += 1
        return kind()


class _Adders(dict[str, Callable[[Complete], None]]):
    """Category → the append of its list: one look-up less for each event."""

    def __init__(self, lists: dict[str, list[Complete]]) -> None:
        super().__init__()
        self._lists = lists

    def __missing__(self, category: str) -> Callable[[Complete], None]:
        self[category] = self._lists[category].append
        return self[category]


def _names_ascend(args: bytes) -> bool:
    return b"Ascend Hardware" in args or b"CANN" in args


def _ints(values: Iterable[int]) -> Ints:
    return np.frombuffer(array("q", values), dtype=np.int64)


def _numbers(values: list[Any]) -> Ints:
    """Ids and sizes as the trace gives them; ``UNKNOWN`` for what is not a whole number below 2⁶²."""
    try:
        return _ints(values)
    except (TypeError, OverflowError):
        return _ints([_number(value) for value in values])


def _number(value: Any) -> int:
    if isinstance(value, str) and len(value) < 20:
        value = int(value) if value.isascii() and value.isdigit() else UNKNOWN
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 1 << 62:
        return UNKNOWN
    return value
