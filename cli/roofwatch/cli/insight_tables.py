"""Kernel tables and views as MindStudio Insight takes them: today's names of columns, and a view of a table's rows."""

from __future__ import annotations

import csv
import gzip
import io
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self, TextIO

from roofwatch.collectors.ascend.csv_head import Head, head_of
from roofwatch.collectors.kineto.times import NO_TIME, text_to_ns
from roofwatch.model import insight
from roofwatch.model.errors import RoofwatchError

TABLE, VIEW = "kernel_details.csv", "trace_view.json"
GZIP = b"\x1f\x8b"
_LONGEST_CELL = 1 << 20
_METRIC = re.compile(r"[\w\- ]+(?:\((?:us|%|GB/s|KB)\))?")  # a name of a metric that Insight takes; one other costs all
# What ``csv_head`` calls a column → its name today.
_NAMES = {
    "name": "Name", "type": "Type", "core": "Accelerator Core", "start": "Start Time(us)", "duration": "Duration(us)",
    "blocks": "Block Num", "device": "Device_id", "step": "Step Id", "stream": "Stream ID", "task": "Task ID",
    "hf32": "HF32 Eligible", "input_shapes": "Input Shapes", "input_dtypes": "Input Data Types",
    "input_formats": "Input Formats", "output_shapes": "Output Shapes", "output_dtypes": "Output Data Types",
    "output_formats": "Output Formats",
}  # fmt: skip
_WAIT = re.compile(r"(?:task)?waittime\(us\)")


def convert(files: Sequence[Path], inner: Path, *, with_view: bool) -> int:
    """Tables as one ``kernel_details.csv`` with today's names of columns, and a view of its rows; how many are lost."""
    lost = 0
    view = insight.View()
    with ExitStack() as stack:
        out = csv.writer(
            stack.enter_context((inner / TABLE).open("w", encoding="utf-8", newline="")), lineterminator="\n"
        )
        events = stack.enter_context(_Events(inner / VIEW)) if with_view else None
        names: list[str] | None = None
        for path in files:
            rows = _rows(path)
            head = _columns(next(rows, []))
            if names is None:
                names = [name for name, _ in head]
                out.writerow(names)
            at = dict(head)
            for row in rows:
                if len(row) <= max((place for place in at.values() if place is not None), default=0):
                    lost += bool(row)
                    continue
                cells = {name: insight.ABSENT if place is None else row[place] for name, place in at.items()}
                out.writerow([cells.get(name, insight.ABSENT) for name in names])
                if events is not None and (call := _call(cells)) is not None:
                    events.write(view.events(call))
    return lost


def _rows(path: Path) -> Iterator[list[str]]:
    """The rows of a table, as text."""
    with ExitStack() as stack:
        raw = stack.enter_context(path.open("rb"))
        packed = raw.read(2) == GZIP
        raw.seek(0)
        plain: Any = gzip.open(raw) if packed else raw  # noqa: SIM115 - closed with the file that it reads
        text = io.TextIOWrapper(plain, "utf-8-sig", "replace", newline="")
        csv.field_size_limit(_LONGEST_CELL)
        try:
            yield from (row for row in csv.reader(text) if any(cell.strip() for cell in row))
        except (csv.Error, EOFError) as error:
            raise RoofwatchError(f"{path} cannot be exported, its rows are damaged: {error}.") from error


def _columns(row: Sequence[str]) -> list[tuple[str, int | None]]:
    """The columns of a table under today's names, each with its place; those that are required and not there: None."""
    line = io.StringIO()
    csv.writer(line).writerow(row)
    head = head_of(line.getvalue().encode())
    renamed = _renamed(row, head) if isinstance(head, Head) else {}
    columns: dict[str, int | None] = {}
    metrics = False
    for place, name in enumerate(row):
        today = renamed.get(place, name.strip())
        metrics = metrics or today == "aicore_time(us)"
        if today and today not in columns and not (metrics and not _METRIC.fullmatch(today)):
            columns[today] = place
    missing = {name: None for name in insight.REQUIRED if name not in columns}
    return [*missing.items(), *columns.items()]


def _renamed(row: Sequence[str], head: Head) -> dict[int, str]:
    found = {place: _NAMES[what] for what, place in head.places.items() if what in _NAMES}
    waits = (place for place, name in enumerate(row) if _WAIT.fullmatch(re.sub(r"[\s_]+", "", name).lower()))
    return found | dict.fromkeys(list(waits)[:1], "Wait Time(us)")


def _call(cells: dict[str, str]) -> insight.Call | None:
    """A row as a slice of a view; None where it has no time."""
    start, length = (text_to_ns(cells[name].strip().encode()) for name in ("Start Time(us)", "Duration(us)"))
    if NO_TIME in (start, length) or start <= 0 or length < 0:
        return None
    core = cells["Accelerator Core"].strip()
    if core in ("HCCL", "COMMUNICATION"):
        return insight.Call(cells["Name"], "COMMUNICATION", start, length, None, (), "Group", insight.COMMUNICATION)
    return insight.Call(cells["Name"], core, start, length, None, (), f"Stream {cells.get('Stream ID', '').strip()}")


class _Events:
    """A list of events, written as they come."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._first = True

    def __enter__(self) -> Self:
        self._file: TextIO = self._path.open("w", encoding="utf-8")
        self._file.write("[")
        return self

    def write(self, events: Iterable[dict[str, Any]]) -> None:
        """Appends."""
        for event in events:
            self._file.write(("" if self._first else ",\n") + json.dumps(event))
            self._first = False

    def __exit__(self, *_: object) -> None:
        self._file.write("]\n")
        self._file.close()


def write_view(path: Path, events: Iterable[dict[str, Any]]) -> None:
    """Writes a view."""
    with _Events(path) as out:
        out.write(events)
