"""Ascend chips: found by name, or by family, cores, memory and clock; ceilings at the clock of the profile."""

from __future__ import annotations

import pytest

from roofwatch.collectors.base import RawDevice
from roofwatch.collectors.pipeline import join_devices
from roofwatch.model.devices import entries, identify, vector_units
from roofwatch.model.record import Device, Peak, Peaks, Vendor

CHIPS = [e for e in entries() if e.vendor is Vendor.ASCEND]


def matrix(device, precision="fp16"):
    """A ceiling of the cube in TFLOP/s, None where unknown."""
    found = device.peaks.flops.get((precision, "matrix"))
    return None if found is None else round(found.value / 1e12, 1)


def test_ceilings_are_cores_times_clock():
    """8192 FLOP a core and cycle in fp16, 128 a vector core in fp32; what a source says beside each figure."""
    for chip in CHIPS:
        clock, vector = chip.clocks[0], chip.vector_units
        assert chip.units is not None
        assert vector is not None
        if chip.family == "310p":
            vector += chip.units  # its AI cores have a vector unit as well
        assert chip.peaks.flops["fp16", "matrix"].value == pytest.approx(chip.units * clock * 8192, rel=1e-5)
        assert chip.peaks.flops["fp32", "vector"].value == pytest.approx(vector * clock * 128, rel=1e-5)
        assert "bandwidth" in chip.confidence
        assert "FLOP/s" in chip.confidence
    assert {chip.family for chip in CHIPS} == {"910a", "910b", "910c", "310p", "950"}


@pytest.mark.parametrize(
    ("name", "tera", "bandwidth"),
    [
        ("Ascend910A", 262.1, 1.2e12),
        ("Ascend910B1", 363.7, 1.6e12),
        ("Ascend910B2", 353.9, 1.6e12),
        ("Ascend910B2C", 353.9, 1.6e12),
        ("910B2C", 353.9, 1.6e12),  # as npu-smi prints it
        ("Ascend910B3", 294.9, 1.6e12),
        ("Ascend910B4", 245.8, 0.8e12),
        ("Ascend910B4-1", 245.8, 1.6e12),
        ("Ascend910_9392", 363.7, 1.6e12),
        ("Ascend910_9382", 353.9, 1.6e12),
        ("Ascend910_9372", 294.9, 1.6e12),
        ("Ascend910_9362", 245.8, 1.6e12),
        ("Ascend310P3", 69.5, 0.204e12),
        ("Ascend950PR_9589", 432.5, 1.6e12),
        ("Ascend950DT_9581", 432.5, 4.0e12),
    ],
)
def test_full_names(name, tera, bandwidth):
    """As the runtime gives them; the device keeps its name and is not inferred."""
    found = identify("ascend", name)
    assert (found.model, found.inferred, found.vendor) == (name, False, Vendor.ASCEND)
    assert matrix(found) == tera
    assert found.peaks.bandwidth == Peak(bandwidth, "datasheet")
    assert identify("", f"Ascend {name}").vendor is Vendor.ASCEND


def test_the_clock_of_the_profile_goes_before_the_table():
    """A 910B4 at 1650 MHz instead of 1500: 20 · 1650e6 · 8192 = 270.3 TFLOP/s, told by the profile."""
    found = identify("ascend", "Ascend910B4", clock_hz=1650e6)
    assert found.peaks.flops["bf16", "matrix"] == Peak(pytest.approx(20 * 1650e6 * 8192, rel=1e-5), "reported")
    assert found.peaks.bandwidth == Peak(0.8e12, "datasheet")  # which no clock of the cores tells
    held = identify("ascend", "Ascend910B2", clock_hz=900e6)
    assert matrix(held) == 176.9
    damaged = identify("ascend", "Ascend910B2", clock_hz=18e9)
    assert matrix(damaged) == 353.9


def test_a_slice_has_only_its_cores():
    """A virtual NPU of 12 cores is not the whole chip: what its cores can do is known where their clock is."""
    assert identify("ascend", "Ascend910B2", 12).peaks == Peaks()
    found = identify("ascend", "Ascend910B2", 12, clock_hz=1800e6)
    assert matrix(found) == round(12 * 1800e6 * 8192 / 1e12, 1)
    assert found.peaks.bandwidth is None


