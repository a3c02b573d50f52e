"""From records to rows of the tables. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from roofwatch.model.answer import device_json, estimated, weight_of
from roofwatch.model.record import BudgetState, Cost, Device, DeviceState, Padding, ProcessState, Signature
from roofwatch.store import schema
from roofwatch.store.unpack import UnpackedWindow

COLLECTIVE_NAMES = tuple(c.name for c in schema.collectives.columns)
IDLE_CAUSE_NAMES = tuple(c.name for c in schema.idle_causes.columns)
PROCESS_STATE_NAMES = tuple(c.name for c in schema.process_states.columns)
KERNEL_BLOCK_NAMES = tuple(c.name for c in schema.kernel_blocks.columns)
GRAPH_NAMES = tuple(c.name for c in schema.graphs.columns)
WINDOW_DEVICE_NAMES = tuple(c.name for c in schema.window_devices.columns)
DEVICE_NAMES = tuple(c.name for c in schema.devices.columns)
SIGNATURE_NAMES = tuple(c.name for c in schema.signatures.columns)
WINDOW_NAMES = tuple(c.name for c in schema.windows.columns if c.name != "id")


def device_row(identity: int, d: Device, peaks: int) -> tuple[Any, ...]:
    """A row of ``devices``."""
    described = json.dumps(device_json(d))
    return (
        identity, str(d.vendor), d.model, d.uuid, d.index, d.memory_bytes, d.units, d.driver, d.inferred, peaks,
        described,
    )  # fmt: skip


def signature_row(identity: int, s: Signature, ids: Mapping[str, int]) -> tuple[Any, ...]:
    """A row of ``signatures``; ``ids`` are those of texts."""
    names = [None if text is None else ids[text] for text in (s.kernel, s.op, s.module)]
    return (
        identity, *names, str(s.kind), str(s.phase), s.shapes, s.dtypes, s.arguments, s.formula, s.precision, s.unit,
        s.flops, s.bytes, s.flops_max,
    )  # fmt: skip


def window_row(uid: bytes, unpacked: UnpackedWindow) -> tuple[Any, ...]:
    """A row of ``windows``, without its number."""
    w = unpacked.window
    return (
        uid, unpacked.process_id, w.start_unix_ns, w.duration_ns, w.steps, w.represents_ns, str(w.trigger), w.collector,
        w.shapes_recorded, w.ledger.events_read, w.ledger.device_records, w.ledger.device_time_ns,
        w.ledger.has_host_events, w.ledger.linked_ns, w.ledger.backlog_ns, w.ledger.classifiable_ns,
        w.ledger.classified_ns, w.ledger.named_ns, *_cost(w.cost), *_padding(w.padding), w.first_step,
        w.ledger.model_ns, w.ledger.model_known_ns, w.ledger.model_flops, w.ledger.model_peak_ns,
        w.ledger.compared_ns, w.ledger.disagreed_ns, w.ledger.layout_ns, w.ledger.python_events,
        w.ledger.waits, w.ledger.wait_ns, w.ledger.longest_wait_ns, *_lengths(w.padding),
        unpacked.devices_id, w.span_ns, sum(estimated(d.span_ns, weight_of(w, d)) for d in w.devices),
        sum(g.total_ns for g in w.graphs), sum(g.attributed_ns for g in w.graphs), *_budget(w.budget),
    )  # fmt: skip


def state_of_process_row(identity: int, s: ProcessState) -> tuple[Any, ...]:
    """A row of ``process_states``."""
    skipped = json.dumps(dict(sorted(s.skipped.items()))) if s.skipped else "{}"
    return identity, s.unix_ns, s.since_unix_ns, *_budget(s.budget), skipped


def _budget(b: BudgetState | None) -> tuple[Any, ...]:
    if b is None:
        return (None,) * 9
    return (
        b.reason or None, b.budget_share, b.hard_stop_share, b.spent_share, b.balance_ns, b.charged_ns, b.measured,
        b.interval_ns, b.event_cap,
    )  # fmt: skip


def _cost(c: Cost | None) -> tuple[Any, ...]:
    if c is None:
        return (None,) * 11
    return (
        c.close_path, c.open_ns, c.quiesce_ns, c.close_ns, c.save_ns, c.free_ns, c.base_step_ns, c.longest_step_ns,
        c.lost_in_ns, c.lost_after_ns, c.parse_cpu_ns,
    )  # fmt: skip


def _padding(p: Padding | None) -> tuple[Any, ...]:
    if p is None:
        return (None,) * 5
    return (p.batches, p.real_tokens, p.padded_tokens, p.real_squared, p.padded_squared)


def _lengths(p: Padding | None) -> tuple[Any, ...]:
    if p is None:
        return (None,) * 4
    texts = (json.dumps(told, separators=(",", ":")) if told else None for told in (p.lengths, p.shapes))
    return (*texts, p.coarsened, p.unread)


def state_row(s: DeviceState | None) -> tuple[Any, ...]:
    """What ``window_devices`` tells of a device's state."""
    if s is None:
        return (None,) * 8
    return (
        s.clock_hz,
        s.clock_max_hz,
        s.power_w,
        s.power_limit_w,
        s.temperature_c,
        s.throttle,
        s.ecc_corrected,
        s.ecc_uncorrected,
    )
