"""One step in the manner of CUDA and in that of Ascend, its whole answer worked out by hand.

A step of a layer with 16 sequences of 128 tokens, 1024 wide; the tensors are bf16, so an element is 2 bytes. On LEFT a
nanosecond is 1e6 FLOPs or 2,000 bytes, on RIGHT half of that, so every expected ratio is 2. Nanoseconds a step:

                              left      right
    product                 20,000     60,000    roof  17,180 = 17,179,869,184 FLOPs, on the right twice that
    gelu                    20,000     35,000    roof  16,777 = 33,554,432 bytes
    attention               10,000     80,000    left fused: roof 8,389 = 16,777,216 bytes; right in four kernels
                                                 (20, 18, 22 and 20 thousand) of as many bytes each
    add and norm      7,000 + 6,000    20,000    right fused; roofs by bytes, below
    layout tax                   -      4,000
    embedding                3,000          -
    all-reduce              30,000     40,000    of which exposed 10,000 and 25,000
    copy                     2,000          -    exposed
    overlap                 20,000     15,000    what of the all-reduce is hidden
    idle                     6,000     17,000    left 5,000 launch bound, 1,000 sync; right 15,000 and 2,000 host
    a step                  84,000    241,000
"""

from __future__ import annotations

import math
from typing import Any

import pytest
from comparison_scene import LEFT, RIGHT, compared, part, row, signature, stat, window

from roofwatch.model.kinds import Kind
from roofwatch.model.record import Bound, Cause, KernelStat, Window

X = [2048, 1024]
MESSAGE = {"collective": "all_reduce", "dtype": "bf16", "group_size": 8}
PRODUCT = 2 * 2048 * 1024 * 4096
SCORES = [256, 128, 128]


def cuda_step() -> Window:
    """Two steps as a CUDA trace tells them, with 8,000 ns of a product launched before the window."""
    qkv = [16, 128, 16, 64]
    ops = [
        (signature("gemm", Kind.MATMUL, "aten::mm", [X, [1024, 4096]], "bf16", flops=PRODUCT,
                   moved=2 * (2048 * 1024 + 1024 * 4096 + 2048 * 4096), unit="matrix"), 20_000, Bound.COMPUTE),
        (signature("gelu", Kind.ACTIVATION, "aten::gelu", [[2048, 4096]], "bf16", flops=8 * 2048 * 4096,
                   moved=2 * 2 * 2048 * 4096), 20_000, Bound.MEMORY),
        (signature("flash_fwd", Kind.ATTENTION, "aten::_flash_attention_forward", [qkv, qkv, qkv], "bf16",
                   flops=4 * 16 * 16 * 128 * 128 * 64, moved=4 * 2 * 16 * 128 * 1024, unit="matrix"), 10_000,
         Bound.MEMORY),
        (signature("add", Kind.ELEMENTWISE, "aten::add", [X, X], "bf16", flops=2048 * 1024,
                   moved=3 * 2 * 2048 * 1024), 7_000, Bound.MEMORY),
        (signature("rms", Kind.NORM, "aten::_fused_rms_norm", [X, [1024]], "bf16", flops=4 * 2048 * 1024,
                   moved=2 * 2 * 2048 * 1024 + 2 * 1024), 6_000, Bound.MEMORY),
        (signature("gather", Kind.GATHER_SCATTER, "aten::index_select", [[32000, 1024], [2048]], ["bf16", "int64"],
                   flops=0, moved=2 * 2 * 2048 * 1024), 3_000, Bound.MEMORY),
        (signature("ncclDevKernel_AllReduce", Kind.COMM, "c10d::allreduce_", arguments=MESSAGE), 30_000,
         Bound.COMMUNICATION),
        (signature("Memcpy HtoD (Pinned -> Device)", Kind.COPY_FILL, "aten::copy_"), 2_000, Bound.COPY),
    ]  # fmt: skip
    kernels = [stat(what, 2 * ns, 2, bound=bound) for what, ns, bound in ops]
    kernels[0] = stat(ops[0][0], 48_000, 3, outside_ns=8_000, outside_calls=1, bound=Bound.COMPUTE)
    idle = {Cause.LAUNCH_BOUND: 10_000, Cause.SYNC: 2_000}
    return window(LEFT, kernels, busy_ns=204_000 - 40_000, idle=idle, exposed=(20_000, 4_000), steps=2)


