"""Columns of a trace → the raw profile: records, devices, ledger."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import numpy as np

from roofwatch.collectors.base import Limits, RawDevice, RawProfile
from roofwatch.collectors.kineto import calls
from roofwatch.collectors.kineto.columns import UNKNOWN, Columns
from roofwatch.collectors.kineto.groups import CPU_OP, Records, Texts, group
from roofwatch.collectors.kineto.link import Host, Launches, host_side, launches_of, unfinished
from roofwatch.collectors.kineto.outline import Outline, device_of, outline_of
from roofwatch.collectors.kineto.selftime import self_times
from roofwatch.collectors.kineto.tables import Table
from roofwatch.collectors.kineto.timeline import with_cpu_timeline, with_timelines
from roofwatch.model.errors import RoofwatchError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from roofwatch.collectors.kineto.document import Document

    Ints = NDArray[np.int64]

COLLECTOR = "kineto"
MAX_DEVICES = 256  # many more than a node has; what a damaged trace names beyond them is one unknown device
_DAY_NS = 86_400 * 10**9
_ABSOLUTE_NS = 10**18  # September 2001: a clock beyond it counts from 1970, a smaller one from somewhere else


def profile_of(columns: Columns, document: Document, limits: Limits, name: str) -> RawProfile:
    """The profile of all that was read.

    Raises:
        RoofwatchError: there are neither device records nor the ops of a CPU-only window.
    """
    dropped = columns.dropped + document.dropped
    dropped["bad_time"] += _drop_zero_times(columns.device)
    problems = list(document.problems)
    if dropped["over_event_limit"]:
        problems.append(f"only the first {limits.max_events} events were kept (the event limit)")
    outline = outline_of(document.fields)
    may_be_cut = not document.whole and bool(outline.properties or len(columns.host))
    _require_records(columns, may_be_cut, _reasons(problems, dropped), name)
    host = host_side(columns)
    if len(columns.device):
        launches = launches_of(columns)
        devices, records = _device_records(columns, host, launches, outline)
        dropped["unfinished"] += unfinished(columns)
    else:
        devices, records = _cpu_records(columns, host)
    texts = Texts(columns.names.values_seen, host.module_names, columns.inputs.values_seen)
    groups, dropped["over_group_limit"] = group(records, texts, limits.max_groups)
    dropped["over_text_limit"] = columns.names.overflown + columns.inputs.overflown
    start, end = _hull([columns.ops, columns.device, columns.host, columns.notes])
    return RawProfile(
        collector=COLLECTOR,
        devices=devices,
        groups=groups,
        start_unix_ns=_unix(start, outline.base_ns),
        duration_ns=end - start,
        steps=host.steps,
        has_host_events=len(columns.ops) > 0,
        shapes_recorded=bool(host.has_inputs.any()),
        events_read=columns.events,
        pid=_process_id(columns),
        rank=outline.rank,
        world_size=outline.world_size,
        dropped={reason: count for reason, count in sorted(dropped.items()) if count},
        problem=_sentence(name, problems),
    )


def _require_records(columns: Columns, may_be_cut: bool, reasons: str, name: str) -> None:
    """Ops alone are a CPU window, unless work for a device was launched, or its records may have been cut off."""
    launching = calls.mask(columns.names.values_seen, calls.is_launch)[columns.host["name"]]
    if len(columns.device) or (len(columns.ops) and not launching.any() and not may_be_cut):
        return
    if columns.ascend:
        raise RoofwatchError(
            f"{name} is an Ascend trace_view.json, which has no kernel details: give its whole folder."
        )
    if launching.any():
        what = f"{int(launching.sum())} kernel launches but not one device record"
    elif len(columns.ops):
        what = f"{len(columns.ops)} operators of a window with a device but not one device record"
    elif columns.events:
        what = f"{columns.events} events and among them neither a device record nor an operator (cpu_op)"
    else:
        what = "no events"
    raise RoofwatchError(f"{name} holds {what}{reasons}.")


def _reasons(problems: list[str], dropped: Counter[str]) -> str:
    lost = ", ".join(f"{count} {reason.replace('_', ' ')}" for reason, count in sorted(dropped.items()) if count)
    why = "; ".join([*problems, *([f"dropped: {lost}"] if lost else [])])
    return f" ({why})" if why else ""


def _drop_zero_times(device: Table) -> int:
    """Leaves out device records at time 0 on a clock that is far from it: their true time was lost by the writer."""
    if not len(device):
        return 0
    lost = device["start"] <= 0
    if not lost.any() or np.median(device["start"]) < _DAY_NS:
        return 0
    device.keep(~lost)
    return int(lost.sum())


def _device_records(
    columns: Columns, host: Host, launches: Launches, outline: Outline
) -> tuple[list[RawDevice], Records]:
    device = columns.device
    places = host.places(launches.thread, launches.time)
    call_names = [columns.names.values_seen[i] for i in np.unique(columns.host["name"]).tolist()]
    indexes, position = _devices(device["device"])
    shaped = places.shaped >= 0
    inputs = np.where(shaped, columns.ops["inputs"][places.shaped], UNKNOWN) if len(columns.ops) else places.shaped
    records = Records(
        device=position,
        name=device["name"],
        category=device["sort"],
        op_row=places.shaped,
        op=np.where(shaped, columns.ops["name"][places.shaped], UNKNOWN) if len(columns.ops) else places.shaped,
        inputs=host.with_shapes(inputs),
        phase=places.phase,
        module=places.module,
        backlog=launches.backlog,
        linked=places.op >= 0,
        in_step=places.in_step,
        duration=device["end"] - device["start"],
        blocks=_blocks(columns, launches),
        bytes=device["bytes"],
    )
    devices = [device_of(outline, index, call_names) for index in indexes.tolist()]
    with_timelines(devices, position, columns, host, launches)
    return devices, records


def _devices(index: Ints) -> tuple[Ints, Ints]:
    """The devices' indexes, and for each record the position of its own among them."""
    found, counts = np.unique(index, return_counts=True)
    if len(found) > MAX_DEVICES:
        kept = found[np.argsort(-counts, kind="stable")[:MAX_DEVICES]]
        index = np.where(np.isin(index, kept), index, UNKNOWN)
    found, position = np.unique(index, return_inverse=True)
    return found, position.astype(np.int64)


