"""Answers: the JSON object of the reading commands, built from sums, from a store and from a file alike.

The keys are documented in ``docs/answers.md``. Rows over several windows are recomputed from sums, never averaged, and
never merged across device models.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from roofwatch.model.histogram import Histogram
from roofwatch.model.kinds import Kind
from roofwatch.model.record import Bound, Cause, Device, DeviceWindow, Evidence, IdleCause, Signature, Vendor, Window
from roofwatch.model.roofline import l2_assisted

SCHEMA_VERSION = 1

ROW_KEYS = (
    "kernel", "kind", "op", "phase", "module", "shapes", "dtypes", "device", "calls", "total_ns", "est_ns", "share",
    "mean_ns", "min_ns", "p50_ns", "p95_ns", "max_ns", "flops", "bytes", "intensity", "ridge", "bound", "evidence",
    "roof_fraction", "winnable_ns", "flops_max", "roof_fraction_max", "bound_range", "algbw", "busbw", "formula_bound",
    "l2_assisted",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class StatSum:
    """Sums of one signature on one device model under one bound and evidence, over any number of windows.

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


@dataclass(slots=True)
class CoverageSum:
    """Ledger sums over windows."""

    windows: int = 0
    device_records: int = 0
    device_time_ns: int = 0
    busy_ns: int = 0
    span_ns: int = 0
    host_device_time_ns: int = 0  # device time of the windows that have host events
    linked_ns: int = 0
    backlog_ns: int = 0
    classifiable_ns: int = 0
    classified_ns: int = 0
    named_ns: int = 0
    model_ns: int = 0
    model_known_ns: int = 0
    model_flops: int = 0
    model_peak_ns: int = 0
    compared_ns: int = 0
    disagreed_ns: int = 0
    layout_ns: int = 0
    layout_of_ns: int = 0  # compute time of the windows whose layout tax is known
    graph_ns: int = 0
    graph_attributed_ns: int = 0
    sampled_ns: int = 0  # duration of the windows that represent a known time…
    represented_ns: int = 0  # …and that time
    dropped: dict[str, int] = field(default_factory=dict)

    def add(self, window: Window) -> None:
        """Count one window."""
        ledger = window.ledger
        self.windows += 1
        self.device_records += ledger.device_records
        self.device_time_ns += ledger.device_time_ns
        self.busy_ns += window.busy_ns
        self.span_ns += window.span_ns
        if ledger.has_host_events:
            self.host_device_time_ns += ledger.device_time_ns
            self.linked_ns += ledger.linked_ns
        self.backlog_ns += ledger.backlog_ns
        self.classifiable_ns += ledger.classifiable_ns
        self.classified_ns += ledger.classified_ns
        self.named_ns += ledger.named_ns
        self.model_ns += ledger.model_ns
        self.model_known_ns += ledger.model_known_ns
        self.model_flops += ledger.model_flops
        self.model_peak_ns += ledger.model_peak_ns
        self.compared_ns += ledger.compared_ns
        self.disagreed_ns += ledger.disagreed_ns
        if ledger.layout_ns is not None:
            self.layout_ns += ledger.layout_ns
            self.layout_of_ns += ledger.classifiable_ns
        self.graph_ns += sum(graph.total_ns for graph in window.graphs)
        self.graph_attributed_ns += sum(graph.attributed_ns for graph in window.graphs)
        if window.represents_ns:
            self.sampled_ns += window.duration_ns
            self.represented_ns += window.represents_ns
        for reason, count in ledger.dropped.items():
            self.dropped[reason] = self.dropped.get(reason, 0) + count

    def as_json(self) -> dict[str, Any]:
        """The ``coverage`` object."""
        return {
            "windows": self.windows,
            "device_records": self.device_records,
            "device_time_ns": self.device_time_ns,
            "busy_ns": self.busy_ns,
            "span_ns": self.span_ns,
            "linked_share": ratio(self.linked_ns, self.host_device_time_ns),
            "backlog_share": ratio(self.backlog_ns, self.device_time_ns),
            "classified_share": ratio(self.classified_ns, self.classifiable_ns),
            "named_share": ratio(self.named_ns, self.classifiable_ns),
            "sampled_share": ratio(self.sampled_ns, self.represented_ns),
            "graph_share": ratio(self.graph_ns, self.device_time_ns),
            "graph_attributed_share": ratio(self.graph_attributed_ns, self.graph_ns),
            "model_flops": self.model_flops if self.model_known_ns else None,
            "mfu": mfu(self.model_peak_ns, self.model_known_ns, self.span_ns),
            "mfu_known_share": ratio(self.model_known_ns, self.model_ns),
            "disagree_share": ratio(self.disagreed_ns, self.compared_ns),
            "layout_ns": self.layout_ns if self.layout_of_ns else None,
            "layout_share": ratio(self.layout_ns, self.layout_of_ns),
            "dropped": dict(sorted(self.dropped.items())),
        }


