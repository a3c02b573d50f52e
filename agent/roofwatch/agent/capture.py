"""Windows on request: somebody asks through the store, and is told of each process what became of it.

A request goes ahead of the schedule: it waits for a window that is already asked for, and for nothing else. Like every
window it is paid from the job's account, and what is over the hard stop is not taken. A process whose steps are not
known yet is asked again, so that a window has the steps that were asked for; the last one is told.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from roofwatch.agent.counters import Counters
from roofwatch.agent.keeping import Keeping
from roofwatch.agent.log import Log
from roofwatch.agent.plan import Wish
from roofwatch.agent.registry import Member
from roofwatch.agent.scheduler import Scheduler
from roofwatch.agent.slot import Asker, Ended
from roofwatch.hook import protocol
from roofwatch.model.record import Trigger, Window
from roofwatch.proto.v1 import roofwatch_pb2 as pb

WAITING_MOST = 1024  # processes asked by hand and not answered; more are refused
AGAIN_S = 0.2  # a process that owes another window is looked at so often
APART_S = 4.0  # between two steps at which ranks that are asked again may open
TRIES = 3  # windows at most until one has the steps asked for
WITHIN_MOST_S = 600.0
TEXT_MOST = 200
LOGGED = 32  # pids
BUSY_HERE = "too_many"  # captures on this node
UNWRITTEN = "it is still being written: see 'roofwatch trace list'"

Tell = Callable[[pb.AgentMessage], None]


@dataclass(slots=True, eq=False)
class _Wanted:
    """One process's window, from the request to its end."""

    id: str
    member: Member
    wish: Wish
    align: Sequence[int] | None
    keep: bool
    batch: int
    timer: asyncio.TimerHandle | None = None
    deadline: asyncio.TimerHandle | None = None
    tries: int = 0
    asked: bool = False
    over: bool = False
    short: Window | None = None  # taken, with fewer steps than asked for
    taken: Window | None = None  # the one; its trace is still being written

    def outcome(self, outcome: pb.Outcome, reason: str = "", detail: str = "") -> pb.WindowOutcome:
        """The message's first fields."""
        return pb.WindowOutcome(
            id=self.id, process=f"{self.member.process.id:016x}", outcome=outcome, reason=reason[:TEXT_MOST],
            detail=detail[:TEXT_MOST], steps=-1, first_step=-1,
        )  # fmt: skip


