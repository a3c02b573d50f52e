"""A window as the two files that MindStudio Insight imports: ``kernel_details.csv`` and ``trace_view.json``. Pure.

What Insight needs of them, by its public source (modules operator and timeline): the table must have the columns of
``REQUIRED``; shapes count where all six columns of them are there; a row must have as many cells as the head. The view
is a list of events, times in microseconds as text, threads under a process that a metadata event names; without a view
in a folder its table is not looked at. The rank is in the name of ``profiler_info_N.json`` in the folder above.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from roofwatch.model.kinds import Kind
from roofwatch.model.record import Collective, Signature

REQUIRED = ("Name", "Type", "Accelerator Core", "Start Time(us)", "Duration(us)", "Wait Time(us)", "Block Num")
SHAPES = (
    "Input Shapes", "Input Data Types", "Input Formats", "Output Shapes", "Output Data Types", "Output Formats",
)  # fmt: skip
HEAD = ("Device_id", *REQUIRED, *SHAPES)
HARDWARE, COMMUNICATION = "Ascend Hardware", "Communication"  # processes of a view
ABSENT = "N/A"
NOT_REAL = "calls laid end to end: lengths are real, beginnings are not"
MAX_CALLS = 500_000  # rows of a table; a window has fewer
_NEVER = 1_000_000_000  # ns: where a window begins that has no clock; a table's times are above 0
# The dtypes of ``shapes.ITEM_BYTES`` as the vendor's tables write them; others keep their name in capitals.
_DTYPES = {
    "fp32": "FLOAT", "fp16": "FLOAT16", "bf16": "DT_BF16", "fp64": "DOUBLE", "bool": "BOOL",
    "complex64": "COMPLEX64", "complex128": "COMPLEX128",
}  # fmt: skip
_ON_CUBE = frozenset({Kind.MATMUL, Kind.GROUPED_MATMUL, Kind.CONV})


class Summed(NamedTuple):
    """All calls of a signature in a window on one device."""

    signature: Signature
    device: int  # position among the window's devices
    calls: int
    total_ns: int
    min_ns: int
    max_ns: int


@dataclass(frozen=True, slots=True)
class Call:
    """One row of the table, one slice of the view."""

    name: str
    core: str
    start_ns: int
    duration_ns: int
    device: int | None  # the device's own number
    shapes: tuple[str, ...]  # cells of ``SHAPES``
    thread: str
    process: str = HARDWARE


def calls_of(
    start_unix_ns: int, stats: Sequence[Summed], collectives: Sequence[Collective], indices: Sequence[int | None]
) -> list[Call]:
    """The calls of a window's records: as many, as long in all, the shortest and the longest as they were.

    A record keeps no call's own time, so calls are laid end to end on each device, what took most time first. Those
    collectives that the window lists one by one stand where they were.
    """
    begin = start_unix_ns or _NEVER
    at = dict.fromkeys(range(len(indices)), begin)
    listed = {one.device for one in collectives}
    words = _words(stats)
    found: list[Call] = []
    for one in sorted(stats, key=lambda stat: -stat.total_ns):
        signature, communicates = one.signature, one.signature.kind is Kind.COMM
        if communicates and one.device in listed:
            continue
        core, cells = core_of(signature), cells_of(signature)
        for length in lengths_of(one)[: MAX_CALLS - len(found)]:
            start, at[one.device] = at[one.device], at[one.device] + length
            found.append(Call(signature.kernel, core, start, length, indices[one.device], cells, NOT_REAL))
    return [*found, *_collectives(collectives, words, begin - start_unix_ns, indices)]


def _words(stats: Iterable[Summed]) -> dict[str, str]:
    """A collective's name → the library's own word for it, and under "" that of what has no such name."""
    found: dict[str, str] = {}
    for one in stats:
        if one.signature.kind is Kind.COMM:
            name = str(_read(one.signature.arguments).get("collective", ""))
            found[name] = one.signature.kernel if found.get(name, one.signature.kernel) == one.signature.kernel else ""
    return found


def _collectives(
    collectives: Sequence[Collective], words: Mapping[str, str], later: int, indices: Sequence[int | None]
) -> Iterator[Call]:
    for one in collectives:
        start = max(1, one.start_unix_ns + later)
        name = words.get(one.name) or f"hcom_{_camel(one.name or 'collective')}_"
        group = one.group or "of an unknown group"
        cells = (ABSENT,) * len(SHAPES)
        yield Call(
            name, COMMUNICATION.upper(), start, one.duration_ns, indices[one.device], cells, group, COMMUNICATION
        )


def _camel(name: str) -> str:
    """``all_reduce`` as the vendor's library has it: ``allReduce``."""
    first, *more = name.split("_")
    return first + "".join(word.capitalize() for word in more)


