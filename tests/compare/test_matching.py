"""Which piece is matched with which: names across vendors, sizes, fusions, and what is left."""

from __future__ import annotations

from typing import Any

import pytest
from comparison_scene import LEFT, LEFT_TOO, RIGHT, compared, row, signature, stat, window

from roofwatch.model.comparison_groups import RECIPES, Recipe
from roofwatch.model.comparison_ops import canonical
from roofwatch.model.kinds import Kind
from roofwatch.model.record import Bound, Device, KernelStat, Phase, Vendor

X = [2048, 1024]
N = 2048 * 1024


def ran(
    device: Device, op: str | None, kind: Kind, shapes: Any, ns: int, flops: int | None = None, **more: Any
) -> KernelStat:
    """A kernel: by its type on RIGHT, by its op elsewhere. ``moved`` is twice the FLOPs if not told."""
    kernel = more.pop("kernel", op or "")
    moved = more.pop("moved", None if flops is None else 2 * flops)
    calls = more.pop("calls", 1)
    what = signature(
        kernel if device is RIGHT else f"k_{kernel}", kind, None if device is RIGHT else op, shapes,
        None if shapes is None else "bf16", flops=flops, moved=moved, **more,
    )  # fmt: skip
    return stat(what, ns, calls, device=device)


@pytest.mark.parametrize(
    ("type_", "op"),
    [
        ("MatMulV3", "aten::mm"), ("BatchMatMulV2", "aten::bmm"), ("Conv2D", "aten::cudnn_convolution"),
        ("Conv2D", "aten::mkldnn_convolution"), ("FlashAttentionScore", "aten::_flash_attention_forward"),
        ("FlashAttentionScoreGrad", "aten::_efficient_attention_backward"), ("SoftmaxV2", "aten::_softmax"),
        ("SoftmaxGrad", "aten::_softmax_backward_data"), ("LogSoftmaxV2", "aten::_log_softmax"),
        ("RmsNorm", "aten::_fused_rms_norm"), ("RmsNormGrad", "aten::_fused_rms_norm_backward"),
        ("LayerNormV3", "aten::native_layer_norm"), ("LayerNormGradV3", "aten::native_layer_norm_backward"),
        ("Adds", "aten::add_"), ("Muls", "aten::mul"), ("RealDiv", "aten::div"), ("Pows", "aten::pow"),
        ("Swish", "aten::silu"), ("SwiGlu", "_C::silu_and_mul"), ("GeluGrad", "aten::gelu_backward"),
        ("ReluGrad", "aten::threshold_backward"), ("Relu", "aten::clamp_min_"), ("Cast", "aten::_to_copy"),
        ("TensorMove", "aten::copy_"), ("ConcatD", "aten::cat"), ("GatherV2", "aten::index_select"),
        ("GatherElements", "aten::gather"), ("EmbeddingDenseGrad", "aten::embedding_dense_backward"),
        ("ReduceSum", "aten::sum"), ("ReduceMean", "aten::mean"), ("TopKV2", "aten::topk"), ("Equal", "aten::eq"),
        ("GreaterEqual", "aten::ge"), ("NLLLoss", "aten::nll_loss_forward"), ("SelectV2", "aten::where"),
        ("MaxPoolWithArgmaxV1", "aten::max_pool2d_with_indices"), ("ApplyAdamWV2", "aten::_fused_adamw_"),
        ("MaxPoolGradWithArgmaxV1", "aten::max_pool2d_with_indices_backward"), ("Sqrt", "aten::sqrt"),
        ("ForeachAddList", "aten::_foreach_add_"), ("RotaryPositionEmbedding", "_C::rotary_embedding"),
    ],
)  # fmt: skip
def test_a_type_of_cann_and_an_op_of_aten_have_one_name(type_: str, op: str) -> None:
    """Both are the same op."""
    name = canonical(None, type_, Vendor.ASCEND)
    assert name is not None
    assert name == canonical(op, "a_kernel", Vendor.NVIDIA)


