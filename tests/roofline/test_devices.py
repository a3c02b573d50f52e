"""Device names, peaks and calibration files."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from roofwatch.hook import identity
from roofwatch.model import devices
from roofwatch.model.devices import (
    calibration_file,
    calibration_key,
    entries,
    identify,
    load_peaks,
    merged_peaks,
    save_peaks,
    with_measured,
)
from roofwatch.model.record import Device, Peak, Peaks, Vendor
from roofwatch.model.roofline import ridge_of

DOCS = Path(__file__).resolve().parents[2] / "docs" / "devices.md"


@pytest.mark.parametrize(
    ("name", "model"),
    [
        ("Tesla V100-SXM2-32GB", "NVIDIA V100 SXM2 32 GB"),
        ("Tesla V100-SXM2-16GB", "NVIDIA V100 SXM2 16 GB"),
        ("Tesla V100-PCIE-16GB", "NVIDIA V100 PCIe 16 GB"),
        ("Tesla V100-PCIE-32GB", "NVIDIA V100 PCIe 32 GB"),
        ("NVIDIA A100-PG509-200", "NVIDIA A100 SXM4 40 GB"),
        ("NVIDIA A100-SXM4-40GB", "NVIDIA A100 SXM4 40 GB"),
        ("NVIDIA A100-SXM4-80GB", "NVIDIA A100 SXM4 80 GB"),
        ("A100-SXM4-80GB", "NVIDIA A100 SXM4 80 GB"),
        ("A100-SXM-80GB", "NVIDIA A100 SXM4 80 GB"),
        ("NVIDIA PG509-210", "NVIDIA A100 SXM4 80 GB"),
        ("Tesla V100-SXM2-32GB-LS", "NVIDIA V100 SXM2 32 GB"),
        ("NVIDIA A100-PCIE-40GB", "NVIDIA A100 PCIe 40 GB"),
        ("NVIDIA A100 80GB PCIe", "NVIDIA A100 PCIe 80 GB"),
        ("NVIDIA H100 80GB HBM3", "NVIDIA H100 SXM5 80 GB"),
        ("NVIDIA H100 PCIe", "NVIDIA H100 PCIe 80 GB"),
        ("NVIDIA H100 80GB HBM2e", "NVIDIA H100 PCIe 80 GB"),
        ("NVIDIA H100 NVL", "NVIDIA H100 NVL"),
        ("NVIDIA H200", "NVIDIA H200 SXM 141 GB"),
        ("NVIDIA B200", "NVIDIA B200 SXM 180 GB"),
        ("NVIDIA L4", "NVIDIA L4"),
        ("NVIDIA L40S", "NVIDIA L40S"),
        ("NVIDIA A10", "NVIDIA A10"),
        ("Tesla T4", "NVIDIA T4"),
        ("NVIDIA GeForce RTX 2080 Ti", "NVIDIA GeForce RTX 2080 Ti"),
        ("NVIDIA GeForce RTX 3090", "NVIDIA GeForce RTX 3090"),
        ("NVIDIA GeForce RTX 4090", "NVIDIA GeForce RTX 4090"),
        ("AMD Instinct MI210", "AMD Instinct MI210"),
        ("AMD Instinct MI250X", "AMD Instinct MI250X (one GCD)"),
        ("AMD Instinct MI300X", "AMD Instinct MI300X"),
        ("AMD Instinct MI300X VF", "AMD Instinct MI300X"),
        ("AMD Instinct MI300X OAM", "AMD Instinct MI300X"),
    ],
)
def test_names_as_traces_write_them(name, model):
    """A known name decides, without unit count or memory; the device keeps it and is not marked as inferred."""
    found = identify("", name)
    assert found.peaks == next(e.peaks for e in entries() if e.model == model)
    assert found.model == name
    assert not found.inferred


@pytest.mark.parametrize(
    ("name", "units"),
    [
        ("NVIDIA H100 80GB HBM3 MIG 1g.10gb", 16),
        ("NVIDIA A100-SXM4-40GB", 14),
        ("NVIDIA A100-SXM4-40GB MIG 7g.40gb", None),
    ],
)
def test_a_slice_has_no_known_peaks(name, units):
    """A MIG slice, or a device with fewer units than its name's, has not the whole device's peaks."""
    found = identify("nvidia", name, units)
    assert (found.model, found.peaks) == (name, Peaks())


@pytest.mark.parametrize(
    "name",
    [
        "NVIDIA A10G",
        "NVIDIA A100-SXM-64GB",
        "NVIDIA H100",
        "NVIDIA H100-SXM5-64GB",
        "Tesla V100S-PCIE-32GB",
        "NVIDIA A100X",
        "NVIDIA L40",
        "NVIDIA GeForce RTX 4090 D",
        "NVIDIA GeForce RTX 3090 Ti",
        "Foo",
    ],
)
def test_a_like_name_is_not_the_device(name):
    """A device that is not in the file keeps its name and has no peaks, however close another name is."""
    found = identify("nvidia", name, 108, 85_000_000_000)
    assert (found.model, found.peaks, found.inferred) == (name, Peaks(), False)


@pytest.mark.parametrize(
    ("vendor", "name", "units", "memory", "model"),
    [
        ("amd", "", 304, 206_141_652_992, "AMD Instinct MI300X"),
        ("", "", 304, 206_141_652_992, "AMD Instinct MI300X"),
        ("", "AMD Radeon Graphics", 104, 68_702_699_520, "AMD Instinct MI210 or AMD Instinct MI250 (one GCD)"),
        ("", "", 132, 85_018_279_936, "NVIDIA H100 SXM5 80 GB"),
    ],
)
def test_nameless_devices_by_units_and_memory(vendor, name, units, memory, model):
    """An empty or generic name: unit count and memory decide where all devices that fit have the same peaks."""
    found = identify(vendor, name, units, memory)
    assert (found.model, found.inferred) == (model, True)
    assert found.peaks.bandwidth is not None


def test_an_ambiguous_nameless_device_stays_unknown():
    """108 units and 80 GB is an A100, but SXM and PCIe differ in bandwidth: no peaks rather than one of the two."""
    found = identify("nvidia", "", 108, 84_990_623_744)
    assert (found.model, found.peaks, found.inferred) == ("", Peaks(), False)
    assert identify("nvidia", "", None, 84_990_623_744).peaks == Peaks()
    assert identify("nvidia", "", 80, 34_089_730_048).peaks == Peaks()  # V100: SXM2 and PCIe differ in clock


@pytest.mark.parametrize(
    ("name", "precision", "ridge"),
    [
        ("NVIDIA A100-SXM4-80GB", "bf16", 153.0),  # 312 / 2.039
        ("NVIDIA A100-SXM4-40GB", "bf16", 200.6),  # 312 / 1.555
        ("NVIDIA H100 80GB HBM3", "bf16", 295.3),  # 989.4 / 3.35
        ("NVIDIA H100 80GB HBM3", "fp8", 590.7),  # 1978.9 / 3.35
        ("NVIDIA B200", "bf16", 292.2),  # 2250 / 7.7
        ("AMD Instinct MI300X", "bf16", 246.7),  # 1307.4 / 5.3
        ("AMD Instinct MI250X", "fp16", 116.9),  # 191.5 / 1.6384, one die of two
        ("Tesla V100-SXM2-32GB", "fp16", 138.9),  # 125 / 0.9
    ],
)
def test_ridges(name, precision, ridge):
    """π / β of the matrix unit, from the datasheets' dense figures."""
    assert ridge_of(identify("", name).peaks, precision, "matrix") == pytest.approx(ridge, abs=0.06)


