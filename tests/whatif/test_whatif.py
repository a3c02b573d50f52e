"""The roofline once more: a model of 7e9 weights by hand, every change and every fate, and how a change is named."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest

from roofwatch.model.answer_rows import StatSum
from roofwatch.model.ceilings import Ceilings, split_roof
from roofwatch.model.devices import entries
from roofwatch.model.errors import UsageError
from roofwatch.model.kinds import Kind
from roofwatch.model.operands import keys_and_values, weights
from roofwatch.model.record import Bound, Evidence, Peak, Peaks, Phase, Signature
from roofwatch.model.whatif import Certainty, Change, Fate, Replay, replay, weights_ns
from roofwatch.model.whatif_change import change_of, device, factor
from roofwatch.model.whatif_report import Time, report

PEAKS = Peaks({("fp16", "matrix"): Peak(312e12, "datasheet")}, Peak(2.0e12, "datasheet"))  # ridge 156
RIDGE = 156.0


def product(rows: int, inner: int, columns: int, op: str = "aten::mm", **more: Any) -> Signature:
    """An fp16 product; bytes are both operands and the output."""
    shapes = [[rows, inner], [inner, columns]] if op == "aten::mm" else [[columns], [rows, inner], [inner, columns]]
    moved = 2 * (rows * inner + inner * columns + rows * columns)
    return Signature(
        "gemm", Kind.MATMUL, op, more.pop("phase", Phase.NONE), shapes=json.dumps(shapes),
        dtypes=json.dumps(["fp16"] * len(shapes)), flops=2 * rows * inner * columns, bytes=moved, precision="fp16",
        unit="matrix", **more,
    )  # fmt: skip


def stat(signature: Signature, calls: int, fraction: float = 1.0, bound: Bound = Bound.MEMORY) -> StatSum:
    """A kernel at a fraction of its roof on the device of PEAKS; of unknown roof where it has no FLOPs."""
    roof = None
    if signature.flops is not None and signature.bytes is not None:
        roof = calls * max(signature.flops / 312e12, signature.bytes / 2.0e12) * 1e9
    time = (roof or 1e6) / fraction
    return StatSum(
        signature, "A100", calls, round(time), time, 1, 1, bound, Evidence.SHAPES, roof, RIDGE if roof else None
    )


def after(change: Change, *sums: StatSum) -> Replay:
    """The replay."""
    return replay(sums, change)


# 7e9 weights as 100 products of one token with 7000 × 10,000 matrices: 14e9 bytes of weights at 2e12 bytes/s are 7 ms.
TOKEN = stat(product(1, 7000, 10_000), 100)


def test_seven_billion_weights_as_a_formula() -> None:
    """16 bits at 2.0 TB/s: 7 ms; 4 bits: 1.75 ms."""
    assert weights_ns(7e9, 16, 2.0e12) == pytest.approx(7e6)
    assert weights_ns(7e9, 4, 2.0e12) == pytest.approx(1.75e6)


def test_seven_billion_weights_as_a_window() -> None:
    """7 ms a token (and 1.7 µs of activations); int4 1.75 ms; int8 3.5 ms; twice the peak compute changes nothing."""
    activations = 100 * 2 * (7000 + 10_000) / 2.0e12 * 1e9
    assert after(Change(compute=2.0), TOKEN).after_ns == pytest.approx(7e6 + activations)
    assert after(Change(weights="int4"), TOKEN).after_ns == pytest.approx(1.75e6 + activations)
    assert after(Change(weights="int8"), TOKEN).after_ns == pytest.approx(3.5e6 + activations)
    assert after(Change(bandwidth=1.4), TOKEN).after_ns == pytest.approx((7e6 + activations) / 1.4)
    assert after(Change(compute=2.0), TOKEN).by[Fate.SAME] == pytest.approx(TOKEN.est_ns)
    told = report(after(Change(weights="int4"), TOKEN), Time(TOKEN.est_ns, TOKEN.est_ns, TOKEN.est_ns), 10)
    assert told["prediction"]["step_ns"] == pytest.approx(7e6, rel=1e-3)
    assert told["prediction"]["step_new_ns"] == pytest.approx(1.75e6, rel=2e-3)
    assert told["prediction"]["speedup"] == pytest.approx(4, rel=2e-3)


def test_the_achieved_fraction_is_carried_along() -> None:
    """At 60 % of its roof a token takes 7 ÷ 0.6 ms, with int4 1.75 ÷ 0.6."""
    slow = stat(product(1, 7000, 10_000), 100, fraction=0.6)
    assert after(Change(weights="int4"), slow).after_ns == pytest.approx(1.75e6 / 0.6, rel=1e-3)


def test_one_ceiling_gives_way_to_the_other() -> None:
    """4096³ in fp16: 440.5 µs of arithmetic, 50.3 µs of bytes. Ten times the peak: the bytes are the roof, 50.3 µs."""
    square = stat(product(4096, 4096, 4096), 1, bound=Bound.COMPUTE)
    assert after(Change(compute=2.0), square).after_ns == pytest.approx(440_509 / 2, rel=1e-4)
    found = after(Change(compute=10.0), square)
    assert found.after_ns == pytest.approx(3 * 4096**2 * 2 / 2.0e12 * 1e9, rel=1e-6)
    assert (found.kernels[0].sums.bound, found.kernels[0].bound) == (Bound.COMPUTE, Bound.MEMORY)
    assert after(Change(weights="int4"), square).after_ns == pytest.approx(square.est_ns)
    assert after(Change(bandwidth=2.0), square).by[Fate.SAME] == pytest.approx(square.est_ns)


def test_the_ceilings_behind_a_roof() -> None:
    """Intensity 10 against a ridge of 40: the arithmetic takes a quarter of the bytes' time; against 5 twice it."""
    signature = Signature("k", Kind.NORM, flops=1000, bytes=100)
    assert split_roof(signature, 80.0, 40.0) == Ceilings(20.0, 80.0)
    assert split_roof(signature, 80.0, 5.0) == Ceilings(80.0, 40.0)
    assert split_roof(Signature("k", Kind.NORM, flops=0, bytes=100), 80.0, None) == Ceilings(0.0, 80.0)
    assert split_roof(signature, None, 5.0) is None
    assert split_roof(signature, 0.0, 5.0) is None


