"""What may be stored: every figure, text and sum of a record, checked before anything is built on it. Pure."""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Sequence
from itertools import chain
from typing import NoReturn

from roofwatch.model.record import (
    BudgetState,
    Collective,
    Device,
    DeviceWindow,
    Graph,
    IdleCause,
    Ledger,
    Node,
    Padding,
    Process,
    ProcessState,
    Signature,
    Window,
)

MAX_NS = 1 << 50  # 13 days: longer is no duration of one window, and 8,000 of them still fit a 64-bit sum
MAX_COUNT = 1 << 50
MAX_UNIX_NS = 1 << 62  # the year 2116
MAX_TEXT = 1 << 16  # characters; the names of C++ templates run to thousands
MAX_PARTS = 10_000  # collectives, or graphs, in one window
MAX_DEVICES = 4096  # in one window: a process sees those of its node; a place of one has two bytes on ClickHouse
MAX_LENGTHS = 8192  # distinct lengths of one window's sequences
MAX_SHAPES = 256  # distinct shapes of one window's padded batches
MAX_SHARE = 1e9  # of a job's time
MAX_REASONS = 64  # why windows of a process were not taken
MAX_STATE = 1e15  # Hz, W, °C: a million times a device of today
LEAST_PEAK = 1.0  # FLOP/s, bytes/s: what is below divides by nothing
MAX_RATE = 1e24  # FLOP/s, bytes/s, FLOP per byte: a hundred million times a device of today


def check_window(w: Window) -> None:
    """Refuse a window without its kernels.

    Raises:
        ValueError: says which figure cannot be; so do the others here.
    """
    if not 0 <= w.start_unix_ns < MAX_UNIX_NS:
        fail(f"a window that starts at {w.start_unix_ns}")
    in_range("duration_ns", (w.duration_ns, w.represents_ns or 0), MAX_NS)
    in_range("steps", (w.steps or 0,), MAX_COUNT)
    in_range("the first step", (w.first_step or 0,), MAX_COUNT)
    _check_ledger(w.ledger)
    _check_collectives(w.collectives)
    _check_graphs(w.graphs, w.ledger.device_time_ns)
    if len(w.devices) > MAX_DEVICES:
        fail(f"{len(w.devices)} devices in a window: at most {MAX_DEVICES}")
    for device in w.devices:
        _check_device_window(device)
    check_texts(w.collector)
    if w.cost is not None:
        c = w.cost
        check_texts(c.close_path)
        in_range("the cost", (c.open_ns, c.quiesce_ns, c.close_ns, c.save_ns, c.free_ns), MAX_NS)
        steps = (c.base_step_ns, c.longest_step_ns, c.lost_in_ns, c.lost_after_ns, c.parse_cpu_ns)
        in_range("the cost", [abs(value or 0) for value in steps], MAX_NS)  # lost time can be negative: noise
    if w.padding is not None:
        _check_padding(w.padding)
    if w.budget is not None:
        _check_budget(w.budget)


def check_state(s: ProcessState) -> None:
    """Refuse how a process stands."""
    in_range("the time of a state", (s.unix_ns, s.since_unix_ns), MAX_UNIX_NS)
    _check_budget(s.budget)
    if len(s.skipped) > MAX_REASONS:
        fail(f"{len(s.skipped)} reasons why windows were not taken: at most {MAX_REASONS}")
    check_texts(*s.skipped)
    in_range("windows not taken", s.skipped.values(), MAX_COUNT)


def _check_budget(b: BudgetState) -> None:
    check_texts(b.reason)
    shares = (b.budget_share, b.hard_stop_share, b.spent_share)
    if not all(-MAX_SHARE < value < MAX_SHARE for value in shares if value is not None):
        fail("a budget or what is spent of it is out of range")
    in_range("a budget's times", [abs(value or 0) for value in (b.balance_ns, b.charged_ns)], MAX_NS)
    in_range("an interval", (b.interval_ns or 0, b.event_cap or 0), MAX_NS)


