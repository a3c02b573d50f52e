"""A table, a trace view, or both of one capture → the raw profile."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from roofwatch.collectors.ascend import alone
from roofwatch.collectors.ascend.common import (
    NOTHING,
    Message,
    Origins,
    PipeSums,
    Rows,
    What,
    collectives_of,
    groups_of,
)
from roofwatch.collectors.ascend.csv_table import CORE_CYCLES, MOVED, MOVED_CYCLES
from roofwatch.collectors.ascend.lost import mostly_lost
from roofwatch.collectors.ascend.near import elsewhen, kept, middle_of
from roofwatch.collectors.ascend.timeline import Linked
from roofwatch.collectors.ascend.trace_links import fill_devices, link
from roofwatch.collectors.ascend.values import COMMUNICATION, collective_word, what_of, word
from roofwatch.collectors.base import Limits, RawDevice, RawGroup, RawProfile
from roofwatch.collectors.kineto.bounds import taken
from roofwatch.collectors.kineto.columns import Columns
from roofwatch.model.errors import RoofwatchError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from roofwatch.collectors.ascend.csv_table import Table
    from roofwatch.collectors.ascend.trace_view import View
    from roofwatch.collectors.kineto.tables import Table as Columned

    Ints = NDArray[np.int64]
    Floats = NDArray[np.floating[Any]]
    Rows32 = NDArray[np.int32]
    Mask = NDArray[np.bool_]

Bounds = tuple[int, int] | None
TABLE, VIEW = "ascend_csv", "ascend_trace_view"  # collectors
MAX_DEVICES = 256
MAX_STEPS = 1000  # whose lengths are told
_OVER_CYCLES = {CORE_CYCLES: ("core_ns", 1e9), MOVED_CYCLES: ("moved_bytes", 1.0)}  # field, and what a second is in it
# Sorts of device tasks that are kernels; the others are events, waits, copies, and the parts of collectives.
_KERNELS = frozenset({
    "AI_CORE", "AI_VECTOR_CORE", "MIX_AIC", "MIX_AIV", "AI_CPU", "DSA_SQE", "DVPP", "KERNEL_AICORE", "KERNEL_AIVEC",
    "KERNEL_AICPU", "KERNEL_MIX_AIC", "KERNEL_MIX_AIV",
})  # fmt: skip
_CORES = {  # a view calls vector kernels AI_CORE too, so that this tells nothing
    "AI_CORE": "", "KERNEL_AICORE": "", "KERNEL_AIVEC": "AI_VECTOR_CORE", "KERNEL_AICPU": "AI_CPU",
    "KERNEL_MIX_AIC": "MIX_AIC", "KERNEL_MIX_AIV": "MIX_AIV",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Facts:
    """What other files tell about a capture; None where they do not."""

    rank: int | None = None
    world_size: int | None = None
    pid: int | None = None
    device: str = ""  # the chip's name
    cores: int | None = None
    clock_hz: float | None = None
    messages: Mapping[str, Message] = field(default_factory=dict)  # a collective's name → what it moves
    groups: Mapping[str, tuple[str, int | None]] = field(default_factory=dict)  # as tables call one → identity, size


@dataclass(frozen=True, slots=True)
class _Records:
    rows: Rows
    devices: list[int | None]  # ids by position
    in_step: Mask | None  # None where the table does not tell
    steps: int | None


@dataclass(frozen=True, slots=True)
class _Side:
    """The host's side of the records; without a view only what the table tells of it."""

    origins: Origins
    linked: Linked | None = None
    returned: Ints | None = None  # when the launch of each record was over