def ratio(part: float, whole: float) -> float | None:
    """Part ÷ whole, None where there is no whole."""
    return part / whole if whole else None


def mfu(model_peak_ns: float, model_known_ns: int, span_ns: float) -> float | None:
    """Model FLOPs utilisation: the time that the model's FLOPs need at the peak of their precision ÷ span.

    None where no FLOPs are known. A lower bound where part of the model's kernels have none (``mfu_known_share``).
    """
    return model_peak_ns / span_ns if model_known_ns and span_ns else None


def weight_of(window: Window, device: DeviceWindow) -> float:
    """How much time a device's sampled nanosecond stands for: represents ÷ span, 1 where unknown."""
    if not window.represents_ns or device.span_ns <= 0:
        return 1.0
    return window.represents_ns / device.span_ns


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
                est_ns=stat.total_ns * weight_of(window, device),
                min_ns=stat.min_ns,
                max_ns=stat.max_ns,
                bound=stat.bound,
                evidence=stat.evidence,
                roof_total_ns=None if stat.roof_ns is None else stat.roof_ns * stat.calls,
                ridge=stat.ridge,
                histogram=stat.histogram,
                formula_bound=stat.formula_bound,
                vendor=device.device.vendor,
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
    signature = parts[0].signature
    leading = max(parts, key=lambda s: s.total_ns)  # bound and evidence of the larger part, when windows disagree
    calls = sum(s.calls for s in parts)
    total = sum(s.total_ns for s in parts)
    est = sum(s.est_ns for s in parts)
    roofed = [s for s in parts if s.roof_total_ns is not None]
    roof_time = sum(s.total_ns for s in roofed)
    histogram = Histogram.merged(s.histogram for s in parts if s.histogram is not None)
    low, high = min(s.min_ns for s in parts), max(s.max_ns for s in parts)
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
        "calls": calls,
        "total_ns": total,
        "est_ns": round(est),
        "share": ratio(est, whole),
        "mean_ns": ratio(total, calls),
        "min_ns": low,
        "p50_ns": _percentile(histogram, 0.50, low, high),
        "p95_ns": _percentile(histogram, 0.95, low, high),
        "max_ns": high,
        "flops": signature.flops,
        "bytes": signature.bytes,
        "intensity": None if signature.flops is None or not signature.bytes else signature.flops / signature.bytes,
        "ridge": leading.ridge,
        "bound": str(leading.bound),
        "evidence": str(leading.evidence),
        "roof_fraction": fraction,
        "winnable_ns": _winnable(leading.bound, est, fraction),
        **_range(signature, leading.ridge, fraction),
        **_bandwidths(signature, ratio(total, calls)),
        "formula_bound": None if leading.formula_bound is None else str(leading.formula_bound),
        "l2_assisted": l2_assisted(leading.vendor, signature.flops, signature.bytes, leading.ridge, fraction),
    }


def _winnable(bound: Bound, est: float, fraction: float | None) -> int | None:
    """Time above the roof; None where the roof is unknown, and of a host op, which has none: a view is not slow."""
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


