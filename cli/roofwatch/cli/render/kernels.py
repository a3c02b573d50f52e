"""``top`` and ``analyze``: what the time went to, and how much of it could be won back."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from roofwatch.cli.render import ascend, graphs, measured, text
from roofwatch.cli.render.commands import shell
from roofwatch.cli.render.table import Column, table
from roofwatch.model.diagnosis_mistakes import BACKLOG
from roofwatch.model.record import Bound
from roofwatch.model.roofline import exceeded

SMALL_CAUSE = 0.005  # of the span: smaller causes are added up as "other"

Answer = Mapping[str, Any]
Row = Mapping[str, Any]

LARGE_SHARE = 0.05  # of device time: communication and copies that large are told beside what was classified
LONG_IDLE = 0.2  # of the span: from there on it is worth asking what the device waits for
COST_LEAST = 0.5  # of the windows with a known cost: with fewer it is that of some jobs only
COST_WHOLE = 0.95  # the rest are first windows, which stand for no known time
NO_REST = 0.0005  # of device time: rounding, no further rows
OUTSIDE = {"communication": "communication", "copy": "copies"}  # bound → word; neither is compute
UNNAMED = "unnamed device"  # the trace does not tell its model
OVER = "!"  # beside a roof fraction that cannot be
PARTLY = "*"  # beside a roof fraction of a part of the time
PARTLY_BELOW = 0.995  # of a row's time
WHY_PARTLY = "roof and winnable of the part whose roof is known"
WHY_OVER = "data that stays in a cache, or inputs counted whole"
CPU_FLOOR = 28  # columns of a kernel's name with its shapes: "aten::addmm [2048×512·512×20…"

DROPPED = {
    "unfinished": "unfinished (launched, without a record of its end)",
    "changed_name": "with a changed name (too long, or no text)",
}

COLUMNS = (
    Column("#", right=True),
    Column("kernel", floor=16, apart=True),
    Column("op", floor=12, drop=1),
    Column("kind", floor=8, drop=3),
    Column("phase", drop=5),
    Column("shapes", floor=12, drop=4),
    Column("calls", right=True, drop=7),
    Column("mean", right=True, drop=6),
    Column("time", right=True),
    Column("share", right=True),
    Column("bound"),  # a word is never cut: where "communication" needs the room, "evidence" goes
    Column("evidence", drop=2),
    Column("roof", right=True),
    Column("winnable", right=True),
)


def report(answer: Answer, title: Sequence[str], room: int, then: str = "", shorter: str = "") -> str:
    """Head, table and footnotes; ``title`` is what the command knows beside the answer (node, time range, …).

    ``then`` is the command that says why the device waited, told where it waited long; ``shorter`` the same with words
    in place of long names.
    """
    lines = head(answer, title, room)
    lines += next_command(answer, (then, shorter), room)
    lines += [*graphs.lines(answer.get("graphs", ()), answer["coverage"]["device_time_ns"], room), ""]
    if answer["rows"]:
        lines += kernel_table(answer["rows"], room)
    lines += footnotes(answer, room)
    return "\n".join(lines).rstrip("\n") + "\n"


def head(answer: Answer, title: Sequence[str], room: int) -> list[str]:
    """What the answer is about, how much of it was judged, and where the devices waited."""
    coverage = answer["coverage"]
    parts = [*title, text.plural(coverage["windows"], "window"), _classified(coverage), *_backlog(coverage)]
    parts += _outside(answer["rows"])
    parts += [*_cost(answer.get("cost")), *mfu(coverage)]
    lines = text.joined([text.clean(part) for part in parts if part], room)
    together = _together(answer.get("device_models", ()), room, apart="by" in answer.get("query", ()))
    busy, lacking = text.joined(_busy(answer), room), measured.lines(answer, room)
    return [*lines, *busy, *ascend.layout_tax(coverage, room), *together, *lacking]


def _together(models: Sequence[str], room: int, *, apart: bool) -> list[str]:
    """Which device models there are, where there are several: added up above, and in rows unless these are ``apart``.

    The head's shares are of all of them in any case.
    """
    if len(models) < 2:
        return []
    named = [text.clean(model or "unnamed device") for model in models[:4]]
    more = [f"and {len(models) - 4} more"] if len(models) > 4 else []
    how = "device models, each with its own rows" if apart else "device models added up"
    return text.joined([f"{len(models)} {how} (--device takes one)", *named, *more], room)


def _cost(cost: Row | None) -> list[str]:
    """What windows cost the jobs, and of how many it is known; nothing where it is known of less than half of them."""
    if not cost or text.cost(cost) == text.UNKNOWN or cost["windows"] < COST_LEAST * cost["of_windows"]:
        return []
    some = cost["windows"] < COST_WHOLE * cost["of_windows"]
    known, of = text.count(cost["windows"]), text.plural(cost["of_windows"], "window")
    told = f"{known} of {of}" if some else text.plural(cost["windows"], "window")
    return [f"cost {text.cost(cost)} (of {told})"]


def devices(models: Sequence[str]) -> str:
    """Device models with how many there are of each: "8 × NVIDIA H100 SXM, 1 × AMD EPYC 9654"."""
    return ", ".join(f"{models.count(model)} × {model or UNNAMED}" for model in dict.fromkeys(models))


def mfu(coverage: Row) -> list[str]:
    """Model FLOPs utilisation: "MFU 38 %"; nothing where it is unknown."""
    told = text.mfu(coverage.get("mfu"), coverage.get("mfu_known_share"))
    return [] if told == text.UNKNOWN else [f"MFU {told}"]


def _classified(coverage: Row) -> str:
    share, named = coverage["classified_share"], coverage["named_share"]
    if share is None:
        return "no compute time to classify"
    by_name = f" (+ {text.percent_fine(named)} by name)" if named else ""
    return f"{text.percent_fine(share)} of compute time classified{by_name}"


def _backlog(coverage: Row) -> list[str]:
    """Where much was launched before the window, so that nobody knows by which op."""
    share = coverage.get("backlog_share") or 0.0
    return [f"{text.percent(share)} launched before the window"] if share > BACKLOG else []


def _outside(rows: Sequence[Row]) -> list[str]:
    """What is no compute time, where it is much: as shares of device time, of the rows that the answer has."""
    least = "" if _rest(rows) < NO_REST else "≥ "
    sums = {bound: sum(row["share"] or 0.0 for row in rows if row["bound"] == bound) for bound in OUTSIDE}
    large = [f"{word} {least}{_whole(sums[bound])}" for bound, word in OUTSIDE.items() if sums[bound] >= LARGE_SHARE]
    return [f"{' · '.join(large)} % of device time"] if large else []


def _rest(rows: Sequence[Row]) -> float:
    """The share of device time of rows that the answer leaves out."""
    return 1.0 - sum(row["share"] or 0.0 for row in rows)


def next_command(answer: Answer, commands: Sequence[str], room: int) -> list[str]:
    """The next command, the first of these that a terminal can show, whole: where it is too wide in several lines."""
    waits = answer.get("timeline") or answer.get("summary") or {}
    busy, idle = (waits.get(f"est_{key}", waits.get(key, 0)) for key in ("busy_ns", "idle_ns"))
    if idle <= LONG_IDLE * (busy + idle):
        return []
    told = next((command for command in commands if command and command == text.clean(command)), None)
    if told is None:
        return []
    line = f"→ run: {told}"
    return [line] if text.width(line) <= room else ["→ run:", *shell(shlex.split(told), room)]


def _busy(answer: Answer) -> list[str]:
    """Busy and idle as shares of the span; the causes follow in per cent without repeating the sign."""
    waits = answer.get("timeline") or answer.get("summary") or {}
    busy, idle = (waits.get(f"est_{key}", waits.get(key, 0)) for key in ("busy_ns", "idle_ns"))
    span = busy + idle
    if not span:
        return []
    parts = [f"busy {_whole(busy / span)} %   idle {_whole(idle / span)} %"]
    shares = {cause: c.get("est_ns", c["total_ns"]) / span for cause, c in waits["causes"].items()}
    large = {cause: share for cause, share in shares.items() if share >= SMALL_CAUSE}
    other = sum(shares.values()) - sum(large.values())
    shown = [(cause.replace("_", " "), share) for cause, share in sorted(large.items(), key=lambda item: -item[1])]
    if other >= SMALL_CAUSE:
        shown.append(("other", other))
    words = [f"{cause} {_whole(share)}" for cause, share in shown]
    return [f"{parts[0]}: {words[0]}", *words[1:]] if words else parts


def _whole(share: float) -> str:
    """Per cent without a decimal, so that the parts of a sum read alike."""
    return "<1" if 0 < share < SMALL_CAUSE else f"{share * 100:.0f}"


def kernel_table(rows: Sequence[Row], room: int) -> list[str]:
    """The rows by rank."""
    return table(*named_once(COLUMNS, [_cells(rank, row) for rank, row in enumerate(rows, 1)], rows), room)


def named_once(
    columns: Sequence[Column], cells: Sequence[list[str]], rows: Sequence[Row]
) -> tuple[list[Column], list[list[str]]]:
    """The columns that say something. On a CPU the kernel is the op: once, with the shapes that tell its rows apart."""
    if not all(row["op"] in {None, row["kernel"]} for row in rows):
        return _telling(columns, cells)
    at = [column.header for column in columns].index("kernel")
    named = [[*line[:at], _with_shapes(line[at], row), *line[at + 1 :]] for line, row in zip(cells, rows, strict=True)]
    floor = CPU_FLOOR if any(row["shapes"] for row in rows) else columns[at].floor
    kept = [i for i, column in enumerate(columns) if column.header not in {"op", "shapes"}]
    wide = [replace(columns[i], floor=floor) if i == at else columns[i] for i in kept]
    return _telling(wide, [[line[i] for i in kept] for line in named])


def _telling(columns: Sequence[Column], cells: Sequence[list[str]]) -> tuple[list[Column], list[list[str]]]:
    """Without the columns that are there to tell rows apart and are empty."""
    kept = [
        i
        for i, column in enumerate(columns)
        if column.header not in {"phase", "shapes"} or any(line[i] != text.UNKNOWN for line in cells)
    ]
    return [columns[i] for i in kept], [[line[i] for i in kept] for line in cells]


def _with_shapes(name: str, row: Row) -> str:
    shapes = text.shapes(row["shapes"])
    return name if shapes == text.UNKNOWN else f"{name} [{shapes}]"


def _cells(rank: int, row: Row) -> list[str]:
    return [
        str(rank),
        text.kernel(row["kernel"]),
        text.UNKNOWN if row["op"] is None else text.clean(row["op"]),
        row["kind"],
        text.UNKNOWN if row["phase"] == "none" else row["phase"],
        text.shapes(row["shapes"]),
        text.count(row["calls"]),
        text.duration(row["mean_ns"]),
        text.duration(row["est_ns"]),
        text.percent(row["share"]),
        row["bound"],
        row["evidence"],
        roof(row),
        text.duration(winnable_ns(row)),
    ]


def roof(row: Row) -> str:
    """The roof fraction; one that cannot be is kept and marked: "294 %!". Host work (a view) has no roof to reach."""
    if row["bound"] == Bound.HOST:
        return text.UNKNOWN
    if row["l2_assisted"]:
        return text.percent(row["roof_fraction"]) + ascend.L2
    return text.percent(row["roof_fraction"]) + (OVER if exceeded(row["roof_fraction"]) else PARTLY * partly(row))


def partly(row: Row) -> bool:
    """Whether a row's roof is that of a part of its windows; a store of an earlier version does not tell."""
    share = row.get("roofed_share")
    return row["roof_fraction"] is not None and share is not None and share < PARTLY_BELOW


