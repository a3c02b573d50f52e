"""Rows of a comparison: a match with its times by the unit, its ratio, and what of it the hardware explains."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import groupby
from typing import Any, NamedTuple

from roofwatch.model.answer import ratio
from roofwatch.model.comparison_match import SAME, Match, Matches, weights
from roofwatch.model.comparison_pieces import COMMUNICATION, COMPUTE, COPY, Piece
from roofwatch.model.comparison_roofs import Roofs, roofs_of, roofs_of_pair
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

    place: int  # of the match: which of ``matches.pairs``, or after those which of the others
    matches: Matches
    tier: str | None
    sort: str  # compute, copy or communication
    tax: bool  # whether it is layout tax
    roofs: Roofs
    ratio: float | None
    left_exact: float
    right_exact: float
    expected: float | None  # the ratio that the devices' roofs explain; of kernels that take time on both sides
    left_ns: int
    right_ns: int

    @property
    def match(self) -> Match:
        """Its pieces."""
        return self.matches[self.place]

    @property
    def gap(self) -> float | None:
        """How much the right side's software is behind: ratio ÷ expected ratio."""
        return None if self.ratio is None or self.expected is None else self.ratio / self.expected

    def excess_ns(self, *, right_behind: bool) -> float:
        """What the side that is behind loses here beyond what the hardware explains: also what is alone or unknown."""
        expected = 1.0 if self.expected is None else self.expected
        return (
            self.right_exact - self.left_exact * expected
            if right_behind
            else (self.left_exact - self.right_exact / expected)
        )


@dataclass(frozen=True, slots=True)
class Columns:
    """The two columns: the rows, then what is beside them; each adds up to the time of a unit of its side."""

    rows: list[Row]
    sorts: Mapping[str, list[Row]]  # the same by sort
    left: Mapping[str, int]  # overlap and its hidden parts (negative), idle by cause
    right: Mapping[str, int]
    rows_ns: tuple[int, int]  # the sums of both sides' rows
    times: tuple[int, int]  # of a unit of both sides


HIDDEN = ("hidden_communication", "hidden_copies", "overlap")
IDLE = "idle_"


def columns(matches: Matches, left: Taken, right: Taken, *, alike: bool) -> Columns:
    """Rows with most time first, and what is beside them; ``alike``: the sides do as much work."""
    times = _times(matches)
    weight = weights((left.units, right.units))
    order = _order(matches, [max(a * weight[0], b * weight[1]) for a, b in times])
    units = float(left.units), float(right.units)
    told = _of_pairs(matches, left, right, units)
    told += [_of_match(m, left, right, units, alike=alike) for m in matches.others]
    sorts = [told[place][1] for place in order]
    places: dict[str, list[int]] = {COMMUNICATION: [], COPY: [], COMPUTE: []}
    for i, sort in enumerate(sorts):
        places[sort].append(i)
    ours, beside_left = _column([times[place][0] for place in order], places, left)
    theirs, beside_right = _column([times[place][1] for place in order], places, right)
    (up, down), (up_too, down_too) = ((of.denominator, of.numerator) for of in (left.units, right.units))
    rows = []
    for place, left_ns, right_ns in zip(order, ours, theirs, strict=True):
        (a, b), (tier, sort, tax, roofs) = times[place], told[place]
        # Of whole numbers a quotient is rounded as that of their fractions is.
        ratio = b * weight[1] / (a * weight[0]) if a and b else None
        expected = None if sort != COMPUTE or tax or ratio is None else roofs.expected
        exact = a * up / down, b * up_too / down_too
        rows.append(Row._make((place, matches, tier, sort, tax, roofs, ratio, *exact, expected, left_ns, right_ns)))
    by_sort = {sort: [rows[i] for i in of] for sort, of in places.items()}
    both = sum(ours), sum(theirs)
    whole = both[0] + sum(beside_left.values()), both[1] + sum(beside_right.values())
    return Columns(rows, by_sort, beside_left, beside_right, both, whole)


