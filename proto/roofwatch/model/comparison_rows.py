"""Rows of a comparison: a match with its times by the unit, its ratio, and what of it the hardware explains."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from roofwatch.model.answer import ratio
from roofwatch.model.comparison_match import Match
from roofwatch.model.comparison_pieces import COMMUNICATION, COMPUTE, COPY, Piece
from roofwatch.model.comparison_roofs import Roofs, roofs_of
from roofwatch.model.comparison_sides import Taken, a_unit

PARTS_TOLD = 8  # pieces of a group or kind; the largest say what it is
KERNEL_NAMES = 3

ROW_KEYS = (
    "op", "kind", "shapes", "dtypes", "left_ns", "right_ns", "ratio", "expected_ratio", "software_gap",
    "left_roof_fraction", "right_roof_fraction", "match", "group", "layout_tax", "left_calls", "right_calls",
    "excess_ns", "left_parts", "right_parts",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Row:
    """A match; times in whole nanoseconds a unit, rounded so that all rows and the rest add up to the unit's time."""

    match: Match
    left_ns: int
    right_ns: int
    ratio: float | None
    roofs: Roofs
    left_exact: float
    right_exact: float
    left_calls: float
    right_calls: float

    @property
    def lead(self) -> Piece:
        """The largest piece of both sides."""
        return max((*self.match.left, *self.match.right), key=lambda p: (p.ns, str(p.kind)))

    @property
    def shown(self) -> Piece:
        """Whose shapes are told: the left's, where there is one."""
        return (self.match.left or self.match.right)[0]

    @property
    def sort(self) -> str:
        """Compute, copy or communication."""
        return sort_of(self.match)

    @property
    def tax(self) -> bool:
        """Whether it is layout tax."""
        return self.lead.tax

    @property
    def expected(self) -> float | None:
        """The ratio that the two devices' roofs explain; of kernels that take time on both sides."""
        if self.sort != COMPUTE or self.tax or self.ratio is None:
            return None
        return self.roofs.expected

    @property
    def gap(self) -> float | None:
        """How much the right side's software is behind: ratio ÷ expected ratio."""
        return None if self.ratio is None or self.expected is None else self.ratio / self.expected

    def excess_ns(self, *, right_behind: bool) -> float:
        """What the side that is behind loses here beyond what the hardware explains: also what is alone or unknown."""
        if right_behind:
            return self.right_exact - self.left_exact * (1.0 if self.expected is None else self.expected)
        return self.left_exact - self.right_exact / (1.0 if self.expected is None else self.expected)


@dataclass(frozen=True, slots=True)
class Columns:
    """The two columns: the rows, then what is beside them; each adds up to the time of a unit of its side."""

    rows: list[Row]
    left: Mapping[str, int]  # overlap and its hidden parts (negative), idle by cause
    right: Mapping[str, int]


HIDDEN = ("hidden_communication", "hidden_copies", "overlap")
IDLE = "idle_"


def columns(matches: Sequence[Match], left: Taken, right: Taken, *, alike: bool) -> Columns:
    """Rows with most time first, and what is beside them; ``alike``: the sides do as much work."""
    ordered = sorted(matches, key=lambda m: (-max(_a_unit(m.left, left), _a_unit(m.right, right)), _text(m)))
    ours, beside_left = _column([m.left for m in ordered], ordered, left)
    theirs, beside_right = _column([m.right for m in ordered], ordered, right)
    rows = [_row(m, left, right, a, b, alike=alike) for m, a, b in zip(ordered, ours, theirs, strict=True)]
    return Columns(rows, beside_left, beside_right)


