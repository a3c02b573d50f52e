"""The calibration really measures: real products and copies, with a small budget."""

from __future__ import annotations

import pytest

from roofwatch.collectors import calibrate
from roofwatch.model.devices import calibration_key, cpu_model, load_peaks, save_peaks
from roofwatch.model.errors import UsageError
from roofwatch.model.record import Vendor

torch = pytest.importorskip("torch")


def test_a_cpu_is_measured(tmp_path):
    """Products and copies of this CPU: figures of a plausible size, kept and found again, the thread count put back."""
    before = torch.get_num_threads()
    peaks = calibrate.measure(threads=1, budget_s=0.05)
    assert torch.get_num_threads() == before
    assert 1e9 < peaks.flops["fp32", "matrix"].value < 1e14
    assert 1e8 < peaks.flops["fp64", "matrix"].value < 1e13
    assert peaks.flops["fp32", "vector"] == peaks.flops["fp32", "matrix"]
    assert peaks.bandwidth is not None
    assert 1e8 < peaks.bandwidth.value < 1e13
    assert {p.source for p in peaks.flops.values()} == {"measured"}
    device = calibrate.device_of(threads=1)
    save_peaks(tmp_path / "peaks.json", calibration_key(device), peaks)
    assert load_peaks([tmp_path / "peaks.json"], calibration_key(device)) == peaks


def test_the_device_as_the_hook_registers_it():
    """A CPU is its model and thread count: a calibration with other threads is another device's."""
    device = calibrate.device_of(threads=3)
    assert (device.vendor, device.model, device.units) == (Vendor.CPU, cpu_model(), 3)
    assert calibrate.device_of().units == torch.get_num_threads()


def test_a_device_that_is_not_there():
    """One sentence that says what to do."""
    with pytest.raises(UsageError, match="give cpu, cuda"):
        calibrate.measure(device="tpu")
    if not torch.cuda.is_available():
        with pytest.raises(UsageError, match="no CUDA or ROCm device"):
            calibrate.measure(device="cuda")
