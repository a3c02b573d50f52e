"""The windows of one job's ranks, as they are laid side by side."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Connection, and_, func, literal, select

from roofwatch.model.errors import UsageError
from roofwatch.model.peers import Sight
from roofwatch.model.ranks_laid import RankWindow
from roofwatch.model.record import Cause
from roofwatch.model.timeline import PARTS, Busy
from roofwatch.store.days import came
from roofwatch.store.filter import Filter
from roofwatch.store.queries.peers import MAX_WINDOWS, run_of
from roofwatch.store.queries.scope import IN_LIST, among, windows_of
from roofwatch.store.schema import devices, idle_causes, nodes, processes, window_devices, windows

JOBS_NAMED = 5

_W, _P, _D, _C = windows.c, processes.c, window_devices.c, idle_causes.c


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
    """Its windows in the filter's time, the latest MAX_WINDOWS, and how many more there are. Notes its processes.

    Of idle time only what was communication is in them: ``add_causes`` tells the rest of those that are shown.
    """
    _note_processes(connection, job)
    time = [_W.process_id.in_(job.processes), _W.start_unix_ns > 0]
    time += [] if f.since_unix_ns is None else [_W.start_unix_ns >= f.since_unix_ns]
    time += [] if f.until_unix_ns is None else [_W.start_unix_ns < f.until_unix_ns]
    order = (_W.start_unix_ns.desc(), came(_W.id).desc())
    chosen = select(_W.id).where(*time).order_by(*order).limit(MAX_WINDOWS).subquery()
    found: dict[int, tuple[Any, ...]] = {}
    for rows in connection.execute(_with_devices(chosen)).partitions(1000):  # all at once, the collector counts them
        for row in rows:
            found[row[0]] = (*found.get(row[0], ()), row)
    used = among(select(devices.c.id, devices.c.model), devices.c.id, {row[6] for on in found.values() for row in on})
    models: dict[int, str] = {number: model for number, model in connection.execute(used)}  # noqa: C416 - typed rows
    left_out = 0
    if len(found) == MAX_WINDOWS:
        left_out = int(connection.execute(select(func.count()).where(*time)).scalar_one()) - MAX_WINDOWS
    return [_window(on, job, models) for on in found.values()], left_out


def _note_processes(connection: Connection, job: Job) -> None:
    query = (
        select(
            _P.id, _P.pid, _P.owner, _P.job, _P.rank, _P.world_size, _P.model, nodes.c.host,
            literal(1).label("start_unix_ns"),
        )
        .join(nodes, nodes.c.id == _P.node_id)
        .where(_P.world_size == job.world_size, _P.rank.is_not(None), _P.job.is_not_distinct_from(job.name))
    )  # fmt: skip
    for row in connection.execute(query):
        if run_of(row) == job.key:
            job.processes[row.id] = {"rank": row.rank, "node": row.host, "pid": row.pid}


def _with_devices(chosen: Any) -> Any:
    """A row a window and device."""
    communication = and_(_C.window_id == _D.window_id, _C.position == _D.position, _C.cause == str(Cause.COMMUNICATION))
    return (
        select(
            _W.id, _W.process_id, _W.start_unix_ns, _W.duration_ns, _W.first_step, _W.steps,
            _D.device_id, _D.clock_hz, _D.throttle, func.coalesce(_C.total_ns, 0),
            _D.span_ns, _D.busy_ns, _D.exposed_copy_ns, _D.exposed_communication_ns,
        )
        .select_from(chosen)
        .join(windows, _W.id == chosen.c.id)
        .join(window_devices, _D.window_id == _W.id)
        .outerjoin(idle_causes, communication)
    )  # fmt: skip


def _window(on: Sequence[Sequence[Any]], job: Job, models: Mapping[int, str]) -> RankWindow:
    """A rank's window from its rows; figures are means over its devices."""
    number, process, start, duration, first_step, steps, device, clock, throttle, waited, *times = on[0]
    busy, count = Busy(), len(on)
    busy.add(*times)
    if count > 1:
        for more in on[1:]:
            busy.add(*more[10:])
        waited = sum(row[9] for row in on)
        clocks = [row[7] for row in on if row[7]]
        clock = sum(clocks) / len(clocks) if clocks else None
        read = [row[8] for row in on if row[8] is not None]
        throttle = ",".join(dict.fromkeys(text for text in read if text)) if read else None
    parts = dict.fromkeys(PARTS, 0.0)
    parts |= busy.parts()
    parts["communication"] = waited
    if count > 1:
        parts = {part: ns / count for part, ns in parts.items()}
    return RankWindow(
        sight=Sight(number, job.key, process, job.processes[process]["rank"], start, duration, first_step),
        span_ns=busy.span_ns / count,
        parts=parts,
        steps=steps,
        device=models.get(device) if count == 1 else ", ".join(dict.fromkeys(models[row[6]] for row in on)),
        clock_hz=clock or None,
        throttle=throttle,
        devices=count,
    )


def add_causes(connection: Connection, shown: Iterable[RankWindow]) -> None:
    """Idle time by cause, of the windows that are shown."""
    by_id = {w.sight.id: w for w in shown}
    numbers = list(by_id)
    for low in range(0, len(numbers), IN_LIST):
        query = select(_C.window_id, _C.cause, _C.total_ns).where(_C.window_id.in_(numbers[low : low + IN_LIST]))
        for number, cause, ns in connection.execute(query.where(_C.cause != str(Cause.COMMUNICATION))):
            w = by_id[number]
            w.parts[cause] += ns / w.devices
