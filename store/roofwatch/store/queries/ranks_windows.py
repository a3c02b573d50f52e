"""The windows of one job's ranks, as they are laid side by side."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Connection, case, func, select

from roofwatch.model.errors import UsageError
from roofwatch.model.peers import Sight
from roofwatch.model.ranks_laid import RankWindow
from roofwatch.model.record import Cause
from roofwatch.model.timeline import Busy
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
    same = [
        _P.world_size == job.world_size,
        _P.rank.is_not(None),
        _W.start_unix_ns > 0,
        _P.job.is_not_distinct_from(job.name),
    ]
    if job.name is None:
        same.append(nodes.c.host == job.host)
    time = Filter(since_unix_ns=f.since_unix_ns, until_unix_ns=f.until_unix_ns)
    query = (
        windows_of(
            time, _W.id, _W.start_unix_ns, _W.duration_ns, _W.first_step, _W.steps, _W.shapes_recorded,
            _P.id.label("process"), _P.pid, _P.owner, _P.job, _P.rank, _P.world_size, _P.model, nodes.c.host,
        )
        .where(*same)
        .order_by(_W.start_unix_ns.desc(), _W.id.desc())
        .limit(MAX_WINDOWS)
    )  # fmt: skip
    rows = connection.execute(query).all()
    left_out = 0
    if len(rows) == MAX_WINDOWS:
        left_out = int(connection.execute(windows_of(time, func.count()).where(*same)).scalar_one()) - MAX_WINDOWS
    found = [row for row in rows if run_of(row) == job.key]
    for row in found:
        job.processes.setdefault(row.process, {"rank": row.rank, "node": row.host, "pid": row.pid})
    chosen = query.subquery()
    on, idle = _on(connection, chosen), _idle(connection, chosen)
    return [_window(row, job.key, on[row.id], idle.get(row.id)) for row in found if row.id in on], left_out


def _on(connection: Connection, chosen: Any) -> dict[int, list[Any]]:
    """The devices of each window."""
    query = (
        select(
            _D.window_id, _D.span_ns, _D.busy_ns, _D.exposed_copy_ns, _D.exposed_communication_ns, _D.clock_hz,
            _D.throttle, devices.c.model,
        )
        .join(chosen, chosen.c.id == _D.window_id)
        .join(devices, devices.c.id == _D.device_id)
    )  # fmt: skip
    found: dict[int, list[Any]] = {}
    for row in connection.execute(query):
        found.setdefault(row.window_id, []).append(row)
    return found


def _idle(connection: Connection, chosen: Any) -> dict[int, Sequence[Any]]:
    """Idle time of each window by cause, in the order of Cause, over its devices."""
    c = idle_causes.c
    sums = [func.sum(case((c.cause == str(cause), c.total_ns), else_=0)) for cause in Cause]
    query = select(c.window_id, *sums).join(chosen, chosen.c.id == c.window_id).group_by(c.window_id)
    return {number: sums for number, *sums in connection.execute(query)}


def _window(row: Any, run: Hashable, on: Sequence[Any], idle: Sequence[Any] | None) -> RankWindow:
    """A rank's window; figures are means over its devices."""
    busy = Busy()
    for device in on:
        busy.add(device.span_ns, device.busy_ns, device.exposed_copy_ns, device.exposed_communication_ns)
    count = len(on)
    parts = {part: ns / count for part, ns in busy.parts().items()}
    parts |= {str(cause): int(ns) / count for cause, ns in zip(Cause, idle or [0] * len(Cause), strict=True)}
    clocks = [device.clock_hz for device in on if device.clock_hz]
    throttles = [device.throttle for device in on if device.throttle is not None]
    return RankWindow(
        sight=Sight(row.id, run, row.process, row.rank, row.start_unix_ns, row.duration_ns, row.first_step),
        span_ns=busy.span_ns / count,
        parts=parts,
        steps=row.steps,
        shapes=bool(row.shapes_recorded),
        device=", ".join(dict.fromkeys(device.model for device in on)),
        clock_hz=sum(clocks) / len(clocks) if clocks else None,
        throttle=",".join(dict.fromkeys(text for text in throttles if text)) if throttles else None,
    )
