"""Work that one side does in one kernel and the other in several: which kernels belong together. Pure functions.

A recipe names the fused op, the ops that the other side must have instead, and those it may have beside them. That they
are the same work is told by sizes: the FLOPs of the product inside, or the elements that all of them go over.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from roofwatch.model.comparison_pieces import COMPUTE, Piece

NEAR = 0.03  # relative: how far two counts of the same FLOPs are apart (a causal mask's diagonal)
LOOKED_AT = 500  # pieces of one recipe a side, the largest: a trace of another sort may have any number
MANY = 32  # elements a row has at least, where a norm goes over rows

_GLUE = "add sub mul div copy fill where masked_fill dropout neg cat slice"


@dataclass(frozen=True, slots=True)
class Recipe:
    """One fusion: ``fused`` ops on one side, on the other all of ``needed`` and any of ``besides``.

    ``ratios``: what a fused call's FLOPs ÷ those of a call of the first needed op may be, the usual first; () where the
    elements must be the same. ``alike`` ops must have those FLOPs, too. ``halves``: of the fused op's input, half.
    """

    name: str
    fused: frozenset[str]
    needed: tuple[frozenset[str], ...]
    besides: frozenset[str]
    ratios: tuple[float, ...] = ()
    alike: frozenset[str] = frozenset()
    halves: bool = False


def _recipe(name: str, fused: str, needed: Sequence[str], besides: str, *ratios: float, alike: str = "") -> Recipe:
    ops = tuple(frozenset(one.split()) for one in needed)
    halves = name.startswith("gate")
    return Recipe(
        name, frozenset(fused.split()), ops, frozenset(besides.split()), ratios, frozenset(alike.split()), halves
    )


# Attention is two products of one size, of which a causal mask hides half; backward it is five, or four where the
# scores are kept. A convolution's two gradients are as large as each other, and the first layer has but one.
RECIPES = (
    _recipe("attention", "attention", ("bmm baddbmm mm", "softmax"), _GLUE, 2, 1),
    _recipe("attention backward", "attention_backward", ("bmm baddbmm mm", "softmax_backward"), _GLUE, 5, 4, 2.5, 2),
    _recipe("convolution backward", "convolution_backward", ("convolution_backward_weight",), "sum", 2, 1,
            alike="convolution_backward_input"),
    _recipe("addmm", "addmm", ("mm",), "add", 1),
    _recipe("baddbmm", "baddbmm", ("bmm",), "add", 1),
    _recipe("add + norm", "add_rms_norm add_layer_norm", ("rms_norm layer_norm",), "add copy"),
    _recipe("add + norm", "add_rms_norm", ("rsqrt", "mean"), f"{_GLUE} pow"),
    _recipe("norm", "rms_norm", ("rsqrt", "mean"), f"{_GLUE} pow"),
    _recipe("gate", "swiglu", ("silu",), "mul slice cat copy"),
    _recipe("gate", "geglu", ("gelu",), "mul slice cat copy"),
    _recipe("gate backward", "swiglu_backward", ("silu_backward",), "mul slice cat copy"),
    _recipe("rope", "rope", ("mul", "neg cat"), _GLUE),
    _recipe("cross entropy", "cross_entropy", ("log_softmax", "nll_loss"), "mean sum copy"),
)  # fmt: skip

Extent = tuple[int, int]
Group = tuple[str, tuple[Piece, ...], tuple[Piece, ...]]


def grouped(
    left: list[Piece], right: list[Piece], weights: tuple[int, int]
) -> tuple[list[Group], list[Piece], list[Piece]]:
    """The groups among pieces without a partner, and what is left of both sides. The largest fused piece goes first.

    ``weights``: by what times of both sides are multiplied so that they compare as by the unit.
    """
    sides, groups = [left, right], list[Group]()
    ops = {p.op for p in (*left, *right)}
    for recipe in RECIPES:
        if ops.isdisjoint(recipe.fused):
            continue
        fused = [
            (p.ns * weights[i], i, p) for i in (0, 1) for p in sides[i] if p.sort == COMPUTE and p.op in recipe.fused
        ]
        free: dict[int, list[Piece]] = {}  # by side; no fused piece is among them, so only chains are taken from it
        for _, i, piece in sorted(fused, key=lambda one: (-one[0], one[2].text))[:LOOKED_AT]:
            other = 1 - i
            if other not in free:
                free[other] = _usable(recipe, sides[other])
            chain = tuple(_chain(recipe, piece, free[other][:LOOKED_AT]))
            if chain:
                groups.append((recipe.name, (piece,), chain) if i == 0 else (recipe.name, chain, (piece,)))
                sides[i], sides[other] = _without(sides[i], (piece,)), _without(sides[other], chain)
                free[other] = _without(free[other], chain)
    return groups, sides[0], sides[1]


def _without(pieces: Sequence[Piece], taken: Sequence[Piece]) -> list[Piece]:
    gone = {id(p) for p in taken}
    return [p for p in pieces if id(p) not in gone]


def _usable(recipe: Recipe, pieces: Sequence[Piece]) -> list[Piece]:
    """What may do a fused piece's work, most time first."""
    ops = frozenset[str]().union(recipe.besides, recipe.alike, *recipe.needed)
    found = [p for p in pieces if p.sort == COMPUTE and not p.tax and p.op in ops]
    return sorted(found, key=lambda p: (-p.ns, p.text))


