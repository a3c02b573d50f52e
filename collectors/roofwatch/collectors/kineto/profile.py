"""Columns of a trace → the raw profile: records, devices, ledger."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from roofwatch.collectors.base import BORROWED, Limits, RawDevice, RawGroup, RawProfile
from roofwatch.collectors.graphs import NOTHING, Known
from roofwatch.collectors.kineto import collectives, graphs
from roofwatch.collectors.kineto.bounds import Taken, leave_out_later, taken
from roofwatch.collectors.kineto.columns import Columns
from roofwatch.collectors.kineto.device_records import cpu_records, device_records, drop_zero_times
from roofwatch.collectors.kineto.graphs_captured import captured_launches
from roofwatch.collectors.kineto.grids import grids_of
from roofwatch.collectors.kineto.groups import Texts, group
from roofwatch.collectors.kineto.lending import Wanted, borrow, lend
from roofwatch.collectors.kineto.link import Host, host_side, launches_of, unfinished
from roofwatch.collectors.kineto.outline import Outline, outline_of
from roofwatch.collectors.kineto.refusal import reasons_of, require_records
from roofwatch.collectors.kineto.timeline import unused, with_timelines
from roofwatch.model.record import Collective, Graph

if TYPE_CHECKING:
    from roofwatch.collectors.kineto.document import Document

COLLECTOR = "kineto"
MAX_STEPS = 1000  # whose lengths are told: enough to see whether the first ones are longer
MAX_WAIT_NS = 1 << 49  # what host threads can have waited in all within one trace
MAX_UNIX_NS = 1 << 61  # the year 2043
_ABSOLUTE_NS = 10**18  # September 2001: a clock beyond it counts from 1970, a smaller one from somewhere else


@dataclass(frozen=True, slots=True)
class _Read:
    """A trace's events laid out."""

    columns: Columns
    host: Host
    outline: Outline
    window: Taken | None  # where its bounds are known


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
    dropped["bad_time"] += drop_zero_times(columns.device)
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
    require_records(columns, may_be_cut, window is not None and sound, reasons_of(problems, dropped), name)
    shapes = _shapes(columns, wanted)
    read = _Read(columns, host_side(columns, window), outline, window)
    accounts = _accounts(read, limits, known)
    dropped.update(accounts.dropped)
    return _profile(read, accounts, shapes, bounds, dropped, _sentence(name, problems))


def _profile(
    read: _Read,
    accounts: _Accounts,
    shapes: tuple[bytes, str],
    bounds: tuple[int, int] | None,
    dropped: Counter[str],
    problem: str | None,
) -> RawProfile:
    columns, host, outline, window = read.columns, read.host, read.outline, read.window
    start, end = bounds or _unix_hull(columns, outline.base_ns)
    lent, borrowed = shapes
    return RawProfile(
        collector=COLLECTOR,
        devices=accounts.devices,
        groups=accounts.groups,
        collectives=accounts.collectives,
        graphs=accounts.graphs,
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
        problem=problem,
        python_events=columns.python,
        waits=accounts.waits,
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
    collectives: list[Collective]
    dropped: Counter[str]
    graphs: list[Graph]
    waits: tuple[int, int, int] | None = None


def _accounts(read: _Read, limits: Limits, known: Known) -> _Accounts:
    columns, host, outline = read.columns, read.host, read.outline
    dropped: Counter[str] = Counter()
    launched: list[Graph] = []
    if len(columns.device):
        launches = launches_of(columns)
        grids = grids_of(columns, launches)
        devices, records, found = device_records(columns, host, launches, grids, outline)
        records, launched = graphs.attributed(records, columns, host, launches, known)
        moving = collectives.communicating(columns, records)
        waited = with_timelines(devices, records.device, columns, host, launches, moving)
        waits = waited if waited[1] < MAX_WAIT_NS else None
        dropped["unfinished"] = unfinished(columns, captured_launches(columns)[0])
    else:
        waits, grids, (devices, records) = None, None, cpu_records(columns, host)
        found = collectives.of_host(columns, outline.only_group)
    texts = Texts(
        columns.names.values_seen, host.ranges.texts, columns.inputs.values_seen, found.texts,
        () if grids is None else grids.texts,
    )  # fmt: skip
    groups, dropped["over_group_limit"] = group(records, texts, limits.max_groups)
    dropped["over_text_limit"] = columns.names.overflown + columns.inputs.overflown
    begin = _hull(columns)[0] if read.window is None else read.window.start
    entries, dropped["over_collective_limit"] = collectives.entries(found, begin)
    return _Accounts(devices, groups, entries, dropped, launched, waits)


def _unused(columns: Columns, host: Host, outline: Outline, window: Taken) -> RawDevice | None:
    """The device of a process that has one and launched nothing; None where that is not known.

    With ops in the window only a trace that names devices says that they were listened to.
    """
    if len(columns.device) or (len(columns.ops) and not outline.vendor and not outline.properties):
        return None
    return unused(outline.vendor, columns, host, window)


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
