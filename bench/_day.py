"""A store of 24 hours of one node: 8 devices, a window a device and minute, 300 kernels a window.

One job of 8 ranks that was started again at noon with another version: label version=v1 before, v2 after. In v2 the
signatures at REGRESSED take 5 % longer. Everything is drawn from a seed; the store's own Loader writes it.
"""

from __future__ import annotations

import json
import random
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
import numpy.typing as npt

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
from roofwatch.store import database, rollup
from roofwatch.store.load import Hello, Loader
from roofwatch.store.schema import REVISION
from roofwatch.store.unpack import Unpacker

SEED = 24
HOST, MODEL, JOB = "gpu-07", "llama-7b", "slurm:4242"
BEGIN_NS = 1_798_761_600_000_000_000  # 2027-01-01 00:00 UTC
MINUTE_NS = 60_000_000_000
DEVICES, MINUTES, ROWS = 8, 1440, 300
COMMON, RARE = 285, 400  # signatures of every window; shapes of which each window meets ROWS - COMMON
REGRESSED = (3, 40)  # in v2 5 % slower
COLLECTIVES = 32  # of a window
GROUP = 96  # windows a segment
PEAKS = Peaks({("bf16", "matrix"): Peak(989e12, "datasheet"), ("fp32", "vector"): Peak(67e12, "datasheet")},
              Peak(3.35e12, "datasheet"))  # fmt: skip
CLOCK_HZ = 1.98e9
WIDE = 9  # buckets that the calls of one kernel in one window fall into

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Kernels:
    """The signatures, the common ones first: each once as a record, their calls a window, and mean ns of a call."""

    records: list[KernelStat]
    calls: Ints
    mean_ns: npt.NDArray[np.float64]


# kind, op, share of the signatures, bound, evidence
FAMILIES = (
    (Kind.MATMUL, "aten::addmm", 0.24, Bound.COMPUTE, Evidence.SHAPES),
    (Kind.ATTENTION, "aten::_flash_attention_forward", 0.03, Bound.COMPUTE, Evidence.SHAPES),
    (Kind.ATTENTION, "aten::_flash_attention_backward", 0.03, Bound.COMPUTE, Evidence.SHAPES),
    (Kind.NORM, "aten::native_layer_norm", 0.06, Bound.MEMORY, Evidence.SHAPES),
    (Kind.ELEMENTWISE, "aten::add", 0.38, Bound.MEMORY, Evidence.SHAPES),
    (Kind.SOFTMAX, "aten::_softmax", 0.04, Bound.MEMORY, Evidence.BORROWED),
    (Kind.OPTIMIZER, "aten::_fused_adam_", 0.06, Bound.MEMORY, Evidence.SHAPES),
    (Kind.COPY_FILL, "aten::copy_", 0.06, Bound.COPY, Evidence.DEFINITION),
    (Kind.COMM, "nccl:all_reduce", 0.04, Bound.COMMUNICATION, Evidence.DEFINITION),
    (Kind.OTHER, None, 0.06, Bound.UNKNOWN, Evidence.NONE),
)


def kernels() -> Kernels:
    """COMMON + RARE signatures with names as long as real ones."""
    draw = random.Random(SEED)
    shares = [share for _, _, share, _, _ in FAMILIES]
    records, means, calls = [], [], []
    for i in range(COMMON + RARE):
        family = draw.choices(range(len(FAMILIES)), shares)[0] if i >= len(FAMILIES) else i
        kind, op, _, bound, evidence = FAMILIES[family]
        mean = 4e6 / (i % COMMON + 8) * draw.uniform(0.5, 1.5)
        signature, roof = _signature(draw, i, kind, op, mean, bound)
        once = Histogram.from_values([1000])
        records.append(KernelStat(signature, 0, 1, 1000, 1000, 1000, once, bound, evidence, *roof, 1, 1000))
        means.append(mean)
        calls.append(draw.choice((2, 4, 4, 8, 24)))
    return Kernels(records, np.array(calls), np.array(means))