def _blocks(columns: Columns, launches: Launches) -> Ints:
    """Blocks of each kernel, by its own grid or else its launch's; -1 where neither is recorded."""
    grid, block = columns.device["grid"], columns.device["block"]
    if not len(columns.host):
        return grid
    row = launches.row
    grid = np.where((grid < 0) & (row >= 0), columns.host["grid"][row], grid)
    block = np.where((block < 0) & (row >= 0), columns.host["block"][row], block)
    in_items = (row >= 0) & calls.mask(columns.names.values_seen, calls.is_item_grid)[columns.host["name"][row]]
    return np.where(in_items & (block > 0) & (grid > 0), -(-grid // np.maximum(block, 1)), grid)


def _cpu_records(columns: Columns, host: Host) -> tuple[list[RawDevice], Records]:
    """A record for each op of a window without a device, with its self time."""
    ops, order = columns.ops, host.ops.order
    places = host.own_places()
    unknown = np.full(len(order), UNKNOWN, dtype=np.int64)
    records = Records(
        device=np.zeros(len(order), dtype=np.int64),
        name=ops["name"][order],
        category=np.full(len(order), CPU_OP, dtype=np.int64),
        op=ops["name"][order],
        op_row=order,
        inputs=host.with_shapes(ops["inputs"][order]),
        phase=places.phase,
        module=places.module,
        backlog=np.zeros(len(order), dtype=np.bool_),
        linked=np.ones(len(order), dtype=np.bool_),
        in_step=places.in_step,
        duration=self_times(host.ops),
        blocks=unknown,
        bytes=unknown,
    )
    device = RawDevice(vendor="cpu", name="")
    with_cpu_timeline(device, columns, host)
    return [device], records


def _hull(tables: list[Table]) -> tuple[int, int]:
    filled = [table for table in tables if len(table)]
    return min(int(t["start"].min()) for t in filled), max(int(t["end"].max()) for t in filled)


def _unix(start: int, base: int | None) -> int:
    """Unix time of a time on the trace's clock; 0 where the trace does not tell what its clock counts from."""
    if base is not None:
        return base + start
    return start if start >= _ABSOLUTE_NS else 0


def _process_id(columns: Columns) -> int | None:
    """The process most ops, else most host calls, were in."""
    table = columns.ops if len(columns.ops) else columns.host
    count: Counter[int] = Counter()
    for thread, events in zip(*np.unique(table["thread"], return_counts=True), strict=True):
        pid = (columns.threads.values_seen[thread] or (None,))[0]
        if isinstance(pid, int):
            count[pid] += int(events)
    return count.most_common(1)[0][0] if count else None


def _sentence(name: str, problems: list[str]) -> str | None:
    return f"{name}: {'; '.join(problems)}." if problems else None
