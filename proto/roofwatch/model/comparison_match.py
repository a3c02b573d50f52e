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
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

from roofwatch.model.comparison_groups import grouped
from roofwatch.model.comparison_ops import FAMILIES
from roofwatch.model.comparison_pieces import Piece
from roofwatch.model.kinds import Kind

SAME, SIZE, GROUP, OP, KIND = TIERS = ("same", "size", "group", "op", "kind")
LAYOUT_TAX, OPTIMIZER = "layout tax", "optimizer"  # groups that no recipe makes
ALIKE = Fraction(1, 20)  # calls a step differ by as much from window to window, at their edges
PAIRED = 200  # pieces of one op a side
NEAR = 0.02  # relative: how far two formulas of one op are apart (a bias, a vector of axes)
_NOTHING_COMMON = frozenset({Kind.OTHER})  # that two names are unknown makes them no pair


@dataclass(frozen=True, slots=True)
class Match:
    """Pieces that do the same on both sides; one side is empty where there is no partner."""

    tier: str | None
    left: tuple[Piece, ...]
    right: tuple[Piece, ...]
    name: str | None = None  # of a group: what is fused


@dataclass(slots=True)
class _Rest:
    """What is not matched yet."""

    left: list[Piece]
    right: list[Piece]
    matches: list[Match] = field(default_factory=list)


def matched(
    left: Sequence[Piece], right: Sequence[Piece], units: tuple[Fraction, Fraction], scale: float = 1.0
) -> list[Match]:
    """All pieces of both sides, each (or each part of it) in one match; ``units`` are the steps a side stands for.

    ``scale``: how many times as much work as the right's a call of the left's is, where the right was scaled to it.
    """
    rest = _Rest(list(left), list(right))
    _by_identity(rest, units)
    _by_size(rest, units, scale)
    groups, rest.left, rest.right = grouped(rest.left, rest.right, units)
    rest.matches += [Match(GROUP, ours, theirs, name) for name, ours, theirs in groups]
    _optimizers(rest)
    _by(rest, OP, _family)
    _by(rest, KIND, lambda p: None if p.tax or p.kind in _NOTHING_COMMON else (p.sort, p.kind))
    return (
        rest.matches
        + [Match(None, one, (), name) for name, one in _alone(rest.left)]
        + [Match(None, (), one, name) for name, one in _alone(rest.right)]
    )


def _by_identity(rest: _Rest, units: tuple[Fraction, Fraction]) -> None:
    """Match pieces that are the same work."""
    theirs = {_identity(p): p for p in rest.right}
    left: list[Piece] = []
    for ours in rest.left:
        other = theirs.pop(_identity(ours), None)
        if other is None:
            left.append(ours)
            continue
        match, more_left, more_right = _as_much(SAME, ours, other, (ours.calls / units[0], other.calls / units[1]))
        rest.matches.append(match)
        left += more_left
        theirs |= {_identity(p): p for p in more_right}
    rest.left, rest.right = left, list(theirs.values())


def _identity(p: Piece) -> Hashable:
    return *_op(p), p.work


def _as_much(
    tier: str, left: Piece, right: Piece, amounts: tuple[Fraction, Fraction]
) -> tuple[Match, list[Piece], list[Piece]]:
    """The match of as much work as both sides do a unit (``amounts``), and what one of them does more."""
    a, b = amounts
    if not a or not b or abs(a - b) <= ALIKE * max(a, b):
        return Match(tier, (left,), (right,)), [], []
    if a > b:
        part = left.part(b / a)
        return Match(tier, (part,), (right,)), [left.less(part)], []
    part = right.part(a / b)
    return Match(tier, (left,), (part,)), [], [right.less(part)]


def _amounts(left: Piece, right: Piece, units: tuple[Fraction, Fraction], scale: float) -> tuple[Fraction, Fraction]:
    """Work a unit of two pieces of another size: FLOPs, or bytes; in calls where formulas count it differently."""
    far = _distance(left, right, scale)
    if far is None or far > NEAR:
        return left.calls / units[0], right.calls / units[1]
    return (
        left.calls * (left.flops or left.bytes or 1) / units[0],
        right.calls * (right.flops or right.bytes or 1) / units[1],
    )


