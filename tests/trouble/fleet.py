"""Simulated agents that speak the real protocol and note all they sent, and what a database holds of it."""

from __future__ import annotations

import asyncio
import random
import sqlite3
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc.aio
from postgres_server import Postgres

from roofwatch.cli.fleet import synthetic
from roofwatch.cli.fleet.agent import SimulatedAgent, Tally
from roofwatch.cli.fleet.templates import Sent, Source, host_of, templates
from roofwatch.model.record import Node, Process, Window
from roofwatch.proto import codec
from roofwatch.proto.trust import Material
from roofwatch.proto.v1 import roofwatch_pb2 as pb
from roofwatch.store import database, rollup
from roofwatch.store.filter import Filter
from roofwatch.store.given_up import GivenUp
from roofwatch.store.queries import Queries

DRAINED_S = 300.0  # where other work leaves us little of the machine
FAR_NS = 4 * 10**18


@dataclass(frozen=True)
class Place:
    """A database: a SQLite file, or one of a Postgres server."""

    file: Path
    postgres: Postgres | None = None
    name: str = ""

    @property
    def url(self) -> str:
        """For ``--db``."""
        return f"sqlite:///{self.file}" if self.postgres is None else self.postgres.url(self.name)

    def ask(self, statement: str) -> list[Any]:
        """Past all of the store's own code."""
        if self.postgres is not None:
            return self.postgres.run(statement, self.name)
        with closing(sqlite3.connect(self.file)) as connection:
            return connection.execute(statement).fetchall()

    def uids(self) -> list[str]:
        """Of all windows, as often as they are there."""
        return [bytes(uid).hex() for (uid,) in self.ask("SELECT uid FROM windows")]

    def windows(self) -> list[tuple[str, int]]:
        """Uid and kernels of each."""
        rows = self.ask("SELECT w.uid, b.rows FROM windows w LEFT JOIN kernel_blocks b ON b.window_id = w.id")
        return [(bytes(uid).hex(), rows or 0) for uid, rows in rows]

    def times(self, hosts: Sequence[str], *, summed_up: bool = False) -> dict[str, int]:
        """Kernel time that ``top`` tells of each node; from sums of hours and days alone where asked."""
        opened = database.open(self.url)
        try:
            if summed_up:
                broken = GivenUp()
                with opened.write() as connection:
                    while rollup.sweep(connection, FAR_NS, broken):
                        pass
                assert broken == set()
            found = {}
            for host in hosts:
                answer = Queries(opened).run("top", Filter(node=host))
                found[host] = sum(row["total_ns"] for row in answer["rows"])
                assert not summed_up or "raw" not in answer["coverage"]["sources"]
            return found
        finally:
            opened.close()


@dataclass(frozen=True)
class Noted:
    """What a segment held."""

    windows: dict[str, int]  # uid → kernels
    total_ns: int


@dataclass
class Noting:
    """A source that notes what it gives."""

    source: Source
    sent: dict[tuple[int, int], Noted] = field(default_factory=dict)

    @property
    def run(self) -> str:
        """The run's name."""
        return self.source.run

    @property
    def interval_ns(self) -> int:
        """Between two segments of a node."""
        return self.source.interval_ns

    def segment(self, node: int, sequence: int, now_ns: int) -> tuple[pb.SegmentEnvelope, list[Sent]]:
        """A segment of the source, noted."""
        envelope, sent = self.source.segment(node, sequence, now_ns)
        told = codec.unseal(envelope).windows
        windows = {w.uid.hex(): len(w.kernels.signature) for w in told}
        self.sent[node, sequence] = Noted(windows, sum(sum(w.kernels.total_ns) for w in told))
        return envelope, sent


