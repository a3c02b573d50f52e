"""Products of quantised operands: 2·M·N·K by the logical sizes, bytes as stored (packed weights, scales, zero points).

A weight that is only stored in few bits is converted in the kernel: the product runs in the activation's precision.
Where both operands are narrow (fp8, int8, two fp4 in a byte) it runs in theirs. Every tensor an op is given is moved
once, and the output, where the op makes it itself.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from roofwatch.model.formulas.base import SCALAR_TYPES, Formula, Work, dense, total_bytes
from roofwatch.model.formulas.matmul import gemm
from roofwatch.model.shapes import Call, Tensor

Columns = Callable[[Call], int | None]


def _rows(x: Tensor) -> tuple[int, int]:
    """(M, K) of an activation whose leading dimensions are all rows."""
    return math.prod(x.shape[:-1]), x.shape[-1]


def dtype_at(call: Call, at: int | None, default: str | None) -> str | None:
    """The dtype of an optional ScalarType argument; ``default`` where none is given, which its type tells."""
    if at is None:
        return default
    number = call.integer(at)
    if number is not None:
        return SCALAR_TYPES.get(number)
    return None if call[at].type == "Scalar" else default


def scaled_mm(call: Call) -> Work | None:
    """_scaled_mm(a, b, scale_a, scale_b, bias?, scale_result?, out_dtype?, …): without an out_dtype it is a's."""
    return _scaled(call, 6)


def scaled_mm_v2(call: Call) -> Work | None:
    """_scaled_mm_v2(a, b, scales_a, recipe, swizzle, scales_b, recipe, swizzle, bias?, out_dtype?, …).

    Scales come in lists, whose dtypes a trace does not tell: a byte each at least.
    """
    work = _scaled(call, 9)
    scales = sum(math.prod(shape) for i in (2, 5) for shape in call[i].shapes or ())
    return None if work is None else Work(work.flops, work.bytes + scales)


def _scaled(call: Call, out_at: int) -> Work | None:
    a = call.tensor(0)
    out = dtype_at(call, out_at, None if a is None else a.dtype)
    work = None if out is None else gemm(a, call.tensor(1), out)
    return None if work is None else Work(work.flops, work.bytes + total_bytes(call.tensors[2:]))


def int_mm(call: Call) -> Work | None:
    """_int_mm(a, b): int8 → int32."""
    return gemm(call.tensor(0), call.tensor(1), "int32")


def _weight_only(columns: Columns, x_at: int = 0) -> Callable[[Call], Work | None]:
    """An activation times a packed weight of N columns → the activation's dtype."""

    def count(call: Call) -> Work | None:
        x, n = call.tensor(x_at), columns(call)
        if x is None or not x.shape or n is None or n <= 0:
            return None
        m, k = _rows(x)
        return Work(2 * m * n * k, total_bytes(call.tensors) + dense((m, n), x.dtype))

    return count


def _width(at: int) -> Columns:
    """N is the last extent of a tensor (of scales, mostly)."""
    return lambda call: None if (t := call.tensor(at)) is None or not t.shape else t.shape[-1]


def _height(at: int) -> Columns:
    """N is the first extent of a tensor."""
    return lambda call: None if (t := call.tensor(at)) is None or not t.shape else t.shape[0]


def _elements(at: int) -> Columns:
    """One scale for each column."""
    return lambda call: None if (t := call.tensor(at)) is None or not t.shape else t.numel


def _number(at: int) -> Columns:
    return lambda call: call.integer(at)


def _tile_columns(call: Call) -> int | None:
    """Scales and zeros of _weight_int4pack_mm are (K/group, N, 2)."""
    scales = call.tensor(3)
    return scales.shape[1] if scales is not None and len(scales.shape) == 3 else None


def _machete_columns(call: Call) -> int | None:
    """(A, B, b_type, out_type, group_scales, group_zeros, group_size, channel_scales, …)."""
    return _width(4)(call) or _elements(7)(call)


