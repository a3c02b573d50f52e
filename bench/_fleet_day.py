"""A store of 24 hours of 16 nodes with 8 devices each, in SQLite or in the Postgres of the tests.

33,280 windows of 300 kernels, one a process every five and a half minutes; 10 nodes of H100, 6 of Ascend 910B3; 8 jobs
of two nodes; 4,800 signatures of 945 kernels. From noon to noon (UTC), so that one day is over and one is not.

Everything is drawn from a seed and travels as it would from an agent: columns of the wire, sealed, checked by the
store's own ``Unpacker``, written by its own ``Loader``; then hours and days that are over are summed up.
"""

from __future__ import annotations

import json
import random
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from zlib import crc32

import _servers
import numpy as np
import numpy.typing as npt
from _rows import say
from postgres_server import Postgres

from roofwatch.model.histogram import GAMMA, Histogram
from roofwatch.model.kinds import Kind
from roofwatch.model.record import (
    Bound,
    Cause,
    Collective,
    Cost,
    Device,
    DeviceState,
    DeviceWindow,
    Evidence,
    IdleCause,
    KernelStat,
    Ledger,
    Node,
    Padding,
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
from roofwatch.store import database, postgres_sums, rollup
from roofwatch.store.load import Hello, Loader
from roofwatch.store.schema import REVISION
from roofwatch.store.unpack import Unpacker

KEPT = ("shared_buffers=256MB", "max_wal_size=4GB", "track_io_timing=on")  # settings of the server that stays
SEED = 6
NODES, RANKS, H100_NODES = 16, 8, 10
ROUNDS, TOGETHER = 260, 4  # windows of a process; so many in a segment
ROWS, COMMON, RARE = 300, 285, 400  # kernels of a window: those in each, and some of those that only some have
OF_H100, OF_ASCEND = 2880, 1920  # signatures
KERNELS_H100, KERNELS_ASCEND, OPS = 567, 378, 2400
BEGIN_NS = 1_798_804_800_000_000_000  # 2027-01-01 12:00 UTC
DAY_NS = 86_400_000_000_000
STEP_NS = DAY_NS // ROUNDS
END_NS = BEGIN_NS + DAY_NS
FACTS = NODES * RANKS * ROUNDS * ROWS
WIDE = 9  # buckets that the calls of one kernel in one window fall into
H100 = Peaks({("bf16", "matrix"): Peak(989e12, "datasheet"), ("fp32", "vector"): Peak(67e12, "datasheet")},
             Peak(3.35e12, "datasheet"))  # fmt: skip
B910 = Peaks({("bf16", "matrix"): Peak(294e12, "datasheet"), ("fp32", "vector"): Peak(9.2e12, "datasheet")},
             Peak(1.6e12, "datasheet"))  # fmt: skip
MODELS = ("llama-7b", "mixtral-8x7b", "vit-l", "qwen-14b")
_KINDS = (
    (Kind.MATMUL, Bound.COMPUTE, Evidence.SHAPES),
    (Kind.ATTENTION, Bound.COMPUTE, Evidence.SHAPES),
    (Kind.ELEMENTWISE, Bound.MEMORY, Evidence.SHAPES),
    (Kind.NORM, Bound.MEMORY, Evidence.BORROWED),
    (Kind.ELEMENTWISE, Bound.MEMORY, Evidence.NAME),
    (Kind.COMM, Bound.COMMUNICATION, Evidence.DEFINITION),
    (Kind.OTHER, Bound.UNKNOWN, Evidence.NONE),
)

Ints = npt.NDArray[np.int64]


def device_of(node: int, rank: int) -> Device:
    """The device of a rank."""
    uuid = f"{node:02d}-{rank}"
    if node < H100_NODES:
        return Device(Vendor.NVIDIA, "NVIDIA H100 80GB HBM3", f"GPU-{uuid}", rank, 80 << 30, 132, "580.1", peaks=H100)
    return Device(Vendor.ASCEND, "Ascend 910B3", f"NPU-{uuid}", rank, 64 << 30, 20, "25.2", peaks=B910)


def process_of(node: int, rank: int) -> Process:
    """A rank of the job that a node belongs to."""
    job = node // 2
    return Process(
        Node(f"node-{node:02d}", "boot", {"rack": f"r{node // 4}"}), 1000 + rank, BEGIN_NS - 1, user="ada",
        job=f"slurm:{job}", rank=rank + RANKS * (node % 2), local_rank=rank, world_size=2 * RANKS,
        model=MODELS[job % len(MODELS)], versions={"torch": "2.13.0"}, labels={"version": f"v{job % 2}"},
    )  # fmt: skip


def kernels_of(node: int) -> list[KernelStat]:
    """One of each signature that a node's job may run: those of every window first."""
    job = node // 2
    on_h100 = node < H100_NODES
    most, number = (OF_H100, job) if on_h100 else (OF_ASCEND, job - H100_NODES // 2)
    jobs = H100_NODES // 2 if on_h100 else (NODES - H100_NODES) // 2
    first = number * most // jobs
    return [_kernel((first + i) % most, i, on_h100) for i in range(COMMON + RARE)]


def _kernel(number: int, place: int, on_h100: bool) -> KernelStat:
    draw = random.Random(SEED * 10_000 + number)
    kind, bound, evidence = _KINDS[number % len(_KINDS)]
    known = bound in {Bound.COMPUTE, Bound.MEMORY}
    names = KERNELS_H100 if on_h100 else KERNELS_ASCEND
    named = random.Random(number % names)
    text = f"{named.getrandbits(160):040x}"
    kernel = (
        f"void cutlass::Kernel2<sm90_xmma_{text}_128x256x64_{number % names}>(Params const&)"
        if on_h100
        else f"aclnn_{text}_AiCore_dynamic_{number % names}"
    )
    rows, inner = draw.choice((512, 1024, 2048, 4096)), draw.randrange(64, 8192, 64)
    mean = 3e6 / (place % COMMON + 8) * draw.uniform(0.5, 1.5) * (1 if on_h100 else 2.5)
    roof = mean * draw.uniform(0.4, 0.95)
    flops, moved = int(roof * (989e3 if bound is Bound.COMPUTE else 60e3)), int(roof * 1600)
    shaped = evidence is not Evidence.NONE and kind is not Kind.COMM
    signature = Signature(
        kernel=kernel,
        kind=kind,
        op=f"aten::op_{number % OPS}",
        phase=draw.choice((Phase.FORWARD, Phase.BACKWARD)),
        module=f"layers.*.{'mlp' if number % 3 else 'self_attn'}.m{number % 40}" if known else None,
        shapes=json.dumps([[rows, inner], [inner, 4096 + number]]) if shaped else None,
        dtypes='["bf16","bf16"]' if shaped else None,
        arguments=json.dumps({"collective": "all_reduce", "group_size": 8, "n": number}) if kind is Kind.COMM else None,
        flops=flops if known else None,
        bytes=moved if known else None,
        formula=str(kind) if known else None,
        precision=("bf16" if bound is Bound.COMPUTE else "fp32") if known else None,
        unit=("matrix" if bound is Bound.COMPUTE else "vector") if known else None,
    )
    ns = int(mean)
    return KernelStat(
        signature, 0, 1, ns, ns, ns, Histogram.from_values([ns]), bound, evidence,
        roof if known else None, 295.0 if known else None, 1, ns,
    )  # fmt: skip


def _template(node: int) -> pb.Segment:
    """Windows of each rank with every kernel once: what a node's segments are copied from."""
    draw = random.Random(SEED + node)
    kernels = tuple(kernels_of(node))
    return codec.segment([_window(draw, node, rank, kernels if rank == 0 else ()) for rank in range(RANKS)])


def _window(draw: random.Random, node: int, rank: int, kernels: tuple[KernelStat, ...]) -> Window:
    causes = tuple(
        IdleCause(cause, 1000, draw.randrange(1, 300), 500, f"aten::op_{draw.randrange(99)}")
        for cause in (Cause.INPUT, Cause.COPY, Cause.SYNC, Cause.LAUNCH_BOUND, Cause.HOST)
    )
    state = DeviceState(1.9e9, 1.98e9, draw.gauss(610, 8), 700.0, draw.gauss(62, 1), "")
    device = DeviceWindow(device_of(node, rank), 1, 1, causes, 0, 0, 60 << 30, 70 << 30, state)
    return Window(
        uid="0" * 32, process=process_of(node, rank), start_unix_ns=1, duration_ns=1, trigger=Trigger.SYNCHRONIZED,
        collector="kineto", devices=(device,), kernels=kernels,
        ledger=Ledger(60_000, 2500, 1, has_host_events=True, dropped={"unfinished": 3}, waits=12, wait_ns=1,
                      longest_wait_ns=1),
        steps=2, represents_ns=STEP_NS, shapes_recorded=True,
        cost=Cost("native", 10_000_000, 200_000, 9_000_000, 5_000_000, 100_000, 1, 1, 1, 100_000, 600_000_000),
        padding=Padding(2, 9000, 16_000, 5_500_000, 16_000_000, ((500, 6), (900, 10)), ((16, 1000, 1),)),
        first_step=100,
        collectives=tuple(
            Collective(0, "all_reduce", "default_pg", 1, 1, RANKS, i, 100 << 20) for i in range(8)
        ),
    )  # fmt: skip


class _Node:
    """What one node sends, segment by segment."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.template = _template(number)
        self.noise = np.random.default_rng(SEED + number)
        self.draw = random.Random(SEED * 100 + number)
        k = self.template.windows[0].kernels
        self.mean = np.asarray(k.total_ns).astype(np.float64)
        self.calls = self.noise.choice((2, 4, 4, 8, 24), COMMON + RARE)
        self.fixed = {name: np.asarray(getattr(k, name)) for name in ("bound", "evidence", "roof_ns", "ridge")}
        comm = {i for i, s in enumerate(self.template.dictionary.strings) if s == str(Bound.COMMUNICATION)}
        self.comm = np.isin(self.fixed["bound"], list(comm))
        self.template.windows[0].kernels.Clear()

    def segment(self, first: int) -> pb.SegmentEnvelope:
        """The windows of some rounds."""
        message = pb.Segment(schema=self.template.schema)
        message.dictionary.CopyFrom(self.template.dictionary)
        for number in range(first, min(first + TOGETHER, ROUNDS)):
            for rank in range(RANKS):
                self._window(message.windows.add(), number, rank)
        return codec.seal(message, f"agent-{self.number:02d}", "boot", first // TOGETHER + 1)

    def _window(self, w: pb.Window, number: int, rank: int) -> None:
        w.CopyFrom(self.template.windows[rank])
        chosen = np.concatenate((np.arange(COMMON), COMMON + self.noise.permutation(RARE)[: ROWS - COMMON]))
        total = self._kernels(w.kernels, chosen)
        busy, comm = int(total.sum()), int(total[self.comm[chosen]].sum())
        idle = int(busy * self.draw.uniform(0.2, 0.4))
        w.uid = self.draw.getrandbits(128).to_bytes(16, "big")
        w.start_unix_ns = BEGIN_NS + number * STEP_NS + self.number * 1_000_000_000 + rank * 1_000_000
        w.duration_ns = busy + idle
        w.first_step = number * 600
        device = w.devices[0]
        device.span_ns, device.busy_ns = busy + idle, busy
        device.exposed_copy_ns, device.exposed_communication_ns = busy // 50, comm // 2
        for cause in device.causes:
            cause.total_ns = int(idle * self.draw.uniform(0.02, 0.19))
            cause.longest_ns = max(1, cause.total_ns // 3)
        told = w.ledger
        told.device_time_ns, told.linked_ns, told.backlog_ns = busy, busy - 90_000, 50_000
        told.classifiable_ns, told.classified_ns, told.named_ns = busy - comm, int((busy - comm) * 0.95), 1000
        told.model_ns = told.model_known_ns = busy // 2
        told.model_flops, told.model_peak_ns = busy * 400_000, busy // 3
        told.wait_ns, told.longest_wait_ns = idle // 4, idle // 9
        w.cost.base_step_ns, w.cost.longest_step_ns, w.cost.lost_in_ns = busy // 2, busy, busy // 40
        for i in range(len(w.collectives.start_unix_ns)):
            w.collectives.start_unix_ns[i] = w.start_unix_ns + i * (busy + idle) // 8
            w.collectives.duration_ns[i] = int(comm / 8 * self.draw.uniform(0.8, 1.2))
            w.collectives.sequence[i] = number * 8 + i

    def _kernels(self, columns: pb.KernelStats, chosen: Ints) -> Ints:
        """Log-normal noise of 1 % between windows, 3 % between calls; gives the kernels' times."""
        calls = self.calls[chosen]
        mean = self.mean[chosen] * np.exp(self.noise.normal(0, 0.01, len(chosen)))
        odds = np.exp(-0.5 * ((np.arange(WIDE) - WIDE // 2) / 0.9) ** 2)
        spread = self.noise.multinomial(calls, odds / odds.sum())  # calls by bucket around the mean's
        middle = np.ceil(np.log(mean) / np.log(GAMMA)).astype(np.int64)
        begin, end = (spread > 0).argmax(axis=1), WIDE - 1 - (spread[:, ::-1] > 0).argmax(axis=1)
        lows = middle - WIDE // 2 + begin
        inside = (np.arange(WIDE) >= begin[:, None]) & (np.arange(WIDE) <= end[:, None])
        low = (GAMMA ** (lows - 0.5)).astype(np.int64)
        high = np.maximum((GAMMA ** (lows + end - begin - 0.5)).astype(np.int64), low)
        total: Ints = np.clip((mean * calls).astype(np.int64), low * calls, high * calls)
        told = {
            "signature": chosen, "device": np.zeros_like(chosen), "calls": calls, "total_ns": total, "min_ns": low,
            "max_ns": high, "step_calls": calls, "step_ns": total, "histogram_low": lows,
            "histogram_length": end - begin + 1, "histogram_counts": spread[inside],
            **{name: values[chosen] for name, values in self.fixed.items()},
        }  # fmt: skip
        for name, values in told.items():
            getattr(columns, name).extend(values.tolist())
        return total


def segments() -> Iterator[tuple[Node, pb.SegmentEnvelope]]:
    """The day in the order in which it was sent."""
    nodes = [_Node(number) for number in range(NODES)]
    for first in range(0, ROUNDS, TOGETHER):
        for node in nodes:
            yield process_of(node.number, 0).node, node.segment(first)


def build(url: str) -> float:
    """Write the day into a fresh store; CPU seconds of the store's part."""
    opened = database.open(url)
    if opened.on_postgres:  # as if its time were now
        with opened.write() as connection:
            first = BEGIN_NS // DAY_NS
            for span in (*map(postgres_sums.hours_of, (first, first + 1)), postgres_sums.days_of(first)):
                postgres_sums.make(connection, span)
    loader, unpacker = Loader(now_ns=time.time_ns), Unpacker()
    took = 0.0
    for node, envelope in segments():
        begin = time.process_time()
        unpacked = unpacker.unpack(envelope)
        with opened.write() as connection:
            loader.load(connection, [Hello(unpacked.agent, unpacked.boot, "0", node), unpacked])
        loader.commit()
        took += time.process_time() - begin
    with opened.write() as connection:  # what a store does between segments
        while rollup.sweep(connection, END_NS + rollup.GRACE_NS):
            pass
    opened.truncate_log()
    opened.close()
    return took


def key() -> str:
    """Of what a store holds and how: another one is built when any of it changes."""
    return f"{REVISION}-{crc32(Path(__file__).read_bytes()):08x}"


def _told(name: str, cpu: float, wall: float) -> None:
    say(f"built {name} in {wall:.0f} s: {cpu / FACTS * 1e6:.2f} µs a row of the store's processor time")


def _forget(folder: Path, pattern: str) -> None:
    for old in folder.glob(pattern):
        shutil.rmtree(old) if old.is_dir() else old.unlink()


def sqlite_day(folder: Path) -> Path:
    """The day's file, built if this version has not built it yet."""
    file = folder / f"fleet-{key()}.db"
    if not file.exists():
        folder.mkdir(parents=True, exist_ok=True)
        _forget(folder, "fleet-*.db*")
        draft, begin = folder / "fleet-draft.db", time.monotonic()
        _told(file.name, build(str(draft)), time.monotonic() - begin)
        draft.rename(file)
    return file


@contextmanager
def postgres_day(folder: Path) -> Iterator[Postgres]:
    """A running Postgres with the day in the database ``day``, built as above; ``url("day")`` names it.

    Raises:
        Lacking: there is none here.
    """
    home = folder / f"pg-{key()}"
    fresh = not (home / "built").exists()
    if fresh:
        _forget(folder, "pg-*")
        home.mkdir(parents=True)
    with _servers.kept_postgres(home, KEPT, fresh=fresh) as server:
        if fresh:
            server.run("CREATE DATABASE day")
            begin = time.monotonic()
            _told(home.name, build(server.url("day")), time.monotonic() - begin)
            server.run("VACUUM ANALYZE", "day")  # what a server does by itself, and the tests' is told not to
            (home / "built").touch()
        yield server
