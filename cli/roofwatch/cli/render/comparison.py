"""``compare``: the two times, what explains their difference, the rows that would close it, then all rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from roofwatch.cli.render import text
from roofwatch.cli.render.comparison_warnings import INDENT, warned, warning_lines
from roofwatch.cli.render.diagnosis import wrapped
from roofwatch.cli.render.table import Column, table
from roofwatch.model.comparison_rows import PARTS_TOLD

Answer = Mapping[str, Any]
Row = Mapping[str, Any]

WIDE = 100_000  # columns: sentences that a page breaks
SMALL = 0.001  # of both times: a part with less needs no line
EQUAL = 0.005  # of the left's time: as much apart is as long
NAME = 32  # columns of a row's name in a sentence
NAMED = 3  # ops of one side of a group

COLUMNS = (
    Column("#", right=True),
    Column("op", floor=12, apart=True),
    Column("shapes", floor=12, apart=True),
    Column("left", right=True),
    Column("right", right=True),
    Column("ratio", right=True),
    Column("exp.", right=True),
    Column("gap", right=True),
    Column("roofs %", right=True, drop=2),
    Column("match", drop=3),
)
PART_COLUMNS = (
    Column("part", floor=20),
    Column("left", right=True),
    Column("right", right=True),
    Column("difference", right=True),
)
# The parts of a time as they are called here.
PARTS = {
    "kernels": "kernels of known roofs",
    "unknown_roof": "kernels, a roof unknown",
    "unmatched": "kernels without partner",
    "layout": "layout tax",
    "communication": "communication, exposed",
    "copies": "copies, exposed",
    "overlap": "overlap of kernels",
}
IDLE = "idle_"
MATCHES = {"same": "same", "size": "size", "group": "group", "op": "op", "kind": "kind", None: "alone"}


@dataclass(frozen=True, slots=True)
class Head:
    """What was asked for: of both sides, and of each."""

    title: Sequence[str]
    left: str
    right: str


def report(answer: Answer, head: Head, room: int) -> str:
    """The whole report in ``room`` columns."""
    lines = text.joined([text.clean(part) for part in head.title if part], room)
    summary = answer["summary"]
    if summary is None:
        return "\n".join(lines) + "\n" if lines else ""
    for name, said in (("left", head.left), ("right", head.right)):
        lines += _side(name, said, summary[name], summary, room)
    lines += ["", *_times(summary, room), *_hardware(summary, answer["warnings"], room), *_explained(summary, room)]
    lines += ["", *_parts(summary, room)]
    lines += ["", *closing] if (closing := _closing(answer, room)) else []
    lines += ["", *_rows(answer, room)]
    warned = [line for warning in answer["warnings"] for line in warning_lines(warning, room)]
    lines += ["", "Beware", *warned] if warned else []
    return "\n".join(lines) + "\n"


def _side(name: str, said: str, side: Row, summary: Row, room: int) -> list[str]:
    parts = [said, *side["models"], side["device"], text.plural(side["windows"], "window")]
    if summary["per"] == "step":
        parts.append(text.plural(side["steps"], "step"))
    label = f"{name:<7}"
    first, *rest = text.joined([text.clean(part) for part in parts if part], room - len(label))
    return [f"{label}{first}", *(f"{' ' * len(label)}{line}" for line in rest)]


def unit(summary: Row) -> str:
    """The unit of all times in words: "a step", "1,000 tokens"."""
    return {"step": "a step", "call": "a call", "token": "1,000 tokens", "window": "a window"}[summary["per"]]


def _times(summary: Row, room: int) -> list[str]:
    left, right = summary["left"]["time_ns"], summary["right"]["time_ns"]
    verb = "take" if summary["per"] == "token" else "takes"
    said = f"{unit(summary).capitalize()} {verb} {text.duration(left)} on the left, {text.duration(right)} on the right"
    if summary["ratio"] is None or abs(right - left) <= EQUAL * left:
        said += ": as long." if left else "."
    else:
        said += (
            f": {_factor(summary['ratio'])}, {text.duration(abs(right - left))} {'more' if right > left else 'less'}."
        )
    if summary["normalised"] is not None:
        said += f" The right's times are multiplied by {text.significant(summary['normalised'])}: the left's FLOPs."
    return wrapped(said, room)


def _hardware(summary: Row, warnings: Sequence[Row], room: int) -> list[str]:
    """What the hardware would make of the same kernels, and what the software makes of it; or why nobody can say."""
    kernels = summary["kernels"]
    if kernels["withheld"]:
        return wrapped(_withheld(kernels, warnings), room)
    gap = kernels["software_gap"]
    if abs(gap - 1) <= EQUAL:
        verdict = "both reach as much of their roofs"
    elif gap > 1:
        verdict = f"the right's software is behind by {_factor(gap)}"
    else:
        verdict = f"the left's software is behind by {_factor(1 / gap)}"
    least = _judged_share(kernels)
    of = "" if least >= 0.995 else f" (of the {text.percent(least)} of kernel time where both roofs are known)"
    said = (
        f"By the hardware alone the right's kernels would take {_factor(kernels['expected_ratio'])} the left's time; "
        f"they take {_factor(kernels['ratio'])}: {verdict}{of}."
    )
    return wrapped(said, room)


def _judged_share(kernels: Row) -> float:
    return min(kernels["left_share"] or 0.0, kernels["right_share"] or 0.0)


def _withheld(kernels: Row, warnings: Sequence[Row]) -> str:
    """Why no verdict on a side's software is given."""
    reasons = [warned(w) for name in kernels["withheld"] for w in warnings if w["warning"] == name]
    if "unknown" in kernels["withheld"]:
        reasons.append("of no work that both sides do are both roofs known")
    if "share" in kernels["withheld"]:
        share = text.percent(_judged_share(kernels))
        reasons.append(f"work that both sides do, with both roofs known, is only {share} of kernel time")
    return f"Whether the hardware or the software explains it cannot be said: {'; '.join(reasons)}."


