"""Products of quantised operands: FLOPs by logical sizes, bytes as stored, worked out by hand."""

from __future__ import annotations

import json

import pytest

from roofwatch.model.formulas.precision import precision_of
from roofwatch.model.formulas.table import formula_of
from roofwatch.model.record import Vendor
from roofwatch.model.shapes import call_of

BF16, HALF, F32, INT, FP8 = "c10::BFloat16", "c10::Half", "float", "int", "c10::Float8_e4m3fn"
BYTE, SIGNED, SCALAR, LIST = "unsigned char", "signed char", "Scalar", "ScalarList"


def test_scaled_mm_without_an_output_dtype(count):
    """fp8 (16,32)·(32,64), two fp32 scales: 65,536 FLOPs; 512 + 2,048 + 8 + output: in fp8 1,024, in bf16 2,048 B.

    Where a dtype was given but not recorded it is unknown, and so is the op.
    """
    shapes, types = [[16, 32], [32, 64], *[[]] * 6], [FP8, FP8, F32, F32, "", "", "", SCALAR]
    assert count("aten::_scaled_mm", shapes, types, [*[""] * 7, "False"]) == (65_536, 2_568 + 1_024)
    types[6] = SCALAR
    assert count("aten::_scaled_mm", shapes, types, [*[""] * 6, "15", "False"]) == (65_536, 2_568 + 2_048)
    assert count("aten::_scaled_mm", shapes, types) is None


def test_scaled_mm_with_lists_of_scales(count):
    """_scaled_mm_v2, 16·32 block scales of a and 64 of b, whose dtype lists do not tell: a byte each at least.

    fp4 holds two values in an element: (16,32)·(32,64) is K = 64, 131,072 FLOPs.
    """
    types = [FP8, FP8, "TensorList", LIST, LIST, "TensorList", LIST, LIST, "", SCALAR, LIST, SCALAR]
    shapes = [[16, 32], [32, 64], [[16, 1]], [], [], [[64, 1]], *[[]] * 6]
    concrete = ["", "", "", "[0]", "[]", "", "[0]", "[]", "", "15", "[]", "False"]
    assert count("aten::_scaled_mm_v2", shapes, types, concrete) == (65_536, 512 + 2_048 + 80 + 2_048)
    types[:2] = ["c10::Float4_e2m1fn_x2"] * 2
    assert count("aten::_scaled_mm_v2", shapes, types, concrete) == (131_072, 512 + 2_048 + 80 + 2_048)


ROWS, OUT = [16, 32], 16 * 64 * 2  # x (16, 32) bf16 is 1,024 B; the output (16, 64) 2,048 B


@pytest.mark.parametrize(
    ("op", "shapes", "types", "concrete", "weights"),
    [
        # int8 weights (64, 32), a bf16 scale a column
        ("aten::_weight_int8pack_mm", [[64, 32], [64]], [SIGNED, BF16], [], 2_048 + 128),
        # int4 in tiles of int32 (8, 2, 32, 2): 4,096 B; one group: scales and zeros (1, 64, 2) bf16
        ("aten::_weight_int4pack_mm", [[8, 2, 32, 2], [], [1, 64, 2]], [INT, SCALAR, BF16], ["", "32"], 4_096 + 256),
        ("aten::_weight_int4pack_mm_for_cpu", [[64, 16], [], [1, 64, 2]], [BYTE, SCALAR, BF16], ["", "32"], 1_280),
        ("aten::_weight_int4pack_mm_with_scales_and_zeros", [[64, 4], [], [1, 64], [1, 64]],
         [INT, SCALAR, BF16, SIGNED], ["", "32"], 1_024 + 128 + 64),
        ("aten::_mixed_dtypes_linear", [[32, 64], [64], [], []], [SIGNED, BF16, "", ""], [], 2_048 + 128),
        ("aten::_dyn_quant_matmul_4bit", [[1_280], [], [], []], [BYTE, SCALAR, SCALAR, SCALAR],
         ["", "32", "32", "64"], 1_280),
        # GPTQ: int4 in int32 (32/8, 64), zeros (1, 8) int32, scales (1, 64), an index of 32 int32
        ("_C::gptq_gemm", [[4, 64], [1, 8], [1, 64], [32], [], [], []], [INT, INT, BF16, INT, SCALAR, SCALAR, SCALAR],
         ["", "", "", "", "True", "True", "4"], 1_024 + 32 + 128 + 128),
        # AWQ: (32, 64/8), scales (1, 64), zeros (1, 8)
        ("_C::awq_gemm", [[32, 8], [1, 64], [1, 8], []], [INT, BF16, INT, SCALAR], ["", "", "", "8"], 1_024 + 160),
        ("_C::machete_mm", [[4, 64], [], [], [1, 64]], [INT, SCALAR, "", BF16], ["", "1"], 1_024 + 128),
        ("_C::allspark_w8a16_gemm", [[32, 64], [1, 64], [], []], [BYTE, BF16, "", SCALAR], ["", "", "", "64"], 2_176),
        # Marlin: packed (2, 128) int32, scales (1, 64), workspace 128 int32; m, n, k after a type's number
        ("_C::gptq_marlin_gemm", [[], [2, 128], [1, 64], [], [], [], [], [128], [], [], [], []],
         ["", INT, BF16, "", "", "", "", INT, *[SCALAR] * 4], [*[""] * 8, "1125899906909960", "16", "64", "32"],
         1_024 + 128 + 512),
        # the same with a bias, activation scales and a global scale before it: three arguments more
        ("_C::marlin_gemm", [[], [2, 128], [], [1, 64], [], [], [], [], [], [128], [], [], [], []],
         ["", INT, "", BF16, *[""] * 5, INT, *[SCALAR] * 4], [*[""] * 10, "1125899906909960", "16", "64", "32"],
         1_024 + 128 + 512),
        ("bitsandbytes::gemv_4bit", [[1_024, 1], [], [16], [16], []], [BYTE, LIST, F32, F32, SCALAR],
         ["", "[64, 32]", "", "", "64"], 1_024 + 64 + 64),
    ],
)  # fmt: skip
def test_weights_of_few_bits(count, op, shapes, types, concrete, weights):
    """X (16,32) bf16 times a packed weight of 64 columns: 2·16·64·32 = 65,536 FLOPs.

    1,024 B of x, 2,048 B of output, and the weights, scales and zeros as stored.
    """
    assert count(op, [ROWS, *shapes], [BF16, *types], ["", *concrete]) == (65_536, 1_024 + OUT + weights)


