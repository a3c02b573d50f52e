"""Vector ops of serving engines (vLLM, SGLang, aiter): norms, gates, quantisation, rotary embedding, cache writes.

They take their outputs as arguments, so most move exactly the tensors they are given. FLOPs an element, from the
formula text: RMS norm 4 (square, sum, two products), a residual added 1; quantisation by a given scale 1, by the
largest element 2.
"""

from __future__ import annotations

from collections.abc import Callable

from roofwatch.model.formulas import elementwise, matmul, movement, norm
from roofwatch.model.formulas.base import Formula, Work, dense, total_bytes
from roofwatch.model.shapes import Call

NORM, ADD, SCALE, LARGEST = 4, 1, 1, 2


def _given(name: str, flops: int, x_at: int, twice: tuple[int, ...] = ()) -> Formula:
    """All tensors once (those at ``twice`` read and written), ``flops`` an element of the tensor at ``x_at``."""

    def count(call: Call) -> Work | None:
        x = call.tensor(x_at)
        if x is None:
            return None
        return Work(flops * x.numel, total_bytes(call.tensors) + total_bytes(call.tensor(i) for i in twice))

    return Formula(name, count)


def _fresh(name: str, flops: int, outputs: int) -> Formula:
    """All tensors once, and as many fresh outputs like the first."""

    def count(call: Call) -> Work | None:
        x = call.tensor(0)
        if x is None:
            return None
        return Work(flops * x.numel, total_bytes(call.tensors) + outputs * dense(x.shape, x.dtype))

    return Formula(name, count)


def norm_and_quantize(call: Call) -> Work | None:
    """rms_norm_dynamic_per_token_quant(out, x, weight, scale, eps, scale_ub?, residual?): the residual in place."""
    x, residual = call.tensor(1), call.tensor(6)
    if x is None:
        return None
    flops = NORM + LARGEST + (ADD if residual is not None else 0)
    return Work(flops * x.numel, total_bytes(call.tensors) + total_bytes((residual,)))


def latent_cache_write(call: Call) -> Work | None:
    """concat_and_cache_mla(latent, rotary key, cache, slots, …): both read, and written at the cache's item size."""
    latent, rotary, cache, slots = (call.tensor(i) for i in range(4))
    if latent is None or rotary is None or cache is None:
        return None
    return Work(0, total_bytes((latent, rotary, slots)) + (latent.numel + rotary.numel) * cache.item)


