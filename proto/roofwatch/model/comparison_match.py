"""Which piece of the left side is which of the right: in tiers, the surest first. Pure functions.

1. ``same``: op, shapes and dtypes (without shapes the op's same kernel; of collectives the message);
2. ``size``: op and FLOPs (of ops that have none, bytes), else elements, for other layouts, formats and dtypes;
3. ``group``: what one side fuses and the other does not (``comparison_groups``);
4. ``op``: what is left of an op (other sizes, or shapes that one side did not record);
5. ``kind``: what is left of a kind.

What has no partner is a match of one side. Where one side does more of the same, only as much as the other does is
matched; the rest goes on to the next tier.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import NamedTuple

from roofwatch.model.comparison_groups import grouped
from roofwatch.model.comparison_pieces import Number, Piece, Pieces
from roofwatch.model.interned import Interned
from roofwatch.model.kinds import Kind

SAME, SIZE, GROUP, OP, KIND = TIERS = ("same", "size", "group", "op", "kind")
LAYOUT_TAX, OPTIMIZER = "layout tax", "optimizer"  # groups that no recipe makes
ALIKE = 20  # one part of so many: calls a step differ by as much from window to window, at their edges
PAIRED = 200  # pieces of one op a side
NEAR = 0.02  # relative: how far two formulas of one op are apart (a bias, a vector of axes)
ROUGHLY = 0.9  # further apart than NEAR
_NOTHING_COMMON = frozenset({Kind.OTHER})  # that two names are unknown makes them no pair


class Match(NamedTuple):
    """Pieces that do the same on both sides; one side is empty where there is no partner."""

    tier: str | None
    left: tuple[Piece, ...]
    right: tuple[Piece, ...]
    name: str | None = None  # of a group: what is fused


# Places of the pieces on both sides, and how much of each: None is all of it.
Pair = tuple[int, int, Fraction | None, Fraction | None]


@dataclass(frozen=True, slots=True)
class Matches:
    """All pieces of both sides, each (or each part of it) in one match. ``pairs`` are all those of tier ``same``."""

    left: Pieces
    right: Pieces
    pairs: list[Pair]
    others: list[Match]

    def __getitem__(self, place: int) -> Match:
        """The match at a place: first are the pairs."""
        if place >= len(self.pairs):
            return self.others[place - len(self.pairs)]
        i, j, left, right = self.pairs[place]
        return Match(SAME, (_part(self.left[i], left),), (_part(self.right[j], right),))


def _part(piece: Piece, share: Fraction | None) -> Piece:
    return piece if share is None else piece.part(share)


@dataclass(slots=True)
class _Rest:
    """What is not matched yet."""

    left: list[Piece]
    right: list[Piece]
    matches: list[Match] = field(default_factory=list)


def matched(left: Pieces, right: Pieces, units: tuple[Fraction, Fraction], scale: float = 1.0) -> Matches:
    """All pieces of both sides; ``units`` are the steps a side stands for.

    ``scale``: how many times as much work as the right's a call of the left's is, where the right was scaled to it.
    """
    of_unit = weights(units)
    pairs, rest = _by_identity(left, right, of_unit)
    _by_size(rest, of_unit, scale)
    groups, rest.left, rest.right = grouped(rest.left, rest.right, of_unit)
    rest.matches += [Match(GROUP, ours, theirs, name) for name, ours, theirs in groups]
    _optimizers(rest)
    _by(rest, OP, lambda p: p.of_family)
    _by(rest, KIND, lambda p: None if p.tax or p.kind in _NOTHING_COMMON else (p.sort, p.kind))
    rest.matches += [Match(None, one, (), name) for name, one in _alone(rest.left)]
    rest.matches += [Match(None, (), one, name) for name, one in _alone(rest.right)]
    return Matches(left, right, pairs, rest.matches)


def weights(units: tuple[Fraction, Fraction]) -> tuple[int, int]:
    """By what figures of both sides are multiplied so that they compare as by the unit, without fractions.

    Figure ÷ units, times the product of both numerators.
    """
    left, right = units
    return left.denominator * right.numerator, right.denominator * left.numerator


def _by_identity(left: Pieces, right: Pieces, weight: tuple[int, int]) -> tuple[list[Pair], _Rest]:
    """Pairs of pieces that are the same work, as much of them as both do; and what is left."""
    theirs = {content.of_piece: j for j, content in enumerate(right.contents)}
    pairs: list[Pair] = []
    rest, more = _Rest([], []), list[Piece]()
    for i, content in enumerate(left.contents):
        j = theirs.pop(content.of_piece, None)
        if j is None:
            rest.left.append(left[i])
            continue
        share, share_too = _shares(left.calls[i] * weight[0], right.calls[j] * weight[1])
        pairs.append((i, j, share, share_too))
        if share is not None:
            rest.left.append(left.rest(i, share))
        elif share_too is not None:
            more.append(right.rest(j, share_too))
    rest.right = [right[j] for j in theirs.values()] + more
    return pairs, rest


def _shares(a: Number, b: Number) -> tuple[Fraction | None, Fraction | None]:
    """How much of both pieces is as much work a unit as the other side does; None is all of it."""
    more, less = (a, b) if a > b else (b, a)
    if not less or (more - less) * ALIKE <= more:
        return None, None
    return (Fraction(b, a), None) if a > b else (None, Fraction(a, b))


def _amounts(left: Piece, right: Piece, weight: tuple[int, int], *, counted: bool) -> tuple[Number, Number]:
    """Work a unit of two pieces of another size: FLOPs, or bytes; in calls where formulas count it differently."""
    ours, theirs = left.calls * weight[0], right.calls * weight[1]
    if not counted:
        return ours, theirs
    return ours * (left.flops or left.bytes or 1), theirs * (right.flops or right.bytes or 1)


def _by_size(rest: _Rest, weight: tuple[int, int], scale: float) -> None:
    """Match pieces of one op whose calls are as large: the nearest pair first, of equally near ones the largest."""
    left, right, added = dict(enumerate(rest.left)), dict(enumerate(rest.right)), _Rest([], [])
    for (formulas, _), *_, i, j in sorted(_near(rest, weight, scale)):
        if i not in left or j not in right:
            continue
        ours, other = left.pop(i), right.pop(j)
        share, share_too = _shares(*_amounts(ours, other, weight, counted=not formulas))
        rest.matches.append(Match(SIZE, (_part(ours, share),), (_part(other, share_too),)))
        if share is not None:
            added.left.append(ours.rest(share))
        elif share_too is not None:
            added.right.append(other.rest(share_too))
    rest.left, rest.right = [*left.values(), *added.left], [*right.values(), *added.right]


_Near = tuple[tuple[int, float], int, str, str, int, int]  # how far, the time of it, an order, the places


def _near(rest: _Rest, weight: tuple[int, int], scale: float) -> Iterator[_Near]:
    """Pairs of the same work."""
    theirs = _largest(rest.right)
    for op, ours in _largest(rest.left).items():
        if op not in theirs:
            continue
        sizes = [(j, b, b.most, *_range(b)) for j, b in theirs[op]]
        for i, a in ours:
            least, largest = _range(a)
            low, high, own = least * ROUGHLY, largest / ROUGHLY, a.most
            for j, b, most, lower, upper in sizes:
                if (lower > high or upper < low) and most != own and scale == 1.0:
                    continue  # most pairs are far apart, which is told at once
                if (far := _apart(a, b, scale)) is not None:
                    first, second = sorted((a.text, b.text))
                    yield far, -min(a.ns * weight[0], b.ns * weight[1]), first, second, i, j


def _range(p: Piece) -> tuple[int, int]:
    """FLOPs of a call, of a range both ends; without any its bytes."""
    return (p.flops, p.flops_max or p.flops) if p.flops else (p.bytes or 0, p.bytes or 0)


def _largest(pieces: Sequence[Piece]) -> dict[Interned, list[tuple[int, Piece]]]:
    """The pieces of each op with their places, those with most time: all pairs of them are looked at."""
    found: dict[Interned, list[tuple[int, Piece]]] = defaultdict(list)
    times = [-p.ns for p in pieces]
    order = sorted(range(len(pieces)), key=times.__getitem__)
    if len(set(times)) < len(times):
        order.sort(key=lambda place: (times[place], pieces[place].text))
    for place in order:
        p = pieces[place]
        of = p.of_op
        if of is not None and len(held := found[of]) < PAIRED:
            held.append((place, p))
    return found


def _apart(a: Piece, b: Piece, scale: float) -> tuple[int, float] | None:
    """How far two calls are apart in size; None where they are not the same work.

    First by FLOPs, of a range the nearer end; without any by bytes. Where two formulas count one op differently, by the
    elements of its largest operand.
    """
    found = _distance(a, b, scale)
    if found is not None and found <= NEAR:
        return 0, found
    return (1, 0.0) if a.most and a.most == b.most else None


def _distance(a: Piece, b: Piece, scale: float) -> float | None:
    """Relative; where the right was scaled, so much more of it, or as much: weights do not grow with the batch."""
    if bool(a.flops) != bool(b.flops):
        return None
    ours, theirs = _range(a), _range(b)
    if not ours[0] or not theirs[0]:
        return None
    far = _between(ours, theirs)
    return far if scale == 1.0 else min(far, _between(ours, (theirs[0] * scale, theirs[1] * scale)))


def _between(a: tuple[float, float], b: tuple[float, float]) -> float:
    """How far two ranges are apart, relative to the larger; 0 where they meet."""
    lower, upper = (a, b) if a <= b else (b, a)
    return 1 - lower[1] / upper[0] if lower[1] < upper[0] else 0.0


def _optimizers(rest: _Rest) -> None:
    """Match what is left of both optimizers: one kernel for all parameters, or one for each and op."""
    ours, theirs = ([p for p in side if p.optimizer] for side in (rest.left, rest.right))
    if ours and theirs:
        rest.matches.append(Match(GROUP, tuple(ours), tuple(theirs), OPTIMIZER))
        rest.left, rest.right = ([p for p in side if not p.optimizer] for side in (rest.left, rest.right))


def _by(rest: _Rest, tier: str, key: Callable[[Piece], Hashable]) -> None:
    """Match all that is left with a key on both sides; those whose key is None have no partner."""
    keys = [[key(p) for p in side] for side in (rest.left, rest.right)]
    both = (set(keys[0]) & set(keys[1])) - {None}
    if not both:
        return
    ours, theirs = (_gathered(side, of, both) for side, of in zip((rest.left, rest.right), keys, strict=True))
    rest.matches += [Match(tier, tuple(group), tuple(theirs[one])) for one, group in ours.items()]
    rest.left, rest.right = (
        [p for p, one in zip(side, of, strict=True) if one not in both]
        for side, of in zip((rest.left, rest.right), keys, strict=True)
    )


def _gathered(
    pieces: Sequence[Piece], keys: Sequence[Hashable], wanted: Collection[Hashable]
) -> dict[Hashable, list[Piece]]:
    found: dict[Hashable, list[Piece]] = defaultdict(list)
    for p, one in zip(pieces, keys, strict=True):
        if one in wanted:
            found[one].append(p)
    return found


def _alone(pieces: Sequence[Piece]) -> list[tuple[str | None, tuple[Piece, ...]]]:
    """What has no partner, piece by piece; layout tax as one."""
    tax = tuple(p for p in pieces if p.tax)
    return [(None, (p,)) for p in pieces if not p.tax] + ([(LAYOUT_TAX, tax)] if tax else [])
