"""One trace file, or one folder of an Ascend profiler, as one window: what ``analyze`` and ``import`` share."""

from __future__ import annotations

import hashlib
import stat
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from roofwatch.collectors import pipeline, registry
from roofwatch.collectors.base import WindowContext
from roofwatch.collectors.graphs import NOTHING, Known
from roofwatch.model.devices import calibration_file, cpu_model
from roofwatch.model.diagnosis_mistakes import LOOSE_GRAPHS, Conditions, conditions_of
from roofwatch.model.errors import RoofwatchError, UsageError
from roofwatch.model.record import Device, Node, Process, Trigger, Vendor, Window

BLOCK = 1 << 20
PROGRESS_FROM_BYTES = 32 << 20  # about a second of reading; less needs no word

ANY_CPU = Device(Vendor.CPU, "CPU")  # a trace does not say on which CPU it was recorded


@dataclass(frozen=True, slots=True)
class Origin:
    """What the user says about a file beside what is in it; ``cpu`` is the one that it was recorded on."""

    node: str = "imported"
    model: str | None = None
    labels: Mapping[str, str] | None = None
    cpu: Device = ANY_CPU
    graphs: Known = NOTHING


def captured(paths: Sequence[Path]) -> Known:
    """What profiles of graph captures tell.

    Raises:
        RoofwatchError: one cannot be read, or holds no capture.
    """
    for path in paths:
        _require_file(path)
    return Known(tuple(found for path in paths for found in registry.read_captures(path, _progress(path))))


def _require_file(path: Path) -> None:
    """Files are read twice, for their hash too, and a device may have no end; what is not there the reader tells."""
    try:
        mode = path.stat().st_mode
    except OSError:
        return
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
        raise RoofwatchError(f"{path} is a pipe or a device, not a file: save what it gives to a file first.")


def recorded_on(here: bool, threads: int | None) -> Device:
    """The CPU that traces were recorded on: this machine's with a number of threads, or unknown.

    Raises:
        UsageError: ``threads`` without ``here``, or torch, whose usual number is the default, is not installed.
    """
    if not here:
        if threads is not None:
            raise UsageError("--threads says with how many threads this machine recorded the trace: add --here.")
        return ANY_CPU
    if threads is None:
        from roofwatch.collectors.calibrate import device_of  # noqa: PLC0415

        try:
            threads = device_of().units
        except UsageError:
            raise UsageError(
                "torch, which would tell its usual number of threads, is not here: add --threads N."
            ) from None
    return Device(Vendor.CPU, cpu_model(), units=threads)


def unjudged(path: Path, window: Window, cpu: Device) -> str | None:
    """One sentence where a CPU's ops have no verdict for want of its peaks, or where --here has nothing to say."""
    cpus = [d.device for d in window.devices if d.device.vendor is Vendor.CPU]
    if not cpus:
        return None if cpu is ANY_CPU else f"{path}: --here does nothing, its time is that of other devices than a CPU."
    if any(device.peaks.flops or device.peaks.bandwidth for device in cpus):
        return None
    if cpu is ANY_CPU:
        return (
            f"{path} does not say which CPU recorded it, so its ops are not judged: if it was this machine, measure it "
            "with 'roofwatch devices calibrate' and add --here."
        )
    calibrate = f"roofwatch devices calibrate --threads {cpu.units}"
    return (
        f"{path}: its ops are not judged, this CPU was not measured with {cpu.units} threads: run '{calibrate}' first."
    )


def in_vain(path: Path, window: Window, captures: Sequence[Path]) -> list[str]:
    """One sentence where --graph-capture has nothing to say."""
    if not captures or window.graphs:
        return []
    return [f"{path}: --graph-capture does nothing, no device graph was launched in it."]


def hints(path: Path, window: Window, captures: Sequence[Path]) -> list[str]:
    """Sentences about how the trace was recorded, where that is why its kernels have no verdict."""
    found, known = in_vain(path, window, captures), conditions_of(window)
    if any(d.device.vendor is Vendor.ASCEND for d in window.devices):
        return [*found, *_ascend_hints(path, window, known)]
    if nameless := _nameless(path, window):
        found.append(nameless)
    if any(d.device.vendor is Vendor.CPU for d in window.devices) and not known.shapeless_windows:
        return found
    if known.opless_windows:
        found.append(
            f"{path}: no operators were recorded, so kernels have no shapes: profile the CPU too (record_shapes=True)."
        )
    if known.shapeless_windows:
        found.append(f"{path}: no input shapes were recorded, so most kernels have no roof: record_shapes=True.")
    if (known.graph_loose_share or 0.0) > LOOSE_GRAPHS and not captures:
        share = f"{known.graph_loose_share or 0.0:.0%}".replace("%", " %")
        found.append(
            f"{path}: {share} of device time is in graphs that are not tied to ops: a profile of their capture ties "
            "them (--graph-capture CAPTURE)."
        )
    return found


