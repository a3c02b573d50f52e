"""Pieces of work: what one side did, so that the other side's can be laid beside it.

A piece is an op on inputs, with all kernels that it launched (a product with its split-K reduction is one piece); on
Ascend, where kernels tell their own inputs, a kernel's type on its inputs; a collective by its message; copies by where
from and where to. Pure functions.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from itertools import compress
from typing import NamedTuple

from roofwatch.model.comparison_content import (
    COMMUNICATION,
    COMPUTE,
    COPY,
    MODEL_KINDS,
    Content,
    Key,
    contents_of,
)
from roofwatch.model.comparison_products import Number, Products
from roofwatch.model.comparison_sums import KernelSums
from roofwatch.model.interned import Interned
from roofwatch.model.kinds import Kind
from roofwatch.model.record import Vendor

__all__ = ["COMMUNICATION", "COMPUTE", "COPY", "MODEL_KINDS", "Number", "Piece", "Pieces", "pieces_of"]

MOST_LEADS = 0.5  # of a piece's time: where less of it is counted, what is counted is not its work

Call = tuple[Number, int, int, str | None, str | None]  # calls, FLOPs and bytes of a call, precision, unit
_Part = tuple[int, int, float | None, Content]  # time, calls, their roof time


class Piece(NamedTuple):
    """One side's time on one piece of work. ``ns``, ``roof_ns`` and ``calls`` are sums over all of the side's units.

    ``work`` is what makes two pieces the same; ``flops`` and ``bytes`` are of a call, None where unknown;
    ``counted`` holds what a roof is computed from. From ``flops`` on they are as ``Content.alone`` has them. No
    dataclass: of a fleet there are thousands in an answer.
    """

    ns: int
    calls: Number
    roof_ns: float | None
    counted: tuple[Call, ...]
    flops: int | None
    flops_max: int | None
    bytes: int | None
    key: Key  # of the next five
    sort: str  # compute | copy | communication
    op: str | None
    tax: bool
    optimizer: bool
    work: tuple[object, ...]
    text: str  # of the work: an order that does not depend on which side is which
    kind: Kind
    shapes: str | None
    dtypes: str | None
    names: tuple[str, ...]  # of the op, as recorded
    kernels: tuple[str, ...]  # most time first
    precision: str | None
    training: bool
    extents: frozenset[tuple[int, int]]  # elements and innermost dimension of each operand
    most: int  # elements of the largest of them
    output: int | None  # elements of a product's result
    first: tuple[int, ...] | None  # extents of the first operand, where it is known what they are
    weights: frozenset[object]  # what its weight's sizes may be
    of_op: Interned | None  # what pieces of one op have in common, and…
    of_family: Interned | None  # …of ops that are one where sizes do not matter

    def part(self, share: Fraction) -> Piece:
        """So much of it; with ``rest`` of the same share it adds up to the whole."""
        up, down = share.numerator, share.denominator
        return self._scaled(self.ns * up // down, up, down)

    def rest(self, share: Fraction) -> Piece:
        """What is left of it without ``part``."""
        up, down = share.numerator, share.denominator
        return self._scaled(self.ns - self.ns * up // down, down - up, down)

    def _scaled(self, ns: int, up: int, down: int) -> Piece:
        calls = _times(self.calls, up, down)
        roof = None if self.roof_ns is None else self.roof_ns * (up / down)
        counted = tuple([(calls if c[0] == self.calls else _times(c[0], up, down), *c[1:]) for c in self.counted])
        return Piece._make((ns, calls, roof, counted, *self[4:]))


def _times(calls: Number, up: int, down: int) -> Fraction:
    """As a product of fractions, which takes twice as long."""
    return Fraction(calls.numerator * up, calls.denominator * down)


@dataclass(frozen=True)
class Pieces:
    """The pieces of a side. Of a fleet there are thousands, so they are columns: each is made where it is looked at.

    ``several`` has, by place, those of several sums, which are made beforehand.
    """

    ns: list[int] = field(default_factory=list)
    calls: list[int] = field(default_factory=list)
    roofs: list[float | None] = field(default_factory=list)
    contents: list[Content] = field(default_factory=list)  # of several sums, that with most time
    several: dict[int, Piece] = field(default_factory=dict)

    def __len__(self) -> int:
        """How many there are."""
        return len(self.ns)

    def __iter__(self) -> Iterator[Piece]:
        """Each of them."""
        return (self[i] for i in range(len(self)))

    def __getitem__(self, place: int) -> Piece:
        """That piece."""
        found = self.several.get(place)
        if found is not None:
            return found
        return _alone(self.ns[place], self.calls[place], self.roofs[place], self.contents[place])

    def rest(self, place: int, share: Fraction) -> Piece:
        """What ``Piece.rest`` gives of that piece, without making all of it."""
        found = self.several.get(place)
        if found is not None:
            return found.rest(share)
        up, down, ns, roof = share.numerator, share.denominator, self.ns[place], self.roofs[place]
        left = down - up
        roof = None if roof is None else roof * (left / down)
        return _alone(ns - ns * up // down, Fraction(self.calls[place] * left, down), roof, self.contents[place])

    def products(self) -> Products:
        """What is told of those of ``MODEL_KINDS``."""
        places = [place for place, of in enumerate(self.contents) if of.modelled]
        ns, calls = list(map(self.ns.__getitem__, places)), list(map(self.calls.__getitem__, places))
        contents = list(map(self.contents.__getitem__, places))
        flops = [None if of.counted is None else of.counted[0] for of in contents]
        precisions, weights = [of.precision for of in contents], [of.weights for of in contents]
        if self.several or 0 in calls:  # what is of several sums, or was never called: there the piece tells
            for i, place in enumerate(places):
                if not calls[i] or place in self.several:
                    piece = self[place]
                    flops[i], precisions[i], weights[i] = piece.flops, piece.precision, piece.weights
        return Products(ns, calls, flops, precisions, weights)

    def total(self, sort: str | None = None) -> int:
        """The time of all of them, or of those of one sort."""
        return self._totals[sort]

    @cached_property
    def _totals(self) -> Mapping[str | None, int]:
        sorts, found = [of.sort for of in self.contents], dict[str | None, int]()
        for sort in (COPY, COMMUNICATION):
            found[sort] = sum(compress(self.ns, map(sort.__eq__, sorts))) if sort in sorts else 0
        whole = sum(self.ns)
        return {None: whole, COMPUTE: whole - sum(found.values()), **found}

    def shapeless(self) -> int:
        """The time of those that compute and whose shapes are not known."""
        return sum(compress(self.ns, [of.shapeless for of in self.contents]))

    @cached_property
    def training(self) -> bool:
        """Whether any is of a backward pass or an optimizer."""
        return any(of.training for of in self.contents) or any(p.training for p in self.several.values())


def pieces_of(sums: KernelSums, vendor: Vendor | None, *, stepping: bool, phases: bool) -> Pieces:
    """The pieces of a side; those without any time are left out.

    ``stepping``: only what was launched inside steps. ``phases``: an optimizer's op is no other's.
    """
    contents = contents_of(sums.signatures, sums.bounds, vendor, phases=phases)
    times, counts = (sums.step_ns, sums.step_calls) if stepping else (sums.total_ns, sums.calls)
    roofs = [
        None if roof is None or of.counted is None else roof * float(part) / calls if calls else 0.0
        for roof, part, calls, of in zip(sums.roof_total_ns, counts, sums.calls, contents, strict=True)
    ]
    parts = list(zip(times, counts, roofs, contents, strict=True))
    return _pieces([part for part in parts if part[0]] if 0 in times else parts)


def _pieces(parts: list[_Part]) -> Pieces:
    """What belongs to one piece becomes one, where the first part of it was."""
    if not parts:
        return Pieces()
    same = [content.of_piece for *_, content in parts]
    # Where the first part of each piece is: backwards, for what is written last stays.
    firsts = dict(zip(reversed(same), reversed(range(len(same))), strict=True))
    several: dict[int, list[_Part]] = {}  # by that place
    for i, first in enumerate(map(firsts.__getitem__, same) if len(firsts) < len(same) else ()):
        if first != i:
            several.setdefault(first, [parts[first]]).append(parts[i])
    pieces = {first: _several(of) for first, of in several.items()}  # sorts them
    for first, piece in pieces.items():
        parts[first] = piece.ns, int(piece.calls), piece.roof_ns, several[first][0][3]
    kept = sorted(firsts.values())
    ns, calls, roofs, contents = map(list, zip(*map(parts.__getitem__, kept), strict=True))
    return Pieces(ns, calls, roofs, contents, {bisect_left(kept, first): piece for first, piece in pieces.items()})


def _alone(ns: int, calls: Number, roof: float | None, content: Content) -> Piece:
    """The piece of one sum: what ``_several`` makes of it, without the detours."""
    if content.counted is None:
        return Piece._make((ns, calls, None, (), *content.alone))
    piece = Piece._make((ns, calls, roof, ((calls, *content.counted),), *content.alone))
    return piece if calls or content.sort == COMMUNICATION else piece._replace(flops=None, flops_max=None, bytes=None)


def _several(parts: list[_Part]) -> Piece:
    parts.sort(key=lambda p: -p[0])
    if len({ns for ns, *_ in parts}) < len(parts):  # an id is a hash, and not for nothing
        parts.sort(key=lambda p: (-p[0], p[3].signature.id))
    lead, ns = parts[0][3], sum(ns for ns, *_ in parts)
    counted = [part for part in parts if part[3].counted is not None]
    led = counted if sum(ns for ns, *_ in counted) >= MOST_LEADS * ns else []
    calls = _op_calls(led) or max(calls for _, calls, *_ in parts)
    flops, flops_max, moved = _counts(led, calls, lead)
    return Piece(ns, calls, _roof(led), (), *lead.alone)._replace(
        counted=tuple((n, *content.counted) for _, n, _, content in led if content.counted is not None),
        flops=flops,
        flops_max=flops_max,
        bytes=moved,
        names=tuple(dict.fromkeys(content.name for *_, content in parts if content.name)),
        kernels=tuple(dict.fromkeys(content.signature.kernel for *_, content in parts)),
        precision=next((c.signature.precision for *_, c in led if c.signature.unit == "matrix"), None),
        training=any(content.training for *_, content in parts),
    )


def _op_calls(led: Sequence[_Part]) -> int | None:
    """How often the op was called: kernels of one formula stand for each other, those of several ran together.

    On a CPU wrappers that do no work of their own (conv2d around mkldnn_convolution) are records, too.
    """
    if len(led) == 1:
        return led[0][1]
    by_formula: dict[str | None, int] = {}
    working = [one for one in led if one[3].signature.flops or one[3].signature.bytes]
    for _, calls, _, content in working or led:
        formula = content.signature.formula
        by_formula[formula] = by_formula.get(formula, 0) + calls
    return max(by_formula.values(), default=None)


def _counts(led: Sequence[_Part], calls: int, lead: Content) -> tuple[int | None, int | None, int | None]:
    """FLOPs, of a range also the most, and bytes of one call of the op."""
    if lead.sort == COMMUNICATION:
        return None, None, lead.signature.bytes
    if not led or not calls:
        return None, None, None
    of = [(n, content.signature) for _, n, _, content in led]
    if len(of) == 1 and of[0][0] == calls:
        one = of[0][1]
        return one.flops or 0, one.flops_max, one.bytes or 0
    flops = round(Fraction(sum(n * (s.flops or 0) for n, s in of), calls))
    moved = round(Fraction(sum(n * (s.bytes or 0) for n, s in of), calls))
    if all(s.flops_max is None for _, s in of):
        return flops, None, moved
    return flops, round(Fraction(sum(n * (s.flops_max or s.flops or 0) for n, s in of), calls)), moved


def _roof(led: Sequence[_Part]) -> float | None:
    """Roof time of the piece; None where that of any kernel that does its work is unknown."""
    roofs = [roof_ns for *_, roof_ns, _ in led if roof_ns is not None]
    return math.fsum(roofs) if led and len(roofs) == len(led) else None