def _explained(summary: Row, room: int) -> list[str]:
    """The difference in words: how much is whose."""
    parts = {part["part"]: part["difference_ns"] for part in summary["parts"]}
    kernels = summary["parts"][0]
    known = summary["kernels"]["expected_ratio"] is not None
    told = [
        ("the hardware", kernels["hardware_ns"] if known else 0),
        ("the kernels", kernels["software_ns"] if known else kernels["difference_ns"]),
        ("kernels of unknown roof", parts["unknown_roof"]),
        ("kernels without partner", parts["unmatched"] + parts["overlap"]),
        ("the layout tax", parts["layout"]),
        ("communication", parts["communication"]),
        ("copies", parts["copies"]),
        ("idle time", sum(ns for name, ns in parts.items() if name.startswith(IDLE))),
    ]
    least = SMALL * max(summary["left"]["time_ns"], summary["right"]["time_ns"])
    words = [f"{name} {_signed(ns)}" for name, ns in sorted(told, key=lambda one: -abs(one[1])) if abs(ns) > least]
    if not words:
        return []
    return wrapped(f"The difference, {_signed(summary['difference_ns'])}, adds up from: {', '.join(words)}.", room)


def said(answer: Answer) -> list[str]:
    """The verdict in sentences: both times, the hardware's part, what the difference adds up from, and where it is."""
    summary = answer["summary"]
    hardware = _hardware(summary, answer["warnings"], WIDE)
    return [*_times(summary, WIDE), *hardware, *_explained(summary, WIDE), *_closing(answer, WIDE)]


def part_rows(summary: Row) -> list[list[str]]:
    """The parts of both times as cells of ``PART_COLUMNS``; they add up to the last row."""
    least = SMALL * max(summary["left"]["time_ns"], summary["right"]["time_ns"])
    cells = []
    for part in summary["parts"]:
        if max(abs(part["left_ns"]), abs(part["right_ns"])) <= least:
            continue
        cells.append(_part_cells(_part_name(part["part"]), part))
        if part.get("hardware_ns"):
            cells.append([f"{INDENT}by the hardware", "", "", _signed(part["hardware_ns"])])
            cells.append([f"{INDENT}by the kernels", "", "", _signed(part["software_ns"])])
    whole = {
        "left_ns": summary["left"]["time_ns"],
        "right_ns": summary["right"]["time_ns"],
        "difference_ns": summary["difference_ns"],
    }
    cells.append(_part_cells(unit(summary), whole))
    return cells


def _parts(summary: Row, room: int) -> list[str]:
    return [f" {line}" for line in table(PART_COLUMNS, part_rows(summary), room - 1)]


def _part_cells(name: str, part: Row) -> list[str]:
    times = [text.duration(part[key]) if part[key] else "–" for key in ("left_ns", "right_ns")]
    return [name, *times, _signed(part["difference_ns"])]


def _part_name(part: str) -> str:
    if part.startswith(IDLE):
        return f"idle: {part.removeprefix(IDLE).replace('_', ' ')}"
    return PARTS[part]


