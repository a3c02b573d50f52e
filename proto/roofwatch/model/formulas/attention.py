"""Scaled-dot-product attention: forward 2·B·H·pairs·(D_qk + D_v), backward 2·B·H·pairs·(3·D_qk + 2·D_v).

Forward is two products over the (query, key) pairs, Q·Kᵀ and P·V; backward is five: Q·Kᵀ once more, dP = dO·Vᵀ,
dV = Pᵀ·dO, dQ = dS·K, dK = dSᵀ·Q. (torch's FlopCounterMode counts the same five.)
``pairs`` is S_q·S_k, or under a causal mask the pairs that a query may see. The mask of equal lengths is the lower
triangle with its diagonal, S(S+1)/2. For unequal lengths aten's mask is aligned to the top left and flash-attn's own
ops (2.1 and later) to the bottom right. Bytes: q, k, v, output once each; the log-sum-exp in fp32.
"""

from __future__ import annotations

from dataclasses import dataclass

from roofwatch.model.formulas.base import Formula, Work, dense
from roofwatch.model.shapes import Call, Tensor


def causal_pairs(queries: int, keys: int, *, bottom_right: bool) -> int:
    """How many (query, key) pairs a causal mask leaves.

    Query i sees keys j ≤ i (top left) or j ≤ i + keys - queries (bottom right).
    """
    if not bottom_right:
        seen = min(queries, keys)
        return seen * (seen + 1) // 2 + max(0, queries - keys) * keys
    shift = keys - queries
    if shift >= 0:
        return queries * shift + queries * (queries + 1) // 2
    return keys * (keys + 1) // 2


@dataclass(frozen=True, slots=True)
class _Layout:
    """Positions of an op's arguments. ``causal``: of the flag; ``custom_mask``: of a mask type number (0 = none)."""

    causal: int | None = None
    custom_mask: int | None = None
    bias: int | None = None
    first: int = 0  # position of the query
    heads_first: bool = True  # (B, H, S, D); else (B, S, H, D)
    bottom_right: bool = False
    varlen: int | None = None  # position of cu_seqlens: lengths are not in the trace when it is a tensor
    window: int | None = None  # position of window_size_left, followed by window_size_right


def _sizes(t: Tensor, *, heads_first: bool) -> tuple[int, int, int, int] | None:
    """(B, H, S, D); leading dimensions beyond four fold into the batch, a missing batch is one."""
    if len(t.shape) == 3:
        t = Tensor((1, *t.shape), t.dtype)
    if len(t.shape) < 4:
        return None
    *lead, a, b, d = t.shape
    batch = 1
    for n in lead:
        batch *= n
    return (batch, a, b, d) if heads_first else (batch, b, a, d)


def _pairs(call: Call, at: _Layout, queries: int, keys: int) -> int | None:
    causal: bool | None = False
    if at.causal is not None:
        causal = call.flag(at.causal)
    if at.window is not None:
        left, right = call.integer(at.window), call.integer(at.window + 1)
        if left is not None and left >= 0:
            return None  # a sliding window: fewer pairs than either count below
        if right is not None and right >= 0 and not (right == 0 and causal):
            return None  # likewise; only a right window of nothing is what causal means anyway
    bottom_right = at.bottom_right
    if at.custom_mask is not None:
        mask = call.integer(at.custom_mask)  # efficient attention: 0 none, 1 causal top left, 2 causal bottom right
        causal = None if mask is None else mask != 0
        bottom_right = mask == 2
    if causal is None:
        return None
    return causal_pairs(queries, keys, bottom_right=bottom_right) if causal else queries * keys


def _count(call: Call, at: _Layout) -> tuple[int, int, int, int, int] | None:
    """(batch × heads, pairs, D_qk, D_v, queries)."""
    q, k, v = (call.tensor(at.first + i) for i in range(3))
    if q is None or k is None or v is None or (at.varlen is not None and call.tensor(at.varlen) is not None):
        return None
    sized = [_sizes(t, heads_first=at.heads_first) for t in (q, k, v)]
    if any(s is None for s in sized):
        return None
    (batch, heads, queries, width), (_, _, keys, _), (_, _, _, out_width) = (s for s in sized if s is not None)
    pairs = _pairs(call, at, queries, keys)
    return None if pairs is None else (batch * heads, pairs, width, out_width, queries)


def _forward(at: _Layout) -> Formula:
    def count(call: Call) -> Work | None:
        found = _count(call, at)
        q, k, v = (call.tensor(at.first + i) for i in range(3))
        if found is None or q is None or k is None or v is None:
            return None
        heads, pairs, width, out_width, queries = found
        bias = call.tensor(at.bias) if at.bias is not None else None
        moved = q.bytes + k.bytes + v.bytes + (bias.bytes if bias else 0)
        written = dense((heads, queries, out_width), q.dtype) + dense((heads, queries), "fp32")
        return Work(2 * heads * pairs * (width + out_width), moved + written)

    return Formula("attention", count, matrix=True, concrete=True)


