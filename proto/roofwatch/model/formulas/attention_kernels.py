"""Attention of libraries beside aten: flash-attn 2 and 3, its copies in serving engines, and aiter's for AMD devices.

All take (B, S, H, D), packed (T, H, D), and align their masks to the bottom right. Positions are those of each
library's op schema.
"""

from __future__ import annotations

from dataclasses import replace

from roofwatch.model.formulas.attention import Layout, Problem, backward, forward, problem
from roofwatch.model.formulas.base import Formula, Work, dense
from roofwatch.model.shapes import Call, Tensor

_BASE = Layout(heads_first=False, bottom_right=True)

# flash-attn 2: (q, k, v, dropout_p, scale, causal, window left, right, …)
_FLASH2 = replace(_BASE, causal=5, window=6)
# (q, k, v, cu_seqlens_q, cu_seqlens_k, max_q, max_k, dropout_p, scale, causal, window left, right, softcap, alibi,
# return_softmax, block_table, leftpad_k, seqused_k)
_FLASH2_PACKED = replace(_BASE, causal=9, packed=3, longest=5, window=10, hidden=(15, 16, 17))
# (dout, q, k, v, out, lse, dq, dk, dv, dropout_p, scale, causal, window left, right, …)
_FLASH2_BACKWARD = replace(_BASE, causal=11, first=1, window=12)
# (dout, q, k, v, out, lse, dq, dk, dv, cu_seqlens_q, cu_seqlens_k, max_q, max_k, dropout_p, scale, causal, window …)
_FLASH2_PACKED_BACKWARD = replace(_BASE, causal=15, first=1, packed=9, longest=11, window=16)

# flash-attn 3: (q, k, v, k_new, v_new, qv, out, cu_seqlens_q, cu_seqlens_k, cu_seqlens_k_new, seqused_q, seqused_k,
# max_q, max_k, page_table, kv_batch_idx, leftpad_k, rotary ×3, descale ×3, scale, causal, window left, right,
# attention_chunk or (before it existed) softcap, which is no integer, …)
_FLASH3 = replace(
    _BASE, causal=24, packed=7, longest=12, window=25, hidden=(3, 4, 5, 9, 10, 11, 14, 15, 16), zero=(27,), out=6
)
# (dout, q, k, v, out, lse, dq, dk, dv, cu_seqlens_q, cu_seqlens_k, seqused_q, seqused_k, max_q, max_k, scale, causal,
# window left, right, …)
_FLASH3_BACKWARD = replace(_BASE, causal=16, first=1, packed=9, longest=13, window=17, hidden=(11, 12))
# its Python op: (dout, q, k, v, out, lse, cu_seqlens_q, cu_seqlens_k, seqused_q, seqused_k, max_q, max_k, dq, dk, dv,
# scale, causal, window left, right, …)
_FLASH3_PYTHON_BACKWARD = replace(_BASE, causal=16, first=1, packed=6, longest=10, window=17, hidden=(8, 9))

# vLLM's build of flash-attn 2: (q, k, v, out, cu_seqlens_q, cu_seqlens_k, seqused_k, leftpad_k, block_table, alibi,
# max_q, max_k, dropout_p, scale, zero_tensors, causal, window left, right, …)
_VLLM2_PACKED = replace(_BASE, causal=15, packed=4, longest=10, window=16, hidden=(6, 7, 8), out=3)
# (q, k_cache, v_cache, k, v, seqlens_k, rotary ×2, cache_batch_idx, leftpad_k, block_table, alibi, out, scale, causal,
# window left, right, …)
_VLLM2_CACHE = replace(_BASE, causal=14, window=15, hidden=(3, 4, 5, 8, 9, 10), out=12)

# aiter: (q, k, v, dropout_p, scale, causal, window left, right, …): a bias comes at changing places and is left out
_AITER = replace(_BASE, causal=5, window=6)
# (dout, q, k, v, out, lse, dropout_p, scale, causal, window left, right, …)
_AITER_BACKWARD = replace(_BASE, causal=8, first=1, window=9)
# (dout, q, k, v, out, lse, cu_seqlens_q, cu_seqlens_k, max_q, max_k, dropout_p, scale, zero_tensors, causal, window …)
_AITER_PACKED_BACKWARD = replace(_BASE, causal=13, first=1, packed=6, longest=8, window=14)


def _aiter_packed(call: Call) -> Layout | None:
    """The packed forward of aiter: (q, k, v, cu_seqlens_q, _k, max_q, max_k, …, zero_tensors, causal, window …).

    What stands between the lengths and the flags has grown from version to version; the two flags are the first two
    booleans that follow each other. Pages and padded cumulative lengths, integer tensors at the end, hide the lengths.
    """
    texts = [argument.text for argument in call.arguments]
    flags = (i for i in range(7, len(texts) - 1) if {texts[i], texts[i + 1]} <= {"True", "False"})
    zero_tensors = next(flags, None)
    if zero_tensors is None:
        return None
    after = range(zero_tensors + 4, len(texts))
    hidden = tuple(i for i in after if (t := call.tensor(i)) is not None and t.dtype.startswith("int"))
    return replace(_BASE, causal=zero_tensors + 1, packed=3, longest=5, window=zero_tensors + 2, hidden=hidden)


