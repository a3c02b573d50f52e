"""``roofline``: a plot and a table a device model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from roofwatch.cli.render import kernels, plot, text
from roofwatch.cli.render.table import Column, table

COLUMNS = (
    Column("", right=True),
    Column("kernel", floor=16, apart=True),
    Column("op", floor=12, drop=1),
    Column("phase", drop=4),
    Column("shapes", floor=12, drop=3),
    Column("FLOP/B", right=True),
    Column("ridge", right=True),
    Column("reached", right=True),
    Column("roof", right=True),
    Column("bound"),
    Column("evidence", drop=2),
    Column("time", right=True),
)


def report(answer: kernels.Answer, title: Sequence[str], room: int) -> str:
    """Head, then a plot and a table for each device model, footnotes."""
    lines = kernels.head(answer, title, room)
    devices = list(dict.fromkeys(row["device"] for row in answer["rows"]))
    for device in devices:
        rows = [row for row in answer["rows"] if row["device"] == device]
        lines += ["", text.cut(text.clean(device), room), *_one(rows, room)]
    lines += kernels.footnotes(answer, room)
    return "\n".join(lines) + "\n"


def _one(rows: Sequence[Mapping[str, Any]], room: int) -> list[str]:
    shown = plot.points(rows)
    placed = {point.mark: point for point in shown}
    marks = [plot.MARKS[i] if i < len(plot.MARKS) else "" for i in range(len(rows))]
    reached = {mark: text.rate(point.reached, "FLOP/s") for mark, point in placed.items()}
    cells = [
        [
            mark if mark in placed else text.UNKNOWN,
            text.kernel(row["kernel"]),
            text.clean(row["op"] or text.UNKNOWN),
            text.UNKNOWN if row["phase"] == "none" else row["phase"],
            text.shapes(row["shapes"]),
            text.plain(row["intensity"]),
            text.plain(row["ridge"]),
            reached.get(mark, text.UNKNOWN),
            kernels.roof(row),
            row["bound"],
            row["evidence"],
            text.duration(row["est_ns"]),
        ]
        for mark, row in zip(marks, rows, strict=True)
    ]
    return [*plot.plot(shown, room), "", *table(*kernels.named_once(COLUMNS, cells, rows), room)]