class Captures:
    """All requests by hand of one agent. Runs in the event loop's thread."""

    def __init__(self, scheduler: Scheduler, keeping: Keeping, counters: Counters, log: Log, tell: Tell) -> None:
        self._scheduler = scheduler
        self._keeping = keeping
        self._counters = counters
        self._log = log
        self._tell = tell
        self._open: set[_Wanted] = set()

    def take(self, identity: str, wanted: pb.TakeWindow, members: Iterable[Member]) -> None:
        """Ask the processes named; each is told about when it is asked and at its end."""
        known = {f"{member.process.id:016x}": member for member in members}
        usual, loop = self._scheduler.schedule.wish, asyncio.get_running_loop()
        wish = Wish(wanted.steps or usual.steps, wanted.duration_ms or usual.duration_ms)
        align = (wanted.modulus, wanted.remainder) if wanted.modulus else None
        within_s = min(WITHIN_MOST_S, wanted.within_ms / 1e3 or WITHIN_MOST_S)
        self._tell_who(wanted, [known[process] for process in wanted.processes if process in known])
        batch = self._scheduler.new_batch()
        for process in wanted.processes:
            member = known.get(process)
            if member is None:
                gone = pb.WindowOutcome(id=identity, process=process[:TEXT_MOST], outcome=pb.REFUSED, reason="gone")
                self._send(gone)
                continue
            one = _Wanted(identity, member, wish, align, wanted.keep_trace, batch)
            if len(self._open) >= WAITING_MOST:
                self._send(one.outcome(pb.REFUSED, BUSY_HERE))
                continue
            self._open.add(one)
            one.deadline = loop.call_later(within_s, self._too_late, one)
            self._try(one)

    def _tell_who(self, wanted: pb.TakeWindow, members: Sequence[Member]) -> None:
        """For who asks later who had whom profiled."""
        jobs = {member.process.job: None for member in members if member.process.job}
        pids = ",".join(str(member.process.pid) for member in members[:LOGGED])
        self._log.audit(
            "capture", by=wanted.asked_by or None, job=next(iter(jobs), None), processes=len(wanted.processes),
            pids=pids or None, steps=wanted.steps or None, keep_trace=wanted.keep_trace,
        )  # fmt: skip

    def stop(self) -> None:
        """Wait for nothing more."""
        for one in list(self._open):
            self._failed(one, pb.TIMED_OUT, "stopping")

    def _try(self, one: _Wanted) -> None:
        one.timer = None
        asker = Asker(lambda ended: self._ended(one, ended), one.keep)
        # Ranks pay together; a process that is asked again pays for each.
        batch = one.batch if not one.tries else 0
        # Who asked did not know the steps of a rank that is asked again; its job's meetings need nobody's word.
        steps = self._scheduler.meetings_of(one.member, APART_S) if one.tries and one.align else ()
        reason = self._scheduler.request(
            one.member, one.wish, Trigger.REQUESTED, one.align, batch, at_steps=steps, asker=asker
        )
        if one.over:  # its connection broke, and we have been told
            return
        if reason == protocol.BUSY:
            one.timer = asyncio.get_running_loop().call_later(AGAIN_S, self._try, one)
        elif reason:
            self._failed(one, pb.REFUSED, reason)
        else:
            one.tries += 1
            if not one.asked:
                one.asked = True
                self._send(one.outcome(pb.ASKED))

    def _ended(self, one: _Wanted, ended: Ended) -> None:
        if one.over:
            return
        window = ended.window
        if window is None:
            self._failed(one, pb.LOST if ended.taken else pb.REFUSED, ended.reason, ended.detail)
            return
        if one.short is not None and one.keep:
            self._keeping.forget(one.short.uid)
        one.short = None
        if self._too_short(one, window):
            one.short = window
            one.timer = asyncio.get_running_loop().call_later(0, self._try, one)
        else:
            self._have(one, window)

    def _failed(self, one: _Wanted, outcome: pb.Outcome, reason: str, detail: str = "") -> None:
        """No window came of this; one that is there, if only a shorter one, is one."""
        if one.taken is not None:
            self._taken(one, one.taken, UNWRITTEN)
        elif one.short is not None:
            window, one.short = one.short, None
            self._have(one, window)
        else:
            self._end(one, one.outcome(outcome, reason, detail))

    def _have(self, one: _Wanted, window: Window) -> None:
        """This is the one; its trace may still be on its way to the disk."""
        if one.keep:
            one.taken = window
            self._keeping.settled(window.uid, lambda why: self._taken(one, window, why))
        else:
            self._taken(one, window, None)

    def _too_short(self, one: _Wanted, window: Window) -> bool:
        """Whether it has fewer steps than asked for because too little was known of the process: the next may not."""
        if window.first_step is None or one.tries >= TRIES:
            return False
        return (window.steps or 0) < one.wish.steps and not self._scheduler.books.limited(one.member, one.wish)

    def _taken(self, one: _Wanted, window: Window, not_kept: str | None) -> None:
        """``not_kept``: why its trace was not, "" where it was, None where it was not to be."""
        if one.over:
            return
        found = one.outcome(pb.TAKEN)
        found.window, found.duration_ns = bytes.fromhex(window.uid), window.duration_ns
        found.steps = -1 if window.steps is None else window.steps
        found.first_step = -1 if window.first_step is None else window.first_step
        found.kept, found.not_kept = not_kept == "", (not_kept or "")[:TEXT_MOST]
        self._end(one, found)

    def _too_late(self, one: _Wanted) -> None:
        self._failed(one, pb.TIMED_OUT, "no_answer" if one.asked else protocol.BUSY)

    def _end(self, one: _Wanted, outcome: pb.WindowOutcome) -> None:
        one.over = True
        self._open.discard(one)
        for timer in (one.timer, one.deadline):
            if timer is not None:
                timer.cancel()
        self._counters.captures[pb.Outcome.Name(outcome.outcome).lower()] += 1
        self._send(outcome)

    def _send(self, outcome: pb.WindowOutcome) -> None:
        self._tell(pb.AgentMessage(outcome=outcome))