def _chain(recipe: Recipe, piece: Piece, free: Sequence[Piece]) -> list[Piece]:
    """The pieces that do together what the fused one does; none where a needed op is missing."""
    first = _first(recipe, piece, [p for p in free if p.op in recipe.needed[0]])
    if not first:
        return []
    sizes = _extents(first) if recipe.ratios else _whole(recipe, piece) | _extents(first)
    chain = list(first)
    for needed in recipe.needed[1:]:
        more = [p for p in free if p.op in needed and p.extents & sizes]
        if not more:
            return []
        chain += [p for p in more if not _holds(chain, p)]
    between = _extents(chain[len(first) :]) if recipe.ratios else sizes  # the softmax tells what the scores are
    return chain + [p for p in free if not _holds(chain, p) and _belongs(recipe, first, between, p)]


def _first(recipe: Recipe, piece: Piece, candidates: Sequence[Piece]) -> list[Piece]:
    if not recipe.ratios:
        whole = _whole(recipe, piece)
        return [p for p in candidates if p.extents & whole or _is_rows(whole, p)]
    for ratio in recipe.ratios:
        fitting = [p for p in candidates if piece.flops and p.flops and _near(piece.flops / p.flops, ratio)]
        if fitting:
            return fitting
    return []


def _belongs(recipe: Recipe, first: Sequence[Piece], sizes: frozenset[Extent], p: Piece) -> bool:
    """Whether one of the ops beside goes with the chain: by what lies between products, or by what one gives."""
    if p.op in recipe.alike:
        return any(p.flops and one.flops and _near(p.flops / one.flops, 1.0) for one in first)
    if p.op not in recipe.besides:
        return False
    if recipe.ratios and not sizes:
        results = {one.output for one in first} - {None} or {elements for one in first for elements, _ in one.extents}
        return any(elements in results for elements, _ in p.extents)
    return bool(p.extents & sizes)


def _near(found: float, wanted: float) -> bool:
    return abs(found - wanted) <= NEAR * wanted


def _holds(chain: Sequence[Piece], piece: Piece) -> bool:
    return any(p is piece for p in chain)


def _extents(pieces: Iterable[Piece]) -> frozenset[Extent]:
    return frozenset[Extent]().union(*(p.extents for p in pieces))


def _whole(recipe: Recipe, piece: Piece) -> frozenset[Extent]:
    found = piece.extents
    return found | {(n // 2, last // 2) for n, last in found} if recipe.halves else found


def _is_rows(whole: frozenset[Extent], p: Piece) -> bool:
    """Whether a piece works on one value a row of the other's tensor (the reciprocal root of a norm)."""
    most = max((elements for elements, _ in whole), default=0)
    return any(most % n == 0 and most // n >= MANY for n, _ in p.extents)
