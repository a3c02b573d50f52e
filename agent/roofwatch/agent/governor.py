"""What profiling may cost a job, kept as an account: it earns time by the budget and pays what each window cost. Pure.

The budget is the job's, not the rank's: a synchronous job waits for its slowest rank, so windows that its ranks take
together cost what the dearest of them costs, and windows they take one after the other add up. So the ranks of one
run on a node share an account; every other process has its own. Times are seconds of one monotonic clock.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from statistics import median

from roofwatch.hook import protocol
from roofwatch.model.record import Cost

REMEMBERED = 8  # windows whose cost says what the next one will cost
SAVED_S = 600.0  # a job earns this long at most: after a quiet night nobody takes all windows of the night at once
HORIZON_S = 3600.0  # spend is told, and held under the hard stop, over this time
YOUNG_S = 60.0  # of a job that has only begun, a share means nothing yet: it is one of at least this long
LEAST_EVENTS = 3_000  # of a window: what is shorter tells little and still costs its opening, so windows get rarer
MARGIN = 0.8  # of what the budget would pay a window at the interval asked for
# Of windows whose cost cannot be measured (no steps): 2-3 µs an event by the path without the GIL (window-cost
# measurements, docs/performance.md); by the others the job may stand still while they close, save and free.
EVENT_NS = 3_000
# Steps that are slower after the first windows and still are when the next opens: something stayed attached.
RESIDUE_SHARE = 0.03
RESIDUE_REST_S = 3600.0  # then it is tried again: what is attached does not get worse, and it may have been the job
RESIDUE_WINDOWS = 5  # one after the other: a noisy step or a longer sequence is no residue
RESIDUE_STEPS = 5  # after a window, at least, for their mean to mean something
PROCESSORS = os.cpu_count() or 1  # of the node: a second of one of them is that much of the node's second

# Why the present interval is what it is.
SCHEDULE, LEARNING, BUDGET, HARD_STOP, RESIDUE = "schedule", "learning", "budget", "hard_stop", "residue"


@dataclass(frozen=True, slots=True)
class Budget:
    """Shares of a job's wall time: what windows may cost it, and what not even one that was asked for may exceed."""

    share: float
    hard_stop: float


@dataclass(slots=True)
class Account:
    """What one job earned and paid on this node."""

    budget: Budget
    opened: float
    updated: float = 0.0
    balance_ns: float = 0.0
    resting_until: float = 0.0  # because of a residue
    payments: deque[tuple[float, float]] = field(default_factory=deque)  # when, ns; of the last HORIZON_S
    together: deque[tuple[int, float]] = field(default_factory=lambda: deque(maxlen=32))  # batch, the dearest so far

    def __post_init__(self) -> None:
        self.updated = self.opened

    @property
    def most_ns(self) -> float:
        """What can be saved."""
        return self.budget.share * SAVED_S * 1e9

    def earn(self, now: float) -> None:
        """Time has passed."""
        self.balance_ns = min(self.most_ns, self.balance_ns + self.budget.share * max(0.0, now - self.updated) * 1e9)
        self.updated = max(self.updated, now)
        while self.payments and self.payments[0][0] < now - HORIZON_S:
            self.payments.popleft()

    def pay(self, now: float, batch: int, cost_ns: float, node_ns: float = 0.0) -> None:
        """A window has cost this; of windows of one batch, taken at the same steps, only the dearest counts.

        What reading it took of the node (``node_ns``) adds up all the same.
        """
        self.earn(now)
        cost_ns = max(cost_ns, -0.1 * self.most_ns)  # noise may gain a little, a job's own word no more
        before = next((paid for known, paid in self.together if known == batch), None)
        due = cost_ns if before is None else max(0.0, cost_ns - before)
        if before is not None:
            self.together = deque((one for one in self.together if one[0] != batch), maxlen=self.together.maxlen)
        self.together.append((batch, cost_ns if before is None else max(before, cost_ns)))
        due += node_ns
        self.balance_ns -= due
        self.payments.append((now, due))

    def spent_share(self, now: float) -> float:
        """What windows cost of the job's time, over the last hour or since it registered."""
        self.earn(now)
        return sum(ns for _, ns in self.payments) / (1e9 * min(HORIZON_S, max(YOUNG_S, now - self.opened)))

    def wait_s(self, now: float, expected_ns: float) -> float:
        """Until a window of this cost is paid for; 0 where it is. What is dearer than can be saved is paid after."""
        self.earn(now)
        return max(0.0, min(expected_ns, self.most_ns) - self.balance_ns) / (self.budget.share * 1e9)

    def over_hard_stop(self, now: float, expected_ns: float) -> bool:
        """Whether a window of this cost would make it more than the hard stop."""
        whole = min(HORIZON_S, max(YOUNG_S, now - self.opened)) * 1e9
        share = self.spent_share(now)
        if not self.payments and whole == HORIZON_S * 1e9:
            return False  # an hour without a window: one is tried, or a dear one of long ago would forbid all for ever
        return share + expected_ns / whole > self.budget.hard_stop


