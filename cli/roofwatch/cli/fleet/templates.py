"""From a few real windows to the segments of a fleet: each node's own, varied by a seed, at the present time.

A variant takes γⁿ times as long (n from −3 to 3, the histograms' own γ), so that its times, sums and histograms still
belong together: every time is scaled and rounded down, and every histogram moves by n buckets.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Any

from google.protobuf.descriptor import FieldDescriptor

from roofwatch.model.histogram import GAMMA
from roofwatch.model.record import Node, Process, Trigger, Window
from roofwatch.proto import codec
from roofwatch.proto.v1 import roofwatch_pb2 as pb

SPREAD = 3  # buckets up and down
VARIANTS = 6  # segments kept ready of each window; a node sends one after the other
FIRST_PID = 1000  # of a node, its rank 0
LABEL = "replay"  # of every process, with the run's name
_KEPT = {"start_unix_ns", "represents_ns"}
_WHOLE = {
    FieldDescriptor.CPPTYPE_INT32, FieldDescriptor.CPPTYPE_INT64, FieldDescriptor.CPPTYPE_UINT32,
    FieldDescriptor.CPPTYPE_UINT64,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Sent:
    """When a window began and ended (Unix ns)."""

    start_unix_ns: int
    end_unix_ns: int


def templates(windows: Sequence[Window], ranks: int, draw: random.Random) -> list[list[pb.Segment]]:
    """For each window its variants: segments of ``ranks`` windows, without time and identity."""
    return [[_variant(base, ranks, draw) for _ in range(VARIANTS)] for base in windows]


def _variant(base: Window, ranks: int, draw: random.Random) -> pb.Segment:
    message = codec.segment([_of_rank(base, rank, ranks) for rank in range(ranks)])
    for window in message.windows:
        scale(window, draw.randint(-SPREAD, SPREAD))
    return message


def _of_rank(window: Window, rank: int, ranks: int) -> Window:
    process = Process(
        Node("node", "boot"), FIRST_PID + rank, 1, rank=rank, local_rank=rank, world_size=ranks,
        model=window.process.model, versions=window.process.versions, labels={LABEL: ""},
    )  # fmt: skip
    devices = tuple(replace(d, device=replace(d.device, uuid=f"{rank}-{i}")) for i, d in enumerate(window.devices))
    return replace(window, process=process, devices=devices, trigger=Trigger.PERIODIC)


def scale(window: pb.Window, buckets: int) -> None:
    """Make a window take GAMMA to the power of ``buckets`` times as long."""
    factor = round(1024 * GAMMA**buckets)
    _scale(window, factor)
    for i, low in enumerate(window.kernels.histogram_low):
        window.kernels.histogram_low[i] = max(0, low + buckets)


def _scale(message: Any, factor: int) -> None:
    for field, value in message.ListFields():
        if field.message_type is not None:
            if field.message_type.GetOptions().map_entry:
                continue
            for part in value if field.is_repeated else (value,):
                _scale(part, factor)
        elif field.name.endswith("_ns") and field.name not in _KEPT and field.cpp_type in _WHOLE:
            if field.is_repeated:
                value[:] = [(n * factor) >> 10 for n in value]
            elif value != -1:  # unknown
                setattr(message, field.name, (value * factor) >> 10)


@dataclass(frozen=True, slots=True)
class Source:
    """What the nodes of a run draw their segments from; a node stays with one job."""

    jobs: Sequence[Sequence[pb.Segment]]
    run: str
    interval_ns: int

    def segment(self, node: int, sequence: int, now_ns: int) -> tuple[pb.SegmentEnvelope, list[Sent]]:
        """The segment that a node seals now, and when its windows were: each has just ended."""
        message = pb.Segment()
        variants = self.jobs[node % len(self.jobs)]
        message.CopyFrom(variants[(node + sequence) % len(variants)])
        host = host_of(node)
        for one in message.dictionary.nodes:
            one.host, one.boot_id = host, f"{self.run}-{node}"
        for process in message.dictionary.processes:
            process.job, process.labels[LABEL] = f"{LABEL}:{node}", self.run
        for device in message.dictionary.devices:
            device.uuid = f"{host}-{device.uuid}"
        sent = list(self._place(message.windows, node, sequence, now_ns))
        return codec.seal(message, agent_of(self.run, node), self.run, sequence), sent

    def _place(self, windows: Sequence[pb.Window], node: int, sequence: int, now_ns: int) -> Iterator[Sent]:
        for i, window in enumerate(windows):
            window.uid = blake2b(f"{self.run} {node} {sequence} {i}".encode(), digest_size=16).digest()
            start = now_ns - window.duration_ns
            for at, began in enumerate(window.collectives.start_unix_ns):
                window.collectives.start_unix_ns[at] = began - window.start_unix_ns + start
            window.start_unix_ns, window.represents_ns = start, self.interval_ns
            yield Sent(start, now_ns)


def host_of(node: int) -> str:
    """The name of a simulated node."""
    return f"{LABEL}-{node:05d}"


def agent_of(run: str, node: int) -> str:
    """The name of its agent."""
    return f"{LABEL}-{run}-{node:05d}"
