"""Scaled-dot-product attention: forward 2·B·H·pairs·(D_qk + D_v), backward 2·B·H·pairs·(3·D_qk + 2·D_v).

Forward is two products over the (query, key) pairs, Q·Kᵀ and P·V; backward is five: Q·Kᵀ once more, dP = dO·Vᵀ,
dV = Pᵀ·dO, dQ = dS·K, dK = dSᵀ·Q. (torch's FlopCounterMode counts the same five.)
``pairs`` is S_q·S_k or what the mask leaves of it (``pairs``): of packed sequences a range, since a trace does not hold
their lengths. Aten's masks are aligned to the top left, those of flash-attn's ops (2.1 and later) to the bottom right.
H are the query's heads; keys and values may have fewer. Bytes: q, k, v, output once each; the log-sum-exp in fp32.
Keys in pages, or a number of valid keys in a tensor (decoding): neither is in the trace, so such calls are unknown.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from roofwatch.model.formulas.base import Formula, Work, dense
from roofwatch.model.formulas.pairs import Packed, band, packed_pairs
from roofwatch.model.shapes import Call, Tensor


@dataclass(frozen=True, slots=True)
class Layout:
    """Positions of an op's arguments; None where it has none."""

    causal: int | None = None  # the flag
    custom_mask: int | None = None  # a mask type instead: 0 none, 1 causal top left, 2 causal bottom right
    bias: int | None = None
    first: int = 0  # the query, followed by key and value
    heads_first: bool = True  # (B, H, S, D); else (B, S, H, D). Packed tensors are always (T, H, D)
    bottom_right: bool = False
    packed: int | None = None  # cumulative lengths of the queries, followed by those of the keys
    longest: int | None = None  # longest query sequence, followed by the longest key sequence
    window: int | None = None  # keys left of the diagonal, followed by those right of it; -1 is no limit
    span: int | None = None  # keys that a causal window holds, the diagonal's among them; 0 is no limit
    hidden: tuple[int, ...] = ()  # tensors that make the number of keys unknown where they are given
    zero: tuple[int, ...] = ()  # numbers that select another mask where they are not 0
    out: int | None = None  # an output handed in


@dataclass(frozen=True, slots=True)
class Problem:
    """One call: tensors, batch · query heads, pairs of one head (least and most), query rows of one head."""

    q: Tensor
    k: Tensor
    v: Tensor
    heads: int
    pairs: tuple[int, int]
    rows: int

    def work(self, products: int, moved: int) -> Work:
        """FLOPs of ``products`` summed widths over the pairs."""
        least, most = (2 * self.heads * n * products for n in self.pairs)
        return Work(least, moved, None if least == most else most)


@dataclass(frozen=True, slots=True)
class _Mask:
    left: int | None
    right: int | None
    bottom_right: bool


def _sizes(t: Tensor, *, heads_first: bool) -> tuple[int, int, int] | None:
    """(batch · heads, sequence, width); leading dimensions beyond four fold into the batch, a missing batch is one."""
    if len(t.shape) < 3:
        return None
    *lead, a, b, d = t.shape
    heads, length = (a, b) if heads_first else (b, a)
    return math.prod(lead) * heads, length, d


def _limit(number: int | None) -> int | None:
    return None if number is None or number < 0 else number


def _mask(call: Call, at: Layout) -> _Mask | None:
    """The band that the arguments describe, or None where they do not tell."""
    if any(call.integer(i) not in (0, None) for i in at.zero):
        return None
    causal: bool | None = False if at.causal is None else call.flag(at.causal)
    bottom_right = at.bottom_right
    if at.custom_mask is not None:
        kind = call.integer(at.custom_mask)
        causal, bottom_right = (None if kind is None else kind != 0), kind == 2
    if causal is None:
        return None
    left = right = None
    if at.window is not None:
        left, right = _limit(call.integer(at.window)), _limit(call.integer(at.window + 1))
    span = None if at.span is None else call.integer(at.span)
    if span is not None and span > 0:
        left = span - 1
    return _Mask(left, 0 if causal else right, bottom_right)


def problem(call: Call, at: Layout) -> Problem | None:
    """What a call computes, or None where its arguments do not tell."""
    q, k, v = (call.tensor(at.first + i) for i in range(3))
    if q is None or k is None or v is None or any(call.tensor(i) is not None for i in at.hidden):
        return None
    mask = _mask(call, at)
    if mask is None or q.shape[-1:] != k.shape[-1:]:
        return None
    if at.packed is not None and call.tensor(at.packed) is not None:
        return _packed(call, at, (q, k, v), mask)
    sized = [_sizes(t, heads_first=at.heads_first) for t in (q, k, v)]
    if any(s is None for s in sized):
        return None
    (heads, queries, _), (_, keys, _), (_, values, _) = (s for s in sized if s is not None)
    pairs = band(queries, keys, mask.left, mask.right, bottom_right=mask.bottom_right)
    return Problem(q, k, v, heads, (pairs, pairs), queries) if keys == values else None


