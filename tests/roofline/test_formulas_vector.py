# ruff: noqa: D403 - a docstring may begin with a name from the formula
"""Elementwise, norms, softmax, reductions, pooling, losses: FLOPs and bytes worked out by hand."""

from __future__ import annotations

import pytest

F32, F64, BF16, HALF, LONG, BOOL = "float", "double", "c10::BFloat16", "c10::Half", "long int", "bool"
SCALAR, LIST = "Scalar", "ScalarList"


def test_add(count):
    """1,000 + 1,000 elements in fp32: 1,000 FLOPs; two read, one written: 12,000 B."""
    assert count("aten::add", [[1000], [1000], []], [F32, F32, SCALAR]) == (1000, 12_000)


def test_add_broadcasts(count):
    """(4,1,5) + (3,1) → (4,3,5) = 60 FLOPs; (20 + 3 + 60)·4 = 332 B: an operand is read at its own size."""
    assert count("aten::add", [[4, 1, 5], [3, 1], []], [F32, F32, SCALAR]) == (60, 332)


def test_in_place_reads_and_writes_itself(count):
    """add_ of 100 bf16 and 100 fp32: the result keeps bf16: 200 + 400 read, 200 written."""
    assert count("aten::add_", [[100], [100], []], [BF16, F32, SCALAR]) == (100, 800)


def test_mixed_dtypes_promote(count):
    """bf16 + fp32 → fp32: 200 + 400 + 400 B; fp16 · bf16 → fp32: 200 + 200 + 400 B.

    Int64 · fp16 → fp16: 800 + 200 + 200 B.
    """
    assert count("aten::add", [[100], [100], []], [BF16, F32, SCALAR]).bytes == 1000
    assert count("aten::mul", [[100], [100]], [HALF, BF16]).bytes == 800
    assert count("aten::mul", [[100], [100]], [LONG, HALF]).bytes == 1200


def test_scalar_operand_neither_promotes_nor_moves(count):
    """bf16 · a 0-dim double (how a Python number arrives): 200 read, 200 written, 100 FLOPs."""
    assert count("aten::mul", [[100], []], [BF16, F64]) == (100, 400)


def test_integers_do_no_floating_point_work(count):
    """int64 + int64: no FLOPs, 24 B an element; an integer divided gives fp32: 8 + 8 + 4."""
    assert count("aten::add", [[10], [10], []], [LONG, LONG, SCALAR]) == (0, 240)
    assert count("aten::div", [[10], [10]], [LONG, LONG]).bytes == 200


def test_output_handed_in(count):
    """abs of 6 doubles into an output that was still empty: 6 FLOPs; 48 read, 48 written."""
    assert count("aten::abs", [[6], [0]], [F64, F64]) == (6, 96)


def test_expanded_operand_is_read_once(count):
    """An operand of (8,100) whose rows are one row (stride 0): 100·4 read, 800·4 read, 800·4 written."""
    work = count("aten::mul", [[8, 100], [8, 100]], [F32, F32], strides=[[0, 1], [100, 1]])
    assert work == (800, 400 + 3200 + 3200)


@pytest.mark.parametrize(
    ("op", "flops"), [("exp", 1), ("rsqrt", 1), ("relu", 1), ("sigmoid", 3), ("silu", 4), ("gelu", 5), ("tanh", 1)]
)
def test_one_operand(count, op, flops):
    """y = f(x) in bf16: x read, y written, 4 B an element.

    Silu x / (1 + exp(-x)) is 4 operations, gelu's erf form 5.
    """
    assert count(f"aten::{op}", [[64]], [BF16]) == (64 * flops, 256)


@pytest.mark.parametrize(("op", "flops"), [("threshold_backward", 1), ("gelu_backward", 9), ("silu_backward", 7)])
def test_activation_backward(count, op, flops):
    """Gradient and input read, gradient written: 12 B an element in fp32."""
    assert count(f"aten::{op}", [[64], [64], []], [F32, F32, SCALAR]) == (64 * flops, 768)


def test_ternary(count):
    """addcmul_ self + v·a·b: 3 FLOPs; self, a, b read, self written: 16 B an element."""
    assert count("aten::addcmul_", [[50], [50], [50], []], [F32, F32, F32, SCALAR]) == (150, 800)


def test_comparison_gives_bool(count):
    """x > 0 over 100 fp32: no FLOPs, 400 read, 100 written; logical_and of bools: 3 B an element."""
    assert count("aten::gt", [[100], []], [F32, SCALAR]) == (0, 500)
    assert count("aten::logical_and", [[100], [100]], [BOOL, BOOL]) == (0, 300)


