"""When each process takes its next window, and with which others."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from dataclasses import replace

from roofwatch.agent import governor
from roofwatch.agent.asking import OVER_BUDGET, Asking
from roofwatch.agent.books import Books
from roofwatch.agent.config import Config
from roofwatch.agent.counters import Counters
from roofwatch.agent.parsing import QUEUE_MOST
from roofwatch.agent.plan import Seen, Wish
from roofwatch.agent.ranks import Meeting, Pace, key_of, next_meeting
from roofwatch.agent.registry import Member
from roofwatch.agent.schedule import INTERVAL_LEAST_S, Schedule
from roofwatch.agent.slot import Asker, Open, Slot
from roofwatch.hook import protocol
from roofwatch.model.record import Trigger

SPACING_S = 0.1  # between two requests on this node, so that processes do not all stop at once
SPREAD_S = 2.0  # the same at most, between jobs, where the interval has room for it
FIRST_WITHIN_S = 20.0  # a process's first window, where the interval is not shorter
JITTER = 0.15  # of the interval, either way: nothing falls into step with periodic work
BACKLOG_MOST = 4  # windows waiting to be read; a window that would be thrown away is not taken
LASTING = frozenset(
    {protocol.UNSAFE, protocol.UNSUPPORTED, protocol.ERROR, protocol.ANALYSIS}
)  # asking again soon will not help
LASTING_STRETCH = 8  # times the interval, then
RANKS_WAIT = 30  # times, about a second each, that a rank waits until the others of its job can be asked with it

# From a job's key, a rank's pace, the interval, the time and what a window takes to earn: where the job meets next.
Meet = Callable[[int, Pace, float, float, float], Meeting | None]


class Scheduler:
    """Asks for windows. Runs in the event loop's thread."""

    def __init__(
        self,
        config: Config,
        counters: Counters,
        backlog: Callable[[], int],
        asked: Callable[[Member], None] = lambda _: None,
    ) -> None:
        self.schedule = Schedule(config)
        self.books = Books(self.schedule)
        self._slots = self.books.slots
        self._asking = Asking(self.schedule, self.books, counters, asked, self._expired)
        self._counters = counters
        self._backlog = backlog
        self._meet: Meet = next_meeting
        self._asked_at = -SPREAD_S  # loop time of the last request

    def add(self, member: Member) -> None:
        """Schedule a process's first window."""
        slot = self.books.enter(member)
        self._arm(slot, random.uniform(0.1, 0.5) * min(self.schedule.interval_s, FIRST_WITHIN_S))

    def remove(self, member: Member) -> None:
        """Forget a process; a window it owed will not come."""
        slot = self._slots.pop(member, None)
        if slot is None:
            return
        if slot.timer is not None:
            slot.timer.cancel()
        self._asking.abandon(slot)
        self.books.part(slot)

    def stop(self) -> None:
        """Ask for nothing more."""
        for member in list(self._slots):
            self.remove(member)

    def set_schedule(self, interval_s: int, steps: int, duration_ms: int) -> None:
        """Change the schedule from the next window on; 0 leaves a value as it is."""
        self.schedule.set(interval_s, steps, duration_ms)
        self._spread()

    def configure(self, before: Config, config: Config) -> None:
        """Take what changed from one configuration to the next; what the store has set stays, unless it changed."""
        budget = self.schedule.budget
        self.schedule.configure(before, config)
        if self.schedule.budget is not budget:
            self.books.rebudget(self.schedule.budget)
        if config.interval != before.interval:
            self._spread()

    def meet(self, meet: Meet) -> None:
        """Let ranks meet where this says, in place of ``ranks.next_meeting``: for who moves the clock or the steps."""
        self._meet = meet

    def _spread(self) -> None:
        """Begin anew with every process that owes no window, spread over the interval."""
        for slot in self._slots.values():
            if slot.open is None:
                self._arm(slot, self._pause(slot) * random.random())

    def request(
        self,
        member: Member,
        wish: Wish,
        trigger: Trigger = Trigger.REQUESTED,
        align: Sequence[int] | None = None,
        batch: int = 0,
        *,
        at_steps: Sequence[int] = (),
        asker: Asker | None = None,
    ) -> str:
        """Ask for a window now, or at a step as ``align`` or ``at_steps`` say. Returns why not, "" where it was asked.

        Requests of one ``batch`` are of one job, for the same steps; 0 is one of its own.
        """
        slot = self._slots.get(member)
        return "gone" if slot is None else self._asking.ask(slot, wish, trigger, align, batch, at_steps, asker)

    def answered(self, member: Member, request: int, *, refused: str = "", detail: str = "") -> Open | None:
        """Match an answer to the open request and plan the next; None where nothing was asked or it came too late."""
        slot = self._slots.get(member)
        answered = None if slot is None else self._asking.close(slot, request, refused, detail)
        if slot is None or answered is None:
            return None
        slot.reason = governor.SCHEDULE if slot.rates.settled or not slot.rates.taken else governor.LEARNING
        pause = self._pause(slot)
        if slot.run is not None and slot.pace.step_ns and refused not in LASTING:
            pause = INTERVAL_LEAST_S  # its meetings are as far apart as its windows should be
        if refused in LASTING:
            pause *= LASTING_STRETCH
            slot.reason = refused
            slot.resting_until = asyncio.get_running_loop().time() + pause
        self._arm(slot, pause)
        return answered

    def stepped(self, member: Member, count: int | None, step_ns: int | None) -> None:
        """A process has told how many optimizer steps it has made, and what one usually takes."""
        slot = self._slots.get(member)
        if slot is not None and count:
            slot.pace.told(count, asyncio.get_running_loop().time(), step_ns)

    def learned(self, member: Member, seen: Seen | None) -> None:
        """The window is read (or lost, None): learn what the process does in one, and let the next be asked for."""
        slot = self._slots.get(member)
        if slot is None:
            return
        slot.unread = max(0, slot.unread - 1)
        if seen is not None:
            slot.rates.observe(seen)

    def late(self, member: Member, request: int | None) -> Open | None:
        """The request that a process answered too late; None for what was never asked, or is answered already."""
        slot = self._slots.get(member)
        if slot is None or slot.unanswered is None or slot.unanswered.request != request:
            return None
        late, slot.unanswered = slot.unanswered, None
        return late

    def reckoned(self, member: Member) -> tuple[int | None, int | None, int]:
        """Optimizer steps of a process by now, how long one takes (None: not known), windows that say so."""
        slot = self._slots.get(member)
        if slot is None:
            return None, None, 0
        count, step_ns = slot.pace.count_at(asyncio.get_running_loop().time()), slot.pace.step_ns
        return count, round(step_ns) if step_ns and count is not None else None, len(slot.rates.recent)

    def meetings_of(self, member: Member, apart_s: float) -> Sequence[int]:
        """Steps ahead at which the ranks of its job meet, on all nodes, so far apart; none where nobody knows."""
        slot = self._slots.get(member)
        if slot is None or slot.run is None:
            return ()
        meeting = next_meeting(key_of(slot.run), slot.pace, apart_s, asyncio.get_running_loop().time())
        return () if meeting is None else meeting.steps

    def _pause(self, slot: Slot) -> float:
        return self.schedule.interval_of(slot) * slot.jitter

    def _arm(self, slot: Slot, seconds: float) -> None:
        if slot.timer is not None:
            slot.timer.cancel()
        slot.timer = asyncio.get_running_loop().call_later(seconds, self._due, slot)

    def _due(self, slot: Slot) -> None:
        slot.timer = None
        if slot.open is not None:
            return  # the answer arms the next
        now = asyncio.get_running_loop().time()
        ranks = self._ranks(slot, now)
        if self._must_wait(slot, ranks):
            self._counters.windows["deferred"] += 1
            self._arm(slot, random.uniform(0.5, 1.5))
        elif not self._affordable(slot, ranks, now):
            pass  # armed again, or never
        elif (meeting := self._meeting(slot, ranks, now)) is not None and meeting.wait_s > 0:
            self._arm(slot, meeting.wait_s)
        elif now < (free := self._asked_at + self._room(meeting)):
            self._arm(slot, free - now + random.uniform(0, SPACING_S))
        else:
            self._asked_at = now
            self._ask([each for each in ranks if each.free], meeting)

    def _room(self, meeting: Meeting | None) -> float:
        """Between two requests on this node: its jobs are spread out, but for who would miss its step.

        With very many processes it shrinks, so that each still gets its turn.
        """
        least = min(SPACING_S, self.schedule.interval_s / (2 * max(1, len(self._slots))))
        if meeting is not None:
            return least
        jobs = len({id(slot.account) for slot in self._slots.values()})
        return max(least, min(SPREAD_S, self.schedule.interval_s / (8 * max(1, jobs))))

    def _meeting(self, slot: Slot, ranks: Sequence[Slot], now: float) -> Meeting | None:
        """Where the process's job meets next; None for no rank of several, and while its steps are not known."""
        if slot.run is None:
            return None
        paid_s = max(each.spending.expected_ns for each in ranks) / (self.schedule.budget.share * 1e9)
        return self._meet(key_of(slot.run), slot.pace, self.schedule.interval_of(slot), now, paid_s)

    def _ask(self, ranks: Sequence[Slot], meeting: Meeting | None) -> None:
        """Ask one process, or the ranks of one job for the same steps."""
        together = len(ranks) > 1 or meeting is not None
        steps = meeting.steps if meeting is not None else ()
        jitter = random.uniform(1 - JITTER, 1 + JITTER)
        trigger, batch = (Trigger.SYNCHRONIZED if together else Trigger.PERIODIC), self.new_batch()
        wish = replace(self.schedule.wish, shapes=not self.books.may_go_without(ranks))
        for each in ranks:
            each.jitter = jitter
            if self.request(each.member, wish, trigger, None, batch, at_steps=steps) == OVER_BUDGET:
                each.reason = governor.HARD_STOP
                self._arm(each, self.schedule.interval_s * jitter)
            elif meeting is not None:
                each.rested_s = max(each.rested_s, meeting.apart_s)

    def new_batch(self) -> int:
        """A number for requests of one job, for the same steps."""
        return self._asking.new_batch()

    def _affordable(self, slot: Slot, ranks: Sequence[Slot], now: float) -> bool:
        """Whether the job can pay a window, and does not rest because of a residue; else it is looked at then."""
        if slot.account.resting_until > now:
            if slot.reason != governor.RESIDUE:
                self._counters.held[governor.RESIDUE] += 1
                slot.skipped[governor.RESIDUE] += 1
            slot.reason = governor.RESIDUE
            self._arm(slot, slot.account.resting_until - now + random.uniform(0, SPACING_S))
            return False
        expected = max(each.spending.expected_ns for each in ranks)
        wait = slot.account.wait_s(now, expected)
        if not wait:
            return True
        if slot.reason != governor.BUDGET:
            self._counters.held[governor.BUDGET] += 1
            slot.skipped[governor.BUDGET] += 1
        slot.reason = governor.BUDGET
        self._arm(slot, min(wait, governor.HORIZON_S) + random.uniform(0, SPACING_S))
        return False

    def _ranks(self, slot: Slot, now: float) -> list[Slot]:
        """The process itself, and the others of its job that can take windows."""
        if slot.run is None:
            return [slot]
        others = [s for s in self._slots.values() if s.run == slot.run and s is not slot and s.resting_until <= now]
        return [slot, *others[: max(0, QUEUE_MOST - 1 - self._backlog())]]

    def _must_wait(self, slot: Slot, ranks: Sequence[Slot]) -> bool:
        """Whether what is asked now would be thrown away, or planned without what the last window held."""
        if self._backlog() >= BACKLOG_MOST or slot.unread:
            return True
        waiting = slot.waited < RANKS_WAIT and not all(each.free for each in ranks)
        slot.waited = slot.waited + 1 if waiting else 0
        return waiting

    def _expired(self, slot: Slot) -> None:
        """The hook has not answered in time: it pays as for others, and what more it cost if it answers yet."""
        if slot.open is not None:
            slot.unanswered = slot.open
            self.books.charge_owed(slot, slot.open)
            self.answered(slot.member, slot.open.request, refused="no_answer")