def _packed(call: Call, at: Layout, tensors: tuple[Tensor, Tensor, Tensor], mask: _Mask) -> Problem | None:
    """Packed sequences: tokens, number and greatest length are known, the lengths are not."""
    q, k, v = tensors
    if at.packed is None or any(len(t.shape) < 3 or math.prod(t.shape[:-3]) != 1 for t in tensors):
        return None
    both = [
        _sequences(call, t, at.packed + i, None if at.longest is None else at.longest + i) for i, t in enumerate((q, k))
    ]
    queries, keys = both
    if queries is None or keys is None or k.shape[-3] != v.shape[-3]:
        return None
    pairs = packed_pairs(queries, keys, mask.left, mask.right, bottom_right=mask.bottom_right)
    return None if pairs is None else Problem(q, k, v, q.shape[-2], pairs, queries.tokens)


def _sequences(call: Call, tokens: Tensor, cumulative: int, longest: int | None) -> Packed | None:
    """The cumulative lengths have one entry more than there are sequences; no sequence is longer than all tokens."""
    marks = call.tensor(cumulative)
    if marks is None or len(marks.shape) != 1 or marks.shape[0] < 2:
        return None
    total = tokens.shape[-3]
    most = None if longest is None else call.integer(longest)
    return Packed(total, marks.shape[0] - 1, total if most is None else min(most, total))


def _output(call: Call, at: Layout, found: Problem) -> int:
    """Bytes of the output: as handed in, else of the query's dtype; of 8-bit queries it is bf16."""
    given = None if at.out is None else call.tensor(at.out)
    dtype = "bf16" if found.q.dtype.startswith("fp8") else found.q.dtype
    return dense((found.heads, found.rows, found.v.shape[-1]), dtype if given is None else given.dtype)


def _bias(call: Call, at: Layout) -> int:
    bias = call.tensor(at.bias) if at.bias is not None else None
    return bias.bytes if bias else 0


def forward_work(call: Call, at: Layout) -> Work | None:
    """Q·Kᵀ and P·V; reads q, k, v and a bias, writes the output and the log-sum-exp."""
    found = problem(call, at)
    if found is None:
        return None
    read = found.q.bytes + found.k.bytes + found.v.bytes + _bias(call, at)
    written = _output(call, at, found) + dense((found.heads, found.rows), "fp32")
    return found.work(found.q.shape[-1] + found.v.shape[-1], read + written)


def backward_work(call: Call, at: Layout) -> Work | None:
    """Five products; reads q, k, v, output, its gradient, log-sum-exp and bias, writes dq, dk, dv."""
    found = problem(call, at)
    if found is None:
        return None
    out = _output(call, at, found)  # the forward's output, and its gradient
    read = found.q.bytes + found.k.bytes + found.v.bytes + 2 * out + dense((found.heads, found.rows), "fp32")
    written = sum(dense(t.shape, t.dtype) for t in (found.q, found.k, found.v))
    return found.work(3 * found.q.shape[-1] + 2 * found.v.shape[-1], read + written + _bias(call, at))


def forward(at: Layout | Callable[[Call], Layout | None]) -> Formula:
    """The formula of a forward op by its layout, or by what finds the layout in a call."""
    return Formula("attention", _counted(forward_work, at), matrix=True, concrete=True, lead=_lead(at))


def backward(at: Layout | Callable[[Call], Layout | None]) -> Formula:
    """The formula of a backward op."""
    return Formula("attention_backward", _counted(backward_work, at), matrix=True, concrete=True, lead=_lead(at))


def _lead(at: Layout | Callable[[Call], Layout | None]) -> int | None:
    return at.first if isinstance(at, Layout) else None


def _counted(
    work: Callable[[Call, Layout], Work | None], at: Layout | Callable[[Call], Layout | None]
) -> Callable[[Call], Work | None]:
    def count(call: Call) -> Work | None:
        layout = at if isinstance(at, Layout) else at(call)
        return None if layout is None else work(call, layout)

    return count


def _either(plain: Layout, scaled: Layout, given: Callable[[Call], bool]) -> Callable[[Call], Layout]:
    """Of two overloads with one name the one that the call is of."""
    return lambda call: scaled if given(call) else plain


def _has_scales(call: Call) -> bool:
    """(q, k, v, q_descale?, k_descale?, v_descale?, dropout_p, …): no number where the plain overload has dropout_p."""
    return len(call.arguments) > 4 and call[3].type != "Scalar"