@pytest.mark.parametrize(
    ("one", "other"),
    [("aten::gather", "aten::index_select"), ("aten::softmax", "aten::log_softmax"), ("aten::mm", "aten::addmm"),
     ("aten::gelu", "aten::gelu_backward"), ("aten::add", "aten::sub")],
)  # fmt: skip
def test_other_ops_have_other_names(one: str, other: str) -> None:
    """Names do not run together."""
    assert canonical(one, "k", Vendor.NVIDIA) != canonical(other, "k", Vendor.NVIDIA)


def test_what_nobody_names_has_no_op() -> None:
    """A kernel without op, and one of a graph that could not be attributed."""
    assert canonical(None, "triton_poi_0", Vendor.NVIDIA) is None
    assert canonical("graph 12, unattributed", "gemm", Vendor.NVIDIA) is None


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ([[512, 256], [256, 128]], [[512, 256], [128, 256]]),  # the second transposed
        ([[256, 512], [256, 128]], [[512, 256], [256, 128]]),  # the first
        ([[512, 256], [256, 128]], [[128, 256], [512, 256]]),  # the product transposed: B'A'
    ],
)  # fmt: skip
def test_a_product_is_the_same_however_it_is_stored(left: Any, right: Any) -> None:
    """2·512·256·128 FLOPs with the same elements in both operands."""
    flops = 2 * 512 * 256 * 128
    answer = compared(
        window(LEFT, [ran(LEFT, "aten::mm", Kind.MATMUL, left, 100, flops)]),
        window(RIGHT, [ran(RIGHT, None, Kind.MATMUL, right, 300, flops, kernel="MatMulV3")]),
    )
    assert row(answer, kind="matmul")["match"] == "same"


def test_a_product_of_other_sizes_is_not_the_same() -> None:
    """As many FLOPs in another shape: matched by size, and said so."""
    flops = 2 * 512 * 256 * 128
    answer = compared(
        window(LEFT, [ran(LEFT, "aten::mm", Kind.MATMUL, [[512, 256], [256, 128]], 100, flops)]),
        window(LEFT_TOO, [ran(LEFT_TOO, "aten::mm", Kind.MATMUL, [[256, 256], [256, 256]], 100, flops)]),
    )
    assert row(answer, kind="matmul")["match"] == "size"


def test_tiled_formats_are_matched_by_flops() -> None:
    """A convolution in NC1HWC0 and FRACTAL_Z, its shapes nothing like the plain ones."""
    flops = 2 * 32 * 64 * 55 * 55 * 3 * 121
    plain, tiled = [[32, 3, 224, 224], [64, 3, 11, 11], [64]], [[32, 1, 224, 224, 8], [121, 4, 16, 8], [64]]
    answer = compared(
        window(LEFT, [ran(LEFT, "aten::cudnn_convolution", Kind.CONV, plain, 100, flops)]),
        window(RIGHT, [ran(RIGHT, None, Kind.CONV, tiled, 300, flops, kernel="Conv2D")]),
    )
    found = row(answer, kind="conv")
    assert (found["match"], found["op"], found["shapes"]) == ("size", "convolution", plain)


def test_kernels_of_one_op_are_one_piece() -> None:
    """A product and its split-K reduction against a product: the helper's time counts, the work counts once."""
    flops, shapes = 2 * 512 * 256 * 128, [[512, 256], [256, 128]]
    split = [
        ran(LEFT, "aten::mm", Kind.MATMUL, shapes, 80, flops, kernel="gemm"),
        ran(LEFT, "aten::mm", Kind.MATMUL, shapes, 20, kernel="splitKreduce"),
    ]
    answer = compared(
        window(LEFT, split), window(LEFT_TOO, [ran(LEFT_TOO, "aten::mm", Kind.MATMUL, shapes, 150, flops)])
    )
    found = row(answer, kind="matmul")
    assert (found["left_ns"], found["right_ns"], found["left_calls"], found["match"]) == (100, 150, 1.0, "same")
    assert found["left_roof_fraction"] == pytest.approx(2 * flops / 2_000 / 100)


