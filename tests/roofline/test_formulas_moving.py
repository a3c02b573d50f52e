# ruff: noqa: D403 - a docstring may begin with a name from the formula
"""Copies, fills, gathers, lists, optimizers, fused kernels, views, and parts of ops: worked out by hand."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from roofwatch.model.formulas import parts
from roofwatch.model.formulas.fused import flops_per_element
from roofwatch.model.formulas.movement import item_of_kernel
from roofwatch.model.formulas.table import FORMULAS, work_of
from roofwatch.model.shapes import call_of

F32, BF16, LONG, INT, BOOL = "float", "c10::BFloat16", "long int", "int", "bool"
SCALAR, LIST, TENSORS = "Scalar", "ScalarList", "TensorList"
CAT = (
    "void at::native::(anonymous namespace)::CatArrayBatchedCopy<at::native::(anonymous namespace)::OpaqueType<2u>, …>"
)
ADD_LISTS = (
    "void multi_tensor_apply_kernel<TensorListMetadata<2>, BinaryOpListAlphaFunctor<float, 2, 2, 0>, std::plus<float>>"
)


def test_copy_and_cast(count):
    """100 fp32 into 100 bf16: 400 read, 200 written, no FLOPs."""
    assert count("aten::copy_", [[100], [100], []], [BF16, F32, SCALAR]) == (0, 600)


def test_copy_of_an_expanded_source(count):
    """A row of 10 into 5 rows: 40 read, 200 written."""
    assert count("aten::copy_", [[5, 10], [5, 10], []], [F32, F32, SCALAR], strides=[[10, 1], [0, 1], []]) == (0, 240)


def test_clone_fill_arange(count):
    """clone of 100 fp32: 800 B; fill_ 400 B; arange 0 to 10 by 3 gives 4 int64: 32 B.

    Constant_pad (2,3) by (1,1): 24 + 40 B.
    """
    assert count("aten::clone", [[100], []], [F32, SCALAR]) == (0, 800)
    assert count("aten::fill_", [[100], []], [F32, SCALAR]) == (0, 400)
    shapes, types = [[], [], [], [0]], [SCALAR, SCALAR, SCALAR, LONG]
    assert count("aten::arange", shapes, types, ["0", "10", "3", ""]) == (0, 32)
    shapes, types = [[2, 3], [], []], [F32, LIST, SCALAR]
    assert count("aten::constant_pad_nd", shapes, types, ["", "[1, 1]", "0"]) == (0, 64)


def test_cat(count):
    """(4,3) and (2,3), two bytes an element by the kernel's name: 18 read, 18 written: 72 B.

    Without the name unknown.
    """
    shapes, types = [[[4, 3], [2, 3]], []], [TENSORS, SCALAR]
    assert count("aten::cat", shapes, types, kernel=CAT) == (0, 72)
    assert count("aten::cat", shapes, types, kernel="aten::cat") is None


@pytest.mark.parametrize(
    ("kernel", "item"),
    [
        (CAT, 2),
        (ADD_LISTS, 4),
        ("CatArrayBatchedCopy<float, unsigned int, 2, 128, 1>", 4),
        ("CatArrayBatchedCopy", None),
    ],
)
def test_item_size_by_kernel_name(kernel, item):
    """Template arguments tell an element's bytes: OpaqueType<2u> is two, float four, no arguments nothing."""
    assert item_of_kernel(kernel) == item


def test_embedding(count):
    """12 int64 indices into (100,8) fp32: 96 B of indices, 12·32 read, 12·32 written = 864 B."""
    shapes, types = [[100, 8], [3, 4], [], [], []], [F32, LONG, SCALAR, SCALAR, SCALAR]
    assert count("aten::embedding", shapes, types) == (0, 864)


def test_embedding_of_a_small_table(count):
    """12 indices into a table of 2 rows: no more than the 2 rows have to be read: 96 + 2·32 + 12·32 = 544 B."""
    shapes, types = [[2, 8], [12], [], [], []], [F32, LONG, SCALAR, SCALAR, SCALAR]
    assert count("aten::embedding", shapes, types) == (0, 544)