def _times(matches: Matches) -> list[tuple[int, int]]:
    """Both sides' time of each match."""
    left, right = matches.left.ns, matches.right.ns
    found = [(_share(left[i], a), _share(right[j], b)) for i, j, a, b in matches.pairs]
    return found + [(sum([p.ns for p in m.left]), sum([p.ns for p in m.right])) for m in matches.others]


def _share(ns: int, share: Fraction | None) -> int:
    return ns if share is None else ns * share.numerator // share.denominator


def _order(matches: Matches, times: Sequence[int]) -> list[int]:
    """The places by time, most first. Of one time they have an order of their own, which takes longer to tell."""
    ordered = sorted(range(len(times)), key=lambda place: -times[place])
    found: list[int] = []
    for _, group in groupby(ordered, key=times.__getitem__):
        same = list(group)
        found += sorted(same, key=lambda place: _text(matches[place])) if len(same) > 1 else same
    return found


_Told = tuple[str | None, str, bool, Roofs]  # tier, sort, layout tax, roofs


def _of_pairs(matches: Matches, left: Taken, right: Taken, units: tuple[float, float]) -> list[_Told]:
    """What is told of pairs, as ``_of_match`` does."""
    contents, ours, theirs = left.pieces.contents, left.pieces.roofs, right.pieces.roofs
    found: list[_Told] = []
    for i, j, a, b in matches.pairs:
        roofs = roofs_of_pair(_roof(ours[i], a, units[0]), _roof(theirs[j], b, units[1]))
        found.append((SAME, contents[i].sort, contents[i].key[2], roofs))
    return found


def _roof(ns: float | None, share: Fraction | None, units: float) -> float | None:
    """Roof time a unit of so much of a piece."""
    if ns is None:
        return None
    return ns / units if share is None else ns * (share.numerator / share.denominator) / units


def _of_match(match: Match, left: Taken, right: Taken, units: tuple[float, float], *, alike: bool) -> _Told:
    roofs = roofs_of(match, left, right, units, alike=alike)
    some = match.left + match.right
    tax = some[0].tax if len(some) == 1 or len({p.tax for p in some}) == 1 else lead_of(match).tax
    return match.tier, some[0].sort, tax, roofs


def lead_of(match: Match) -> Piece:
    """The largest piece of both sides."""
    return max((*match.left, *match.right), key=lambda p: (p.ns, p.kind.value))


def _column(times: Sequence[int], places: Mapping[str, Sequence[int]], side: Taken) -> tuple[list[int], dict[str, int]]:
    """One side's times a unit, in the order of the matches, and what is beside them; ``places`` are those of a sort.

    What is hidden of communication follows its rows where the sum is rounded, so that what is exposed is not negative;
    the same with copies.
    """
    hidden = [*side.hidden_ns, side.overlap_ns - sum(side.hidden_ns)]
    keys, chain = list[int | str](), list[int]()
    for of, name, ns in zip(places.values(), HIDDEN, hidden, strict=True):
        keys += [*of, name]
        chain += [*map(times.__getitem__, of), -ns]
    keys += [f"{IDLE}{cause}" for cause in side.idle]
    chain += side.idle.values()
    found = dict(zip(keys, a_unit(chain, side.units), strict=True))
    return list(map(found.pop, range(len(times)))), {str(key): ns for key, ns in found.items()}


def _text(match: Match) -> str:
    """An order of rows with the same time that does not depend on which side is which."""
    return min(str((p.op, p.work, p.kernels)) for p in (*match.left, *match.right))


def as_json(row: Row, units: tuple[Fraction, Fraction], *, right_behind: bool) -> dict[str, Any]:
    """The row's keys, ``ROW_KEYS``; ``units`` are those of both sides."""
    match = row.match
    single, lead = len(match.left) < 2 and len(match.right) < 2, lead_of(match)
    shown = (match.left or match.right)[0]  # the left's shapes, where there is one
    left_calls, right_calls = (float(sum(p.calls for p in of) / by) for of, by in zip(match[1:3], units, strict=True))
    return {
        "op": op_of(match),
        "kind": str(lead.kind),
        "shapes": _loaded(shown.shapes) if single else None,
        "dtypes": _loaded(shown.dtypes) if single else None,
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
        "left_calls": left_calls,
        "right_calls": right_calls,
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
