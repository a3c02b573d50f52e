"""Which device a trace speaks of, and its peaks: from the data file, from a calibration on the machine, or unknown."""

from __future__ import annotations

import json
import os
import platform
import re
import tempfile
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from importlib import resources
from pathlib import Path
from typing import Any

from roofwatch.model import devices_ascend
from roofwatch.model.record import Device, Peak, Peaks, Vendor

MEMORY_TOLERANCE = 0.06  # drivers report 40 GB as 39.4 to 42.5e9 bytes: reserved pages, ECC, decimal or binary units
_GENERIC = re.compile(
    r"(amd radeon graphics|nvidia graphics device|gpu|device)?", re.IGNORECASE
)  # names that tell nothing
_SLICE = re.compile(r"\bmig\b")  # "… MIG 1g.10gb": a part of the units and of the bandwidth
_FORMAT = 1  # of the calibration file


@dataclass(frozen=True, slots=True)
class Entry:
    """One device of the data file."""

    vendor: Vendor
    model: str
    names: tuple[re.Pattern[str], ...]
    units: int | None
    memory: float | None
    peaks: Peaks
    family: str = ""  # Ascend: what databases call the chip
    vector_units: int | None = None  # Ascend: vector cores; ``units`` are its cube cores
    clocks: tuple[float, ...] = ()  # Ascend: Hz, that of the peaks first
    confidence: str = ""

    def fits(self, units: int | None, memory_bytes: int | None) -> bool:
        """Whether unit count and memory are this device's; both must be known."""
        if units is None or memory_bytes is None or self.units is None or self.memory is None:
            return False
        return units == self.units and abs(memory_bytes - self.memory) <= MEMORY_TOLERANCE * self.memory


@lru_cache(maxsize=1)
def entries() -> tuple[Entry, ...]:
    """The data file, read once."""
    data = tomllib.loads(resources.files("roofwatch.model").joinpath("devices.toml").read_text("utf-8"))
    return tuple(_entry(item) for item in data["device"])


def _entry(item: Mapping[str, Any]) -> Entry:
    flops = {_key(name): Peak(float(value), "datasheet") for name, value in item["flops"].items()}
    return Entry(
        Vendor(item["vendor"]),
        item["model"],
        tuple(re.compile(name) for name in item["names"]),
        item.get("units"),
        item.get("memory"),
        Peaks(flops, Peak(float(item["bandwidth"]), "datasheet")),
        item.get("family", ""),
        item.get("vector_units"),
        tuple(float(clock) for clock in item.get("clocks", ())),
        item.get("confidence", ""),
    )


def _key(name: str) -> tuple[str, str]:
    precision, _, unit = name.rpartition("_")
    return precision, unit


def identify(
    vendor: str | None,
    name: str,
    units: int | None = None,
    memory_bytes: int | None = None,
    index: int | None = None,
    clock_hz: float | None = None,
    least_units: int | None = None,
) -> Device:
    """The device a source describes, with its peaks; it keeps the name by which its owner knows it.

    A known name decides, unless it is a slice of the device (MIG, or fewer units than the whole has) or a name of two
    devices that the unit count does not tell apart. An empty or generic name is matched by unit count and memory, if
    all devices that fit have the same peaks; the device is then ``inferred`` and named after them. Anything else has no
    peaks: unknown, not guessed. Ascend chips are found by family, cores, memory and clock (``devices_ascend``):
    ``least_units`` of their cube cores were seen at work.
    """
    known = Vendor(vendor) if vendor in set(Vendor) else None
    clean = " ".join(name.lower().split())
    if known is Vendor.ASCEND or (known is None and "ascend" in clean):
        chips = [e for e in entries() if e.vendor is Vendor.ASCEND]
        found = devices_ascend.identify(chips, clean, units, memory_bytes, clock_hz, least_units)
        return Device(
            Vendor.ASCEND, found.model or name.strip(), None, index, memory_bytes, units or found.units,
            inferred=found.inferred, peaks=found.peaks,
        )  # fmt: skip
    candidates = [e for e in entries() if known in (None, e.vendor) and e.vendor is not Vendor.ASCEND]
    named = [e for e in candidates if any(p.fullmatch(clean) for p in e.names)]
    if named:
        whole = [] if _SLICE.search(clean) else [e for e in named if units is None or e.units in (None, units)]
        alike = bool(whole) and all(e.peaks == whole[0].peaks for e in whole)
        return Device(
            named[0].vendor, name.strip(), None, index, memory_bytes, units, peaks=whole[0].peaks if alike else Peaks()
        )
    if known is not Vendor.CPU and _GENERIC.fullmatch(clean):
        fitting = [e for e in candidates if e.fits(units, memory_bytes)]
        if fitting and all(e.peaks == fitting[0].peaks for e in fitting):
            model = " or ".join(e.model for e in fitting)
            return Device(
                fitting[0].vendor, model, None, index, memory_bytes, units, inferred=True, peaks=fitting[0].peaks
            )
    return Device(known or _vendor_by_name(clean), name.strip(), None, index, memory_bytes, units)


