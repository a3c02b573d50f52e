"""Hours of two nodes' schedules in a second: the agents' own schedulers, ranks that are counted by a made-up clock."""

from __future__ import annotations

import asyncio
import random
import selectors
from bisect import bisect_right
from typing import Any

import pytest

from roofwatch.agent.config import Config
from roofwatch.agent.counters import Counters
from roofwatch.agent.messages import hello_of
from roofwatch.agent.plan import Seen
from roofwatch.agent.scheduler import Scheduler
from roofwatch.model.record import Cost, Node, Process

MS = 1_000_000
RESIDUE_STEPS, RESIDUE_S = 12, 4.5  # as the hook waits after a window
PATIENCE_S = 30.0  # as a hook waits for a step


class _Leaping(selectors.SelectSelector):
    """Waits by putting its own clock forward."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0

    def select(self, timeout: float | None = None) -> Any:
        found = super().select(0)
        if not found and timeout:
            self.now += timeout
        return found


class Rank:
    """A rank as an agent hears it: opens at the first listed step ahead, answers when all of its window is over."""

    def __init__(self, number: int, ends: list[float], step_s: float, lost_ms: float) -> None:
        self.ends, self.step_s, self.lost_ms = ends, step_s, lost_ms
        self.connection = self
        self.process = Process(Node(f"node-{number}"), 100 + number, job="slurm:7.0", rank=number, world_size=2)
        self.hello = hello_of({"protocol": 1, "close_path": "native"})
        self.together: set[int] = set()
        self.scheduler: Scheduler

    def send(self, message: dict[str, Any]) -> bool:
        asyncio.get_running_loop().call_later(random.uniform(0.001, 0.05), self._asked, message)
        return True

    def _asked(self, message: dict[str, Any]) -> None:
        loop = asyncio.get_running_loop()
        count = bisect_right(self.ends, loop.time())
        listed = message.get("at_steps", [count + 1])
        first = next((step for step in listed if step > count), None)
        if first is None:
            self._refuse(message)
        elif self.ends[first - 1] > loop.time() + PATIENCE_S:
            loop.call_later(PATIENCE_S, self._refuse, message)
        else:
            over = self.ends[first + message["steps"] - 1] + min(RESIDUE_STEPS * self.step_s, RESIDUE_S)
            loop.call_at(over, self._answer, message, first)

    def _told(self) -> None:
        count = bisect_right(self.ends, asyncio.get_running_loop().time())
        self.scheduler.stepped(self, count, int(self.step_s * 1e9))  # type: ignore[arg-type]

    def _refuse(self, message: dict[str, Any]) -> None:
        self._told()
        self.scheduler.answered(self, message["request"], refused="no_steps")  # type: ignore[arg-type]

    def _answer(self, message: dict[str, Any], first: int) -> None:
        self._told()
        asked = self.scheduler.answered(self, message["request"])  # type: ignore[arg-type]
        assert asked is not None
        if "at_steps" in message:
            self.together.add(first)
        lost = int(self.lost_ms * MS * random.uniform(0.5, 1.5))
        cost = Cost("native", MS, 0, 0, 0, 0, int(self.step_s * 1e9), None, lost, 0)
        seen = Seen(50 * MS, 5000, message["steps"], int(self.step_s * 1e9))

        def read() -> None:
            self.scheduler.books.paid(self, asked, cost, 5000, 10)  # type: ignore[arg-type]
            self.scheduler.learned(self, seen)  # type: ignore[arg-type]

        asyncio.get_running_loop().call_later(random.uniform(0.3, 1.3), read)


def hours_of(
    hours: float, step_s: float, lost_ms: tuple[float, float], pause_s: float = 0.0, every: int = 600
) -> list[Rank]:
    """Two nodes with a rank each; the job's steps vary by 5 %, and after ``every`` of them it pauses."""
    random.seed(4)
    ends, now = [], 5.0
    while now < hours * 3600 + 300:
        now += step_s * random.uniform(0.95, 1.05) + (pause_s if len(ends) % every == every - 1 else 0.0)
        ends.append(now)
    ranks = [Rank(number, ends, step_s, lost_ms[number]) for number in range(2)]
    clock = _Leaping()
    loop = asyncio.SelectorEventLoop(clock)
    loop.time = lambda: clock.now  # type: ignore[method-assign]

    async def live() -> None:
        for rank in ranks:
            rank.scheduler = Scheduler(Config(), Counters(), lambda: 0)
            await asyncio.sleep(random.uniform(0, 3))
            rank.scheduler.add(rank)  # type: ignore[arg-type]
        await asyncio.sleep(hours * 3600)
        for rank in ranks:
            rank.scheduler.stop()

    try:
        loop.run_until_complete(live())
    finally:
        loop.close()
    return ranks


@pytest.mark.parametrize(
    ("step_s", "lost_ms", "pause_s", "windows", "share"),
    [
        (0.1, (5, 5), 0.0, (150, 600), 0.98),  # by the interval: 51 s on average, 4 hours
        (1.3, (5, 5), 0.0, (150, 600), 0.98),
        (0.1, (5, 5), 10.0, (80, 600), 0.95),  # a checkpoint of 10 s a minute
        (0.1, (600, 150), 0.0, (50, 150), 0.98),  # one node's budget pays a window in two minutes: of the other's steps
        (0.1, (2000, 2000), 0.0, (15, 45), 0.6),  # both pay one in 400 s, each by its own account
    ],
)
def test_two_nodes_meet_for_hours(
    step_s: float, lost_ms: tuple[float, float], pause_s: float, windows: tuple[int, int], share: float
) -> None:
    """Of the windows of the node that takes fewer, nearly all are at steps of the other's."""
    first, second = (rank.together for rank in hours_of(4, step_s, lost_ms, pause_s))
    fewer = min(len(first), len(second))
    assert windows[0] <= fewer <= windows[1]
    assert len(first & second) >= share * fewer
