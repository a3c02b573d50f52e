"""The report: all that the sections of a page are drawn from, in one answer. Pure functions, for a store and a file.

The keys are documented in ``docs/answers.md``. What a page shows is bounded here: dots by number, texts by length.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import fsum
from typing import Any

from roofwatch.model import answer
from roofwatch.model.answer_rows import StatSum, rows, sums_of
from roofwatch.model.diagnosis import Key, standing, tally, verdict
from roofwatch.model.diagnosis_report import parts_of
from roofwatch.model.record import Bound, Vendor, Window
from roofwatch.model.roofline import exceeded
from roofwatch.model.timeline import BUSY_PARTS, TimelineSum, rows_of, sum_of

ROWS_MOST = 500  # of the table
DOTS_MOST = 2_000  # of the plot, those with most time: more are a smear, and a megabyte
DEVICES_MOST = 16  # bars, those that wait most
TEXT_MOST = 400  # characters of a name; a template's may have 64 k
ITEMS_MOST = 16  # of a list of shapes; a foreach op may have hundreds
BUCKETS_MOST = 96  # a quarter of an hour each for a day

_OUTSIDE = frozenset({Bound.COPY, Bound.COMMUNICATION})
_S = 1_000_000_000
_BUCKETS_S = (
    1, 5, 10, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10_800, 21_600, 43_200, 86_400, 172_800, 604_800,
    2_592_000, 31_536_000,
)  # fmt: skip

DOT_KEYS = (
    "kernel", "kind", "op", "phase", "shapes", "dtypes", "device", "calls", "est_ns", "share", "mean_ns", "flops",
    "bytes", "intensity", "ridge", "bound", "evidence", "roof_fraction", "winnable_ns", "flops_max", "bound_range",
    "formula_bound", "l2_assisted", "roofed_share",
)  # fmt: skip


@dataclass(slots=True)
class Moment:
    """The windows that began in one stretch of time, and where their devices' time went."""

    windows: int = 0
    time: TimelineSum = field(default_factory=TimelineSum)


@dataclass(frozen=True, slots=True)
class Moments:
    """Stretches of equal length by their start (Unix ns); windows whose time is unknown are only counted."""

    bucket_ns: int
    by_start: Mapping[int, Moment]
    windows_without_time: int = 0

    def as_json(self) -> dict[str, Any]:
        """The ``moments`` object."""
        return {
            "bucket_ns": self.bucket_ns,
            "windows_without_time": self.windows_without_time,
            "rows": [
                {
                    "start_unix_ns": start,
                    "windows": moment.windows,
                    "est_span_ns": round(moment.time.estimated.span_ns),
                    **{f"{part}_share": share for part, share in moment.time.shares().items()},
                }
                for start, moment in sorted(self.by_start.items())
            ],
        }


@dataclass(frozen=True, slots=True)
class Measured:
    """What a body is built from. ``sums`` need no histograms; ``spread`` are those of the table's rows, with them."""

    time: TimelineSum
    sums: Sequence[StatSum]
    spread: Sequence[StatSum]
    devices: Sequence[Mapping[str, Any]]  # with peaks, keys as in ``model.answer``
    by_device: Sequence[Mapping[str, Any]]  # rows of ``timeline``
    moments: Moments


def bucket_ns(length_ns: int) -> int:
    """The shortest round stretch of which at most ``BUCKETS_MOST`` cover a length of time."""
    # One more than fit, as the first and the last may be cut.
    fitting = (size for size in _BUCKETS_S if length_ns <= (BUCKETS_MOST - 1) * size * _S)
    return next(fitting, _BUCKETS_S[-1]) * _S


def table_rows(limit: int) -> int:
    """How many rows the table has: as many as asked for, within ``ROWS_MOST``."""
    return min(limit or ROWS_MOST, ROWS_MOST)


def body(measured: Measured, limit: int) -> dict[str, Any]:
    """All of a report's answer but ``query``, ``coverage``, ``cost``, ``ledger`` and ``subject``."""
    everything = rows(measured.sums)
    whole = fsum(s.est_ns for s in measured.sums)
    placed = [row for row in everything if row["flops"] and row["intensity"] and row["mean_ns"]]
    kinds = kinds_of(everything)
    return {
        "summary": measured.time.as_json(),
        "verdict": _verdict(measured),
        "where": where(measured.time, kinds),
        "kinds": kinds,
        "verdicts": verdicts(measured.sums),
        "devices": list(measured.devices),
        "by_device": clipped(measured.by_device[:DEVICES_MOST]),
        "moments": measured.moments.as_json(),
        "signatures": {
            "count": len(everything),
            "placed": len(placed),
            "placed_share": answer.ratio(fsum(row["est_ns"] for row in placed), whole),
            "dots": [clipped({key: row[key] for key in DOT_KEYS}) for row in placed[:DOTS_MOST]],
        },
        "rows": [clipped(row) for row in rows(measured.spread, table_rows(limit), whole)],
    }


