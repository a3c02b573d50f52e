"""Grouped products and mixtures of experts: each row (or slice of K) meets one expert's weights.

The groups' sizes are values of a tensor and not in the trace, but they add up: of M rows, 2·M·N·K FLOPs whatever the
groups. (A buffer longer than its groups is counted in full.) Bytes: every operand once; of the experts' weights no more
experts than there are rows, since an expert without a row is not read; which ones have none no trace tells.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from roofwatch.model.formulas.base import Formula, Work, dense, total_bytes
from roofwatch.model.formulas.quantized import dtype_at
from roofwatch.model.shapes import Call, Tensor

MATRIX, GROUPS = 2, 3  # dimensions of a plain operand and of one with a matrix a group


def _experts(weights: Tensor, rows: int) -> int:
    """Bytes of the experts that can have a row at all."""
    count = weights.shape[0]
    return weights.bytes * min(count, rows) // count if count else 0


def grouped_product(a: Tensor, b: Tensor, groups: int | None) -> tuple[tuple[int, ...], int, int] | None:
    """(output shape, multiply-adds, bytes of both operands) of _grouped_mm's four forms; None where they do not fit.

    (M, K)·(G, K, N) rows in groups; (G, M, K)·(K, N) columns in groups; (M, K)·(K, N) K in groups, a product each;
    (G, M, K)·(G, K, N) a product each.
    """
    if a.shape[-1:] != b.shape[-2:-1]:
        return None
    m, k, n = a.shape[-2], a.shape[-1], b.shape[-1]
    match len(a.shape), len(b.shape):
        case (2, 3):
            return (m, n), m * n * k, a.bytes + _experts(b, m)
        case (3, 2):
            return (m, n), m * n * k, _experts(a, n) + b.bytes
        case (2, 2):
            return None if groups is None else ((groups, m, n), m * n * k, a.bytes + b.bytes)
        case (3, 3) if a.shape[0] == b.shape[0]:
            return (a.shape[0], m, n), a.shape[0] * m * n * k, a.bytes + b.bytes
    return None


def _grouped(offsets_at: int, dtype_position: int, scales_from: int, default: str | None) -> Formula:
    """(a, b, …, offsets?, bias?, …, out_dtype?): ``default`` is the dtype without an out_dtype, None for a's."""

    def count(call: Call) -> Work | None:
        a, b, offsets = call.tensor(0), call.tensor(1), call.tensor(offsets_at)
        out = dtype_at(call, dtype_position, default or (a.dtype if a is not None else None))
        if a is None or b is None or out is None or min(len(a.shape), len(b.shape)) < MATRIX:
            return None
        found = grouped_product(a, b, None if offsets is None else offsets.numel)
        if found is None:
            return None
        shape, products, read = found
        values = 2 if a.dtype == "fp4x2" else 1  # in one element
        rest = total_bytes(call.tensor(i) for i in range(scales_from, len(call.arguments)))
        return Work(2 * products * values, read + rest + dense(shape, out))

    return Formula("grouped_mm", count, matrix=True, concrete=True, lead=0)


def gmm(call: Call) -> Work | None:
    """grouped_gemm's and megablocks' GroupedGemm(a (M, K), b (E, K, N) or (E, N, K), batch_sizes, trans_b)."""
    a, b = call.tensor(0), call.tensor(1)
    if a is None or b is None or len(a.shape) != MATRIX or len(b.shape) != GROUPS:
        return None
    m, k = a.shape
    if not k or k not in b.shape[1:]:
        return None
    n = math.prod(b.shape[1:]) // k
    return Work(2 * m * n * k, a.bytes + _experts(b, m) + dense((m, n), a.dtype))


def stacked(call: Call) -> Work | None:
    """Products of fbgemm (x (M, K), weights (G, N, K), scales…, sizes) → (M, N) bf16: all other tensors once."""
    x, weights = call.tensor(0), call.tensor(1)
    if x is None or weights is None or len(x.shape) != MATRIX or len(weights.shape) != GROUPS:
        return None
    if x.shape[1] != weights.shape[2]:
        return None
    m, k, n = *x.shape, weights.shape[1]
    rest = total_bytes(call.tensors[2:])
    return Work(2 * m * n * k, x.bytes + _experts(weights, m) + rest + dense((m, n), "bf16"))