class Agent(SimulatedAgent):
    """Notes what was acknowledged, and what it was told when a stream ended."""

    def __init__(self, node: int, source: Noting, tally: Tally) -> None:
        super().__init__(node, source, tally, Material())  # type: ignore[arg-type]
        self.acked: set[int] = set()
        self.told: Counter[str] = Counter()

    async def _converse(self, stub: Any) -> None:
        try:
            await super()._converse(stub)
        except grpc.aio.AioRpcError as error:
            self.told[f"{error.code().name}: {error.details()}"] += 1
            raise

    def _acked(self, ack: pb.Ack) -> None:
        super()._acked(ack)
        if ack.status in {pb.STORED, pb.DUPLICATE}:
            self.acked.add(ack.id.sequence)


@dataclass
class Fleet:
    """Agents, and all they know of what they sent."""

    nodes: int
    seconds: float
    interval_s: float = 0.25
    ranks: int = 2
    windows: Sequence[Window] | None = None  # by default small ones
    seed: int = 1
    run: str = "trouble"
    tally: Tally = field(default_factory=Tally)
    agents: list[Agent] = field(default_factory=list)
    _broken: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        jobs = templates(self.windows or small_windows(), self.ranks, random.Random(self.seed))
        self.noting = Noting(Source(jobs, self.run, int(self.interval_s * 1e9)))
        self.agents = [Agent(node, self.noting, self.tally) for node in range(self.nodes)]

    def acked(self) -> set[str]:
        """Uids of windows whose segment was acknowledged by now."""
        sent = self.noting.sent
        return {uid for node, a in enumerate(self.agents) for s in list(a.acked) for uid in sent[node, s].windows}

    def told(self) -> Counter[str]:
        """With what streams ended."""
        return sum((agent.told for agent in self.agents), Counter())

    @contextmanager
    def sending(self, *addresses: str) -> Iterator[None]:
        """Send to these in turns for a time while the block goes on; leaves it when all is acknowledged."""
        with ThreadPoolExecutor(1) as pool:
            work = pool.submit(asyncio.run, self._go(addresses))
            try:
                yield
            except BaseException:
                self._broken.set()
                raise
            work.result()

    async def _go(self, addresses: Sequence[str]) -> None:
        streams = [asyncio.create_task(a.run(addresses[i % len(addresses)])) for i, a in enumerate(self.agents)]
        watching = asyncio.create_task(asyncio.to_thread(self._broken.wait))
        sending = asyncio.create_task(self._send())
        try:
            await asyncio.wait({watching, sending}, return_when=asyncio.FIRST_COMPLETED)
            if sending.done():
                sending.result()
        finally:
            self._broken.set()
            for task in (*streams, sending):
                task.cancel()
            await asyncio.gather(*streams, sending, watching, return_exceptions=True)

    async def _send(self) -> None:
        until = time.monotonic() + self.seconds
        await asyncio.gather(*(agent.produce(until) for agent in self.agents))
        async with asyncio.timeout(DRAINED_S):
            await asyncio.gather(*(agent.drained() for agent in self.agents))

    def check(self, place: Place) -> None:
        """All that was sent is acknowledged and stored, each window once and whole, and the answers' sums are right."""
        assert self.tally.rejected == 0, self.tally.reason
        assert [set(range(1, agent._sequence + 1)) - agent.acked for agent in self.agents] == [set()] * self.nodes
        sent: dict[str, int] = {}
        times = {host_of(node): 0 for node in range(self.nodes)}
        for (node, _), noted in self.noting.sent.items():
            sent |= noted.windows
            times[host_of(node)] += noted.total_ns
        stored = place.windows()
        assert len(stored) == len(sent)  # none twice
        assert dict(stored) == sent
        assert place.ask("SELECT count(*) FROM segments") == [(len(self.noting.sent),)]
        hosts = list(times)
        assert place.times(hosts) == times
        assert place.times(hosts, summed_up=True) == times


def small_windows(count: int = 2, kernels: int = 20) -> list[Window]:
    """Windows of a few kernels."""
    known = synthetic.signatures(random.Random(synthetic.SEED))
    draw = random.Random(7)
    return [
        synthetic.window_of(Process(Node("node", "boot"), 100 + i, 1), draw.sample(known, kernels), draw, 0)
        for i in range(count)
    ]