def test_embedding_bag(count):
    """12 int64 indices and 4 offsets into (100,8) fp32: 96 + 32 B, 12 rows read and 4 written: 512 B. 12·8 additions.

    With the last offset among them there are 3 bags: 32 B less. Weights of 12 fp32: 48 B and a product each.
    """
    shapes = [[100, 8], [12], [4], *[[]] * 6]
    types = [F32, LONG, LONG, SCALAR, SCALAR, SCALAR, "", SCALAR, SCALAR]
    concrete = ["", "", "", "False", "0", "False", "", "False", "-1"]
    assert count("aten::_embedding_bag", shapes, types, concrete) == (96, 640)
    concrete[7] = "True"
    assert count("aten::_embedding_bag", shapes, types, concrete) == (96, 608)
    shapes[6], types[6] = [12], F32
    assert count("aten::_embedding_bag_forward_only", shapes, types, concrete) == (192, 656)
    assert count("aten::_embedding_bag", shapes, types) is None
    small = [[2, 8], *shapes[1:6], [], [], []]  # of 2 rows no more are read: 128 + (2 + 3)·32 = 288 B
    assert count("aten::_embedding_bag", small, [*types[:6], "", SCALAR, SCALAR], concrete) == (96, 288)


def test_reading_from_an_expanded_tensor(count):
    """All elements are one, which is read. index_select 5 of 10: 40 + 4 + 5·4·4 = 124 B; gather of 6: 48 + 4 + 24 B."""
    shapes, types, strides = [[4, 10], [], [5]], [F32, SCALAR, LONG], [[0, 0], [], [1]]
    assert count("aten::index_select", shapes, types, ["", "1", ""], strides=strides) == (0, 124)
    shapes, types, strides = [[4, 10], [], [2, 3], []], [F32, SCALAR, LONG, SCALAR], [[0, 0], [], [3, 1], []]
    assert count("aten::gather", shapes, types, strides=strides) == (0, 76)


def test_index_select_gather_index_put(count):
    """index_select 5 columns of (4,10) fp32: 40 + 20·4·2 = 200 B. gather of 6 int64: 48 + 24 + 24 B.

    index_put_ of 6 fp32 values: 24 read, 6 elements read and written: 72 B.
    """
    shapes, types = [[4, 10], [], [5]], [F32, SCALAR, LONG]
    assert count("aten::index_select", shapes, types, ["", "1", ""]) == (0, 200)
    shapes, types = [[4, 10], [], [2, 3], []], [F32, SCALAR, LONG, SCALAR]
    assert count("aten::gather", shapes, types) == (0, 96)
    shapes, types = [[4, 10], [], [6], [], []], [F32, "", F32, SCALAR, SCALAR]
    assert count("aten::_index_put_impl_", shapes, types) == (0, 72)


def test_scatter_and_embedding_backward(count):
    """scatter_add_ of 6 fp32: 6 additions; 48 + 24 + 2·24 = 120 B.

    embedding backward of (3,4) rows of 8 into 100 rows: grad 384 + indices 96 + table 3,200 = 3,680 B, 96 additions.
    """
    shapes, types = [[10], [], [6], [6]], [F32, SCALAR, LONG, F32]
    assert count("aten::scatter_add_", shapes, types) == (6, 120)
    shapes, types = [[3, 4, 8], [3, 4], [], [], []], [F32, LONG, SCALAR, SCALAR, SCALAR]
    assert count("aten::embedding_dense_backward", shapes, types, ["", "", "100", "-1", "False"]) == (96, 3_680)


def test_upsample_and_cache_write(count):
    """(1,2,4,4) to 8×8 fp32: 128 + 512 B. Keys and values (6,1,8) bf16 into a one-byte cache: 2·96 read, 96 written."""
    shapes, types = [[1, 2, 4, 4], [], [], []], [F32, LIST, SCALAR, SCALAR]
    assert count("aten::upsample_nearest2d", shapes, types, ["", "[8, 8]", "2.", "2."]) == (0, 640)
    shapes = [[6, 1, 8], [6, 1, 8], [99, 16, 1, 8], [99, 16, 1, 8], [6]]
    types = [BF16, BF16, "unsigned char", "unsigned char", LONG]
    assert count("_C_cache_ops::reshape_and_cache_flash", shapes, types) == (0, 288)