def test_more_calls_on_one_side_have_no_partner() -> None:
    """30 calls against 10 of the same: ten are compared, what twenty took stands alone."""
    shapes = [[64, 1024]]
    left = [ran(LEFT, "aten::gelu", Kind.ACTIVATION, shapes, 3_000, 65_536, calls=30)]
    right = [ran(LEFT_TOO, "aten::gelu", Kind.ACTIVATION, shapes, 1_500, 65_536, calls=10)]
    answer = compared(window(LEFT, left), window(LEFT_TOO, right))
    both, alone = row(answer, match="same"), row(answer, match=None)
    assert (both["left_ns"], both["right_ns"], both["left_calls"]) == (1_000, 1_500, 10.0)
    assert (alone["left_ns"], alone["right_ns"], alone["left_calls"]) == (2_000, 0, 20.0)


def test_steps_of_other_calls_by_a_few_are_one_row() -> None:
    """49 against 48 calls a step are the edges of windows, not another work."""
    shapes = [[64, 1024]]
    left = [ran(LEFT, "aten::gelu", Kind.ACTIVATION, shapes, 4_900, 65_536, calls=49)]
    right = [ran(LEFT_TOO, "aten::gelu", Kind.ACTIVATION, shapes, 4_800, 65_536, calls=48)]
    answer = compared(window(LEFT, left), window(LEFT_TOO, right))
    assert len(answer["rows"]) == 1


def eager_norm(device: Device) -> list[KernelStat]:
    """RMS norm in six ops, and the residual's addition before it."""
    rows = [2048, 1]
    return [
        ran(device, "aten::add", Kind.ELEMENTWISE, [X, X], 700, N),
        ran(device, "aten::pow", Kind.ELEMENTWISE, [X], 500, N),
        ran(device, "aten::mean", Kind.REDUCTION, [X], 400, N),
        ran(device, "aten::rsqrt", Kind.ELEMENTWISE, [rows], 50, 2048),
        ran(device, "aten::mul", Kind.ELEMENTWISE, [X, rows], 600, N),
        ran(device, "aten::mul", Kind.ELEMENTWISE, [[1024], X], 600, N),
    ]


def test_a_norm_in_many_ops_against_one_kernel() -> None:
    """AddRmsNorm against add, pow, mean, rsqrt and two mul: 2,850 ns against 1,000."""
    fused = [ran(RIGHT, None, Kind.NORM, [X, X, [1024]], 1_000, 5 * N, kernel="AddRmsNorm")]
    answer = compared(window(LEFT, eager_norm(LEFT)), window(RIGHT, fused))
    found = row(answer, match="group")
    assert (found["group"], found["left_ns"], found["right_ns"]) == ("add + norm", 2_850, 1_000)
    assert len(answer["rows"]) == 1


def test_an_addition_elsewhere_is_no_part_of_the_norm() -> None:
    """Of other sizes, it stands alone."""
    other = ran(LEFT, "aten::add", Kind.ELEMENTWISE, [[77, 33], [77, 33]], 900, 77 * 33)
    fused = [ran(RIGHT, None, Kind.NORM, [X, X, [1024]], 1_000, 5 * N, kernel="AddRmsNorm")]
    answer = compared(window(LEFT, [*eager_norm(LEFT), other]), window(RIGHT, fused))
    assert row(answer, match="group")["left_ns"] == 2_850
    assert row(answer, match=None)["left_ns"] == 900


