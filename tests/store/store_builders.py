"""Windows made by hand, real databases, and real stores in processes of their own."""

from __future__ import annotations

import hashlib
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

import grpc
import pytest
from fresh import fresh

from roofwatch.model.histogram import Histogram
from roofwatch.model.kinds import Kind
from roofwatch.model.record import (
    Bound,
    Cost,
    Device,
    DeviceWindow,
    Evidence,
    IdleCause,
    KernelStat,
    Ledger,
    Node,
    Peak,
    Peaks,
    Phase,
    Process,
    Signature,
    Trigger,
    Vendor,
    Window,
)
from roofwatch.proto import codec
from roofwatch.proto.v1 import roofwatch_pb2 as pb
from roofwatch.proto.v1 import roofwatch_pb2_grpc as rpc

H100 = Device(
    Vendor.NVIDIA,
    "NVIDIA H100 80GB HBM3",
    uuid="GPU-1",
    index=0,
    memory_bytes=85_017_755_648,
    units=132,
    peaks=Peaks({("bf16", "matrix"): Peak(989e12, "datasheet")}, Peak(3.35e12, "datasheet")),
)
MI300 = Device(Vendor.AMD, "AMD Instinct MI300X", uuid="GPU-2", index=0)
CPU = Device(Vendor.CPU, "Some CPU")

GEMM = Signature(
    kernel="nvjet_tst_128x256",
    kind=Kind.MATMUL,
    op="aten::addmm",
    phase=Phase.FORWARD,
    shapes="[[8,512],[512,512]]",
    dtypes='["bf16","bf16"]',
    flops=4_194_304,
    bytes=540_672,
    formula="matmul",
    precision="bf16",
    unit="matrix",
)
NORM = Signature(kernel="layer_norm", kind=Kind.NORM, op="aten::layer_norm", flops=1000, bytes=4000)
COPY = Signature(kernel="Memcpy HtoD", kind=Kind.COPY_FILL)


SQLITE_ALONE = pytest.mark.parametrize("url", ["sqlite"], indirect=True)  # what is of that engine only, or takes long


def uid_of(name: str) -> str:
    """A window uid from any text."""
    return hashlib.blake2b(name.encode(), digest_size=16).hexdigest()


def process_of(host: str = "gpu-07", pid: int = 100, **more: object) -> Process:
    """A process on a host."""
    return Process(Node(host, "boot-1"), pid, start_unix_ns=1_000_000_000, **more)  # type: ignore[arg-type]


def stat(
    signature: Signature,
    durations: list[int],
    *,
    device: int = 0,
    evidence: Evidence = Evidence.SHAPES,
    bound: Bound = Bound.COMPUTE,
    roof_ns: float | None = None,
    ridge: float | None = None,
) -> KernelStat:
    """A kernel with the given durations of its calls in ns."""
    return KernelStat(
        signature=signature,
        device=device,
        calls=len(durations),
        total_ns=sum(durations),
        min_ns=min(durations),
        max_ns=max(durations),
        histogram=Histogram.from_values(durations),
        bound=bound,
        evidence=evidence,
        roof_ns=roof_ns,
        ridge=ridge,
        step_calls=len(durations),
        step_ns=sum(durations),
    )


def window_of(
    name: str,
    kernels: list[KernelStat],
    *,
    process: Process | None = None,
    start_unix_ns: int = 2_000_000_000_000_000_000,
    span_ns: int = 1_000_000,
    represents_ns: int | None = None,
    device: Device = H100,
    cost: Cost | None = None,
    steps: int | None = None,
    causes: tuple[IdleCause, ...] = (),
    dropped: dict[str, int] | None = None,
) -> Window:
    """A window on one device whose busy time is the sum of its kernels."""
    busy = sum(k.total_ns for k in kernels)
    return Window(
        uid=uid_of(name),
        process=process or process_of(),
        start_unix_ns=start_unix_ns,
        duration_ns=span_ns,
        trigger=Trigger.PERIODIC,
        collector="kineto",
        devices=(DeviceWindow(device, span_ns=span_ns, busy_ns=busy, causes=causes),),
        kernels=tuple(kernels),
        ledger=Ledger(
            events_read=100,
            device_records=sum(k.calls for k in kernels),
            device_time_ns=busy,
            has_host_events=True,
            linked_ns=busy,
            classifiable_ns=busy,
            classified_ns=busy,
            dropped=dropped or {},
        ),
        steps=steps,
        represents_ns=represents_ns,
        cost=cost,
    )