def marlin(call: Call) -> Work | None:
    """Marlin's family: a, then packed weights, scales and workspace in an order that changed, then size_m, n, k.

    The sizes are the three numbers of which the first and the last are the activation's rows and width; a tensor of
    the output's shape is the output, handed in.
    """
    x = call.tensor(0)
    if x is None or not x.shape:
        return None
    m, k = _rows(x)
    found = (i for i in range(1, len(call.arguments) - 2) if call.integer(i) == m and call.integer(i + 2) == k)
    at = next(found, None)
    n = None if at is None else call.integer(at + 1)
    if n is None or n <= 0:
        return None
    read = total_bytes(t for t in call.tensors if t.shape != (m, n) or t is x)
    return Work(2 * m * n * k, read + dense((m, n), x.dtype if x.item > 1 else "bf16"))


def into_output(call: Call) -> Work | None:
    """(out, a, b, scales…): (M, N) handed in, a (M, K): all tensors once. A batch of products likewise."""
    out, a = call.tensor(0), call.tensor(1)
    if out is None or a is None or len(out.shape) < 2 or out.shape[:-1] != a.shape[:-1]:
        return None
    return Work(2 * out.numel * a.shape[-1], total_bytes(call.tensors))


def into_output_fp4(call: Call) -> Work | None:
    """(out, a, b, …) with two 4-bit values in each byte of a: K is twice its width."""
    work = into_output(call)
    return None if work is None else Work(2 * work.flops, work.bytes)


def _transposed(
    out: str | None, out_at: int | None = None, packed: int = 1, b_at: int = 1
) -> Callable[[Call], Work | None]:
    """(a (M, K), b (N, K / packed), scales…) → (M, N) in ``out`` or as a ScalarType argument says; batches of both."""

    def count(call: Call) -> Work | None:
        a, b, dtype = call.tensor(0), call.tensor(b_at), dtype_at(call, out_at, out)
        if a is None or b is None or dtype is None or len(b.shape) < 2 or a.shape[-1:] != (b.shape[-1] * packed,):
            return None
        if b.shape[:-2] not in ((), a.shape[:-2]):
            return None
        m, k = _rows(a)
        n = b.shape[-2]
        return Work(2 * m * n * k, total_bytes(call.tensors) + dense((m, n), dtype))

    return count


def _plain(out_at: int) -> Callable[[Call], Work | None]:
    """(a (M, K), b (K, N), scale_a, scale_b, …) → (M, N) as a ScalarType argument says."""

    def count(call: Call) -> Work | None:
        a, b, dtype = call.tensor(0), call.tensor(1), dtype_at(call, out_at, None)
        if a is None or b is None or len(b.shape) != 2 or dtype is None or a.shape[-1:] != b.shape[:1]:
            return None
        m, k = _rows(a)
        n = b.shape[1]
        return Work(2 * m * n * k, total_bytes(call.tensors) + dense((m, n), dtype))

    return count


def skinny(call: Call) -> Work | None:
    """Products of few rows (LLMM1, wvSplitK): (weight (N, K), x (M, K), …) → (M, N)."""
    weight, x = call.tensor(0), call.tensor(1)
    if weight is None or x is None or len(weight.shape) != 2 or x.shape[-1:] != weight.shape[-1:]:
        return None
    m, k = _rows(x)
    n = weight.shape[0]
    return Work(2 * m * n * k, total_bytes(call.tensors) + dense((m, n), x.dtype))


def skinny_into_output(call: Call) -> Work | None:
    """The fp8 one, wvSplitKQ (weight (N, K), x (M, K), …, out (M, N), scales): all tensors once."""
    weight, x = call.tensor(0), call.tensor(1)
    if weight is None or x is None or len(weight.shape) != 2 or x.shape[-1:] != weight.shape[-1:]:
        return None
    m, k = _rows(x)
    return Work(2 * m * weight.shape[0] * k, total_bytes(call.tensors))


