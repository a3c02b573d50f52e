"""Pieces of work: what one side did, so that the other side's can be laid beside it.

A piece is an op on inputs, with all kernels that it launched (a product with its split-K reduction is one piece); on
Ascend, where kernels tell their own inputs, a kernel's type on its inputs; a collective by its message; copies by where
from and where to. Pure functions.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import NamedTuple

from roofwatch.model.answer_rows import StatSum
from roofwatch.model.comparison_content import COMMUNICATION, COMPUTE, COPY, Content, Key, content_of
from roofwatch.model.kinds import Kind

__all__ = ["COMMUNICATION", "COMPUTE", "COPY", "MODEL_KINDS", "Number", "Piece", "Pieces", "Product", "pieces_of"]

MODEL_KINDS = frozenset({Kind.MATMUL, Kind.GROUPED_MATMUL, Kind.CONV, Kind.ATTENTION})
MOST_LEADS = 0.5  # of a piece's time: where less of it is counted, what is counted is not its work

Number = int | Fraction  # a part of a piece has a part of its calls
Call = tuple[Number, int, int, str | None, str | None]  # calls, FLOPs and bytes of a call, precision, unit
_Part = tuple[int, StatSum, Content]  # time, what it is the sum of


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
        return Piece(ns, calls, roof, counted, *self[4:])


def _times(calls: Number, up: int, down: int) -> Fraction:
    """As a product of fractions, which takes twice as long."""
    return Fraction(calls.numerator * up, calls.denominator * down)


class Product(NamedTuple):
    """What is asked of a product, a convolution or an attention, which its piece tells, too."""

    ns: int
    calls: Number
    flops: int | None  # of a call; None where unknown
    precision: str | None
    weights: frozenset[object]


def products_of(pieces: Iterable[Piece]) -> list[Piece]:
    """Those of ``MODEL_KINDS`` among some pieces."""
    return [p for p in pieces if p.kind in MODEL_KINDS and p.sort == COMPUTE]


@dataclass(frozen=True, slots=True)
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

    def products(self) -> list[Product | Piece]:
        """What is told of those of ``MODEL_KINDS``."""
        found: list[Product | Piece] = []
        for i, (ns, calls, content) in enumerate(zip(self.ns, self.calls, self.contents, strict=True)):
            if content.signature.kind not in MODEL_KINDS:
                continue
            if i in self.several or not calls or content.sort != COMPUTE:
                found += products_of([self[i]])
                continue
            flops = None if content.counted is None else content.counted[0]
            found.append(Product(ns, calls, flops, content.precision, content.weights))
        return found

    def total(self, sort: str | None = None, *, shapeless: bool = False) -> int:
        """The time of all of them, or of those of one sort, or of those of one whose shapes are not known."""
        if sort is None:
            return sum(self.ns)
        timed = zip(self.ns, self.contents, strict=True)
        if shapeless:
            return sum([ns for ns, of in timed if of.sort == sort and of.signature.shapes is None])
        return sum([ns for ns, of in timed if of.sort == sort])

    @property
    def training(self) -> bool:
        """Whether any is of a backward pass or an optimizer."""
        return any(content.training for content in self.contents) or any(p.training for p in self.several.values())


def pieces_of(sums: Iterable[StatSum], *, stepping: bool, phases: bool) -> Pieces:
    """The pieces of a side; those without any time are left out.

    ``stepping``: only what was launched inside steps. ``phases``: an optimizer's op is no other's.
    """
    found, places, parts = Pieces(), dict[Key, int](), dict[int, list[_Part]]()
    firsts: list[StatSum] = []
    for s in sums:
        if not (ns := s.step_ns if stepping else s.total_ns):
            continue
        content = content_of(s, phases=phases)
        place = places.setdefault(content.key, len(firsts))
        if place == len(firsts):
            firsts.append(s)
            found.ns.append(ns)
            found.calls.append(s.step_calls if stepping else s.calls)
            found.contents.append(content)
        else:
            first = found.ns[place], firsts[place], found.contents[place]
            parts.setdefault(place, [first]).append((ns, s, content))
    found.roofs.extend(map(_roof_alone, firsts, found.calls, found.contents))
    for place, of in parts.items():
        piece = found.several[place] = _several(of, stepping=stepping)  # sorts them
        found.ns[place], found.calls[place], found.roofs[place] = piece.ns, int(piece.calls), piece.roof_ns
        found.contents[place] = of[0][2]
    return found


def _roof_alone(s: StatSum, calls: int, content: Content) -> float | None:
    """Roof time of the piece of one sum."""
    roof = s.roof_total_ns
    if roof is None or content.counted is None:
        return None
    return roof * float(calls) / s.calls if s.calls else 0.0


def _alone(ns: int, calls: int, roof: float | None, content: Content) -> Piece:
    """The piece of one sum: what ``_several`` makes of it, without the detours."""
    if content.counted is None:
        return Piece(ns, calls, None, (), *content.alone)
    piece = Piece(ns, calls, roof, ((calls, *content.counted),), *content.alone)
    return piece if calls or content.sort == COMMUNICATION else piece._replace(flops=None, flops_max=None, bytes=None)


def _several(parts: list[_Part], *, stepping: bool) -> Piece:
    parts.sort(key=lambda p: -p[0])
    if len({ns for ns, *_ in parts}) < len(parts):  # an id is a hash, and not for nothing
        parts.sort(key=lambda p: (-p[0], p[1].signature.id))
    lead, ns = parts[0][2], sum(ns for ns, *_ in parts)
    counted = [part for part in parts if part[2].counted is not None]
    covered = sum(ns for ns, *_ in counted) >= MOST_LEADS * ns
    led = [(_calls(s, stepping=stepping), s, content) for _, s, content in (counted if covered else ())]
    calls = _op_calls(led) or max(_calls(s, stepping=stepping) for _, s, _ in parts)
    flops, flops_max, moved = _counts(led, calls, lead)
    return Piece(ns, calls, _roof(led), (), *lead.alone)._replace(
        counted=tuple((n, *content.counted) for n, _, content in led if content.counted is not None),
        flops=flops,
        flops_max=flops_max,
        bytes=moved,
        names=tuple(dict.fromkeys(content.name for *_, content in parts if content.name)),
        kernels=tuple(dict.fromkeys(content.signature.kernel for *_, content in parts)),
        precision=next((c.signature.precision for *_, c in led if c.signature.unit == "matrix"), None),
        training=any(content.training for *_, content in parts),
    )


def _calls(s: StatSum, *, stepping: bool) -> int:
    return s.step_calls if stepping else s.calls


def _op_calls(led: Sequence[_Part]) -> int | None:
    """How often the op was called: kernels of one formula stand for each other, those of several ran together.

    On a CPU wrappers that do no work of their own (conv2d around mkldnn_convolution) are records, too.
    """
    if len(led) == 1:
        return led[0][0]
    by_formula: dict[str | None, int] = {}
    working = [one for one in led if one[1].signature.flops or one[1].signature.bytes]
    for calls, s, _ in working or led:
        by_formula[s.signature.formula] = by_formula.get(s.signature.formula, 0) + calls
    return max(by_formula.values(), default=None)


def _counts(led: Sequence[_Part], calls: int, lead: Content) -> tuple[int | None, int | None, int | None]:
    """FLOPs, of a range also the most, and bytes of one call of the op."""
    if lead.sort == COMMUNICATION:
        return None, None, lead.signature.bytes
    if not led or not calls:
        return None, None, None
    of = [(n, s.signature) for n, s, _ in led]
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
    if not led or any(s.roof_total_ns is None for _, s, _ in led):
        return None
    return math.fsum((s.roof_total_ns or 0.0) * float(n) / s.calls for n, s, _ in led if s.calls)
