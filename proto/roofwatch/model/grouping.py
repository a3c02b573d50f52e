"""``top --by``: kernels merged by what they have in common, never over device models, and by stretches of time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from roofwatch.model.answer import ratio
from roofwatch.model.answer_rows import percentile
from roofwatch.model.histogram import Histogram

BY = ("kernel", "op", "kind", "module", "node", "device")
GROUP_KEYS = (
    "start_unix_ns", "kernel", "op", "kind", "module", "node", "device", "index", "uuid", "process", "signatures",
    "calls", "total_ns", "est_ns", "share", "mean_ns", "min_ns", "p50_ns", "p95_ns", "p99_ns", "max_ns", "bound",
    "bounds", "evidence", "evidences", "roof_fraction", "roofed_share", "winnable_ns", "kinds", "phases",
)  # fmt: skip
STRETCHES_MOST = 2000  # in one answer
_UNITS_S = {"d": 86_400, "h": 3600, "m": 60, "s": 1}

Shares = Mapping[StrEnum, float]  # what → estimated nanoseconds


def stretches(first: int, last: int, size: int) -> int:
    """In how many stretches of that size two times and what is between them lie; all in one unit."""
    return last // size - first // size + 1


def too_many(first_s: int, last_s: int, size_s: int) -> str:
    """What is wrong, and the shortest stretch of whole days, hours, minutes or seconds that works; "" if none is."""
    number = stretches(first_s, last_s, size_s)
    if number <= STRETCHES_MOST:
        return ""
    least = -(-(last_s - first_s) // STRETCHES_MOST)
    unit, whole = next((unit, whole) for unit, whole in _UNITS_S.items() if least >= whole)
    count = -(-least // whole)
    while stretches(first_s, last_s, count * whole) > STRETCHES_MOST:
        count += 1
    length, of = next((size_s // whole, unit) for unit, whole in _UNITS_S.items() if not size_s % whole)
    return (
        f"that is {number:,} stretches of {length:,} {of}, and at most {STRETCHES_MOST:,} are told at once: ask for "
        f"longer ones (--every {count}{unit} or more), or for less time (--since, --until)"
    )


@dataclass(frozen=True, slots=True)
class Place:
    """What a group is, besides its device model: None where it is of several, or has none."""

    kernel: str | None = None
    op: str | None = None
    module: str | None = None
    node: str | None = None
    index: int | None = None
    uuid: str | None = None
    process: str | None = None  # 16 hex digits; of a device that nothing but its process tells from its like


@dataclass(frozen=True, slots=True)
class GroupSum:
    """The sums of a group on one device model, of one stretch of time or of all.

    ``est_ns`` as in ``StatSum``. A *row* is a signature as ``top`` shows it: ``roofed_ns`` is the estimated time of
    those rows as far as they have a roof, ``attainable_ns`` of these the sum of estimated time × roof fraction,
    ``winnable_ns`` the sum of what each could win: a row above its roof takes nothing from what others could.
    """

    device: str
    signatures: int
    calls: int
    total_ns: int
    est_ns: float
    min_ns: int
    max_ns: int
    roofed_ns: float
    attainable_ns: float
    winnable_ns: float
    bounds: Shares = field(default_factory=dict)
    evidences: Shares = field(default_factory=dict)
    kinds: Shares = field(default_factory=dict)
    phases: Shares = field(default_factory=dict)
    histogram: Histogram = field(default_factory=Histogram)


def row(place: Place, found: GroupSum, whole: float, start_unix_ns: int | None = None) -> dict[str, Any]:
    """A group as a row of an answer; ``whole`` is the estimated time of all groups of the same stretch."""
    bounds, evidences, kinds, phases = (
        _shares(shares) for shares in (found.bounds, found.evidences, found.kinds, found.phases)
    )
    low, high, roofed = found.min_ns, found.max_ns, found.roofed_ns > 0
    return {
        "start_unix_ns": start_unix_ns,
        "kernel": place.kernel,
        "op": place.op,
        "kind": next(iter(kinds), None),
        "module": place.module,
        "node": place.node,
        "device": found.device,
        "index": place.index,
        "uuid": place.uuid,
        "process": place.process,
        "signatures": found.signatures,
        "calls": found.calls,
        "total_ns": found.total_ns,
        "est_ns": round(found.est_ns),
        "share": ratio(found.est_ns, whole),
        "mean_ns": ratio(found.total_ns, found.calls),
        "min_ns": low,
        "p50_ns": percentile(found.histogram, 0.50, low, high),
        "p95_ns": percentile(found.histogram, 0.95, low, high),
        "p99_ns": percentile(found.histogram, 0.99, low, high),
        "max_ns": high,
        "bound": next(iter(bounds), None),
        "bounds": bounds,
        "evidence": next(iter(evidences), None),
        "evidences": evidences,
        "roof_fraction": ratio(found.attainable_ns, found.roofed_ns) if roofed else None,
        "roofed_share": ratio(found.roofed_ns, found.est_ns),
        "winnable_ns": round(found.winnable_ns) if roofed else None,
        "kinds": kinds,
        "phases": phases,
    }


def _shares(parts: Shares) -> dict[str, float]:
    """Each part ÷ their sum, the largest first; of equal ones in alphabetical order."""
    whole = sum(parts.values())
    ranked = sorted(((str(name), part) for name, part in parts.items() if part > 0), key=lambda it: (-it[1], it[0]))
    return {name: part / whole for name, part in ranked}