# Bus bandwidth ÷ algorithm bandwidth, by how many bytes a rank of n must send at least for each byte of the message:
# nccl-tests, doc/PERFORMANCE.md. Others move each byte once.
_BUS_FACTORS: Mapping[str, Callable[[int], float]] = {
    "all_reduce": lambda n: 2 * (n - 1) / n,
    "all_gather": lambda n: (n - 1) / n,
    "reduce_scatter": lambda n: (n - 1) / n,
    "all_to_all": lambda n: (n - 1) / n,
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
    return {"algbw": algorithm, "busbw": algorithm if factor is None else algorithm * factor(size)}


def _percentile(histogram: Histogram, q: float, low: int, high: int) -> int | None:
    """A histogram's percentile in whole nanoseconds, held between the least and the greatest value seen."""
    value = histogram.percentile(q)
    return None if value is None else round(min(max(value, low), high))


def timeline(devices: Sequence[DeviceWindow]) -> dict[str, Any]:
    """Busy and idle time with its causes, summed over devices and for each."""
    causes = [cause for device in devices for cause in device.causes]
    return {
        "busy_ns": sum(d.busy_ns for d in devices),
        "idle_ns": sum(d.idle_ns for d in devices),
        "causes": _causes(causes),
        "devices": [
            {
                "model": d.device.model,
                "index": d.device.index,
                "span_ns": d.span_ns,
                "busy_ns": d.busy_ns,
                "idle_ns": d.idle_ns,
                "causes": _causes(d.causes),
                "exposed_copy_ns": d.exposed_copy_ns,
                "exposed_communication_ns": d.exposed_communication_ns,
            }
            for d in devices
        ],
    }


def _causes(causes: Iterable[IdleCause]) -> dict[str, dict[str, Any]]:
    merged: dict[Cause, dict[str, Any]] = {}
    for c in causes:
        entry = merged.setdefault(c.cause, {"total_ns": 0, "count": 0, "longest_ns": 0, "example": None})
        entry["total_ns"] += c.total_ns
        entry["count"] += c.count
        if c.longest_ns > entry["longest_ns"]:
            entry["longest_ns"], entry["example"] = c.longest_ns, c.example
    return {str(cause): merged[cause] for cause in sorted(merged, key=lambda c: -merged[c]["total_ns"])}


def graphs_json(window: Window) -> list[dict[str, Any]]:
    """The graphs of a window, most device time first."""
    return [
        {
            "graph": g.name,
            "device": window.devices[g.device].device.model,
            "launches": g.launches,
            "records": g.records,
            "total_ns": g.total_ns,
            "attributed_ns": g.attributed_ns,
            "attributed_share": ratio(g.attributed_ns, g.total_ns),
            "source": g.source,
            "confidence": g.confidence,
        }
        for g in sorted(window.graphs, key=lambda g: -g.total_ns)
    ]


def device_json(device: Device) -> dict[str, Any]:
    """A device with its peaks; keys of ``peaks.flops`` are "precision/unit"."""
    bandwidth = device.peaks.bandwidth
    return {
        "vendor": str(device.vendor),
        "model": device.model,
        "uuid": device.uuid,
        "index": device.index,
        "units": device.units,
        "memory_bytes": device.memory_bytes,
        "inferred": device.inferred,
        "peaks": {
            "flops": {
                f"{precision}/{unit}": {"value": peak.value, "source": peak.source}
                for (precision, unit), peak in sorted(device.peaks.flops.items())
            },
            "bandwidth": None if bandwidth is None else {"value": bandwidth.value, "source": bandwidth.source},
        },
    }


def answer(
    query: Mapping[str, Any], coverage: CoverageSum, result: Sequence[Mapping[str, Any]], **more: object
) -> dict[str, Any]:
    """The whole object."""
    return {
        "schema_version": SCHEMA_VERSION,
        "query": dict(query),
        "coverage": coverage.as_json(),
        **more,
        "rows": list(result),
    }