def ascend_step() -> Window:
    """One step as CANN's tables tell it: by the kernels' types, the weight of the product transposed."""
    wide = 2 * 2 * 256 * 128 * 128
    products = 2 * 256 * 128 * 128 * 64
    norm = 4 * 2 * 2048 * 1024 + 2 * 1024

    def ran(type_: str, kind: Kind, shapes: Any, ns: int, flops: int, moved: int, *, cube: bool = False) -> KernelStat:
        what = signature(
            type_, kind, None, shapes, "bf16", flops=flops, moved=moved, unit="matrix" if cube else "vector"
        )
        return stat(what, ns, device=RIGHT)

    kernels = [
        ran("MatMulV3", Kind.MATMUL, [X, [4096, 1024]], 60_000, PRODUCT,
            2 * (2048 * 1024 + 1024 * 4096 + 2048 * 4096), cube=True),
        ran("Gelu", Kind.ACTIVATION, [[2048, 4096]], 35_000, 8 * 2048 * 4096, 2 * 2 * 2048 * 4096),
        ran("BatchMatMulV2", Kind.MATMUL, [[256, 128, 64], [256, 128, 64]], 20_000, products,
            2 * (2 * 256 * 128 * 64 + 256 * 128 * 128), cube=True),
        ran("Muls", Kind.ELEMENTWISE, [SCORES], 18_000, 256 * 128 * 128, wide),
        ran("SoftmaxV2", Kind.SOFTMAX, [SCORES], 22_000, 5 * 256 * 128 * 128, wide),
        ran("BatchMatMulV2", Kind.MATMUL, [SCORES, [256, 128, 64]], 20_000, products,
            2 * (2 * 256 * 128 * 64 + 256 * 128 * 128), cube=True),
        ran("AddRmsNorm", Kind.NORM, [X, X, [1024]], 20_000, 5 * 2048 * 1024, norm),
        stat(signature("TransData", Kind.LAYOUT, "aten::mm", [[4096, 1024]], "bf16", flops=0, moved=1 << 24), 4_000,
             device=RIGHT),
        stat(signature("hcom_allReduce_", Kind.COMM, "c10d::allreduce_", arguments=MESSAGE), 40_000,
             bound=Bound.COMMUNICATION, device=RIGHT),
    ]  # fmt: skip
    idle = {Cause.LAUNCH_BOUND: 15_000, Cause.HOST: 2_000}
    return window(RIGHT, kernels, busy_ns=239_000 - 15_000, idle=idle, exposed=(25_000, 0), steps=1)


@pytest.fixture(scope="module")
def answer() -> dict[str, Any]:
    """Both side by side."""
    return compared(cuda_step(), ascend_step())


def test_the_times_of_a_step(answer: dict[str, Any]) -> None:
    """84 and 241 µs: rows − overlap + idle, the backlog left out and told."""
    left, right = answer["summary"]["left"], answer["summary"]["right"]
    assert answer["summary"]["per"] == "step"
    assert [left[k] for k in ("time_ns", "rows_ns", "overlap_ns", "idle_ns")] == [84_000, 98_000, 20_000, 6_000]
    assert [right[k] for k in ("time_ns", "rows_ns", "overlap_ns", "idle_ns")] == [241_000, 239_000, 15_000, 17_000]
    assert (left["outside_ns"], right["outside_ns"]) == (4_000, 0)
    assert (left["communication_ns"], left["exposed_communication_ns"], left["exposed_copies_ns"]) == (
        30_000,
        10_000,
        2_000,
    )
    assert (right["communication_ns"], right["exposed_communication_ns"], right["layout_ns"]) == (40_000, 25_000, 4_000)
    assert left["causes"] == {"launch_bound": 5_000, "sync": 1_000}
    assert answer["summary"]["ratio"] == pytest.approx(241 / 84)
    assert answer["summary"]["difference_ns"] == 157_000


