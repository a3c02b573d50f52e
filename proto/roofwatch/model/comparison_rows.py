"""Rows of a comparison: a match with its times by the unit, its ratio, and what of it the hardware explains."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import groupby
from typing import Any, NamedTuple

from roofwatch.model.answer import ratio
from roofwatch.model.comparison_match import Match, weights
from roofwatch.model.comparison_pieces import COMMUNICATION, COMPUTE, COPY, Number, Piece
from roofwatch.model.comparison_roofs import Roofs, roofs_of
from roofwatch.model.comparison_sides import Taken, a_unit

PARTS_TOLD = 8  # pieces of a group or kind; the largest say what it is
KERNEL_NAMES = 3

ROW_KEYS = (
    "op", "kind", "shapes", "dtypes", "left_ns", "right_ns", "ratio", "expected_ratio", "software_gap",
    "left_roof_fraction", "right_roof_fraction", "match", "group", "layout_tax", "left_calls", "right_calls",
    "excess_ns", "left_parts", "right_parts",
)  # fmt: skip


class Row(NamedTuple):
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
    lead: Piece  # the largest of both sides
    sort: str  # compute, copy or communication
    tax: bool  # whether it is layout tax
    expected: float | None  # the ratio that the devices' roofs explain; of kernels that take time on both sides

    @property
    def shown(self) -> Piece:
        """Whose shapes are told: the left's, where there is one."""
        return (self.match.left or self.match.right)[0]

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
    weight = weights((left.units, right.units))
    found = [(m, sum(p.ns for p in m.left), sum(p.ns for p in m.right)) for m in matches]
    ordered = sorted(found, key=lambda one: -max(one[1] * weight[0], one[2] * weight[1]))
    if len(ordered) > 1:
        ordered = _untied(ordered, weight)
    sorts = [sort_of(m) for m, *_ in ordered]
    ours, beside_left = _column([ns for _, ns, _ in ordered], sorts, left)
    theirs, beside_right = _column([ns for *_, ns in ordered], sorts, right)
    rows = [_row(one, left, right, a, b, alike=alike) for one, a, b in zip(ordered, ours, theirs, strict=True)]
    return Columns(rows, beside_left, beside_right)


_Timed = tuple[Match, int, int]  # with both sides' time


def _untied(ordered: Sequence[_Timed], weight: tuple[int, int]) -> list[_Timed]:
    """Matches of one time in an order of their own: to tell it of all of them would take longer than to sort them."""
    found: list[_Timed] = []
    for _, group in groupby(ordered, key=lambda one: max(one[1] * weight[0], one[2] * weight[1])):
        same = list(group)
        found += sorted(same, key=lambda one: _text(one[0])) if len(same) > 1 else same
    return found


def _column(times: Sequence[int], sorts: Sequence[str], side: Taken) -> tuple[list[int], dict[str, int]]:
    """One side's times a unit, in the order of the matches, and what is beside them.

    What is hidden of communication follows its rows where the sum is rounded, so that what is exposed is not negative;
    the same with copies.
    """
    hidden = [*side.hidden_ns, side.overlap_ns - sum(side.hidden_ns)]
    chain: list[tuple[int | str, int]] = []
    for sort, name, ns in zip((COMMUNICATION, COPY, COMPUTE), HIDDEN, hidden, strict=True):
        chain += [(i, time) for i, (time, own) in enumerate(zip(times, sorts, strict=True)) if own == sort]
        chain.append((name, -ns))
    chain += [(f"{IDLE}{cause}", ns) for cause, ns in side.idle.items()]
    found = dict(zip((key for key, _ in chain), a_unit([ns for _, ns in chain], side.units), strict=True))
    return [found[i] for i in range(len(times))], {key: ns for key, ns in found.items() if isinstance(key, str)}


def sort_of(match: Match) -> str:
    """Whether its pieces compute, copy or communicate: they all do the same."""
    return (match.left or match.right)[0].sort


def _text(match: Match) -> str:
    """An order of rows with the same time that does not depend on which side is which."""
    return min(str((p.op, p.work, p.kernels)) for p in (*match.left, *match.right))


def _row(one: _Timed, left: Taken, right: Taken, left_ns: int, right_ns: int, *, alike: bool) -> Row:
    match, ours, theirs = one
    weight, roofs = weights((left.units, right.units)), roofs_of(match, left, right, alike=alike)
    ratio = theirs * weight[1] / (ours * weight[0]) if ours and theirs else None
    lead, sort = max((*match.left, *match.right), key=lambda p: (p.ns, p.kind.value)), sort_of(match)
    return Row(
        match,
        left_ns,
        right_ns,
        ratio,
        roofs,
        _exact(ours, left.units),
        _exact(theirs, right.units),
        _exact(sum(p.calls for p in match.left), left.units),
        _exact(sum(p.calls for p in match.right), right.units),
        lead,
        sort,
        lead.tax,
        None if sort != COMPUTE or lead.tax or ratio is None else roofs.expected,
    )


def _exact(figure: Number, units: Fraction) -> float:
    # Of whole numbers a quotient is rounded as that of their fractions is.
    return figure.numerator * units.denominator / (figure.denominator * units.numerator)


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
        for p in sorted(pieces, key=lambda p: (-p.ns, p.text))[:PARTS_TOLD]
    ]
