"""Kernels of a compiler and users' own: element counts, buffers in place, templates, gradients of products. By hand."""

from __future__ import annotations

import json

import pytest

from roofwatch.collectors.base import Category, RawGroup
from roofwatch.collectors.carriers import kernel_formulas
from roofwatch.model.formulas import nodes
from roofwatch.model.formulas.base import Work
from roofwatch.model.formulas.fused import formula_for_own
from roofwatch.model.formulas.table import formula_of, work_of
from roofwatch.model.histogram import Histogram
from roofwatch.model.record import Phase
from roofwatch.model.shapes import call_of

F32, BF16, LONG, BOOL, INT, SCALAR = "float", "c10::BFloat16", "long int", "bool", "int", "Scalar"


def test_numbers_before_the_element_counts_are_no_counts(count):
    """A vocabulary's bounds are Scalars, too: after (888) int32, int64 and bool only the last number is the count.

    888 · (4 + 8 + 1) = 11,544 B, and integers do no FLOPs.
    """
    dims = [[888], [888], [888], *[[]] * 6]
    concrete = ["", "", "", "0", "25136", "201088", "201088", "0", "888"]
    name = "triton_poi_fused_add_bitwise_and_bitwise_not_bitwise_or_ge_lt_mul_sub_0"
    assert count(name, dims, [INT, LONG, BOOL, *[SCALAR] * 6], concrete) == (0, 11_544)


def test_sizes_of_dynamic_shapes_are_no_counts(count):
    """ks0 = 6 before xnumel = 24 (outputs (6, 4), fp32): 6 · 24 is more than any buffer holds. 24 FLOPs; 3 · 96 B."""
    dims = [[6, 4], [6, 4], [6, 4], [], []]
    assert count("triton_poi_fused_add_0", dims, [F32] * 3 + [SCALAR] * 2, ["", "", "", "6", "24"]) == (24, 288)


def test_counts_of_three_dimensions(count):
    """Counts y = 8, x = 3, r = 4 of (8, 12) fp32 read, sums of (8, 3) written: 96 FLOPs; 384 + 96 B."""
    dims = [[8, 12], [8, 3], [], [], []]
    assert count("triton_red_fused_sum_1", dims, [F32] * 2 + [SCALAR] * 3, ["", "", "8", "3", "4"]) == (96, 480)


@pytest.mark.parametrize(
    ("name", "dims", "expected"),
    [
        # x (10, 4) and its bias (4): the output can only be x itself: 40·4 read, 40·4 written, 16 B; gelu 5 FLOPs
        ("triton_poi_fused_addmm_gelu_view_15", [[10, 4], [4]], (200, 336)),
        # the last may be the output, and the first an input: each once
        ("triton_poi_fused_mul_silu_2", [[10, 4], [10, 4]], (200, 320)),
        ("triton_poi_fused_relu_0", [[10, 4]], (40, 320)),
        ("triton_poi_fused_zeros_0", [[10, 4]], (0, 160)),
        ("triton_poi_fused_arange_mul_0", [[10, 4]], (40, 160)),  # made of its index
    ],
)
def test_a_buffer_in_place_is_read_and_written(count, name, dims, expected):
    """Inductor's arguments are those in place, inputs, outputs; an output has all 40 elements."""
    types, concrete = [F32] * len(dims) + [SCALAR], [""] * len(dims) + ["40"]
    assert count(name, [*dims, []], types, concrete) == expected


def test_a_kernel_whose_name_was_cut_and_counts_folded_is_unknown(count):
    """Indices, two tables, two outputs: nothing tells how much of the tables (201088, 2880) it reads."""
    dims = [[32], [201088, 2880], [131072, 64], [32, 2880], [131072, 64]]
    assert count("triton_poi_fused_0", dims, [INT, BF16, F32, BF16, BF16]) is None