def _function(at: Layout) -> Formula:
    """flash-attn's autograd functions, which launch the kernels themselves where no op is registered.

    Their window is a tuple, which a trace does not record. So the mask lies between one key a query (as few as a
    window leaves) and no window: a range.
    """

    def count(call: Call) -> Work | None:
        whole = _apart(call)
        found = None if whole is None else problem(whole, at)
        if whole is None or found is None:
            return None
        most = found.pairs[1]
        least = min(found.rows, found.k.shape[-3], most)
        if at.packed is not None and not _self_attention(whole, found):
            return None  # a sequence may have fewer keys than queries, or none
        out = dense((found.heads, found.rows, found.v.shape[-1]), found.q.dtype)
        moved = found.q.bytes + found.k.bytes + found.v.bytes + out + dense((found.heads, found.rows), "fp32")
        return replace(found, pairs=(least, most)).work(found.q.shape[-1] + found.v.shape[-1], moved)

    return Formula("attention", count, matrix=True, concrete=True)


def _self_attention(call: Call, found: Problem) -> bool:
    """Whether queries and keys have the same lengths: as many tokens, and the longest alike."""
    return found.q.shape[-3] == found.k.shape[-3] and call.integer(5) == call.integer(6)


def _apart(call: Call) -> Call | None:
    """The call with q, k and v apart where one argument holds them: (…, 3, H, D), or q and (…, 2, H, D)."""
    first = 0 if "QKVPacked" in call.op else 1 if "KVPacked" in call.op else None
    if first is None:
        return call
    whole, parts = call.tensor(first), 3 - first
    if whole is None or len(whole.shape) < 4 or whole.shape[-3] != parts:
        return None
    part = replace(call[first], tensor=Tensor((*whole.shape[:-3], *whole.shape[-2:]), whole.dtype))
    rest = call.arguments[first + 1 :]
    if "VarlenQKV" in call.op:  # one list of lengths and one maximum for all three
        rest = (*rest[:1] * 2, *rest[1:2] * 2, *rest[2:])
    return Call(call.op, (*call.arguments[:first], *(part,) * parts, *rest), call.kernel)


# (q, k, v, dropout_p, scale, causal, window, …) and (q, k, v, cu_seqlens_q, cu_seqlens_k, max_q, max_k, dropout_p,
# scale, causal, window, …)
_FUNCTION = replace(_BASE, causal=5)
_FUNCTION_PACKED = replace(_BASE, causal=9, packed=3, longest=5)

TABLE: dict[str, Formula] = {
    **{
        f"{space}::{name}": formula
        for space in ("flash_attn", "flashattn")
        for name, formula in (
            ("_flash_attn_forward", forward(_FLASH2)),
            ("_flash_attn_varlen_forward", forward(_FLASH2_PACKED)),
            ("_flash_attn_backward", backward(_FLASH2_BACKWARD)),
            ("_flash_attn_varlen_backward", backward(_FLASH2_PACKED_BACKWARD)),
        )
    },
    "FlashAttnFunc": _function(_FUNCTION),
    "FlashAttnKVPackedFunc": _function(_FUNCTION),
    "FlashAttnQKVPackedFunc": _function(_FUNCTION),
    "FlashAttnVarlenFunc": _function(_FUNCTION_PACKED),
    "FlashAttnVarlenKVPackedFunc": _function(_FUNCTION_PACKED),
    "FlashAttnVarlenQKVPackedFunc": _function(_FUNCTION_PACKED),
    "flash_attn_3::_flash_attn_forward": forward(_FLASH3),
    "flash_attn_3::fwd": forward(_FLASH3),
    "_vllm_fa3_C::fwd": forward(_FLASH3),
    "sgl_kernel::fwd": forward(_FLASH3),
    "flash_attn_3::bwd": backward(_FLASH3_BACKWARD),
    "flash_attn_3::_flash_attn_backward": backward(_FLASH3_PYTHON_BACKWARD),
    "_vllm_fa2_C::varlen_fwd": forward(_VLLM2_PACKED),
    "_vllm_fa2_C::fwd_kvcache": forward(_VLLM2_CACHE),
    "aiter::mha_fwd": forward(_AITER),
    "aiter::fmha_v3_fwd": forward(_AITER),
    "aiter::mha_bwd": backward(_AITER_BACKWARD),
    "aiter::fmha_v3_bwd": backward(_AITER_BACKWARD),
    "aiter::mha_varlen_fwd": forward(_aiter_packed),
    "aiter::fmha_v3_varlen_fwd": forward(_aiter_packed),
    "aiter::mha_varlen_bwd": backward(_AITER_PACKED_BACKWARD),
    "aiter::fmha_v3_varlen_bwd": backward(_AITER_PACKED_BACKWARD),
}