def test_products_find_the_unit_that_another_device_has() -> None:
    """fp32 on a CPU's matrix unit: on an H200, which has none, its vector units, 66.9e12; 4096³ takes 2.05 ms."""
    square = Signature(
        "sgemm", Kind.MATMUL, "aten::mm", flops=2 * 4096**3, bytes=3 * 4 * 4096**2, precision="fp32", unit="matrix"
    )
    slow = StatSum(square, "CPU", 1, 10**9, 1e9, 1, 1, Bound.COMPUTE, Evidence.SHAPES, 1e9, 10.0)
    found = after(change_of({"to_device": "H200"}), slow)
    assert found.after_ns == pytest.approx(2 * 4096**3 / 66.9e12 * 1e9, rel=1e-3)
    assert found.by[Fate.UNKNOWN] == 0
    add = slow._replace(signature=dataclasses.replace(square, kind=Kind.ELEMENTWISE, op="aten::add"))
    assert after(change_of({"to_device": "H200"}), add).certainty is Certainty.CANNOT_SAY


def test_what_a_change_may_move_is_counted() -> None:
    """Of unknown roof: an activation never has weights, a fused kernel may; more bandwidth may move both."""
    relu = stat(Signature("relu", Kind.ACTIVATION), 1, bound=Bound.UNKNOWN)
    fused = stat(Signature("triton", Kind.OTHER), 1, bound=Bound.UNKNOWN)
    assert after(Change(weights="int4"), TOKEN, relu, fused).open_ns == fused.est_ns
    assert after(Change(bandwidth=2.0), TOKEN, relu, fused).open_ns == relu.est_ns + fused.est_ns
    assert after(Change(weights="int4"), TOKEN, relu).certainty is Certainty.TOLD
    bmm = stat(Signature("bmm", Kind.MATMUL, "aten::bmm", flops=10**9, bytes=10**9, precision="fp16", unit="matrix"), 9)
    found = after(Change(weights="int4"), TOKEN, bmm)  # 4.5 ms that may be weights, beside 7
    assert (found.open_ns, found.certainty) == (bmm.est_ns, Certainty.AT_LEAST)