@pytest.mark.parametrize(
    ("name", "dims", "types", "expected"),
    [
        # (64, 32)·(32, 16): 2·64·32·16 FLOPs, (2048 + 512 + 1024)·2 B; the weight as stored or transposed
        ("triton_tem_fused_mm_3", [[64, 32], [32, 16], [64, 16]], [BF16] * 3, (65_536, 7_168)),
        ("triton_tem_fused_mm_t_3", [[64, 32], [16, 32], [64, 16]], [BF16] * 3, (65_536, 7_168)),
        ("triton_mm", [[64, 32], [32, 16], [64, 16]], [BF16] * 3, (65_536, 7_168)),
        # with a bias of 16 (32 B); leading dimensions flattened
        ("triton_tem_fused_addmm_gelu_7", [[16], [4, 16, 32], [32, 16], [64, 16]], [BF16] * 4, (65_536, 7_200)),
        # 3 products of (8, 4)·(4, 2): 2·3·8·4·2 FLOPs; (96 + 24 + 48)·2 B
        ("triton_tem_fused_bmm_1", [[3, 8, 4], [3, 4, 2], [3, 8, 2]], [BF16] * 3, (384, 336)),
        ("triton_tem_fused_mm_3", [[64, 32], [32, 16], [64, 15]], [BF16] * 3, None),  # they do not fit
        ("triton_tem_fused_add_mm_3", [[64, 32], [32, 16], [64, 16], [64, 16]], [BF16] * 4, None),  # which is which?
        ("triton_tem_fused_mm_3", [[64, 32], [32, 16], [64, 16]], [F32] * 3, None),  # TF32 or not is not told
    ],
)
def test_products_of_templates(count, name, dims, types, expected):
    """A template's product is counted where exactly three matrices fit each other."""
    assert count(name, dims, types) == expected


def test_templates_of_attention_are_unknown():
    """What a mask function leaves of the scores is not in a trace."""
    assert formula_of("triton_tem_fused_flex_attention_0") is None


def of_kernel(formula, op, dims, types) -> Work | None:
    """The work of a call of an op for its kernel."""
    call = call_of(op, json.dumps(dims), json.dumps(types), None, None, op)
    assert call is not None
    return work_of(formula, call)


def test_a_users_norm_moves_its_tensors_once():
    """Rows (100, 8) bf16 in and out, weight (8): at least mean square, root and product: 4 FLOPs · 800; 3,216 B."""
    formula = formula_for_own("_rms_norm_forward_kernel", "_rms_norm_forward_kernel")
    assert formula is not None
    dims, types = [[100, 8], [100, 8], [8], []], [BF16, BF16, BF16, SCALAR]
    assert of_kernel(formula, "_rms_norm_forward_kernel", dims, types) == (3_200, 3_216, None)


@pytest.mark.parametrize(
    ("op", "kernel"),
    [
        ("_fwd_kernel_stage1", "_fwd_kernel_stage1"),  # attention over a cache of which a part is read
        ("my_kernel", "my_kernel"),
        ("aten::_softmax", "cunn_SoftMaxForward<4, float>"),
    ],
)
def test_other_kernels_of_users_are_unknown(op, kernel):
    """What a kernel's name does not tell, its arguments do not either; and an op is no kernel."""
    assert formula_for_own(op, kernel) is None


@pytest.mark.parametrize(
    ("op", "dims", "expected"),
    [
        # forward (64, 32)·(32, 16): each gradient 2·64·32·16 FLOPs over the same three matrices, 14,336 B in fp32
        ("MmBackward0", [[64, 32], [32, 16]], (65_536, 14_336, None)),
        ("AddmmBackward0", [[16], [64, 32], [32, 16]], (65_536, 14_336, None)),
        ("BmmBackward0", [[2, 64, 32], [2, 32, 16]], (131_072, 28_672, None)),
        # x (4, 16, 32), weight (16, 32) as stored
        (
            "LinearWithGradAccumulationAndAsyncCommunicationBackward",
            [[4, 16, 32], [16, 32]],
            (65_536, 14_336, None),
        ),
        ("MmBackward0", [[64, 16]], None),  # only its own gradient: the forward op was not in the window
    ],
)
def test_gradients_of_a_product(op, dims, expected):
    """2·M·N·K each, whichever gradient."""
    assert of_kernel(nodes.GRADIENT, op, dims, [F32] * len(dims)) == expected


def record(op: str, kernel: str) -> RawGroup:
    """One launch of a kernel under an op."""
    return RawGroup(
        0, kernel, Category.KERNEL, op, None, None, None, None, Phase.BACKWARD, None, backlog=False, linked=True,
        calls=1, total_ns=1000, min_ns=1000, max_ns=1000, histogram=Histogram.from_values([1000]),
    )  # fmt: skip


def test_every_product_of_a_node_carries_a_gradient_and_nothing_else_does():
    """Of a node's three kernels the two products have each a gradient's work; the sum's stays unknown."""
    names = ["volta_sgemm_64x64_nt", "volta_sgemm_128x64_nn", "void at::native::reduce_kernel<128, 4, float>"]
    family = [record("AddmmBackward0", name) for name in names]
    assert kernel_formulas(family) == [nodes.GRADIENT, nodes.GRADIENT, None]
