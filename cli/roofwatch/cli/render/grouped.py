"""``top --by`` and ``analyze --by``: what the time went to by kernel, op, kind, module, node or device."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from roofwatch.cli.render import course, kernels, text
from roofwatch.cli.render.table import Column, table
from roofwatch.model.roofline import exceeded

Answer = Mapping[str, Any]
Row = Mapping[str, Any]

WHOLE = 0.995  # of the time: from there on a bound is told without its share
DIGITS = 6  # of a process's id or a uuid, beside a device that nothing else tells from its like


def report(answer: Answer, title: Sequence[str], room: int, then: str = "", shorter: str = "") -> str:
    """Head, table and a word on what is left out; with stretches of time their course, a line a group.

    ``then`` and ``shorter`` as in ``kernels.report``.
    """
    by, every = answer["query"]["by"], answer["query"].get("every_ns")
    groups = answer["groups"] if every else answer["rows"]
    # To the head a group is as many rows as it has bounds.
    parts = [{"share": (row["share"] or 0.0) * of, "bound": b} for row in groups for b, of in row["bounds"].items()]
    lines = kernels.head({**answer, "rows": parts}, title, room)
    lines += [*kernels.next_command(answer, (then, shorter), room), ""]
    names = _names(groups, by)
    several = len({row["device"] for row in groups}) > 1
    if groups and every:
        lines += course.lines(answer, names, by, room, several=several)
    elif groups:
        told = enumerate(zip(groups, names, strict=True), 1)
        cells = [_cells(rank, row, name, several=several) for rank, (row, name) in told]
        lines += table(_columns(by, several=several), cells, room)
    rest = 1.0 - sum(row["share"] or 0.0 for row in groups)
    if groups and rest >= kernels.NO_REST:
        lines += ["", f"further {by}s: {text.percent_fine(rest)} of device time (--top 0 shows all)"]
    return "\n".join(lines).rstrip("\n") + "\n"


def _columns(by: str, *, several: bool) -> list[Column]:
    return [
        Column("#", right=True),
        Column(by, floor=14, apart=True),
        *([Column("on", floor=8, apart=True)] if several else []),
        Column("calls", right=True, drop=5),
        Column("p50", right=True, drop=3),
        Column("p95", right=True, drop=4),
        Column("p99", right=True, drop=1),
        Column("time", right=True),
        Column("share", right=True),
        Column("bound"),
        Column("roof", right=True),
        Column("winnable", right=True, drop=2),
    ]


def _cells(rank: int, row: Row, name: str, *, several: bool) -> list[str]:
    return [
        str(rank),
        name,
        *([text.clean(row["device"]) or kernels.UNNAMED] if several else []),
        text.count(row["calls"]),
        *(text.duration(row[f"{p}_ns"]) for p in ("p50", "p95", "p99")),
        text.duration(row["est_ns"]),
        text.percent(row["share"]),
        _bound(row),
        roof(row),
        text.duration(row["winnable_ns"]),
    ]


def _bound(row: Row) -> str:
    """What bounds most of it, with its share where that is not all: "memory 83 %"."""
    if row["bound"] is None:
        return text.UNKNOWN
    share = row["bounds"][row["bound"]]
    return str(row["bound"]) if share >= WHOLE else f"{row['bound']} {text.percent(share)}"


def roof(row: Row) -> str:
    """The roof fraction of what has a roof; one that cannot be is kept and marked."""
    return text.percent(row["roof_fraction"]) + (kernels.OVER if exceeded(row["roof_fraction"]) else "")


def _names(rows: Sequence[Row], by: str) -> list[str]:
    """Of devices that are called alike (numbered by their process), the end of the uuid tells which it is."""
    found = [_name(row, by) for row in rows]
    if by != "device":
        return found
    alike = {name for name, count in Counter(found).items() if count > 1}
    return [
        f"{name}:{text.clean(row['uuid'][-DIGITS:])}" if name in alike and row["uuid"] else name
        for name, row in zip(found, rows, strict=True)
    ]


def _name(row: Row, by: str) -> str:
    """What a group is called; a device by its node, its number, and its process where only that tells it apart."""
    if by != "device":
        told = row[by]
        return text.UNKNOWN if told is None else text.kernel(told) if by == "kernel" else text.clean(told)
    number = [] if row["index"] is None else [str(row["index"])]
    process = [row["process"][:DIGITS]] if row["process"] else []
    node = [text.clean(row["node"])] if row["node"] else []  # a file does not tell it
    return ":".join([*node, *number, *process]) or text.clean(row["device"]) or kernels.UNNAMED
