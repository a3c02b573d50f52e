"""A fleet of simulated agents against one store: acknowledgements, freshness, and every window exactly once."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import resource
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from roofwatch.proto import channel as channels  # before grpc, which it keeps quiet

# isort: split
import grpc
import grpc.aio
import numpy as np

from roofwatch.cli.fleet.agent import SimulatedAgent, Tally
from roofwatch.cli.fleet.local import Local
from roofwatch.cli.fleet.templates import FIRST_PID, LABEL, Source, host_of, templates
from roofwatch.model.errors import RoofwatchError, UnreachableError
from roofwatch.model.record import Window
from roofwatch.proto.trust import Material
from roofwatch.proto.v1 import roofwatch_pb2 as pb
from roofwatch.proto.v1 import roofwatch_pb2_grpc as rpc

RANKS = 8  # devices of a node, each with a window an interval
MINUTE_NS = 60_000_000_000
CONNECT_S = 60.0  # for the whole fleet
DRAIN_S = 60.0  # for what is not acknowledged at the end
SEEN_S = 30.0  # for what is acknowledged and not visible yet
POLL_S = 1.0
ANSWER_S = 60.0


@dataclass(frozen=True, slots=True)
class Plan:
    """What to send: windows a device and minute are ``rate``."""

    nodes: int
    rate: float
    seconds: float
    seed: int
    run: str


@dataclass(slots=True)
class Freshness:
    """When windows became visible, by asking ``top`` how many it sees of those that may not be visible yet.

    Of each segment only its first window is asked for: all of a segment become visible together, and what asks should
    not be the load. The oldest are taken to be the visible ones.
    """

    tally: Tally
    pending: list[tuple[int, int]] = field(default_factory=list)  # end and start, the oldest first
    seen: list[tuple[int, int]] = field(default_factory=list)  # start and end of those that a later poll may see again
    lags_s: list[float] = field(default_factory=list)
    taken: int = 0

    def since_ns(self) -> int | None:
        """From which start on to ask; None where nothing is pending."""
        new = self.tally.watched[self.taken :]
        self.taken += len(new)
        self.pending += [(w.end_unix_ns, w.start_unix_ns) for w in new]
        return min(start for _, start in self.pending) if self.pending else None

    def saw(self, count: int, since_ns: int, now_ns: int) -> None:
        """So many windows that began since then were visible by now."""
        self.seen = [(start, end) for start, end in self.seen if start >= since_ns]
        fresh = max(0, min(len(self.pending), count - len(self.seen)))
        self.pending.sort()
        self.lags_s += [(now_ns - end) / 1e9 for end, _ in self.pending[:fresh]]
        self.seen += [(start, end) for end, start in self.pending[:fresh]]
        del self.pending[:fresh]


@dataclass(frozen=True, slots=True)
class Replayed:
    """What came of a run; times in seconds, sizes in bytes, None where it was not measured."""

    plan: Plan
    tally: Tally
    took_s: float  # from the first window to the last acknowledgement
    lags_s: Sequence[float]
    wrong: Sequence[str]  # sentences: what is lost, double or rejected
    own_cpu_s: float
    store_cpu_s: float | None
    memory_bytes: tuple[int, int, int] | None  # of the store: after the fleet had connected, at the end, at most

    def as_json(self) -> dict[str, Any]:
        """Base units."""
        tally, acked = self.tally, self.tally.stored + self.tally.duplicate
        memory = self.memory_bytes or (None, None, None)
        return {
            "agents": self.plan.nodes,
            "devices_per_agent": RANKS,
            "rate": self.plan.rate,
            "duration_s": self.plan.seconds,
            "seed": self.plan.seed,
            "windows_sent": tally.sent,
            "windows_acknowledged": acked,
            "windows_per_minute": acked / self.took_s * 60,
            "segments": len(tally.waits_s),
            "ack_p50_s": quantile(tally.waits_s, 0.5),
            "ack_p99_s": quantile(tally.waits_s, 0.99),
            "freshness_p50_s": quantile(self.lags_s, 0.5),
            "freshness_p95_s": quantile(self.lags_s, 0.95),
            "segments_seen": len(self.lags_s),
            "store_cpu_s": self.store_cpu_s,
            "store_memory_begin_bytes": memory[0],
            "store_memory_end_bytes": memory[1],
            "store_memory_most_bytes": memory[2],
            "own_cpu_s": self.own_cpu_s,
            "reconnections": max(0, tally.connections - self.plan.nodes),
            "resent_windows": tally.duplicate,
            "rejected_windows": tally.rejected,
            "exactly_once": not self.wrong,
            "problems": list(self.wrong),
        }


def quantile(values: Sequence[float], share: float) -> float | None:
    """The nearest value that so many do not exceed."""
    return float(np.quantile(np.array(values), share, method="higher")) if values else None


def replay(
    windows: Sequence[Window],
    plan: Plan,
    address: str,
    store: Local | None,
    say: Callable[[str], None],
    material: Material,
) -> Replayed:
    """Run a fleet against a store; ``store`` where its process is ours to look at.

    Raises:
        UnreachableError: not all agents could connect.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))  # an agent is a connection, and that is a file
    try:
        return asyncio.run(_replay(windows, plan, address, store, say, material))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