@pytest.mark.parametrize(("units", "fp16"), [(104, 181e12), (110, 191.5e12)])
def test_one_name_of_two_packages(units, fp16):
    """The driver calls an MI250 "MI250X/MI250": 104 units are its die's, 110 an MI250X's; without them: unknown."""
    name = "AMD Instinct MI250X/MI250"
    assert identify("amd", name, units).peaks.flops["fp16", "matrix"].value == fp16
    assert identify("amd", name).peaks == Peaks()
    assert identify("amd", name, 52).peaks == Peaks()


def test_half_matrix_figures_follow_from_units_and_clock():
    """Units · operations a clock and unit · boost clock, e.g. A100: 108 · 2,048 · 1.41 GHz = 311.9 TFLOP/s.

    GeForce cards at half of their tensor cores' rate: fp32 accumulation.
    """
    boost = {  # operations a clock of one unit, GHz
        "NVIDIA V100 SXM2 32 GB": (1024, 1.53), "NVIDIA V100 PCIe 32 GB": (1024, 1.38),
        "NVIDIA A100 SXM4 80 GB": (2048, 1.41),
        "NVIDIA H100 SXM5 80 GB": (4096, 1.83), "NVIDIA H100 PCIe 80 GB": (4096, 1.62), "NVIDIA L4": (1024, 2.04),
        "NVIDIA B200 SXM 180 GB": (8192, 1.86), "NVIDIA L40S": (1024, 2.52), "NVIDIA A10": (1024, 1.695),
        "NVIDIA T4": (1024, 1.59), "NVIDIA GeForce RTX 2080 Ti": (512, 1.545), "NVIDIA GeForce RTX 3090": (512, 1.695),
        "NVIDIA GeForce RTX 4090": (512, 2.52), "AMD Instinct MI210": (1024, 1.7), "AMD Instinct MI300X": (2048, 2.1),
        "AMD Instinct MI250X (one GCD)": (1024, 1.7),
    }  # fmt: skip
    for entry in entries():
        if entry.model in boost:
            rate, clock = boost[entry.model]
            assert entry.units is not None
            expected = entry.units * rate * clock * 1e9
            assert entry.peaks.flops["fp16", "matrix"].value == pytest.approx(expected, rel=0.02), entry.model


