"""The windows of one job's ranks, as they are laid side by side."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Connection, func, literal, select

from roofwatch.model.errors import UsageError
from roofwatch.model.peers import Sight
from roofwatch.model.ranks_laid import RankWindow
from roofwatch.model.timeline import PARTS, Busy
from roofwatch.store.filter import Filter
from roofwatch.store.queries.peers import MAX_WINDOWS, run_of
from roofwatch.store.queries.scope import windows_of
from roofwatch.store.schema import devices, idle_causes, nodes, processes, window_devices, windows

JOBS_NAMED = 5

_W, _P, _D = windows.c, processes.c, window_devices.c


@dataclass(frozen=True, slots=True)
class Job:
    """A run: what its ranks have in common, and of each process seen, by id, its rank, node and pid."""

    key: Hashable  # as peers.run_of
    name: str | None
    model: str | None
    world_size: int
    host: str  # of its latest process
    other_runs: int  # of the same name
    processes: dict[int, dict[str, Any]] = field(default_factory=dict)


def job_of(connection: Connection, f: Filter) -> Job | None:
    """The one job of several ranks that a filter means; of several runs of one name the latest.

    Raises:
        UsageError: it means several jobs; they are named.
    """
    query = windows_of(
        f, _P.id, _P.owner, _P.job, _P.rank, _P.world_size, _P.model, nodes.c.host,
        func.max(_W.start_unix_ns).label("start_unix_ns"),
    ).where(_P.rank.is_not(None), _P.world_size > 1, _W.start_unix_ns > 0)  # fmt: skip
    latest: dict[Hashable, Any] = {}
    for row in connection.execute(query.group_by(_P.id, nodes.c.host)):
        run = run_of(row)
        if run not in latest or latest[run].start_unix_ns < row.start_unix_ns:
            latest[run] = row
    names = sorted({_name(row) for row in latest.values()})
    if len(names) > 1:
        shown = ", ".join(names[:JOBS_NAMED]) + (" and more" if len(names) > JOBS_NAMED else "")
        raise UsageError(
            f"{len(names)} jobs of several ranks match, and one can be looked at: name it with --job: {shown}"
        )
    if not latest:
        return None
    key, row = max(latest.items(), key=lambda item: item[1].start_unix_ns)
    return Job(key, row.job, row.model, row.world_size, row.host, len(latest) - 1)


def _name(row: Any) -> str:
    if row.job is not None:
        return str(row.job)
    return f"one without an id (--node {row.host}" + (f" --model {row.model})" if row.model else ")")


def windows_of_job(connection: Connection, f: Filter, job: Job) -> tuple[list[RankWindow], int]:
    """Its windows in the filter's time, the latest MAX_WINDOWS, and how many more there are. Notes its processes."""
    _note_processes(connection, job)
    time = [_W.process_id.in_(job.processes), _W.start_unix_ns > 0]
    time += [] if f.since_unix_ns is None else [_W.start_unix_ns >= f.since_unix_ns]
    time += [] if f.until_unix_ns is None else [_W.start_unix_ns < f.until_unix_ns]
    query = (
        select(
            _W.id, _W.process_id, _W.start_unix_ns, _W.duration_ns, _W.first_step, _W.steps, _W.shapes_recorded,
        )
        .where(*time)
        .order_by(_W.start_unix_ns.desc(), _W.id.desc())
        .limit(MAX_WINDOWS)
    )  # fmt: skip
    rows = connection.execute(query).all()
    left_out = 0
    if len(rows) == MAX_WINDOWS:
        left_out = int(connection.execute(select(func.count()).where(*time)).scalar_one()) - MAX_WINDOWS
    chosen = query.subquery()
    on, idle = _on(connection, chosen), _idle(connection, chosen)
    made = []
    for number, process, start, duration, first_step, steps, shapes in rows:
        if number in on:
            sight = Sight(number, job.key, process, job.processes[process]["rank"], start, duration, first_step)
            parts = idle.get(number) or dict.fromkeys(PARTS, 0)
            made.append(_window(sight, steps, shapes, on[number], parts))
    return made, left_out


def _note_processes(connection: Connection, job: Job) -> None:
    query = (
        select(
            _P.id,
            _P.pid,
            _P.owner,
            _P.job,
            _P.rank,
            _P.world_size,
            _P.model,
            nodes.c.host,
            literal(1).label("start_unix_ns"),
        )
        .join(nodes, nodes.c.id == _P.node_id)
        .where(_P.world_size == job.world_size, _P.rank.is_not(None), _P.job.is_not_distinct_from(job.name))
    )
    for row in connection.execute(query):
        if run_of(row) == job.key:
            job.processes[row.id] = {"rank": row.rank, "node": row.host, "pid": row.pid}


def _on(connection: Connection, chosen: Any) -> dict[int, tuple[Any, ...]]:
    """The devices of each window: span, busy, exposed copies and communication, clock, what held it down, model."""
    query = (
        select(
            _D.window_id, _D.span_ns, _D.busy_ns, _D.exposed_copy_ns, _D.exposed_communication_ns, _D.clock_hz,
            _D.throttle, devices.c.model,
        )
        .join(chosen, chosen.c.id == _D.window_id)
        .join(devices, devices.c.id == _D.device_id)
    )  # fmt: skip
    found: dict[int, tuple[Any, ...]] = {}
    for row in _few_at_once(connection, query):
        found[row[0]] = (*found.get(row[0], ()), row[1:])
    return found


def _idle(connection: Connection, chosen: Any) -> dict[int, dict[str, float]]:
    """Idle time of each window by cause, over its devices; the busy parts are 0."""
    c = idle_causes.c
    query = select(c.window_id, c.cause, c.total_ns).join(chosen, chosen.c.id == c.window_id)
    found: dict[int, dict[str, float]] = {}
    for number, cause, ns in _few_at_once(connection, query):
        if number not in found:
            found[number] = dict.fromkeys(PARTS, 0)
        found[number][cause] += ns
    return found


def _few_at_once(connection: Connection, query: Any) -> Iterator[Any]:
    """The rows of a query, gone when they have been looked at: tens of thousands would be counted by the collector."""
    for rows in connection.execute(query).partitions(1000):
        yield from rows


def _window(
    sight: Sight, steps: int | None, shapes: Any, on: Sequence[Sequence[Any]], parts: dict[str, float]
) -> RankWindow:
    """A rank's window; figures are means over its devices. ``parts`` has the idle ones."""
    busy, count = Busy(), len(on)
    for span, *times in (device[:4] for device in on):
        busy.add(span, *times)
    parts |= busy.parts()
    if count > 1:
        parts = {part: ns / count for part, ns in parts.items()}
    clocks = [device[4] for device in on if device[4]]
    throttles = [device[5] for device in on if device[5] is not None]
    return RankWindow(
        sight=sight,
        span_ns=busy.span_ns / count,
        parts=parts,
        steps=steps,
        shapes=bool(shapes),
        device=on[0][6] if count == 1 else ", ".join(dict.fromkeys(device[6] for device in on)),
        clock_hz=sum(clocks) / len(clocks) if clocks else None,
        throttle=",".join(dict.fromkeys(text for text in throttles if text)) if throttles else None,
    )
