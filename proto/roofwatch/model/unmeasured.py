"""Devices of which nobody knows what they can do: without their peaks no kernel of theirs has a roof."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Any, NamedTuple

from roofwatch.model.answer import estimated, ratio, weight_of
from roofwatch.model.record import Vendor, Window

WORTH_A_WORD = 0.1  # of device time: below it nobody looks for the roofs that are missing


class Ran(NamedTuple):
    """Estimated time of kernels on devices of one model, and whether these devices' peaks are known."""

    model: str
    vendor: Vendor
    measured: bool
    est_ns: float


def unmeasured(times: Iterable[Ran]) -> list[dict[str, Any]]:
    """The models of which that is so, most time first; ``measured_share``: of the same model where it is known."""
    lacking: dict[tuple[str, Vendor], float] = defaultdict(float)
    known: dict[tuple[str, Vendor], float] = defaultdict(float)
    for ran in times:
        (known if ran.measured else lacking)[ran.model, ran.vendor] += ran.est_ns
    whole = sum(lacking.values()) + sum(known.values())
    found = [
        {
            "model": model,
            "vendor": str(vendor),
            "est_ns": round(est),
            "share": ratio(est, whole),
            "measured_share": ratio(known.get((model, vendor), 0.0), whole),
        }
        for (model, vendor), est in lacking.items()
        if est > 0
    ]
    return sorted(found, key=lambda one: (-one["est_ns"], one["model"]))


def of_window(window: Window) -> list[dict[str, Any]]:
    """The same of one window."""
    times = []
    for stat in window.kernels:
        on = window.devices[stat.device]
        peaks = on.device.peaks
        est = estimated(stat.total_ns, weight_of(window, on))
        times.append(Ran(on.device.model, on.device.vendor, bool(peaks.flops or peaks.bandwidth), est))
    return unmeasured(times)
