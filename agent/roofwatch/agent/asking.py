"""Asking one process for a window: whether it may be asked, the message, and what its answer closes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from roofwatch.agent import governor, standing
from roofwatch.agent.books import Books, expected_ns
from roofwatch.agent.counters import Counters
from roofwatch.agent.plan import Wish, plan
from roofwatch.agent.registry import Member
from roofwatch.agent.schedule import Schedule, within
from roofwatch.agent.slot import Asker, Ended, Open, Slot
from roofwatch.hook import protocol
from roofwatch.model.record import Trigger

FIRST_STEP_WITHIN_S = 30.0
SLACK_S = 15.0  # the hook may wait 5 s for threads to settle and 5 s for the steps after the window
OVER_BUDGET = "over_budget"
APART_MOST = 1 << 20  # the largest modulus that a hook takes: so far apart, a remainder is a number


class Asking:
    """Numbers requests and sends them. ``asked`` is told of each, ``expired`` of each that nobody answered in time."""

    def __init__(
        self,
        schedule: Schedule,
        books: Books,
        counters: Counters,
        asked: Callable[[Member], None],
        expired: Callable[[Slot], None],
    ) -> None:
        self._schedule, self._books, self._counters = schedule, books, counters
        self._asked, self._expired = asked, expired
        self._requests = 0
        self._batches = 0

    def new_batch(self) -> int:
        """A number for requests of one job, for the same steps."""
        self._batches += 1
        return self._batches

    def ask(
        self,
        slot: Slot,
        wish: Wish,
        trigger: Trigger,
        align: Sequence[int] | None,
        batch: int,
        at_steps: Sequence[int],
        asker: Asker | None,
    ) -> str:
        """Ask for a window. Returns why not, "" where it was asked."""
        if slot.open is not None:
            return protocol.BUSY
        now = asyncio.get_running_loop().time()
        cap = self._schedule.max_events if asker is not None else self._books.event_cap(slot)
        asked = plan(slot.rates, within(wish), cap)
        if slot.account.over_hard_stop(now, expected_ns(slot, asked if asker is not None else None)):
            self._counters.held[governor.HARD_STOP] += 1
            slot.skipped[governor.HARD_STOP] += 1
            return OVER_BUDGET
        slot.rested_s = now - slot.answered_at if slot.answered_at and slot.reason == governor.BUDGET else 0.0
        self._requests += 1
        why, apart_s = standing.why_asked(slot, trigger), standing.interval_s(slot, self._schedule.interval_of(slot))
        deadline = asyncio.get_running_loop().call_later(_patience_s(slot, asked.max_ms), self._expired, slot)
        batch = batch or self.new_batch()
        slot.open = Open(self._requests, trigger, asked, batch, deadline, asker, why, apart_s, cap)
        self._counters.windows["requested"] += 1
        self._counters.asked[why] += 1
        message = self._message(slot, slot.open, align, at_steps)
        self._asked(slot.member)
        return "" if slot.member.connection.send(message) else "gone"

    def _message(self, slot: Slot, of: Open, align: Sequence[int] | None, at_steps: Sequence[int]) -> dict[str, object]:
        message: dict[str, object] = {
            "type": protocol.TAKE_WINDOW,
            "request": of.request,
            "trigger": str(of.trigger),
            "steps": of.plan.steps,
            "duration_ms": of.plan.duration_ms,
            "max_ms": of.plan.max_ms,
            "shapes": of.plan.shapes,
            "timeout_ms": int(FIRST_STEP_WITHIN_S * 1e3),
        }
        if align is not None:
            message["align"] = list(align)
        if at_steps:
            message["at_steps"] = list(at_steps)
            message["align"] = [APART_MOST, at_steps[0]]  # for hooks that do not know of lists
        if slot.member.hello.close_path == protocol.NPU:
            message["metrics"] = self._schedule.metrics[slot.rates.taken % len(self._schedule.metrics)]
        return message

    def close(self, slot: Slot, request: int, refused: str, detail: str) -> Open | None:
        """Match an answer to the open request; None where nothing was asked or it came too late."""
        if slot.open is None or slot.open.request != request:
            return None
        answered, slot.open = slot.open, None
        answered.deadline.cancel()
        slot.answered_at = asyncio.get_running_loop().time()
        if refused:
            self._counters.refusals[refused] += 1
            slot.skipped[refused] += 1
            answered.end(Ended(refused, detail))
        else:
            slot.rates.taken += 1
            slot.unread += 1
        return answered

    def abandon(self, slot: Slot) -> None:
        """The process is gone: a window it owed will not come."""
        if slot.open is not None:
            slot.open.deadline.cancel()
            self._counters.refusals["closed"] += 1
            self._books.charge_owed(slot, slot.open)
            slot.open.end(Ended("gone"))


def _patience_s(slot: Slot, max_ms: int) -> float:
    """How long an answer may take."""
    analysis_s = protocol.ANALYSIS_S if slot.member.hello.close_path == protocol.NPU else 0.0
    return FIRST_STEP_WITHIN_S + max_ms / 1e3 + SLACK_S + analysis_s