@pytest.mark.parametrize(
    ("name", "units", "memory", "clock", "least", "model", "tera", "bandwidth"),
    [
        # The Qwen3 set: nothing but what its counters tell.
        ("", 20, None, 1650e6, None, "Ascend 910B4", 270.3, 0.8e12),
        # The AlexNet set: B2 and a 910C die have the same ceilings.
        ("Ascend910B", 24, None, 1800e6, None, "Ascend 910B2 or Ascend 910C die (9381, 9382)", 353.9, 1.6e12),
        ("Ascend910B", None, None, 1800e6, 24, "Ascend 910B2 or Ascend 910C die (9381, 9382)", 353.9, 1.6e12),
        ("Ascend910B", 24, None, 1850e6, None, "Ascend 910B1 or Ascend 910C die (9391, 9392)", 363.7, 1.6e12),
        ("Ascend910B", 30, None, 900e6, None, "Ascend 910B (first generation)", 221.2, 1.2e12),
        ("Ascend310P", 8, None, 800e6, None, "Ascend 310P5", 52.4, 0.204e12),
    ],
)
def test_families(name, units, memory, clock, least, model, tera, bandwidth):
    """A database names a family, a table nothing: cores, memory and clock narrow it down, and the chip is inferred."""
    found = identify("ascend", name, units, memory, None, clock, least)
    assert (found.model, found.inferred) == (model, True)
    assert matrix(found) == tera
    assert found.peaks.bandwidth == Peak(bandwidth, "datasheet")


def test_what_chips_do_not_share_is_unknown():
    """20 cores at 1500 MHz are a 910B4 (0.8 TB/s), a B4-1 or a 910C die (1.6): no bandwidth. Memory leaves fewer."""
    found = identify("ascend", "Ascend910B", 20, clock_hz=1500e6)
    assert found.inferred
    assert matrix(found) == 245.8
    assert found.peaks.bandwidth is None
    large = identify("ascend", "Ascend910B", 20, 65_800_000_000, clock_hz=1500e6)
    assert large.peaks.bandwidth == Peak(1.6e12, "datasheet")
    cores = identify("ascend", "Ascend910B", 24)
    assert cores.peaks.bandwidth == Peak(1.6e12, "datasheet")
    assert matrix(cores) is None  # 1800 or 1850 MHz?


def test_nothing_is_guessed():
    """A family alone, a name nobody knows, and a nameless NVIDIA device that has an Ascend chip's figures."""
    assert identify("ascend", "Ascend910B").peaks == Peaks()
    assert identify("ascend", "Ascend910B9").peaks == Peaks()
    assert matrix(identify("ascend", "Ascend910B9", 24, clock_hz=2e9)) == round(24 * 2e9 * 8192 / 1e12, 1)
    assert identify("", "", 24, 66_000_000_000).peaks == Peaks()


@pytest.mark.parametrize(
    ("model", "units"),
    [
        ("Ascend910B2", 48),
        ("Ascend 910B2 or Ascend 910C die (9381, 9382)", 48),
        ("Ascend910A", 32),
        ("Ascend310P3", 7),
        ("Ascend910B", None),
    ],
)
def test_vector_cores(model, units):
    """A 910B has two vector cores for each cube, a 910A one in each core."""
    assert vector_units(Device(Vendor.ASCEND, model)) == units


def test_a_registered_chip_names_the_familys_member():
    """A database says Ascend910B; the process that was profiled told Ascend910B4 and its memory."""
    seen = RawDevice("ascend", "Ascend910B", index=0, clock_hz=1650e6)
    known = Device(Vendor.ASCEND, "Ascend910B4", uuid="N", index=0, memory_bytes=33_000_000_000, units=20)
    (found,) = join_devices([seen], (known,))
    assert (found.model, found.uuid, found.units, found.inferred) == ("Ascend910B4", "N", 20, False)
    assert matrix(found) == 270.3
