"""Peaks measured on this machine, and what is kept of them: no too low figure without a word."""

from __future__ import annotations

from dataclasses import dataclass, replace

from roofwatch.collectors import calibrate
from roofwatch.model import devices
from roofwatch.model.errors import RoofwatchError
from roofwatch.model.record import Device, Vendor


@dataclass(frozen=True, slots=True)
class Result:
    """The device with the peaks that hold from now on (those measured, where none were kept)."""

    device: Device
    kept: bool
    sentences: list[str]


def calibrated(threads: int | None, device: str, *, force: bool) -> Result:
    """Measure a device and keep its peaks, unless the machine was busy; ``force`` keeps them whatever there was.

    Raises:
        RoofwatchError: the file cannot be written.
        UsageError: torch is not installed, or has no such device.
    """
    file = devices.calibration_file()
    found = calibrate.device_of(threads, device)
    key = devices.calibration_key(found)
    try:
        file.parent.mkdir(parents=True, exist_ok=True)  # before some seconds are spent
        measured = calibrate.measure_watched(threads, device)
        if measured.trouble and not force:
            return Result(replace(found, peaks=measured.peaks), False, [_busy(measured.trouble, kept=False)])
        sentences = [_busy(measured.trouble, kept=True)] if measured.trouble else []
        before = devices.load_peaks([file], key)
        peaks, lower = measured.peaks, list[str]()
        if before is not None and not force:
            peaks, lower = calibrate.higher(before, measured.peaks)
        devices.save_peaks(file, key, peaks)
    except OSError as error:
        raise RoofwatchError(f"{file} cannot be written: {error.strerror}; set XDG_CACHE_HOME.") from None
    if lower:
        sentences.append(f"{', '.join(lower)}: lower than measured before, so the higher stays; --force replaces it.")
    return Result(replace(found, peaks=peaks), True, sentences)


def known(threads: int) -> bool:
    """Whether this machine's CPU was calibrated for that many threads."""
    cpu = Device(Vendor.CPU, devices.cpu_model(), units=threads)
    return devices.load_peaks([devices.calibration_file()], devices.calibration_key(cpu)) is not None


def _busy(trouble: str, *, kept: bool) -> str:
    what = "they are kept all the same." if kept else "they are not kept: stop what runs and repeat, or add --force."
    return f"the figures may be too low ({trouble}); {what}"