def test_foreach_ops(count):
    """Lists of 25 and 5 fp32. Two lists added: 30 FLOPs, 120 + 120 read, 120 written. By a scalar: one read.

    Sqrt: 240 B.
    """
    two, one = [[[5, 5], [5]], [[5, 5], [5]], []], [[[5, 5], [5]], []]
    types = [TENSORS, TENSORS, SCALAR]
    assert count("aten::_foreach_add_", two, types, kernel=ADD_LISTS) == (30, 360)
    assert count("aten::_foreach_mul_", one, [TENSORS, SCALAR], kernel=ADD_LISTS) == (30, 240)
    assert count("aten::_foreach_sqrt", one, [TENSORS, ""], kernel=ADD_LISTS) == (30, 240)
    assert count("aten::_foreach_addcdiv_", [*two[:2], two[0], []], [TENSORS] * 3, kernel=ADD_LISTS) == (90, 480)
    assert count("aten::_foreach_copy_", two, types, kernel=ADD_LISTS) == (0, 240)
    assert count("aten::_foreach_norm", one, [TENSORS, SCALAR], kernel=ADD_LISTS) == (60, 128)
    assert count("aten::_foreach_zero_", one, [TENSORS], kernel=ADD_LISTS) == (0, 120)


def test_fused_optimizers(count):
    """30 fp32 parameters. AdamW: 4 lists read, 3 written: 7·120 B, 15 FLOPs; with amsgrad 5 and 4: 9·120 B.

    SGD: parameters and gradients read, parameters written: 360 B, 2 FLOPs; with momentum 5·120 B, 4 FLOPs. Adagrad
    600 B.
    """
    tensors = [[5, 5], [5]]
    kernel = "multi_tensor_apply_kernel<FusedOptimizerTensorListMetadata<4>, FusedAdamMathFunctor<float, 4, 0>>"
    steps = [[], []]
    assert count("aten::_fused_adamw_", [tensors] * 4 + [[], steps], [TENSORS] * 6, kernel=kernel) == (450, 840)
    assert count("aten::_fused_adam_", [tensors] * 5 + [steps], [TENSORS] * 6, kernel=kernel) == (450, 1_080)
    assert count("aten::_fused_sgd_", [tensors] * 2 + [[]], [TENSORS] * 3, kernel=kernel) == (60, 360)
    assert count("aten::_fused_sgd_", [tensors] * 3, [TENSORS] * 3, kernel=kernel) == (120, 600)
    assert count("aten::_fused_adagrad_", [tensors] * 3 + [steps], [TENSORS] * 4, kernel=kernel) == (180, 600)


def test_inductor_kernel(count):
    """triton_poi_fused_add_mul_0 over two inputs and an output of 100 fp32, count 100: 2 FLOPs each; 3·400 B."""
    shapes, types = [[100], [100], [100], []], [F32, F32, F32, SCALAR]
    assert count("triton_poi_fused_add_mul_0", shapes, types, ["", "", "", "100"]) == (200, 1_200)


def test_inductor_reduction_counts_rows_times_columns(count):
    """triton_red_fused_mean_pow_1 with 8 rows of 50 (bf16) → 8: 2 FLOPs · 400; 800 + 16 B."""
    shapes, types = [[8, 50], [8, 1], [], []], [BF16, BF16, SCALAR, SCALAR]
    assert count("triton_red_fused_mean_pow_1", shapes, types, ["", "", "8", "50"]) == (800, 816)


@pytest.mark.parametrize(
    ("listed", "flops"),
    [
        ("add_mean_mul_pow_rsqrt", 5),
        ("_unsafe_view_mul_silu", 5),  # mul 1, silu 4; the view none
        ("native_layer_norm_unknown", 6),  # an unknown word after a known op adds nothing
        ("add_cos_sin", 3),
        ("", 0),
    ],
)
def test_ops_in_a_fused_name(listed, flops):
    """Op names are found longest first and each counted once: add 1, mean 1, mul 1, pow 1, rsqrt 1."""
    assert flops_per_element(listed) == flops


def test_views_do_nothing(count):
    """A view has no device work at all: 0 FLOPs and 0 bytes, known, not unknown."""
    assert count("aten::view", [[4, 8], []], [F32, LIST]) == (0, 0)


