"""From a sealed segment to rows, checked: whatever passes here can be stored and asked for without trouble later.

Kernels stay columns all the way; turning each into an object would cost more than storing it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from roofwatch.model.record import Bound, Device, Evidence, Signature, Window
from roofwatch.proto import codec
from roofwatch.proto.codec import WireError
from roofwatch.proto.decode import Decoder, Known
from roofwatch.proto.v1 import roofwatch_pb2 as pb
from roofwatch.store.checks import (
    MAX_COUNT,
    MAX_NS,
    MAX_RATE,
    below,
    check_device,
    check_process,
    check_signature,
    check_texts,
    check_window,
    fail,
    in_range,
    rates,
)
from roofwatch.store.histograms import BUCKETS, encode_column
from roofwatch.store.identity import device_id, peaks_id
from roofwatch.store.schema import BOUND_CODES, EVIDENCE_CODES

MAX_ROWS = 1_000_000  # kernels in one segment: about 250 MB while it is unpacked
MAX_KNOWN = 200_000  # signatures remembered: about 200 MB

Roofs = dict[tuple[int, int], tuple[float | None, float | None]]


@dataclass(frozen=True, slots=True)
class Facts:
    """The kernels of one window: columns of ``kernel_stats`` in its order, without ``window_id``."""

    columns: tuple[Sequence[Any], ...] = ((),) * 12

    def __len__(self) -> int:
        return len(self.columns[0])


@dataclass(frozen=True, slots=True)
class UnpackedWindow:
    """A window without kernels, its kernels as columns, and the ids of its devices by position."""

    window: Window
    facts: Facts
    devices: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Unpacked:
    """A checked segment."""

    agent: str
    boot: str
    sequence: int
    crc32: int
    windows: list[UnpackedWindow]
    devices: dict[int, tuple[Device, int]]  # id → device, id of its peaks
    signatures: dict[int, Signature]
    roofs: Roofs  # (signature, peaks) → roof_ns, ridge
    drops: dict[str, int]
    rows: int


@dataclass(slots=True)
class Unpacker:
    """Remembers what it has checked; may be used by several threads."""

    known: Known = field(default_factory=dict)
    checked: set[int] = field(default_factory=set)

    def unpack(self, envelope: pb.SegmentEnvelope) -> Unpacked:
        """Check a segment and lay out its rows.

        Raises:
            WireError: it cannot be what an agent sealed; says why.
        """
        if len(self.known) > MAX_KNOWN:
            self.known, self.checked = {}, set()
        message = codec.unseal(envelope)
        if message.schema != codec.SEGMENT_SCHEMA:
            codec.windows(message)  # raises, and says what to upgrade
        rows = sum(len(w.kernels.signature) for w in message.windows)
        if rows > MAX_ROWS:
            raise WireError(f"segment of {rows} kernels: the limit is {MAX_ROWS}")
        try:
            return self._unpack(envelope, message, rows)
        except (IndexError, ValueError, KeyError, RecursionError) as error:
            raise WireError(f"damaged segment: {error}") from error

    def _unpack(self, envelope: pb.SegmentEnvelope, message: pb.Segment, rows: int) -> Unpacked:
        segment_id = envelope.id
        if not segment_id.agent or not segment_id.boot or not 0 < segment_id.sequence < 1 << 63:
            raise ValueError("no agent, boot or sequence")
        decoder = Decoder(message.dictionary, self.known)
        check_texts(segment_id.agent, segment_id.boot, *message.dictionary.strings, *message.agent_drops)
        in_range("agent_drops", message.agent_drops.values(), MAX_COUNT)
        for process in decoder.processes:
            check_process(process)
        for device in decoder.devices:
            check_device(device)
        signatures = dict(zip(decoder.signature_ids, decoder.signatures, strict=True))
        for identity in signatures.keys() - self.checked:
            check_signature(signatures[identity])
            self.checked.add(identity)
        ids = [(device_id(d), peaks_id(d)) for d in decoder.devices]
        roofs: Roofs = {}
        windows = [_unpack_window(decoder, w, ids, roofs) for w in message.windows]
        return Unpacked(
            agent=segment_id.agent,
            boot=segment_id.boot,
            sequence=segment_id.sequence,
            crc32=envelope.crc32,
            windows=windows,
            devices={ids[i][0]: (d, ids[i][1]) for i, d in enumerate(decoder.devices)},
            signatures=signatures,
            roofs=roofs,
            drops=dict(message.agent_drops),
            rows=rows,
        )


def _unpack_window(
    decoder: Decoder, message: pb.Window, ids: Sequence[tuple[int, int]], roofs: Roofs
) -> UnpackedWindow:
    window = decoder.window(message, kernels=False)
    check_window(window)
    columns = message.kernels
    devices = [ids[d.device] for d in message.devices]
    facts = _facts(decoder, columns, len(devices)) if columns.signature else Facts()
    pairs = [(s, devices[d][1]) for s, d in zip(facts.columns[0], facts.columns[7], strict=True)]
    values = zip(rates("roof_ns", columns.roof_ns, MAX_NS), rates("ridge", columns.ridge, MAX_RATE), strict=True)
    roofs.update(zip(pairs, values, strict=True))
    return UnpackedWindow(window, facts, tuple(device for device, _ in devices))


def _facts(decoder: Decoder, columns: pb.KernelStats, devices: int) -> Facts:
    signature = [decoder.signature_ids[i] for i in columns.signature]
    device = list(columns.device)
    bounds = {i: BOUND_CODES[Bound(decoder.text(i))] for i in set(columns.bound)}
    evidences = {i: EVIDENCE_CODES[Evidence(decoder.text(i))] for i in set(columns.evidence)}
    bound, evidence = [bounds[i] for i in columns.bound], [evidences[i] for i in columns.evidence]
    second = columns.formula_bound or [0] * len(signature)  # not sent by the first versions, nor where there is none
    seconds = {i: BOUND_CODES[Bound(decoder.text(i))] if i else None for i in set(second)}
    total, low, high = list(columns.total_ns), list(columns.min_ns), list(columns.max_ns)
    step, calls, step_calls = list(columns.step_ns), list(columns.calls), list(columns.step_calls)
    formula = [seconds[i] for i in second]
    facts = (
        signature, total, low, high, step, calls, step_calls, device, evidence, bound, _histograms(columns), formula,
    )  # fmt: skip
    if {len(column) for column in facts} != {len(signature)}:
        fail("kernel columns of unequal lengths")
    below("device", device, devices)
    for name, column in (("total_ns", total), ("min_ns", low), ("max_ns", high), ("step_ns", step)):
        below(name, column, MAX_NS)
    for name, column in (("calls", calls), ("step_calls", step_calls)):
        below(name, column, MAX_COUNT)
    if len(set(zip(signature, device, evidence, strict=True))) != len(signature):
        fail("the same signature, device and evidence twice in a window")
    return Facts(facts)


def _histograms(columns: pb.KernelStats) -> list[bytes]:
    lows, lengths = list(columns.histogram_low), list(columns.histogram_length)
    counts = np.fromiter(columns.histogram_counts, np.uint64, len(columns.histogram_counts))
    if len(lows) != len(lengths) or sum(lengths) != len(counts):
        fail("the histogram columns do not fit each other")
    below("histogram_low", lows, BUCKETS)
    below("histogram_length", lengths, BUCKETS)
    if len(counts):
        below("histogram_counts", [int(counts.max())], MAX_COUNT)
    return encode_column(lows, lengths, counts)
