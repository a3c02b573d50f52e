"""The diagnosis: what to work on first, and which kernels would be worth it. Pure functions, for a store and a file.

Two sides are weighed as shares of the span without start-up. The system's: idle time by cause, copies and
communication that no compute runs beside, and on a CPU the dispatch of ops. The kernels': the rest, and of it the time
that reaching the roof would win back.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import fsum
from typing import Any

from roofwatch.model.answer_rows import leading
from roofwatch.model.record import Bound, Cause
from roofwatch.model.roofline import exceeded
from roofwatch.model.timeline import TimelineSum

Key = tuple[int, str]  # signature, device model: what a row of an answer is

KERNELS = "kernels"
DISPATCH = "dispatch"  # on a CPU: an op's time beside its work
# Idle time and exposed work of the same sort have the same remedy, so they are one thing to work on.
EXPOSED = {Cause.COPY: "exposed_copy", Cause.COMMUNICATION: "exposed_communication"}


@dataclass(frozen=True, slots=True)
class Part:
    """Sums of a row under one bound; ``roof_total_ns`` is roof time × calls, None where the roof is unknown."""

    bound: Bound
    total_ns: int
    est_ns: float
    roof_total_ns: float | None


@dataclass(frozen=True, slots=True)
class Standing:
    """How far one row is from its roof; ``cpu``: it ran on a CPU, where an op's time includes its dispatch.

    ``roofless_ns`` is the part of its time of which no roof is known, though of the rest one is.
    """

    key: Key
    est_ns: float
    bound: Bound
    fraction: float | None
    cpu: bool = False
    roofless_ns: float = 0.0

    @property
    def outside(self) -> bool:
        """Copies and communication have no roof of the device's, and the timeline tells when they are in the way."""
        return self.bound in {Bound.COMMUNICATION, Bound.COPY}

    @property
    def judged(self) -> bool:
        """Whether it is known what reaching the roof would win."""
        return not self.outside and self.bound is not Bound.HOST and self.fraction is not None

    @property
    def winnable_ns(self) -> float:
        """Time above the roof; 0 where it is unknown, and where the model is exceeded, so that nothing is promised.

        Only of the part that has a roof.
        """
        if not self.judged or self.fraction is None or exceeded(self.fraction):
            return 0.0
        return (self.est_ns - self.roofless_ns) * max(0.0, 1.0 - self.fraction)

    @property
    def unknown_ns(self) -> float:
        """Time of which nobody knows what reaching the roof would win."""
        if self.outside or self.bound is Bound.HOST:
            return 0.0
        return self.roofless_ns if self.judged else self.est_ns

    @property
    def overhead_ns(self) -> float:
        """On a CPU, time that is no kernel's: of ops without work of their own, and above the roof of tiny ones.

        A CPU op below 10 µs and below 30 % of its roof (latency bound) spends the rest in the framework's dispatch.
        """
        if not self.cpu:
            return 0.0
        if self.bound is Bound.HOST:
            return self.est_ns
        return self.winnable_ns if self.bound is Bound.LATENCY else 0.0


def standing(key: Key, parts: Sequence[Part], *, cpu: bool) -> Standing:
    """The row of some parts, with the bound of the leading one as in ``model.answer_rows``."""
    roofed = [p for p in parts if p.roof_total_ns is not None]
    measured = sum(p.total_ns for p in roofed)
    reached = sum(p.roof_total_ns or 0.0 for p in roofed)
    return Standing(
        key=key,
        est_ns=sum(p.est_ns for p in parts),
        bound=leading(parts).bound,
        fraction=reached / measured if measured else None,
        cpu=cpu,
        roofless_ns=sum(p.est_ns for p in parts if p.roof_total_ns is None) if measured else 0.0,
    )


@dataclass(frozen=True, slots=True)
class Tally:
    """Device time of all rows: of kernels (without copies and communication), and what of it is what."""

    kernels_ns: float
    winnable_ns: float
    unknown_ns: float
    overhead_ns: float
    overhead_winnable_ns: float

    @property
    def judged(self) -> bool:
        """Whether anything is known of what reaching the roof would win."""
        return self.unknown_ns + self.overhead_ns < self.kernels_ns


