"""Windows of two sides made by hand, on devices with round ceilings.

LEFT: 1000 TFLOP/s on the matrix unit, 50 on the vector unit, 2 TB/s. RIGHT: 500, 10 and 1. So a nanosecond of LEFT is a
million FLOPs or 2,000 bytes, and of RIGHT half of that.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import Any

from roofwatch.model import comparison
from roofwatch.model.comparison_sides import basis, side_of
from roofwatch.model.histogram import Histogram
from roofwatch.model.kinds import Kind
from roofwatch.model.record import (
    Bound,
    Cause,
    Device,
    DeviceWindow,
    Evidence,
    IdleCause,
    KernelStat,
    Ledger,
    Node,
    Padding,
    Peak,
    Peaks,
    Phase,
    Process,
    Signature,
    Trigger,
    Vendor,
    Window,
)
from roofwatch.model.roofline import ridge_of, roof_time_ns


def _device(vendor: Vendor, model: str, matrix: float, vector: float, bandwidth: float) -> Device:
    flops = {("bf16", "matrix"): Peak(matrix, "measured"), ("fp32", "vector"): Peak(vector, "measured")}
    return Device(vendor, model, uuid=model, index=0, peaks=Peaks(flops, Peak(bandwidth, "measured")))


LEFT = _device(Vendor.NVIDIA, "Left GPU", 1e15, 5e13, 2e12)
RIGHT = _device(Vendor.ASCEND, "Right NPU", 5e14, 1e13, 1e12)
LEFT_TOO = _device(Vendor.NVIDIA, "Other GPU", 5e14, 1e13, 1e12)  # RIGHT's ceilings, named as LEFT's kernels are


def signature(
    kernel: str,
    kind: Kind,
    op: str | None = None,
    shapes: Any = None,
    dtypes: Any = None,
    *,
    flops: int | None = None,
    moved: int | None = None,
    unit: str = "vector",
    arguments: Any = None,
    phase: Phase = Phase.NONE,
    formula: str | None = "counted",
    precision: str | None = None,
) -> Signature:
    """What a kernel is. ``dtypes``: of each operand, or one for all."""
    if isinstance(dtypes, str):
        dtypes = [dtypes] * len(shapes)
    return Signature(
        kernel, kind, op, phase,
        shapes=None if shapes is None else json.dumps(shapes, separators=(",", ":")),
        dtypes=None if dtypes is None else json.dumps(dtypes, separators=(",", ":")),
        arguments=None if arguments is None else json.dumps(arguments),
        flops=flops, bytes=moved, formula=formula if flops is not None else None,
        precision=(precision or ("bf16" if unit == "matrix" else "fp32")) if flops else None,
        unit=unit if flops else None,
    )  # fmt: skip


def stat(
    what: Signature,
    total_ns: int,
    calls: int = 1,
    *,
    outside_ns: int = 0,
    outside_calls: int = 0,
    bound: Bound = Bound.MEMORY,
    device: Device = LEFT,
) -> KernelStat:
    """A kernel's sums; ``outside`` is what of them was not launched in a step. The roof is that of the device."""
    times = None
    if what.flops is not None and what.bytes is not None:
        times = roof_time_ns(what.flops, what.bytes, device.peaks, what.precision, what.unit)
    mean = total_ns // max(calls, 1)
    return KernelStat(
        what, 0, calls, total_ns, mean, mean, Histogram(1, (calls,)), bound, Evidence.SHAPES,
        roof_ns=None if times is None else max(times), ridge=ridge_of(device.peaks, what.precision, what.unit),
        step_calls=calls - outside_calls, step_ns=total_ns - outside_ns,
    )  # fmt: skip


def window(
    device: Device,
    kernels: Sequence[KernelStat],
    *,
    name: str = "w",
    busy_ns: int | None = None,
    idle: dict[Cause, int] | None = None,
    startup: dict[Cause, int] | None = None,
    exposed: tuple[int, int] = (0, 0),
    steps: int | None = 1,
    padding: Padding | None = None,
    **process: Any,
) -> Window:
    """A window on one device; ``exposed`` are communication and copies. Busy is the kernels' sum if not told."""
    total = sum(k.total_ns for k in kernels)
    busy = total if busy_ns is None else busy_ns
    causes = tuple(
        IdleCause(
            cause, ns, 1, ns, None, (startup or {}).get(cause, 0), int(cause in (startup or {})),
            steady_longest_ns=ns - (startup or {}).get(cause, 0) if cause in (startup or {}) else None,
        )
        for cause, ns in (idle or {}).items()
    )  # fmt: skip
    span = busy + sum((idle or {}).values())
    ledger = Ledger(1, sum(k.calls for k in kernels), total, has_host_events=True, classifiable_ns=total)
    return Window(
        uid=hashlib.blake2b(name.encode(), digest_size=16).hexdigest(),
        process=Process(Node("node-1", "boot"), 100, 1, **process),
        start_unix_ns=1_800_000_000_000_000_000 + int(hashlib.blake2b(name.encode(), digest_size=2).hexdigest(), 16),
        duration_ns=span,
        trigger=Trigger.PERIODIC,
        collector="kineto",
        devices=(DeviceWindow(device, span, busy, causes, exposed[1], exposed[0]),),
        kernels=tuple(kernels),
        ledger=ledger,
        steps=steps,
        shapes_recorded=True,
        padding=padding,
    )


def compared(left: Window, right: Window, per: str | None = None, **more: Any) -> dict[str, Any]:
    """The answer to two windows."""
    sides = side_of(left, "left"), side_of(right, "right")
    return comparison.compare(*sides, basis(sides[0].counts, sides[1].counts, per), **more)


def row(answer: dict[str, Any], **wanted: Any) -> dict[str, Any]:
    """The one row with these figures."""
    found = [r for r in answer["rows"] if all(r[key] == value for key, value in wanted.items())]
    assert len(found) == 1, (wanted, [(r["op"], r["kind"], r["match"], r["shapes"]) for r in answer["rows"]])
    return found[0]


def part(answer: dict[str, Any], name: str) -> tuple[int, int, int]:
    """One part of the times: left, right, difference."""
    found = next((p for p in answer["summary"]["parts"] if p["part"] == name), None)
    return (0, 0, 0) if found is None else (found["left_ns"], found["right_ns"], found["difference_ns"])
