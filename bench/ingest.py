"""Ingest over gRPC, end to end, against SQLite's own best: the same rows by multi-VALUES at the same durability.

Both in turns, best of three; what competes for the cores hits both. Then what the rows take on disk, and two queries.
"""

from __future__ import annotations

import json
import os
import random
import resource
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

import grpc
import numpy as np

from roofwatch.model.histogram import Histogram
from roofwatch.model.kinds import Kind
from roofwatch.model.record import (
    Bound,
    Device,
    DeviceWindow,
    Evidence,
    KernelStat,
    Ledger,
    Node,
    Process,
    Signature,
    Trigger,
    Vendor,
    Window,
)
from roofwatch.proto import codec
from roofwatch.proto.v1 import roofwatch_pb2 as pb
from roofwatch.proto.v1 import roofwatch_pb2_grpc as rpc
from roofwatch.store.blocks import FACT
from roofwatch.store.unpack import Facts, Unpacker

SEED = 20
AGENTS, SEGMENTS, WINDOWS, KERNELS = 4, 12, 8, 300  # 4 nodes, 12 minutes, a window a device and minute: 115,200 rows
OWN = 30  # kernels that only one rank of a node runs
ROUNDS = 3
CHUNK = 2_500  # rows a statement: below SQLite's limit of variables
TRANSACTION = 30_000
SERVER = """
import sys
from pathlib import Path
from roofwatch.store.config import ServeConfig
from roofwatch.store.server import serve
serve(ServeConfig(listen="127.0.0.1:0", database=sys.argv[1], port_file=Path(sys.argv[2])))
"""
COLUMNS = (
    "signature_id", "total_ns", "min_ns", "max_ns", "step_ns", "calls", "step_calls", "device", "evidence", "bound",
    "histogram",
)  # fmt: skip


def signatures(draw: random.Random) -> list[Signature]:
    """Kernels with names as long as real ones (mean 90 characters), each in a few shapes."""
    return [
        Signature(
            kernel=f"void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816_{draw.getrandbits(64):016x}_128x256_{i}>",
            kind=Kind.MATMUL,
            op=f"aten::op_{i % 400}",
            shapes=json.dumps([[draw.randrange(4096), 512], [512, 512]]),
            dtypes='["bf16","bf16"]',
            flops=draw.getrandbits(40),
            bytes=draw.getrandbits(30),
            formula="matmul",
        )
        for i in range(4_000)
    ]


def window_of(process: Process, kinds: list[Signature], draw: random.Random, minute: int) -> Window:
    """300 kernels with log-normal durations; a histogram holds what its calls were."""
    kernels = []
    for signature in kinds:
        calls = [int(1_000 * draw.lognormvariate(3, 0.15)) for _ in range(draw.randrange(2, 40))]
        kernels.append(
            KernelStat(
                signature, 0, len(calls), sum(calls), min(calls), max(calls), Histogram.from_values(calls),
                Bound.COMPUTE, Evidence.SHAPES, 900.0, 295.2, len(calls), sum(calls),
            )
        )  # fmt: skip
    busy = sum(k.total_ns for k in kernels)
    device = Device(Vendor.NVIDIA, "NVIDIA H100 80GB HBM3", uuid=f"GPU-{process.pid}", index=0)
    return Window(
        uid=f"{draw.getrandbits(128):032x}",
        process=process,
        start_unix_ns=1_800_000_000_000_000_000 + minute * 60_000_000_000,
        duration_ns=busy * 2,
        trigger=Trigger.PERIODIC,
        collector="kineto",
        devices=(DeviceWindow(device, busy * 2, busy),),
        kernels=tuple(kernels),
        ledger=Ledger(100_000, 10_000, busy, has_host_events=True, linked_ns=busy),
        represents_ns=60_000_000_000,
    )


def segments_of(agent: int) -> list[pb.SegmentEnvelope]:
    """What the agent of one node with eight devices sends in twelve minutes."""
    draw = random.Random(SEED + agent)
    known = signatures(random.Random(SEED))
    processes = [Process(Node(f"node-{agent}", "boot"), 100 + rank, 1, rank=rank) for rank in range(WINDOWS)]
    common = draw.sample(known[:KERNELS], KERNELS - OWN)  # the ranks of a job run the same model
    mine = [[*common, *draw.sample(known[KERNELS:], OWN)] for _ in processes]
    return [
        codec.seal(
            codec.segment([window_of(p, k, draw, minute) for p, k in zip(processes, mine, strict=True)]),
            f"agent-{agent}",
            "boot",
            minute + 1,
        )
        for minute in range(SEGMENTS)
    ]


