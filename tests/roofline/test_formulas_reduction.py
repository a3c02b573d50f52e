# ruff: noqa: D403 - a docstring may begin with a name from the formula
"""Reductions, pooling, losses: FLOPs and bytes worked out by hand."""

from __future__ import annotations

F32, LONG, BOOL = "float", "long int", "bool"
SCALAR, LIST = "Scalar", "ScalarList"


def test_sum_along_dimensions(count):
    """(4,8,16) fp32, the last reduced: 512 FLOPs, 2,048 read, 32·4 written; all reduced: 4 written."""
    shapes, types = [[4, 8, 16], [], [], []], [F32, LIST, SCALAR, ""]
    assert count("aten::sum", shapes, types, ["", "[-1]", "False", ""]) == (512, 2_176)
    assert count("aten::mean", shapes, types, ["", "[0, 1, 2]", "False", ""]) == (512, 2_052)


def test_sum_whose_dimensions_were_not_recorded_is_a_lower_bound(count):
    """Without concrete inputs the result's size is unknown: only the 2,048 B that must be read count."""
    assert count("aten::sum", [[4, 8, 16], [], [], []], [F32, LIST, SCALAR, ""]) == (512, 2_048)


def test_variance_and_norm(count):
    """var of 512 fp32: mean, difference, square, sum: 2,048 FLOPs, 2,048 + 4 B.

    A 2-norm: square and sum, 1,024 FLOPs.
    """
    assert count("aten::var", [[512], [], [], []], [F32, "", "", SCALAR], ["", "", "", "False"]) == (2_048, 2_052)
    types = [F32, SCALAR, "", SCALAR, ""]
    assert count("aten::linalg_vector_norm", [[512]] + [[]] * 4, types, ["", "2", "", "False", ""]) == (1_024, 2_052)
    assert count("aten::logsumexp", [[4, 8], [], []], [F32, LIST, SCALAR], ["", "[1]", "False"]) == (96, 144)


def test_logical_and_arg_reductions(count):
    """any over 100 bools: 100 + 1 B; count_nonzero of 100 int64: 800 + 8 B.

    Argmax of (4,25) fp32: 100 FLOPs, 400 + 4·8 B.
    """
    assert count("aten::any", [[100]], [BOOL], [""]) == (0, 101)
    assert count("aten::count_nonzero", [[100], []], [LONG, ""], ["", ""]) == (0, 808)
    assert count("aten::argmax", [[4, 25], [], []], [F32, SCALAR, SCALAR], ["", "1", "False"]) == (100, 432)


def test_max_in_its_three_forms(count):
    """Of all 100 fp32: 400 + 4 B. Along a dimension of (4,25): values and int64 indices: 400 + 4·12.

    Of two: 1,200 B.
    """
    assert count("aten::max", [[100]], [F32], [""]) == (100, 404)
    assert count("aten::max", [[4, 25], [], []], [F32, SCALAR, SCALAR], ["", "1", "False"]) == (100, 448)
    assert count("aten::max", [[100], [100]], [F32, F32], ["", ""]) == (100, 1_200)


def test_scan_sort_and_topk(count):
    """cumsum of 100 int32 widens to int64: 400 + 800 B. sort of 100 fp32: 400 + 1,200 B.

    Top 3 of 4 rows of 25: 400 + 12·12 B.
    """
    assert count("aten::cumsum", [[100], [], []], ["int", SCALAR, ""], ["", "0", ""]) == (0, 1_200)
    assert count("aten::cumsum", [[100], [], []], [F32, SCALAR, ""], ["", "0", ""]) == (100, 800)
    assert count("aten::sort", [[100], [], []], [F32, SCALAR, SCALAR]) == (0, 1_600)
    types = [F32, SCALAR, SCALAR, SCALAR, SCALAR]
    assert count("aten::topk", [[4, 25]] + [[]] * 4, types, ["", "3", "-1", "True", "True"]) == (0, 544)


POOL = [F32, LIST, LIST, LIST, LIST, SCALAR]