def test_gates_addends_and_gradients() -> None:
    """Swiglu against silu and mul; addmm against mm and add; a convolution's backward against its two gradients."""
    wide, half = [2048, 6144], [2048, 3072]
    product, conv = 2 * 2048 * 1024 * 512, 10**9
    grads = [[32, 64, 27, 27], [32, 64, 55, 55], [64, 64, 3, 3]]
    left = [
        ran(LEFT, "aten::silu", Kind.ACTIVATION, [half], 300, 4 * 2048 * 3072),
        ran(LEFT, "aten::mul", Kind.ELEMENTWISE, [half, half], 400, 2048 * 3072),
        ran(LEFT, "aten::addmm", Kind.MATMUL, [[512], X, [1024, 512]], 900, product),
        ran(LEFT, "aten::convolution_backward", Kind.CONV, grads, 2_000, 2 * conv),
    ]
    right = [
        ran(RIGHT, None, Kind.ACTIVATION, [wide], 500, 5 * 2048 * 3072, kernel="SwiGlu"),
        ran(RIGHT, None, Kind.MATMUL, [X, [1024, 512]], 1_000, product, kernel="MatMulV2"),
        ran(RIGHT, None, Kind.ELEMENTWISE, [[2048, 512], [512]], 100, 2048 * 512, kernel="Add"),
        ran(RIGHT, None, Kind.CONV, grads[:2], 1_500, conv, kernel="Conv2DBackpropInput"),
        ran(RIGHT, None, Kind.CONV, grads[:2], 1_600, conv, kernel="Conv2DBackpropFilter"),
        ran(RIGHT, None, Kind.REDUCTION, [[32, 64, 729]], 90, 32 * 64 * 729, kernel="ReduceSum"),
    ]
    answer = compared(window(LEFT, left), window(RIGHT, right))
    times = {r["group"]: (r["left_ns"], r["right_ns"]) for r in answer["rows"]}
    assert times == {"gate": (700, 500), "addmm": (900, 1_100), "convolution backward": (2_000, 3_190)}


def test_attention_of_two_sizes_takes_its_own_products() -> None:
    """Each fused kernel is laid beside the chain of its size, told by the FLOPs of the products."""
    left, right = [], []
    for i, s in enumerate((128, 256), 1):
        scores, flops = [64, s, s], 2 * 64 * s * s * 64
        left.append(
            ran(LEFT, "aten::_flash_attention_forward", Kind.ATTENTION, [[4, s, 16, 64]] * 3, 100 * i, 2 * flops)
        )
        right += [
            ran(LEFT_TOO, "aten::bmm", Kind.MATMUL, [[64, s, 64], [64, 64, s]], 10 * i, flops),
            ran(LEFT_TOO, "aten::_softmax", Kind.SOFTMAX, [scores], 1_000 * i, 64 * s * s),
            ran(LEFT_TOO, "aten::bmm", Kind.MATMUL, [scores, [64, s, 64]], 20 * i, flops),
        ]
    answer = compared(window(LEFT, left), window(LEFT_TOO, right))
    assert {(r["left_ns"], r["right_ns"], r["group"]) for r in answer["rows"]} == {
        (100, 1_030, "attention"), (200, 2_060, "attention"),
    }  # fmt: skip


def test_optimizers_are_matched_as_a_whole() -> None:
    """One kernel for all parameters against an op for each; the model's own additions stay apart."""
    left = [ran(LEFT, "aten::_fused_adamw_", Kind.OPTIMIZER, [[[512, 512], [512]]], 500, 10**6)]
    right = [
        ran(LEFT_TOO, "aten::add_", Kind.ELEMENTWISE, [[512, 512]], 200, 512 * 512, phase=Phase.OPTIMIZER),
        ran(LEFT_TOO, "aten::addcdiv_", Kind.ELEMENTWISE, [[512, 512]], 300, 512 * 512, phase=Phase.OPTIMIZER),
        ran(LEFT_TOO, "aten::add", Kind.ELEMENTWISE, [[512, 512]], 70, 512 * 512, phase=Phase.FORWARD),
    ]
    extra = ran(LEFT, "aten::add", Kind.ELEMENTWISE, [[512, 512]], 60, 512 * 512, phase=Phase.FORWARD)
    answer = compared(window(LEFT, [*left, extra]), window(LEFT_TOO, right))
    found = row(answer, group="optimizer")
    assert (found["left_ns"], found["right_ns"]) == (500, 500)
    assert row(answer, match="same")["right_ns"] == 70