def test_what_has_no_roof_that_explains_its_time_stays() -> None:
    """Communication, copies, host ops, latency bound and unknown kernels take as long as before, and are counted."""
    kept = {
        Fate.COMMUNICATION: stat(Signature("all_reduce", Kind.COMM), 1, bound=Bound.COMMUNICATION),
        Fate.COPY: stat(Signature("memcpy", Kind.COPY_FILL, flops=0, bytes=100), 1, bound=Bound.COPY),
        Fate.HOST: stat(Signature("view", Kind.LAYOUT, flops=0, bytes=0), 1, bound=Bound.HOST),
        Fate.LATENCY: stat(product(1, 8, 8), 1, fraction=0.1, bound=Bound.LATENCY),
        Fate.UNKNOWN: stat(Signature("triton", Kind.OTHER), 1, bound=Bound.UNKNOWN),
    }
    found = after(Change(weights="int4", kv="int8", compute=2.0, bandwidth=2.0), *kept.values())
    assert found.after_ns == found.before_ns
    assert {fate: found.by[fate] for fate in kept} == {fate: s.est_ns for fate, s in kept.items()}


def attention(op: str, queries: int, keys: int, phase: Phase = Phase.NONE, kernel: str = "flash") -> StatSum:
    """A sequence of fp16, 8 heads of 64; bytes are Q, K, V and the output."""
    q, k = [1, 8, queries, 64], [1, 8, keys, 64]
    signature = Signature(
        kernel, Kind.ATTENTION, op, phase, shapes=json.dumps([q, k, k]), dtypes='["fp16","fp16","fp16"]',
        flops=4 * 8 * queries * keys * 64, bytes=2 * 2 * 8 * 64 * (queries + keys), precision="fp16", unit="matrix",
    )  # fmt: skip
    return stat(signature, 10)


def test_keys_and_values_of_fewer_bits() -> None:
    """One query, 1023 keys: K and V are 1023/1024 of the bytes; of 8 bits half of that falls away."""
    decode = attention("aten::_scaled_dot_product_flash_attention", 1, 1023)
    found = after(Change(kv="int8"), decode)
    assert found.after_ns == pytest.approx(decode.est_ns * (1 - 1023 / 1024 / 2))
    assert after(Change(weights="int4"), decode).after_ns == decode.est_ns
    for unlike in (
        attention("aten::_flash_attention_backward", 512, 512),
        attention("aten::_scaled_dot_product_flash_attention", 512, 512, Phase.BACKWARD),
        stat(product(8, 512, 512), 1),
    ):
        assert after(Change(kv="int8"), unlike).after_ns == unlike.est_ns


WEIGHTS = [
    (product(8, 16, 32), (16, 32)),
    (product(8, 16, 32, "aten::addmm"), (16, 32)),
    (Signature("k", Kind.MATMUL, "aten::linear", shapes="[[2,8,16],[32,16]]", dtypes='["bf16","bf16"]'), (32, 16)),
    (Signature("k", Kind.MATMUL, "aten::matmul", shapes="[[2,8,16],[16,32]]", dtypes='["bf16","bf16"]'), (16, 32)),
    # of an embedding's table the four rows that are read
    (Signature("k", Kind.GATHER_SCATTER, "aten::embedding", shapes="[[9000,32],[2,2]]", dtypes='["fp16","int64"]'),
     (4, 32)),
    (Signature("MatMulV2", Kind.MATMUL, None, shapes="[[8,16],[16,32]]", dtypes='["bf16","bf16"]'), (16, 32)),
    # two activations; a gradient; nothing recorded; an op of another layout; a batch of products
    (Signature("k", Kind.MATMUL, "aten::bmm", shapes="[[4,8,16],[4,16,8]]", dtypes='["bf16","bf16"]'), None),
    (Signature("k", Kind.MATMUL, "aten::matmul", shapes="[[4,8,16],[4,16,8]]", dtypes='["bf16","bf16"]'), None),
    (product(8, 16, 32, phase=Phase.BACKWARD), None),
    (Signature("gemm", Kind.MATMUL), None),
    (Signature("k", Kind.MATMUL, "_C::awq_gemm", shapes="[[8,16],[16,4]]", dtypes='["fp16","int32"]'), None),
    (Signature("BatchMatMul", Kind.MATMUL, None, shapes="[[4,8,16],[4,16,8]]", dtypes='["bf16","bf16"]'), None),
]  # fmt: skip


