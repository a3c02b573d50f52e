"""A timeline as sums: where the span of devices went, over any number of devices and windows, with each part's share.

The parts are the busy time (compute, and copies and communication with no compute beside them) and the idle time by
cause; they add up to the span exactly. The keys are documented in ``docs/answers.md``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from roofwatch.model.answer import estimated, ratio, weight_of
from roofwatch.model.record import Cause, DeviceWindow, IdleCause, Window

BUSY_PARTS = ("compute", "exposed_copy", "exposed_communication")
# The idle cause of copies and that of communication have the names of kinds of work, too: here they say "waiting".
PARTS = (*BUSY_PARTS, *(str(cause) for cause in Cause))

SUM_KEYS = (
    "span_ns", "busy_ns", "idle_ns", "est_span_ns", *(f"{part}_ns" for part in PARTS),
    *(f"{part}_share" for part in PARTS), "startup_ns", "startup_share", "causes",
)  # fmt: skip
ROW_KEYS = (
    "node", "process", "pid", "model", "window", "start_unix_ns", "first_step", "steps", "windows", "device", "index",
    *SUM_KEYS,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Startup:
    """The part of a cause that is start-up, and the longest stretch and example of what is left without it."""

    total_ns: int
    est_ns: float
    count: int
    steady_longest_ns: int
    steady_example: str | None

    def plus(self, other: Startup) -> Startup:
        """Both."""
        longer = max(self, other, key=lambda one: one.steady_longest_ns)
        return Startup(
            self.total_ns + other.total_ns,
            self.est_ns + other.est_ns,
            self.count + other.count,
            longer.steady_longest_ns,
            longer.steady_example,
        )


def _startup_of(c: IdleCause, weight: float) -> Startup | None:
    if not c.startup_count:
        return None
    longest = c.longest_ns if c.steady_longest_ns is None else c.steady_longest_ns
    return Startup(c.startup_ns, estimated(c.startup_ns, weight), c.startup_count, longest, c.steady_example)


@dataclass(slots=True)
class CauseSum:
    """One cause over devices and windows; ``est_ns`` is the sum of total × weight, the example is of the longest."""

    total_ns: int = 0
    est_ns: float = 0.0
    count: int = 0
    longest_ns: int = 0
    example: str | None = None
    startup: Startup | None = None

    def add(
        self,
        total_ns: int,
        est_ns: float,
        count: int,
        longest_ns: int,
        example: str | None,
        startup: Startup | None = None,
    ) -> None:
        """Count one device's cause, or a sum of some."""
        mine = self.startup or Startup(0, 0.0, 0, self.longest_ns, self.example)
        if startup is not None or self.startup is not None:
            self.startup = mine.plus(startup or Startup(0, 0.0, 0, longest_ns, example))
        self.total_ns += total_ns
        self.est_ns += est_ns
        self.count += count
        if longest_ns > self.longest_ns or self.example is None:
            self.longest_ns, self.example = max(longest_ns, self.longest_ns), example

    def steady(self) -> CauseSum:
        """What is left of it without start-up."""
        s = self.startup
        if s is None:
            return self
        left = self.total_ns - s.total_ns, self.est_ns - s.est_ns, self.count - s.count
        return CauseSum(*left, s.steady_longest_ns, s.steady_example)


@dataclass(slots=True)
class Busy:
    """Span, busy and exposed times, either as sampled or × weight."""

    span_ns: float = 0
    busy_ns: float = 0
    exposed_copy_ns: float = 0
    exposed_communication_ns: float = 0

    def add(self, span: float, busy: float, copy: float, communication: float) -> None:
        """Count one device of one window, or a sum of some."""
        self.span_ns += span
        self.busy_ns += busy
        self.exposed_copy_ns += copy
        self.exposed_communication_ns += communication

    def parts(self) -> dict[str, float]:
        """The busy parts. A copy beside a collective is exposed in both: it counts once, as communication."""
        communication = min(self.exposed_communication_ns, self.busy_ns)
        copy = min(self.exposed_copy_ns, self.busy_ns - communication)
        return {
            "compute": self.busy_ns - communication - copy,
            "exposed_copy": copy,
            "exposed_communication": communication,
        }


