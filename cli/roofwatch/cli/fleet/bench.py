"""What a store on this machine can do, against this machine's own limit: the same rows by SQLite alone, in turns."""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import grpc

from roofwatch.cli.fleet import raw, synthetic
from roofwatch.cli.fleet.local import Local, local_store
from roofwatch.cli.fleet.replay import quantile
from roofwatch.model.errors import RoofwatchError
from roofwatch.proto.codec import PROTOCOL
from roofwatch.proto.v1 import roofwatch_pb2 as pb
from roofwatch.proto.v1 import roofwatch_pb2_grpc as rpc
from roofwatch.store.unpack import Unpacker

FIRST = 2  # minutes in which a store meets what it then knows: signatures, processes, devices
AGENTS, MINUTES, ROUNDS = 4, 12, 3  # 4 nodes of 8 ranks with 300 kernels, a window a minute: 115,200 rows
ASKED = 5
Fleet = Sequence[Sequence[pb.SegmentEnvelope]]


@dataclass(frozen=True, slots=True)
class Ingested:
    """What a store needed for a fleet's segments."""

    took_s: float  # until everything was acknowledged
    waits_s: list[float]  # of each acknowledgement
    cpu_s_per_row: float
    first_cpu_s_per_row: float


@dataclass(frozen=True, slots=True)
class Benched:
    """The best of the rounds; times in seconds."""

    rows: int
    ingest_s: float  # over gRPC, acknowledged on disk
    raw_s: float  # the same rows by multi-VALUES alone
    cpu_s_per_row: float  # of the store, once it knows the signatures
    first_cpu_s_per_row: float  # before
    ack_p99_s: float
    row_bytes: float  # of the store, everything included
    raw_row_bytes: float
    node_s: float  # top 20 of one node over gRPC
    raw_node_s: float  # the statement that sums the same rows, alone
    all_s: float
    raw_all_s: float
    memory_bytes: int

    @property
    def share(self) -> float:
        """Ingest as a share of what the engine does alone."""
        return self.raw_s / self.ingest_s


def fleet_of(agents: int = AGENTS, minutes: int = MINUTES) -> list[list[pb.SegmentEnvelope]]:
    """What so many agents send."""
    return [synthetic.segments_of(agent, minutes) for agent in range(agents)]


def run(fleet: Fleet, folder: Path, rounds: int = ROUNDS) -> Benched:
    """Both in turns, so that what else runs on this machine hits both.

    Raises:
        RoofwatchError: the store does not start, or does not store a segment.
    """
    unpacker = Unpacker()
    windows = [w for segments in fleet for e in segments for w in unpacker.unpack(e).windows]
    rows = [row for i, w in enumerate(windows, 1) for row in raw.as_rows(i, w.facts)]
    node = (len(windows) // len(fleet) + 1, 2 * len(windows) // len(fleet))  # windows of node-1
    ours: list[Ingested] = []
    theirs = []
    asked = {"node": 0.0, "all": 0.0, "raw node": 0.0, "raw all": 0.0}
    memory = 0
    for number in range(rounds):
        here = folder / str(number)
        here.mkdir()
        theirs.append(raw.load(here / "raw.db", rows))
        with local_store(here) as store:
            ours.append(ingested(store, fleet, len(rows)))
            if number == rounds - 1:
                asked["raw node"] = statistics.median(raw.top(here / "raw.db", node) for _ in range(ASKED))
                asked["node"] = ask(store, node="node-1")
                asked["raw all"] = statistics.median(raw.top(here / "raw.db") for _ in range(ASKED))
                asked["all"] = ask(store)
            memory = max(memory, store.largest_bytes())
    sizes = [(here / name).stat().st_size / len(rows) for name in ("store.db", "raw.db")]
    waits = [wait for one in ours for wait in one.waits_s]
    return Benched(
        len(rows), min(one.took_s for one in ours), min(theirs), min(one.cpu_s_per_row for one in ours),
        min(one.first_cpu_s_per_row for one in ours), quantile(waits, 0.99) or 0.0, sizes[0], sizes[1],
        asked["node"], asked["raw node"], asked["all"], asked["raw all"], memory,
    )  # fmt: skip


def ingested(store: Local, fleet: Fleet, rows: int) -> Ingested:
    """Send everything, the first minutes alone: what is seen for the first time costs once and not a row.

    Raises:
        RoofwatchError: a segment was not stored.
    """
    minutes = len(fleet[0])
    parts = [slice(0, FIRST), slice(FIRST, minutes)] if minutes > FIRST else [slice(0, minutes)]
    took, cpu = 0.0, []
    waits: list[float] = []
    for part in parts:
        before = store.cpu_s()
        seconds, waited = over_grpc(store, [segments[part] for segments in fleet])
        took, waits = took + seconds, waits + waited
        cpu.append((store.cpu_s() - before) / (rows * len(fleet[0][part]) / minutes))
    return Ingested(took, waits, cpu[-1], cpu[0])


def over_grpc(store: Local, fleet: Fleet) -> tuple[float, list[float]]:
    """Seconds until everything is acknowledged, and how long each acknowledgement took.

    Raises:
        RoofwatchError: a segment was not stored.
    """
    waits: list[float] = []
    failures: list[str] = []

    def send(number: int) -> None:
        try:
            waits.extend(_stream(store.address, number, fleet[number]))
        except (grpc.RpcError, RoofwatchError) as error:
            failures.append(str(error))

    threads = [threading.Thread(target=send, args=(i,)) for i in range(len(fleet))]
    begin = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise RoofwatchError(f"the store did not take what an agent sent: {failures[0]}")
    return time.perf_counter() - begin, waits


def _stream(address: str, number: int, segments: Sequence[pb.SegmentEnvelope]) -> list[float]:
    """One agent: everything at once; how long each acknowledgement took."""
    sent: dict[int, float] = {}
    done = threading.Event()
    waits = []

    def requests() -> Iterator[pb.AgentMessage]:
        node = pb.Node(host=f"node-{number}", boot_id="boot")
        yield pb.AgentMessage(hello=pb.AgentHello(protocol=PROTOCOL, agent=f"agent-{number}", boot="boot", node=node))
        for envelope in segments:
            sent[envelope.id.sequence] = time.perf_counter()
            yield pb.AgentMessage(segment=envelope)
        done.wait(60)

    with grpc.insecure_channel(address) as channel:
        for message in rpc.IngestStub(channel).Stream(requests(), timeout=300):
            if message.WhichOneof("body") == "ack":
                if message.ack.status != pb.STORED:
                    raise RoofwatchError(message.ack.reason or "a segment is known already")
                waits.append(time.perf_counter() - sent[message.ack.id.sequence])
                if len(waits) == len(segments):
                    done.set()
                    break
    return waits


def ask(store: Local, node: str = "") -> float:
    """Seconds of a top-20, the median of five."""
    times = []
    with grpc.insecure_channel(store.address) as channel:
        for _ in range(ASKED):
            begin = time.perf_counter()
            rpc.QueryStub(channel).Run(pb.QueryRequest(query="top", filter=pb.Filter(node=node), limit=20))
            times.append(time.perf_counter() - begin)
    return statistics.median(times)
