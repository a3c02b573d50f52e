"""The books of this node's processes: what their windows cost and may cost, how they stand, what their windows lend."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence

from roofwatch.agent import governor, standing
from roofwatch.agent.governor import Account, Budget, Paid
from roofwatch.agent.lending import DIGEST, TOTAL
from roofwatch.agent.plan import WARM_UP_STEPS, Plan, Wish, plan
from roofwatch.agent.ranks import run_of
from roofwatch.agent.registry import Member
from roofwatch.agent.schedule import Schedule
from roofwatch.agent.slot import Open, Slot
from roofwatch.agent.standing import Standing
from roofwatch.model.record import BudgetState, Cost, ProcessState

FORMER_MOST = 1024  # accounts of jobs that are gone


class Books:
    """Keeps the slots of all registered processes. Runs in the event loop's thread."""

    def __init__(self, schedule: Schedule) -> None:
        self.slots: dict[Member, Slot] = {}
        self._schedule = schedule
        self._standing = Standing()
        self._former: dict[object, Account] = {}  # a job that comes back has what it had, debts too

    def enter(self, member: Member) -> Slot:
        """Begin with a process; the ranks of one run share an account."""
        run = run_of(member.process)
        shared = next((s.account for s in self.slots.values() if run is not None and s.run == run), None)
        slot = self.slots[member] = Slot(member, shared or self._account(_job_of(member)), run=run)
        return slot

    def _account(self, job: object) -> Account:
        """The one that a job had when it was here last, else a new one."""
        account = self._former.pop(job, None)
        if account is None:
            return Account(self._schedule.budget, _now())
        account.updated = _now()  # while it was away it earned nothing
        account.budget = self._schedule.budget
        return account

    def part(self, slot: Slot) -> None:
        """A process is gone: the next segment tells how it stood."""
        self._standing.part(slot, self._state(slot))
        job = _job_of(slot.member)
        if job is not None and all(other.account is not slot.account for other in self.slots.values()):
            self._former.pop(job, None)
            self._former[job] = slot.account
            while len(self._former) > FORMER_MOST:
                del self._former[next(iter(self._former))]

    def accounts(self) -> list[Account]:
        """One for each job."""
        return list({id(s.account): s.account for s in self.slots.values()}.values())

    def rebudget(self, budget: Budget) -> None:
        """Let every job earn by another budget from now on; what was earned so far was earned by the old one."""
        for account in self.accounts():
            account.earn(_now())
            account.budget = budget

    def event_cap(self, slot: Slot) -> int:
        """Events that a window of this process's job may hold."""
        run = [slot] if slot.run is None else [s for s in self.slots.values() if s.run == slot.run]
        schedule = self._schedule
        return governor.event_cap((s.spending for s in run), schedule.budget, schedule.interval_s, schedule.max_events)

    def limited(self, member: Member, wish: Wish) -> bool:
        """Whether as many steps as wished would be too many events."""
        slot = self.slots.get(member)
        return slot is None or plan(slot.rates, wish, self._schedule.max_events).steps < wish.steps

    def paid(
        self, member: Member, asked: Open, cost: Cost | None, events: int, after_steps: int | None
    ) -> float | None:
        """Charge a window to its job. Where it shows that steps stay slower, by how much: no more are asked for."""
        slot = self.slots.get(member)
        if slot is None:
            return None
        now = _now()
        self._charge(slot, asked, slot.spending.observe(cost, events, after_steps))
        residue, slot.spending.residue = slot.spending.residue, None
        if residue is not None:
            slot.account.resting_until = now + governor.RESIDUE_REST_S
        return residue

    def owes(self, member: Member, asked: Open) -> None:
        """Charge a window of which nothing is known that it cost."""
        slot = self.slots.get(member)
        if slot is not None:
            self.charge_owed(slot, asked)

    def charge_owed(self, slot: Slot, asked: Open) -> None:
        """Charge a window that never told, also where its process is gone: the other ranks pay for it."""
        self._charge(slot, asked, standing.owed(slot, asked))

    @staticmethod
    def _charge(slot: Slot, asked: Open, paid: Paid) -> None:
        slot.account.pay(_now(), asked.batch, paid.cost_ns, paid.node_ns)
        slot.charged = paid

    def represents_ns(self, member: Member, start_unix_ns: int) -> int | None:
        """Time since the process's previous window, at most two intervals; None for the first or after a clock jump.

        An interval is that of the schedule, or what the budget made of it.
        """
        slot = self.slots.get(member)
        if slot is None:
            return None
        before, slot.last_start_ns = slot.last_start_ns, start_unix_ns
        if before is None or start_unix_ns <= before:
            return None
        return min(start_unix_ns - before, int(2 * max(self._schedule.interval_s, slot.rested_s) * 1e9))

    def state_of_window(self, member: Member, asked: Open) -> BudgetState | None:
        """How the account stands once a window was paid for; None where the process is gone."""
        slot = self.slots.get(member)
        return None if slot is None else standing.of_window(slot, asked, _now())

    def states(self, taken: Collection[int]) -> list[ProcessState]:
        """What the next segment tells of processes; ``taken`` are the ids of those whose windows it holds."""
        due = self._standing.due(self.slots.values(), taken, _now())
        return self._standing.states((slot, self._state(slot)) for slot in due)

    def _state(self, slot: Slot) -> BudgetState:
        return standing.of_process(slot, _now(), self._schedule.interval_of(slot), self.event_cap(slot))

    def spent_shares(self) -> list[float]:
        """What windows cost each job that is registered, of its time."""
        now = _now()
        return [account.spent_share(now) for account in self.accounts()]

    def budget_of(self, member: Member) -> dict[str, object]:
        """What its windows cost, and when and why so the next one."""
        slot = self.slots[member]
        paid, state = slot.spending.recent, self._state(slot)
        return {
            "spent_share": state.spent_share,
            "measured": paid[-1].measured if paid else None,
            "window_cost_ns": round(slot.spending.expected_ns) if paid else None,
            "next_s": round(max(0.0, slot.timer.when() - _now()), 1) if slot.timer is not None else None,
            "reason": state.reason,
            "interval_s": (state.interval_ns or 0) / 1e9,
            "event_cap": state.event_cap,
            "balance_ns": state.balance_ns,
            "skipped": dict(slot.skipped),
        }

    def may_go_without(self, ranks: Sequence[Slot]) -> bool:
        """Whether their next windows go without shapes: the budget is short, and all of them can borrow."""
        most = self._schedule.max_events
        short = any(each.reason == governor.BUDGET or self.event_cap(each) < most for each in ranks)
        return short and all(each.lending.may_go_without(self._schedule.light) for each in ranks)

    def lends(self, asked: Open) -> bool:
        """Whether a window with shapes should tell its step: others may go without soon."""
        short = asked.reason == governor.BUDGET or asked.event_cap < self._schedule.max_events
        return self._schedule.light > 0 and short and asked.asker is None

    def lent(self, member: Member, *, agreed: bool = True) -> bytes:
        """What a window of this process may borrow; not ``agreed``: what the last one with shapes lent."""
        slot = self.slots.get(member)
        return b"" if slot is None else slot.lending.lent if agreed else slot.lending.kept[DIGEST:]

    def shapes_read(self, member: Member, *, lent: bytes | None = None, borrowed: str = "") -> None:
        """A window was read: ``lent`` what it lends (None: it was not asked), or ``borrowed`` what became of that."""
        slot = self.slots.get(member)
        if slot is None:
            return
        if lent is not None:
            room = TOTAL - sum(len(other.lending.kept) for other in self.slots.values() if other is not slot)
            slot.lending.with_shapes(lent, room)
        elif borrowed:
            slot.lending.without(borrowed)


def _job_of(member: Member) -> object:
    """What an account is kept by; None for a process that nobody but itself says who it is."""
    process = member.process
    return run_of(process) or (None if process.start_unix_ns is None else process.id)


def expected_ns(slot: Slot, asked: Plan | None = None) -> float:
    """What a window will cost; one asked for by somebody may be longer than those it is reckoned by."""
    spending, per_step = slot.spending, slot.rates.events_per_step
    if asked is None or not per_step or spending.ns_an_event is None:
        return spending.expected_ns
    return max(spending.expected_ns, spending.ns_an_event * per_step * (asked.steps + WARM_UP_STEPS))


def _now() -> float:
    return asyncio.get_running_loop().time()