def _check_padding(p: Padding) -> None:
    sums = (p.batches, p.real_tokens, p.padded_tokens, p.real_squared, p.padded_squared)
    in_range("the padding", sums, 1 << 62)
    in_range("sequences of the padding", (p.coarsened, p.unread), MAX_COUNT)
    if len(p.lengths) > MAX_LENGTHS or len(p.shapes) > MAX_SHAPES:
        fail(f"{len(p.lengths)} lengths, {len(p.shapes)} shapes in a window: at most {MAX_LENGTHS} and {MAX_SHAPES}")
    in_range("the lengths", [count for _, count in p.lengths], MAX_COUNT)
    in_range("the padded batches", list(chain.from_iterable(p.shapes)), MAX_COUNT)
    lengths, shapes = [length for length, _ in p.lengths], [shape[:2] for shape in p.shapes]
    if lengths != sorted(set(lengths)) or shapes != sorted(set(shapes)):
        fail("lengths, or shapes of batches, that are not ascending")


def _check_ledger(found: Ledger) -> None:
    check_texts(*found.dropped)
    in_range("records", (found.events_read, found.device_records), MAX_COUNT)
    in_range("dropped", found.dropped.values(), MAX_COUNT)
    in_range("the ledger", (found.device_time_ns, found.model_peak_ns), MAX_NS)
    parts = {  # each as a sum, and what it is a part of
        "linked": (found.linked_ns, found.device_time_ns),
        "backlog": (found.backlog_ns, found.device_time_ns),
        "classifiable": (found.classifiable_ns, found.device_time_ns),
        "classified": (found.classified_ns, found.classifiable_ns),
        "named": (found.named_ns, found.classifiable_ns - found.classified_ns),
        "model": (found.model_ns, found.device_time_ns),
        "model of known FLOPs": (found.model_known_ns, found.model_ns),
        "compared": (found.compared_ns, found.device_time_ns),
        "disagreed": (found.disagreed_ns, found.compared_ns),
        "layout": (found.layout_ns or 0, found.device_time_ns),
    }
    for name, (part, whole) in parts.items():
        if not 0 <= part <= whole:
            fail(f"the ledger: {part} ns {name} is out of range, of {whole}")
    waited = (found.waits or 0, found.wait_ns or 0, found.longest_wait_ns or 0)
    in_range("the host's waits and Python functions", (*waited, found.python_events or 0), MAX_NS)
    in_range("FLOPs", (found.model_flops,), 1 << 62)


def _check_device_window(d: DeviceWindow) -> None:
    in_range("a device's times", (d.span_ns, d.busy_ns, d.exposed_copy_ns, d.exposed_communication_ns), MAX_NS)
    in_range("a device's memory", (d.memory_used_bytes or 0, d.memory_peak_bytes or 0), MAX_COUNT)
    if d.state is not None:
        check_texts(d.state.throttle)
        figures = (d.state.clock_hz, d.state.clock_max_hz, d.state.power_w, d.state.power_limit_w)
        if not all(0 <= value < MAX_STATE for value in (*figures, d.state.temperature_c) if value is not None):
            fail("a device's clock, power or temperature out of range")
        in_range("a device's errors of memory", (d.state.ecc_corrected or 0, d.state.ecc_uncorrected or 0), MAX_COUNT)
    if d.busy_ns > d.span_ns:
        fail(f"a device busy for {d.busy_ns} of {d.span_ns} ns")
    if max(d.exposed_copy_ns, d.exposed_communication_ns) > d.busy_ns:
        fail(f"a device exposed for more than its busy {d.busy_ns} ns")
    if len({c.cause for c in d.causes}) != len(d.causes):
        fail("an idle cause twice on a device")
    for idle in d.causes:
        _check_cause(idle)
    if (told := sum(c.total_ns for c in d.causes)) > d.idle_ns:
        fail(f"causes of {told} ns of {d.idle_ns} ns idle")


def _check_cause(c: IdleCause) -> None:
    told = (c.total_ns, c.count, c.longest_ns, c.startup_ns, c.startup_count, c.steady_longest_ns or 0)
    in_range("idle causes", told, MAX_NS)
    if c.startup_ns > c.total_ns or c.startup_count > c.count:
        fail("more start-up than idle time")
    if max(c.longest_ns, c.steady_longest_ns or 0) > c.total_ns:
        fail("a stretch longer than all idle time of its cause")
    check_texts(c.example, c.steady_example)