def profile_of(
    name: str,
    limits: Limits,
    table: Table | None,
    view: View | None,
    facts: Facts,
    bounds: Bounds = None,
) -> RawProfile:
    """The profile of a table, a view or both; ``name`` is what messages call it, ``bounds`` those of the window.

    Raises:
        RoofwatchError: there is no device record.
    """
    problems = [*(table.problems if table else ()), *(view.problems if view else ())]
    dropped = (table.dropped if table else Counter[str]()) + (view.dropped if view else Counter[str]())
    records = _records(table, view, dropped)
    if view is not None and elsewhen([part["start"] for part in _hosts(view)], records.rows.start):
        problems.append("the host's part is of another time than the device's, and left out")
        view = None
    if not len(records.rows):
        raise RoofwatchError(f"{name} holds no kernel and no collective{_reasons(problems, dropped)}.")
    if table is not None and (lost := mostly_lost(len(records.rows), table.dropped)):
        problems.append(lost)
    side = _side(records, view, bounds)
    clock = facts.clock_hz or (view.clock_hz if view else None)
    groups = _groups(records.rows, side.origins, table, limits, dropped, clock)
    start, end = bounds or _hull(records.rows, view)
    collectives, more = collectives_of(records.rows, start)
    dropped["over_collective_limit"] += more
    profile = RawProfile(
        collector=VIEW if table is None else TABLE,
        devices=_devices(records, side, facts, table, view, bounds),
        groups=groups,
        collectives=collectives,
        start_unix_ns=start,
        duration_ns=end - start,
        steps=records.steps,
        has_host_events=False,
        shapes_recorded=any(what.shapes is not None for what in records.rows.whats),
        events_read=table.events if table else 0,
        pid=facts.pid,
        rank=facts.rank,
        world_size=facts.world_size,
        dropped={reason: count for reason, count in sorted(dropped.items()) if count},
        problem=f"{name}: {'; '.join(problems)}." if problems else None,
    )
    return profile if side.linked is None else _with_host(profile, side.linked)


def _with_host(profile: RawProfile, linked: Linked) -> RawProfile:
    """What the host's side tells beside."""
    columns, host = linked.columns, linked.host
    return replace(
        profile,
        steps=host.steps if profile.steps is None else profile.steps,
        has_host_events=linked.has_host,
        events_read=profile.events_read + columns.events,
        pid=_pid(columns) if profile.pid is None else profile.pid,
        python_events=columns.python,
        step_ns=tuple((host.step_ends - host.step_starts)[:MAX_STEPS].tolist()),
    )


def _records(table: Table | None, view: View | None, dropped: Counter[str]) -> _Records:
    if table is not None:
        return _of_table(table)
    return _of_view(view, dropped) if view is not None else _Records(_rows([], []), [], None, None)


def _hosts(view: View) -> list[Columned]:
    """What the host did."""
    return [part for part in (view.columns.ops, view.columns.host, view.columns.notes) if len(part)]


def _of_table(table: Table) -> _Records:
    found, position = np.unique(table.device, return_inverse=True)
    if len(found) > MAX_DEVICES:  # a damaged file
        found, position = np.array([NOTHING]), np.zeros(len(table.device), dtype=np.int64)
    if len(found) == 1:
        position = np.broadcast_to(np.int64(0), table.device.shape)
    rows = Rows(table.start, table.start + table.duration, table.what, table.whats, position, table.blocks)
    steps = np.unique(table.step[table.step >= 0])
    in_step = table.step >= 0 if len(steps) else None
    return _Records(rows, [index if index >= 0 else None for index in found.tolist()], in_step, len(steps) or None)


def _of_view(view: View, dropped: Counter[str]) -> _Records:
    """The kernels and collectives among what a view shows of its device."""
    names = view.columns.names.values_seen
    is_kernel = np.array([name in _KERNELS for name in names] or [False])
    tasks, calls = view.tasks, view.collectives
    (kernel,) = np.nonzero((tasks["sort"] >= 0) & is_kernel[tasks["sort"]])
    whats: dict[What, int] = {}
    ids = [
        whats.setdefault(_kernel(names[name], names[sort]), len(whats))
        for name, sort in zip(tasks["name"][kernel].tolist(), tasks["sort"][kernel].tolist(), strict=True)
    ]
    messages = messages_of(view)
    ids += [
        whats.setdefault(what_of(names[name], "", COMMUNICATION, messages=messages), len(whats))
        for name in calls["name"].tolist()
    ]
    start, end = (np.append(tasks[key][kernel], calls[key]) for key in ("start", "end"))
    mask = kept(start, end, middle_of([start]), dropped)
    chosen = np.array(ids, dtype=np.int32)[mask] if len(ids) else ids
    return _Records(_rows(list(whats), chosen, start[mask], end[mask]), [None], None, None)


def _rows(
    whats: Sequence[What], ids: Sequence[int] | Rows32, start: Ints | None = None, end: Ints | None = None
) -> Rows:
    none = np.empty(0, dtype=np.int64)
    return Rows(
        none if start is None else start, none if end is None else end, np.array(ids, dtype=np.int32), whats,
        device=np.zeros(len(ids), dtype=np.int64), blocks=np.full(len(ids), NOTHING, dtype=np.int32),
    )  # fmt: skip