class Server:
    """A store in a process of its own."""

    def __init__(self, folder: Path) -> None:
        self.process = subprocess.Popen([sys.executable, "-c", SERVER, str(folder / "store.db"), str(folder / "port")])
        while not (folder / "port").exists():
            time.sleep(0.02)
        self.address = f"127.0.0.1:{(folder / 'port').read_text().strip()}"

    def cpu_s(self) -> float:
        """Processor time so far, user and system."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def stop(self) -> None:
        """SIGTERM, and wait."""
        self.process.terminate()
        self.process.wait()


def over_grpc(server: Server, fleet: list[list[pb.SegmentEnvelope]]) -> tuple[float, list[float]]:
    """Seconds until everything is acknowledged, and how long each acknowledgement took."""
    waits: list[float] = []

    def agent(number: int) -> None:
        sent: dict[int, float] = {}
        done = threading.Event()

        def requests() -> Iterator[pb.AgentMessage]:
            node = pb.Node(host=f"node-{number}", boot_id="boot")
            yield pb.AgentMessage(hello=pb.AgentHello(protocol=1, agent=f"agent-{number}", boot="boot", node=node))
            for envelope in fleet[number]:
                sent[envelope.id.sequence] = time.perf_counter()
                yield pb.AgentMessage(segment=envelope)
            done.wait(60)

        with grpc.insecure_channel(server.address) as channel:
            left = len(fleet[number])
            for message in rpc.IngestStub(channel).Stream(requests()):
                if message.WhichOneof("body") == "ack":
                    assert message.ack.status == pb.STORED, message.ack.reason
                    waits.append(time.perf_counter() - sent[message.ack.id.sequence])
                    left -= 1
                    if not left:
                        done.set()
                        break

    threads = [threading.Thread(target=agent, args=(i,)) for i in range(len(fleet))]
    begin = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return time.perf_counter() - begin, waits


def as_rows(window: int, facts: Facts) -> list[tuple[object, ...]]:
    """What a table of kernels would hold of a window: its columns, and the bytes of each histogram."""
    of = {name: column.tolist() for name, column in zip(FACT, facts.columns, strict=True)}
    told = facts.histograms
    ends = np.cumsum(told.lengths).tolist()
    body = told.counts.astype(np.uint8).tobytes()  # counts of these windows are below 128: a byte each
    blobs = [
        low.to_bytes(2, "little") + body[end - length : end]
        for low, length, end in zip(told.lows.tolist(), told.lengths.tolist(), ends, strict=True)
    ]
    columns = [blobs if name == "histogram" else of[name] for name in COLUMNS]
    return [(window, *row) for row in zip(*columns, strict=True)]


def raw(file: Path, rows: list[tuple[object, ...]]) -> float:
    """Seconds for the same fact rows by the fastest way SQLite has, journal and sync as the store's."""
    connection = sqlite3.connect(file, isolation_level=None)
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=FULL")
    connection.execute(
        f"CREATE TABLE kernel_stats (window_id INTEGER NOT NULL, {', '.join(f'{c} NOT NULL' for c in COLUMNS)}, "
        "PRIMARY KEY (window_id, device, signature_id, evidence)) WITHOUT ROWID"
    )
    row = f"({','.join('?' * 12)})"
    flat = list(chain.from_iterable(rows))
    begin = time.perf_counter()
    for at in range(0, len(rows), TRANSACTION):
        end = min(at + TRANSACTION, len(rows))
        connection.execute("BEGIN IMMEDIATE")
        for start in range(at, end, CHUNK):
            part = flat[start * 12 : min(start + CHUNK, end) * 12]
            values = ",".join([row] * (len(part) // 12))
            connection.execute(f"INSERT INTO kernel_stats VALUES {values}", part)  # noqa: S608 - question marks
        connection.execute("COMMIT")
    took = time.perf_counter() - begin
    connection.close()
    return took


def ask(server: Server, **filters: str) -> float:
    """Milliseconds of a top-20, the median of five."""
    times = []
    with grpc.insecure_channel(server.address) as channel:
        for _ in range(5):
            begin = time.perf_counter()
            rpc.QueryStub(channel).Run(pb.QueryRequest(query="top", filter=pb.Filter(**filters), limit=20))
            times.append((time.perf_counter() - begin) * 1000)
    return statistics.median(times)


def show(name: str, value: float, unit: str, *, least: float | None = None, most: float | None = None) -> None:
    """One row of the table, with its limit where there is one."""
    limit = f"≥ {least:g} {unit}" if least is not None else f"≤ {most:g} {unit}" if most is not None else "–"
    ok = value >= least if least is not None else value <= most if most is not None else None
    print(json.dumps({"name": f"store: {name}", "value": value, "unit": unit, "limit": limit, "ok": ok}))


def main() -> None:
    """Measure and print."""
    fleet = [segments_of(agent) for agent in range(AGENTS)]
    unpacker = Unpacker()
    windows = [w for segments in fleet for e in segments for w in unpacker.unpack(e).windows]
    rows = [row for i, w in enumerate(windows, 1) for row in as_rows(i, w.facts)]
    ours, waits, cpu, theirs = [], [], [], []
    with tempfile.TemporaryDirectory() as name:
        for number in range(ROUNDS):
            folder = Path(name) / str(number)
            folder.mkdir()
            theirs.append(raw(folder / "raw.db", rows))
            server = Server(folder)
            try:
                before = server.cpu_s()
                took, waited = over_grpc(server, fleet)
                ours.append(took)
                waits += waited
                cpu.append((server.cpu_s() - before) / len(rows) * 1e6)
                if number == ROUNDS - 1:
                    one, every = ask(server, node="node-1"), ask(server)
            finally:
                server.stop()
        size = (folder / "store.db").stat().st_size / len(rows)
        bare = (folder / "raw.db").stat().st_size / len(rows)
    share = min(theirs) / min(ours)
    show("ingest over gRPC, acknowledged on disk", len(rows) / min(ours), "rows/s")
    show("the same rows by multi-VALUES alone", len(rows) / min(theirs), "rows/s")
    show("ingest over gRPC against multi-VALUES", share * 100, "%", least=28)
    show("processor time a row", min(cpu), "µs")
    show("99th percentile of an acknowledgement", statistics.quantiles(waits, n=100)[98], "s")
    show("bytes a row, everything included", size, "B", most=55)
    show("bytes a row of the fact alone", bare, "B")
    show(f"top 20 of one node of {AGENTS}, {len(rows):,} rows in all", one, "ms")
    show("top 20 of all nodes", every, "ms")
    memory = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    show("largest resident memory of the store", memory, "MB")


if __name__ == "__main__":
    main()