def _check_collectives(found: Sequence[Collective]) -> None:
    if len(found) > MAX_PARTS:
        fail(f"{len(found)} collectives in a window: the limit is {MAX_PARTS}")
    if not found:
        return
    check_texts(*(text for c in found for text in (c.name, c.group)))
    in_range("start of a collective", [c.start_unix_ns for c in found], MAX_UNIX_NS)
    below("duration of a collective", [c.duration_ns for c in found], MAX_NS)
    counts = [n for c in found for n in (c.group_size, c.sequence, c.bytes) if n is not None]
    in_range("a collective's size", counts, 1 << 62)


def _check_graphs(found: Sequence[Graph], device_time_ns: int) -> None:
    if len(found) > MAX_PARTS:
        fail(f"{len(found)} graphs in a window: the limit is {MAX_PARTS}")
    check_texts(*(text for g in found for text in (g.name, g.source)))
    below("a graph's counts", [n for g in found for n in (g.launches, g.records)], MAX_COUNT)
    below("a graph's times", [n for g in found for n in (g.total_ns, g.attributed_ns)], MAX_NS)
    if any(g.attributed_ns > g.total_ns for g in found) or sum(g.total_ns for g in found) > device_time_ns:
        fail("more time in graphs than there is")
    if any(g.confidence is not None and not 0 <= g.confidence <= 1 for g in found):
        fail("a graph's confidence is out of range")


def check_process(p: Process) -> None:
    """Refuse a process and its node."""
    node: Node = p.node
    if not node.host:
        fail("a node without a name")
    check_texts(node.host, node.boot_id, p.user, p.job, p.container, p.model)
    check_texts(*chain.from_iterable(chain(node.labels.items(), p.labels.items(), p.versions.items())))


def check_device(d: Device) -> None:
    """Refuse a device and its peaks."""
    check_texts(d.model, d.uuid, d.driver)
    for (precision, unit), peak in d.peaks.flops.items():
        check_texts(precision, unit, peak.source)
        _check_peak(peak.value)
    if d.peaks.bandwidth is not None:
        check_texts(d.peaks.bandwidth.source)
        _check_peak(d.peaks.bandwidth.value)


def _check_peak(value: float) -> None:
    if not LEAST_PEAK <= value < MAX_RATE:
        fail(f"a peak: {value} is out of range")


def check_signature(s: Signature) -> None:
    """Refuse a signature, which answers give as JSON."""
    if not s.kernel:
        fail("a kernel without a name")
    for name, text, kind in (("shapes", s.shapes, list), ("dtypes", s.dtypes, list), ("arguments", s.arguments, dict)):
        # Answers give it as JSON, and read it as the list or the object that it is.
        if text is not None and not isinstance(json.loads(text, parse_constant=fail, parse_float=_finite), kind):
            fail(f"{name} that are no JSON {'list' if kind is list else 'object'}")
    if (s.flops or 0) < 0 or (s.bytes or 0) < 0 or (s.flops_max is not None and s.flops_max < (s.flops or 0)):
        fail("negative FLOPs or bytes, or a range of FLOPs that ends below its beginning")


def check_texts(*texts: str | None) -> None:
    """Refuse what no column of text takes."""
    for text in texts:
        if text and (len(text) > MAX_TEXT or "\0" in text):
            fail("a text that is too long, or not text")


def in_range(name: str, values: Collection[int], limit: int) -> None:
    """Refuse what is negative or at least ``limit``."""
    if values and not 0 <= min(values) <= max(values) < limit:
        fail(f"{name}: {min(values)} … {max(values)} is out of range")


def below(name: str, values: Sequence[int], limit: int) -> None:
    """For what the wire has unsigned."""
    if values and max(values) >= limit:
        fail(f"{name}: {max(values)} is out of range")


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        fail(f"{text} is out of range")
    return value


def fail(reason: str) -> NoReturn:
    """Refuse."""
    raise ValueError(reason)
