# ruff: noqa: D403 - a docstring may begin with a name from the formula
"""Matrix products, convolutions and attention: FLOPs and bytes worked out by hand."""

from __future__ import annotations

import pytest

F32, BF16, HALF, SCALAR, LIST = "float", "c10::BFloat16", "c10::Half", "Scalar", "ScalarList"


def test_mm_of_the_article(count):
    """4096³ in fp16: 2·4096³ = 137,438,953,472 FLOPs; 3 matrices of 4096²·2 B = 100,663,296 B; intensity 1365.3."""
    work = count("aten::mm", [[4096, 4096], [4096, 4096]], [HALF, HALF])
    assert work == (137_438_953_472, 100_663_296)
    assert work.flops / work.bytes == pytest.approx(1365.33, abs=0.01)


def test_mm_mixes_sizes(count):
    """(3,5)·(5,7) in fp32: 2·3·7·5 = 210 FLOPs; (15 + 35 + 21)·4 = 284 B."""
    assert count("aten::mm", [[3, 5], [5, 7]], [F32, F32]) == (210, 284)


def test_mm_into_an_output(count):
    """mm with its output handed in does and moves the same: 2·2·4·3 = 48 FLOPs; (6 + 12 + 8)·2 = 52 B in bf16."""
    assert count("aten::mm", [[2, 3], [3, 4], [2, 4]], [BF16, BF16, BF16]) == (48, 52)


def test_matrix_times_vector_and_dot(count):
    """mv (4,3)·3: 24 FLOPs, (12 + 3 + 4)·4 = 76 B; dot of 5: 10 FLOPs, (5 + 5 + 1)·4 = 44 B."""
    assert count("aten::mv", [[4, 3], [3]], [F32, F32]) == (24, 76)
    assert count("aten::dot", [[5], [5]], [F32, F32]) == (10, 44)


def test_bmm_and_broadcast_matmul(count):
    """bmm 4·(2,3)·(3,5): 2·4·2·5·3 = 240 FLOPs, (24 + 60 + 40)·4 = 496 B.

    Matmul broadcasts the right side: read once, 15.
    """
    assert count("aten::bmm", [[4, 2, 3], [4, 3, 5]], [F32, F32]) == (240, 496)
    assert count("aten::matmul", [[4, 2, 3], [3, 5]], [F32, F32]) == (240, (24 + 15 + 40) * 4)


def test_bmm_of_an_expanded_operand(count):
    """A batch of 8 that is one matrix expanded (stride 0) is read once: (6 + 8·6 + 8·4)·4 = 344 B."""
    work = count("aten::bmm", [[8, 2, 3], [8, 3, 2]], [F32, F32], strides=[[0, 3, 1], [6, 2, 1]])
    assert work == (2 * 8 * 2 * 2 * 3, (6 + 48 + 32) * 4)


def test_addmm_reads_the_bias(count):
    """(2,3)·(3,4) + 4 in bf16: 2·2·4·3 = 48 FLOPs (the bias is not counted); (4 + 6 + 12 + 8)·2 = 60 B."""
    types = [BF16, BF16, BF16, SCALAR, SCALAR]
    assert count("aten::addmm", [[4], [2, 3], [3, 4], [], []], types, ["", "", "", "1", "1"]) == (48, 60)


def test_addmm_with_beta_zero_skips_the_addend(count):
    """β = 0: the addend is not read: (6 + 12 + 8)·4 = 104 B; baddbmm with β = 1 reads all of it: 8 more."""
    types = [F32, F32, F32, SCALAR, SCALAR]
    assert count("aten::addmm", [[2, 4], [2, 3], [3, 4], [], []], types, ["", "", "", "0", "1"]) == (48, 104)
    shapes = [[1, 2, 4], [1, 2, 3], [1, 3, 4], [], []]
    assert count("aten::baddbmm", shapes, types, ["", "", "", "1", "1"]) == (48, 104 + 32)


def test_linear(count):
    """x (2,3,5), W (7,5), b 7 in fp32: 2·6·7·5 = 420 FLOPs; (30 + 35 + 7 + 42)·4 = 456 B; without a bias 428 B."""
    assert count("aten::linear", [[2, 3, 5], [7, 5], [7]], [F32, F32, F32]) == (420, 456)
    assert count("aten::linear", [[2, 3, 5], [7, 5], []], [F32, F32, ""]) == (420, 428)


