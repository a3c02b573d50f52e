"""``top --every``: how much time a group took, and how long its calls took, from stretch to stretch."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from roofwatch.cli.render import text
from roofwatch.cli.render.diagnosis import wrapped
from roofwatch.cli.render.kernels import UNNAMED
from roofwatch.cli.render.table import Column, table

Answer = Mapping[str, Any]
Row = Mapping[str, Any]

MARKS_MOST = 24  # of a line: a day by hours
MARKS = "▁▂▃▄▅▆▇█"
NOTHING = "·"
TIMES = 10.0  # from there on per cent are no figure to read
SPAN_LEAST = 0.05  # of the least mean: less is drawn as little, for it is mostly noise
LEGEND = (
    "▁ to █: time from nothing, mean of a call from its least, each to its most on that line (of means 5 % more at "
    "least); · no kernels. varies: the most of the means beyond the least (×: so many times it)"
)
_IDENTITY = ("kernel", "op", "module", "node", "device", "index", "uuid", "process")


@dataclass(frozen=True, slots=True)
class _Mark:
    """The sums of the stretches that one mark stands for."""

    est_ns: int = 0
    total_ns: int = 0
    calls: int = 0

    @property
    def mean_ns(self) -> float | None:
        """Of a call."""
        return self.total_ns / self.calls if self.calls else None


def lines(answer: Answer, names: Sequence[str], by: str, room: int, *, several: bool) -> list[str]:
    """What time a mark stands for, then a line a group; ``several``: device models, which are then told."""
    every, rows = answer["query"]["every_ns"], answer["rows"]
    starts = [row["start_unix_ns"] for row in rows if row["start_unix_ns"] is not None]
    first, number = (min(starts), (max(starts) - min(starts)) // every + 1) if starts else (0, 0)
    per_mark = max(1, math.ceil(number / MARKS_MOST))
    of: dict[tuple[Any, ...], list[Row]] = defaultdict(list)
    for row in rows:
        of[_identity(row, by)].append(row)
    cells = []
    for rank, (group, name) in enumerate(zip(answer["groups"], names, strict=True), 1):
        marks = _marks(of[_identity(group, by)], first, every * per_mark, math.ceil(number / per_mark))
        cells.append(_cells(rank, group, name, marks, several=several))
    told = [_axis(first, number, every, per_mark)] if starts else ["no window's time is known"]
    return [*told, "", *table(_columns(by, several=several), cells, room), "", *wrapped(LEGEND, room)]


def _identity(row: Row, by: str) -> tuple[Any, ...]:
    return (*(row[key] for key in _IDENTITY), row["kind"] if by == "kind" else None)


def _marks(rows: Sequence[Row], first: int, size: int, number: int) -> list[_Mark]:
    found = [_Mark()] * number
    for row in rows:
        if row["start_unix_ns"] is None:
            continue
        at = (row["start_unix_ns"] - first) // size
        before = found[at]
        found[at] = _Mark(before.est_ns + row["est_ns"], before.total_ns + row["total_ns"], before.calls + row["calls"])
    return found


def _axis(first: int, number: int, every: int, per_mark: int) -> str:
    begin, end = (
        f"{datetime.fromtimestamp(at / 1e9).astimezone():%Y-%m-%d %H:%M}" for at in (first, first + number * every)
    )
    merged = f" · {per_mark} a mark" if per_mark > 1 else ""
    return f"{text.count(number)} × {length(every)}{merged} · {begin} to {end}"


def length(ns: int) -> str:
    """A length of time that was asked for: "1 h", "90 min"."""
    seconds = ns // 10**9
    for unit, size in (("d", 86_400), ("h", 3600), ("min", 60)):
        if seconds % size == 0:
            return f"{text.count(seconds // size)} {unit}"
    return f"{text.count(seconds)} s"


def _columns(by: str, *, several: bool) -> list[Column]:
    return [
        Column("#", right=True),
        Column(by, floor=12, apart=True),
        *([Column("on", floor=8, drop=1, apart=True)] if several else []),
        Column("time", right=True),
        Column("share", right=True, drop=2),
        Column("over time"),
        Column("mean", right=True),
        Column("over time"),
        Column("varies", right=True),
    ]


def _cells(rank: int, group: Row, name: str, marks: Sequence[_Mark], *, several: bool) -> list[str]:
    means = [mark.mean_ns for mark in marks]
    known = [mean for mean in means if mean is not None]
    return [
        str(rank),
        name,
        *([text.clean(group["device"]) or UNNAMED] if several else []),
        text.duration(group["est_ns"]),
        text.percent(group["share"]),
        sparkline([mark.est_ns if mark.calls else None for mark in marks], 0.0),
        text.duration(group["mean_ns"]),
        sparkline(means, min(known, default=0.0), SPAN_LEAST * min(known, default=0.0)),
        _varies(max(known) / min(known)) if len(known) > 1 and min(known) > 0 else text.UNKNOWN,
    ]


def _varies(ratio: float) -> str:
    """By how much the most is more than the least; from ten times on how many times it is."""
    return f"{text.significant(ratio)} ×" if ratio >= TIMES else text.percent(ratio - 1)


def sparkline(values: Sequence[float | None], least: float, span: float = 0.0) -> str:
    """A mark a value, from ``least`` to the largest, or to ``span`` more where that is larger."""
    top = max([least + span, *(value for value in values if value is not None)])
    return "".join(NOTHING if value is None else MARKS[_height(value - least, top - least)] for value in values)


def _height(above: float, span: float) -> int:
    return min(len(MARKS) - 1, int(above / span * len(MARKS))) if span > 0 else 0
