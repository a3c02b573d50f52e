"""Rows of an answer: signatures with their sums, ranges and bandwidths, from a store and from a file alike."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, TypeVar

from roofwatch.model.answer import estimated, ratio, weight_of
from roofwatch.model.histogram import Histogram
from roofwatch.model.kinds import Kind
from roofwatch.model.record import Bound, Evidence, Signature, Vendor, Window
from roofwatch.model.roofline import l2_assisted

ROW_KEYS = (
    "kernel", "kind", "op", "phase", "module", "shapes", "dtypes", "device", "calls", "total_ns", "est_ns", "share",
    "mean_ns", "min_ns", "p50_ns", "p95_ns", "max_ns", "flops", "bytes", "intensity", "ridge", "bound", "evidence",
    "roof_fraction", "winnable_ns", "flops_max", "roof_fraction_max", "bound_range", "algbw", "busbw", "formula_bound",
    "l2_assisted", "roofed_share",
)  # fmt: skip


class Judged(Protocol):
    """Sums of a row's windows that agree on its bound: part of the row."""

    @property
    def total_ns(self) -> int:
        """Device time."""

    @property
    def roof_total_ns(self) -> float | None:
        """Roof time × calls, None where the roof is unknown."""


P = TypeVar("P", bound=Judged)


def leading(parts: Sequence[P]) -> P:
    """The part whose bound is the row's, when windows disagree: the larger one, of those that have a roof if any has.

    A device may have been measured between two windows of a row: its roof is then that of the later ones alone, and a
    bound beside a roof must be what the roof says.
    """
    return max(parts, key=lambda part: (part.roof_total_ns is not None, part.total_ns))


class StatSum(NamedTuple):
    """Sums of one signature on one device model under one bound and evidence, over any number of windows.

    No dataclass: of a fleet there are thousands in an answer, and a tuple is made in a tenth of the time.

    ``est_ns`` is the sum of total × weight, the weight of a device's window being represents ÷ span (1 where unknown).
    ``roof_total_ns`` is the sum of roof time × calls, None where the roof is unknown.
    """

    signature: Signature
    device: str
    calls: int
    total_ns: int
    est_ns: float
    min_ns: int
    max_ns: int
    bound: Bound
    evidence: Evidence
    roof_total_ns: float | None
    ridge: float | None
    histogram: Histogram | None = None
    formula_bound: Bound | None = None
    vendor: Vendor | None = None
    step_calls: int = 0  # the part launched inside the windows' steps
    step_ns: int = 0


def sums_of(window: Window) -> list[StatSum]:
    """The sums of one window."""
    sums = []
    for stat in window.kernels:
        device = window.devices[stat.device]
        sums.append(
            StatSum(
                signature=stat.signature,
                device=device.device.model,
                calls=stat.calls,
                total_ns=stat.total_ns,
                est_ns=estimated(stat.total_ns, weight_of(window, device)),
                min_ns=stat.min_ns,
                max_ns=stat.max_ns,
                bound=stat.bound,
                evidence=stat.evidence,
                roof_total_ns=None if stat.roof_ns is None else stat.roof_ns * stat.calls,
                ridge=stat.ridge,
                histogram=stat.histogram,
                formula_bound=stat.formula_bound,
                vendor=device.device.vendor,
                step_calls=stat.step_calls,
                step_ns=stat.step_ns,
            )
        )
    return sums


def rows(sums: Iterable[StatSum], limit: int = 0, whole: float | None = None) -> list[dict[str, Any]]:
    """Rows by estimated time, largest first; one a (signature, device model); ``limit`` 0 gives all.

    Shares are of the estimated time of all rows, also of those beyond the limit; ``whole`` is that time where the sums
    are not all there are.
    """
    groups: dict[tuple[int, str], list[StatSum]] = defaultdict(list)
    for s in sums:
        groups[s.signature.id, s.device].append(s)
    if whole is None:
        whole = sum(s.est_ns for parts in groups.values() for s in parts)
    ranked = sorted(groups.items(), key=lambda item: (-sum(s.est_ns for s in item[1]), item[0]))
    return [_row(parts, whole) for _, parts in (ranked[:limit] if limit else ranked)]


