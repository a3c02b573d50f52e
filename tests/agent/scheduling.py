"""A scheduler without sockets: processes that keep what they are asked, and answers with a cost."""

from __future__ import annotations

import asyncio

from roofwatch.agent.config import Config
from roofwatch.agent.counters import Counters
from roofwatch.agent.messages import hello_of
from roofwatch.agent.plan import Seen
from roofwatch.agent.scheduler import Scheduler
from roofwatch.model.record import Cost, Node, Process

MS = 1_000_000


class Peer:
    """A registered process's end of the conversation: keeps what it is sent, and when."""

    def __init__(self, close_path: str = "native", rank: int | None = None, job: str | None = "slurm:7.0") -> None:
        self.connection = self
        self.process = Process(Node("here"), 100 + (rank or 0), job=job, rank=rank, world_size=8)
        self.hello = hello_of({"protocol": 1, "close_path": close_path})
        self.sent: list[dict] = []
        self.times: list[float] = []

    def send(self, message) -> bool:
        self.sent.append(message)
        self.times.append(asyncio.get_running_loop().time())
        return True


def scheduled(peers: int, backlog=lambda: 0, **settings):
    """A scheduler, its counters, and this many processes."""
    counters = Counters()
    scheduler = Scheduler(Config(**settings), counters, backlog)
    members = [Peer() for _ in range(peers)]
    for member in members:
        scheduler.add(member)
    return scheduler, counters, members


def lost(ms: float, base_ms: float = 10, after_ms: float = 0) -> Cost:
    """What a window cost, by the steps."""
    return Cost("native", MS, 0, 0, 0, 0, int(base_ms * MS), None, int(ms * MS), int(after_ms * MS))


def answer(scheduler, member, cost, after_steps=20):
    """A process hands in the window it was asked for last, which had this cost."""
    asked = scheduler.answered(member, member.sent[-1]["request"])
    told = scheduler.books.paid(member, asked, cost, 5000, after_steps)
    scheduler.learned(member, Seen(50 * MS, 5000, 2, 10 * MS))
    return told