def lengths_of(one: Summed) -> list[int]:
    """Lengths of calls that add up to the sum, with the shortest and the longest among them; the others alike."""
    if one.calls < 3:
        return [one.total_ns] if one.calls < 2 else [one.total_ns - one.max_ns, one.max_ns]
    rest, others = one.total_ns - one.min_ns - one.max_ns, one.calls - 2
    share, more = divmod(max(0, rest), others)
    return [one.max_ns, *([share + 1] * more), *([share] * (others - more)), one.min_ns]


def core_of(signature: Signature) -> str:
    """Where it ran, as far as a record tells."""
    if signature.kind is Kind.AICPU:
        return "AI_CPU"
    if signature.kind is Kind.COMM:
        return COMMUNICATION.upper()
    if signature.unit == "matrix" or signature.kind in _ON_CUBE:
        return "AI_CORE"
    return "AI_VECTOR_CORE" if signature.unit == "vector" else ABSENT


def cells_of(signature: Signature) -> tuple[str, ...]:
    """The cells of ``SHAPES``: ``"4096,2048;2048,1024"`` in quotes, and names with ";" between."""
    told = _read(signature.arguments)
    outputs = told.get("outputs")
    shapes, dtypes, formats = outputs if isinstance(outputs, list) and len(outputs) == 3 else (None, None, None)
    own = _read_list(signature.shapes)
    own_formats = told.get("formats")
    plain = ["ND"] * len(own) if own is not None else None
    return (
        _shapes(own), _names(_read_list(signature.dtypes)),
        _names(own_formats[: len(own)] if isinstance(own_formats, list) and own is not None else plain),
        _shapes(shapes), _names(dtypes), _names(formats),
    )  # fmt: skip


def _read(text: str | None) -> dict[str, Any]:
    try:
        found = json.loads(text or "{}")
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _read_list(text: str | None) -> list[Any] | None:
    try:
        found = json.loads(text) if text else None
    except ValueError:
        return None
    return found if isinstance(found, list) else None


def _shapes(shapes: Any) -> str:
    if not isinstance(shapes, list) or not all(isinstance(shape, list) for shape in shapes):
        return ABSENT
    return '"' + ";".join(",".join(str(extent) for extent in shape) for shape in shapes) + '"'


def _names(names: Any) -> str:
    if not isinstance(names, list) or not names:
        return ABSENT
    return ";".join(_DTYPES.get(str(name), str(name).upper()) or "UNDEFINED" for name in names)


def microseconds(ns: int) -> str:
    """Exactly, with three decimals."""
    return f"{ns // 1000}.{ns % 1000:03d}"


def table(calls: Iterable[Call]) -> Iterator[tuple[str, ...]]:
    """The cells of ``kernel_details.csv``, its head first, by time; a row waits from the end of the one before."""
    yield HEAD
    ended: dict[int | None, int] = {}
    for call in sorted(calls, key=lambda one: one.start_ns):
        waited = max(0, call.start_ns - ended.get(call.device, call.start_ns))
        ended[call.device] = max(ended.get(call.device, 0), call.start_ns + call.duration_ns)
        yield (
            ABSENT if call.device is None else str(call.device), call.name, call.name, call.core,
            microseconds(call.start_ns), microseconds(call.duration_ns), microseconds(waited), ABSENT, *call.shapes,
        )  # fmt: skip


class View:
    """Events of ``trace_view.json``, with what names each process and thread when it first comes."""

    def __init__(self) -> None:
        self._threads: dict[tuple[str, str], int] = {}
        self._processes: dict[str, int] = {}

    def events(self, call: Call) -> Iterator[dict[str, Any]]:
        """The events of a call."""
        if call.process not in self._processes:
            pid = self._processes[call.process] = len(self._processes) + 1
            yield _named("process_name", pid, 0, {"name": call.process})
            yield _named("process_sort_index", pid, 0, {"sort_index": pid})
        pid = self._processes[call.process]
        if (call.process, call.thread) not in self._threads:
            tid = self._threads[call.process, call.thread] = len(self._threads) + 1
            yield _named("thread_name", pid, tid, {"name": call.thread})
            yield _named("thread_sort_index", pid, tid, {"sort_index": tid})
        yield {
            "ph": "X", "name": call.name, "pid": pid, "tid": self._threads[call.process, call.thread],
            "ts": microseconds(call.start_ns), "dur": call.duration_ns / 1000, "args": {"Task Type": call.core},
        }  # fmt: skip


def _named(name: str, pid: int, tid: int, args: dict[str, object]) -> dict[str, Any]:
    return {"ph": "M", "name": name, "pid": pid, "tid": tid, "args": args}
