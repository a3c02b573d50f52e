"""The real agent on a clock that can pass over the minutes in which nothing happens. For ``bench/overhead.py``.

    python bench/_overhead_agent.py FLAGS OF THE AGENT

All of the agent runs as it is: schedule, governor, parse worker, spool. Only its event loop's clock stands still
between two questions on standard input, each answered by one line of JSON on standard output:

    next STEP       pass over the time until the next window is due; answer when it has been taken, read and paid for,
                    or when the governor has put it off. Ranks of several meet at the steps after STEP: the schedule's
                    own meetings are steps that are never made while time is passed over.
    interval S      another interval from now on, with nothing saved up
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
import time
from typing import Any

from roofwatch.agent import config, daemon
from roofwatch.agent.assembly import Agent
from roofwatch.agent.ranks import LISTED, Meeting
from roofwatch.agent.scheduler import JITTER, Scheduler
from roofwatch.agent.slot import Slot

BEFORE_S = 0.3  # of a window's time the clock runs again, so that what is due before it is done before it as in life
FAR_S = 2.0  # a window put off by more than what ranks wait for each other
LOOK_S = 0.002


class Clock(asyncio.SelectorEventLoop):
    """An event loop whose time stands still, runs, or jumps."""

    skipped = 0.0
    stopped: float | None = None

    def time(self) -> float:
        return self.stopped if self.stopped is not None else super().time() + self.skipped

    def stop_clock(self) -> None:
        self.stopped = self.time()

    def run_clock(self) -> None:
        if self.stopped is not None:
            self.skipped, self.stopped = self.stopped - super().time(), None


class Clocks(asyncio.DefaultEventLoopPolicy):
    """Gives the loop above."""

    _loop_factory = Clock


class Watched(Agent):
    """The agent, asked over standard input."""

    def start(self) -> None:
        super().start()
        self._clock: Any = asyncio.get_running_loop()
        self._scheduler: Scheduler = self._intake.scheduler
        self._books = self._scheduler.books
        self._clock.add_reader(0, self._asked_for)
        self._work: Any = None
        self._last = self._clock.time()  # when the last window was done…
        self._held = False  # …or put off
        self._paid: list[int] = []
        pay = self._books.paid

        def paid(member: Any, asked: Any, cost: Any, events: int, after: Any) -> Any:
            self._paid.append(events)
            return pay(member, asked, cost, events, after)

        self._books.paid = paid  # type: ignore[assignment, method-assign]

    def _asked_for(self) -> None:
        line = sys.stdin.readline()
        if not line:
            self._clock.remove_reader(0)
            return
        word, _, value = line.strip().partition(" ")
        if word == "next":
            self._work = asyncio.ensure_future(self._next(int(value)))
        elif word == "interval":
            self._scheduler.set_schedule(float(value), 0, 0)  # type: ignore[arg-type]  # tenths of seconds, too
            for slot in self._slots():
                slot.account.balance_ns = 0.0
            self._say({"virtual_s": self._clock.time()})
        elif word == "processes":
            self._clock.stop_clock()
            self._say({"processes": len(self._slots())})

    def _slots(self) -> list[Slot]:
        return list(self._books.slots.values())

    def _say(self, what: dict[str, Any]) -> None:
        print(json.dumps(what), flush=True)

    def _free(self) -> bool:
        return not self._intake.parser.backlog and all(slot.free for slot in self._slots())

    def _due(self) -> float:
        ranks = [slot for slot in self._slots() if slot.run is not None]
        if (
            ranks and not self._held
        ):  # of these the schedule keeps no timer, only meetings: on average an interval apart
            return float(self._last + self._scheduler.schedule.interval_s * random.uniform(1 - JITTER, 1 + JITTER))
        return min((slot.timer.when() for slot in self._slots() if slot.timer is not None), default=self._clock.time())

    def _put_off(self) -> bool:
        """Whether no window is to come soon."""
        timers = [slot.timer.when() for slot in self._slots() if slot.timer is not None]
        return bool(timers) and min(timers) > self._clock.time() + FAR_S

    async def _next(self, step: int) -> None:
        clock, counted = self._clock, self._counters
        meeting = Meeting(0.0, tuple(range(step, step + LISTED)), self._scheduler.schedule.interval_s)
        self._scheduler.meet(lambda *_: meeting)
        clock.run_clock()
        clock.skipped += max(0.0, self._due() - BEFORE_S - clock.time())
        asked, refused = counted.windows["requested"], counted.refusals.total()
        begun, self._paid = time.monotonic_ns(), []
        while True:
            await asyncio.sleep(LOOK_S)
            taken = counted.windows["requested"] > asked
            if self._free() and (taken or self._put_off()):
                break
        clock.stop_clock()
        self._last, self._held = clock.time(), counted.windows["requested"] == asked
        self._say(
            {
                "begun_ns": begun,
                "taken": len(self._paid),
                "asked": counted.windows["requested"] - asked,
                "refused": counted.refusals.total() - refused,
                "virtual_s": clock.time(),
                "settled": all(slot.rates.settled for slot in self._slots()),
                "reason": next((slot.reason for slot in self._slots()), None),
                "believed_ns": max(
                    (s.spending.recent[-1].cost_ns for s in self._slots() if s.spending.recent), default=None
                ),
                "events": self._paid,
            }
        )


if __name__ == "__main__":
    asyncio.set_event_loop_policy(Clocks())
    sys.exit(daemon.run(config.parse(sys.argv[1:], prog="overhead agent"), kind=Watched))
