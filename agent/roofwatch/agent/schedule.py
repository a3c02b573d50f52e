"""The schedule in force: how often windows are taken, how long they are and what they may cost. Pure.

It is the configured one, but for what the store has set since.
"""

from __future__ import annotations

from roofwatch.agent.config import Config
from roofwatch.agent.governor import Budget
from roofwatch.agent.plan import Wish
from roofwatch.agent.slot import Slot

STEPS_MOST, DURATION_MOST_MS = 1000, 10_000
INTERVAL_LEAST_S = 0.5
SOONER = 4  # a process whose rates are not known yet gets windows this much more often


class Schedule:
    """What holds for all processes of this node, from the next window on."""

    def __init__(self, config: Config) -> None:
        self.interval_s = config.interval
        self.wish = Wish(config.steps, config.duration_ms)
        self.budget = _budget(config)
        self._take(config)

    def _take(self, config: Config) -> None:
        self.max_events = config.max_events
        self.light = config.light_windows  # in a row that may go without shapes
        self.metrics = config.npu_metrics  # one set a window, in turn

    def set(self, interval_s: int, steps: int, duration_ms: int) -> None:
        """Take what the store sets; 0 leaves a value as it is."""
        if interval_s:
            self.interval_s = max(INTERVAL_LEAST_S, float(interval_s))
        self.wish = Wish(
            min(steps, STEPS_MOST) or self.wish.steps, min(duration_ms, DURATION_MOST_MS) or self.wish.duration_ms
        )

    def configure(self, before: Config, config: Config) -> None:
        """Take what changed from one configuration to the next; what the store has set stays, unless it changed."""
        if (config.budget, config.hard_stop) != (before.budget, before.hard_stop):
            self.budget = _budget(config)
        if (config.steps, config.duration_ms) != (before.steps, before.duration_ms):
            self.wish = Wish(config.steps, config.duration_ms)
        if config.interval != before.interval:
            self.interval_s = config.interval
        self._take(config)

    def interval_of(self, slot: Slot) -> float:
        """Seconds between two windows of a process, before budget, residue or a refusal make more of them."""
        known = slot.rates.settled or not slot.rates.taken
        return self.interval_s if known else max(INTERVAL_LEAST_S, self.interval_s / SOONER)


def within(wish: Wish) -> Wish:
    """A wish, as far as a window may be as long."""
    return Wish(min(max(1, wish.steps), STEPS_MOST), min(max(1, wish.duration_ms), DURATION_MOST_MS), wish.shapes)


def _budget(config: Config) -> Budget:
    return Budget(config.budget / 100, config.hard_stop / 100)
