"""From hand-built raw profiles to windows: CPUs, the ledger, start-up, devices."""

from __future__ import annotations

from dataclasses import replace

import pytest
from raw_profiles import CONTEXT, CPU, GEMM, H100, MM, cpu_op, group, only, window

from roofwatch.collectors.base import Category, RawDevice, RawProfile
from roofwatch.collectors.pipeline import join_devices, window_of
from roofwatch.model.devices import calibration_key, save_peaks
from roofwatch.model.record import (
    Bound,
    Cause,
    Device,
    Evidence,
    IdleCause,
    Peak,
    Peaks,
    Trigger,
    Vendor,
)
from roofwatch.model.timeline import sum_of

CPU_PEAKS = Peaks(
    {("fp32", "matrix"): Peak(1e11, "measured"), ("fp32", "vector"): Peak(1e11, "measured")}, Peak(2e10, "measured")
)


@pytest.fixture(autouse=True)
def _no_calibration(monkeypatch, tmp_path):
    """No calibration of the machine that runs the tests."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def test_a_cpu_window_with_calibrated_peaks(tmp_path):
    """linear, its view and its addmm: 2·512³ FLOPs at 100 GFLOP/s take 2.68 ms.

    Linear and the view are the host's time: that their names tell, so it counts as named, not as classified.
    """
    path = tmp_path / "peaks.json"
    registered = Device(Vendor.CPU, "Some CPU", units=4)
    save_peaks(path, calibration_key(registered), CPU_PEAKS)
    context = replace(CONTEXT, devices=(registered,), peaks_files=(str(path),))
    three = '["float","float","float"]'
    found = window(
        cpu_op("aten::linear", 9_000, "[[512,512],[512,512],[512]]", three),
        cpu_op("aten::t", 2_000, "[[512,512]]", '["float"]'),
        cpu_op("aten::addmm", 4_000_000, "[[512],[512,512],[512,512]]", three),
        device=CPU,
        context=context,
    )
    bounds = {s.signature.op: s.bound for s in found.kernels}
    assert bounds == {"aten::linear": Bound.HOST, "aten::t": Bound.HOST, "aten::addmm": Bound.COMPUTE}
    product = next(s for s in found.kernels if s.signature.op == "aten::addmm")
    assert product.roof_ns == pytest.approx(2 * 512**3 / 1e11 * 1e9)
    assert found.devices[0].device.model == "Some CPU"
    evidence = {s.signature.op: s.evidence for s in found.kernels}
    assert evidence == {"aten::linear": Evidence.NAME, "aten::t": Evidence.NAME, "aten::addmm": Evidence.SHAPES}
    ledger = found.ledger
    assert (ledger.classifiable_ns, ledger.classified_ns, ledger.named_ns) == (4_011_000, 4_000_000, 11_000)


def test_a_cpu_without_calibration_is_unknown():
    """No peaks, no verdict; the host's own time is still known as such."""
    found = window(cpu_op("aten::mm", 5_000_000, "[[512,512],[512,512]]", '["float","float"]'), device=CPU)
    assert only(found).bound is Bound.UNKNOWN
    assert only(found).signature.flops == 2 * 512**3
    assert (found.ledger.classifiable_ns, found.ledger.classified_ns) == (5_000_000, 0)


def test_a_wrapper_whose_inner_op_is_missing_did_the_work_itself():
    """_convolution with mkldnn_convolution beside it is a wrapper.

    Alone (as for transposed ones) it did the convolution.
    """
    shapes = "[[2,4,8,8],[4,4,3,3],[],[],[],[],[],[],[]]"
    types = '["float","float","","ScalarList","ScalarList","ScalarList","Scalar","ScalarList","Scalar"]'
    concrete = '["","","","[1, 1]","[0, 0]","[1, 1]","False","[0, 0]","1"]'
    outer = cpu_op("aten::_convolution", 50_000, shapes, types, concrete=concrete)
    inner = cpu_op("aten::mkldnn_convolution", 50_000, shapes, types)
    alone = window(outer, device=CPU).kernels[0].signature
    beside = next(
        s.signature for s in window(outer, inner, device=CPU).kernels if s.signature.op == "aten::_convolution"
    )
    assert (alone.formula, alone.flops) == ("convolution", 2 * 2 * 4 * 36 * 36)
    assert (beside.formula, beside.flops) == ("wrapper", 0)