def four_bit(call: Call) -> Work | None:
    """In bitsandbytes (x, packed weight, its shape [N, K], absmax, …) → (M, N)."""
    x, shape = call.tensor(0), call.integers(2)
    if x is None or shape is None or len(shape) != 2 or x.shape[-1:] != shape[1:]:
        return None
    m, k = _rows(x)
    return Work(2 * m * shape[0] * k, total_bytes(call.tensors) + dense((m, shape[0]), x.dtype))


def sparse_linear(call: Call) -> Work | None:
    """_sparse_semi_structured_linear(x (M, K), kept (N, K/2), meta): 2·M·N·K/2, since no zeros are multiplied."""
    x, weight = call.tensor(0), call.tensor(1)
    if x is None or weight is None or len(weight.shape) != 2 or x.shape[-1:] != (2 * weight.shape[1],):
        return None
    m, k = _rows(x)
    out = dtype_at(call, 5, "int32" if x.dtype == "int8" else x.dtype)
    if out is None:
        return None
    return Work(m * weight.shape[0] * k, total_bytes(call.tensors) + dense((m, weight.shape[0]), out))


def awq_dequantize(call: Call) -> Work | None:
    """(packed (K, N/8) int32, scales, zeros, …) → (K, N) in the scales' dtype: 2 an element."""
    packed, scales = call.tensor(0), call.tensor(1)
    if packed is None or scales is None or packed.dtype != "int32":
        return None
    elements = 8 * packed.numel
    return Work(2 * elements, total_bytes(call.tensors) + elements * scales.item)


def dequantize_4bit(call: Call) -> Work | None:
    """In bitsandbytes (packed, absmax, blocksize, type, shape, dtype) → shape: a product an element."""
    packed, shape, dtype = call.tensor(0), call.integers(4), dtype_at(call, 5, None)
    if packed is None or shape is None or dtype is None:
        return None
    return Work(math.prod(shape), total_bytes(call.tensors) + dense(shape, dtype))


def _product(name: str, count: Callable[[Call], Work | None], lead: int = 0, dtype: str | None = None) -> Formula:
    return Formula(name, count, matrix=True, concrete=True, lead=lead, dtype=dtype)


def _stored(columns: Columns) -> Formula:
    return _product("weight_only_mm", _weight_only(columns))


_MARLIN = _product("weight_only_mm", marlin)
_SCALED_INTO = _product("scaled_mm", into_output, lead=1)
_FP4_INTO = _product("scaled_mm", into_output_fp4, lead=1, dtype="fp4x2")
_NARROW = _product("scaled_mm", _transposed("bf16"))
_SKINNY = _product("matmul", skinny)

