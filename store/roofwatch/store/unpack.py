"""From a sealed segment to rows, checked: whatever passes here can be stored and asked for without trouble later.

Kernels stay columns all the way; turning each into an object would cost more than storing it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from roofwatch.model.record import Bound, Device, Evidence, Signature, Window
from roofwatch.proto import codec
from roofwatch.proto.codec import WireError
from roofwatch.proto.decode import Decoder, Known
from roofwatch.proto.v1 import roofwatch_pb2 as pb
from roofwatch.store.blocks import FACT, Ints
from roofwatch.store.checks import (
    MAX_COUNT,
    MAX_NS,
    MAX_RATE,
    check_device,
    check_process,
    check_signature,
    check_texts,
    check_window,
    fail,
    in_range,
)
from roofwatch.store.histograms import BUCKETS, Histograms
from roofwatch.store.identity import device_id, devices_id, peaks_id
from roofwatch.store.schema import BOUND_CODES, EVIDENCE_CODES, NO_KERNELS

MAX_ROWS = 1_000_000  # kernels in one segment: about 250 MB while it is unpacked
MAX_KNOWN = 200_000  # signatures remembered: about 200 MB
_TIMES = ("total_ns", "min_ns", "max_ns", "step_ns")

Roofs = dict[tuple[int, int], tuple[float | None, float | None]]


@dataclass(frozen=True, slots=True)
class Facts:
    """The kernels of one window: a matrix of ``blocks.FACT``, and a histogram each."""

    columns: Ints
    histograms: Histograms

    def __len__(self) -> int:
        return int(self.columns.shape[1])


NO_FACTS = Facts(np.zeros((len(FACT), 0), np.int64), Histograms.joined(()))


@dataclass(frozen=True, slots=True)
class UnpackedWindow:
    """A window without kernels, its kernels as columns, and the ids of its devices by position."""

    window: Window
    facts: Facts
    devices: tuple[int, ...]
    process_id: int
    devices_id: int


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
        except (IndexError, ValueError, KeyError, RecursionError, OverflowError) as error:
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
        segment = _Segment(
            decoder,
            ids,
            np.array(decoder.signature_ids, np.int64),
            np.array(message.dictionary.signatures.kernel, int),
            [process.id for process in decoder.processes],
        )
        windows = [segment.window(w) for w in message.windows]
        return Unpacked(
            agent=segment_id.agent,
            boot=segment_id.boot,
            sequence=segment_id.sequence,
            crc32=envelope.crc32,
            windows=windows,
            devices={ids[i][0]: (d, ids[i][1]) for i, d in enumerate(decoder.devices)},
            signatures=signatures,
            roofs=segment.roofs,
            drops=dict(message.agent_drops),
            rows=rows,
        )


@dataclass(slots=True)
class _Segment:
    """What the windows of a segment share, and the roofs that they tell."""

    decoder: Decoder
    ids: Sequence[tuple[int, int]]  # of devices and their peaks
    signatures: Ints
    names: Ints  # of their kernels, by place in the dictionary
    processes: Sequence[int]  # ids
    sets: dict[tuple[int, ...], int] = field(default_factory=dict)  # ids of sets of devices
    roofs: Roofs = field(default_factory=dict)
    told: set[tuple[int, int]] = field(default_factory=set)  # (place of signature, peaks)

    def window(self, message: pb.Window) -> UnpackedWindow:
        window = self.decoder.window(message, kernels=False)
        check_window(window)
        devices = [self.ids[d.device] for d in message.devices]
        facts = self._facts(message.kernels, [d.device.model for d in window.devices])
        self._add_roofs(message.kernels, len(facts), [peaks for _, peaks in devices])
        of = tuple(device for device, _ in devices)
        if of not in self.sets:
            self.sets[of] = devices_id(of)
        return UnpackedWindow(window, facts, of, self.processes[message.process], self.sets[of])

    def _add_roofs(self, columns: pb.KernelStats, rows: int, peaks: Sequence[int]) -> None:
        """The roofs that are known, where the segment has not told them yet."""
        roof = _rates("roof_ns", columns.roof_ns, 0.0, MAX_NS)
        ridge = _rates("ridge", columns.ridge, 1 / MAX_RATE, MAX_RATE)
        if not len(roof) == len(ridge) == rows:
            fail("kernel columns of unequal lengths")
        unknown = (np.isnan(roof) & np.isnan(ridge)).tolist()
        for i, pair in enumerate(zip(columns.signature, [peaks[d] for d in columns.device], strict=True)):
            if pair not in self.told and not unknown[i]:
                self.told.add(pair)
                self.roofs[int(self.signatures[pair[0]]), pair[1]] = (_known(roof[i]), _known(ridge[i]))

    def _facts(self, columns: pb.KernelStats, models: Sequence[str]) -> Facts:
        rows = len(columns.signature)
        if not rows:
            return NO_FACTS
        places = _column("signature", columns.signature, len(self.signatures))
        device = _column("device", columns.device, len(models))
        text = self.decoder.text
        bounds = {i: BOUND_CODES[Bound(text(i))] for i in set(columns.bound)}
        evidences = {i: EVIDENCE_CODES[Evidence(text(i))] for i in set(columns.evidence)}
        second = columns.formula_bound or [0] * rows  # not sent by the first versions, nor where there is none
        seconds = {i: BOUND_CODES[Bound(text(i))] if i else -1 for i in set(second)}
        told = {
            "device": device,
            **{name: _column(name, getattr(columns, name), MAX_NS) for name in _TIMES},
            **{name: _column(name, getattr(columns, name), MAX_COUNT) for name in ("calls", "step_calls")},
            "evidence": np.array([evidences[i] for i in columns.evidence], np.int64),
            "bound": np.array([bounds[i] for i in columns.bound], np.int64),
            "formula_bound": np.array([seconds[i] for i in second], np.int64),
        }
        if {rows} != {len(column) for column in told.values()}:
            fail("kernel columns of unequal lengths")
        told["signature_id"] = self.signatures[places]
        told["first"] = first_of_kernels(self.names[places], device, told["bound"], models)
        keys = (places * len(models) + device) * len(EVIDENCE_CODES) + told["evidence"]
        if len(np.unique(keys)) != rows:
            fail("the same signature, device and evidence twice in a window")
        return Facts(np.stack([told[name] for name in FACT]), _histograms(columns, rows))


def _known(value: np.float64) -> float | None:
    return None if np.isnan(value) else float(value)


def _rates(name: str, values: Sequence[float], least: float, limit: float) -> npt.NDArray[np.float64]:
    """Floats as they travel, not a number where unknown."""
    column = np.fromiter(values, np.float64, len(values))
    if not ((np.isnan(column)) | ((column >= least) & (column < limit))).all():
        fail(f"{name}: a value is out of range")
    return column


def first_of_kernels(names: Ints, device: Ints, bound: Ints, models: Sequence[str]) -> Ints:
    """1 for one row of each kernel's name a device model, 0 for the others and what is no kernel to look into."""
    model = np.array([models.index(name) for name in models], np.int64)[device]
    first = np.zeros(len(names), np.int64)
    kernels = np.flatnonzero(~np.isin(bound, NO_KERNELS))
    _, where = np.unique(names[kernels] * len(models) + model[kernels], return_index=True)
    first[kernels[where]] = 1
    return first


def _column(name: str, values: Sequence[int], limit: int) -> Ints:
    """A column of what the wire has unsigned."""
    column = np.fromiter(values, np.uint64, len(values))
    if len(column) and int(column.max()) >= limit:
        fail(f"{name}: {column.max()} is out of range")
    return column.astype(np.int64)


def _histograms(columns: pb.KernelStats, rows: int) -> Histograms:
    lows = _column("histogram_low", columns.histogram_low, BUCKETS)
    lengths = _column("histogram_length", columns.histogram_length, BUCKETS)
    counts = _column("histogram_counts", columns.histogram_counts, MAX_COUNT)
    if not len(lows) == len(lengths) == rows or int(lengths.sum()) != len(counts):
        fail("the histogram columns do not fit each other")
    return Histograms(lows, lengths, counts)