def test_marlin_into_its_output(count):
    """An output handed in (at 1) is written once, not twice; sizes that do not fit the activation are unknown."""
    shapes = [ROWS, [16, 64], [2, 128], [1, 64], [], [], []]
    types = [BF16, BF16, INT, BF16, SCALAR, SCALAR, SCALAR]
    work = count("_C::marlin_gemm", shapes, types, ["", "", "", "", "16", "64", "32"])
    assert work == (65_536, 1_024 + OUT + 1_024 + 128)
    assert count("_C::marlin_gemm", shapes, types, ["", "", "", "", "16", "64", "48"]) is None


@pytest.mark.parametrize(
    ("op", "shapes", "types", "concrete", "moved"),
    [
        # (out, a, b, scales): 2,048 + 512 + 2,048 + (16 + 64)·4 B
        ("_C::cutlass_scaled_mm", [[16, 64], ROWS, [32, 64], [16, 1], [1, 64], []],
         [BF16, FP8, FP8, F32, F32, ""], [], 4_928),
        ("_C::cutlass_scaled_mm_azp", [[16, 64], ROWS, [32, 64], [16, 1], [1, 64], [64], [], []],
         [BF16, SIGNED, SIGNED, F32, F32, INT, "", ""], [], 4_928 + 256),
        # two fp4 in a byte: a (16, 16), b (64, 16), scales a byte for each 16
        ("_C::cutlass_scaled_fp4_mm", [[16, 64], [16, 16], [64, 16], [16, 2], [64, 2], []],
         [BF16, BYTE, BYTE, FP8, FP8, F32], [], 2_048 + 256 + 1_024 + 32 + 128 + 4),
        ("sgl_kernel::dsv3_fused_a_gemm", [[16, 64], ROWS, [32, 64]], [BF16] * 3, [], 2_048 + 1_024 + 4_096),
        ("sgl_kernel::fp8_scaled_mm", [ROWS, [32, 64], [16], [64], [], []], [FP8, FP8, F32, F32, SCALAR, ""],
         ["", "", "", "", "15"], 512 + 2_048 + 320 + 2_048),
        ("sgl_kernel::int8_scaled_mm", [ROWS, [32, 64], [16], [64], [], [64]], [SIGNED, SIGNED, F32, F32, SCALAR, HALF],
         ["", "", "", "", "5"], 512 + 2_048 + 320 + 128 + 2_048),
        ("fbgemm::f8f8bf16_rowwise", [ROWS, [64, 32], [16], [64], [], []], [FP8, FP8, F32, F32, "", SCALAR],
         ["", "", "", "", "", "True"], 512 + 2_048 + 320 + 2_048),
        ("mslk::bf16i4bf16_rowwise", [ROWS, [64, 16], [1, 64], [1, 64]], [BF16, SIGNED, BF16, BF16], [],
         1_024 + 1_024 + 256 + 2_048),
        ("torchao::rowwise_scaled_linear_cutlass_s8s4", [ROWS, [16], [64, 16], [64], [], []],
         [SIGNED, F32, SIGNED, F32, "", SCALAR], ["", "", "", "", "", "15"], 512 + 64 + 1_024 + 256 + 2_048),
        ("bitsandbytes::int8_linear_matmul", [ROWS, [64, 32]], [SIGNED, SIGNED], [], 512 + 2_048 + 4_096),
        ("bitsandbytes::int8_scaled_mm", [ROWS, [64, 32], [16], [64], [], []], [SIGNED, SIGNED, F32, F32, "", SCALAR],
         ["", "", "", "", "", "15"], 512 + 2_048 + 320 + 2_048),
        # AMD's: weight (64, 32), x (16, 32), output
        ("_rocm_C::wvSplitK", [[64, 32], ROWS, [], []], [BF16, BF16, "", SCALAR], ["", "", "", "304"],
         4_096 + 1_024 + 2_048),
        ("_rocm_C::LLMM1", [[64, 32], ROWS, []], [HALF, HALF, SCALAR], ["", "", "4"], 4_096 + 1_024 + 2_048),
        ("_rocm_C::wvSplitKQ", [[64, 32], ROWS, [], [16, 64], [], [], []],
         [FP8, FP8, "", BF16, F32, F32, SCALAR], ["", "", "", "", "", "", "304"], 2_048 + 512 + 2_048 + 8),
        # GGML: weight of 18 B for each 32 values
        ("_C::ggml_mul_mat_a8", [[64, 18], ROWS, [], []], [BYTE, HALF, SCALAR, SCALAR], ["", "", "2", "64"],
         1_152 + 1_024 + 2_048),
        # 2:4 sparse: half of K = 64 is kept, as many products as K = 32
        ("aten::_sparse_semi_structured_linear", [[16, 64], [64, 32], [64, 4], [], [], []],
         [HALF, HALF, "short int", "", "", ""], [], 2_048 + 4_096 + 512 + 2_048),
    ],
)  # fmt: skip
def test_both_operands_narrow_and_other_orders(count, op, shapes, types, concrete, moved):
    """(16,32)·(32,64): 65,536 FLOPs by the logical sizes in each op's own order; each tensor once as stored."""
    assert count(op, shapes, types, concrete or None) == (65_536, moved)


