"""Columns of a trace → the raw profile: records, devices, ledger."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from roofwatch.collectors.base import BORROWED, Limits, RawDevice, RawGroup, RawProfile
from roofwatch.collectors.graphs import NOTHING, Known
from roofwatch.collectors.kineto import calls, collectives, graphs
from roofwatch.collectors.kineto.bounds import Taken, leave_out_later, taken
from roofwatch.collectors.kineto.columns import Columns
from roofwatch.collectors.kineto.graphs_captured import captured_launches
from roofwatch.collectors.kineto.grids import Grids, grids_of
from roofwatch.collectors.kineto.groups import CPU_OP, Records, Texts, group
from roofwatch.collectors.kineto.lending import Wanted, borrow, lend
from roofwatch.collectors.kineto.link import Host, Launches, host_side, launches_of, unfinished
from roofwatch.collectors.kineto.outline import Outline, device_of, outline_of
from roofwatch.collectors.kineto.selftime import self_times
from roofwatch.collectors.kineto.tables import UNKNOWN, Table, small
from roofwatch.collectors.kineto.timeline import unused, with_cpu_timeline, with_timelines
from roofwatch.model.errors import RoofwatchError
from roofwatch.model.record import Graph

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from roofwatch.collectors.kineto.document import Document

    Ints = NDArray[np.int64]

COLLECTOR = "kineto"
MAX_STEPS = 1000  # whose lengths are told: enough to see whether the first ones are longer
MAX_DEVICES = 256  # many more than a node has; what a damaged trace names beyond them is one unknown device
MAX_INDEX = 1 << 20
MAX_WAIT_NS = 1 << 49  # what host threads can have waited in all within one trace
MAX_UNIX_NS = 1 << 61  # the year 2043
_DAY_NS = 86_400 * 10**9
_ABSOLUTE_NS = 10**18  # September 2001: a clock beyond it counts from 1970, a smaller one from somewhere else


class TraceViewError(RoofwatchError):
    """It is no trace of Kineto's but a trace view of an Ascend profiler, for which there is another reader."""


def profile_of(
    columns: Columns,
    document: Document,
    limits: Limits,
    name: str,
    bounds: tuple[int, int] | None = None,
    known: Known = NOTHING,
    wanted: Wanted | None = None,
) -> RawProfile:
    """The profile of all that was read; ``bounds`` of the window in Unix nanoseconds, where they are known.

    ``known`` is what graphs launched that were captured before it, ``wanted`` what it lends to others or borrows.

    Raises:
        RoofwatchError: there are neither device records nor the ops of a CPU-only window, and nothing says that a
            sound trace of a window was read in which just nothing happened.
    """
    dropped = columns.dropped + document.dropped
    dropped["bad_time"] += _drop_zero_times(columns.device)
    problems = list(document.problems)
    if dropped["over_event_limit"]:
        problems.append(f"only the first {limits.max_events} events were kept (the event limit)")
    outline = outline_of(document.fields)
    sound = document.whole and columns.events > 0 and not problems and not dropped.total()
    window = None
    if bounds is not None:
        window = taken(bounds, outline.base_ns, columns)
        dropped["clock_disagreement"] += not window.agrees
        dropped["after_window"] += leave_out_later(columns, window.end)
    may_be_cut = not document.whole and bool(outline.properties or len(columns.host))
    _require_records(columns, may_be_cut, window is not None and sound, _reasons(problems, dropped), name)
    lent, borrowed = _shapes(columns, wanted)
    host = host_side(columns, window)
    read = _accounts(columns, host, outline, limits, known)
    start, end = bounds or _unix_hull(columns, outline.base_ns)
    begin = _hull(columns)[0] if window is None else window.start
    entries, read.dropped["over_collective_limit"] = collectives.entries(read.collectives, begin)
    dropped.update(read.dropped)
    return RawProfile(
        collector=COLLECTOR,
        devices=read.devices,
        groups=read.groups,
        collectives=entries,
        graphs=read.graphs,
        start_unix_ns=start,
        duration_ns=end - start,
        steps=host.steps,
        has_host_events=len(columns.ops) > 0,
        shapes_recorded=bool(host.has_inputs.any()) and borrowed != BORROWED,
        events_read=columns.events,
        pid=_process_id(columns),
        rank=outline.rank,
        world_size=outline.world_size,
        dropped={reason: count for reason, count in sorted(dropped.items()) if count},
        problem=_sentence(name, problems),
        python_events=columns.python,
        waits=read.waits,
        step_ns=_step_lengths(host) if window is None else (),
        unused=None if window is None else _unused(columns, host, outline, window),
        lent=lent,
        borrowed=borrowed,
    )


