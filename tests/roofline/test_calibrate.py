"""The calibration really measures: real products and copies, with a small budget."""

from __future__ import annotations

import sys

import pytest

from roofwatch.collectors import calibrate
from roofwatch.model.devices import calibration_key, cpu_model, load_peaks, save_peaks
from roofwatch.model.errors import UsageError
from roofwatch.model.record import Peak, Peaks, Vendor

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


@pytest.mark.parametrize(("hopeless", "halves"), [(0.0, {"bf16", "fp16"}), (1e9, set())])
def test_a_half_precision_that_a_small_product_shows_to_be_emulated(monkeypatch, hopeless, halves):
    """It is not multiplied at full size, which takes seconds a product on some CPUs; any other is, and fp64 always."""
    monkeypatch.setattr(calibrate, "_ROWS", {"cpu": 64})
    monkeypatch.setattr(calibrate, "_COPY_BYTES", {"cpu": 1 << 20})
    monkeypatch.setattr(calibrate, "_MINIMUM_RATIO", 0.0)
    monkeypatch.setattr(calibrate, "_HOPELESS", hopeless)
    flops = calibrate.measure(threads=1, budget_s=0.001).flops
    assert {precision for precision, unit in flops if unit == "matrix"} == {"fp32", "fp64", *halves}


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


def peaks(product, bandwidth):
    """Peaks of one product and a copy."""
    return Peaks(
        {("fp32", "matrix"): Peak(product, "measured")}, None if bandwidth is None else Peak(bandwidth, "measured")
    )


def test_the_higher_of_two_calibrations():
    """Figure by figure; 4 % less is chance and no word is lost over it, 6 % less is named."""
    assert calibrate.higher(peaks(100.0, 50.0), peaks(96.0, 60.0)) == (peaks(100.0, 60.0), [])
    assert calibrate.higher(peaks(100.0, 50.0), peaks(94.0, 40.0)) == (
        peaks(100.0, 50.0), ["fp32/matrix", "bandwidth"],
    )  # fmt: skip
    assert calibrate.higher(peaks(100.0, None), Peaks({}, Peak(7.0, "measured"))) == (peaks(100.0, 7.0), [])


def test_more_threads_cannot_multiply_slower():
    """145 of 168 is a contradiction, 160 of 168 (4.8 % less) is chance; a slower copy, or nothing known, is none."""
    assert calibrate.contradicted(peaks(168.0, 10.0), peaks(145.0, 10.0)) == "fp32/matrix"
    assert calibrate.contradicted(peaks(168.0, 10.0), peaks(160.0, 5.0)) is None
    assert calibrate.contradicted(peaks(168.0, 10.0), Peaks()) is None


def test_without_torch_it_says_what_to_install(monkeypatch):
    """A CPU needs no CUDA: the sentence names torch itself."""
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(UsageError, match=r"not installed: pip install torch\.$"):
        calibrate.measure()


@pytest.mark.parametrize(
    ("taken", "cores", "threads", "told"),
    [
        (None, 2, 2, None), (0.1, 2, 2, None), (0.3, 2, 2, "other processes took 0.3 of the 2 cores"),
        (1.0, 2, 1, None), (1.2, 2, 1, "other processes took 1.2 of the 2 cores"), (0.1, 2, 8, None),
    ],
)  # fmt: skip
def test_cores_that_others_take(taken, cores, threads, told):
    """Nine tenths of what the threads need must be left; more threads than cores need all cores."""
    assert calibrate._taken(taken, cores, threads) == told


def test_rounds_that_disagree():
    """14 % apart is quiet; 20 % is told, with the figure on which they differ most."""
    assert calibrate._unsteady(peaks(100.0, 100.0), peaks(86.0, 100.0)) is None
    assert calibrate._unsteady(peaks(100.0, 70.0), peaks(80.0, 100.0)) == "two rounds differ by 30 % in bandwidth"


def test_a_watched_measurement():
    """Real figures, the better of two rounds."""
    found = calibrate.measure_watched(threads=1, budget_s=0.02)
    assert 1e9 < found.peaks.flops["fp32", "matrix"].value < 1e14
    assert set(found.peaks.flops) >= {("fp32", "vector"), ("fp64", "matrix")}