def test_the_product(answer: dict[str, Any]) -> None:
    """MatMulV3 on a transposed weight is aten::mm: 3 × as long, of which the hardware explains 2 ×."""
    found = row(answer, kind="matmul", match="same")
    assert (found["op"], found["left_ns"], found["right_ns"], found["ratio"]) == ("mm", 20_000, 60_000, 3.0)
    assert found["expected_ratio"] == pytest.approx(2.0)
    assert found["software_gap"] == pytest.approx(1.5)
    assert found["left_roof_fraction"] == pytest.approx(17_179.869184 / 20_000)
    assert found["right_roof_fraction"] == pytest.approx(34_359.738368 / 60_000)


def test_one_kernel_against_one(answer: dict[str, Any]) -> None:
    """Gelu by its type and by its op: the right's software is ahead."""
    found = row(answer, kind="activation")
    assert (found["match"], found["ratio"]) == ("same", 1.75)
    assert found["expected_ratio"] == pytest.approx(2.0)
    assert found["software_gap"] == pytest.approx(0.875)


def test_fused_attention_against_its_chain(answer: dict[str, Any]) -> None:
    """One flash kernel against two products, a scaling and a softmax: 8 × as long, the hardware explains 2 ×.

    The chain's roof on the right is 4 × 16,777 ns; that it moves four times the bytes is its own doing.
    """
    found = row(answer, group="attention")
    assert (found["match"], found["left_ns"], found["right_ns"]) == ("group", 10_000, 80_000)
    assert found["expected_ratio"] == pytest.approx(2.0)
    assert found["software_gap"] == pytest.approx(4.0)
    assert found["left_roof_fraction"] == pytest.approx(8_388.608 / 10_000)
    assert found["right_roof_fraction"] == pytest.approx(4 * 16_777.216 / 80_000)
    assert {p["op"] for p in found["right_parts"]} == {"BatchMatMulV2", "SoftmaxV2", "Muls"}


def test_add_and_norm_against_their_fusion(answer: dict[str, Any]) -> None:
    """Two kernels on the left, AddRmsNorm on the right."""
    found = row(answer, group="add + norm")
    assert (found["left_ns"], found["right_ns"]) == (13_000, 20_000)
    assert found["expected_ratio"] == pytest.approx(2.0)
    assert found["software_gap"] == pytest.approx(20 / 13 / 2)
    assert found["left_roof_fraction"] == pytest.approx((12_582_912 + 8_390_656) / 2_000 / 13_000)


def test_what_has_no_partner(answer: dict[str, Any]) -> None:
    """It stands on its side, with no ratio."""
    tax, embedding, copy = (
        row(answer, layout_tax=True),
        row(answer, kind="gather_scatter"),
        row(answer, kind="copy_fill"),
    )
    assert (tax["left_ns"], tax["right_ns"], tax["ratio"], tax["match"]) == (0, 4_000, None, None)
    assert (embedding["left_ns"], embedding["right_ns"], embedding["ratio"]) == (3_000, 0, None)
    assert (copy["left_ns"], copy["right_ns"]) == (2_000, 0)
    assert row(answer, kind="comm")["match"] == "same"
    assert row(answer, kind="comm")["expected_ratio"] is None
    assert len(answer["rows"]) == 8