def _shapes(columns: Columns, wanted: Wanted | None) -> tuple[bytes, str]:
    """What the window lends, and what became of borrowing."""
    if wanted is not None and wanted.lend:
        return lend(columns, wanted.steps, wanted.lent), ""
    return b"", borrow(columns, wanted.steps, wanted.lent) if wanted is not None and wanted.lent else ""


def _step_lengths(host: Host) -> tuple[int, ...]:
    return tuple((host.step_ends - host.step_starts)[:MAX_STEPS].tolist())


@dataclass(frozen=True, slots=True)
class _Accounts:
    """What a trace accounts for, and what did not fit in."""

    devices: list[RawDevice]
    groups: list[RawGroup]
    collectives: collectives.Found
    dropped: Counter[str]
    graphs: list[Graph]
    waits: tuple[int, int, int] | None = None


def _accounts(columns: Columns, host: Host, outline: Outline, limits: Limits, known: Known) -> _Accounts:
    dropped: Counter[str] = Counter()
    launched: list[Graph] = []
    if len(columns.device):
        launches = launches_of(columns)
        grids = grids_of(columns, launches)
        devices, records, found = _device_records(columns, host, launches, grids, outline)
        records, launched = graphs.attributed(records, columns, host, launches, known)
        moving = collectives.communicating(columns, records)
        waited = with_timelines(devices, records.device, columns, host, launches, moving)
        waits = waited if waited[1] < MAX_WAIT_NS else None
        dropped["unfinished"] = unfinished(columns, captured_launches(columns)[0])
    else:
        waits, grids, (devices, records) = None, None, _cpu_records(columns, host)
        found = collectives.of_host(columns, outline.only_group)
    texts = Texts(
        columns.names.values_seen, host.ranges.texts, columns.inputs.values_seen, found.texts,
        () if grids is None else grids.texts,
    )  # fmt: skip
    groups, dropped["over_group_limit"] = group(records, texts, limits.max_groups)
    dropped["over_text_limit"] = columns.names.overflown + columns.inputs.overflown
    return _Accounts(devices, groups, found, dropped, launched, waits)


def _unused(columns: Columns, host: Host, outline: Outline, window: Taken) -> RawDevice | None:
    """The device of a process that has one and launched nothing; None where that is not known.

    With ops in the window only a trace that names devices says that they were listened to.
    """
    if len(columns.device) or (len(columns.ops) and not outline.vendor and not outline.properties):
        return None
    return unused(outline.vendor, columns, host, window)