def kinds_of(everything: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Compute time by kind, the largest first. Nothing is winnable where the roof is unknown or was exceeded."""
    groups: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for row in everything:
        if row["bound"] not in _OUTSIDE:
            groups[row["kind"]].append(row)
    whole = fsum(row["est_ns"] for group in groups.values() for row in group)
    found = [
        {
            "kind": kind,
            "signatures": len(group),
            "calls": sum(row["calls"] for row in group),
            "est_ns": sum(row["est_ns"] for row in group),
            "share": answer.ratio(fsum(row["est_ns"] for row in group), whole),
            "winnable_ns": _winnable(group),
        }
        for kind, group in groups.items()
    ]
    return sorted(found, key=lambda one: (-one["est_ns"], one["kind"]))


def _winnable(group: Iterable[Mapping[str, Any]]) -> int | None:
    """None where no row of the group has a roof."""
    known = [row for row in group if row["winnable_ns"] is not None]
    return sum(0 if exceeded(row["roof_fraction"]) else row["winnable_ns"] for row in known) if known else None


def where(time: TimelineSum, kinds: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The span in parts that add up to it: compute by kind, what is exposed, idle time by cause.

    Kernels that ran side by side share the compute time between them, in proportion to their device time.
    """
    shares = {part: share for part, share in time.shares().items() if share}
    span = time.estimated.span_ns
    compute = shares.pop("compute", 0.0)
    split = [(one["kind"], one["share"] or 0.0) for one in kinds] or [("other", 1.0)]
    found = [_part("busy", kind, compute * share, span) for kind, share in split if compute * share > 0]
    found += [_part("exposed", part, shares.pop(part), span) for part in BUSY_PARTS if part in shares]
    causes = {str(cause): c for cause, c in time.causes.items()}
    for cause, share in sorted(shares.items(), key=lambda item: -item[1]):
        c = causes[cause]
        evidence = {"count": c.count, "longest_ns": c.longest_ns, "example": clipped(c.example)}
        found.append(_part("idle", cause, share, span) | evidence)
    return found


def _part(group: str, part: str, share: float, span: float) -> dict[str, Any]:
    nothing = {"count": None, "longest_ns": None, "example": None}
    return {"group": group, "part": part, "share": share, "est_ns": round(share * span), **nothing}


def verdicts(sums: Iterable[StatSum]) -> list[dict[str, Any]]:
    """Device time by bound and evidence, the largest first: what the verdicts rest on."""
    found: dict[tuple[str, str], list[float]] = defaultdict(list)
    for s in sums:
        found[str(s.bound), str(s.evidence)].append(s.est_ns)
    whole = fsum(ns for group in found.values() for ns in group)
    ranked = sorted(found.items(), key=lambda item: (-fsum(item[1]), item[0]))
    return [
        {"bound": bound, "evidence": evidence, "est_ns": round(fsum(ns)), "share": answer.ratio(fsum(ns), whole)}
        for (bound, evidence), ns in ranked
    ]


def _verdict(measured: Measured) -> dict[str, Any]:
    """As ``diagnose`` says it."""
    groups: dict[Key, list[StatSum]] = defaultdict(list)
    for s in measured.sums:
        groups[s.signature.id, s.device].append(s)
    standings = [
        standing(key, parts_of(group), cpu=any(s.vendor is Vendor.CPU for s in group)) for key, group in groups.items()
    ]
    return verdict(measured.time, tally(standings)).as_json()


def clipped(value: Any) -> Any:
    """A JSON value whose texts are cut inside after ``TEXT_MOST`` characters and whose lists end early."""
    if isinstance(value, str):
        if len(value) <= TEXT_MOST:
            return value
        half = (TEXT_MOST - 1) // 2
        return f"{value[:half]}…{value[-half:]}"
    if isinstance(value, Mapping):
        return {key: clipped(one) for key, one in value.items()}
    if isinstance(value, Sequence):
        return [clipped(one) for one in value[:ITEMS_MOST]]
    return value


def of_window(window: Window, limit: int) -> dict[str, Any]:
    """The report of one window; it has no moments, as it is one itself."""
    sums = sums_of(window)
    measured = Measured(
        time=sum_of(window),
        sums=sums,
        spread=sums,
        devices=[answer.device_json(d.device) for d in window.devices],
        by_device=rows_of([window], "device"),
        moments=Moments(bucket_ns(0), {}),
    )
    ledger, started = window.ledger, window.start_unix_ns
    return {
        **body(measured, limit),
        "ledger": {
            "events_read": ledger.events_read,
            "padding_batches": 0 if window.padding is None else window.padding.batches,
        },
        "subject": {
            "nodes": [],
            "processes": 1,
            "models": [window.process.model] if window.process.model else [],
            "jobs": [window.process.job] if window.process.job else [],
            "versions": {component: [version] for component, version in sorted(window.process.versions.items())},
            "first_unix_ns": started or None,
            "last_unix_ns": started + window.duration_ns if started else None,
        },
    }
