"""``kernel_details.csv`` and ``op_summary`` files → columns: streamed, in bounded memory, of whatever version."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from roofwatch.collectors.ascend.clock import Samples
from roofwatch.collectors.ascend.columns import GIB, KIB
from roofwatch.collectors.ascend.common import NOTHING, Message, What
from roofwatch.collectors.ascend.csv_cells import Cells, cells_of
from roofwatch.collectors.ascend.csv_head import LONGEST_HEAD, Head, head_of, is_head
from roofwatch.collectors.ascend.csv_texts import Texts, Whats
from roofwatch.collectors.ascend.near import kept, middle_of
from roofwatch.collectors.ascend.values import ABSENT_IDS
from roofwatch.collectors.kineto.buffer import Buffer
from roofwatch.collectors.kineto.columns import MAX_DURATION_NS
from roofwatch.collectors.kineto.times import NO_TIME
from roofwatch.model.errors import RoofwatchError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from roofwatch.collectors.base import Limits
    from roofwatch.collectors.kineto.source import Source

    Ints = NDArray[np.int64]
    Narrow = NDArray[np.int32]

BLOCK_BYTES = 1 << 20  # text looked at once: large enough for numpy, small beside the memory of the interpreter
MAX_LINE_BYTES = 4 << 20  # a longer line is no row
MANY_PARTS = 64  # of a column: a quarter of a million rows
_TIMES = b"Time(us)"  # is in every head
_BOM = b"\xef\xbb\xbf"
_PER_CENT = 0.01  # of the one column that is told so: how much of the time cores were taken
_OCCUPIED = "occupied_ns"
MOVED, MOVED_CYCLES, CORE_CYCLES = "moved_bytes", "moved_cycles", "core_cycles"  # the last two are to be ÷ the clock


@dataclass(frozen=True, slots=True)
class Table:
    """The rows of a table, a column each. Times are Unix nanoseconds; -1 is unknown in ids and blocks."""

    start: Ints
    duration: Ints
    what: Narrow  # id in ``whats``
    blocks: Narrow
    step: Narrow
    device: Narrow
    # Field of ``base.Pipes`` → ratios, and the fields below; NaN where not told.
    pipes: dict[str, NDArray[np.float32]]
    whats: Sequence[What]
    samples: Samples
    events: int  # rows, damaged ones included
    dropped: Counter[str]
    problems: list[str]


class Reader:
    """Reads a table, which may be in several files: slices that follow each other."""

    def __init__(self, limits: Limits, messages: Mapping[str, Message] = MappingProxyType({})) -> None:
        """``messages``: what collectives move, by their names."""
        self.events = 0
        self.dropped: Counter[str] = Counter()
        self.problems: list[str] = []
        self._limits = limits
        self._rows = 0
        self._columns = {name: _Column(dtype) for name, dtype in _COLUMNS.items()}
        self._pipes: dict[str, _Column] = {}
        self._whats = Whats(limits.max_name, messages)
        self._samples = Samples()
        self._damage: str | None = None
        self._first_damaged = ""

    def read(self, source: Source) -> None:
        """Takes a file.

        Raises:
            RoofwatchError: it is no such table.
        """
        buffer = Buffer(source.blocks())
        line, head = _head(buffer, source)
        texts = Texts(head, self._whats)
        self.dropped["unknown_metric"] += head.strange
        lines = 1
        for text in self._blocks(buffer):
            if not text.strip():  # a file may end in, or be nothing but, blank lines without number
                lines += text.count(b"\n")
                continue
            cells = cells_of(text, head.count)
            room = max(0, self._limits.max_events - self.events)
            self.dropped["over_event_limit"] += max(0, len(cells) - room)
            cells = cells if len(cells) <= room else cells.at(slice(room))
            self.events += len(cells) + len(cells.odd)
            self._odd(cells, head, lines, cut=buffer.ended and not buffer.text and not text.endswith(b"\n"))
            self._add(cells, head, texts, line)
            lines += cells.lines
        self.dropped["over_text_limit"] += texts.overflown
        self._conclude(source)

    def table(self) -> Table:
        """All that was read; the reader holds nothing any more."""
        self.dropped["over_text_limit"] += self._whats.overflown
        pipes = {name: column.joined() for name, column in self._pipes.items()}
        columns = {name: column.joined() for name, column in self._columns.items()}
        start, lasted = columns["start"], columns["duration"]
        mask = kept(start, start + lasted, middle_of([start]), self.dropped)
        if not mask.all():
            columns = {name: column[mask] for name, column in columns.items()}
            pipes = {name: column[mask] for name, column in pipes.items()}
        what, blocks = self._whats.of(columns.pop("sort"))
        return Table(
            **columns, what=what, blocks=blocks, pipes=pipes, whats=self._whats.found, samples=self._samples,
            events=self.events, dropped=self.dropped, problems=self.problems,
        )  # fmt: skip

    def _blocks(self, buffer: Buffer) -> Iterator[bytes]:
        """Whole lines, about a block of them; at last perhaps a line without its end."""
        while buffer.fill(1):
            buffer.fill(BLOCK_BYTES)
            end = buffer.text.rfind(b"\n") + 1
            while not end and buffer.fill(len(buffer.text) + 1) and len(buffer.text) <= MAX_LINE_BYTES:
                buffer.fill(len(buffer.text) + BLOCK_BYTES)
                end = buffer.text.rfind(b"\n") + 1
            if not end and not buffer.ended:
                self._skip_line(buffer)
                continue
            text = buffer.text if buffer.ended else buffer.text[:end]
            buffer.skip(len(text))
            yield text

    def _skip_line(self, buffer: Buffer) -> None:
        self.dropped["damaged_row"] += 1
        self._first_damaged = self._first_damaged or f"since it is longer than {MAX_LINE_BYTES >> 20} MiB"
        while b"\n" not in buffer.text and buffer.fill(1):
            buffer.skip(len(buffer.text))
            buffer.fill(BLOCK_BYTES)
        buffer.skip(buffer.text.find(b"\n") + 1)

    def _odd(self, cells: Cells, head: Head, before: int, *, cut: bool) -> None:
        """Counts rows that are not whole; a line that names columns again is none."""
        for line, row in cells.odd:
            if _TIMES in row and is_head(row):
                self._damage = self._damage or f"a table with other columns follows in line {before + line + 1}"
            elif cut and line == cells.lines - 1:
                self.dropped["cut_off"] += 1
                self.problems.append(f"the last row, in line {before + line + 1}, is cut off")
            else:
                self.dropped["damaged_row"] += 1
                self._first_damaged = self._first_damaged or (
                    f"in line {before + line + 1}, without the {head.count} cells of a row"
                )

    def _add(self, cells: Cells, head: Head, texts: Texts, line: bytes) -> None:
        start, duration = cells.times(head.places["start"]), cells.times(head.places["duration"])
        lost = (start == NO_TIME) | (start <= 0) | (duration == NO_TIME)
        wrong = ~lost & ((duration < 0) | (duration > MAX_DURATION_NS))
        if lost.any():
            again = [text.strip() == line for text in cells.at(lost).texts(0, head.count - 1)]
            self.events -= sum(again)
            self.dropped["bad_time"] += len(again) - sum(again)
        self.dropped["bad_duration"] += int(wrong.sum())
        if (lost | wrong).any():
            kept = ~(lost | wrong)
            cells, start, duration = cells.at(kept), start[kept], duration[kept]
        if not len(cells):
            return
        self._samples.take(cells, head, duration)
        for name, column in (
            ("start", start), ("duration", duration), ("sort", texts.sorts(cells).astype(np.int32)),
            ("step", _ids(cells, head, "step")), ("device", _ids(cells, head, "device")),
        ):  # fmt: skip
            self._columns[name].add(column)
        self._add_pipes(cells, head)
        self._rows += len(cells)

    def _add_pipes(self, cells: Cells, head: Head) -> None:
        """Appends to each pipe, with NaN where this file or the ones before do not tell it."""
        found = _metrics(cells, head)
        for name in {**self._pipes, **found}:
            if name not in self._pipes:
                self._pipes[name] = _Column(np.float32)
                self._pipes[name].add(_unknown(self._rows))
            self._pipes[name].add(found[name] if name in found else _unknown(len(cells)))

    def _conclude(self, source: Source) -> None:
        if source.problem:
            self.problems.append(source.problem)
        if source.over_limit:
            self.dropped["over_size_limit"] += 1
        if self.dropped["over_event_limit"]:
            self.problems.append(f"only the first {self._limits.max_events} rows were kept (the event limit)")
        if self._damage:
            self.problems.append(self._damage)
        if self.dropped["damaged_row"]:
            count = self.dropped["damaged_row"]
            rows = "1 row is damaged" if count == 1 else f"{count} rows are damaged, the first"
            self.problems.append(f"{rows} {self._first_damaged}")
        self._damage, self._first_damaged = None, ""


_COLUMNS: dict[str, Any] = {
    "start": np.int64, "duration": np.int64, "sort": np.int32, "step": np.int32, "device": np.int32
}  # fmt: skip


def _head(buffer: Buffer, source: Source) -> tuple[bytes, Head]:
    """The first line, and what it says; the buffer then begins after it."""
    buffer.fill(LONGEST_HEAD)
    if buffer.text.startswith(_BOM):
        buffer.skip(len(_BOM))
    if not buffer.skip_blanks():
        raise RoofwatchError(f"{source.name} is empty: nothing was written to it.")
    buffer.fill(LONGEST_HEAD)
    line = buffer.text.partition(b"\n")[0]
    head = head_of(line)
    if isinstance(head, str):
        raise RoofwatchError(f"{source.name} is no table of Ascend kernels: {head}.")
    buffer.skip(len(line) + 1)
    return line.strip(), head


def _metrics(cells: Cells, head: Head) -> dict[str, NDArray[np.float32]]:
    """The metrics of rows: ratios, and what moved or was taken in bytes, bytes × Hz, and cycles."""
    columns = dict.fromkeys([column for columns in head.pipes.values() for column in columns])
    columns |= dict.fromkeys([column for pair in head.traffic for column in pair if column is not None])
    columns |= {} if head.cycles is None else {head.cycles: None}
    if not columns:
        return {}
    read = dict(zip(columns, cells.decimals(list(columns)), strict=True))
    found = {name: _sum([read[column] for column in columns]) for name, columns in head.pipes.items()}
    if _OCCUPIED in found:
        found[_OCCUPIED] *= _PER_CENT
    if head.cycles is not None:
        found[CORE_CYCLES] = read[head.cycles]
    if head.traffic:
        rate = head.traffic[0][1] is not None
        with np.errstate(over="ignore"):
            parts = [read[moved] * (KIB if over is None else GIB * read[over]) for moved, over in head.traffic]
        found[MOVED_CYCLES if rate else MOVED] = _sum(parts)
    with np.errstate(over="ignore"):  # damage: more than any metric can be, and counted so
        return {name: values.astype(np.float32) for name, values in found.items()}


def _sum(parts: Sequence[NDArray[np.float64]]) -> NDArray[np.float64]:
    """What parts add up to; a part that is not told counts as nothing beside one that is."""
    if len(parts) == 1:
        return parts[0]
    known = [~np.isnan(part) for part in parts]
    total = np.sum([np.where(told, part, 0.0) for told, part in zip(known, parts, strict=True)], axis=0)
    result: NDArray[np.float64] = np.where(np.any(known, axis=0), total, np.nan)
    return result


def _ids(cells: Cells, head: Head, what: str) -> Narrow:
    """A column of small whole numbers; -1 where there is none."""
    place = head.places.get(what)
    if place is None:
        return np.full(len(cells), NOTHING, dtype=np.int32)
    found = cells.decimals([place])[0]
    good = (found >= 0) & (found < 1 << 31) & (found % 1 == 0) & ~np.isin(found, list(ABSENT_IDS))
    return np.where(good, found, NOTHING).astype(np.int32)


def _unknown(count: int) -> NDArray[np.float32]:
    return np.broadcast_to(np.float32(np.nan), (count,))


class _Column:
    """A column that grows by small parts. They are put together now and then: many small ones stay with the heap."""

    def __init__(self, dtype: Any) -> None:
        self._dtype = dtype
        self._large: list[NDArray[Any]] = []
        self._small: list[NDArray[Any]] = []

    def add(self, part: NDArray[Any]) -> None:
        """Appends."""
        self._small.append(part)
        if len(self._small) >= MANY_PARTS:
            self._settle()

    def joined(self) -> NDArray[Any]:
        """All of it, which the column then holds no more."""
        self._settle()
        whole, self._large = np.concatenate([np.empty(0, dtype=self._dtype), *self._large]), []
        return whole

    def _settle(self) -> None:
        if self._small:
            self._large.append(np.concatenate(self._small))
            self._small.clear()