def test_where_and_masked_fill(count):
    """where(mask, a, b): 1 + 4 + 4 read, 4 written; masked_fill_ of (4,5) with mask (4,1): 80 + 4 read, 80 written."""
    assert count("aten::where", [[10], [10], [10]], [BOOL, F32, F32]) == (0, 130)
    assert count("aten::masked_fill_", [[4, 5], [4, 1], []], [F32, BOOL, SCALAR]) == (0, 164)


def test_dropout(count):
    """100 fp32: compare and scale: 200 FLOPs; 400 read, 400 and a mask of 100 written; backward: grad and mask read."""
    assert count("aten::native_dropout", [[100], [], []], [F32, SCALAR, SCALAR]) == (200, 900)
    assert count("aten::native_dropout_backward", [[100], [100], []], [F32, BOOL, SCALAR]) == (200, 900)


def test_gated_activations(count):
    """glu of 2·50 fp32: 50 gates of 4 operations, 400 read, 200 written.

    Silu_and_mul (10,8) → (10,4) bf16: 5·40, 240 B.
    """
    assert count("aten::glu", [[100], []], [F32, SCALAR]) == (200, 600)
    assert count("_C::silu_and_mul", [[10, 4], [10, 8]], [BF16, BF16]) == (200, 240)


def test_split_heads(count):
    """qkv (2,5,12) fp32 and its bias: 120 additions and 40 scalings; 480 read, 48 of bias, 480 written."""
    assert count("aten::_transform_bias_rescale_qkv", [[2, 5, 12], [12], []], [F32, F32, SCALAR]) == (160, 1_008)


def test_rope_and_quantisation(count):
    """rope on q (6,8) and k (6,4) bf16 in place, heads of 4, for 6 positions of a (16,4) table.

    3·72 FLOPs, 2·(96 + 48) + 6·4·2 of the table + 6·8 of positions: 384 B. Only the first 2 of each 4 rotated (table
    (16,2)), without k: 3·24 FLOPs, 2·48 + 6·2·2 + 48 = 168 B. Without the head size it is unknown.

    fp8 quantisation of 40 bf16 with one scale: 40 FLOPs, 80 + 40 + 4 B.
    """
    shapes = [[6], [6, 8], [6, 4], [], [16, 4], []]
    types, head = [LONG, BF16, BF16, SCALAR, BF16, SCALAR], ["", "", "", "4", "", "True"]
    assert count("_C::rotary_embedding", shapes, types, head) == (216, 384)
    partial = [[6], [6, 8], [], [], [16, 2], []]
    assert count("_C::rotary_embedding", partial, [LONG, BF16, "", SCALAR, BF16, SCALAR], head) == (72, 168)
    assert count("_C::rotary_embedding", shapes, types) is None
    fp8 = "c10::Float8_e4m3fn"
    assert count("_C::static_scaled_fp8_quant", [[5, 8], [5, 8], []], [fp8, BF16, F32]) == (40, 124)


def test_layer_norm(count):
    """(4,10,64) bf16 with both parameters: 8 FLOPs on each of 2,560 elements = 20,480.

    Bytes: 5,120 read, 5,120 written, 2·128 of parameters, 40 rows · 2 statistics · 4 B = 320: 10,816.
    Intensity 1.9: under 5.
    """
    shapes = [[4, 10, 64], [], [64], [64], []]
    work = count("aten::native_layer_norm", shapes, [BF16, LIST, BF16, BF16, SCALAR], ["", "[64]", "", "", "1e-05"])
    assert work == (20_480, 10_816)
    assert work.flops / work.bytes < 5


def test_layer_norm_backward(count):
    """(40,64) fp32, all gradients: 13 FLOPs · 2,560 = 33,280.

    Reads grad and x (2·10,240), mean and rstd (2·160), γ (256); writes dx (10,240), dγ, dβ (512): 31,808 B.
    """
    shapes = [[40, 64], [40, 64], [], [40, 1], [40, 1], [64], [64], []]
    types = [F32, F32, LIST, F32, F32, F32, F32, LIST]
    concrete = ["", "", "[64]", "", "", "", "", "[True, True, True]"]
    assert count("aten::native_layer_norm_backward", shapes, types, concrete) == (33_280, 31_808)
    concrete[-1] = "[False, True, True]"  # of the parameters alone: 3 FLOPs an element, and no dx
    assert count("aten::native_layer_norm_backward", shapes, types, concrete) == (7_680, 21_568)


