"""Windows of eight ranks whose every step is given by hand, and a store that holds them."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any
from zlib import crc32

from roofwatch.model.histogram import Histogram
from roofwatch.model.kinds import Kind
from roofwatch.model.record import (
    Bound,
    Cause,
    Collective,
    Device,
    DeviceState,
    DeviceWindow,
    Evidence,
    IdleCause,
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
from roofwatch.store.ingest import Writer
from roofwatch.store.unpack import Unpacker

MS = 1_000_000
START = 1_700_000_000_000_000_000
MINUTE = 60_000 * MS
JOB = "slurm:4242.0"
GEMM = Signature("gemm", Kind.MATMUL, op="aten::mm", shapes="[[8,512],[512,512]]", dtypes='["bf16","bf16"]')
NORM = Signature("norm", Kind.NORM, op="aten::layer_norm")
ADD = Signature("add", Kind.ELEMENTWISE, op="aten::add")
SORT = Signature("sort", Kind.OTHER, op="aten::sort")
ALL_REDUCE = Signature("ncclDevKernel_AllReduce", Kind.COMM)
# A step of a rank that nothing holds up: 80 ms of kernels, 4 of exposed copies, 2 of waiting for input, 1 of launches.
KERNELS = {GEMM: 50 * MS, NORM: 20 * MS, ADD: 10 * MS}
CALLS = {GEMM: 10, NORM: 20, ADD: 40, SORT: 5, ALL_REDUCE: 1}
COPY, INPUT, LAUNCH = 4 * MS, 2 * MS, MS
MOVING = 10 * MS  # of the one all_reduce at a step's end


@dataclass
class Step:
    """What one rank does in one step, before and in the all_reduce; ns."""

    kernels: Mapping[Signature, int] = field(default_factory=lambda: dict(KERNELS))
    copy: int = COPY
    input: int = INPUT
    launch: int = LAUNCH
    host: int = 0
    moving: int = MOVING
    clock_hz: float | None = None
    throttle: str | None = None

    @property
    def own(self) -> int:
        """All but communication."""
        return sum(self.kernels.values()) + self.copy + self.input + self.launch + self.host


Does = Callable[[int, int], Step]  # (rank, moment) → a step


def usual(_rank: int, _moment: int) -> Step:
    """All ranks alike: 87 ms of their own and 10 of moving bytes."""
    return Step()


def scene(
    does: Does,
    moments: int = 6,
    *,
    ranks: Iterable[int] = range(8),
    world_size: int = 8,
    steps: int | None = 2,
    first_step: Callable[[int, int], int | None] = lambda _rank, moment: 100 * moment,
    start: Callable[[int, int], int] = lambda _rank, moment: START + moment * MINUTE,
    collectives: bool = True,
    node: Callable[[int], str] = lambda _rank: "gpu-07",
    **process: Any,
) -> list[Window]:
    """A window of each rank in each moment: every step like ``does`` says, all ranks through with it together.

    A rank waits in the all_reduce until the last one comes; then moving takes each as long as its step says, and the
    next step of all begins when the slowest of them is through.
    """
    made = []
    for moment in range(moments):
        given = {rank: does(rank, moment) for rank in ranks}
        last = max(step.own for step in given.values())
        whole = max(last + step.moving for step in given.values())
        for rank, step in given.items():
            about = {"job": JOB, "model": "llama", "user": "ann"} | process
            begun = START - 1 - crc32(str(about["job"]).encode())  # processes of several jobs are several
            owner = Process(Node(node(rank), "boot"), 1000 + rank, begun, rank=rank, world_size=world_size, **about)
            held = _Held(owner, start(rank, moment), steps or 2, whole, last)
            made.append(_window(held, step, steps, first_step(rank, moment), with_calls=collectives))
    return made


@dataclass(frozen=True)
class _Held:
    process: Process
    start: int
    count: int
    step_ns: int
    last_ns: int  # when the last rank arrives, from the step's begin


def _window(h: _Held, step: Step, steps: int | None, first_step: int | None, *, with_calls: bool) -> Window:
    waited = h.last_ns - step.own
    rest = h.step_ns - h.last_ns - step.moving  # the others still move: this rank waits at the next step's begin
    exchange = waited + step.moving + rest
    count, busy = h.count, sum(step.kernels.values()) + step.copy + exchange
    idle = {Cause.INPUT: step.input, Cause.LAUNCH_BOUND: step.launch, Cause.HOST: step.host}
    causes = tuple(IdleCause(c, ns * count, count, ns, f"in {c}") for c, ns in idle.items() if ns)
    name = f"{h.process.node.host} {h.process.pid} {h.process.job} {h.start}"
    spans = (h.step_ns * count, busy * count)
    device = Device(Vendor.NVIDIA, "NVIDIA H100 80GB HBM3", uuid=f"GPU-{h.process.pid}", index=0)
    state = DeviceState(clock_hz=step.clock_hz, throttle=step.throttle)
    state = None if step.clock_hz is None and step.throttle is None else state
    stats = [_stat(s, ns, count) for s, ns in step.kernels.items()] + [_stat(ALL_REDUCE, exchange, count)]
    total = sum(s.total_ns for s in stats)
    calls = tuple(
        Collective(0, "all_reduce", "0 (0-7)", h.start + i * h.step_ns + step.own, waited + step.moving, 8, None, 4096)
        for i in range(count)
    )
    return Window(
        uid=hashlib.blake2b(name.encode(), digest_size=16).hexdigest(),
        process=h.process,
        start_unix_ns=h.start,
        duration_ns=h.step_ns * count,
        trigger=Trigger.SYNCHRONIZED,
        collector="kineto",
        devices=(DeviceWindow(device, *spans, causes, step.copy * count, exchange * count, state=state),),
        kernels=tuple(stats),
        ledger=Ledger(100, sum(s.calls for s in stats), total, has_host_events=True, linked_ns=total),
        steps=steps,
        represents_ns=MINUTE,
        shapes_recorded=True,
        first_step=first_step,
        collectives=calls if with_calls else (),
    )  # fmt: skip


def _stat(signature: Signature, ns: int, steps: int) -> KernelStat:
    """All calls of a signature, each as long as the others."""
    each = ns // CALLS[signature]
    durations = [each] * (CALLS[signature] * steps)
    total = ns * steps
    moved = signature.kind is Kind.COMM
    return KernelStat(
        signature, 0, len(durations), total, each, each, Histogram.from_values(durations),
        Bound.COMMUNICATION if moved else Bound.MEMORY, Evidence.DEFINITION if moved else Evidence.SHAPES,
        step_calls=len(durations), step_ns=total,
    )  # fmt: skip


_numbers = itertools.count(1)


def submit(writer: Writer, windows: list[Window]) -> None:
    """Commit them, 64 a segment."""
    for low in range(0, len(windows), 64):
        sealed = codec.seal(codec.segment(windows[low : low + 64]), "agent", "boot", next(_numbers))
        outcome = writer.submit(Unpacker().unpack(sealed)).result(60)
        assert (outcome.status, outcome.reason) == (pb.STORED, "")
