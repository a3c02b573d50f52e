"""Fused attention: forward 2·B·N·pairs·(D_qk + D_v), backward 2·B·N·pairs·(3·D_qk + 2·D_v) FLOPs.

Number of heads, layout and the sort of mask are attributes that no table tells. The statistics of the softmax are among
the outputs (among a gradient's inputs) as (B, N, S, 8), and with them the layout follows from the sizes. Of the mask:

- none: all pairs;
- 2048 × 2048 where the sequences are longer: the compressed mask of the causal modes (a band mode with the same mask
  is counted as causal, which it is not: the measured cube time rejects such a count);
- as large as the sequences: a causal kernel may skip half of it or none, so the FLOPs are a range.

Packed sequences (T, N, D), keys in pages and given lengths of keys hide the pairs: unknown.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from roofwatch.model.formulas.ascend.operands import KernelCall, Operand, moved
from roofwatch.model.formulas.base import Work
from roofwatch.model.formulas.pairs import causal_pairs

_STATISTIC = 8  # values of a row's maximum or sum: a block of 32 bytes
_COMPRESSED = (2048, 2048)


@dataclass(frozen=True, slots=True)
class _Problem:
    """One call: batch, widths of all heads together, lengths."""

    batch: int
    query_width: int  # N · D_qk
    value_width: int  # N · D_v
    queries: int
    keys: int


def forward(call: KernelCall) -> Work | None:
    """FlashAttentionScore: (q, k, v, pse?, dropout mask?, padding mask?, attention mask?, …) → max, sum, …, out."""
    mask = _mask(call, 6)
    return _work(call, _problem(call, _statistics(call.outputs), call.output(3), mask), (1, 1), mask)


def backward(call: KernelCall) -> Work | None:
    """FlashAttentionScoreGrad: (q, k, v, dy, …, attention mask?, max, sum, …, out) → dq, dk, dv."""
    mask = _mask(call, None)
    return _work(call, _problem(call, _statistics(call.inputs), call.input(3), mask), (3, 2), mask)


def prompt(call: KernelCall) -> Work | None:
    """PromptFlashAttention, FusedInferAttentionScore: (q, k, v, pse?, attention mask?, …) → out.

    Lengths of keys, or a table of pages, among the inputs hide how many keys there are.
    """
    hidden = [o for o in call.inputs[3:] if o.dtype in ("int64", "int32") and o.shape]
    out = call.output(0)
    if hidden or out is None:
        return None
    q, k = call.input(0), call.input(1)
    if q is None or k is None or len(q.shape) != 3 or len(k.shape) != 3:
        return None  # of four dimensions nothing tells heads from rows
    return _work(call, _of_rows(call, q.shape[0], out), (1, 1), _mask(call, 4))


def _statistics(operands: tuple[Operand, ...]) -> Operand | None:
    """The maximum of each row."""
    return next(
        (o for o in operands if o.dtype == "fp32" and len(o.shape) == 4 and o.shape[-1] == _STATISTIC),
        None,
    )


def _problem(call: KernelCall, rows: Operand | None, out: Operand | None, mask: _Mask | None) -> _Problem | None:
    """``rows``: the softmax's statistics; where they are flat, a mask of all pairs tells which side is the batch."""
    q, k, v = call.input(0), call.input(1), call.input(2)
    if q is None or k is None or v is None:
        return None
    if rows is None:
        told = mask is not None and len(q.shape) == 3 and q.shape[:2].count(mask.rows) == 1
        return _of_rows(call, q.stored // (mask.rows * q.shape[2]), out) if told and mask is not None else None
    batch, heads, queries, _ = rows.shape
    if len(q.shape) == 3:
        whole = q.shape[:2] in ((batch, queries), (queries, batch))  # else packed, or not what it seems
        return _of_rows(call, batch, out) if whole else None
    at = {(heads, queries): 2, (queries, heads): 1}.get((q.shape[1], q.shape[2]))
    if at is None or heads == queries or not len(q.shape) == len(k.shape) == 4 or {q.shape[0], k.shape[0]} != {batch}:
        return None
    return _Problem(batch, heads * q.shape[3], heads * v.shape[3], queries, k.shape[at])


def _of_rows(call: KernelCall, batch: int, out: Operand | None) -> _Problem | None:
    """Of three dimensions, rows and batch in either order: all heads together are the width.

    Where the output is flat too, it has as many elements as rows times its width.
    """
    q, k, v = call.input(0), call.input(1), call.input(2)
    if q is None or k is None or v is None or out is None or not batch or len(k.shape) != 3:
        return None
    queries, keys = (math.prod(t.shape[:2]) // batch for t in (q, k))
    width, rest = divmod(out.stored, max(1, queries * batch))
    fits = batch in k.shape[:2] and v.shape[:2] == k.shape[:2] and not rest
    return _Problem(batch, q.shape[2], width, queries, keys) if fits else None


@dataclass(frozen=True, slots=True)
class _Mask:
    """A mask's rows and columns; ``None`` for no mask at all is ``_mask``'s."""

    rows: int
    columns: int


def _mask(call: KernelCall, at: int | None) -> _Mask | None:
    """The attention mask: at its position, or among a gradient's inputs the one of bits with two sides."""
    if at is not None:
        found = call.input(at)
    else:
        found = next((o for o in call.inputs[4:] if o.dtype in ("bool", "uint8") and len(o.shape) >= 2), None)
    return None if found is None or len(found.shape) < 2 else _Mask(*found.shape[-2:])


def _work(call: KernelCall, found: _Problem | None, products: tuple[int, int], mask: _Mask | None) -> Work | None:
    size = moved(call)
    if found is None or size is None:
        return None
    pairs = _pairs(found, mask)
    if pairs is None:
        return None
    width = products[0] * found.query_width + products[1] * found.value_width
    least, most = (2 * found.batch * n * width for n in pairs)
    return Work(least, size, most if most > least else None)


def _pairs(found: _Problem, mask: _Mask | None) -> tuple[int, int] | None:
    """The least and the most pairs of one head."""
    every = found.queries * found.keys
    if mask is None:
        return every, every
    causal = causal_pairs(found.queries, found.keys, bottom_right=True)
    sides = (mask.rows, mask.columns)
    if sides == (found.queries, found.keys):
        return causal, every
    if sides == _COMPRESSED and found.queries == found.keys:
        return causal, causal
    return None  # of unlike lengths nothing tells to which corner the mask is aligned