def test_scaled_mm_and_int_mm(count):
    """fp8 (4,8)·(8,2) → bf16: 128 FLOPs; 32 + 16 + 2 scales·4 + 8·2 = 72 B; int8 → int32: 32 + 16 + 8·4 = 80 B."""
    fp8 = "c10::Float8_e4m3fn"
    types = [fp8, fp8, F32, F32, "", "", SCALAR, SCALAR]
    shapes = [[4, 8], [8, 2], [], [], [], [], [], []]
    assert count("aten::_scaled_mm", shapes, types, ["", "", "", "", "", "", "15", "False"]) == (128, 72)
    assert count("aten::_int_mm", [[4, 8], [8, 2]], ["signed char", "signed char"]) == (128, 80)


def test_outer_product(count):
    """addr: M (3,4) + u·vᵀ: 12 multiplies and 12 adds; (12 + 3 + 4 + 12)·4 = 124 B."""
    assert count("aten::addr", [[3, 4], [3], [4], [], []], [F32, F32, F32, SCALAR, SCALAR]) == (24, 124)


def test_products_that_do_not_fit_are_unknown(count):
    """(2,3)·(4,5) is no product: no figure rather than a wrong one."""
    assert count("aten::mm", [[2, 3], [4, 5]], [F32, F32]) is None
    assert count("aten::bmm", [[3, 2, 3], [2, 3, 5]], [F32, F32]) is None


CONV = [F32, F32, F32, LIST, LIST, LIST, SCALAR, LIST, SCALAR]


def test_convolution_2d(count):
    """x (2,3,8,8), W (4,3,3,3), b 4, stride 1, no padding → (2,4,6,6).

    288 outputs × 27 multiply-adds × 2 = 15,552 FLOPs; (384 + 108 + 288 + 4)·4 = 3,136 B.
    """
    shapes = [[2, 3, 8, 8], [4, 3, 3, 3], [4], [], [], [], [], [], []]
    concrete = ["", "", "", "[1, 1]", "[0, 0]", "[1, 1]", "False", "[0, 0]", "1"]
    assert count("aten::convolution", shapes, CONV, concrete) == (15_552, 3_136)


def test_convolution_with_stride_padding_dilation_and_groups(count):
    """cudnn_convolution x (1,4,9,9), W (6,2,3,3), padding 1, stride 2, dilation 2, groups 2.

    Reach 2·2 + 1 = 5; out = (9 + 2 - 5)//2 + 1 = 4 → (1,6,4,4) = 96 outputs × 2·9 multiply-adds × 2 = 3,456 FLOPs;
    bytes (324 + 108 + 96)·2 = 1,056 in bf16.
    """
    shapes = [[1, 4, 9, 9], [6, 2, 3, 3], [], [], [], [], [], [], []]
    types = [BF16, BF16, LIST, LIST, LIST, SCALAR, SCALAR, SCALAR, SCALAR]
    concrete = ["", "", "[1, 1]", "[2, 2]", "[2, 2]", "2", "False", "False", "True"]
    assert count("aten::cudnn_convolution", shapes, types, concrete) == (3_456, 1_056)


def test_convolution_1d_and_3d(count):
    """conv1d x (1,2,10), W (3,2,4): out 7: 21 outputs × 8 × 2 = 336 FLOPs, (20 + 24 + 21)·4 = 260 B.

    conv3d x (1,1,4,4,4), W (2,1,2,2,2): out 3³: 54 × 8 × 2 = 864 FLOPs, (64 + 16 + 54)·4 = 536 B.
    """
    types = [F32, F32, "", LIST, LIST, LIST, SCALAR]
    one = [[1, 2, 10], [3, 2, 4], [], [], [], [], []]
    assert count("aten::conv1d", one, types, ["", "", "", "[1]", "[0]", "[1]", "1"]) == (336, 260)
    three = [[1, 1, 4, 4, 4], [2, 1, 2, 2, 2], [], [], [], [], []]
    assert count("aten::conv3d", three, types, ["", "", "", "[1, 1, 1]", "[0, 0, 0]", "[1, 1, 1]", "1"]) == (864, 536)


def test_transposed_convolution(count):
    """x (2,4,8,8), W (4,2,3,3), stride 2, groups 2 → out (8-1)·2 + 3 = 17, channels 2·2: (2,4,17,17).

    Each of 2·64 input places times the weight's 72 elements, twice: 18,432 FLOPs; (512 + 72 + 2,312)·4 = 11,584 B.
    """
    shapes = [[2, 4, 8, 8], [4, 2, 3, 3], [], [], [], [], [], [], []]
    concrete = ["", "", "", "[2, 2]", "[0, 0]", "[1, 1]", "True", "[0, 0]", "2"]
    assert count("aten::convolution", shapes, [F32, F32, "", *CONV[3:]], concrete) == (18_432, 11_584)