def test_the_ledger_and_the_window_carry_what_the_reader_saw():
    """Counts, drops, spans and times come through unchanged; unknown rank is taken from the trace."""
    raw = RawProfile(
        "kineto", [H100], [group(GEMM, 200_000, 3, **MM)], 7, 99, 5, True, True, 1234, rank=3, world_size=8,
        dropped={"unfinished": 2},
    )  # fmt: skip
    found = window_of(raw, replace(CONTEXT, steps=9, represents_ns=11))
    assert (found.ledger.events_read, found.ledger.device_records, found.ledger.has_host_events) == (1234, 3, True)
    assert dict(found.ledger.dropped) == {"unfinished": 2}
    assert (found.start_unix_ns, found.duration_ns, found.steps, found.represents_ns) == (7, 99, 5, 11)
    assert (found.process.rank, found.process.world_size) == (3, 8)
    assert (found.span_ns, found.busy_ns) == (10_000_000, 5_000_000)


@pytest.mark.parametrize(
    ("changes", "steps", "startup_ns"),
    [
        ({}, None, 700),
        ({"trigger": Trigger.IMPORTED}, None, 0),
        ({"represents_ns": 10}, None, 0),  # not its first window
        ({"first_step": 0}, None, 0),
        ({}, 1, 0),
    ],
)
def test_the_first_window_before_any_work_is_startup(changes, steps, startup_ns):
    """700 ns idle in two stretches: all start-up where nothing was recorded yet, so that nothing steady is left."""
    idle = IdleCause(Cause.HOST, 700, 2, 400, "waiting")
    cpu = RawDevice("cpu", "", span_ns=700, causes=(idle,))
    context = replace(CONTEXT, **{"trigger": Trigger.PERIODIC, **changes})
    raw = RawProfile("kineto", [cpu], [], 7, 700, steps, False, False, 7)
    found = window_of(raw, context)
    (cause,) = found.devices[0].causes
    assert (cause.total_ns, cause.startup_ns, cause.longest_ns) == (700, startup_ns, 400)
    steady = sum_of(found).steady()
    assert (steady.sampled.span_ns, list(steady.causes)) == ((0, []) if startup_ns else (700, [Cause.HOST]))
    busy = replace(raw, groups=[group("aten::mm", 5, category=Category.CPU_OP)])
    assert window_of(busy, context).devices[0].causes[0].startup_ns == 0


def test_devices_are_joined_with_what_the_hook_registered():
    """By index among several; the only one of its sort whatever its index; a CPU never with an accelerator."""
    one, two = (Device(Vendor.NVIDIA, "NVIDIA H100 80GB HBM3", f"GPU-{i}", i, driver="555") for i in (0, 1))
    seen = [RawDevice("nvidia", "NVIDIA H100 80GB HBM3", 1)]
    assert join_devices(seen, (one, two))[0].uuid == "GPU-1"
    renumbered = [RawDevice("nvidia", "NVIDIA H100 80GB HBM3", 5)]
    joined = join_devices(renumbered, (one, Device(Vendor.CPU, "Some CPU", units=4)))[0]
    assert (joined.uuid, joined.driver, joined.model) == ("GPU-0", "555", "NVIDIA H100 80GB HBM3")
    assert join_devices(renumbered, (one, two))[0].uuid is None
    cpu = join_devices([CPU], (one, Device(Vendor.CPU, "Some CPU", units=4)))[0]
    assert (cpu.vendor, cpu.model, cpu.units) == (Vendor.CPU, "Some CPU", 4)


def test_hostile_shapes_cost_a_verdict_not_the_window():
    """A group whose inputs are damaged stays, without FLOPs, beside the others."""
    found = window(group(GEMM, 200_000, **MM), group(GEMM, 300_000, **{**MM, "shapes": "[[1e999]]"}))
    assert sorted((s.total_ns, s.signature.flops) for s in found.kernels) == [
        (200_000, 137_438_953_472),
        (300_000, None),
    ]