async def _replay(
    windows: Sequence[Window],
    plan: Plan,
    address: str,
    store: Local | None,
    say: Callable[[str], None],
    material: Material,
) -> Replayed:
    source = Source(templates(windows, RANKS, random.Random(plan.seed)), plan.run, int(MINUTE_NS / plan.rate))
    tally = Tally()
    agents = [SimulatedAgent(node, source, tally, material) for node in range(plan.nodes)]
    streams = [asyncio.create_task(agent.run(address)) for agent in agents]
    try:
        await _connected(tally, plan.nodes, address)
        say(f"{plan.nodes:,} agents are connected; sending for {plan.seconds:g} s")
        before = store.cpu_s() if store else 0.0
        memory = store.resident_bytes() if store else 0
        own, begin = time.process_time(), time.monotonic()
        async with channels.open_aio(address, material, (("grpc.max_receive_message_length", -1),)) as channel:
            asking = _Asking(rpc.QueryStub(channel), material.metadata)
            freshness = Freshness(tally)
            ended = asyncio.Event()
            polling = asyncio.create_task(_poll(asking, freshness, plan.run, ended))
            await asyncio.gather(*(agent.produce(begin + plan.seconds) for agent in agents))
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(DRAIN_S):
                    await asyncio.gather(*(agent.drained() for agent in agents))
            took = time.monotonic() - begin
            cpu = store.cpu_s() - before if store else None
            ended.set()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(polling, SEEN_S)
            wrong = await _wrong(asking, plan, tally, sum(agent.waiting for agent in agents))
    finally:
        for stream in streams:
            stream.cancel()
        await asyncio.gather(*streams, return_exceptions=True)
    sizes = (memory, store.resident_bytes(), store.largest_bytes()) if store else None
    return Replayed(plan, tally, took, freshness.lags_s, wrong, time.process_time() - own, cpu, sizes)


async def _connected(tally: Tally, nodes: int, address: str) -> None:
    until = time.monotonic() + CONNECT_S
    while tally.greeted < nodes:
        if tally.refused:
            raise UnreachableError(f"the store at {address} refuses: {tally.refused}")
        if time.monotonic() > until:
            raise UnreachableError(
                f"{tally.greeted:,} of {nodes:,} agents could connect to {address} within {CONNECT_S:g} s"
            )
        await asyncio.sleep(0.05)


@dataclass(frozen=True, slots=True)
class _Asking:
    """A stub and what goes with every call of it."""

    stub: rpc.QueryStub
    metadata: tuple[tuple[str, str], ...]


async def _poll(asking: _Asking, freshness: Freshness, run: str, ended: asyncio.Event) -> None:
    """Until everything that was sent is visible."""
    while True:
        since = freshness.since_ns()
        if since is None and ended.is_set():
            return
        if since is not None:
            with contextlib.suppress(grpc.aio.AioRpcError):  # a store that is killed and comes again
                answer = await _ask(asking, "top", run, since_ns=since, process=str(FIRST_PID))
                freshness.saw(answer["coverage"]["windows"], since, time.time_ns())
        await asyncio.sleep(POLL_S)


async def _ask(asking: _Asking, query: str, run: str, since_ns: int = 0, process: str = "") -> dict[str, Any]:
    scope = pb.Filter(since_unix_ns=since_ns, labels={LABEL: run}, process=process)
    request = pb.QueryRequest(query=query, filter=scope, limit=20 if query == "top" else 0)
    response = await asking.stub.Run(request, timeout=ANSWER_S, metadata=asking.metadata)
    answer: dict[str, Any] = json.loads(response.answer)
    return answer


async def _wrong(asking: _Asking, plan: Plan, tally: Tally, waiting: int) -> list[str]:
    """What is not as it was acknowledged, node by node."""
    found = []
    if waiting:
        found.append(f"{waiting:,} segments were not acknowledged within {DRAIN_S:g} s")
    if tally.rejected:
        found.append(f"{tally.rejected:,} windows were rejected, the last because: {tally.reason}")
    try:
        rows = (await _ask(asking, "nodes", plan.run))["rows"]
    except grpc.aio.AioRpcError as error:
        raise RoofwatchError(f"the store did not tell what it holds: {error.details()}") from error
    stored = {row["node"]: row["windows"] for row in rows}
    for node in range(plan.nodes):
        told, holds = tally.by_node.get(node, 0), stored.get(host_of(node), 0)
        if told != holds and not (waiting and holds > told):
            found.append(f"{host_of(node)}: {told:,} windows acknowledged, {holds:,} stored")
    return found
