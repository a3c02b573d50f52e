"""Whether two sides do the same work: batch, sequence, precision, steps, model; and how much more one of them does."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from fractions import Fraction
from typing import Any

from roofwatch.model.comparison_match import Matches
from roofwatch.model.comparison_pieces import MODEL_KINDS, Piece
from roofwatch.model.comparison_products import as_much, by_unit
from roofwatch.model.comparison_sides import CALL, STEP, Taken, tells_phases
from roofwatch.model.comparison_windows import Found, of_windows
from roofwatch.model.errors import IncompleteError
from roofwatch.model.interned import Interned
from roofwatch.model.kinds import Kind

APART = 0.02  # relative: how far the FLOPs of a step are apart before it is told
STRANGERS = 0.5  # of either side's products' time: if more has no size in common with the other's, models differ
_TWINS = {"hf32": "tf32"}  # reduced fp32, as one vendor and the other calls it

TEXTS: Mapping[str, str] = {
    "shared": "{count} windows are on both sides: what differs between them is more than it seems",
    "model": "the models differ: {left} on the left, {right} on the right",
    "batch": "the batches differ: {left} on the left, {right} on the right",
    "sequence": "the sequences differ: {left} on the left, {right} on the right",
    "size": "sizes of inputs differ: {left} on the left, {right} on the right",
    "tokens": "a call has {left} real tokens on the left, {right} on the right",
    "work": "the right does {factor} × the left's FLOPs a {per}",
    "strangers": (
        "no weight of {share} of the products' time is on the other side: another model, or another split of one"
    ),
    "precision": "products are computed in {left} on the left, in {right} on the right",
    "calls": "the right calls the same ops {factor} × as often a {per} (accumulated gradients, more layers)",
    "training": "only the {side} side trains: no backward pass was seen on the other",
    "ranks": "the ranks of the jobs differ, {left} on the left, {right} on the right: so does the communication",
    "steps": "only the {side} side tells steps: whole windows are compared, whatever is in them",
    "windows": "windows last {left_ns} on the left, {right_ns} on the right, and hold as much more or less",
    "few": "{units} {per} {where}: that shows a moment, not a mean",
    "shapes": "of {share} of the {side} side's kernels shapes are unknown: matched by name or kind only",
    "outside": "{share} of the {side} side's device time was launched outside of its steps, {each_ns} a step: left out",
    "startup": "the {side} side waited {each_ns} a {per} at its start: left out",
    "stacks": "Python stacks were recorded {where}: they slow the host, so idle time is overstated",
    "left_out": "{count} of the {side} side's windows tell no steps: left out",
    "sums": (
        "of the {side} side only sums are kept, which do not tell how many windows had no steps: their idle time "
        "counts in the steps'"
    ),
    "silent_sums": (
        "of the {side} side only sums are kept, which do not tell how many windows reported no lengths: their time "
        "counts all the same"
    ),
    "silent": "{count} of the {side} side's windows report no lengths: their time counts all the same",
}
SCALED = frozenset({"batch", "sequence", "size", "tokens", "work", "calls"})  # what --normalise takes out


def scale_of(left: Taken, right: Taken) -> Fraction:
    """By what the right's times are multiplied so that it does the left's FLOPs a unit.

    Raises:
        IncompleteError: too few FLOPs are known on one of the sides.
    """
    flops = [_flops(side) for side in (left, right)]
    for name, found in zip(("left", "right"), flops, strict=True):
        if not found:
            raise IncompleteError(
                f"the sides cannot be normalised: of the {name} side's products the FLOPs are not known."
            )
    return Fraction(flops[0] or 0) / Fraction(flops[1] or 1)


def _flops(side: Taken) -> Fraction | None:
    found = by_unit(side.flops, side.units)
    return None if found is None else Fraction(*found)


def same_work(left: Taken, right: Taken) -> bool:
    """Whether both sides do as much of the same in a unit, as far as it is known: in FLOPs, and training or not."""
    return as_much(*(by_unit(side.flops, side.units) for side in (left, right))) and _only_trains(left, right) is None


def _only_trains(left: Taken, right: Taken) -> str | None:
    """The one side that trains, where the other would show it."""
    ours, theirs = (side.pieces.training for side in (left, right))
    if ours == theirs or not tells_phases((right if ours else left).side):
        return None
    return "left" if ours else "right"


def warnings(left: Taken, right: Taken, matches: Matches, *, normalised: bool) -> list[dict[str, Any]]:
    """What makes the sides differ beside device and software; ``scaled`` tells what normalising took out."""
    found = [
        *_jobs(left, right),
        *_strangers(left, right),
        *_sizes(left, matches),
        *_amounts(left, right, matches),
        *of_windows(left, right),
    ]
    return [
        {"warning": name, **figures, "text": TEXTS[name], "scaled": normalised and name in SCALED}
        for name, figures in found
    ]


def _jobs(left: Taken, right: Taken) -> Found:
    ours, theirs = left.side, right.side
    if ours.models and theirs.models and ours.models != theirs.models:
        yield "model", {"left": ", ".join(sorted(ours.models)), "right": ", ".join(sorted(theirs.models))}
    if ours.worlds and theirs.worlds and ours.worlds != theirs.worlds:
        yield "ranks", {"left": _listed(ours.worlds), "right": _listed(theirs.worlds)}
    precisions = [_precision(side) for side in (left, right)]
    if all(precisions) and len({_TWINS.get(p or "", p) for p in precisions}) > 1:
        yield "precision", {"left": precisions[0], "right": precisions[1]}
    if (only := _only_trains(left, right)) is not None:
        yield "training", {"side": only}


def _listed(numbers: frozenset[int]) -> str:
    return ", ".join(map(str, sorted(numbers)))


def _precision(side: Taken) -> str | None:
    """In what most of the products' time is computed."""
    by: dict[str, int] = defaultdict(int)
    for precision, ns in zip(side.products.precisions, side.products.ns, strict=True):
        if precision is not None:
            by[precision] += ns
    return max(by, key=lambda name: (by[name], name)) if by else None