def _kernel(name: str, sort: str) -> What:
    return what_of(name, "", _CORES.get(sort, sort))


def messages_of(view: View, known: Mapping[str, Message] | None = None) -> dict[str, Message]:
    """What each collective moves, by its name; added to what is ``known`` of its group."""
    names = view.columns.names.values_seen
    found = dict(known or {})
    columns = (view.collectives[key].tolist() for key in ("name", "dtype", "count"))
    for name, dtype, count in zip(*columns, strict=True):
        message = found.get(names[name]) or Message(collective_word(names[name]))
        found[names[name]] = message._replace(
            dtype=word(names[dtype]) if dtype >= 0 else None, elements=count if count > 0 else None
        )
    return found


def _side(records: _Records, view: View | None, bounds: Bounds) -> _Side:
    rows = records.rows
    if view is None:
        return _Side(Origins.unknown(len(rows), records.in_step))
    returned = link(view, rows)
    fill_devices(view.columns, rows)
    linked = Linked(view.columns, None if bounds is None else taken(bounds, 0, view.columns))
    origins = linked.origins(rows.start)
    if records.in_step is not None:
        origins = replace(origins, in_step=records.in_step)  # the table says it of each record
    return _Side(origins, linked, returned)


def _groups(
    rows: Rows, origins: Origins, table: Table | None, limits: Limits, dropped: Counter[str], clock_hz: float | None
) -> list[RawGroup]:
    found = groups_of(rows, origins, limits.max_groups)
    dropped["over_group_limit"] += found.folded
    if table is not None and table.pipes:
        sums = PipeSums(found.which, rows.end - rows.start, len(found.groups))
        every = np.arange(len(rows), dtype=np.int32)
        clock = table.samples.answer()[0] or clock_hz  # that of the cycles, then any other
        for pipe in list(table.pipes):
            _add_metric(sums, pipe, every, table.pipes.pop(pipe), clock)  # given up at once: most of a table
        found.with_pipes(sums)
        dropped["bad_metric"] += sums.bad
    return found.groups


def _add_metric(sums: PipeSums, name: str, rows: Rows32, values: Floats, clock: float | None) -> None:
    """Adds a metric; what was counted in cycles is known only where the clock is."""
    if name not in _OVER_CYCLES:
        (sums.add_amount if name == MOVED else sums.add)(name, rows, values)
    elif clock is not None:
        field, scale = _OVER_CYCLES[name]
        sums.add_amount(field, rows, values * np.float32(scale / clock))


def _devices(
    records: _Records, side: _Side, facts: Facts, table: Table | None, view: View | None, bounds: Bounds
) -> list[RawDevice]:
    clock, cores = table.samples.answer() if table is not None else (None, None)
    devices = [
        RawDevice(
            vendor="ascend",
            name=facts.device,
            index=index,
            units=facts.cores or cores,
            clock_hz=facts.clock_hz or (view.clock_hz if view else None) or clock,
        )
        for index in records.devices
    ]
    if side.linked is None:
        alone.add_timelines(devices, records.rows, bounds)
    else:
        side.linked.add_timelines(devices, records.rows, side.returned)
    return devices


def _hull(rows: Rows, view: View | None) -> tuple[int, int]:
    """Begin and end of all that was recorded."""
    starts, ends = [int(rows.start.min())], [int(rows.end.max())]
    for part in () if view is None else _hosts(view):
        starts.append(int(part["start"].min()))
        ends.append(int(part["end"].max()))
    return min(starts), max(ends)


def _pid(columns: Columns) -> int | None:
    """The process that most ops were in."""
    if not len(columns.ops):
        return None
    threads, counts = np.unique(columns.ops["thread"], return_counts=True)
    pid = columns.threads.values_seen[threads[np.argmax(counts)]][0]
    return pid if isinstance(pid, int) else None


def _reasons(problems: Sequence[str], dropped: Counter[str]) -> str:
    lost = ", ".join(f"{count} {reason.replace('_', ' ')}" for reason, count in sorted(dropped.items()) if count)
    why = "; ".join([*problems, *([f"dropped: {lost}"] if lost else [])])
    return f" ({why})" if why else ""
