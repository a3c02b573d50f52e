"""Windows drawn from a seed, as large as those of a training job: 300 kernels with names as long as real ones."""

from __future__ import annotations

import json
import random

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

SEED = 20
RANKS, KERNELS = 8, 300  # of a node, of a window
OWN = 30  # kernels that only one rank of a node runs
BEGIN_NS, MINUTE_NS = 1_800_000_000_000_000_000, 60_000_000_000


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
        start_unix_ns=BEGIN_NS + minute * MINUTE_NS,
        duration_ns=busy * 2,
        trigger=Trigger.PERIODIC,
        collector="kineto",
        devices=(DeviceWindow(device, busy * 2, busy),),
        kernels=tuple(kernels),
        ledger=Ledger(100_000, 10_000, busy, has_host_events=True, linked_ns=busy),
        represents_ns=MINUTE_NS,
    )


def windows(count: int, seed: int = SEED) -> list[Window]:
    """Windows of as many jobs."""
    known, draw = signatures(random.Random(SEED)), random.Random(seed)
    return [
        window_of(Process(Node("node", "boot"), 100 + i, 1), draw.sample(known, KERNELS), draw, 0) for i in range(count)
    ]


def segments_of(agent: int, minutes: int) -> list[pb.SegmentEnvelope]:
    """What the agent of one node with eight ranks of a job sends: a segment a minute."""
    draw = random.Random(SEED + agent)
    known = signatures(random.Random(SEED))
    processes = [Process(Node(f"node-{agent}", "boot"), 100 + rank, 1, rank=rank) for rank in range(RANKS)]
    common = draw.sample(known[:KERNELS], KERNELS - OWN)  # the ranks of a job run the same model
    mine = [[*common, *draw.sample(known[KERNELS:], OWN)] for _ in processes]
    return [
        codec.seal(
            codec.segment([window_of(p, k, draw, minute) for p, k in zip(processes, mine, strict=True)]),
            f"agent-{agent}",
            "boot",
            minute + 1,
        )
        for minute in range(minutes)
    ]