def _sizes(left: Taken, matches: Matches) -> Found:
    """Dimensions in which pieces of one op differ that found no same piece: the one with most time behind it."""
    votes: dict[tuple[str, int, int], int] = defaultdict(int)
    theirs: dict[str, list[Piece]] = defaultdict(list)
    lonely = matches.others
    for match in lonely:
        for p in match.right:
            theirs[p.op or ""].append(p)
    for p in (p for match in lonely for p in match.left if p.op):
        for name, a, b in _nearest(p, theirs[p.op or ""]):
            votes[name, a, b] += p.ns
    told: set[object] = set()
    least = APART * left.pieces.total()
    for (name, a, b), ns in sorted(votes.items(), key=lambda item: (-item[1], item[0])):
        if not told & {name, (a, b)} and ns >= least:  # transposed, a batch looks like a sequence: told once
            told |= {name, (a, b)}
            yield name, {"left": a, "right": b}


def _nearest(piece: Piece, others: Sequence[Piece]) -> list[tuple[str, int, int]]:
    """How the first operand differs from that of the other side's piece that is most alike."""
    shape = piece.first
    best: list[tuple[str, int, int]] = []
    if shape is None:
        return best
    for other in others:
        theirs = other.first
        if theirs is None or len(shape) != len(theirs):
            continue
        apart = [(i, a, b) for i, (a, b) in enumerate(zip(shape, theirs, strict=True)) if a != b]
        if apart and (not best or len(apart) < len(best)):
            best = [(_dimension(piece, i, len(shape)), a, b) for i, a, b in apart]
    return best if len(best) <= 2 else []  # batch and sequence; more is another op


def _dimension(piece: Piece, position: int, rank: int) -> str:
    """What a dimension is: of images and of sequences the first is the batch; of (batch, sequence, …) the second."""
    if position == 0:
        return "batch"
    if piece.kind is Kind.CONV or rank < 3:
        return "size"
    return "sequence"


def _strangers(left: Taken, right: Taken) -> Found:
    """Whether the products have other weights: a batch changes one size of a product, a model all or two."""
    sides = [list(zip(side.products.ns, side.products.weights, strict=True)) for side in (left, right)]
    told = [[(ns, sizes) for ns, sizes in side if sizes] for side in sides]
    if not all(told):
        return
    shares = []
    for mine, whole, other in ((told[0], sides[0], told[1]), (told[1], sides[1], told[0])):
        there = frozenset[object]().union(*(sizes for _, sizes in other))
        time = sum(ns for ns, _ in whole)
        shares.append(sum([ns for ns, sizes in mine if sizes.isdisjoint(there)]) / time if time else 0.0)
    if min(shares) > STRANGERS:
        yield "strangers", {"share": min(shares)}


def _amounts(left: Taken, right: Taken, matches: Matches) -> Found:
    flops = [_flops(side) for side in (left, right)]
    factor = None if not flops[0] or not flops[1] else float(flops[1] / flops[0])
    if left.per == right.per and factor is not None and abs(factor - 1) > APART:
        yield "work", {"factor": factor, "per": left.per}
    tokens = [_tokens(side) for side in (left, right)]
    if left.per in {STEP, CALL} and all(tokens) and abs((tokens[1] or 0) / (tokens[0] or 1) - 1) > APART:
        yield "tokens", {"left": round(tokens[0] or 0), "right": round(tokens[1] or 0)}
    often = _often(left, right, matches)
    if often is not None and (factor is None or abs(factor / often - 1) < APART) and abs(often - 1) > APART:
        yield "calls", {"factor": often, "per": left.per}


def _tokens(side: Taken) -> float | None:
    counts = side.side.counts
    return counts.tokens / counts.calls if counts.calls else None


def _often(left: Taken, right: Taken, matches: Matches) -> float | None:
    """How many times as often the right calls the products that both call with the same sizes."""
    both = [left.pieces.contents[i] for i, *_ in matches.pairs]
    same = {of.of_work for of in both if of.signature.kind in MODEL_KINDS and of.signature.shapes}
    ours, theirs = (_calls_of(side, same) for side in (left, right))
    return float(theirs / ours) if ours else None


def _calls_of(side: Taken, wanted: Collection[Interned]) -> Fraction:
    """Calls a unit of the ops on those operands."""
    told = zip(side.pieces.calls, side.pieces.contents, strict=True)
    return sum([calls for calls, of in told if of.of_work in wanted]) / side.units