@pytest.mark.parametrize(("signature", "shape"), WEIGHTS)
def test_which_operand_is_weights(signature: Signature, shape: tuple[int, ...] | None) -> None:
    """The second one of a product, where it is a plain matrix; nothing else is taken for weights."""
    found = weights(signature)
    assert (None if found is None else found.shape) == shape


def test_where_the_output_comes_first_keys_follow_the_query() -> None:
    """Paged attention of vLLM is (out, q, K, V)."""
    paged = Signature(
        "k", Kind.ATTENTION, "_C::paged_attention_v1", shapes="[[8,4,64],[8,4,64],[100,4,8,16,8],[100,4,64,16]]",
        dtypes='["fp16","fp16","fp16","fp16"]',
    )  # fmt: skip
    found = keys_and_values(paged)
    assert found is not None
    assert found[0].shape == (100, 4, 8, 16, 8)


def test_weights_of_as_few_bits_already_stay() -> None:
    """fp8 products with int8 weights asked for."""
    fp8 = Signature(
        "k", Kind.MATMUL, "aten::_scaled_mm", shapes="[[1,512],[512,512]]", dtypes='["fp8_e4m3","fp8_e4m3"]',
        flops=2 * 512 * 512, bytes=512 * 512, precision="fp8_e4m3", unit="matrix",
    )  # fmt: skip
    assert after(Change(weights="int8"), stat(fp8, 1)).by[Fate.SAME] > 0
    half = after(Change(weights="int4"), stat(fp8, 1))
    assert half.after_ns == pytest.approx(half.before_ns / 2)


def test_a_selection_that_trains() -> None:
    """Only what is marked as forward has fewer bytes, products without a phase may be gradients; and it says so."""
    forward, unmarked = (stat(product(1, 700, 1000, phase=phase), 1) for phase in (Phase.FORWARD, Phase.NONE))
    step = stat(Signature("adam", Kind.OPTIMIZER, "aten::_fused_adam_", Phase.OPTIMIZER), 1)
    found = after(Change(weights="int4"), forward, unmarked, step)
    assert [kernel.fate for kernel in found.kernels] == [Fate.CHANGED, Fate.SAME, Fate.UNKNOWN]
    assert any("trains" in one for one in report(found, Time(1, 1), 0)["assumptions"])


def test_another_device() -> None:
    """Twice the bytes/s and half the FLOP/s: memory bound kernels take half; what has no peak there stays."""
    other = Peaks({("fp16", "matrix"): Peak(156e12, "datasheet")}, Peak(4.0e12, "datasheet"))
    change = Change(device="other", peaks=other)
    assert after(change, TOKEN).after_ns == pytest.approx(TOKEN.est_ns / 2)
    square = stat(product(4096, 4096, 4096), 1, bound=Bound.COMPUTE)
    assert after(change, square).after_ns == pytest.approx(square.est_ns * 2)
    both = after(Change(device="other", peaks=other, weights="int4", bandwidth=2.0), TOKEN)
    assert both.after_ns == pytest.approx(7e6 / 16, rel=2e-3)
    nothing = Change(device="other", peaks=Peaks({}, Peak(4.0e12, "datasheet")))
    found = after(nothing, TOKEN)
    assert (found.by[Fate.UNKNOWN], found.after_ns) == (TOKEN.est_ns, TOKEN.est_ns)


