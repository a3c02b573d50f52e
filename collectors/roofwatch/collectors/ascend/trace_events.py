"""The events of ``trace_view.json`` that Kineto has not: arrows, samples, and what has no category."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
from msgspec import Raw, Struct

from roofwatch.collectors.kineto.events import DECODE_ERRORS, Complete, Events
from roofwatch.collectors.kineto.tables import UNKNOWN
from roofwatch.collectors.kineto.times import NO_TIME, text_to_ns, texts_to_ns

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]

_ID_BITS = (1 << 62) - 1
_ABSENT = frozenset({65_535, 4_294_967_295})


class FlowBegin(Struct, tag_field="ph", tag="s", gc=False):
    """The tail of an arrow."""

    cat: str = ""
    id: int | str | float | None = None
    tid: int | str | float | None = None
    ts: Raw = Raw(b"null")


class FlowEnd(Struct, tag_field="ph", tag="f", gc=False):
    """The head of an arrow."""

    cat: str = ""
    id: int | str | float | None = None
    tid: int | str | float | None = None
    ts: Raw = Raw(b"null")


class Sample(Struct, tag_field="ph", tag="C", gc=False):
    """A value over time."""

    name: str = ""
    args: Raw = Raw(b"{}")


KINDS = Events(FlowBegin, FlowEnd, Sample)


class Args(Struct, gc=False):
    """Arguments of what CANN and the device did; each where it is told."""

    connection: Any = msgspec.field(name="connection_id", default=None)
    task: Any = msgspec.field(name="Task Type", default=None)
    dtype: Any = msgspec.field(name="data_type", default=None)
    count: Any = None


class _Named(Struct, gc=False):
    name: Any = None


class _Clocked(Struct, gc=False):
    mhz: Any = msgspec.field(name="MHz", default=None)


_all_args = msgspec.json.Decoder(list[Args])


def args_of(events: Sequence[Complete]) -> tuple[list[Args], int]:
    """The arguments of events, and how many could not be read."""
    try:
        return _all_args.decode(b"[" + b",".join([event.args for event in events]) + b"]"), 0
    except DECODE_ERRORS:
        pass
    found, bad = [], 0
    for event in events:
        try:
            found.append(msgspec.json.decode(event.args, type=Args))
        except DECODE_ERRORS:
            found.append(Args())
            bad += 1
    return found, bad


def process_name(args: Raw) -> str | None:
    """The name in the arguments of an event that names a process."""
    try:
        name = msgspec.json.decode(args, type=_Named).name
    except DECODE_ERRORS:
        return None
    return name if isinstance(name, str) else None


def clock_hz(args: Raw) -> float | None:
    """The clock in the arguments of a sample."""
    try:
        mhz = msgspec.json.decode(args, type=_Clocked).mhz
    except DECODE_ERRORS:
        return None
    known = isinstance(mhz, int | float) and not isinstance(mhz, bool) and 1 <= mhz < 100_000
    return mhz * 1e6 if known else None


class Flows:
    """One end of all arrows of a sort, as they stream by."""

    def __init__(self) -> None:
        self._ids = array("q")
        self._threads = array("q")
        self._times: list[Raw] = []
        self._parts: list[Ints] = []

    def add(self, flow: FlowBegin | FlowEnd) -> None:
        """Takes one."""
        self._ids.append(UNKNOWN if flow.id is None else hash(flow.id) & _ID_BITS)  # ids may have 66 bits, as text
        self._threads.append(number(flow.tid))
        self._times.append(flow.ts)

    def flush(self) -> None:
        """Reads the times of those taken since; keeps no text."""
        if self._times:
            self._parts.append(texts_to_ns(self._times))
            self._times.clear()

    def columns(self) -> tuple[Ints, Ints, Ints]:
        """Ids, threads (numbers), times; without those that lack an id or a time."""
        self.flush()
        times = np.concatenate([np.empty(0, dtype=np.int64), *self._parts])
        ids, threads = (np.frombuffer(column, dtype=np.int64) for column in (self._ids, self._threads))
        good = (ids >= 0) & (times != NO_TIME)
        return ids[good], threads[good], times[good]


def lengths(texts: Sequence[Raw]) -> Ints:
    """Nanoseconds of durations in microseconds; ``NO_TIME`` where it is none.

    They have up to eight decimals; a double is exact far below a nanosecond for what lasts less than a week.
    """
    try:
        found = np.array([float(text) for text in texts], dtype=np.float64) * 1000
    except (ValueError, TypeError):
        return np.array([text_to_ns(bytes(text)) for text in texts], dtype=np.int64)
    bad = ~(np.abs(found) < 1 << 62)
    result: Ints = np.where(bad, NO_TIME, np.rint(np.where(bad, 0, found))).astype(np.int64)
    return result


def number(value: object) -> int:
    """A whole number, perhaps as text; ``UNKNOWN`` for what is none, too large, or stands for nothing."""
    if isinstance(value, str):
        value = int(value) if value.isascii() and value.isdigit() and len(value) < 19 else UNKNOWN
    elif isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 1 << 62 or value in _ABSENT:
        return UNKNOWN
    return value


def numbers(values: Sequence[object]) -> Ints:
    """``number`` of many."""
    return np.array([number(value) for value in values], dtype=np.int64)