def vector_units(device: Device) -> int | None:
    """Vector cores of an Ascend chip, whose ``units`` are its cube cores; None where neither job nor model tells."""
    return device.vector_units or _vector_units(device.model)


@lru_cache(maxsize=64)
def _vector_units(model: str) -> int | None:
    names = set(model.lower().split(" or "))
    chips = [e for e in entries() if e.vendor is Vendor.ASCEND]
    meant = [e for e in chips if e.model.lower() in names or any(p.fullmatch(n) for p in e.names for n in names)]
    counts = {e.vector_units for e in meant}
    return next(iter(counts)) if len(counts) == 1 else None


def _vendor_by_name(name: str) -> Vendor:
    """The vendor where the source does not tell it.

    A device nobody names is taken for NVIDIA's: most traces are, and without peaks nothing depends on it.
    """
    if "amd" in name or "radeon" in name or "instinct" in name:
        return Vendor.AMD
    return Vendor.ASCEND if "ascend" in name else Vendor.NVIDIA


def merged_peaks(better: Peaks, other: Peaks) -> Peaks:
    """Both devices' ceilings; where both know one, the first (a measured figure wins over a datasheet's)."""
    return Peaks({**other.flops, **better.flops}, better.bandwidth or other.bandwidth)


def calibration_key(device: Device) -> str:
    """The name under which a device's measured peaks are kept: a CPU's depend on the number of threads."""
    if device.vendor is Vendor.CPU:
        return f"cpu/{' '.join(device.model.split())}/{device.units}"
    return f"{device.vendor}/{' '.join(device.model.split())}"


def calibration_file() -> Path:
    """Where measured peaks are kept: ``$XDG_CACHE_HOME/roofwatch/peaks.json``, else under ``~/.cache``."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "roofwatch" / "peaks.json"


def save_peaks(path: Path, key: str, peaks: Peaks, uncertain: str | None = None) -> None:
    """Keep measured peaks under a key, beside what the file already holds; readers see the old file or the new one.

    ``uncertain``: in a few words what may have made them too low.

    Raises:
        OSError: the folder cannot be written.
    """
    kept = _read(path)
    kept[key] = {
        "flops": {f"{p}_{u}": {"value": peak.value, "source": peak.source} for (p, u), peak in peaks.flops.items()},
        "bandwidth": {"value": peaks.bandwidth.value, "source": peaks.bandwidth.source} if peaks.bandwidth else None,
        "uncertain": uncertain,
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=path.name)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            json.dump({"format": _FORMAT, "peaks": kept}, file, indent=1, sort_keys=True)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def load_peaks(paths: Iterable[Path | str], key: str) -> Peaks | None:
    """Measured peaks of a key: from the first of the files that has them. An absent or damaged file counts as empty."""
    for path in paths:
        found = _peaks(_read(Path(path)).get(key))
        if found is not None:
            return found
    return None


def load_uncertain(path: Path | str, key: str) -> str | None:
    """What may have made the peaks kept under a key too low; None where nothing is known to have."""
    found = _read(Path(path)).get(key)
    said = found.get("uncertain") if isinstance(found, dict) else None
    return said if isinstance(said, str) else None


def _read(path: Path) -> dict[str, Any]:
    try:
        data = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    kept = data.get("peaks") if isinstance(data, dict) and data.get("format") == _FORMAT else None
    return kept if isinstance(kept, dict) else {}


def _peaks(item: Any) -> Peaks | None:
    if not isinstance(item, dict) or not isinstance(item.get("flops"), dict):
        return None
    flops = {_key(name): peak for name, value in item["flops"].items() if (peak := _peak(value))}
    return Peaks(flops, _peak(item.get("bandwidth")))


def _peak(value: Any) -> Peak | None:
    if not isinstance(value, dict) or not isinstance(value.get("value"), int | float) or value["value"] <= 0:
        return None
    return Peak(float(value["value"]), str(value.get("source", "measured")))


def with_measured(device: Device, paths: Iterable[Path | str]) -> Device:
    """The device with what was measured on it, where a calibration is kept."""
    found = load_peaks(paths, calibration_key(device))
    return device if found is None else replace(device, peaks=merged_peaks(found, device.peaks))


def cpu_model() -> str:
    """The CPU's name as the kernel tells it, else its architecture: what the hook registers, too."""
    try:
        text = Path("/proc/cpuinfo").read_text("utf-8", "replace")
    except OSError:
        text = ""
    found = re.search(r"^model name[ \t]*:[ \t]*(\S.*)$", text, re.MULTILINE)
    return " ".join(found[1].split()) if found else platform.machine()