def _column(
    pieces: Sequence[Sequence[Piece]], matches: Sequence[Match], side: Taken
) -> tuple[list[int], dict[str, int]]:
    """One side's times a unit, in the order of the matches, and what is beside them.

    What is hidden of communication follows its rows where the sum is rounded, so that what is exposed is not negative;
    the same with copies.
    """
    hidden = [*side.hidden_ns, side.overlap_ns - sum(side.hidden_ns)]
    chain: list[tuple[int | str, int]] = []
    for sort, name, ns in zip((COMMUNICATION, COPY, COMPUTE), HIDDEN, hidden, strict=True):
        chain += [(i, sum(p.ns for p in pieces[i])) for i, m in enumerate(matches) if sort_of(m) == sort]
        chain.append((name, -ns))
    chain += [(f"{IDLE}{cause}", ns) for cause, ns in side.idle.items()]
    found = dict(zip((key for key, _ in chain), a_unit([ns for _, ns in chain], side.units), strict=True))
    return [found[i] for i in range(len(matches))], {key: ns for key, ns in found.items() if isinstance(key, str)}


def sort_of(match: Match) -> str:
    """Whether its pieces compute, copy or communicate: they all do the same."""
    return (match.left or match.right)[0].sort


def _a_unit(pieces: Sequence[Piece], side: Taken) -> Fraction:
    return sum(p.ns for p in pieces) / side.units


def _text(match: Match) -> str:
    """An order of rows with the same time that does not depend on which side is which."""
    return min(str((p.op, p.work, p.kernels)) for p in (*match.left, *match.right))


def _row(match: Match, left: Taken, right: Taken, left_ns: int, right_ns: int, *, alike: bool) -> Row:
    ours, theirs = _a_unit(match.left, left), _a_unit(match.right, right)
    return Row(
        match,
        left_ns,
        right_ns,
        float(theirs / ours) if ours and theirs else None,
        roofs_of(match, left, right, alike=alike),
        float(ours),
        float(theirs),
        float(sum((p.calls for p in match.left), Fraction(0)) / left.units),
        float(sum((p.calls for p in match.right), Fraction(0)) / right.units),
    )


def as_json(row: Row, *, right_behind: bool) -> dict[str, Any]:
    """The row's keys, ``ROW_KEYS``."""
    match, single = row.match, len(row.match.left) < 2 and len(row.match.right) < 2
    return {
        "op": op_of(match),
        "kind": str(row.lead.kind),
        "shapes": _loaded(row.shown.shapes) if single else None,
        "dtypes": _loaded(row.shown.dtypes) if single else None,
        "left_ns": row.left_ns,
        "right_ns": row.right_ns,
        "ratio": row.ratio,
        "expected_ratio": row.expected,
        "software_gap": row.gap,
        "left_roof_fraction": ratio(row.roofs.own_left, row.left_exact) if row.roofs.own_left is not None else None,
        "right_roof_fraction": ratio(row.roofs.own_right, row.right_exact) if row.roofs.own_right is not None else None,
        "match": match.tier,
        "group": match.name,
        "layout_tax": row.tax,
        "left_calls": row.left_calls,
        "right_calls": row.right_calls,
        "excess_ns": max(0, round(row.excess_ns(right_behind=right_behind))),
        "left_parts": _parts(match.left),
        "right_parts": _parts(match.right),
    }


def op_of(match: Match) -> str | None:
    """The op as recorded where both sides call it the same, else its common name; null where there are several."""
    pieces = (*match.left, *match.right)
    ops = {p.op for p in pieces}
    if len(ops) > 1:
        return None
    names = {p.names for p in pieces if p.names}
    recorded = names.pop() if len(names) == 1 else ()
    return recorded[0] if len(recorded) == 1 and all(p.names for p in pieces) else ops.pop()


def _loaded(text: str | None) -> Any:
    return None if text is None else json.loads(text)


def _parts(pieces: Sequence[Piece]) -> list[dict[str, Any]]:
    """What a side has in the row, most time first; ``share`` is of the side's time in the row."""
    whole = sum(p.ns for p in pieces)
    return [
        {
            "op": p.names[0] if p.names else p.op,
            "kernels": list(p.kernels[:KERNEL_NAMES]),
            "shapes": _loaded(p.shapes),
            "share": ratio(p.ns, whole),
        }
        for p in sorted(pieces, key=lambda p: (-p.ns, str(p.work)))[:PARTS_TOLD]
    ]