def test_rms_norm(count):
    """(40,64) fp32 with γ: 4 FLOPs · 2,560; 10,240 read, 10,240 written, γ 256, rstd 160. Backward: 9 FLOPs an element.

    Backward reads grad, x (20,480), rstd 160, γ 256; writes dx 10,240 and dγ 256: 31,392 B.
    """
    shapes, types = [[40, 64], [], [64], []], [F32, LIST, F32, ""]
    assert count("aten::_fused_rms_norm", shapes, types, ["", "[64]", "", ""]) == (10_240, 20_896)
    shapes, types = [[40, 64], [40, 64], [], [40, 1], [64], []], [F32, F32, LIST, F32, F32, LIST]
    concrete = ["", "", "[64]", "", "", "[True, True]"]
    assert count("aten::_fused_rms_norm_backward", shapes, types, concrete) == (23_040, 31_392)


def test_rms_norm_of_serving_engines(count):
    """(10,64) bf16. rms_norm: 4·640 FLOPs, 1,280 + 1,280 + 128 B.

    With the residual added in place: 5·640, 4·1,280 + 128 B.
    """
    types = [BF16, BF16, BF16, SCALAR]
    assert count("_C::rms_norm", [[10, 64], [10, 64], [64], []], types) == (2_560, 2_688)
    assert count("_C::fused_add_rms_norm", [[10, 64], [10, 64], [64], []], types) == (3_200, 5_248)


@pytest.mark.parametrize("op", ["native_batch_norm", "cudnn_batch_norm", "miopen_batch_norm"])
def test_batch_norm(count, op):
    """(2,3,8,8) fp32, training: 8 FLOPs · 384 = 3,072.

    1,536 read and written, γβ 24, running 24, saved 2·3·4 = 24 B: 3,144.

    In inference 4 FLOPs an element and nothing saved: 1,536 FLOPs, 3,120 B.
    """
    shapes = [[2, 3, 8, 8], [3], [3], [3], [3], [], [], []]
    types = [F32] * 5 + [SCALAR] * 3
    train = ["", "", "", "", "", "True", "0.1", "1e-05"]
    assert count(f"aten::{op}", shapes, types, train) == (3_072, 3_144)
    assert count(f"aten::{op}", shapes, types, [*train[:5], "False", "0.1", "1e-05"]) == (1_536, 3_120)


def test_batch_norm_with_update(count):
    """It always trains: the same 3,072 FLOPs and 3,144 B without a flag."""
    shapes = [[2, 3, 8, 8], [3], [3], [3], [3], [], []]
    assert count("aten::_batch_norm_with_update", shapes, [F32] * 5 + [SCALAR] * 2) == (3_072, 3_144)


def test_batch_norm_backward(count):
    """(2,3,8,8) fp32: 10 FLOPs · 384.

    Grad and x read (3,072), dx written (1,536), γ 12, mean, invstd, dγ, dβ 4·12 = 4,668 B.
    """
    shapes = [[2, 3, 8, 8], [2, 3, 8, 8], [3], [], [], [3], [3], [], [], []]
    types = [F32, F32, F32, "", "", F32, F32, SCALAR, SCALAR, LIST]
    concrete = [""] * 7 + ["True", "1e-05", "[True, True, True]"]
    assert count("aten::native_batch_norm_backward", shapes, types, concrete) == (3_840, 4_668)


def test_group_norm(count):
    """(2,6,4,4) fp32 in 3 groups: 8 FLOPs · 192; 768 read and written, γβ 48, 2·2·3·4 = 48 B of statistics: 1,632.

    Backward with all gradients: 13 FLOPs · 192; grad and x (1,536), statistics 48, γ 24, dx 768, dγ and dβ 48: 2,424 B.
    """
    shapes, types = [[2, 6, 4, 4], [6], [6]] + [[]] * 5, [F32, F32, F32] + [SCALAR] * 5
    concrete = ["", "", "", "2", "6", "16", "3", "1e-05"]
    assert count("aten::native_group_norm", shapes, types, concrete) == (1_536, 1_632)
    shapes = [[2, 6, 4, 4], [2, 6, 4, 4], [2, 3], [2, 3], [6]] + [[]] * 5
    types = [F32] * 5 + [SCALAR] * 4 + [LIST]
    concrete = [""] * 5 + ["2", "6", "16", "3", "[True, True, True]"]
    assert count("aten::native_group_norm_backward", shapes, types, concrete) == (2_496, 2_424)


def test_softmax(count):
    """(8,100) bf16: 5 FLOPs · 800; 1,600 read, 1,600 written; with half_to_float 3,200 written.

    Backward: 4 · 800, 4,800 B.
    """
    shapes, types = [[8, 100], [], []], [BF16, SCALAR, SCALAR]
    assert count("aten::_softmax", shapes, types, ["", "-1", "False"]) == (4_000, 3_200)
    assert count("aten::_log_softmax", shapes, types, ["", "-1", "True"]) == (4_000, 4_800)
    types = [BF16, BF16, SCALAR, SCALAR]
    assert count("aten::_softmax_backward_data", [[8, 100], [8, 100], [], []], types) == (3_200, 4_800)