def _nameless(path: Path, window: Window) -> str | None:
    """Where a trace does not tell which device it is of, so that nobody knows what that could do."""
    unclear = 2 * window.ledger.classified_ns < window.ledger.classifiable_ns
    if not unclear or all(d.device.model for d in window.devices):
        return None
    return (
        f"{path} does not tell which device it was (no deviceProperties), so kernels have no roof: give the file as "
        "the profiler wrote it (export_chrome_trace), not a list of its events."
    )


def _ascend_hints(path: Path, window: Window, known: Conditions) -> list[str]:
    """An Ascend kernel tells its own shapes, from Level1 on; a verdict needs its chip, too."""
    if known.opless_windows or known.shapeless_windows:
        return [f"{path}: no kernels' shapes were recorded, so most have no roof: record at Level1."]
    unclear = 2 * window.ledger.classified_ns < window.ledger.classifiable_ns
    if unclear and all(d.device.peaks.bandwidth is None for d in window.devices):
        told = "give the whole folder, or record at Level1 with PipeUtilization, which tells clock and cores"
        return [f"{path} does not tell which chip it was, so kernels have no roof: {told}."]
    return []


@dataclass(frozen=True, slots=True)
class Read:
    """What is in a file: its window, how it was recorded, and one sentence about what of it could not be read."""

    window: Window
    problem: str | None
    conditions: Conditions


_IMPOSSIBLE = {"bad_time": "at an impossible time", "bad_duration": "of an impossible duration"}


def label_of(path: Path) -> str:
    """The label by which windows of a file or folder are known: its name."""
    return path.name or path.resolve().name  # of the current folder, which is given as a dot


def window_of(path: Path, origin: Origin) -> tuple[Window, str | None]:
    """The window in a file, and one sentence about what of it could not be read; raises as ``read`` does."""
    found = read(path, origin)
    return found.window, found.problem


def read(path: Path, origin: Origin) -> Read:
    """What is in a file, or in a folder of an Ascend profiler.

    The window's uid is the hash of the bytes of the file that was read, in a folder of the one with the records, so
    that what is imported twice counts once.

    Raises:
        RoofwatchError: nothing in it can be read; says what is wrong and where.
    """
    _require_file(path)
    found = registry.read_path(path, progress=_progress(path), known=origin.graphs)
    uid, profile = _digest(found.files), found.profile
    process = Process(
        Node(origin.node, boot_id=f"file:{uid}"),  # nobody knows which boot: two files never share a process
        pid=profile.pid or 0,
        start_unix_ns=None,
        rank=profile.rank,
        world_size=profile.world_size,
        model=origin.model,
        labels={"file": label_of(path), **(origin.labels or {})},
    )
    context = WindowContext(uid, process, Trigger.IMPORTED, (origin.cpu,), peaks_files=(str(calibration_file()),))
    window = pipeline.window_of(profile, context)
    conditions = replace(conditions_of(window), step_ns=profile.step_ns)
    return Read(window, profile.problem or _lost(path, window), conditions)


def _lost(path: Path, window: Window) -> str | None:
    """One sentence where records of a sound file are lost because they cannot be true."""
    dropped = window.ledger.dropped
    told = [(dropped.get(reason, 0), words) for reason, words in _IMPOSSIBLE.items() if window.collector == "kineto"]
    words = " and ".join(f"{count:,} {'record' if count == 1 else 'records'} {what}" for count, what in told if count)
    return f"{path}: left out: {words}; the rest is as recorded." if words else None


def _digest(files: Sequence[Path]) -> str:
    """The first half of the hash of files, one after the other."""
    digest = hashlib.sha256()
    for path in files:
        try:
            with path.open("rb") as file:
                while block := file.read(BLOCK):
                    digest.update(block)
        except OSError as error:
            raise RoofwatchError(f"{path} cannot be read: {error.strerror or error}.") from error
    return digest.hexdigest()[:32]


def _progress(path: Path) -> Callable[[int, int | None], None] | None:
    """A line on stderr that says how far reading is, where a person watches and what is read is large."""
    if not sys.stderr.isatty():
        return None
    shown = -1

    def tell(read: int, size: int | None) -> None:
        nonlocal shown
        if size is not None and size < PROGRESS_FROM_BYTES:
            return
        percent = read * 100 // size if size else 0
        if percent != shown:
            shown = percent
            sys.stderr.write(f"\rreading {label_of(path)}: {percent} %" if percent < 100 else "\r\x1b[K")
            sys.stderr.flush()

    return tell
