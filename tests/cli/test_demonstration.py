"""What the demo says about the cost of its windows."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from roofwatch.cli import demonstration
from roofwatch.cli.supervise import children
from roofwatch.model import devices
from roofwatch.model.record import Device, Peak, Peaks, Vendor

MS = 1_000_000
WINDOW = {"open_ns": 1 * MS, "quiesce_ns": 0, "close_ns": 10 * MS, "save_ns": 5 * MS, "free_ns": None}


def window(start_ms: int, duration_ms: int) -> dict[str, Any]:
    """A window that begins at a time and closes in 15 ms; it is counted with 500 ms after it."""
    return {**WINDOW, "start_unix_ns": start_ms * MS, "duration_ns": duration_ms * MS}


def ends(*durations_ms: int) -> list[int]:
    """When layers end, the first at 0; eight to warm up come before it."""
    moments = [*range(-8 * MS, 1, MS)]
    for duration in durations_ms:
        moments.append(moments[-1] + duration * MS)
    return moments


def test_lost_time_is_what_touched_layers_take_above_the_median() -> None:
    """Twelve layers of 100 ms, then 130 and 150 ms under a window of 1,200 to 1,300 ms, 100 ms for the 500 ms after.

    The span reaches from 1,199 to 1,815 ms: the layers that end at 1,200, 1,330, 1,480, 1,580, 1,680, 1,780 and
    1,880 are touched, 780 ms in all, seven of 100 ms are 700: 80 ms lost.
    """
    layers = ends(*[100] * 12, 130, 150, *[100] * 14)
    assert demonstration.lost_by_layers(layers, [window(1_200, 100)]) == 80 * MS


def test_too_few_layers_say_nothing() -> None:
    """Nineteen free layers are not enough to know what a layer takes."""
    assert demonstration.lost_by_layers(ends(*[100] * 19), []) is None
    assert demonstration.lost_by_layers([], [window(0, 100)]) is None


PROCESS = {"process": "a", "model": "m", "windows": 3, "lost_ns": 30 * MS, "lost_share": 0.005}
PROCESS |= {"represented_ns": 6_000 * MS}
WINDOWS = [
    {**window(0, 1), "process": "a", "represents_ns": None, "lost_ns": 99 * MS},
    {**window(9, 1), "process": "a", "represents_ns": 3_000 * MS, "lost_ns": 10 * MS},
    {**window(19, 1), "process": "a", "represents_ns": 3_000 * MS, "lost_ns": 20 * MS},
]


def said(
    *processes: dict[str, Any], windows: Sequence[dict[str, Any]] = WINDOWS, layers: Sequence[int] = ()
) -> list[str]:
    """What the demo says of jobs."""
    result = demonstration.Result({}, {"rows": list(processes)}, {"rows": list(windows)}, list(layers))
    return list(demonstration.costs(result))


def test_a_job_with_steps_is_told_by_the_hooks_own_measurement() -> None:
    """30 ms lost to the two windows that stand for a known time, 3 s each: 15 ms, 0.5 %.

    A negative loss (noise) is not sold as a gain; nothing known is said so.
    """
    assert said(PROCESS) == ["m: 3 windows, 15 ms lost to each, 0.5 % of its time"]
    assert said({**PROCESS, "lost_ns": -5}) == ["m: 3 windows, ≈ 0 ms lost to each, ≈ 0 % of its time"]
    assert said({**PROCESS, "lost_ns": None, "represented_ns": None}) == ["m: 3 windows, cost not known"]


def test_all_jobs_together() -> None:
    """The encoder lost 80 ms (above) to one window of 2 s, 4 %; together 110 ms to 3 windows, of 8 s: 1.4 %.

    Where the cost of one is not known, there is no sum.
    """
    encoder = {"process": "b", "model": "e", "windows": 1, "lost_ns": None, "lost_share": None, "represented_ns": None}
    windows = [*WINDOWS, {**window(1_200, 100), "process": "b", "represents_ns": 2_000 * MS, "lost_ns": None}]
    layers = ends(*[100] * 12, 130, 150, *[100] * 14)
    assert said(PROCESS, encoder, windows=windows, layers=layers) == [
        "e: 1 window, 80 ms lost to each, 4.0 % of its time",
        "m: 3 windows, 15 ms lost to each, 0.5 % of its time",
        "together: 4 windows, 37 ms lost to each, 1.4 % of their time",
    ]
    assert len(said(PROCESS, encoder, windows=windows)) == 2


def test_what_is_wrong_with_the_peaks_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Not measured, measured beside other work, and nothing to say; each with the command that mends it."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    told = demonstration._doubt(1)
    assert told is not None
    assert "with 1 thread stay unknown, and with them verdicts" in told
    assert told.endswith("Once it is idle: roofwatch devices calibrate --threads 1")
    file = devices.calibration_file()
    file.parent.mkdir(parents=True)
    key = devices.calibration_key(Device(Vendor.CPU, devices.cpu_model(), units=1))
    peaks = Peaks(bandwidth=Peak(1e10, "measured"))
    devices.save_peaks(file, key, peaks, "two rounds differ by 48 % in bandwidth")
    told = demonstration._doubt(1)
    assert told is not None
    assert "with 1 thread may be too low, and so roof and bound wrong (two rounds differ by 48 % in bandwidth)" in told
    devices.save_peaks(file, key, peaks, None)
    assert demonstration._doubt(1) is None


def test_a_machine_too_busy_is_told_with_what_the_jobs_did(tmp_path: Path) -> None:
    """Their layers and seconds, the load, and what to do: not the last line that they wrote."""
    with children(tmp_path) as group:
        jobs = [
            group.start(name, ("/bin/sh", "-c", f"printf '{lines}'; exec sleep 30"), {})
            for name, lines in (("inference", "17\\n18\\n"), ("training", ""))
        ]
        group.until(lambda: jobs[0].log.stat().st_size == 6, "it wrote nothing", 10)
        told = demonstration._too_busy(150.2, jobs)
    assert told.startswith("no window arrived within 150 s (inference: 2 layers, training: 0 seconds): this machine is")
    assert told.endswith("Stop what else runs, or wait until it is done, and repeat: roofwatch demo")
