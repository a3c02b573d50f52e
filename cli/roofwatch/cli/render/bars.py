"""A timeline as one bar: each cell a part of the span, busy time in blocks, idle time in the letters of its causes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from roofwatch.model.timeline import BUSY_PARTS, PARTS

# No colour: a pipe, a log and NO_COLOR show the same bar.
MARKS: Mapping[str, str] = {
    "compute": "█", "exposed_copy": "▓", "exposed_communication": "▒", "input": "i", "copy": "c", "sync": "s",
    "communication": "m", "launch_bound": "l", "launch_gap": "g", "host": "h", "unknown": "?",
}  # fmt: skip


def shares_of(row: Mapping[str, Any]) -> dict[str, float]:
    """The parts of a timeline row: busy first, then the causes by their share."""
    found = {part: row[f"{part}_share"] or 0.0 for part in PARTS}
    idle = sorted((part for part in PARTS if part not in BUSY_PARTS), key=lambda part: -found[part])
    return {part: found[part] for part in (*BUSY_PARTS, *idle)}


def bar(row: Mapping[str, Any], width: int) -> str:
    """The parts in exactly ``width`` cells, "" where there was no time; cells go to the largest remainders."""
    shares = shares_of(row)
    whole = sum(shares.values())
    if whole <= 0:
        return ""
    exact = {part: share / whole * width for part, share in shares.items()}
    cells = {part: int(value) for part, value in exact.items()}
    rest = sorted(exact, key=lambda part: cells[part] - exact[part])
    for part in rest[: width - sum(cells.values())]:
        cells[part] += 1
    return "".join(MARKS[part] * count for part, count in cells.items())


def words(part: str) -> str:
    """A part's name for people."""
    return part.replace("_", " ")