def rope_into(call: Call) -> Work | None:
    """apply_rope_pos_ids_cos_sin_cache(q, k, q out, k out, cosines and sines, positions, …).

    Of each head the first ``cache.shape[-1]`` elements are rotated, three operations each; of the cache a row is read
    for each position, at most every row once.
    """
    heads = [call.tensor(i) for i in range(4)]
    cache, positions = call.tensor(4), call.tensor(5)
    if cache is None or positions is None or len(cache.shape) != 2 or any(t is None or not t.shape for t in heads):
        return None
    rows, width = cache.shape
    rotated = sum(t.numel * min(width, t.shape[-1]) // t.shape[-1] for t in heads[:2] if t is not None and t.shape[-1])
    moved = total_bytes(heads) + positions.bytes + min(positions.numel, rows) * width * cache.item
    return Work(3 * rotated, moved)


def per_group(call: Call) -> Work | None:
    """(x, quantised, scales, …): the largest of each group, and a product an element."""
    x = call.tensor(0)
    return None if x is None else Work(LARGEST * x.numel, total_bytes(call.tensors))


def gated_and_quantized(call: Call) -> Work | None:
    """silu_and_mul_quant(out, x, scale): a gate (5) and a scale an output."""
    out = call.tensor(0)
    return None if out is None else Work((5 + SCALE) * out.numel, total_bytes(call.tensors))


def group_norm(call: Call) -> Work | None:
    """_groupnorm_run(x, groups, weight, bias, eps): x read, y written; 6 an element, 1 for each parameter."""
    x, parameters = call.tensor(0), (call.tensor(2), call.tensor(3))
    if x is None:
        return None
    flops = 6 + sum(p is not None for p in parameters)
    return Work(flops * x.numel, x.bytes + dense(x.shape, x.dtype) + total_bytes(parameters))


def _named(spaces: tuple[str, ...], names: str, formula: Formula) -> dict[str, Formula]:
    return {f"{space}::{name}": formula for space in spaces for name in names.split()}


def _counted(name: str, count: Callable[[Call], Work | None]) -> Formula:
    return Formula(name, count)


ENGINES = ("_C", "sgl_kernel", "aiter")
RMS_NORM = _counted("rms_norm", norm.custom_rms_norm)  # (out, x, weight, eps)
RMS_NORM_FRESH = _fresh("rms_norm", NORM, 1)  # (x, weight, eps)
ADD_RMS_NORM = _counted("fused_add_rms_norm", norm.fused_add_rms_norm)  # (x, residual, weight, eps), in place
ADD_RMS_NORM_INTO = _given("fused_add_rms_norm", NORM + ADD, 1)  # (out, x, residual in, residual out, weight, eps)
GATED = _counted("gated_activation", elementwise.gated)  # (out, x)
QUANTIZE = _given("quantize", SCALE, 1)  # (out, x, scale)
QUANTIZE_DYNAMIC = _given("quantize", LARGEST, 1)  # (out, x, scale out, …)
GROUP_QUANTIZE = _counted("quantize", per_group)  # (x, out, scales out, …)
CACHE_WRITE = _counted("cache_write", movement.cache_write)
# (v, log-sum-exps, v, log-sum-exps, out, …) in any order: two products and a sum an element
MERGE = _given("merge_states", 3, 0)

TABLE: dict[str, Formula] = {
    **_named(("sgl_kernel", "aiter"), "rmsnorm gemma_rmsnorm rms_norm_cu", RMS_NORM),
    **_named(("aiter",), "rms_norm rmsnorm2d_fwd rmsnorm2d_fwd_ck", RMS_NORM_FRESH),
    "vllm::rocm_aiter_rms_norm": RMS_NORM_FRESH,
    **_named(("sgl_kernel",), "fused_add_rmsnorm gemma_fused_add_rmsnorm", ADD_RMS_NORM),
    "aiter::fused_add_rms_norm_cu": ADD_RMS_NORM,
    **_named(("aiter",), "rmsnorm2d_fwd_with_add rmsnorm2d_fwd_with_add_ck add_rmsnorm", ADD_RMS_NORM_INTO),
    "vllm::rocm_aiter_rmsnorm2d_fwd_with_add": _fresh("fused_add_rms_norm", NORM + ADD, 2),
    "_C::rms_norm_static_fp8_quant": _given("rms_norm", NORM + SCALE, 1),
    "_C::fused_add_rms_norm_static_fp8_quant": _given("fused_add_rms_norm", NORM + ADD + SCALE, 1, twice=(2,)),
    "_C::rms_norm_dynamic_per_token_quant": _counted("rms_norm", norm_and_quantize),
    "_C::rms_norm_per_block_quant": _counted("rms_norm", norm_and_quantize),
    "aiter::_groupnorm_run": _counted("group_norm", group_norm),
    **_named(ENGINES, "silu_and_mul gelu_and_mul gelu_tanh_and_mul", GATED),
    **_named(("_C",), "mul_and_silu fatrelu_and_mul swigluoai_and_mul", GATED),
    "_C::silu_and_mul_quant": _counted("gated_activation", gated_and_quantized),
    "_C::gelu_quick": _given("activation", 5, 1),  # x · sigmoid(1.702 · x)
    # (1 + tanh(c·x·(1 + d·x²)))·x/2: the square and 8 more
    **_named(("_C",), "gelu_new gelu_fast", _given("activation", 9, 1)),
    **_named(("_C",), "static_scaled_fp8_quant static_scaled_int8_quant", QUANTIZE),
    **_named(("_C",), "dynamic_scaled_fp8_quant dynamic_scaled_int8_quant", QUANTIZE_DYNAMIC),
    "_C::dynamic_per_token_scaled_fp8_quant": QUANTIZE_DYNAMIC,
    **_named(("_C",), "per_token_group_fp8_quant per_token_group_quant_int8", GROUP_QUANTIZE),
    **_named(
        ("sgl_kernel",),
        "sgl_per_token_group_quant_fp8 sgl_per_token_group_quant_int8 sgl_per_token_group_quant_8bit "
        "sgl_per_token_quant_fp8 sgl_per_tensor_quant_fp8",
        GROUP_QUANTIZE,
    ),
    **_named(("_C_cache_ops", "aiter"), "reshape_and_cache reshape_and_cache_flash", CACHE_WRITE),
    "_C_cache_ops::concat_and_cache_mla": _counted("cache_write", latent_cache_write),
    "_C::merge_attn_states": MERGE,
    **_named(("sgl_kernel",), "merge_state merge_state_v2", MERGE),
    "sgl_kernel::apply_rope_pos_ids_cos_sin_cache": _counted("rope", rope_into),
    "vllm::rocm_unquantized_gemm": matmul.LINEAR,
}
