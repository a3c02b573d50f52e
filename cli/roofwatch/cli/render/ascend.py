"""What is told of Ascend devices alone: the layout tax, and how often measured pipes and shapes differ."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from roofwatch.cli.render import text

Row = Mapping[str, Any]

L2 = " L2"  # beside a roof fraction above 1: part of the bytes did not come from memory
WORTH_A_WORD = 0.005  # of compute time
DIFFER = 0.05  # of the time that both judged


def layout_tax(coverage: Row, room: int) -> list[str]:
    """Relayouts and casts that no model asked for, as sampled, in a line; nothing for other devices."""
    share = coverage["layout_share"]
    if share is None or share < WORTH_A_WORD:
        return []
    took = f"{text.percent(share)} of compute time ({text.duration(coverage['layout_ns'])})"
    return [text.cut(f"layout tax {took}: TransData, Transpose, Cast", room)]


def both_bounds(row: Row) -> str:
    """A verdict in words; where a measured one and the formula's differ, both."""
    if row["formula_bound"] in {None, row["bound"]}:
        return f"{row['bound']} bound"
    return f"{row['bound']} bound by its pipes, {row['formula_bound']} bound by its sizes"


def notes(coverage: Row, rows: Sequence[Row]) -> list[str]:
    """What the mark means, and that there are two verdicts."""
    found = []
    cached = sum(bool(row["l2_assisted"]) for row in rows)
    if cached:
        found.append(f"{L2.strip()} {text.plural(cached, 'row')}: more bytes than memory delivers, part came from L2")
    share = coverage["disagree_share"]
    if share is not None and share >= DIFFER:
        found.append(f"pipes and shapes differ on {text.percent(share)} of the time (JSON: bound, formula_bound)")
    return found
