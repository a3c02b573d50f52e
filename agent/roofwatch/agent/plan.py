"""How long the next window of a process may be, learned from its last ones. Pure.

A window must stay under a fixed number of profiler events, because closing one costs the job time by the event. What a
process does in a window is unknown before its first, so the first is short and without shapes, and later ones grow.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

FIRST_MAX_MS = 50  # the cost of a process is unknown until its first window has been measured
LONGEST_MS = 10_000
WARM_UP_STEPS = 1  # the profiler's own: recorded by the hook beside the steps asked for
REMEMBERED = 4  # windows; the busiest of them counts, so that one quiet window does not invite a flood
GROWTH = 4  # times the last window's length, at most…
GROWTH_SURE = 16  # …or this, when it held enough events to be typical
SURE_EVENTS = 1_000
SLACK = 4  # times what the steps asked for took before
MARGIN = 0.8  # of the event cap: the next window may be busier than the busiest remembered


@dataclass(frozen=True, slots=True)
class Plan:
    """What to ask a process for."""

    steps: int
    duration_ms: int
    max_ms: int
    shapes: bool


@dataclass(frozen=True, slots=True)
class Wish:
    """What somebody would like: the schedule, or a request."""

    steps: int
    duration_ms: int
    shapes: bool = True


@dataclass(frozen=True, slots=True)
class Seen:
    """A window that was taken: its length, its events, its whole steps (None where it was cut or has none).

    ``step_ns`` is the usual step before it, None where not known.
    """

    duration_ns: int
    events: int
    steps: int | None
    step_ns: int | None = None


@dataclass(slots=True)
class Rates:
    """What is known of one process."""

    taken: int = 0
    recent: deque[Seen] = field(default_factory=lambda: deque(maxlen=REMEMBERED))

    def observe(self, seen: Seen) -> None:
        """Learn from a window that was read."""
        self.recent.append(seen)

    @property
    def events_per_ns(self) -> float | None:
        """The busiest remembered rate, None before there is one."""
        rates = [seen.events / seen.duration_ns for seen in self.recent if seen.duration_ns > 0]
        return max(rates) if rates else None

    @property
    def events_per_step(self) -> float | None:
        """The busiest remembered step, None before there is one."""
        rates = [seen.events / seen.steps for seen in self.recent if seen.steps]
        return max(rates) if rates else None

    @property
    def step_ns(self) -> int | None:
        """How long a step takes, by the last window that tells."""
        return next((seen.step_ns for seen in reversed(self.recent) if seen.step_ns), None)

    @property
    def settled(self) -> bool:
        """The last window was not cut short by what we did not know."""
        return len(self.recent) >= 2 and (self.recent[-1].steps is not None or len(self.recent) == REMEMBERED)


def plan(rates: Rates, wish: Wish, max_events: int) -> Plan:
    """The window to ask for so that it stays under ``max_events``.

    A process whose windows were taken but never read (``taken`` without ``recent``) is still an unknown one.
    """
    if not rates.recent:
        return Plan(1, min(wish.duration_ms, FIRST_MAX_MS), FIRST_MAX_MS, shapes=False)
    cap = MARGIN * max_events
    last = rates.recent[-1]
    growth = GROWTH_SURE if last.events >= SURE_EVENTS else GROWTH
    max_ms = min(LONGEST_MS, max(FIRST_MAX_MS, growth * last.duration_ns // 1_000_000))
    per_ns, per_step = rates.events_per_ns, rates.events_per_step
    steps = wish.steps
    if per_step:
        steps = min(steps, int(cap / per_step) - WARM_UP_STEPS)
    if last.steps:  # whole steps are a measure: as long as those asked for take, and a busy moment may be in between
        max_ms = max(max_ms, min(LONGEST_MS, SLACK * max(1, steps) * last.duration_ns // last.steps // 1_000_000))
    if per_ns:
        max_ms = min(max_ms, int(cap / per_ns / 1e6))
    max_ms = max(1, max_ms)
    return Plan(max(1, steps), max(1, min(wish.duration_ms, max_ms)), max_ms, wish.shapes)
