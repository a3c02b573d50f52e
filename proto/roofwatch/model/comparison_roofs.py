"""What the hardware explains of a ratio: the roof time of the same work on both sides. Pure functions.

Matched op by op, the work is one, and the roofs are those of both sides' records. Where the sides do it differently
(groups, kinds), each side's way is put under both devices' roofs, and the geometric mean of the two ratios counts (as
Fisher's index does with two baskets): what a side does beyond the work is its software's, not its hardware's. What is
only left over of an op or kind is no such work where the sides do not do as much.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from roofwatch.model.comparison_match import GROUP, OPTIMIZER, SAME, SIZE, Match
from roofwatch.model.comparison_pieces import COMPUTE, MODEL_KINDS, Piece
from roofwatch.model.comparison_products import Quotient, as_much, by_unit, flops_of
from roofwatch.model.comparison_sides import Taken
from roofwatch.model.record import Peaks
from roofwatch.model.roofline import roof_time_ns

KNOWN = 0.95  # of a side's time: with less of it counted the work is not known
# Reduced fp32 of the matrix unit: what one vendor calls the other's by.
_TWINS = {"tf32": "hf32", "hf32": "tf32"}


class Roofs(NamedTuple):
    """Roof times a unit. ``left`` and ``right`` are of the same work; ``own`` of what each side did, None unknown."""

    left: float | None
    right: float | None
    own_left: float | None
    own_right: float | None

    @property
    def expected(self) -> float | None:
        """The right's roof time ÷ the left's on that work."""
        return self.right / self.left if self.left and self.right else None


def roofs_of(match: Match, left: Taken, right: Taken, units: tuple[float, float], *, alike: bool) -> Roofs:
    """The roofs of a match; ``units`` are those of both sides, ``alike``: the sides do as much work."""
    own_left, own_right = _own(match.left, units[0]), _own(match.right, units[1])
    if not match.left or not match.right:
        return Roofs(None, None, own_left, own_right)
    if not _is_one_work(match, left, right, alike=alike):
        return Roofs(None, None, own_left, own_right)
    if match.tier in {SAME, SIZE}:
        return roofs_of_pair(own_left, own_right)
    sides = [(match.left, left), (match.right, right)]
    ways = [(_under(pieces, side, left.side.peaks), _under(pieces, side, right.side.peaks)) for pieces, side in sides]
    told = [(a, b) for a, b in ways if a and b]
    if not told:
        return Roofs(None, None, own_left, own_right)
    a, b = (math.prod(values) ** (1 / len(told)) for values in zip(*told, strict=True))
    return Roofs(a, b, own_left, own_right)


def roofs_of_pair(own_left: float | None, own_right: float | None) -> Roofs:
    """The same of what is one work, from both sides' roof times a unit."""
    if own_left is None or own_right is None:
        return Roofs(None, None, own_left, own_right)
    return Roofs._make((own_left, own_right, own_left, own_right))


def _is_one_work(match: Match, left: Taken, right: Taken, *, alike: bool) -> bool:
    """Whether a match is as much work on both sides; of what found each other by sizes only larger products are not."""
    if match.tier == SAME or (match.tier == GROUP and match.name != OPTIMIZER):
        return True
    if match.tier == SIZE and alike:
        return True
    if match.tier != SIZE and not alike:
        return False
    return as_much(by_unit(_flops(match.left), left.units), by_unit(_flops(match.right), right.units))


def _flops(pieces: Sequence[Piece]) -> Quotient | None:
    some = [(p.ns, p.calls, p.flops) for p in pieces if p.kind in MODEL_KINDS and p.sort == COMPUTE]
    return flops_of(*zip(*some, strict=True)) if some else None


def _own(pieces: Sequence[Piece], units: float) -> float | None:
    """Roof time a unit as the records have it; None where that of a piece is unknown."""
    roofs = [p.roof_ns for p in pieces if p.roof_ns is not None]
    if not roofs or len(roofs) < len(pieces):
        return None
    return (roofs[0] if len(roofs) == 1 else math.fsum(roofs)) / units


def _under(pieces: Sequence[Piece], side: Taken, peaks: Peaks) -> float | None:
    """Roof time a unit of the pieces' work on a device; None where too much of it is not counted, or a peak unknown."""
    counted = [p for p in pieces if p.counted]
    if sum(p.ns for p in counted) < KNOWN * sum(p.ns for p in pieces):
        return None
    total = 0.0
    for piece in counted:
        for calls, flops, moved, precision, unit in piece.counted:
            times = _times(flops, moved, peaks, precision, unit)
            if times is None:
                return None
            total += float(calls) * max(times)
    return total / float(side.units)


def _times(flops: int, moved: int, peaks: Peaks, precision: str | None, unit: str | None) -> tuple[float, float] | None:
    found = roof_time_ns(flops, moved, peaks, precision, unit)
    if found is None and precision in _TWINS:
        return roof_time_ns(flops, moved, peaks, _TWINS[precision], unit)
    return found