def test_mkldnn_and_miopen_convolution(count):
    """(x, w, b, padding, stride, dilation, groups): x (1,1,4,4), W (1,1,2,2), padding 1 → 5×5: 25·4·2 = 200 FLOPs."""
    shapes = [[1, 1, 4, 4], [1, 1, 2, 2], [], [], [], [], []]
    types = [F32, F32, "", LIST, LIST, LIST, SCALAR]
    concrete = ["", "", "", "[1, 1]", "[1, 1]", "[1, 1]", "1"]
    for op in ("aten::mkldnn_convolution", "aten::miopen_convolution"):
        assert count(op, shapes, types, concrete) == (200, (16 + 4 + 25) * 4)


def test_other_layouts_of_convolution(count):
    """The same 1×1×4×4 by 2×2 with stride 2 (out 2×2.

    4·4·2 = 32 FLOPs, (16 + 4 + 4)·4 = 96 B) in each op's own order.
    """
    shape = [[1, 1, 4, 4], [1, 1, 2, 2]]
    one, two, none = "[1, 1]", "[2, 2]", "[0, 0]"
    orders = {
        "aten::conv2d": ["", two, none, one, "1"],
        "aten::_convolution": ["", two, none, one, "False", none, "1"],
        "aten::convolution_overrideable": ["", two, none, one, "False", none, "1"],
        "aten::cudnn_convolution_relu": ["", two, none, one, "1"],
        "aten::_slow_conv2d_forward": [two, "", two, none],
        "aten::_conv_depthwise2d": [two, "", two, none, one],
        "aten::miopen_depthwise_convolution": ["", none, two, one, "1"],
    }
    for op, rest in orders.items():
        types = [F32, F32, *(SCALAR if text else "" for text in rest)]
        assert count(op, shape + [[]] * len(rest), types, ["", "", *rest]) == (32, 96), op


def test_transposed_layouts(count):
    """x (1,1,2,2), W (1,1,2,2), stride 2 → 4×4: 4·4·2 = 32 FLOPs, (4 + 4 + 16)·4 = 96 B, in each op's own order."""
    shape = [[1, 1, 2, 2], [1, 1, 2, 2]]
    one, two, none = "[1, 1]", "[2, 2]", "[0, 0]"
    orders = {
        "aten::conv_transpose2d": ["", two, none, none, "1", one],
        "aten::cudnn_convolution_transpose": [none, none, two, one, "1"],
        "aten::miopen_convolution_transpose": ["", none, none, two, one, "1"],
    }
    for op, rest in orders.items():
        types = [F32, F32, *(SCALAR if text else "" for text in rest)]
        assert count(op, shape + [[]] * len(rest), types, ["", "", *rest]) == (32, 96), op


@pytest.mark.parametrize(
    ("mask", "flops", "moved"),
    [
        ("[True, True, True]", 31_104, (288 + 108 + 384 + 384 + 108 + 4) * 4),
        ("[True, False, False]", 15_552, (288 + 108 + 384) * 4),
        ("[False, True, False]", 15_552, (288 + 384 + 108) * 4),
    ],
)
def test_convolution_backward_by_mask(count, mask, flops, moved):
    """The convolution of 15,552 FLOPs above, backward: as much for the input's and for the weight's gradient.

    Input: reads grad (288) and W (108), writes dx (384). Weight: reads grad and x (384), writes dW (108). Bias:
    writes 4.
    """
    shapes = [[2, 4, 6, 6], [2, 3, 8, 8], [4, 3, 3, 3], [], [], [], [], [], [], [], []]
    types = [F32, F32, F32, LIST, LIST, LIST, LIST, SCALAR, LIST, SCALAR, LIST]
    concrete = ["", "", "", "[4]", "[1, 1]", "[0, 0]", "[1, 1]", "False", "[0, 0]", "1", mask]
    assert count("aten::convolution_backward", shapes, types, concrete) == (flops, moved)


def test_convolution_without_its_settings_is_unknown(count):
    """Older traces record no concrete inputs: the output's size is then not known, and neither is the work."""
    shapes = [[2, 3, 8, 8], [4, 3, 3, 3], [4], [], [], [], [], [], []]
    assert count("aten::convolution", shapes, CONV) is None