def _require_records(columns: Columns, may_be_cut: bool, may_be_empty: bool, reasons: str, name: str) -> None:
    """Ops alone are a CPU window, unless work for a device was launched, or its records may have been cut off."""
    if columns.ascend and not len(columns.device):
        raise TraceViewError(
            f"{name} is an Ascend trace_view.json and cannot be read again from a pipe: give the file."
        )
    launching = calls.mask(columns.names.values_seen, calls.is_launch)[columns.host["name"]]
    if len(columns.device) or (len(columns.ops) and not launching.any() and not may_be_cut):
        return
    if may_be_empty and not len(columns.ops) and not launching.any():
        return
    if launching.any():
        what = f"{int(launching.sum())} kernel launches but not one device record"
    elif len(columns.ops):
        what = f"{len(columns.ops)} operators of a window with a device but not one device record"
    elif columns.xla:
        what = (
            f"{columns.events} events of JAX or XLA, which Roofwatch does not read: give it a trace of torch.profiler"
        )
    elif columns.events:
        what = (
            f"{columns.events} events and among them neither a device record nor an operator (cpu_op), as "
            "traces of torch.profiler have them"
        )
    else:
        what = "no events"
    then = ""
    if launching.any() or len(columns.ops):
        then = (
            "; its end is missing: give the whole file, as it was written"
            if may_be_cut
            else "; record it with ProfilerActivity.CUDA, and stop the profiler after a synchronize"
        )
    raise RoofwatchError(f"{name} holds {what}{reasons}{then}.")


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
    columns: Columns, host: Host, launches: Launches, grids: Grids, outline: Outline
) -> tuple[list[RawDevice], Records, collectives.Found]:
    device = columns.device
    places = host.places(launches.thread, launches.time)
    call_names = [columns.names.values_seen[i] for i in np.unique(columns.host["name"]).tolist()]
    indexes, position = _devices(device["device"])
    found = collectives.of_device(columns, position, launches, outline.only_group)
    shaped = places.shaped >= 0
    inputs = np.where(shaped, columns.ops["inputs"][places.call], UNKNOWN) if len(columns.ops) else places.shaped
    inputs = small(host.with_shapes(inputs))
    op = np.where(shaped, columns.ops["name"][places.shaped], UNKNOWN) if len(columns.ops) else places.shaped
    records = Records(
        device=position,
        name=device["name"],
        category=device["sort"],
        op_row=small(places.shaped),
        op=small(op),
        inputs=inputs,
        phase=small(places.phase),
        module=small(places.module),
        message=small(found.grouped),
        told_apart=small(np.where((inputs < 0) | launches.backlog, grids.which, UNKNOWN)),
        backlog=launches.backlog,
        linked=places.op >= 0,
        in_step=places.in_step,
        duration=device["end"] - device["start"],
        blocks=grids.blocks,
        grid=grids.which,
        bytes=device["bytes"],
    )
    return [device_of(outline, index, call_names) for index in indexes.tolist()], records, found


def _devices(index: Ints) -> tuple[Ints, Ints]:
    """The devices' indexes, and for each record the position of its own among them."""
    index = np.where((index >= 0) & (index < MAX_INDEX), index, UNKNOWN)
    found, counts = np.unique(index, return_counts=True)
    if len(found) > MAX_DEVICES:
        kept = found[np.argsort(-counts, kind="stable")[:MAX_DEVICES]]
        index = np.where(np.isin(index, kept), index, UNKNOWN)
    found, position = np.unique(index, return_inverse=True)
    return found, position.astype(np.int64)


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
        message=unknown,
        told_apart=unknown,
        backlog=np.zeros(len(order), dtype=np.bool_),
        linked=np.ones(len(order), dtype=np.bool_),
        in_step=places.in_step,
        duration=self_times(host.ops),
        blocks=unknown,
        grid=unknown,
        bytes=unknown,
    )
    device = RawDevice(vendor="cpu", name="")
    with_cpu_timeline(device, columns, host)
    return [device], records


def _unix_hull(columns: Columns, base: int | None) -> tuple[int, int]:
    """Begin and end of all that was recorded; from 0 where the trace does not tell what its clock counts from."""
    start, end = _hull(columns)
    if base is None:
        base = 0 if start >= _ABSOLUTE_NS else -start
    if not 0 <= base + start < MAX_UNIX_NS:
        base = -start  # no clock tells such a time
    return base + start, base + end


def _hull(columns: Columns) -> tuple[int, int]:
    filled = [table for table in (columns.ops, columns.device, columns.host, columns.notes) if len(table)]
    return min(int(t["start"].min()) for t in filled), max(int(t["end"].max()) for t in filled)


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