def _closing(answer: Answer, room: int) -> list[str]:
    """Where the side that is behind loses most of what the hardware does not explain."""
    summary = answer["summary"]
    places, side = summary["closing"], summary["behind"]
    if not places or summary["lost_ns"] <= EQUAL * summary[side]["time_ns"]:
        return []
    known = not summary["kernels"]["withheld"]
    told = ", ".join(f"{_place(it, answer['rows'])} {text.duration(it['excess_ns'])}" for it in places)
    won = "" if summary["won_ns"] <= EQUAL * summary[side]["time_ns"] else (
        f" (and makes up {text.duration(summary['won_ns'])} elsewhere)"
    )  # fmt: skip
    lost = text.duration(summary["lost_ns"])
    said = (
        f"The {side} loses {lost} beyond what the hardware explains{won}, most in: {told}."
        if known
        else f"The {side} takes {lost} longer in some places{won}, most in: {told}."
    )
    return wrapped(text.clean(said), room)


def _place(place: Row, shown: Sequence[Row]) -> str:
    """Where time is lost: a row by its number and name, or a part of the time."""
    if place["row"] is None:
        name = place["part"]
        if name.startswith(IDLE):
            return f"idle time ({name.removeprefix(IDLE).replace('_', ' ')})"
        return {"communication": "exposed communication", "copies": "exposed copies"}.get(name, "less overlap")
    if place["row"] > len(shown):
        return f"row {place['row']} ({text.cut_middle(_name(place), NAME)}; --limit 0 shows it)"
    return f"row {place['row']} ({text.cut_middle(_name(shown[place['row'] - 1]), NAME)})"


def _rows(answer: Answer, room: int) -> list[str]:
    summary, rows = answer["summary"], answer["rows"]
    lines = table(COLUMNS, row_cells(rows), room)
    further = summary["further"]
    if further["rows"]:
        times = f"left {text.duration(further['left_ns'])}, right {text.duration(further['right_ns'])}"
        lines += ["", f"{text.plural(further['rows'], 'further row')}: {times} (--limit 0 shows all)"]
    return lines


def row_cells(rows: Sequence[Row]) -> list[list[str]]:
    """The rows as cells of ``COLUMNS``."""
    return [_cells(number, row) for number, row in enumerate(rows, 1)]


def _cells(number: int, row: Row) -> list[str]:
    return [
        str(number),
        _name(row),
        _what(row),
        text.duration(row["left_ns"]) if row["left_parts"] else "",
        text.duration(row["right_ns"]) if row["right_parts"] else "",
        *(_ratio(row[key]) for key in ("ratio", "expected_ratio", "software_gap")),
        _roofs(row),
        MATCHES[row["match"]],
    ]


def _roofs(row: Row) -> str:
    """Which part of their roofs both sides reach, in per cent: "62/36"."""
    parts = [row["left_roof_fraction"], row["right_roof_fraction"]]
    if parts == [None, None]:
        return text.UNKNOWN
    return "/".join(text.UNKNOWN if part is None else f"{part * 100:.0f}" for part in parts)


def _ratio(value: float | None) -> str:
    return "<0.01" if value is not None and 0 < value < 0.005 else text.plain(value)


def _name(row: Row) -> str:
    """What a row is, in few words."""
    if row["group"] is not None:
        return str(row["group"])
    if row["match"] == "kind":
        return f"other {row['kind'].replace('_', ' ')}"
    return str(row["op"] or "").removeprefix("aten::") or _ops(_all_parts(row)) or text.kernel(row["kernel"])


def _what(row: Row) -> str:
    """On what: the shapes, or how many ops or sizes each side has in the row."""
    if row["shapes"] is not None:
        return text.shapes(row["shapes"])
    counts = [len(row[name]) for name in ("left_parts", "right_parts")]
    if max(counts) < 2:
        return text.UNKNOWN
    sides = [f"{count}{'+' if count == PARTS_TOLD else ''}" for count in counts if count]
    return f"{' | '.join(sides)} {'sizes' if row['op'] is not None else 'ops'}"


def _all_parts(row: Row) -> list[Row]:
    return [*row.get("left_parts", ()), *row.get("right_parts", ())]


def _ops(parts: Sequence[Row]) -> str:
    """The ops of one side, most time first, or its kernels."""
    names = dict.fromkeys(str(p["op"] or text.kernel(p["kernels"][0])).removeprefix("aten::") for p in parts)
    shown = list(names)[:NAMED]
    return "+".join([*shown, *([text.ELLIPSIS] if len(names) > NAMED else [])])


def _factor(value: float) -> str:
    return f"{text.significant(value)} ×"


def _signed(ns: float) -> str:
    return f"+{text.duration(ns)}" if ns > 0 else text.duration(ns)
