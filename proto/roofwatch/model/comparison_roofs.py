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
from roofwatch.model.comparison_pieces import Piece, products_of
from roofwatch.model.comparison_sides import Taken
from roofwatch.model.comparison_work import as_much, flops_of
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


def roofs_of(match: Match, left: Taken, right: Taken, *, alike: bool) -> Roofs:
    """The roofs of a match; ``alike``: the sides do as much work."""
    own_left, own_right = _own(match.left, left), _own(match.right, right)
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
    known = own_left is not None and own_right is not None
    return Roofs(own_left if known else None, own_right if known else None, own_left, own_right)


def _is_one_work(match: Match, left: Taken, right: Taken, *, alike: bool) -> bool:
    """Whether a match is as much work on both sides; of what found each other by sizes only larger products are not."""
    if match.tier == SAME or (match.tier == GROUP and match.name != OPTIMIZER):
        return True
    if match.tier == SIZE and alike:
        return True
    if match.tier != SIZE and not alike:
        return False
    return as_much(flops_of(products_of(match.left), left.units), flops_of(products_of(match.right), right.units))


def _own(pieces: Sequence[Piece], side: Taken) -> float | None:
    """Roof time a unit as the records have it; None where that of a piece is unknown."""
    roofs = [p.roof_ns for p in pieces if p.roof_ns is not None]
    if not roofs or len(roofs) < len(pieces):
        return None
    return math.fsum(roofs) / float(side.units)


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
