"""How a process stands: what windows may cost its job and did, the interval in force and why. Told with segments."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

from roofwatch.agent import governor
from roofwatch.agent.governor import Paid
from roofwatch.agent.slot import Open, Slot
from roofwatch.model.record import BudgetState, ProcessState, Trigger

AGAIN_S = 60.0  # between two times that a process without windows is told of
PARTED_MOST = 1024  # processes that are gone and not told of yet
MOST_NS = (1 << 50) - 1  # what a store takes: a job's word for what a window cost it must not spoil a segment
MOST_SHARE = 1e6
# Reasons beside the governor's.
COLD_START, REQUESTED = "cold_start", "requested"


def why_asked(slot: Slot, trigger: Trigger) -> str:
    """Why a window is asked for now: why the interval before it was what it was, or that somebody wants it."""
    if trigger is Trigger.REQUESTED:
        return REQUESTED
    return _reason(slot) if slot.rates.taken else COLD_START


def _reason(slot: Slot) -> str:
    """Why the present interval is what it is; what a window held is known only once it is read."""
    if slot.reason in {governor.SCHEDULE, governor.LEARNING}:
        return governor.SCHEDULE if slot.rates.settled or not slot.rates.taken else governor.LEARNING
    return slot.reason


def interval_s(slot: Slot, nominal_s: float) -> float:
    """Between two windows of a process: that of the schedule, or what budget, residue or a refusal make of it."""
    if slot.reason == governor.RESIDUE:
        return governor.RESIDUE_REST_S
    if slot.answered_at is not None and slot.resting_until > slot.answered_at:
        return slot.resting_until - slot.answered_at
    return max(nominal_s, slot.spending.expected_ns / 1e9 / slot.account.budget.share)


def of_window(slot: Slot, asked: Open, now: float) -> BudgetState:
    """The account once a window was paid for, and the schedule by which it was asked for."""
    return _state(slot, now, asked.reason, asked.interval_s, asked.event_cap)


def of_process(slot: Slot, now: float, nominal_s: float, event_cap: int) -> BudgetState:
    """The account now, and the schedule of the next window."""
    reason = _reason(slot) if slot.rates.taken or slot.answered_at is not None else COLD_START
    return _state(slot, now, reason, interval_s(slot, nominal_s), event_cap)


def _state(slot: Slot, now: float, reason: str, interval: float, event_cap: int) -> BudgetState:
    account, paid = slot.account, slot.charged
    spent = account.spent_share(now)
    return BudgetState(
        reason=reason,
        budget_share=min(account.budget.share, MOST_SHARE),
        hard_stop_share=min(account.budget.hard_stop, MOST_SHARE),
        spent_share=max(-MOST_SHARE, min(spent, MOST_SHARE)),
        balance_ns=_ns(account.balance_ns),
        charged_ns=None if paid is None else _ns(paid.whole_ns),
        measured=None if paid is None else paid.measured,
        interval_ns=_ns(interval * 1e9),
        event_cap=min(event_cap, MOST_NS),
    )


def _ns(value: float) -> int:
    return round(max(-MOST_NS, min(value, MOST_NS)))


def owed(slot: Slot, asked: Open) -> Paid:
    """What a window cost that never told: as much as others, or all the time that it might have taken."""
    spending = slot.spending
    return Paid(spending.expected_ns if spending.recent else asked.plan.max_ms * 1e6, 0, measured=False)


@dataclass(slots=True)
class Standing:
    """Which processes are to be told of with the next segment. Runs in the event loop's thread."""

    parted: deque[ProcessState] = field(default_factory=lambda: deque(maxlen=PARTED_MOST))

    def part(self, slot: Slot, budget: BudgetState) -> None:
        """A process is gone: what is not told yet is told once more."""
        if slot.told is None or slot.told[0] != _told(slot):
            self.parted.append(_process(slot, budget))

    def due(self, slots: Iterable[Slot], taken: Collection[int], now: float) -> list[Slot]:
        """Of these processes those with windows in the segment (``taken``: their ids), and those that changed."""
        found = []
        for slot in slots:
            changed = slot.told is None or (slot.told[0] != _told(slot) and now - slot.told[1] >= AGAIN_S)
            if changed or slot.member.process.id in taken:
                slot.told = (_told(slot), now)
                found.append(slot)
        return found

    def states(self, of: Iterable[tuple[Slot, BudgetState]]) -> list[ProcessState]:
        """What a segment tells: of these, and of those that are gone."""
        gone = list(self.parted)
        self.parted.clear()
        return [*gone, *(_process(slot, budget) for slot, budget in of)]


def _told(slot: Slot) -> tuple[object, ...]:
    """What makes it worth a word; spend alone does not, it changes with every second."""
    return _reason(slot), *sorted(slot.skipped.items())


def _process(slot: Slot, budget: BudgetState) -> ProcessState:
    return ProcessState(
        slot.member.process, time.time_ns(), slot.registered_unix_ns, budget, dict(sorted(slot.skipped.items()))
    )