def _signature(
    draw: random.Random, number: int, kind: Kind, op: str | None, mean_ns: float, bound: Bound
) -> tuple[Signature, tuple[float | None, float | None]]:
    rows, inner = draw.choice((512, 1024, 2048, 4096)), draw.randrange(64, 8192, 64)
    known = bound in {Bound.COMPUTE, Bound.MEMORY}
    roof_ns = mean_ns * draw.uniform(0.4, 0.95)
    ridge = 989e12 / 3.35e12 if bound is Bound.COMPUTE else 67e12 / 3.35e12
    moved = int(roof_ns * 3350 / (2 if bound is Bound.COMPUTE else 1))
    flops = int(roof_ns * 989e3 if bound is Bound.COMPUTE else moved * ridge / 40)
    told = json.dumps({"collective": "all_reduce", "group_size": 8}) if kind is Kind.COMM else None
    phase = Phase.OPTIMIZER if kind is Kind.OPTIMIZER else draw.choice((Phase.FORWARD, Phase.BACKWARD))
    signature = Signature(
        kernel=f"void {kind}::kernel_{draw.getrandbits(96):024x}<128, 256, 64, bfloat16, {number}>(Params const&, int)",
        kind=kind,
        op=op,
        phase=phase,
        module=f"layers.*.{'mlp' if number % 3 else 'self_attn'}" if known else None,
        shapes=json.dumps([[rows, inner], [inner, 4096]]) if op else None,
        dtypes='["bf16","bf16"]' if op else None,
        arguments=told,
        flops=flops if known else None,
        bytes=moved if known or kind is Kind.COMM else None,
        formula=str(kind) if known else None,
        precision=("bf16" if bound is Bound.COMPUTE else "fp32") if known else None,
        unit=("matrix" if bound is Bound.COMPUTE else "vector") if known else None,
    )
    return signature, (roof_ns, ridge) if known else (None, None)


