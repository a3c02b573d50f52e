"""FLOPs of products, convolutions and attention: how much work there is. Pure functions."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import NamedTuple

Number = int | Fraction  # a part of a piece has a part of its calls
Quotient = tuple[int, int]  # of whole numbers, not reduced: for thousands of rows that takes longer than all else

AS_MUCH = 1.1  # times as many FLOPs as on the other side are as much work: formulas, padding and fusions differ
KNOWN = 0.9  # of the model kernels' time: with fewer FLOPs known nothing is said about how much work there is
LARGE = 1 << 4096  # a denominator


class Products(NamedTuple):
    """What is asked of products, convolutions and attention, as columns."""

    ns: Sequence[int]
    calls: Sequence[Number]
    flops: Sequence[int | None]  # of a call; None where unknown
    precisions: Sequence[str | None]
    weights: Sequence[frozenset[object]]


def flops_of(ns: Sequence[int], calls: Sequence[Number], flops: Sequence[int | None]) -> Quotient | None:
    """FLOPs of products; None where there are none, or they are not known of nearly all of the time.

    ``flops`` are of a call.
    """
    if None in flops:
        known_ns = sum([own for own, count in zip(ns, flops, strict=True) if count is not None])
        if known_ns < KNOWN * sum(ns):
            return None
    up, down = 0, 1
    for n, count in zip(calls, flops, strict=True):
        if not count:
            continue
        if isinstance(n, int):
            up += n * count * down
            continue
        of = n.denominator
        up, down = up * of + n.numerator * count * down, down * of
        if down > LARGE:
            up, down = Fraction(up, down).as_integer_ratio()
    return (up, down) if up else None


def by_unit(flops: Quotient | None, units: Fraction) -> Quotient | None:
    """FLOPs a unit."""
    return None if flops is None else (flops[0] * units.denominator, flops[1] * units.numerator)


def as_much(left: Quotient | None, right: Quotient | None) -> bool:
    """Whether two counts of FLOPs are as much work; nothing says no where one is unknown."""
    if left is None or right is None:
        return True
    ours, theirs = left[0] * right[1], right[0] * left[1]
    less, more = (ours, theirs) if ours <= theirs else (theirs, ours)
    up, down = AS_MUCH.as_integer_ratio()
    return more * down <= less * up
