"""Peaks measured on this machine, and what is kept of them: no too low figure without a word."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass, replace

from roofwatch.cli.render.text import plural
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
    uncertain: str | None = None  # what may have made the peaks too low


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
            return Result(
                replace(found, peaks=measured.peaks), False, [_busy(measured.trouble, kept=False)], measured.trouble
            )
        sentences = [_busy(measured.trouble, kept=True)] if measured.trouble else []
        before = devices.load_peaks([file], key)
        peaks, lower = measured.peaks, list[str]()
        if before is not None and not force:
            peaks, lower = calibrate.higher(before, measured.peaks)
        devices.save_peaks(file, key, peaks, measured.trouble)
    except OSError as error:
        raise RoofwatchError(f"{file} cannot be written: {error.strerror}; set XDG_CACHE_HOME.") from None
    if lower:
        sentences.append(f"{', '.join(lower)}: lower than measured before, so the higher stays; --force replaces it.")
    return Result(replace(found, peaks=peaks), True, sentences, measured.trouble)


def known(threads: int) -> bool:
    """Whether this machine's CPU was calibrated for that many threads."""
    cpu = Device(Vendor.CPU, devices.cpu_model(), units=threads)
    return devices.load_peaks([devices.calibration_file()], devices.calibration_key(cpu)) is not None


def measured_cpus() -> list[Device]:
    """This machine's CPU, once for each number of threads for which it was calibrated."""
    file = devices.calibration_file()
    cpus = [Device(Vendor.CPU, devices.cpu_model(), units=n) for n in range(1, (os.cpu_count() or 1) + 1)]
    found = [devices.with_measured(cpu, [file]) for cpu in cpus]
    return [cpu for cpu in found if cpu.peaks.bandwidth or cpu.peaks.flops]


def doubted(threads: int) -> str | None:
    """Why the CPU's peaks for that many threads may be too low: measured beside other work, or below those of fewer."""
    mine = Device(Vendor.CPU, devices.cpu_model(), units=threads)
    file, key = devices.calibration_file(), devices.calibration_key(mine)
    peaks, said = devices.load_peaks([file], key), devices.load_uncertain(file, key)
    beyond = threads > (os.cpu_count() or 1)  # threads that share cores may well be slower
    if peaks is None or said is not None or beyond:
        return said
    for fewer in (cpu for cpu in measured_cpus() if cpu.units and cpu.units < threads):
        figure = calibrate.contradicted(fewer.peaks, peaks)
        if figure is not None:
            return f"{plural(fewer.units or 0, 'thread')} had more in {figure}"
    return None


def repeat(threads: Iterable[int]) -> str:
    """The command that measures again."""
    return " ".join(["roofwatch devices calibrate", *(f"--threads {n}" for n in threads)])


def _busy(trouble: str, *, kept: bool) -> str:
    what = "they are kept all the same." if kept else "they are not kept: stop what runs and repeat, or add --force."
    return f"the figures may be too low ({trouble}); {what}"
