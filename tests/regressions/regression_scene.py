"""Windows of two sides by a stated noise model, in a real store.

Of each kernel: true mean × exp(noise · N(0, 1)) a window, all its calls alike; the noise is that from window to window.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import fresh
import numpy as np

from roofwatch.model.histogram import Histogram
from roofwatch.model.kinds import Kind
from roofwatch.model.record import (
    Bound,
    Cost,
    Device,
    DeviceState,
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
from roofwatch.store.ingest import Writer
from roofwatch.store.unpack import Unpacker

BEGIN_NS = 1_800_000_000_000_000_000
MINUTE_NS = 60_000_000_000
STEPS = 2
A_SEGMENT = 100  # windows


def kernel(i: int, *, name: str | None = None, shapes: str | None = "", op: str | None = "aten::mm") -> Signature:
    """One of many kernels, each of a shape of its own."""
    told = f"[[{i + 1},64],[64,64]]" if shapes == "" else shapes
    return Signature(name or f"gemm_{i}", Kind.MATMUL, op, shapes=told, dtypes='["bf16","bf16"]')


@dataclass(frozen=True, slots=True)
class Work:
    """What one kernel does in a step."""

    signature: Signature
    mean_ns: float = 1e6
    calls: int = 4  # a step
    bound: Bound = Bound.COMPUTE


@dataclass(frozen=True)
class Scene:
    """One side: its work, its windows, and what they are known by."""

    work: Sequence[Work]
    windows: int
    labels: Mapping[str, str]
    noise: float = 0.01
    seed: int = 1
    devices: int = 1  # ranks, each with a device and as many windows
    model: str = "llama"
    device: str = "NVIDIA H100 80GB HBM3"
    first_minute: int = 0
    state: DeviceState | None = None
    steps: int | None = STEPS
    pid: int = 100
    outliers: Mapping[int, float] = field(default_factory=dict)  # of which window the times grow to what
    outlier_of: str | None = None  # the one kernel whose times grow in them; None: all
    scale: Mapping[str, float] = field(default_factory=dict)  # of a kernel's name the factor of its time
    host_ns: int = 0  # idle time of a step


def windows(scene: Scene) -> list[Window]:
    """The windows of one side, the ranks of a minute one after another."""
    draw = np.random.default_rng(scene.seed)
    found = []
    for n in range(scene.windows):
        for rank in range(scene.devices):
            grown = [
                scene.outliers.get(n, 1.0) if scene.outlier_of in {None, work.signature.kernel} else 1.0
                for work in scene.work
            ]
            wide = np.exp(draw.normal(0.0, scene.noise, len(scene.work))) * np.array(grown)
            found.append(_window(scene, n, rank, wide.tolist()))
    return found


def _window(scene: Scene, n: int, rank: int, factors: Sequence[float]) -> Window:
    stats = []
    for work, factor in zip(scene.work, factors, strict=True):
        one = round(work.mean_ns * factor * scene.scale.get(work.signature.kernel, 1.0))
        calls = work.calls * STEPS
        total = one * calls
        stats.append(
            KernelStat(
                work.signature, 0, calls, total, one, one, Histogram.from_values([one] * calls), work.bound,
                Evidence.SHAPES, step_calls=calls if scene.steps else 0, step_ns=total if scene.steps else 0,
            )
        )  # fmt: skip
    busy = sum(s.total_ns for s in stats)
    label = "".join(f"{k}{v}" for k, v in sorted(scene.labels.items()))
    start = BEGIN_NS + (scene.first_minute + n) * MINUTE_NS
    process = Process(
        Node("gpu-07", "boot"), scene.pid + rank, BEGIN_NS + scene.first_minute * MINUTE_NS, job="slurm:1", rank=rank,
        world_size=scene.devices, model=scene.model, labels=dict(scene.labels),
    )  # fmt: skip
    device = Device(Vendor.NVIDIA, scene.device, uuid=f"GPU-{rank}", index=0)
    span = busy + STEPS * scene.host_ns
    return Window(
        uid=hashlib.blake2b(f"{label}{scene.pid}{rank}{n}".encode(), digest_size=16).hexdigest(),
        process=process,
        start_unix_ns=start + rank,
        duration_ns=span,
        trigger=Trigger.PERIODIC,
        collector="kineto",
        devices=(DeviceWindow(device, span, busy, state=scene.state),),
        kernels=tuple(stats),
        ledger=Ledger(100, 100, busy, has_host_events=True, linked_ns=busy, classifiable_ns=busy, classified_ns=busy),
        steps=scene.steps,
        represents_ns=MINUTE_NS,
        shapes_recorded=True,
        cost=Cost("plain", 0, 0, 0, 0, 0, base_step_ns=span // STEPS) if scene.steps else None,
    )


def stored(folder: Path, *scenes: Scene) -> str:
    """The URL of a fresh database that holds the windows of all scenes."""
    url = f"sqlite:///{folder / 'store.db'}"
    opened = fresh.opened(folder / "store.db")
    writer = Writer(opened)
    unpacker = Unpacker()
    try:
        taken = [window for scene in scenes for window in windows(scene)]
        for sequence, low in enumerate(range(0, len(taken), A_SEGMENT), 1):
            sealed = codec.seal(codec.segment(taken[low : low + A_SEGMENT]), "agent", f"boot {scenes[0].pid}", sequence)
            outcome = writer.submit(unpacker.unpack(sealed)).result(60)
            assert outcome.reason == "", outcome.reason
    finally:
        writer.close()
        opened.close()
    return url
