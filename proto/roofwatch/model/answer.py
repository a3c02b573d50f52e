"""Answers: the JSON object of the reading commands, built from sums, from a store and from a file alike.

The keys are documented in ``docs/answers.md``; ``model.answer_rows`` builds the rows of kernels. Rows over several
windows are recomputed from sums, never averaged, and never merged across device models.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from roofwatch.model.record import Cause, Device, DeviceWindow, IdleCause, Window

SCHEMA_VERSION = 1
COST_STEPS_LEAST = 10  # inside windows: with fewer a slow step of the job's own is taken for what profiling costs
SOURCES = ("daily", "hourly", "raw")  # of an answer from a store, the coarsest first


@dataclass(slots=True)
class MfuSum:
    """Model FLOPs utilisation over windows: one rule for a window, a process, a node, a filter and a file.

    The time that the model's FLOPs need at the peak of their precision ÷ span, windows weighted by the time that they
    stand for (``weight_of``). A window whose model kernels have no known FLOPs (recorded without shapes) says nothing
    and is left out; one without any model kernel counts as 0.
    """

    peak_ns: float = 0.0  # weighted, as is…
    span_ns: float = 0.0  # …the span
    model_ns: int = 0  # device time of the model's kernels…
    known_ns: int = 0  # …and of those with known FLOPs
    left_out_ns: int = 0  # the same of the windows that are left out

    def add(self, window: Window) -> None:
        """Count one window."""
        ledger, span = window.ledger, window.span_ns
        if ledger.model_ns and not ledger.model_known_ns:
            self.left_out_ns += ledger.model_ns
        elif span > 0:
            est = sum(estimated(device.span_ns, weight_of(window, device)) for device in window.devices)
            self.peak_ns += estimated(ledger.model_peak_ns, est / span)
            self.span_ns += est
            self.model_ns += ledger.model_ns
            self.known_ns += ledger.model_known_ns

    def as_json(self) -> dict[str, float | None]:
        """MFU (null where no FLOPs are known) and the known share: below 1 the MFU is a lower bound."""
        known = ratio(self.known_ns, self.model_ns)
        return {
            "mfu": self.peak_ns / self.span_ns if self.known_ns and self.span_ns else None,
            "mfu_known_share": 0.0 if known is None and self.left_out_ns else known,
        }


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
    model_known_ns: int = 0
    model_flops: int = 0
    mfu: MfuSum = field(default_factory=MfuSum)
    compared_ns: int = 0
    disagreed_ns: int = 0
    layout_ns: int = 0
    layout_of_ns: int = 0  # compute time of the windows whose layout tax is known
    graph_ns: int = 0
    graph_attributed_ns: int = 0
    sampled_ns: int = 0  # duration of the windows that represent a known time…
    represented_ns: int = 0  # …and that time
    dropped: dict[str, int] = field(default_factory=dict)
    sources: dict[str, int] = field(default_factory=dict)  # windows, by what told of them (``SOURCES``)
    left_out: list[tuple[int, int]] = field(default_factory=list)  # times (Unix ns) of which too little is kept
    by_window: bool = False  # the rows are of single windows, so they come from those and from no sums

    def add(self, window: Window) -> None:
        """Count one window."""
        ledger = window.ledger
        self.windows += 1
        self.sources["raw"] = self.windows
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
        self.model_known_ns += ledger.model_known_ns
        self.model_flops += ledger.model_flops
        self.mfu.add(window)
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
        source = next((name for name in SOURCES if name in self.sources), None)
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
            **self.mfu.as_json(),
            "disagree_share": ratio(self.disagreed_ns, self.compared_ns),
            "layout_ns": self.layout_ns if self.layout_of_ns else None,
            "layout_share": ratio(self.layout_ns, self.layout_of_ns),
            "dropped": dict(sorted(self.dropped.items())),
            "source": source,
            "sources": self.sources,
            "rows_source": "raw" if self.by_window else source,
            "left_out": [{"since_unix_ns": since, "until_unix_ns": until} for since, until in self.left_out],
        }


def ratio(part: float, whole: float) -> float | None:
    """Part ÷ whole, None where there is no whole."""
    return part / whole if whole else None


def cost_share(told: Mapping[str, Any] | None) -> float | None:
    """What profiling cost: 0 where that is nothing but noise, None where it is not known. One rule for every answer.

    ``told`` has ``share, lost_ns, steps, noise_ns``. It is known from ``COST_STEPS_LEAST`` steps inside windows on, and
    noise below zero and within two deviations. A store of an earlier version tells neither steps nor deviation.
    """
    if not told or told["share"] is None:
        return None
    steps, noise = told.get("steps", COST_STEPS_LEAST), told.get("noise_ns")
    if (steps or 0) < COST_STEPS_LEAST:
        return None
    return 0.0 if told["share"] < 0 or (noise is not None and told["lost_ns"] < 2 * noise) else float(told["share"])


def weight_of(window: Window, device: DeviceWindow) -> float:
    """How much time a device's sampled nanosecond stands for: represents ÷ span, 1 where unknown."""
    if not window.represents_ns or device.span_ns <= 0:
        return 1.0
    return window.represents_ns / device.span_ns


def estimated(ns: int, weight: float) -> int:
    """What sampled nanoseconds stand for, in whole ones, halves up: so that sums are the same in any order."""
    return math.floor(ns * weight + 0.5)


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