def test_half_of_a_two_die_package():
    """MI250X: 383 TFLOP/s in fp16 and 3,276.8 GB/s are the package's; a trace sees a die, half of it."""
    peaks = identify("amd", "AMD Instinct MI250X").peaks
    assert peaks.flops["fp16", "matrix"].value == 383e12 / 2
    assert peaks.bandwidth == Peak(3_276.8e9 / 2, "datasheet")


def test_dense_figures_only():
    """Doubling from fp16 to fp8 or int8 happens in dense figures; a fourfold step would be one with sparsity."""
    for entry in entries():
        flops = {key: peak.value for key, peak in entry.peaks.flops.items()}
        half = flops["fp16", "matrix"]
        for precision in ("fp8", "int8"):
            narrow = flops.get((precision, "matrix"), half)
            assert half <= narrow <= 4.01 * half, entry.model
        assert flops.get(("bf16", "matrix"), half) == half
        assert flops.get(("tf32", "matrix"), half / 2) == pytest.approx(half / 2, rel=0.02), entry.model


def test_the_document_shows_the_data_file():
    """docs/devices.md has a row for each device with its bandwidth, fp16 and fp32 peaks, and ridge."""
    text = DOCS.read_text("utf-8")
    for entry in entries():
        row = next((line for line in text.splitlines() if line.startswith(f"| {entry.model} |")), None)
        assert row is not None, entry.model
        assert entry.peaks.bandwidth is not None
        half = entry.peaks.flops["fp16", "matrix"].value
        cells = [c.strip() for c in row.split("|")]
        assert float(cells[2]) == pytest.approx(entry.peaks.bandwidth.value / 1e12, rel=1e-3), entry.model
        assert float(cells[3]) == pytest.approx(half / 1e12, rel=1e-3), entry.model
        assert float(cells[4]) == pytest.approx(entry.peaks.flops["fp32", "vector"].value / 1e12, rel=1e-3), entry.model
        assert float(cells[5]) == pytest.approx(half / entry.peaks.bandwidth.value, abs=0.5), entry.model


MEASURED = Peaks({("fp32", "matrix"): Peak(1e11, "measured")}, Peak(2e10, "measured"))


def test_calibration_is_kept_and_found(tmp_path):
    """What is saved under a device is loaded again, beside what else the file holds.

    Another thread count is another device.
    """
    path = tmp_path / "cache" / "peaks.json"
    one, two = (calibration_key(Device(Vendor.CPU, "Some  CPU", units=n)) for n in (1, 2))
    save_peaks(path, one, MEASURED)
    save_peaks(path, two, Peaks({}, Peak(3e10, "measured")))
    assert load_peaks([tmp_path / "absent.json", path], one) == MEASURED
    assert load_peaks([path], two) == Peaks({}, Peak(3e10, "measured"))
    assert load_peaks([path], "cpu/other/1") is None
    assert [p.name for p in path.parent.iterdir()] == ["peaks.json"]


@pytest.mark.parametrize(
    "content", ["", "{", "[]", '{"format": 2, "peaks": {}}', '{"format": 1, "peaks": {"k": 3}}', "\xff"]
)
def test_a_damaged_calibration_counts_as_none(tmp_path, content):
    """A file that is not what was written gives no peaks and can be written over."""
    path = tmp_path / "peaks.json"
    path.write_text(content, "latin-1")
    assert load_peaks([path], "k") is None
    save_peaks(path, "k", MEASURED)
    assert load_peaks([path], "k") == MEASURED


def test_measured_wins_over_datasheet(tmp_path):
    """A device's measured figures replace the datasheet's where both exist; the others stay."""
    path = tmp_path / "peaks.json"
    device = identify("nvidia", "NVIDIA H100 80GB HBM3")
    save_peaks(path, calibration_key(device), Peaks({("bf16", "matrix"): Peak(7e14, "measured")}, None))
    peaks = with_measured(device, [path]).peaks
    assert peaks.flops["bf16", "matrix"] == Peak(7e14, "measured")
    assert peaks.flops["fp8", "matrix"] == Peak(1978.9e12, "datasheet")
    assert peaks.bandwidth == Peak(3.35e12, "datasheet")
    assert merged_peaks(Peaks(), device.peaks) == device.peaks


def test_where_calibrations_are_kept(monkeypatch):
    """Under $XDG_CACHE_HOME, else ~/.cache."""
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
    assert calibration_file() == Path("/somewhere/roofwatch/peaks.json")
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", "/home/someone")
    assert calibration_file() == Path("/home/someone/.cache/roofwatch/peaks.json")


def test_the_cpus_name():
    """The kernel's name of this CPU, on one line, without runs of spaces; the same that the hook registers."""
    name = devices.cpu_model()
    assert re.fullmatch(r"\S+( \S+)*", name)
    assert name == identity.cpu_model()
