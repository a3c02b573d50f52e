"""``timeline``: where the time went, as a bar and a table, and whose time it was."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from roofwatch.cli.render import gaps, kernels, moments, text
from roofwatch.cli.render.bars import MARKS, bar, shares_of, words
from roofwatch.cli.render.table import Column, table
from roofwatch.model.timeline import BUSY_PARTS

Row = Mapping[str, Any]

PARTS = (
    Column(""),
    Column("where the time went", floor=12),
    Column("time", right=True),
    Column("share", right=True),
    Column("count", right=True, drop=1),
    Column("longest", right=True),
)
SMALL_BAR = 30
EXAMPLE_INDENT = 5  # as in ``diagnose``, so that the same gap reads alike in both
PLACES = (
    Column("node", floor=8, drop=2),
    Column("start"),
    Column("pid", right=True),
    Column("model", floor=8, drop=3),
    Column("device", floor=12, drop=1),
    Column("windows", right=True, drop=4),
    Column("busy", right=True),
    Column("timeline"),
    Column("waits most for", floor=16),
)


def report(answer: Mapping[str, Any], title: Sequence[str], room: int, now_ns: int) -> str:
    """Head, the bar of all, its parts, the longest stretch of each cause; then one line a row, if several."""
    whole = answer["summary"]
    lines = text.joined([text.clean(part) for part in [*title, *_head(answer)] if part], room)
    if whole["span_ns"]:
        lines += ["", bar(whole, room), "", *parts_table(whole, room), *_longest(whole, room)]
    if len(answer["rows"]) > 1:
        lines += ["", *_places(answer["rows"], room, now_ns)]
    return "\n".join(lines) + "\n"


def _head(answer: Mapping[str, Any]) -> list[str]:
    coverage, whole = answer["coverage"], answer["summary"]
    if not whole["span_ns"]:
        return [text.plural(coverage["windows"], "window")]
    shares = shares_of(whole)
    busy = sum(shares[part] for part in BUSY_PARTS)
    parts = [text.plural(coverage["windows"], "window"), f"busy {text.percent(busy)}", f"idle {text.percent(1 - busy)}"]
    return [*parts, *kernels.mfu(coverage)]


def parts_table(row: Row, room: int) -> list[str]:
    """The parts that took any time, busy ones first, each with its mark in the bar."""
    cells = []
    for part, share in shares_of(row).items():
        if not row[f"{part}_ns"] and part != "compute":
            continue
        cause = row["causes"].get(part) if part not in BUSY_PARTS else None
        cells.append(
            [
                MARKS[part],
                words(part),
                text.duration(round(share * row["est_span_ns"])),
                text.percent(share),
                text.count(cause["count"]) if cause else "",
                text.duration(cause["longest_ns"]) if cause else "",
            ]
        )
    return table(PARTS, cells, room)


def _longest(row: Row, room: int) -> list[str]:
    """What was seen in the longest stretch of each cause."""
    told = [(cause, found["example"]) for cause, found in row["causes"].items() if found["example"]]
    if not told:
        return []
    lines = ["", "the longest of each"]
    for cause, example in told:
        first, *rest = gaps.told(example, room - EXAMPLE_INDENT)
        lines += [
            f"{MARKS[cause]}{'':<{EXAMPLE_INDENT - 1}}{first}",
            *(f"{'':<{EXAMPLE_INDENT}}{line}" for line in rest),
        ]
    return lines


def _places(rows: Sequence[Row], room: int, now_ns: int) -> list[str]:
    """One line a row, without the columns that say nothing or the same in all of them."""
    starts = moments.shown([row["start_unix_ns"] for row in rows], now_ns)
    cells = [_place(row, start) for row, start in zip(rows, starts, strict=True)]
    kept = [
        i
        for i, column in enumerate(PLACES)
        if column.header in {"busy", "timeline", "waits most for"} or len({line[i] for line in cells}) > 1
    ]
    return table([PLACES[i] for i in kept], [[line[i] for i in kept] for line in cells], room)


def _place(row: Row, start: str) -> list[str]:
    shares = shares_of(row)
    waits = {part: share for part, share in shares.items() if part != "compute"}
    most = max(waits, key=lambda part: waits[part])
    index = "" if row["index"] is None else f" {row['index']}"
    return [
        text.clean(row["node"] or text.UNKNOWN),
        start,
        text.UNKNOWN if row["pid"] is None else str(row["pid"]),
        text.clean(row["model"] or text.UNKNOWN),
        text.clean((row["device"] or "unnamed device") + index),
        text.count(row["windows"]),
        text.percent(sum(shares[part] for part in BUSY_PARTS)) if row["span_ns"] else text.UNKNOWN,
        bar(row, SMALL_BAR),
        f"{words(most)} {text.percent(waits[most])}" if waits[most] > 0 else text.UNKNOWN,
    ]