def test_max_pool(count):
    """(1,2,8,8), window 2, stride 2: 32 outputs × 4 = 128 FLOPs; 512 read, 32·(4 + 8) written.

    Stride unset: the window's.
    """
    shapes = [[1, 2, 8, 8]] + [[]] * 5
    for stride in ("[2, 2]", "[]"):
        concrete = ["", "[2, 2]", stride, "[0, 0]", "[1, 1]", "False"]
        assert count("aten::max_pool2d_with_indices", shapes, POOL, concrete) == (128, 896)


def test_max_pool_in_ceil_mode(count):
    """Length 5, window 2, stride 2, ceil: 3 outputs a side, 9 in all.

    Padding 1 and stride 3: the third would start in padding.

    (5 + 2 - 2)/3 = 1.67 → ceil 2, + 1 = 3; its start 2·3 = 6 is not below 5 + 1, so 2 a side, 4 in all.
    """
    shapes = [[1, 1, 5, 5]] + [[]] * 5
    work = count("aten::max_pool2d_with_indices", shapes, POOL, ["", "[2, 2]", "[2, 2]", "[0, 0]", "[1, 1]", "True"])
    assert work == (36, 100 + 108)
    work = count("aten::max_pool2d_with_indices", shapes, POOL, ["", "[2, 2]", "[3, 3]", "[1, 1]", "[1, 1]", "True"])
    assert work == (16, 100 + 48)


def test_average_pools(count):
    """avg (1,2,8,8) by 4: 8 outputs × 16 FLOPs, 512 + 32 B. Adaptive to 1×1: 128 additions, 512 + 8 B."""
    types, concrete = [F32, LIST, LIST, LIST, SCALAR], ["", "[4, 4]", "[4, 4]", "[0, 0]", "False"]
    assert count("aten::avg_pool2d", [[1, 2, 8, 8]] + [[]] * 4, types, concrete) == (128, 544)
    shapes = [[1, 2, 8, 8], []]
    assert count("aten::_adaptive_avg_pool2d", shapes, [F32, LIST], ["", "[1, 1]"]) == (128, 520)


def test_pool_backward(count):
    """Gradient of 32 outputs and their indices read (128 + 256 B), dx of 128 written (512 B)."""
    shapes = [[1, 2, 4, 4], [1, 2, 8, 8]] + [[]] * 5 + [[1, 2, 4, 4]]
    types = [F32, F32, LIST, LIST, LIST, LIST, SCALAR, LONG]
    assert count("aten::max_pool2d_with_indices_backward", shapes, types) == (32, 896)


def test_pointwise_losses(count):
    """mse of 100 fp32: difference and square, 200 FLOPs, 1,200 B.

    Backward with a 0-dim gradient: 300 FLOPs, 1,200 B.
    """
    assert count("aten::mse_loss", [[100], [100], []], [F32, F32, SCALAR]) == (200, 1_200)
    shapes, types = [[], [100], [100], []], [F32, F32, F32, SCALAR]
    assert count("aten::mse_loss_backward", shapes, types) == (300, 1_200)
    losses = {"l1_loss": 2, "smooth_l1_loss": 4, "huber_loss": 4, "binary_cross_entropy": 7, "soft_margin_loss": 4}
    for name, flops in losses.items():
        assert count(f"aten::{name}", [[10], [10], []], [F32, F32, SCALAR]) == (10 * flops, 120), name
    backward = {"smooth_l1_loss": 3, "huber_loss": 3, "binary_cross_entropy": 5}
    for name, flops in backward.items():
        shapes = [[10], [10], [10], []]
        assert count(f"aten::{name}_backward", shapes, types) == (10 * flops, 160), name


def test_nll_loss(count):
    """32 rows of 10: 32 targets of 8 B and 32 log-probabilities of 4 B read, loss and weight written.

    392 B, 32 additions.

    Backward writes one element a row: 32·8 + 32·4 = 384 B.
    """
    shapes, types = [[32, 10], [32], [], [], []], [F32, LONG, "", SCALAR, SCALAR]
    assert count("aten::nll_loss_forward", shapes, types, ["", "", "", "1", "-100"]) == (32, 392)
    shapes = [[], [32, 10], [32], [], [], [], []]
    types = [F32, F32, LONG, "", SCALAR, SCALAR, F32]
    assert count("aten::nll_loss_backward", shapes, types) == (32, 384)