def tally(standings: Iterable[Standing]) -> Tally:
    """The sums over all rows."""
    inside = [s for s in standings if not s.outside]
    # fsum: the same whatever the order of the rows, so that a file and a store cannot differ in the last digit.
    return Tally(
        kernels_ns=fsum(s.est_ns for s in inside),
        winnable_ns=fsum(s.winnable_ns for s in inside),
        unknown_ns=fsum(s.unknown_ns for s in inside),
        overhead_ns=fsum(s.overhead_ns for s in inside),
        overhead_winnable_ns=fsum(s.overhead_ns for s in inside if s.bound is Bound.LATENCY),
    )


@dataclass(frozen=True, slots=True)
class Verdict:
    """What to work on first. Shares are of the span without start-up, None where there is none.

    ``startup_share`` is of the whole span; ``winnable_share`` None where of no kernel it is known.
    """

    first_cause: str | None  # a cause of idle time, "dispatch", "kernels", or None where there was no time
    share: float | None
    stop_kernels: bool
    system_share: float | None
    kernels_share: float | None
    winnable_share: float | None
    unknown_roof_share: float | None
    op_overhead_share: float | None
    startup_share: float | None
    causes: Mapping[str, float]  # what there is to work on in the system, largest first

    def as_json(self) -> dict[str, Any]:
        """The ``verdict`` object."""
        names = (
            "first_cause", "share", "stop_kernels", "system_share", "kernels_share", "winnable_share",
            "unknown_roof_share", "op_overhead_share", "startup_share",
        )  # fmt: skip
        return {name: getattr(self, name) for name in names}


def share_of_ns(time: TimelineSum, sums: Tally) -> float:
    """What share of the span without start-up a nanosecond of the kernels is.

    Kernels that ran at the same time share the compute time between them; none counts for more than it took.
    """
    compute, span = time.estimated.parts()["compute"], time.steady().estimated.span_ns
    return compute / span / max(compute, sums.kernels_ns) if compute > 0 and span > 0 else 0.0


def verdict(time: TimelineSum, sums: Tally) -> Verdict:
    """The verdict of a timeline and the kernels in it. Start-up is told, and left out of everything else.

    ``stop_kernels``: the system takes more of the span than the kernels. The first thing to work on is the system's
    largest part where the system takes more than kernels could win, of which a kernel that has no known roof might win
    all its time; else the kernels. Both are upper bounds: a roof is rarely reached, and idle time rarely goes at all.
    """
    shares = {part: share for part, share in time.steady().shares().items() if share is not None}
    if not shares:
        return Verdict(None, None, False, None, None, None, None, None, time.startup_share, {})
    compute = shares["compute"]
    scale = share_of_ns(time, sums)
    overhead = sums.overhead_ns * scale
    causes = {str(cause): shares[str(cause)] + shares.get(EXPOSED.get(cause, ""), 0.0) for cause in Cause}
    causes[DISPATCH] = overhead
    ranked = sorted(((cause, share) for cause, share in causes.items() if share > 0), key=lambda item: -item[1])
    kernels = compute - overhead
    system = 1.0 - kernels
    winnable = (sums.winnable_ns - sums.overhead_winnable_ns) * scale
    unknown = sums.unknown_ns * scale
    stop = system > kernels
    first, share = KERNELS, kernels
    if ranked and (stop or system > winnable + unknown):
        first, share = ranked[0]
    known = winnable if sums.judged or not sums.kernels_ns else None
    return Verdict(first, share, stop, system, kernels, known, unknown, overhead, time.startup_share, dict(ranked))


def worth_touching(standings: Iterable[Standing], limit: int = 0) -> list[Standing]:
    """Rows with something to win, most of it first: not by raw time. Ops that are only dispatch are not among them."""
    ranked = sorted(
        (s for s in standings if s.winnable_ns > 0 and not s.overhead_ns), key=lambda s: (-s.winnable_ns, s.key)
    )
    return ranked[:limit] if limit else ranked


def cannot_say(standings: Iterable[Standing], limit: int = 0) -> list[Standing]:
    """Rows whose roof is unknown, most time first: what they could win nobody knows, so they have no rank."""
    ranked = sorted(
        (s for s in standings if not s.outside and not s.judged and s.bound is not Bound.HOST),
        key=lambda s: (-s.est_ns, s.key),
    )
    return ranked[:limit] if limit else ranked
