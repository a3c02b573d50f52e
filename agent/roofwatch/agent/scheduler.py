"""When each process takes its next window, and which answer belongs to which request."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace

from roofwatch.agent import governor, standing
from roofwatch.agent.config import Config
from roofwatch.agent.counters import Counters
from roofwatch.agent.governor import Account, Budget, Paid
from roofwatch.agent.lending import TOTAL
from roofwatch.agent.parsing import QUEUE_MOST
from roofwatch.agent.plan import WARM_UP_STEPS, Plan, Seen, Wish, plan
from roofwatch.agent.ranks import Meeting, key_of, next_meeting, run_of
from roofwatch.agent.registry import Member
from roofwatch.agent.slot import Asker, Ended, Open, Slot
from roofwatch.agent.standing import Standing
from roofwatch.hook import protocol
from roofwatch.model.record import BudgetState, Cost, ProcessState, Trigger

SPACING_S = 0.1  # between two requests on this node, so that processes do not all stop at once
SPREAD_S = 2.0  # the same at most, between jobs, where the interval has room for it
FIRST_WITHIN_S = 20.0  # a process's first window, where the interval is not shorter
JITTER = 0.15  # of the interval, either way: nothing falls into step with periodic work
SOONER = 4  # a process whose rates are not known yet gets windows this much more often
FIRST_STEP_WITHIN_S = 30.0
SLACK_S = 15.0  # the hook may wait 5 s for threads to settle and 5 s for the steps after the window
STEPS_MOST, DURATION_MOST_MS = 1000, 10_000
INTERVAL_LEAST_S = 0.5
BACKLOG_MOST = 4  # windows waiting to be read; a window that would be thrown away is not taken
LASTING = frozenset(
    {protocol.UNSAFE, protocol.UNSUPPORTED, protocol.ERROR, protocol.ANALYSIS}
)  # asking again soon will not help
LASTING_STRETCH = 8  # times the interval, then
OVER_BUDGET = "over_budget"
APART_MOST = 1 << 20  # the largest modulus that a hook takes: so far apart, a remainder is a number
RANKS_WAIT = 30  # times, about a second each, that a rank waits until the others of its job can be asked with it


class Scheduler:
    """Asks for windows. Runs in the event loop's thread."""

    def __init__(
        self,
        config: Config,
        counters: Counters,
        backlog: Callable[[], int],
        asked: Callable[[Member], None] = lambda _: None,
    ) -> None:
        self.interval_s = config.interval
        self.wish = Wish(config.steps, config.duration_ms)
        self._max_events, self._light = config.max_events, config.light_windows
        self._metrics = config.npu_metrics  # one set a window, in turn
        self._counters = counters
        self._backlog = backlog
        self._asked = asked  # told of each window that is asked for
        self.budget = Budget(config.budget / 100, config.hard_stop / 100)
        self._batches = 0
        self._slots: dict[Member, Slot] = {}
        self._requests = 0
        self._asked_at = -SPREAD_S  # loop time of the last request
        self._standing = Standing()

    def add(self, member: Member) -> None:
        """Schedule a process's first window."""
        run = run_of(member.process)
        shared = next((s.account for s in self._slots.values() if run is not None and s.run == run), None)
        account = shared or Account(self.budget, asyncio.get_running_loop().time())
        slot = self._slots[member] = Slot(member, account, run=run)
        self._arm(slot, random.uniform(0.1, 0.5) * min(self.interval_s, FIRST_WITHIN_S))

    def remove(self, member: Member) -> None:
        """Forget a process; a window it owed will not come."""
        slot = self._slots.pop(member, None)
        if slot is None:
            return
        if slot.timer is not None:
            slot.timer.cancel()
        if slot.open is not None:
            slot.open.deadline.cancel()
            self._counters.refusals["closed"] += 1
            self._charge(slot, slot.open, standing.owed(slot, slot.open))  # the other ranks pay for it
            slot.open.end(Ended("gone"))
        self._standing.part(slot, self._state(slot))

    def stop(self) -> None:
        """Ask for nothing more."""
        for member in list(self._slots):
            self.remove(member)

    def set_schedule(self, interval_s: int, steps: int, duration_ms: int) -> None:
        """Change the schedule from the next window on; 0 leaves a value as it is."""
        if interval_s:
            self.interval_s = max(INTERVAL_LEAST_S, float(interval_s))
        self.wish = Wish(
            min(steps, STEPS_MOST) or self.wish.steps, min(duration_ms, DURATION_MOST_MS) or self.wish.duration_ms
        )
        self._spread()

    def configure(self, before: Config, config: Config) -> None:
        """Take what changed from one configuration to the next; what the store has set stays, unless it changed."""
        now = asyncio.get_running_loop().time()
        if (config.budget, config.hard_stop) != (before.budget, before.hard_stop):
            self.budget = Budget(config.budget / 100, config.hard_stop / 100)
            for account in {id(s.account): s.account for s in self._slots.values()}.values():
                account.earn(now)  # what was earned so far was earned by the old one
                account.budget = self.budget
        if (config.steps, config.duration_ms) != (before.steps, before.duration_ms):
            self.wish = Wish(config.steps, config.duration_ms)
        self._max_events, self._metrics = config.max_events, config.npu_metrics
        self._light = config.light_windows
        if config.interval != before.interval:
            self.interval_s = config.interval
            self._spread()

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
        if slot is None:
            return "gone"
        if slot.open is not None:
            return protocol.BUSY
        loop = asyncio.get_running_loop()
        wish = Wish(min(max(1, wish.steps), STEPS_MOST), min(max(1, wish.duration_ms), DURATION_MOST_MS), wish.shapes)
        cap = self._max_events if asker is not None else self._event_cap(slot)
        asked = plan(slot.rates, wish, cap)
        if slot.account.over_hard_stop(loop.time(), self._expected_ns(slot, asked if asker is not None else None)):
            self._counters.held[governor.HARD_STOP] += 1
            slot.skipped[governor.HARD_STOP] += 1
            return OVER_BUDGET
        self._requests += 1
        slot.rested_s = loop.time() - slot.answered_at if slot.answered_at and slot.reason == governor.BUDGET else 0.0
        patience = FIRST_STEP_WITHIN_S + asked.max_ms / 1e3 + SLACK_S
        if member.hello.close_path == protocol.NPU:
            patience += protocol.ANALYSIS_S
        deadline = loop.call_later(patience, self._expired, slot)
        why, apart_s = standing.why_asked(slot, trigger), standing.interval_s(slot, self._interval(slot))
        batch = batch or self.new_batch()
        slot.open = Open(self._requests, trigger, asked, batch, deadline, asker, why, apart_s, cap)
        self._counters.windows["requested"] += 1
        self._counters.asked[why] += 1
        message = {
            "type": protocol.TAKE_WINDOW,
            "request": self._requests,
            "trigger": str(trigger),
            "steps": asked.steps,
            "duration_ms": asked.duration_ms,
            "max_ms": asked.max_ms,
            "shapes": asked.shapes,
            "timeout_ms": int(FIRST_STEP_WITHIN_S * 1e3),
        }
        if align is not None:
            message["align"] = list(align)
        if at_steps:
            message["at_steps"] = list(at_steps)
            message["align"] = [APART_MOST, at_steps[0]]  # for hooks that do not know of lists
        if member.hello.close_path == protocol.NPU:
            message["metrics"] = self._metrics[slot.rates.taken % len(self._metrics)]
        self._asked(member)
        return "" if member.connection.send(message) else "gone"

    def _event_cap(self, slot: Slot) -> int:
        run = [slot] if slot.run is None else [s for s in self._slots.values() if s.run == slot.run]
        return governor.event_cap((s.spending for s in run), self.budget, self.interval_s, self._max_events)

    def _expected_ns(self, slot: Slot, asked: Plan | None) -> float:
        """What a window will cost; one asked for by somebody may be longer than those it is reckoned by."""
        spending, per_step = slot.spending, slot.rates.events_per_step
        if asked is None or not per_step or spending.ns_an_event is None:
            return spending.expected_ns
        return max(spending.expected_ns, spending.ns_an_event * per_step * (asked.steps + WARM_UP_STEPS))

    def answered(self, member: Member, request: int, *, refused: str = "", detail: str = "") -> Open | None:
        """Match an answer to the open request and plan the next; None where nothing was asked or it came too late."""
        slot = self._slots.get(member)
        if slot is None or slot.open is None or slot.open.request != request:
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

    def paid(
        self, member: Member, asked: Open, cost: Cost | None, events: int, after_steps: int | None
    ) -> float | None:
        """Charge a window to its job. Where it shows that steps stay slower, by how much: no more are asked for."""
        slot = self._slots.get(member)
        if slot is None:
            return None
        now = asyncio.get_running_loop().time()
        self._charge(slot, asked, slot.spending.observe(cost, events, after_steps))
        residue, slot.spending.residue = slot.spending.residue, None
        if residue is not None:
            slot.account.resting_until = now + governor.RESIDUE_REST_S
        return residue

    def late(self, member: Member, request: int | None) -> Open | None:
        """The request that a process answered too late; None for what was never asked, or is answered already."""
        slot = self._slots.get(member)
        if slot is None or slot.unanswered is None or slot.unanswered.request != request:
            return None
        late, slot.unanswered = slot.unanswered, None
        return late

    def owes(self, member: Member, asked: Open) -> None:
        """Charge a window of which nothing is known that it cost."""
        slot = self._slots.get(member)
        if slot is not None:
            self._charge(slot, asked, standing.owed(slot, asked))

    @staticmethod
    def _charge(slot: Slot, asked: Open, paid: Paid) -> None:
        slot.account.pay(asyncio.get_running_loop().time(), asked.batch, paid.cost_ns, paid.node_ns)
        slot.charged = paid

    def state_of_window(self, member: Member, asked: Open) -> BudgetState | None:
        """How the account stands once a window was paid for; None where the process is gone."""
        slot = self._slots.get(member)
        return None if slot is None else standing.of_window(slot, asked, asyncio.get_running_loop().time())

    def states(self, taken: Collection[int]) -> list[ProcessState]:
        """What the next segment tells of processes; ``taken`` are the ids of those whose windows it holds."""
        due = self._standing.due(self._slots.values(), taken, asyncio.get_running_loop().time())
        return self._standing.states((slot, self._state(slot)) for slot in due)

    def _state(self, slot: Slot) -> BudgetState:
        now = asyncio.get_running_loop().time()
        return standing.of_process(slot, now, self._interval(slot), self._event_cap(slot))

    def spent_shares(self) -> list[float]:
        """What windows cost each job that is registered, of its time."""
        now = asyncio.get_running_loop().time()
        return [a.spent_share(now) for a in {id(s.account): s.account for s in self._slots.values()}.values()]

    def budget_of(self, member: Member) -> dict[str, object]:
        """What its windows cost, and when and why so the next one."""
        slot = self._slots[member]
        loop, paid, state = asyncio.get_running_loop(), slot.spending.recent, self._state(slot)
        return {
            "spent_share": state.spent_share,
            "measured": paid[-1].measured if paid else None,
            "window_cost_ns": round(slot.spending.expected_ns) if paid else None,
            "next_s": round(max(0.0, slot.timer.when() - loop.time()), 1) if slot.timer is not None else None,
            "reason": state.reason,
            "interval_s": (state.interval_ns or 0) / 1e9,
            "event_cap": state.event_cap,
            "balance_ns": state.balance_ns,
            "skipped": dict(slot.skipped),
        }

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

    def limited(self, member: Member, wish: Wish) -> bool:
        """Whether as many steps as wished would be too many events."""
        slot = self._slots.get(member)
        return slot is None or plan(slot.rates, wish, self._max_events).steps < wish.steps

    def represents_ns(self, member: Member, start_unix_ns: int) -> int | None:
        """Time since the process's previous window, at most two intervals; None for the first or after a clock jump.

        An interval is that of the schedule, or what the budget made of it.
        """
        slot = self._slots.get(member)
        if slot is None:
            return None
        before, slot.last_start_ns = slot.last_start_ns, start_unix_ns
        if before is None or start_unix_ns <= before:
            return None
        return min(start_unix_ns - before, int(2 * max(self.interval_s, slot.rested_s) * 1e9))

    def _pause(self, slot: Slot) -> float:
        return self._interval(slot) * slot.jitter

    def _interval(self, slot: Slot) -> float:
        known = slot.rates.settled or not slot.rates.taken
        return self.interval_s if known else max(INTERVAL_LEAST_S, self.interval_s / SOONER)

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
        least = min(SPACING_S, self.interval_s / (2 * max(1, len(self._slots))))
        if meeting is not None:
            return least
        jobs = len({id(slot.account) for slot in self._slots.values()})
        return max(least, min(SPREAD_S, self.interval_s / (8 * max(1, jobs))))

    def _meeting(self, slot: Slot, ranks: Sequence[Slot], now: float) -> Meeting | None:
        """Where the process's job meets next; None for no rank of several, and while its steps are not known."""
        if slot.run is None:
            return None
        paid_s = max(each.spending.expected_ns for each in ranks) / (self.budget.share * 1e9)
        return next_meeting(key_of(slot.run), slot.pace, self._interval(slot), now, paid_s)

    def _ask(self, ranks: Sequence[Slot], meeting: Meeting | None) -> None:
        """Ask one process, or the ranks of one job for the same steps."""
        together = len(ranks) > 1 or meeting is not None
        steps = meeting.steps if meeting is not None else ()
        jitter = random.uniform(1 - JITTER, 1 + JITTER)
        trigger, batch = (Trigger.SYNCHRONIZED if together else Trigger.PERIODIC), self.new_batch()
        wish = replace(self.wish, shapes=not self._go_without(ranks))
        for each in ranks:
            each.jitter = jitter
            if self.request(each.member, wish, trigger, None, batch, at_steps=steps) == OVER_BUDGET:
                each.reason = governor.HARD_STOP
                self._arm(each, self.interval_s * jitter)
            elif meeting is not None:
                each.rested_s = max(each.rested_s, meeting.apart_s)

    def _go_without(self, ranks: Sequence[Slot]) -> bool:
        """Whether the next windows go without shapes: the budget is short, and all of them can borrow."""
        short = any(each.reason == governor.BUDGET or self._event_cap(each) < self._max_events for each in ranks)
        return short and all(each.lending.may_go_without(self._light) for each in ranks)

    def lends(self, asked: Open) -> bool:
        """Whether a window with shapes should tell its step: others may go without soon."""
        short = asked.reason == governor.BUDGET or asked.event_cap < self._max_events
        return self._light > 0 and short and asked.asker is None

    def lent(self, member: Member) -> bytes:
        """What a window of this process may borrow."""
        slot = self._slots.get(member)
        return b"" if slot is None else slot.lending.lent

    def shapes_read(self, member: Member, *, lent: bytes | None = None, borrowed: str = "") -> None:
        """A window was read: ``lent`` what it lends (None: it was not asked), or ``borrowed`` what became of that."""
        slot = self._slots.get(member)
        if slot is None:
            return
        if lent is not None:
            room = TOTAL - sum(len(other.lending.kept) for other in self._slots.values() if other is not slot)
            slot.lending.with_shapes(lent, room)
        elif borrowed:
            slot.lending.without(borrowed)

    def new_batch(self) -> int:
        """A number for requests of one job, for the same steps."""
        self._batches += 1
        return self._batches

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
            self._charge(slot, slot.open, standing.owed(slot, slot.open))
            self.answered(slot.member, slot.open.request, refused="no_answer")
