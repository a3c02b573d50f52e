"""Windows whose bounds are known, from a hand-built raw profile to what an answer makes of them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from roofwatch.collectors.base import Category, RawDevice, RawGroup, RawProfile, WindowContext
from roofwatch.collectors.pipeline import window_of
from roofwatch.model.answer_rows import sums_of
from roofwatch.model.histogram import Histogram
from roofwatch.model.record import Cause, Device, IdleCause, Node, Phase, Process, Trigger, Vendor

CONTEXT = WindowContext("0" * 32, Process(Node("n"), 1), Trigger.PERIODIC)
H100 = Device(Vendor.NVIDIA, "NVIDIA H100 80GB HBM3", uuid="GPU-0", index=0, units=132)
CPU = Device(Vendor.CPU, "a processor", units=4)


@pytest.fixture(autouse=True)
def _no_calibration(monkeypatch, tmp_path):
    """No calibration of the machine that runs the tests."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def sort(calls: int, mean_ns: int) -> RawGroup:
    """Calls of one op, all of them inside the bounds."""
    return RawGroup(
        device=0, kernel="aten::sort", category=Category.CPU_OP, op="aten::sort", shapes=None, dtypes=None,
        strides=None, concrete=None, phase=Phase.FORWARD, module=None, backlog=False, linked=True, calls=calls,
        total_ns=calls * mean_ns, min_ns=mean_ns, max_ns=mean_ns, histogram=Histogram.from_values([mean_ns] * calls),
        step_calls=calls, step_ns=calls * mean_ns,
    )  # fmt: skip


def idle(vendor: str) -> RawDevice:
    """A device that waited for its host for 100 ms."""
    return RawDevice(vendor, "", span_ns=100_000_000, causes=(IdleCause(Cause.HOST, 100_000_000, 1, 100_000_000),))


def raw(device: RawDevice, *groups: RawGroup, unused: RawDevice | None = None) -> RawProfile:
    """A window of 100 ms."""
    return RawProfile("kineto", [device], list(groups), 7, 100_000_000, None, True, True, 9, unused=unused)


def test_a_window_without_records_is_of_the_registered_devices():
    """Nothing launched in 100 ms: both registered accelerators idle, by their uuids, and no kernel of the host's.

    A process that registered only its processor: that one, idle as well. Where it is not known whether something was
    launched, the host's ops are all there is.
    """
    two = replace(CONTEXT, devices=(H100, replace(H100, uuid="GPU-1", index=1), CPU))
    found = window_of(raw(idle("cpu"), sort(1, 10_000_000), unused=idle("")), two)

    assert [(d.device.vendor, d.device.uuid, d.device.index) for d in found.devices] == [
        (Vendor.NVIDIA, "GPU-0", 0), (Vendor.NVIDIA, "GPU-1", 1),
    ]  # fmt: skip
    assert all(d.device.model == H100.model and d.device.peaks.bandwidth for d in found.devices)
    assert [(d.span_ns, d.busy_ns, d.idle_ns) for d in found.devices] == [(100_000_000, 0, 100_000_000)] * 2
    assert all(d.causes == idle("").causes for d in found.devices)
    assert (found.kernels, found.ledger.device_records, found.ledger.events_read) == ((), 0, 9)

    found = window_of(raw(idle("cpu"), unused=idle("")), replace(CONTEXT, devices=(CPU,)))
    assert [(d.device.vendor, d.device.model, d.busy_ns) for d in found.devices] == [(Vendor.CPU, "a processor", 0)]
    (device,) = window_of(raw(idle("cpu"), sort(1, 10_000_000)), two).devices
    assert device.device.vendor is Vendor.CPU


def test_steps_are_counted_only_where_they_are_whole():
    """What was launched inside the bounds is in the steps; of a window that was cut short nobody knows how many."""
    profile = raw(idle("cpu"), sort(2, 200_000))
    whole, cut = (window_of(profile, replace(CONTEXT, steps=steps)) for steps in (2, None))
    assert (whole.steps, whole.kernels[0].step_calls, whole.kernels[0].step_ns) == (2, 2, 400_000)
    assert (cut.steps, cut.kernels[0].step_calls, cut.kernels[0].step_ns) == (None, 0, 0)


def test_what_a_sparse_window_stands_for():
    """40 ms of work in a window of 100 that stands for 1 s: 400 ms, not the whole second."""
    device = replace(idle("cpu"), busy_ns=40_000_000, causes=())
    found = window_of(raw(device, sort(2, 20_000_000)), replace(CONTEXT, represents_ns=10**9))
    assert [s.est_ns for s in sums_of(found)] == [pytest.approx(400_000_000)]