@dataclass(frozen=True, slots=True)
class Paid:
    """What one window cost: by its steps, or estimated where steps do not tell."""

    cost_ns: float
    events: int
    measured: bool
    node_ns: float = 0.0  # what reading it took of the node's time: processor time by the node's processors

    @property
    def whole_ns(self) -> float:
        """With what it took of the node."""
        return self.cost_ns + self.node_ns


@dataclass(slots=True)
class Spending:
    """What one process's windows cost, and whether something of them stays."""

    recent: deque[Paid] = field(default_factory=lambda: deque(maxlen=REMEMBERED))
    slower_after: float = 0.0  # by how much of the usual step steps were slower after the last window
    residue: float | None = None  # where slower steps stayed: how much slower
    # The usual step before windows: while nothing was slower, and one window after the other since something was.
    _before: deque[int] = field(default_factory=lambda: deque(maxlen=REMEMBERED))
    _since: list[int] = field(default_factory=list)

    def observe(self, cost: Cost | None, events: int, after_steps: int | None) -> Paid:
        """Learn from a window."""
        paid = price(cost, events)
        self.recent.append(paid)
        if cost is not None and cost.base_step_ns:
            self._look_for_residue(cost, after_steps)
        return paid

    def _look_for_residue(self, cost: Cost, after_steps: int | None) -> None:
        base = cost.base_step_ns or 0
        begun = bool(self._since) or self.slower_after >= RESIDUE_SHARE
        if begun and self._before and base >= (1 + RESIDUE_SHARE) * max(self._before):
            self._since.append(base)
        else:
            self._before.extend([*self._since, base])
            self._since.clear()
        if len(self._since) == RESIDUE_WINDOWS:
            if _stands_out(self._since, self._before):
                self.residue = median(self._since) / median(self._before) - 1
            self._before.extend(self._since)
            self._since.clear()
        enough = cost.lost_after_ns is not None and (after_steps or 0) >= RESIDUE_STEPS
        self.slower_after = (cost.lost_after_ns or 0) / ((after_steps or 1) * base) if enough else 0.0

    @property
    def expected_ns(self) -> float:
        """What the next window will cost, by the last ones; 0 before there is one.

        One outlier (a checkpoint of the job inside a window) should not keep the process from its windows, and
        several cheap ones not hide those that are dear: the larger of median and mean without the dearest.
        """
        costs = sorted(paid.whole_ns for paid in self.recent)
        if not costs:
            return 0.0
        usual = costs[:-1] or costs
        return max(0.0, median(costs), sum(usual) / len(usual))

    @property
    def ns_an_event(self) -> float | None:
        """What an event costs, with its share of what a window costs anyway; None before there is one."""
        events = sum(paid.events for paid in self.recent)
        return self.expected_ns * len(self.recent) / events if events else None


def price(cost: Cost | None, events: int) -> Paid:
    """What a window cost its job, in nanoseconds of the job's wall time, and the node that read it."""
    node_ns = (cost.parse_cpu_ns or 0) / PROCESSORS if cost is not None else 0.0
    if cost is not None and cost.lost_ns is not None:
        return Paid(float(cost.lost_ns), events, True, node_ns)
    return Paid(float(_estimated_ns(cost, events)), events, False, node_ns)


def _estimated_ns(cost: Cost | None, events: int) -> int:
    if cost is None or cost.close_path == protocol.NATIVE:
        return (cost.open_ns if cost else 0) + EVENT_NS * events
    if cost.close_path == protocol.NPU:  # its analysis runs in a process of its own
        return cost.open_ns + cost.close_ns
    return cost.open_ns + cost.close_ns + cost.save_ns + cost.free_ns


def _stands_out(since: Iterable[int], before: Iterable[int]) -> bool:
    """Whether steps since are slower by more than they vary: what stays attached costs the same each time.

    A machine that others load makes steps slower, too, but never by so even a measure.
    """
    since, before = sorted(since), sorted(before)
    return since[0] - before[-1] >= max(since[-1] - since[0], before[-1] - before[0])


def event_cap(spendings: Iterable[Spending], budget: Budget, interval_s: float, most: int) -> int:
    """Events of a window that the budget pays at the interval asked for: of the dearest of these processes."""
    dearest = max((ns for s in spendings if (ns := s.ns_an_event) is not None), default=0.0)
    if dearest <= 0:
        return most
    affordable = MARGIN * budget.share * interval_s * 1e9 / dearest
    return int(min(most, max(min(LEAST_EVENTS, most), affordable)))