def test_idle_time_stays_and_side_by_side_counts_once() -> None:
    """8 ms of kernels on two streams are 4 ms busy of 10: half of the saved 4 ms is saved of the span."""
    sums = [stat(product(1, 7000, 10_000), 100), stat(Signature("x", Kind.OTHER), 1, bound=Bound.UNKNOWN)]
    whole = sum(s.est_ns for s in sums)
    found = after(Change(weights="int8"), *sums)
    told = report(found, Time(whole / 2, whole, whole / 4), 1)["prediction"]
    saved = (found.before_ns - found.after_ns) / 2
    assert told["span_new_ns"] == round(whole - saved)
    assert told["busy_new_ns"] == round(whole / 2 - saved)
    assert told["step_new_ns"] == pytest.approx(whole / 4 * (1 - saved / whole), abs=1)


def test_rows_are_those_that_change_most() -> None:
    """Of a large product at its compute roof and a small one at the memory's the second changes."""
    large = stat(product(4096, 4096, 4096), 100, bound=Bound.COMPUTE)
    told = report(after(Change(weights="int4"), large, TOKEN), Time(1e9, 1e9), 1)
    (row,) = told["rows"]
    assert row["shapes"] == [[1, 7000], [7000, 10_000]]
    assert row["saved_ns"] == pytest.approx(5.25e6, rel=1e-3)
    assert row["ratio"] == pytest.approx(0.25, rel=2e-3)
    assert told["touched"]["changed_share"] == pytest.approx(TOKEN.est_ns / (TOKEN.est_ns + large.est_ns))
    assert len(report(after(Change(weights="int4"), large, TOKEN), Time(1, 1), 0)["rows"]) == 2


@pytest.mark.parametrize(("text", "value"), [("2x", 2.0), ("1.4x", 1.4), ("0.5", 0.5), ("3 X", 3.0), (".5×", 0.5)])
def test_factors(text: str, value: float) -> None:
    """As people write them."""
    assert factor(text) == value


@pytest.mark.parametrize("text", ["", "x", "0x", "-1", "two", "1e3", "1e400", "inf", "nan", "9" * 40, "2xx"])
def test_what_is_no_factor(text: str) -> None:
    """One sentence."""
    with pytest.raises(UsageError, match="is no factor"):
        factor(text)


def test_options_are_checked_on_both_sides() -> None:
    """A store gets them as JSON from anybody."""
    assert change_of({"weights": "int4", "peak_compute": 2}) == Change(weights="int4", compute=2.0)
    for wrong in (
        {}, {"weights": "int3"}, {"weights": 4}, {"kv": ["int8"]}, {"bandwidth": "2x"}, {"bandwidth": float("nan")},
        {"peak_compute": 0}, {"peak_compute": True}, {"peak_compute": 1e300}, {"to_device": "none such"},
        {"to_device": 5}, {"bandwidth": 1},
    ):  # fmt: skip
        with pytest.raises(UsageError):
            change_of(wrong)


def test_devices_by_name() -> None:
    """A driver's name, our own, a part of it; several: all are named; none: those that are near."""
    assert device("H200").model == "NVIDIA H200 SXM 141 GB"
    assert device("nvidia h100 80gb hbm3").model == "NVIDIA H100 SXM5 80 GB"
    assert device("ascend910b4").model == "Ascend 910B4"
    assert device("MI300X").model == "AMD Instinct MI300X"
    for entry in entries():
        assert device(entry.model) == entry
    with pytest.raises(
        UsageError, match="NVIDIA H100 SXM5 80 GB, NVIDIA H100 PCIe 80 GB or NVIDIA H100 NVL: say which"
    ):
        device("H100")
    with pytest.raises(UsageError, match=r"did you mean .*L40S"):
        device("L40X")
    with pytest.raises(UsageError, match="is no device whose peaks are known: 'roofwatch devices list'"):
        device("zzz")