def _backward(at: _Layout) -> Formula:
    def count(call: Call) -> Work | None:
        found = _count(call, at)
        q, k, v = (call.tensor(at.first + i) for i in range(3))
        if found is None or q is None or k is None or v is None:
            return None
        heads, pairs, width, out_width, queries = found
        out = dense((heads, queries, out_width), q.dtype)  # the forward's output, and its gradient
        bias = call.tensor(at.bias) if at.bias is not None else None
        read = q.bytes + k.bytes + v.bytes + 2 * out + dense((heads, queries), "fp32") + (bias.bytes if bias else 0)
        written = dense(q.shape, q.dtype) + dense(k.shape, k.dtype) + dense(v.shape, v.dtype)
        return Work(2 * heads * pairs * (3 * width + 2 * out_width), read + written)

    return Formula("attention_backward", count, matrix=True, concrete=True)


TABLE: dict[str, Formula] = {
    # Arguments q, k, v, attn_mask, dropout_p, is_causal, scale, enable_gqa; (B, H, S, D) here and where not told
    "aten::scaled_dot_product_attention": _forward(_Layout(causal=5, bias=3)),
    "aten::_scaled_dot_product_attention_math": _forward(_Layout(causal=5, bias=3)),
    # (q, k, v, dropout_p, is_causal, …)
    "aten::_scaled_dot_product_flash_attention": _forward(_Layout(causal=4)),
    "aten::_scaled_dot_product_flash_attention_for_cpu": _forward(_Layout(causal=4, bias=5)),
    # (q, k, v, attn_bias, compute_logsumexp, dropout_p, is_causal, …)
    "aten::_scaled_dot_product_efficient_attention": _forward(_Layout(causal=6, bias=3)),
    "aten::_scaled_dot_product_cudnn_attention": _forward(_Layout(causal=6, bias=3)),
    # (q, k, v, attn_bias, dropout_p, is_causal, …)
    "aten::_scaled_dot_product_fused_attention_overrideable": _forward(_Layout(causal=5, bias=3)),
    # (q, k, v, cum_seq_q, cum_seq_k, max_q, max_k, dropout_p, is_causal, …), (B, S, H, D)
    "aten::_flash_attention_forward": _forward(
        _Layout(causal=8, heads_first=False, varlen=3, bottom_right=True, window=11)
    ),
    # (q, k, v, bias, cu_seqlens_q, cu_seqlens_k, max_q, max_k, dropout_p, custom_mask_type, …), (B, S, H, D)
    "aten::_efficient_attention_forward": _forward(_Layout(custom_mask=9, bias=3, heads_first=False, varlen=4)),
    # (q, k, v, attn_bias, cum_seq_q, cum_seq_k, max_q, max_k, compute_lse, dropout_p, is_causal, …), (B, H, S, D)
    "aten::_cudnn_attention_forward": _forward(_Layout(causal=10, bias=3, varlen=4)),
    # (grad, q, k, v, out, lse, cum_seq_q, cum_seq_k, max_q, max_k, dropout_p, is_causal, …)
    "aten::_scaled_dot_product_flash_attention_backward": _backward(_Layout(causal=11, first=1)),
    # (grad, q, k, v, out, lse, dropout_p, is_causal, attn_mask, …)
    "aten::_scaled_dot_product_flash_attention_for_cpu_backward": _backward(_Layout(causal=7, first=1, bias=8)),
    # (grad, q, k, v, attn_bias, out, lse, seed, offset, dropout_p, mask, is_causal, …)
    "aten::_scaled_dot_product_efficient_attention_backward": _backward(_Layout(causal=11, first=1, bias=4)),
    # (grad, q, k, v, out, lse, seed, offset, attn_bias, cum_seq_q, cum_seq_k, max_q, max_k, dropout_p, is_causal, …)
    "aten::_scaled_dot_product_cudnn_attention_backward": _backward(_Layout(causal=14, first=1, bias=8)),
    # (grad, q, k, v, out, lse, cum_seq_q, cum_seq_k, max_q, max_k, dropout_p, is_causal, …), (B, S, H, D)
    "aten::_flash_attention_backward": _backward(
        _Layout(causal=11, first=1, heads_first=False, varlen=6, bottom_right=True, window=15)
    ),
    # (grad, q, k, v, bias, out, cu_seqlens_q, cu_seqlens_k, max_q, max_k, lse, dropout_p, seed, offset, mask type, …)
    "aten::_efficient_attention_backward": _backward(
        _Layout(custom_mask=14, first=1, bias=4, heads_first=False, varlen=6)
    ),
    # (grad, q, k, v, out, lse, seed, offset, attn_bias, cum_seq_q, cum_seq_k, max_q, max_k, dropout_p, is_causal, …)
    "aten::_cudnn_attention_backward": _backward(_Layout(causal=14, first=1, bias=8, varlen=9)),
    # flash_attn 2.x: (q, k, v, dropout_p, scale, causal, window left, window right, …), (B, S, H, D)
    "flash_attn::_flash_attn_forward": _forward(_Layout(causal=5, heads_first=False, bottom_right=True, window=6)),
}