NORM = ("[[2,6,4,4],[6],[6]]", '["float","float","float"]')
BACK = ("[[2,6,4,4],[2,6,4,4]]", '["float","float"]')
MM = ("[[4],[2,3],[3,4]]", '["float","float","float"]')


@pytest.mark.parametrize(
    ("op", "kernel", "inputs", "work"),
    [
        # statistics of 192 elements: read 768 B, 4 FLOPs each
        ("aten::native_batch_norm", "batch_norm_collect_statistics_kernel<…>", NORM, (768, 768)),
        ("aten::native_group_norm", "RowwiseMomentsCUDAKernel<float>", NORM, (768, 768)),
        # y: read and written, γ and β read: 768·2 + 48 B, 4 FLOPs each
        ("aten::native_batch_norm", "batch_norm_transform_input_kernel<…>", NORM, (768, 1_584)),
        ("aten::native_group_norm", "elementwise_kernel<128, 2, …>", NORM, (768, 1_584)),
        # two fp32 values for each of 6 channels
        ("aten::native_group_norm", "ComputeFusedParamsCUDAKernel<float>", NORM, (0, 48)),
        # the two sums: grad and x read, 5 FLOPs each; dx: both read, one written
        ("aten::native_group_norm_backward", "ComputeInternalGradientsCUDAKernel<float>", BACK, (960, 1_536)),
        ("aten::native_layer_norm_backward", "layer_norm_grad_input_kernel<float, float, false>", BACK, (1_920, 2_304)),
        ("aten::_fused_rms_norm_backward", "layer_norm_grad_input_kernel<float, float, true>", BACK, (1_344, 2_304)),
        ("aten::native_group_norm_backward", "elementwise_kernel<128, 4, …>", BACK, (960, 2_304)),
        ("aten::native_layer_norm_backward", "GammaBetaBackwardSimpleCUDAKernel<float>", BACK, (960, 1_536)),
        # the bias spread over the (2,4) output: 16 + 32 B; applied to it: 8 FLOPs, 16 + 2·32 B
        ("aten::addmm", "elementwise_kernel<128, 2, …>", MM, (0, 48)),
        ("aten::addmm", "void epilogue::impl::globalKernel<float>", MM, (8, 80)),
    ],
)
def test_parts_of_ops(op, kernel, inputs, work):
    """A kernel that does a part of its op is counted for that part alone: x is (2,6,4,4) fp32, 192 elements, 768 B."""
    found = parts.part_of(op, kernel)
    call = call_of(op, *inputs, kernel=kernel)
    assert found is not None
    assert call is not None
    assert work_of(found[0], call) == (*work, None)


def test_parts_of_a_convolutions_backward():
    """The 15,552-FLOP convolution: dgrad reads grad and W, writes dx; wgrad reads grad and x, writes dW.

    The bias a sum.
    """
    shapes = "[[2,4,6,6],[2,3,8,8],[4,3,3,3],[],[],[],[],[],[],[],[]]"
    types = '["float","float","float","ScalarList","","","","Scalar","","","ScalarList"]'
    concrete = '["","","","","","","","False","","","[True, True, True]"]'
    expected = {
        "cutlass_tensorop_s1688dgrad_optimized": (15_552, (288 + 108 + 384) * 4),
        "sm80_xmma_wgrad_implicit_gemm": (15_552, (288 + 384 + 108) * 4),
        "reduce_kernel<512, 1, …>": (288, (288 + 4) * 4),
    }
    for kernel, work in expected.items():
        found = parts.part_of("aten::convolution_backward", kernel)
        call = call_of("aten::convolution_backward", shapes, types, None, concrete, kernel)
        assert found is not None
        assert call is not None
        assert work_of(found[0], call) == (*work, None)


def test_every_formula_has_a_hand_worked_test():
    """Each formula of the table, by its name, is asked about through one of its ops in this folder's formula tests."""
    text = "".join(p.read_text() for p in Path(__file__).parent.glob("test_formulas_*.py"))
    asked = {FORMULAS[op].name for op in set(re.findall(r"\w+::\w+", text)) if op in FORMULAS}
    assert {f.name for f in FORMULAS.values()} - asked == set()