def _by_size(rest: _Rest, units: tuple[Fraction, Fraction], scale: float) -> None:
    """Match pieces of one op whose calls are as large: the nearest pair first, of equally near ones the largest."""
    theirs = _largest(rest.right)
    pairs = [
        (far, -min(a.ns / units[0], b.ns / units[1]), *sorted((str(a.work), str(b.work))), i, j)
        for op, ours in _largest(rest.left).items()
        for i, a in ours
        for j, b in theirs.get(op, ())
        if (far := _apart(a, b, scale)) is not None
    ]
    left, right, added = dict(enumerate(rest.left)), dict(enumerate(rest.right)), _Rest([], [])
    for *_, i, j in sorted(pairs):
        if i not in left or j not in right:
            continue
        ours, other = left.pop(i), right.pop(j)
        match, more_left, more_right = _as_much(SIZE, ours, other, _amounts(ours, other, units, scale))
        rest.matches.append(match)
        added.left += more_left
        added.right += more_right
    rest.left, rest.right = [*left.values(), *added.left], [*right.values(), *added.right]


def _largest(pieces: Sequence[Piece]) -> dict[tuple[object, ...], list[tuple[int, Piece]]]:
    """The pieces of each op with their places, those with most time: all pairs of them are looked at."""
    found: dict[tuple[object, ...], list[tuple[int, Piece]]] = defaultdict(list)
    for place, p in sorted(enumerate(pieces), key=lambda one: (-one[1].ns, str(one[1].work))):
        if p.op is not None and len(found[_op(p)]) < PAIRED:
            found[_op(p)].append((place, p))
    return found


def _op(p: Piece) -> tuple[object, ...]:
    return p.sort, p.op, p.tax, p.optimizer


def _family(p: Piece) -> Hashable:
    return None if p.op is None else (p.sort, FAMILIES.get(p.op, p.op), p.tax, p.optimizer)


def _apart(a: Piece, b: Piece, scale: float) -> tuple[int, float] | None:
    """How far two calls are apart in size; None where they are not the same work.

    First by FLOPs, of a range the nearer end; without any by bytes. Where two formulas count one op differently, by the
    elements of its largest operand.
    """
    found = _distance(a, b, scale)
    if found is not None and found <= NEAR:
        return 0, found
    most, other = (max((elements for elements, _ in p.extents), default=0) for p in (a, b))
    return (1, 0.0) if most and most == other else None


def _distance(a: Piece, b: Piece, scale: float) -> float | None:
    """Relative; where the right was scaled, so much more of it, or as much: weights do not grow with the batch."""
    if a.flops and b.flops:
        low, high = (a.flops, a.flops_max or a.flops), (b.flops, b.flops_max or b.flops)
        return min(_between(low, (high[0] * by, high[1] * by)) for by in {scale, 1.0})
    if a.flops or b.flops or not a.bytes or not b.bytes:
        return None
    return min(_between((a.bytes, a.bytes), (b.bytes * by, b.bytes * by)) for by in {scale, 1.0})


def _between(a: tuple[float, float], b: tuple[float, float]) -> float:
    """How far two ranges are apart, relative to the larger; 0 where they meet."""
    lower, upper = sorted((a, b))
    return max(0.0, 1 - lower[1] / upper[0])


def _optimizers(rest: _Rest) -> None:
    """Match what is left of both optimizers: one kernel for all parameters, or one for each and op."""
    ours, theirs = ([p for p in side if p.optimizer] for side in (rest.left, rest.right))
    if ours and theirs:
        rest.matches.append(Match(GROUP, tuple(ours), tuple(theirs), OPTIMIZER))
        rest.left, rest.right = ([p for p in side if not p.optimizer] for side in (rest.left, rest.right))


def _by(rest: _Rest, tier: str, key: Callable[[Piece], Hashable]) -> None:
    """Match all that is left with a key on both sides; those whose key is None have no partner."""
    ours, theirs = (_gathered(side, key) for side in (rest.left, rest.right))
    both = ours.keys() & theirs.keys()
    rest.matches += [Match(tier, tuple(group), tuple(theirs[one])) for one, group in ours.items() if one in both]
    rest.left, rest.right = ([p for p in side if key(p) not in both] for side in (rest.left, rest.right))


def _gathered(pieces: Sequence[Piece], key: Callable[[Piece], Hashable]) -> dict[Hashable, list[Piece]]:
    found: dict[Hashable, list[Piece]] = defaultdict(list)
    for p in pieces:
        if (one := key(p)) is not None:
            found[one].append(p)
    return found


def _alone(pieces: Sequence[Piece]) -> list[tuple[str | None, tuple[Piece, ...]]]:
    """What has no partner, piece by piece; layout tax as one."""
    tax = tuple(p for p in pieces if p.tax)
    return [(None, (p,)) for p in pieces if not p.tax] + ([(LAYOUT_TAX, tax)] if tax else [])