_FLASH = Layout(causal=8, heads_first=False, bottom_right=True, packed=3, longest=5, window=11, hidden=(13, 15))
# (q, k, v, cum_seq_q, cum_seq_k, max_q, max_k, dropout_p, is_causal, debug, scale, window left, right, seqused_k,
# alibi, block_table, num_splits); with scales of 8-bit inputs at 10 to 12 the rest comes later, 18 arguments in all
_FLASH_SCALED = replace(_FLASH, window=14, hidden=(16,))
_FLASH_INPLACE = Layout(
    causal=9, first=1, heads_first=False, bottom_right=True, packed=4, longest=6, window=12, hidden=(14, 16), out=0
)

TABLE: dict[str, Formula] = {
    # Arguments q, k, v, attn_mask, dropout_p, is_causal, scale, enable_gqa; (B, H, S, D) here and where not told
    "aten::scaled_dot_product_attention": forward(Layout(causal=5, bias=3)),
    "aten::_scaled_dot_product_attention_math": forward(Layout(causal=5, bias=3)),
    # (q, k, v, dropout_p, is_causal, …)
    "aten::_scaled_dot_product_flash_attention": forward(_either(Layout(causal=4), Layout(causal=7), _has_scales)),
    "aten::_scaled_dot_product_flash_attention_for_cpu": forward(Layout(causal=4, bias=5)),
    # (q, k, v, attn_bias, compute_logsumexp, dropout_p, is_causal, …)
    "aten::_scaled_dot_product_efficient_attention": forward(Layout(causal=6, bias=3)),
    "aten::_scaled_dot_product_cudnn_attention": forward(Layout(causal=6, bias=3)),
    # (q, k, v, attn_bias, dropout_p, is_causal, …)
    "aten::_scaled_dot_product_fused_attention_overrideable": forward(Layout(causal=5, bias=3)),
    "aten::_flash_attention_forward": forward(_either(_FLASH, _FLASH_SCALED, lambda call: len(call.arguments) == 18)),
    "aten::_flash_attention_forward_no_dropout_inplace": forward(_FLASH_INPLACE),
    # (q, k, v, bias, cu_seqlens_q, cu_seqlens_k, max_q, max_k, dropout_p, custom_mask_type, compute_lse, scale,
    # seqlen_k, window_size), (B, S, H, D)
    "aten::_efficient_attention_forward": forward(
        Layout(custom_mask=9, bias=3, heads_first=False, packed=4, longest=6, span=13, hidden=(12,))
    ),
    # (q, k, v, attn_bias, cum_seq_q, cum_seq_k, max_q, max_k, compute_lse, dropout_p, is_causal, …), (B, H, S, D)
    "aten::_cudnn_attention_forward": forward(Layout(causal=10, bias=3, packed=4, longest=6)),
    # (grad, q, k, v, out, lse, cum_seq_q, cum_seq_k, max_q, max_k, dropout_p, is_causal, …)
    "aten::_scaled_dot_product_flash_attention_backward": backward(Layout(causal=11, first=1, packed=6, longest=8)),
    # (grad, q, k, v, out, lse, dropout_p, is_causal, attn_mask, …)
    "aten::_scaled_dot_product_flash_attention_for_cpu_backward": backward(Layout(causal=7, first=1, bias=8)),
    # (grad, q, k, v, attn_bias, out, lse, seed, offset, dropout_p, mask, is_causal, …)
    "aten::_scaled_dot_product_efficient_attention_backward": backward(Layout(causal=11, first=1, bias=4)),
    # (grad, q, k, v, out, lse, seed, offset, attn_bias, cum_seq_q, cum_seq_k, max_q, max_k, dropout_p, is_causal, …)
    "aten::_scaled_dot_product_cudnn_attention_backward": backward(
        Layout(causal=14, first=1, bias=8, packed=9, longest=11)
    ),
    "aten::_cudnn_attention_backward": backward(Layout(causal=14, first=1, bias=8, packed=9, longest=11)),
    # (grad, q, k, v, attn_bias, mask, out, lse, cum_seq_q, cum_seq_k, max_q, max_k, dropout_p, is_causal, …)
    "aten::_scaled_dot_product_fused_attention_overrideable_backward": backward(
        Layout(causal=13, first=1, bias=4, packed=8, longest=10)
    ),
    # (grad, q, k, v, out, lse, cum_seq_q, cum_seq_k, max_q, max_k, dropout_p, is_causal, rng, unused, scale,
    # window left, right), (B, S, H, D)
    "aten::_flash_attention_backward": backward(
        Layout(causal=11, first=1, heads_first=False, bottom_right=True, packed=6, longest=8, window=15)
    ),
    # (grad, q, k, v, bias, out, cu_seqlens_q, cu_seqlens_k, max_q, max_k, lse, dropout_p, seed, offset, mask type,
    # bias_requires_grad, scale, num_splits_key, window_size, …), (B, S, H, D)
    "aten::_efficient_attention_backward": backward(
        Layout(custom_mask=14, first=1, bias=4, heads_first=False, packed=6, longest=8, span=18)
    ),
}
