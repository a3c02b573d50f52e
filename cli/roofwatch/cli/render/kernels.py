"""``top`` and ``analyze``: what the time went to, and how much of it could be won back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from roofwatch.cli.render import text
from roofwatch.cli.render.table import Column, table

SMALL_CAUSE = 0.005  # of the span: smaller causes are added up as "other"

Answer = Mapping[str, Any]
Row = Mapping[str, Any]

COLUMNS = (
    Column("#", right=True),
    Column("kernel", floor=16),
    Column("op", floor=12, drop=1),
    Column("kind", floor=8, drop=2),
    Column("calls", right=True, drop=3),
    Column("mean", right=True, drop=3),
    Column("time", right=True),
    Column("share", right=True),
    Column("bound", floor=7),
    Column("evidence", floor=8),
    Column("roof", right=True),
    Column("winnable", right=True),
)


def report(answer: Answer, title: Sequence[str], room: int) -> str:
    """Head, table and footnotes; ``title`` is what the command knows beside the answer (node, time range, …)."""
    lines = [*head(answer, title, room), ""]
    if answer["rows"]:
        lines += kernel_table(answer["rows"], room)
    lines += footnotes(answer, room)
    return "\n".join(lines).rstrip("\n") + "\n"


def head(answer: Answer, title: Sequence[str], room: int) -> list[str]:
    """What the answer is about, how much of it was judged, and where the devices waited."""
    coverage = answer["coverage"]
    parts = [*title, text.plural(coverage["windows"], "window"), _classified(coverage)]
    cost = (answer.get("cost") or {}).get("share")
    if cost is not None:
        parts.append(f"cost {text.percent_fine(cost)}")
    lines = text.joined([text.clean(part) for part in parts if part], room)
    return lines + text.joined(_busy(answer), room)


def devices(models: Sequence[str]) -> str:
    """Device models with how many there are of each: "8 × NVIDIA H100 SXM, 1 × AMD EPYC 9654"."""
    return ", ".join(f"{models.count(model)} × {model or 'unnamed device'}" for model in dict.fromkeys(models))


def _classified(coverage: Row) -> str:
    share, named = coverage["classified_share"], coverage["named_share"]
    if share is None:
        return "no device time to classify"
    by_name = f" (+ {text.percent_fine(named)} by name)" if named else ""
    return f"{text.percent_fine(share)} of device time classified{by_name}"


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
    """The rows by rank. On a CPU the kernel is the op, and then the op is not said twice."""
    columns = list(COLUMNS)
    cells = [_cells(rank, row) for rank, row in enumerate(rows, 1)]
    if all(row["op"] in {None, row["kernel"]} for row in rows):
        del columns[2]
        for line in cells:
            del line[2]
    return table(columns, cells, room)


def _cells(rank: int, row: Row) -> list[str]:
    return [
        str(rank),
        text.kernel(row["kernel"]),
        text.UNKNOWN if row["op"] is None else text.clean(row["op"]),
        row["kind"],
        text.count(row["calls"]),
        text.duration(row["mean_ns"]),
        text.duration(row["est_ns"]),
        text.percent(row["share"]),
        row["bound"],
        row["evidence"],
        text.percent(row["roof_fraction"]),
        text.duration(winnable_ns(row)),
    ]


def winnable_ns(row: Row) -> float | None:
    """Time above the roof: time × (1 − roof fraction), None where the roof is unknown."""
    if row["roof_fraction"] is None:
        return None
    return float(row["est_ns"] * max(0.0, 1.0 - row["roof_fraction"]))


def footnotes(answer: Answer, room: int) -> list[str]:
    """What the table leaves out: further rows, and what was dropped on the way."""
    notes = []
    rows, dropped = answer["rows"], answer["coverage"]["dropped"]
    rest = 1.0 - sum(row["share"] or 0.0 for row in rows)
    if rows and rest >= 0.0005:
        notes.append(f"further rows: {text.percent_fine(rest)} of device time (--top 0 shows all)")
    if dropped:
        notes.append("dropped: " + ", ".join(f"{text.count(n)} {text.clean(reason)}" for reason, n in dropped.items()))
    return ["", *(text.cut(note, room) for note in notes)] if notes else []