def winnable_ns(row: Row) -> float | None:
    """Time above the roof: time × (1 − roof fraction), None where the roof is unknown or wrong for this row.

    Where only of a part of the time a roof is known, it is of that part.
    """
    if row["roof_fraction"] is None or row["bound"] == Bound.HOST or exceeded(row["roof_fraction"]):
        return None
    roofed = row["est_ns"] * (row["roofed_share"] if partly(row) else 1.0)
    return float(roofed * max(0.0, 1.0 - row["roof_fraction"]))


def footnotes(answer: Answer, room: int) -> list[str]:
    """What a mark means, and what the table leaves out: further rows, and what was dropped on the way."""
    notes = []
    rows, dropped = answer["rows"], answer["coverage"]["dropped"]
    over = sum(exceeded(row["roof_fraction"]) and not row["l2_assisted"] for row in rows)
    if over:
        notes.append(f"{OVER} {text.plural(over, 'row')} above the roof: {WHY_OVER}")
    mixed = sum(partly(row) and row["bound"] != Bound.HOST and not exceeded(row["roof_fraction"]) for row in rows)
    if mixed:
        notes.append(f"{PARTLY} {text.plural(mixed, 'row')}: {WHY_PARTLY}")
    notes += ascend.notes(answer["coverage"], rows)
    rest = _rest(rows)
    if rows and rest >= NO_REST:
        notes.append(f"further rows: {text.percent_fine(rest)} of device time (--top 0 shows all)")
    if dropped:
        notes.append(
            "dropped: "
            + ", ".join(f"{text.count(n)} {DROPPED.get(reason, text.clean(reason))}" for reason, n in dropped.items())
        )
    return ["", *(text.cut(note, room) for note in notes)] if notes else []