@dataclass(slots=True)
class TimelineSum:
    """Where the time of devices went. ``sampled`` in whole nanoseconds, ``estimated`` over what windows stand for."""

    sampled: Busy = field(default_factory=Busy)
    estimated: Busy = field(default_factory=Busy)
    causes: dict[Cause, CauseSum] = field(default_factory=dict)

    def add(self, device: DeviceWindow, weight: float) -> None:
        """Count a device of a window, each of whose nanoseconds stands for ``weight`` of them."""
        figures = (device.span_ns, device.busy_ns, device.exposed_copy_ns, device.exposed_communication_ns)
        self.sampled.add(*figures)
        self.estimated.add(*(estimated(figure, weight) for figure in figures))
        for c in device.causes:
            figures_of = (c.total_ns, estimated(c.total_ns, weight), c.count, c.longest_ns, c.example)
            self.cause(c.cause).add(*figures_of, _startup_of(c, weight))

    def merge(self, other: TimelineSum) -> None:
        """Count what another sum counts."""
        for mine, theirs in ((self.sampled, other.sampled), (self.estimated, other.estimated)):
            mine.add(theirs.span_ns, theirs.busy_ns, theirs.exposed_copy_ns, theirs.exposed_communication_ns)
        for cause, c in other.causes.items():
            self.cause(cause).add(c.total_ns, c.est_ns, c.count, c.longest_ns, c.example, c.startup)

    @property
    def startup_ns(self) -> int:
        """Idle time that is start-up, sampled."""
        return sum(c.startup.total_ns for c in self.causes.values() if c.startup is not None)

    @property
    def startup_share(self) -> float | None:
        """The same ÷ span, weighted by what windows stand for."""
        parts = (c.startup.est_ns for c in self.causes.values() if c.startup is not None)
        return ratio(sum(parts), self.estimated.span_ns)

    def steady(self) -> TimelineSum:
        """The timeline without start-up: span and idle time are that much shorter."""
        found = TimelineSum()
        found.merge(self)
        found.sampled.span_ns -= self.startup_ns
        found.estimated.span_ns -= sum(c.startup.est_ns for c in self.causes.values() if c.startup is not None)
        found.causes = {cause: left for cause, c in self.causes.items() if (left := c.steady()).count or not c.startup}
        return found

    def cause(self, cause: Cause) -> CauseSum:
        """The sum of a cause, to add to."""
        return self.causes.setdefault(cause, CauseSum())

    def parts(self) -> dict[str, int]:
        """Sampled nanoseconds of every part, 0 where it was not met."""
        found = {part: round(ns) for part, ns in self.sampled.parts().items()}
        return found | {str(c): self.causes[c].total_ns if c in self.causes else 0 for c in Cause}

    def shares(self) -> dict[str, float | None]:
        """Every part ÷ span, weighted by what windows stand for; None where there is no span."""
        parts = self.estimated.parts() | {str(c): self.causes[c].est_ns if c in self.causes else 0.0 for c in Cause}
        return {part: ratio(ns, self.estimated.span_ns) for part, ns in parts.items()}

    def as_json(self) -> dict[str, Any]:
        """The keys of ``SUM_KEYS``; causes with most estimated time first."""
        span, busy = round(self.sampled.span_ns), round(self.sampled.busy_ns)
        ranked = sorted(self.causes.items(), key=lambda item: (-item[1].est_ns, item[0]))
        return {
            "span_ns": span,
            "busy_ns": busy,
            "idle_ns": span - busy,
            "est_span_ns": round(self.estimated.span_ns),
            **{f"{part}_ns": ns for part, ns in self.parts().items()},
            **{f"{part}_share": share for part, share in self.shares().items()},
            "startup_ns": self.startup_ns,
            "startup_share": self.startup_share,
            "causes": {
                str(cause): {
                    "total_ns": c.total_ns,
                    "est_ns": round(c.est_ns),
                    "share": ratio(c.est_ns, self.estimated.span_ns),
                    "count": c.count,
                    "longest_ns": c.longest_ns,
                    "example": c.example,
                }
                for cause, c in ranked
            },
        }


def sum_of(window: Window) -> TimelineSum:
    """All devices of a window."""
    found = TimelineSum()
    for device in window.devices:
        found.add(device, weight_of(window, device))
    return found


def row(place: Mapping[str, Any], figures: TimelineSum) -> dict[str, Any]:
    """One row: whose time it is (keys of ``ROW_KEYS``, null where it is that of several), and where it went."""
    return {key: place.get(key) for key in ROW_KEYS if key not in SUM_KEYS} | figures.as_json()


def rows_of(windows: Iterable[Window], by: str) -> list[dict[str, Any]]:
    """The rows of windows that are not in a store, by device or as a whole (by window, process or node: it is one)."""
    rows = []
    for window in windows:
        told: dict[str, Any] = {"model": window.process.model, "windows": 1}
        if by == "window":
            told |= {"window": window.uid, "start_unix_ns": window.start_unix_ns or None}
        told |= {"first_step": window.first_step, "steps": window.steps}
        if by != "device":
            models = dict.fromkeys(d.device.model for d in window.devices)
            rows.append(row({**told, "device": ", ".join(models) or None}, sum_of(window)))
            continue
        for device in window.devices:
            figures = TimelineSum()
            figures.add(device, weight_of(window, device))
            rows.append(row({**told, "device": device.device.model, "index": device.device.index}, figures))
    return rows