def _fused_experts(map_at: Callable[[Call], int | None]) -> Callable[[Call], Work | None]:
    """fused_experts(x (T, H), w1 (E, N, H), w2 (E, H, I), weights (T, k), ids (T, k), …): every token meets k experts.

    Two products, 2·T·k·(N·H + H·I); the activation between them is left out. N is I, or 2·I with a gate. Weights of
    4 bits hold two values in a byte. With a map of experts (they are spread over devices) part of the tokens is not
    this device's: unknown.
    """

    def count(call: Call) -> Work | None:
        x, w1, w2, ids = (call.tensor(i) for i in (0, 1, 2, 4))
        at = map_at(call)
        if x is None or w1 is None or w2 is None or ids is None or (at is not None and call.tensor(at) is not None):
            return None
        if len(w1.shape) != GROUPS or len(w2.shape) != GROUPS or len(x.shape) != MATRIX or not w1.shape[2]:
            return None
        hidden, values = x.shape[1], x.shape[1] // w1.shape[2]  # values stored in one element of a weight
        inner, rows = w2.shape[2] * values, ids.numel
        if values not in (1, 2) or w1.shape[2] * values != hidden or w2.shape[1] != hidden:
            return None
        if w1.shape[1] not in (inner, 2 * inner) or ids.shape[:1] != x.shape[:1]:
            return None
        a_expert_each = [t for t in call.tensors[1:] if t.shape[:1] == w1.shape[:1] and t is not ids]
        routing = total_bytes((call.tensor(3), ids))
        moved = x.bytes + routing + sum(_experts(t, rows) for t in a_expert_each) + dense(x.shape, x.dtype)
        return Work(2 * rows * hidden * (w1.shape[1] + inner), moved)

    return count


def _expert_map(call: Call) -> int | None:
    """Position of the experts' map: integers beyond the ids (scales and biases are floating-point)."""
    positions = range(5, len(call.arguments))
    return next((i for i in positions if (t := call.tensor(i)) and t.dtype in ("int32", "int64")), None)


def top_experts(call: Call) -> Work | None:
    """topk_softmax(weights (T, k), ids, …, gates (T, E), …): softmax (5 an element) and the largest k."""
    tensors = call.tensors
    gates = max(tensors, key=lambda t: t.numel, default=None)
    return None if gates is None else Work(5 * gates.numel, total_bytes(tensors))


def sum_experts(call: Call) -> Work | None:
    """moe_sum(parts (T, k, H), out (T, H)): the k results of a token added."""
    parts, out = call.tensor(0), call.tensor(1)
    if parts is None or out is None or len(parts.shape) != GROUPS:
        return None
    return Work(parts.numel - out.numel, parts.bytes + out.bytes)


def align_experts(call: Call) -> Work | None:
    """moe_align_block_size(ids, experts, block size, sorted ids, …): every id read, and written at its place."""
    ids, placed = call.tensor(0), call.tensor(3)
    if ids is None or placed is None:
        return None
    return Work(0, ids.bytes + min(ids.numel, placed.numel) * placed.item)


def permute_rows(call: Call) -> Work | None:
    """shuffle_rows(x, map, out): a row read and written for each entry of the map."""
    x, index, out = call.tensor(0), call.tensor(1), call.tensor(2)
    if x is None or index is None or out is None:
        return None
    return Work(0, index.bytes + min(x.bytes, out.numel * x.item) + out.bytes)


FUSED_EXPERTS = Formula("fused_experts", _fused_experts(_expert_map), matrix=True, lead=0)
TOP_EXPERTS = Formula("top_experts", top_experts)
ALIGN = Formula("align_experts", align_experts)
GMM = Formula("grouped_mm", gmm, matrix=True, lead=0)
STACKED = Formula("grouped_mm", stacked, matrix=True, lead=0)

TABLE: dict[str, Formula] = {
    # (a, b, offsets?, bias?, out_dtype?)
    "aten::_grouped_mm": _grouped(2, 4, 2, None),
    # (a, b, scale_a, scale_b, offsets?, bias?, scale_result?, out_dtype?, …)
    "aten::_scaled_grouped_mm": _grouped(4, 7, 2, "bf16"),
    # (a, b, scales_a, recipe, swizzle, scales_b, recipe, swizzle, offsets?, bias?, out_dtype?, …)
    "aten::_scaled_grouped_mm_v2": _grouped(8, 10, 2, "bf16"),
    "GroupedGemm": GMM,
    **{
        f"{space}::{name}": STACKED
        for space in ("fbgemm", "mslk")
        for name in ("bf16bf16bf16_grouped_stacked", "f8f8bf16_rowwise_grouped_stacked")
    },
    "vllm::inplace_fused_experts": FUSED_EXPERTS,
    "vllm::outplace_fused_experts": FUSED_EXPERTS,
    "sglang::inplace_fused_experts": FUSED_EXPERTS,
    "sglang::outplace_fused_experts": FUSED_EXPERTS,
    "aiter::fused_moe_": FUSED_EXPERTS,
    "_moe_C::topk_softmax": TOP_EXPERTS,
    "sgl_kernel::topk_softmax": TOP_EXPERTS,
    "_moe_C::moe_sum": Formula("sum_experts", sum_experts),
    "_moe_C::moe_align_block_size": ALIGN,
    "_moe_C::sgl_moe_align_block_size": ALIGN,
    "sgl_kernel::moe_align_block_size": ALIGN,
    "sgl_kernel::shuffle_rows": Formula("permute_rows", permute_rows),
}