PROGRAM = """
import sys
from pathlib import Path
from roofwatch.model.errors import RoofwatchError
from roofwatch.store.config import ServeConfig
from roofwatch.store.server import serve
listen, database, port_file = sys.argv[1:]
try:
    serve(ServeConfig(listen=listen, database=database, port_file=Path(port_file)))
except RoofwatchError as error:
    sys.exit(f"{error}")
"""


@dataclass
class RunningStore:
    """A store in a process of its own."""

    process: subprocess.Popen[str]
    port: int

    @property
    def address(self) -> str:
        """HOST:PORT."""
        return f"127.0.0.1:{self.port}"

    def kill(self) -> None:
        """SIGKILL."""
        self.process.kill()
        self.process.communicate()

    def terminate(self) -> tuple[int, str]:
        """SIGTERM; the exit code and what it wrote to stderr."""
        self.process.send_signal(signal.SIGTERM)
        _, errors = self.process.communicate(timeout=20)
        return self.process.returncode, errors


def start_store(folder: Path, port: int = 0, database: str | None = None) -> RunningStore:
    """Start a store on that database, else on one in the folder, and wait until it listens."""
    port_file = folder / "port"
    port_file.unlink(missing_ok=True)
    at = database or fresh(folder / "store.db")
    command = [sys.executable, "-c", PROGRAM, f"127.0.0.1:{port}", at, str(port_file)]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 30
    while not port_file.exists():
        if process.poll() is not None or time.monotonic() > deadline:
            process.kill()
            pytest.fail(f"the store did not start: {process.communicate()[1]}")
        time.sleep(0.02)
    return RunningStore(process, int(port_file.read_text()))


@contextmanager
def running_store(folder: Path) -> Iterator[RunningStore]:
    """A store for the length of a block."""
    store = start_store(folder)
    try:
        yield store
    finally:
        if store.process.poll() is None:
            store.terminate()


def segment_of(
    windows: list[Window], sequence: int, *, agent: str = "agent-a", boot: str = "boot-a"
) -> pb.SegmentEnvelope:
    """A sealed segment."""
    return codec.seal(codec.segment(windows), agent, boot, sequence)


def hello_of(agent: str = "agent-a", boot: str = "boot-a", host: str = "gpu-07") -> pb.AgentMessage:
    """What an agent says first."""
    node = pb.Node(host=host, boot_id="boot-1")
    return pb.AgentMessage(hello=pb.AgentHello(protocol=1, agent=agent, boot=boot, version="0.1.0", node=node))


def send(address: str, messages: list[pb.AgentMessage | pb.SegmentEnvelope], replies: int) -> list[pb.StoreMessage]:
    """Send over a stream of its own after a hello, until so many replies came after the store's hello."""
    requests = [hello_of(), *(m if isinstance(m, pb.AgentMessage) else pb.AgentMessage(segment=m) for m in messages)]
    with grpc.insecure_channel(address) as channel:
        stream = rpc.IngestStub(channel).Stream(iter(requests), timeout=30)
        assert next(stream).WhichOneof("body") == "hello"
        return [next(stream) for _ in range(replies)]


def stored_uids(file: Path) -> list[str]:
    """The uids in a database, read past all of the store's own code."""
    with closing(sqlite3.connect(file)) as connection:
        return [row[0].hex() for row in connection.execute("SELECT uid FROM windows ORDER BY id")]


def count(file: Path, table: str) -> int:
    """Rows of a table."""
    with closing(sqlite3.connect(file)) as connection:
        return int(connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0])  # noqa: S608 - a test's own word


def kernels(file: Path) -> int:
    """Kernels of all windows."""
    with closing(sqlite3.connect(file)) as connection:
        return int(connection.execute("SELECT sum(rows) FROM kernel_blocks").fetchone()[0])