def test_without_shapes_by_kernel_then_by_op_then_by_kind() -> None:
    """The same kernel of the same op is the same; else the op, else the kind; unknown names are no pair."""
    left = [
        ran(LEFT, "aten::mm", Kind.MATMUL, None, 100, kernel="gemm_a"),
        ran(LEFT, "aten::add", Kind.ELEMENTWISE, None, 30, kernel="add_a"),
        ran(LEFT, None, Kind.NORM, None, 20, kernel="norm_a"),
        ran(LEFT, None, Kind.OTHER, None, 7, kernel="mystery_a"),
    ]
    right = [
        ran(LEFT_TOO, "aten::mm", Kind.MATMUL, None, 200, kernel="gemm_a"),
        ran(LEFT_TOO, "aten::add", Kind.ELEMENTWISE, None, 50, kernel="add_b"),
        ran(LEFT_TOO, None, Kind.NORM, None, 40, kernel="norm_b"),
        ran(LEFT_TOO, None, Kind.OTHER, None, 9, kernel="mystery_b"),
    ]
    answer = compared(window(LEFT, left), window(LEFT_TOO, right))
    assert [(r["match"], r["left_ns"], r["right_ns"]) for r in answer["rows"]] == [
        ("same", 100, 200), ("op", 30, 50), ("kind", 20, 40), (None, 0, 9), (None, 7, 0),
    ]  # fmt: skip
    assert [w["warning"] for w in answer["warnings"]] == ["shapes", "shapes", "few"]
    assert all(r["expected_ratio"] is None for r in answer["rows"])


def test_collectives_are_told_apart_by_their_message() -> None:
    """Two all-reduces of other sizes; the kernel's name is each library's own."""

    def reduced(kernel: str, moved: int, ns: int, device: Device) -> KernelStat:
        told = {"collective": "all_reduce", "dtype": "bf16", "group_size": 8}
        what = signature(kernel, Kind.COMM, "c10d::allreduce_", moved=moved, arguments=told)
        return stat(what, ns, bound=Bound.COMMUNICATION, device=device)

    answer = compared(
        window(LEFT, [reduced("nccl_a", 1 << 20, 10, LEFT), reduced("nccl_a", 1 << 24, 90, LEFT)]),
        window(RIGHT, [reduced("hcom_b", 1 << 20, 30, RIGHT), reduced("hcom_b", 1 << 24, 80, RIGHT)]),
    )
    assert {(r["left_ns"], r["right_ns"], r["match"]) for r in answer["rows"]} == {(10, 30, "same"), (90, 80, "same")}


def test_unknown_peaks_leave_the_expectation_unknown_and_counted() -> None:
    """A device nobody measured: no expected ratio, no gap, and all of it counted as unknown."""
    dark = Device(Vendor.CPU, "CPU")
    left = [ran(LEFT, "aten::gelu", Kind.ACTIVATION, [[64, 1024]], 1_000, 65_536)]
    answer = compared(window(LEFT, left), window(dark, [
        ran(dark, "aten::gelu", Kind.ACTIVATION, [[64, 1024]], 9_000, 65_536)]))  # fmt: skip
    found, kernels = row(answer, kind="activation"), answer["summary"]["kernels"]
    assert (found["match"], found["ratio"], found["expected_ratio"], found["software_gap"]) == ("same", 9.0, None, None)
    assert found["left_roof_fraction"] is not None
    assert found["right_roof_fraction"] is None
    assert (kernels["expected_ratio"], kernels["unknown_rows"], kernels["left_share"]) == (None, 1, 0.0)


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: recipe.name)
def test_no_fused_piece_is_part_of_another(recipe: Recipe) -> None:
    """What may do a fused piece's work is looked for once a recipe: it stays the same but for what a group takes."""
    assert recipe.fused.isdisjoint(frozenset().union(recipe.besides, recipe.alike, *recipe.needed))