TABLE: dict[str, Formula] = {
    "aten::_int_mm": Formula("int_mm", int_mm, matrix=True),
    "aten::_scaled_mm": _product("scaled_mm", scaled_mm),
    "aten::_scaled_mm_v2": _product("scaled_mm", scaled_mm_v2),
    # aten: (x, weight (N, K), scales); (x, tiles, group size, scales and zeros (K/group, N, 2)); on a CPU (N, K/2)
    "aten::_weight_int8pack_mm": _stored(_height(1)),
    "aten::_weight_int4pack_mm": _stored(_tile_columns),
    "aten::_weight_int4pack_mm_for_cpu": _stored(_height(1)),
    "aten::_weight_int4pack_mm_with_scales_and_zeros": _stored(_height(1)),
    "aten::_mixed_dtypes_linear": _stored(_elements(2)),  # (x, weight, scale (N), bias, activation)
    "aten::_dyn_quant_matmul_4bit": _stored(_number(4)),  # (x, packed, block size, in features, out features)
    "aten::_sparse_semi_structured_linear": _product("sparse_mm", sparse_linear),
    # engines: (x, packed weight, zeros, scales (groups, N), …), (x, packed weight, scales (groups, N), zeros, …)
    "_C::gptq_gemm": _stored(_width(1)),
    "sgl_kernel::gptq_gemm": _stored(_width(1)),
    "_rocm_C::gptq_gemm_rdna3": _stored(_width(1)),
    "_rocm_C::gptq_gemm_rdna3_wmma": _stored(_width(1)),
    "_C::awq_gemm": _stored(_width(2)),
    "_C::machete_mm": _stored(_machete_columns),
    "_C::allspark_w8a16_gemm": _stored(_number(4)),  # (x, weight, scales, zeros, n, …)
    "_C::ggml_mul_mat_a8": _product("weight_only_mm", _weight_only(_number(3), x_at=1), lead=1),  # (W, x, type, rows)
    "_C::ggml_mul_mat_vec_a8": _product("weight_only_mm", _weight_only(_number(3), x_at=1), lead=1),
    **{f"_C::{n}": _MARLIN for n in ("marlin_gemm", "gptq_marlin_gemm", "gptq_marlin_24_gemm", "fp8_marlin_gemm")},
    "sgl_kernel::gptq_marlin_gemm": _MARLIN,
    "torchao::marlin_24_gemm": _MARLIN,
    "torchao::marlin_qqq_gemm": _MARLIN,
    "_C::marlin_qqq_gemm": _MARLIN,
    # (out, a, b, scales, …)
    "_C::cutlass_scaled_mm": _SCALED_INTO,
    "_C::cutlass_scaled_mm_azp": _SCALED_INTO,
    "_C::cutlass_scaled_fp4_mm": _FP4_INTO,
    "sgl_kernel::cutlass_scaled_fp4_mm": _FP4_INTO,
    "_C::dsv3_fused_a_gemm": _SCALED_INTO,
    "sgl_kernel::dsv3_fused_a_gemm": _SCALED_INTO,
    "sgl_kernel::dsv3_router_gemm": _SCALED_INTO,
    # (a (M, K), b (K, N), scales, out dtype, bias)
    **{f"sgl_kernel::{n}": _product("scaled_mm", _plain(4)) for n in ("int8_scaled_mm", "fp8_scaled_mm")},
    "sgl_kernel::fp8_blockwise_scaled_mm": _product("scaled_mm", _plain(4)),
    # AMD's few rows
    "_rocm_C::LLMM1": _SKINNY,
    "_rocm_C::wvSplitK": _SKINNY,
    "_rocm_C::wvSplitKrc": _SKINNY,
    "_rocm_C::wvSplitKQ": _product("scaled_mm", skinny_into_output),
    # bitsandbytes
    "bitsandbytes::gemv_4bit": _product("weight_only_mm", four_bit),
    "bitsandbytes::gemm_4bit": _product("weight_only_mm", four_bit),
    "bitsandbytes::int8_linear_matmul": _product("int_mm", _transposed("int32")),
    "bitsandbytes::int8_scaled_mm": _product("scaled_mm", _transposed("fp16", 5)),
    "bitsandbytes::dequantize_4bit": Formula("dequantize", dequantize_4bit, concrete=True),
    "_C::awq_dequantize": Formula("dequantize", awq_dequantize),
    "sgl_kernel::awq_dequantize": Formula("dequantize", awq_dequantize),
    # fbgemm (now mslk): (a (M, K), b (N, K), scales, …) → bf16
    **{
        f"{space}::{name}": _NARROW
        for space in ("fbgemm", "mslk")
        for name in (
            "f8f8bf16", "f8f8bf16_rowwise", "f8f8bf16_blockwise", "f8f8bf16_tensorwise", "f8f8bf16_rowwise_batched",
            "i8i8bf16", "i8i8bf16_dynamic",
        )
    },
    **{
        f"{space}::{name}": _product("weight_only_mm", _transposed("bf16", packed=2))
        for space in ("fbgemm", "mslk")
        for name in ("bf16i4bf16_rowwise", "f8i4bf16_rowwise")
    },
    # torchao: (x int8, x scale, weight (N, K/2), weight scale, bias, out dtype)
    "torchao::rowwise_scaled_linear_cutlass_s8s4": _product("scaled_mm", _transposed(None, 5, packed=2, b_at=2)),
}  # fmt: skip
