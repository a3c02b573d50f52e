"""What holds of every comparison: the columns add up, swapping the sides inverts, a thing is equal to itself."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest
from comparison_scene import LEFT, LEFT_TOO, RIGHT, compared, signature, stat, window
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from roofwatch.model.comparison_sides import a_unit
from roofwatch.model.kinds import Kind
from roofwatch.model.record import Bound, Cause, Device, KernelStat, Padding, Phase, Window

bounded = settings(max_examples=40, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])

SIZES = st.sampled_from((64, 128, 256, 512))
OPS = st.sampled_from((
    ("aten::mm", "MatMulV3", Kind.MATMUL), ("aten::addmm", "MatMulV2", Kind.MATMUL),
    ("aten::bmm", "BatchMatMul", Kind.MATMUL), ("aten::add", "Add", Kind.ELEMENTWISE),
    ("aten::mul", "Muls", Kind.ELEMENTWISE), ("aten::rsqrt", "Rsqrt", Kind.ELEMENTWISE),
    ("aten::gelu", "Gelu", Kind.ACTIVATION), ("aten::_softmax", "SoftmaxV2", Kind.SOFTMAX),
    ("aten::_flash_attention_forward", "FlashAttentionScore", Kind.ATTENTION), ("aten::copy_", "Cast", Kind.CAST),
    (None, "TransData", Kind.LAYOUT), ("aten::convolution_backward", "Conv2DBackpropFilter", Kind.CONV),
    (None, "mystery", Kind.OTHER),
))  # fmt: skip


@st.composite
def kernels(draw: Any, device: Device) -> KernelStat:
    """A kernel of any sort, with shapes, FLOPs and a roof or without, some of it outside of steps."""
    op, type_, kind = draw(OPS)
    a, b, c = draw(SIZES), draw(SIZES), draw(SIZES)
    sort = draw(st.sampled_from(("counted", "counted", "counted", "shapeless", "comm", "copy")))
    calls = draw(st.integers(1, 40))
    total, outside = draw(st.integers(0, 10**7)), draw(st.sampled_from((0, 0, 1)))
    bound = Bound.MEMORY
    if sort == "comm":
        told = {"collective": "all_reduce", "dtype": "bf16"} if draw(st.booleans()) else None
        what, bound = signature("nccl", Kind.COMM, "c10d::allreduce_", arguments=told, flops=None), Bound.COMMUNICATION
    elif sort == "copy":
        what, bound = signature(draw(st.sampled_from(("Memcpy HtoD (x)", "Memset (x)"))), Kind.COPY_FILL), Bound.COPY
    else:
        shapes = [[a, b], [b, c]] if kind is Kind.MATMUL else [[a, b, c]]
        what = signature(
            type_ if device is RIGHT else f"kernel_{type_}", kind, op, shapes if sort == "counted" else None,
            "bf16" if sort == "counted" else None, flops=2 * a * b * c if sort == "counted" else None,
            moved=2 * a * b * c if sort == "counted" else None, unit="matrix" if kind is Kind.MATMUL else "vector",
            phase=draw(st.sampled_from(list(Phase))),
        )  # fmt: skip
    return stat(
        what, total, calls, device=device, bound=bound,
        outside_ns=draw(st.integers(0, total)) if outside else 0,
        outside_calls=draw(st.integers(0, calls)) if outside else 0,
    )  # fmt: skip


def unique(stats: list[KernelStat]) -> list[KernelStat]:
    """A window has a signature once."""
    return list({s.signature.id: s for s in stats}.values())


@st.composite
def sides(draw: Any, device: Device | None = None) -> Window:
    """A window: kernels that overlap or not, idle time by cause, some of it start-up, steps, reported batches."""
    on = device or draw(st.sampled_from((LEFT, RIGHT, LEFT_TOO)))
    stats = unique(draw(st.lists(kernels(on), min_size=1, max_size=14)))
    total = sum(s.total_ns for s in stats)
    busy = draw(st.integers(0, total))
    idle = draw(st.dictionaries(st.sampled_from(list(Cause)), st.integers(0, 10**6), max_size=4))
    startup = {cause: draw(st.integers(0, ns)) for cause, ns in idle.items() if draw(st.booleans())}
    batches = draw(st.integers(1, 30))
    return window(
        on, stats, busy_ns=busy, idle=idle, startup=startup,
        exposed=(draw(st.integers(0, busy)), draw(st.integers(0, busy))), steps=draw(st.integers(1, 7)),
        padding=Padding(batches, draw(st.integers(1, 10**6)), 2 * 10**6, 1, 1),
    )  # fmt: skip


def unit_of(it: Window, per: str) -> Fraction:
    """How many units a window holds, read off the record."""
    padding = it.padding
    assert padding is not None
    counts = {"step": it.steps, "call": padding.batches, "token": Fraction(padding.real_tokens, 1000), "window": 1}
    return Fraction(counts[per] or 0)


def time_of(it: Window, per: str) -> int:
    """Nanoseconds of a unit by the definition: the span, less start-up, and of steps less what was launched outside."""
    device = it.devices[0]
    ns = device.span_ns - sum(c.startup_ns for c in device.causes)
    if per == "step":
        ns -= sum(k.total_ns - k.step_ns for k in it.kernels)
    exact = Fraction(ns) / unit_of(it, per)
    return (2 * exact.numerator + exact.denominator) // (2 * exact.denominator)


@bounded
@given(sides(), sides(), st.sampled_from(("step", "call", "token", "window")))
def test_both_columns_add_up_to_both_times(left: Window, right: Window, per: str) -> None:
    """Rows − overlap + idle is the time of a unit, to the nanosecond; and so are the parts, and their differences."""
    answer = compared(left, right, per)
    summary = answer["summary"]
    for name, it in (("left", left), ("right", right)):
        side = summary[name]
        assert side["time_ns"] == time_of(it, per)
        assert sum(r[f"{name}_ns"] for r in answer["rows"]) == side["rows_ns"]
        assert side["rows_ns"] - side["overlap_ns"] + side["idle_ns"] == side["time_ns"]
        assert sum(side["causes"].values()) == side["idle_ns"]
        assert sum(p[f"{name}_ns"] for p in summary["parts"]) == side["time_ns"]
        assert sum(m[f"{name}_ns"] for m in summary["matched"].values()) == side["rows_ns"]
        assert all(r[f"{name}_ns"] >= 0 for r in answer["rows"])
        assert 0 <= side["exposed_communication_ns"] <= side["communication_ns"]
        assert 0 <= side["exposed_copies_ns"] <= side["copies_ns"]
    assert summary["difference_ns"] == summary["right"]["time_ns"] - summary["left"]["time_ns"]
    assert sum(p["difference_ns"] for p in summary["parts"]) == summary["difference_ns"]
    kernels_ = summary["parts"][0]
    assert kernels_["hardware_ns"] + kernels_["software_ns"] == kernels_["difference_ns"]


@bounded
@given(sides(), sides(), st.integers(1, 6))
def test_rows_beyond_the_limit_are_told(left: Window, right: Window, limit: int) -> None:
    """What is shown and what is not add up to all rows."""
    whole, cut = compared(left, right), compared(left, right, limit=limit)
    assert cut["rows"] == whole["rows"][:limit]
    for name in ("left_ns", "right_ns"):
        shown = sum(r[name] for r in cut["rows"])
        assert shown + cut["summary"]["further"][name] == sum(r[name] for r in whole["rows"])


@bounded
@given(sides(), sides())
def test_nothing_is_lost_and_nothing_counted_twice(left: Window, right: Window) -> None:
    """Each nanosecond of each kernel is in one row: the unit is the window, so that nothing is rounded."""
    answer = compared(left, right, "window")
    for name, it in (("left_ns", left), ("right_ns", right)):
        assert sum(r[name] for r in answer["rows"]) == sum(k.total_ns for k in it.kernels)


@bounded
@given(sides(), sides())
def test_swapping_the_sides_inverts_every_ratio(left: Window, right: Window) -> None:
    """The same rows in the same order, their ratios the other way round."""
    there, back = compared(left, right), compared(right, left)
    assert [r["left_ns"] for r in there["rows"]] == [r["right_ns"] for r in back["rows"]]
    assert [r["right_ns"] for r in there["rows"]] == [r["left_ns"] for r in back["rows"]]
    for a, b in zip(there["rows"], back["rows"], strict=True):
        assert (a["match"], a["kind"], a["layout_tax"]) == (b["match"], b["kind"], b["layout_tax"])
        assert a["left_roof_fraction"] == b["right_roof_fraction"]
        for key in ("ratio", "expected_ratio", "software_gap"):
            assert (a[key] is None) == (b[key] is None)
            if a[key] is not None:
                assert a[key] * b[key] == pytest.approx(1.0, rel=1e-9)
    for key in ("ratio", "expected_ratio", "software_gap"):
        a, b = (it["summary"]["kernels"][key] for it in (there, back))
        assert (a is None) == (b is None)
        assert a is None or a * b == pytest.approx(1.0, rel=1e-9)
    assert there["summary"]["difference_ns"] == -back["summary"]["difference_ns"]
    assert there["summary"]["kernels"]["withheld"] == back["summary"]["kernels"]["withheld"]


@bounded
@given(sides(), sides())
def test_what_is_lost_is_in_one_sides_time(left: Window, right: Window) -> None:
    """Lost less won is what the hardware leaves, up to rounding; the places named are not more than all of it."""
    answer = compared(left, right)
    summary = answer["summary"]
    sign = -1 if summary["behind"] == "left" else 1
    if summary["behind"] is not None:
        net = sign * summary["beyond_hardware_ns"]
        assert abs(summary["lost_ns"] - summary["won_ns"] - net) <= len(answer["rows"]) + 3
    assert sum(c["excess_ns"] for c in summary["closing"]) <= summary["lost_ns"] + len(summary["closing"])
    assert {c["side"] for c in summary["closing"]} <= {summary["behind"]}


@bounded
@given(sides())
def test_a_thing_is_equal_to_itself(it: Window) -> None:
    """Every row is matched as the same, ratio and gap are 1, and no part differs."""
    answer = compared(it, it)
    assert {r["match"] for r in answer["rows"]} <= {"same"}
    for r in answer["rows"]:
        assert r["ratio"] == 1.0
        assert r["expected_ratio"] in {None, 1.0}
        assert r["software_gap"] in {None, 1.0}
    assert all(p["difference_ns"] == 0 for p in answer["summary"]["parts"])
    assert answer["summary"]["closing"] == []
    assert {w["warning"] for w in answer["warnings"]} <= {"few", "shapes", "outside", "startup"}


@given(st.lists(st.integers(-(10**12), 10**12), max_size=40), st.integers(1, 10**6), st.integers(1, 1000))
def test_rounding_keeps_the_sum(values: list[int], over: int, under: int) -> None:
    """Each value is less than 1 from its quotient, 0 stays 0, no sign turns, and the sum is the rounded sum."""
    units = Fraction(over, under)
    rounded = a_unit(values, units)
    exact = sum(values) / units
    assert abs(sum(rounded) - exact) <= Fraction(1, 2)
    for value, shown in zip(values, rounded, strict=True):
        assert abs(shown - value / units) < 1
        assert shown * value >= 0
        assert value or not shown