def test_a_batch_of_fp8_products(count):
    """A batch in fbgemm, (3,16,32)·(3,64,32): three times 65,536 FLOPs; 1,536 + 6,144 + scales 960 + 6,144 B."""
    shapes, types = [[3, 16, 32], [3, 64, 32], [3, 16], [3, 64]], [FP8, FP8, F32, F32]
    assert count("fbgemm::f8f8bf16_rowwise_batched", shapes, types) == (196_608, 1_536 + 6_144 + 960 + 6_144)


def test_dequantisation(count):
    """AWQ (32, 8) int32 → (32, 64) bf16: 4,096 FLOPs, 1,024 + 128 + 32 + 4,096 B; bitsandbytes 2,048 elements."""
    shapes, types = [[32, 8], [1, 64], [1, 8], [], [], []], [INT, BF16, INT, SCALAR, SCALAR, SCALAR]
    assert count("_C::awq_dequantize", shapes, types) == (4_096, 5_280)
    shapes, types = [[1_024, 1], [32], [], [], [], []], [BYTE, F32, SCALAR, "", LIST, SCALAR]
    concrete = ["", "", "64", "", "[64, 32]", "15"]
    assert count("bitsandbytes::dequantize_4bit", shapes, types, concrete) == (2_048, 1_024 + 128 + 4_096)


@pytest.mark.parametrize(
    ("op", "types", "expected"),
    [
        ("_C::cutlass_scaled_mm", [BF16, FP8, FP8], ("fp8", "matrix")),  # the output comes first and does not decide
        ("_C::cutlass_scaled_mm", [BF16, SIGNED, SIGNED], ("int8", "matrix")),
        ("_C::cutlass_scaled_fp4_mm", [BF16, BYTE, BYTE], ("fp4", "matrix")),  # stored as bytes
        ("_C::gptq_gemm", [HALF, INT, INT], ("fp16", "matrix")),  # weights are widened to the activation
        ("_C::ggml_mul_mat_a8", [BYTE, HALF, SCALAR], ("fp16", "matrix")),
        ("aten::_scaled_mm", [FP8, FP8, F32], ("fp8", "matrix")),
        ("aten::_int_mm", [SIGNED, SIGNED], ("int8", "matrix")),
    ],
)
def test_the_operand_that_is_multiplied_decides_the_precision(op, types, expected):
    """Peaks are per precision: that of the operands, not of the output or of how a weight is stored."""
    call = call_of(op, json.dumps([[16, 32]] * len(types)), json.dumps(types), kernel="a_kernel")
    formula = formula_of(op)
    assert call is not None
    assert formula is not None
    assert precision_of(formula, call, Vendor.NVIDIA) == expected
