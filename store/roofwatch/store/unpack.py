"""From a sealed segment to rows, checked: whatever passes here can be stored and asked for without trouble later.

Kernels stay columns all the way; turning each into an object would cost more than storing it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, NoReturn

import numpy as np

from roofwatch.model.record import (
    Bound,
    Collective,
    Device,
    Evidence,
    Graph,
    IdleCause,
    Node,
    Process,
    Signature,
    Window,
)
from roofwatch.proto import codec
from roofwatch.proto.codec import WireError
from roofwatch.proto.decode import Decoder, Known
from roofwatch.proto.v1 import roofwatch_pb2 as pb
from roofwatch.store.histograms import BUCKETS, encode_column
from roofwatch.store.identity import device_id, peaks_id
from roofwatch.store.schema import BOUND_CODES, EVIDENCE_CODES

MAX_NS = 1 << 50  # 13 days: longer is no duration of one window, and 8,000 of them still fit a 64-bit sum
MAX_COUNT = 1 << 50
MAX_UNIX_NS = 1 << 62  # the year 2116
MAX_TEXT = 1 << 16  # characters; the names of C++ templates run to thousands
MAX_ROWS = 1_000_000  # kernels in one segment: about 250 MB while it is unpacked
MAX_PARTS = 10_000  # collectives, or graphs, in one window
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
        _check_texts(segment_id.agent, segment_id.boot, *message.dictionary.strings, *message.agent_drops)
        _in_range("agent_drops", message.agent_drops.values(), MAX_COUNT)
        for process in decoder.processes:
            _check_process(process)
        for device in decoder.devices:
            _check_device(device)
        signatures = dict(zip(decoder.signature_ids, decoder.signatures, strict=True))
        for identity in signatures.keys() - self.checked:
            _check_signature(signatures[identity])
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
    _check_window(window)
    columns = message.kernels
    devices = [ids[d.device] for d in message.devices]
    facts = _facts(decoder, columns, len(devices)) if columns.signature else Facts()
    pairs = [(s, devices[d][1]) for s, d in zip(facts.columns[0], facts.columns[7], strict=True)]
    values = zip(_rates("roof_ns", columns.roof_ns), _rates("ridge", columns.ridge), strict=True)
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
        _fail("kernel columns of unequal lengths")
    _below("device", device, devices)
    for name, column in (("total_ns", total), ("min_ns", low), ("max_ns", high), ("step_ns", step)):
        _below(name, column, MAX_NS)
    for name, column in (("calls", calls), ("step_calls", step_calls)):
        _below(name, column, MAX_COUNT)
    if len(set(zip(signature, device, evidence, strict=True))) != len(signature):
        _fail("the same signature, device and evidence twice in a window")
    return Facts(facts)


def _histograms(columns: pb.KernelStats) -> list[bytes]:
    lows, lengths = list(columns.histogram_low), list(columns.histogram_length)
    counts = np.fromiter(columns.histogram_counts, np.uint64, len(columns.histogram_counts))
    if len(lows) != len(lengths) or sum(lengths) != len(counts):
        _fail("the histogram columns do not fit each other")
    _below("histogram_low", lows, BUCKETS)
    _below("histogram_length", lengths, BUCKETS)
    if len(counts):
        _below("histogram_counts", [int(counts.max())], MAX_COUNT)
    return encode_column(lows, lengths, counts)


def _check_window(w: Window) -> None:
    if not 0 <= w.start_unix_ns < MAX_UNIX_NS:
        _fail(f"a window that starts at {w.start_unix_ns}")
    ledger = w.ledger
    devices = w.devices
    _in_range("duration_ns", (w.duration_ns, w.represents_ns or 0), MAX_NS)
    _in_range("steps and records", (w.steps or 0, ledger.events_read, ledger.device_records), MAX_COUNT)
    _in_range("dropped", ledger.dropped.values(), MAX_COUNT)
    times = (ledger.device_time_ns, ledger.linked_ns, ledger.backlog_ns, ledger.classifiable_ns)
    model = (ledger.model_ns, ledger.model_known_ns, ledger.model_peak_ns)
    both = (ledger.compared_ns, ledger.disagreed_ns, ledger.layout_ns or 0)
    _in_range("the ledger", (*times, ledger.classified_ns, ledger.named_ns, *model, *both), MAX_NS)
    waited = (ledger.waits or 0, ledger.wait_ns or 0, ledger.longest_wait_ns or 0)
    _in_range("the host's waits and Python functions", (*waited, ledger.python_events or 0), MAX_NS)
    _in_range("FLOPs", (ledger.model_flops,), 1 << 62)
    _in_range("the first step", (w.first_step or 0,), MAX_COUNT)
    _check_collectives(w.collectives)
    _check_graphs(w.graphs)
    for d in devices:
        _in_range("a device's times", (d.span_ns, d.busy_ns, d.exposed_copy_ns, d.exposed_communication_ns), MAX_NS)
        _in_range("a device's memory", (d.memory_used_bytes or 0, d.memory_peak_bytes or 0), MAX_COUNT)
        if d.busy_ns > d.span_ns:
            _fail(f"a device busy for {d.busy_ns} of {d.span_ns} ns")
        if len({c.cause for c in d.causes}) != len(d.causes):
            _fail("an idle cause twice on a device")
        for idle in d.causes:
            _check_cause(idle)
    _check_texts(w.collector, *ledger.dropped)
    if w.cost is not None:
        c = w.cost
        _check_texts(c.close_path)
        _in_range("the cost", (c.open_ns, c.quiesce_ns, c.close_ns, c.save_ns, c.free_ns), MAX_NS)
        steps = (c.base_step_ns, c.longest_step_ns, c.lost_in_ns, c.lost_after_ns, c.parse_cpu_ns)
        _in_range("the cost", [abs(value or 0) for value in steps], MAX_NS)  # lost time can be negative: noise
    if w.padding is not None:
        p = w.padding
        sums = (p.batches, p.real_tokens, p.padded_tokens, p.real_squared, p.padded_squared)
        _in_range("the padding", sums, 1 << 62)


def _check_cause(c: IdleCause) -> None:
    told = (c.total_ns, c.count, c.longest_ns, c.startup_ns, c.startup_count, c.steady_longest_ns or 0)
    _in_range("idle causes", told, MAX_NS)
    if c.startup_ns > c.total_ns or c.startup_count > c.count:
        _fail("more start-up than idle time")
    _check_texts(c.example, c.steady_example)


def _check_collectives(found: Sequence[Collective]) -> None:
    if len(found) > MAX_PARTS:
        _fail(f"{len(found)} collectives in a window: the limit is {MAX_PARTS}")
    if not found:
        return
    _check_texts(*(text for c in found for text in (c.name, c.group)))
    _in_range("start of a collective", [c.start_unix_ns for c in found], MAX_UNIX_NS)
    _below("duration of a collective", [c.duration_ns for c in found], MAX_NS)
    counts = [n for c in found for n in (c.group_size, c.sequence, c.bytes) if n is not None]
    _in_range("a collective's size", counts, 1 << 62)


def _check_graphs(found: Sequence[Graph]) -> None:
    if len(found) > MAX_PARTS:
        _fail(f"{len(found)} graphs in a window: the limit is {MAX_PARTS}")
    _check_texts(*(text for g in found for text in (g.name, g.source)))
    _below("a graph's counts", [n for g in found for n in (g.launches, g.records)], MAX_COUNT)
    _below("a graph's times", [n for g in found for n in (g.total_ns, g.attributed_ns)], MAX_NS)
    _rates("a graph's confidence", [math.nan if g.confidence is None else g.confidence for g in found])


def _check_process(p: Process) -> None:
    node: Node = p.node
    if not node.host:
        _fail("a node without a name")
    _check_texts(node.host, node.boot_id, p.user, p.job, p.container, p.model)
    _check_texts(*chain.from_iterable(chain(node.labels.items(), p.labels.items(), p.versions.items())))


def _check_device(d: Device) -> None:
    _check_texts(d.model, d.uuid, d.driver)
    for (precision, unit), peak in d.peaks.flops.items():
        _check_texts(precision, unit, peak.source)
        _rates("a peak", [peak.value])
    if d.peaks.bandwidth is not None:
        _check_texts(d.peaks.bandwidth.source)
        _rates("a peak", [d.peaks.bandwidth.value])


def _check_signature(s: Signature) -> None:
    if not s.kernel:
        _fail("a kernel without a name")
    for text in (s.shapes, s.dtypes):
        if text is not None:
            json.loads(text, parse_constant=_fail, parse_float=_finite)  # answers give it as JSON
    if (s.flops or 0) < 0 or (s.bytes or 0) < 0 or (s.flops_max is not None and s.flops_max < (s.flops or 0)):
        _fail("negative FLOPs or bytes, or a range of FLOPs that ends below its beginning")


def _check_texts(*texts: str | None) -> None:
    for text in texts:
        if text and (len(text) > MAX_TEXT or "\0" in text):
            _fail("a text that is too long, or not text")


def _in_range(name: str, values: Collection[int], limit: int) -> None:
    if values and not 0 <= min(values) <= max(values) < limit:
        _fail(f"{name}: {min(values)} … {max(values)} is out of range")


def _below(name: str, values: Sequence[int], limit: int) -> None:
    """For what the wire has unsigned."""
    if values and max(values) >= limit:
        _fail(f"{name}: {max(values)} is out of range")


def _rates(name: str, values: Sequence[float]) -> list[float | None]:
    known = [None if math.isnan(value) else value for value in values]
    for value in known:
        if value is not None and not 0 <= value < math.inf:
            _fail(f"{name}: {value} is out of range")
    return known


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        _fail(f"{text} is out of range")
    return value


def _fail(reason: str) -> NoReturn:
    raise ValueError(reason)