def test_what_explains_the_difference(answer: dict[str, Any]) -> None:
    """157 = 63 hardware + 69 kernels − 3 alone + 4 layout + 15 communication − 2 copies + 11 idle, in µs."""
    kernels = answer["summary"]["parts"][0]
    assert part(answer, "kernels") == (63_000, 195_000, 132_000)
    assert (kernels["hardware_ns"], kernels["software_ns"]) == (63_000, 69_000)
    assert part(answer, "unknown_roof") == (0, 0, 0)
    assert part(answer, "unmatched") == (3_000, 0, -3_000)
    assert part(answer, "layout") == (0, 4_000, 4_000)
    assert part(answer, "communication") == (10_000, 25_000, 15_000)
    assert part(answer, "copies") == (2_000, 0, -2_000)
    assert part(answer, "overlap") == (0, 0, 0)
    assert part(answer, "idle_launch_bound") == (5_000, 15_000, 10_000)
    assert part(answer, "idle_sync") == (1_000, 0, -1_000)
    assert part(answer, "idle_host") == (0, 2_000, 2_000)


def test_the_kernels_as_a_whole(answer: dict[str, Any]) -> None:
    """195 ÷ 63 µs is 3.095; of it the roofs explain 2."""
    kernels = answer["summary"]["kernels"]
    assert kernels["ratio"] == pytest.approx(195 / 63)
    assert kernels["expected_ratio"] == pytest.approx(2.0)
    assert kernels["software_gap"] == pytest.approx(195 / 126)
    own = (17_179.869184 + 16_777.216 + 8_388.608 + 10_486.784) / 63_000
    assert kernels["left_roof_fraction"] == pytest.approx(own)
    assert math.isclose(kernels["left_share"], 63 / 66)


def test_what_would_close_most_of_it(answer: dict[str, Any]) -> None:
    """The hardware leaves 94 µs: 111 lost (attention 60, product 20, exposed all-reduce 15, idle 10 and 2, tax 4), less
    17 won (gelu 5, norm 6, embedding 3, copy 2, sync 1).
    """  # noqa: D205 - one thought
    summary = answer["summary"]
    assert (summary["beyond_hardware_ns"], summary["behind"]) == (94_000, "right")
    assert (summary["lost_ns"], summary["won_ns"]) == (111_000, 17_000)
    assert [(c["group"] or c["kind"] or c["part"], c["excess_ns"], c["side"]) for c in summary["closing"]] == [
        ("attention", 60_000, "right"), ("matmul", 20_000, "right"), ("communication", 15_000, "right"),
    ]  # fmt: skip
    assert summary["closing"][0]["share"] == pytest.approx(60 / 111)
    assert [answer["rows"][c["row"] - 1]["excess_ns"] for c in summary["closing"][:2]] == [60_000, 20_000]


def test_the_sides_swapped_say_the_same_of_the_same_device(answer: dict[str, Any]) -> None:
    """The left is behind now, in its own time: the same 111 and 17 µs in the same places; differences turn."""
    back = compared(ascend_step(), cuda_step())["summary"]
    assert (back["behind"], back["lost_ns"], back["won_ns"], back["beyond_hardware_ns"]) == (
        "left", 111_000, 17_000, -94_000,
    )  # fmt: skip
    assert (back["parts"][0]["hardware_ns"], back["parts"][0]["software_ns"]) == (-63_000, -69_000)
    for there, here in zip(answer["summary"]["closing"], back["closing"], strict=True):
        assert {**there, "side": "left", "op": None} == {**here, "op": None}


def test_it_is_the_same_work(answer: dict[str, Any]) -> None:
    """Batch, precision and FLOPs are the same on both sides; few steps, and 8 of the left's 204 µs were launched before
    the window: 4 a step.
    """  # noqa: D205 - one thought
    told = {w["warning"]: w for w in answer["warnings"]}
    assert set(told) == {"few", "outside"}
    assert (told["outside"]["side"], told["outside"]["each_ns"]) == ("left", 4_000)
    assert told["outside"]["share"] == pytest.approx(8 / 204)
    assert answer["summary"]["kernels"]["withheld"] == []