def columns(
    k: Kernels, noise: np.random.Generator, count: int, slower: npt.NDArray[np.float64]
) -> list[dict[str, Ints]]:
    """The kernels of so many windows: log-normal noise of 1 % between windows, 3 % between calls."""
    rare = COMMON + np.argsort(noise.random((count, RARE)), axis=1)[:, : ROWS - COMMON]
    chosen = np.concatenate((np.tile(np.arange(COMMON), (count, 1)), rare), axis=1)
    calls = k.calls[chosen]
    mean = k.mean_ns[chosen] * slower[chosen] * np.exp(noise.normal(0, 0.01, chosen.shape))
    odds = np.exp(-0.5 * ((np.arange(WIDE) - WIDE // 2) / 0.9) ** 2)
    spread = noise.multinomial(calls.ravel(), odds / odds.sum())  # calls by bucket around the mean's
    middle = np.ceil(np.log(mean.ravel()) / np.log(GAMMA)).astype(np.int64)
    first, last = (spread > 0).argmax(axis=1), WIDE - 1 - (spread[:, ::-1] > 0).argmax(axis=1)
    lows = middle - WIDE // 2 + first
    inside = (np.arange(WIDE) >= first[:, None]) & (np.arange(WIDE) <= last[:, None])
    lengths, counts = last - first + 1, spread[inside]
    low = (GAMMA ** (lows - 0.5)).astype(np.int64)
    high = np.maximum((GAMMA ** (lows + last - first - 0.5)).astype(np.int64), low)
    total = np.clip((mean.ravel() * calls.ravel()).astype(np.int64), low * calls.ravel(), high * calls.ravel())
    told = {
        "signature": chosen, "device": np.zeros_like(chosen), "calls": calls, "total_ns": total, "min_ns": low,
        "max_ns": high, "step_calls": calls, "step_ns": total, "histogram_low": lows, "histogram_length": lengths,
    }  # fmt: skip
    whole = {name: column.reshape(chosen.shape) for name, column in told.items()}
    ends = np.cumsum(lengths).reshape(chosen.shape)[:, -1]
    found = []
    for i in range(count):
        own = counts[ends[i - 1] if i else 0 : ends[i]]
        found.append({**{name: column[i] for name, column in whole.items()}, "histogram_counts": own})
    return found


@lru_cache
def process_of(rank: int, version: int) -> Process:
    """A rank of the job's first or second half."""
    return Process(
        Node(HOST, "boot", {"cluster": "a"}), 1000 * version + rank, BEGIN_NS - 1, user="ada", job=JOB, rank=rank,
        local_rank=rank, world_size=DEVICES, model=MODEL, versions={"torch": "2.13.0", "cuda": "13.0"},
        labels={"version": f"v{version}"},
    )  # fmt: skip


@lru_cache
def device_of(rank: int) -> Device:
    """The device of a rank."""
    return Device(Vendor.NVIDIA, "NVIDIA H100 80GB HBM3", f"GPU-{rank}", 0, 80 << 30, 132, "580.1", peaks=PEAKS)


def window_of(
    draw: random.Random, minute: int, rank: int, busy: int, comm: int, kernels: tuple[KernelStat, ...]
) -> Window:
    """A window with these kernels, or without."""
    idle = int(busy * draw.uniform(0.2, 0.4))
    parts = (Cause.INPUT, Cause.COPY, Cause.SYNC, Cause.LAUNCH_BOUND, Cause.LAUNCH_GAP, Cause.HOST)
    cuts = sorted(draw.randrange(idle) for _ in parts[1:])
    spans = [b - a for a, b in zip((0, *cuts), (*cuts, idle), strict=True)]
    causes = tuple(
        IdleCause(cause, ns, draw.randrange(1, 300), max(1, ns // 3), f"aten::op_{draw.randrange(99)}")
        for cause, ns in zip(parts, spans, strict=True)
    )
    state = DeviceState(CLOCK_HZ * draw.gauss(0.97, 0.003), CLOCK_HZ, draw.gauss(610, 8), 700.0, draw.gauss(62, 1), "")
    start = BEGIN_NS + minute * MINUTE_NS
    lengths = sorted(min(2048, max(16, int(draw.lognormvariate(5.5, 0.8)))) for _ in range(16))
    device = DeviceWindow(
        device_of(rank), busy + idle, busy, causes, busy // 50, max(comm // 2, busy // 10), 60 << 30, 70 << 30, state
    )
    each = comm // COLLECTIVES
    return Window(
        uid=f"{draw.getrandbits(128):032x}",
        process=process_of(rank, 1 if minute < MINUTES // 2 else 2),
        start_unix_ns=start + rank,
        duration_ns=busy + idle,
        trigger=Trigger.SYNCHRONIZED,
        collector="kineto",
        devices=(device,),
        kernels=kernels,
        ledger=Ledger(
            60_000,
            2500,
            busy,
            has_host_events=True,
            linked_ns=busy - 90_000,
            backlog_ns=50_000,
            classifiable_ns=busy - comm,
            classified_ns=int((busy - comm) * 0.95),
            named_ns=1000,
            dropped={"unfinished": draw.randrange(1, 5)},
            model_ns=busy // 2,
            model_known_ns=busy // 2,
            model_flops=busy * 400_000,
            model_peak_ns=busy // 3,
            waits=12,
            wait_ns=idle // 4,
            longest_wait_ns=idle // 9,
        ),
        steps=2,
        represents_ns=MINUTE_NS + draw.randrange(1000),
        shapes_recorded=True,
        cost=Cost(
            "native",
            10_000_000,
            200_000,
            9_000_000,
            5_000_000,
            100_000,
            busy // 2,
            busy,
            busy // 40,
            100_000,
            600_000_000,
        ),
        padding=Padding(
            2,
            sum(lengths),
            16 * lengths[-1],
            sum(n * n for n in lengths),
            16 * lengths[-1] ** 2,
            tuple((n, lengths.count(n)) for n in sorted(set(lengths))),
        ),
        first_step=minute * 120,
        collectives=tuple(
            Collective(
                0,
                "all_reduce",
                "default_pg",
                start + i * (busy + idle) // COLLECTIVES,
                int(each * draw.uniform(0.8, 1.2)),
                DEVICES,
                minute * COLLECTIVES + i,
                100 << 20,
            )
            for i in range(COLLECTIVES)
        ),
    )


def segments(minutes: int = MINUTES) -> Iterator[pb.SegmentEnvelope]:
    """The day, in the order in which it was sent."""
    k, draw, noise = kernels(), random.Random(SEED), np.random.default_rng(SEED)
    of_comm = np.array([i for i, one in enumerate(k.records) if one.signature.kind is Kind.COMM])
    each = GROUP // DEVICES
    for number, begin in enumerate(range(0, minutes, each), 1):
        slower = np.ones(COMMON + RARE)
        if begin >= MINUTES // 2:
            slower[list(REGRESSED)] = 1.05
        pairs = [(minute, rank) for minute in range(begin, min(begin + each, minutes)) for rank in range(DEVICES)]
        told = columns(k, noise, len(pairs), slower)
        windows: list[Window] = []
        for (minute, rank), own in zip(pairs, told, strict=True):
            comm = int(own["total_ns"][np.isin(own["signature"], of_comm)].sum())
            every = tuple(k.records) if not windows else ()  # so that the dictionary has them, in this order
            windows.append(window_of(draw, minute, rank, int(own["total_ns"].sum()), comm, every))
        yield codec.seal(_with_columns(codec.segment(windows), told), "agent-a", "boot-a", number)


def _with_columns(message: pb.Segment, told: list[dict[str, Ints]]) -> pb.Segment:
    """The segment with its windows' own kernels instead of the first one's, which has each signature once."""
    first = message.windows[0].kernels
    fixed = {name: np.asarray(getattr(first, name)) for name in ("bound", "evidence", "roof_ns", "ridge")}
    for window, own in zip(message.windows, told, strict=True):
        window.kernels.Clear()
        for name, values in {**own, **{name: values[own["signature"]] for name, values in fixed.items()}}.items():
            getattr(window.kernels, name).extend(values.tolist())
    return message


def build(file: Path, minutes: int = MINUTES) -> float:
    """Write the day into a fresh store; CPU seconds of the store's part."""
    opened = database.open(str(file))
    loader, unpacker = Loader(now_ns=time.time_ns), Unpacker()
    took = 0.0
    for envelope in segments(minutes):
        begin = time.process_time()
        unpacked = unpacker.unpack(envelope)
        with opened.write() as connection:
            loader.load(connection, [Hello("agent-a", "boot-a", "0", process_of(0, 1).node), unpacked])
        loader.commit()
        took += time.process_time() - begin
    with opened.write() as connection:  # what a store does between segments: the last hour is not over
        while rollup.sweep(connection, BEGIN_NS + minutes * MINUTE_NS):
            pass
    opened.truncate_log()
    opened.close()
    return took


def day(folder: Path) -> Path:
    """The day's store, built if this version has not built it yet."""
    name = f"day-{REVISION}-{crc32(Path(__file__).read_bytes()):08x}.db"
    file = folder / name
    if not file.exists():
        folder.mkdir(parents=True, exist_ok=True)
        for old in folder.glob("day-*"):
            old.unlink()
        draft = folder / "day-draft.db"
        cpu = build(draft)
        sys.stderr.write(f"built {name}: {cpu / (MINUTES * DEVICES * ROWS) * 1e6:.2f} µs a row of the store's CPU\n")
        draft.rename(file)
    return file


def about(file: Path) -> dict[str, Any]:
    """Its size."""
    return {"bytes": file.stat().st_size, "rows": MINUTES * DEVICES * ROWS}
