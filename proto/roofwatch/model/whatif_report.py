"""The answer to a what-if: the step as foretold, the rows that change most, and what is taken for granted."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from roofwatch.model.answer import ratio, weight_of
from roofwatch.model.record import Window
from roofwatch.model.whatif import BITS, Certainty, Change, Fate, Foretold, Replay

ROW_KEYS = (
    "kernel", "kind", "op", "phase", "module", "shapes", "dtypes", "device", "calls", "est_ns", "share", "new_ns",
    "saved_ns", "ratio", "bound", "new_bound", "fate",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Time:
    """Estimated busy time and span of the devices, and of one step where windows had steps. ns, None: unknown."""

    busy_ns: float
    span_ns: float
    step_ns: float | None = None


def time_of(window: Window) -> Time:
    """The time of one window, each device weighted by what it stands for."""
    weighted = [(device, weight_of(window, device)) for device in window.devices]
    busy, span = (sum(getattr(d, name) * weight for d, weight in weighted) for name in ("busy_ns", "span_ns"))
    steps = sum((window.steps or 0) * weight for _, weight in weighted)
    return Time(busy, span, span / steps if steps else None)


def report(found: Replay, time: Time, limit: int) -> dict[str, Any]:
    """The parts of an answer; ``rows`` are those that change most."""
    return {
        "change": _change(found.change),
        "prediction": _prediction(found, time),
        "touched": _touched(found),
        "training": found.training,
        "assumptions": list(_assumptions(found, steps=time.step_ns is not None)),
        "rows": _rows(found, limit),
    }


def _change(change: Change) -> dict[str, Any]:
    return {
        "weights": change.weights,
        "kv": change.kv,
        "peak_compute": change.compute,
        "bandwidth": change.bandwidth,
        "device": change.device,
    }


def _prediction(found: Replay, time: Time) -> dict[str, Any]:
    """Device time before and after, and what that makes of the span.

    Kernels that ran side by side share the busy time, so busy shrinks by what the kernels save times busy ÷ their sum.
    """
    before, after = found.before_ns, found.after_ns
    beside = min(1.0, time.busy_ns / before) if before and time.busy_ns else 1.0
    saved = (before - after) * beside
    span = time.span_ns - saved if time.span_ns else None
    slower = ratio(span, time.span_ns) if span is not None else None
    then = {
        "kernels_new_ns": round(after),
        "busy_new_ns": round(time.busy_ns - saved),
        "span_new_ns": None if span is None else round(span),
        "step_new_ns": None if time.step_ns is None or slower is None else round(time.step_ns * slower),
        "speedup": None if not slower or slower <= 0 else 1.0 / slower,
        "kernels_speedup": ratio(before, after),
    }
    known = [k for k in found.kernels if k.fate in {Fate.CHANGED, Fate.SAME}]
    return {
        "certainty": str(found.certainty),
        "open_share": ratio(found.open_ns, before),
        "kernels_ns": round(before),
        "busy_ns": round(time.busy_ns),
        "span_ns": round(time.span_ns),
        "step_ns": None if time.step_ns is None else round(time.step_ns),
        **(dict.fromkeys(then) if found.certainty is Certainty.CANNOT_SAY else then),
        "roofed_ns": round(sum(k.sums.est_ns for k in known)),
        "roofed_new_ns": round(sum(k.est_ns for k in known)),
    }


def _touched(found: Replay) -> dict[str, Any]:
    """Shares of the device time by what became of it."""
    whole = found.before_ns
    return {
        **{f"{fate}_share": ratio(found.by[fate], whole) for fate in Fate},
        "weights_share": ratio(found.weights_ns, whole),
        "weights_unknown_share": ratio(found.weights_unknown_ns, whole),
        "kv_share": ratio(found.kv_ns, whole),
    }


def _assumptions(found: Replay, *, steps: bool) -> Iterable[str]:
    change = found.change
    yield "each kernel keeps the share of its roof that it reaches now"
    if change.weights is not None:
        bits = BITS[change.weights]
        yield (
            f"weights of {bits} bits, their scales not counted; products are still computed in the precision of now. "
            "Weights are the second operand of a product where it is a plain matrix, and the rows read of an embedding"
        )
    if change.kv is not None:
        yield f"keys and values of {BITS[change.kv]} bits where attention reads them, their scales not counted"
    if change.device is not None:
        yield f"kernels reach the same share of the roof on the {change.device}, and run there in the same precision"
    if len(found.models) > 1:
        yield f"kernels of {', '.join(found.models)} are added up: --on-device takes one"
    yield "communication and copies take as long as before"
    yield "idle time stays: a host that is too slow now hides nothing of what the device saves"
    if steps:
        yield "the span over its steps holds what was launched before them, too, which a step of 'compare' does not"
    if found.training and (change.weights is not None or change.kv is not None):
        yield "the selection trains: only forward kernels have fewer bytes, and quantised weights are for inference"


def _rows(found: Replay, limit: int) -> list[dict[str, Any]]:
    groups: dict[tuple[int, str], list[Foretold]] = defaultdict(list)
    for kernel in found.kernels:
        groups[kernel.sums.signature.id, kernel.sums.device].append(kernel)
    ranked = sorted(groups.items(), key=lambda item: (-abs(_saved(item[1])), item[0]))
    shown = [kernels for _, kernels in (ranked[:limit] if limit else ranked)]
    return [_row(kernels, found.before_ns) for kernels in shown]


def _saved(kernels: Sequence[Foretold]) -> float:
    return sum(k.sums.est_ns - k.est_ns for k in kernels)


def _row(kernels: Sequence[Foretold], whole: float) -> dict[str, Any]:
    leading = max(kernels, key=lambda k: k.sums.est_ns)
    signature = leading.sums.signature
    before, after = sum(k.sums.est_ns for k in kernels), sum(k.est_ns for k in kernels)
    return {
        "kernel": signature.kernel,
        "kind": str(signature.kind),
        "op": signature.op,
        "phase": str(signature.phase),
        "module": signature.module,
        "shapes": None if signature.shapes is None else json.loads(signature.shapes),
        "dtypes": None if signature.dtypes is None else json.loads(signature.dtypes),
        "device": leading.sums.device,
        "calls": sum(k.sums.calls for k in kernels),
        "est_ns": round(before),
        "share": ratio(before, whole),
        "new_ns": round(after),
        "saved_ns": round(before - after),
        "ratio": ratio(after, before),
        "bound": str(leading.sums.bound),
        "new_bound": str(leading.bound),
        "fate": str(leading.fate),
    }