def _row(parts: Sequence[StatSum], whole: float) -> dict[str, Any]:
    signature, first = parts[0].signature, leading(parts)
    mean = ratio(sum(s.total_ns for s in parts), sum(s.calls for s in parts))
    roofed = [s for s in parts if s.roof_total_ns is not None]
    roof_time, roof_est = sum(s.total_ns for s in roofed), sum(s.est_ns for s in roofed)
    fraction = ratio(sum(s.roof_total_ns or 0.0 for s in roofed), roof_time) if roofed else None
    return {
        "kernel": signature.kernel,
        "kind": str(signature.kind),
        "op": signature.op,
        "phase": str(signature.phase),
        "module": signature.module,
        "shapes": None if signature.shapes is None else json.loads(signature.shapes),
        "dtypes": None if signature.dtypes is None else json.loads(signature.dtypes),
        "device": parts[0].device,
        **_times(parts, whole, mean),
        "flops": signature.flops,
        "bytes": signature.bytes,
        "intensity": None if signature.flops is None or not signature.bytes else signature.flops / signature.bytes,
        "ridge": first.ridge,
        "bound": str(first.bound),
        "evidence": str(first.evidence),
        "roof_fraction": fraction,
        "winnable_ns": _winnable(first.bound, roof_est, fraction),
        **_range(signature, first.ridge, fraction),
        **_bandwidths(signature, mean),
        "formula_bound": None if first.formula_bound is None else str(first.formula_bound),
        "l2_assisted": l2_assisted(first.vendor, signature.flops, signature.bytes, first.ridge, fraction),
        "roofed_share": ratio(roof_est, sum(s.est_ns for s in parts)),
    }


def _times(parts: Sequence[StatSum], whole: float, mean: float | None) -> dict[str, Any]:
    """Calls, the time they took, and how it is spread over single calls."""
    est = sum(s.est_ns for s in parts)
    low, high = min(s.min_ns for s in parts), max(s.max_ns for s in parts)
    histogram = Histogram.merged(s.histogram for s in parts if s.histogram is not None)
    return {
        "calls": sum(s.calls for s in parts),
        "total_ns": sum(s.total_ns for s in parts),
        "est_ns": round(est),
        "share": ratio(est, whole),
        "mean_ns": mean,
        "min_ns": low,
        "p50_ns": percentile(histogram, 0.50, low, high),
        "p95_ns": percentile(histogram, 0.95, low, high),
        "max_ns": high,
    }


def _winnable(bound: Bound, est: float, fraction: float | None) -> int | None:
    """Time above the roof; None where the roof is unknown, and of a host op, which has none: a view is not slow.

    ``est`` is of the part that has a roof: what the rest could win nobody knows.
    """
    return None if fraction is None or bound is Bound.HOST else round(est * max(0.0, 1.0 - fraction))


def _range(signature: Signature, ridge: float | None, fraction: float | None) -> dict[str, Any]:
    """What the upper end of a range of FLOPs means: null where the FLOPs are exact, or their verdict unknown.

    The roof fraction's denominator is the measured time, so it grows with the roof time max(FLOPs/π, bytes/β).
    """
    low, high, moved = signature.flops, signature.flops_max, signature.bytes
    if low is None or high is None or not moved or ridge is None or fraction is None:
        return {"flops_max": high, "roof_fraction_max": None, "bound_range": None}
    ends = [max(flops / moved / ridge, 1.0) for flops in (low, high)]  # roof time in units of the memory time
    bounds = [str(Bound.COMPUTE if flops / moved >= ridge else Bound.MEMORY) for flops in (low, high)]
    return {"flops_max": high, "roof_fraction_max": fraction * ends[1] / ends[0], "bound_range": bounds}


# Bus bandwidth ÷ algorithm bandwidth, by how many bytes the busiest rank of n must move at least for each byte of the
# message: nccl-tests, doc/PERFORMANCE.md, and of gather and scatter src/gather.cu and scatter.cu. One rank's own part
# never leaves it. Broadcast, reduce, send and receive move each byte once.
_BUS_FACTORS: Mapping[str, Callable[[int], float]] = {
    "all_reduce": lambda n: 2 * (n - 1) / n,
    "all_gather": lambda n: (n - 1) / n,
    "reduce_scatter": lambda n: (n - 1) / n,
    "all_to_all": lambda n: (n - 1) / n,
    "gather": lambda n: (n - 1) / n,
    "scatter": lambda n: (n - 1) / n,
    **dict.fromkeys(("broadcast", "reduce", "send", "recv"), lambda _: 1.0),
}


def _bandwidths(signature: Signature, mean_ns: float | None) -> dict[str, float | None]:
    """Bytes/s of a collective: of the message, and over the links; null where size or group are not told."""
    none: dict[str, float | None] = {"algbw": None, "busbw": None}
    if signature.kind is not Kind.COMM or not signature.bytes or not mean_ns or signature.arguments is None:
        return none
    told = json.loads(signature.arguments)
    name, size = told.get("collective"), told.get("group_size")
    algorithm = signature.bytes / mean_ns * 1e9
    if not name or not isinstance(size, int) or size < 1:
        return {"algbw": algorithm, "busbw": None}
    factor = _BUS_FACTORS.get(name)
    return {"algbw": algorithm, "busbw": None if factor is None else algorithm * factor(size)}


def percentile(histogram: Histogram, q: float, low: int, high: int) -> int | None:
    """A histogram's percentile in whole nanoseconds, held between the least and the greatest value seen."""
    value = histogram.percentile(q)
    return None if value is None else round(min(max(value, low), high))
