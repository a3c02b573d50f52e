"""``peers``: how much of the time in collectives was waiting for late ranks, and which ranks those were."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import ColumnElement, Connection, and_, func, or_, select

from roofwatch.model.answer import ratio
from roofwatch.model.peers import SLACK_NS, Communication, Sight, communication, together
from roofwatch.model.record import Collective
from roofwatch.store import schema
from roofwatch.store.days import came
from roofwatch.store.filter import Filter
from roofwatch.store.queries.scope import IN_LIST, windows_of

MAX_WINDOWS = 20_000  # the latest ones; a day of 64 ranks at one window in five minutes
MAX_COLLECTIVES = 500_000  # looked at in one answer: about two seconds
FEWEST = 16  # collectives of a window that are worth looking at
CHUNK = 100  # windows in one statement
_LOOPBACK = ("rendezvous:127.", "rendezvous:localhost:", "rendezvous:::1:")  # says nothing outside its machine

Key = tuple[str | None, ...]


@dataclass(slots=True)
class _Rank:
    """A process and its sums."""

    run: Hashable
    about: dict[str, Any]
    sums: Communication = field(default_factory=Communication)
    windows: int = 0
    partners: int = 0  # of these windows with other ranks beside them


@dataclass(slots=True)
class _Found:
    """What a walk over the windows found."""

    ranks: dict[int, _Rank] = field(default_factory=dict)
    left_out: int = 0


@dataclass(frozen=True, slots=True)
class Most:
    """How much is looked at."""

    windows: int
    collectives: int


def peers(connection: Connection, f: Filter, limit: int = 0, most: Most | None = None) -> dict[str, Any]:
    """One row a rank of the filter's windows, compared with all ranks of its job, inside the filter or not."""
    most = most or Most(MAX_WINDOWS, MAX_COLLECTIVES)
    asked = _windows(connection, windows_of(f, *_COLUMNS), most.windows)
    older = 0 if len(asked) < most.windows else _count(connection, windows_of(f, func.count())) - len(asked)
    ours = {row.id for row in asked}
    rows = {row.id: row for row in (*asked, *_beside(connection, asked))}
    steps = together(_sight(row) for row in rows.values() if run_of(row) is not None)
    groups = [group for group in steps.together if any(sight.id in ours for sight in group)]
    found = _walk(connection, sorted(groups, key=lambda g: -g[0].start_unix_ns), rows, most.collectives)
    shown = {rows[number].process for number in ours}
    by_run: dict[Hashable, list[tuple[int, _Rank]]] = defaultdict(list)
    for process, rank in found.ranks.items():
        by_run[rank.run].append((process, rank))
    jobs = sorted(((_job(of, shown), of) for of in by_run.values()), key=lambda pair: -pair[0]["waiting_ns"])
    listed = [
        _row(process, rank)
        for _, of in jobs
        for process, rank in sorted(of, key=lambda item: item[1].about["rank"])
        if process in shown
    ]
    return {
        "jobs": [job for job, _ in jobs],
        "windows_left_out": found.left_out + older,
        "windows_ambiguous": steps.ambiguous,
        "windows_without_rank": sum(run_of(rows[number]) is None for number in ours),
        "rows": listed[:limit] if limit else listed,
    }


_W, _P = schema.windows.c, schema.processes.c
_COLUMNS = (
    _W.id, _W.start_unix_ns, _W.duration_ns, _W.first_step, _P.id.label("process"), _P.pid, _P.owner, _P.job, _P.rank,
    _P.world_size, _P.model, schema.nodes.c.host,
)  # fmt: skip


def _windows(connection: Connection, query: Any, most: int) -> Sequence[Any]:
    """The latest windows of a query that hold collectives."""
    ordered = query.where(_has_collectives()).order_by(_W.start_unix_ns.desc(), came(_W.id).desc()).limit(most)
    found: Sequence[Any] = connection.execute(ordered).all()
    return found


def _count(connection: Connection, query: Any) -> int:
    return int(connection.execute(query.where(_has_collectives())).scalar_one())


def _has_collectives() -> ColumnElement[bool]:
    return select(schema.collectives.c.window_id).where(schema.collectives.c.window_id == _W.id).exists()


def _beside(connection: Connection, asked: Sequence[Any]) -> Sequence[Any]:
    """The windows of the same jobs around the same time, whatever node they are on."""
    placed = [row for row in asked if run_of(row) is not None]
    if not placed:
        return []
    longest = max(row.duration_ns for row in placed)
    first = min(row.start_unix_ns for row in placed) - longest - SLACK_NS
    last = max(row.start_unix_ns for row in placed) + longest + SLACK_NS
    jobs = {row.job for row in placed if row.job is not None}
    hosts = {row.host for row in placed if row.job is None}
    same: list[ColumnElement[bool]] = []
    if len(jobs) + len(hosts) <= IN_LIST:
        same = [or_(_P.job.in_(jobs), and_(_P.job.is_(None), schema.nodes.c.host.in_(hosts)))]
    runs = {run_of(row) for row in placed}
    query = windows_of(Filter(), *_COLUMNS).where(_W.start_unix_ns.between(first, last), *same)
    return [row for row in _windows(connection, query, MAX_WINDOWS) if run_of(row) in runs]


def run_of(row: Any) -> Hashable:
    """What processes must share to be ranks of one run; None where a rank or its group is not known.

    Without a job only processes of one machine can be told to belong together, by user, model and world size.
    """
    if row.rank is None or row.world_size is None or not row.start_unix_ns:
        return None
    if row.job is None:
        return ("node", row.host, row.owner, row.model, row.world_size)
    where = row.host if row.job.startswith(_LOOPBACK) else None
    return ("job", row.job, where, row.world_size)


def _sight(row: Any) -> Sight:
    return Sight(row.id, run_of(row), row.process, row.rank, row.start_unix_ns, row.duration_ns, row.first_step)


def _walk(connection: Connection, groups: Sequence[list[Sight]], rows: dict[int, Any], room: int) -> _Found:
    """Sums up windows taken together, the latest first, until enough collectives were looked at."""
    found = _Found()
    for batch in _batches(groups):
        numbers = [sight.id for group in batch for sight in group]
        most = room // len(numbers)
        if most < FEWEST:
            found.left_out += len(numbers)
            continue
        by_window = collectives_of(connection, numbers, most)
        room -= sum(len(of) for of in by_window.values())
        found.left_out += sum(len(of) == most for of in by_window.values())
        for group in batch:
            _sum_up(found, group, by_window, rows)
    return found


def _batches(groups: Sequence[list[Sight]]) -> Iterable[list[list[Sight]]]:
    """Groups that are looked up together: about CHUNK windows, or one group of more."""
    batch: list[list[Sight]] = []
    for group in groups:
        if batch and sum(map(len, batch)) + len(group) > CHUNK:
            yield batch
            batch = []
        batch.append(group)
    if batch:
        yield batch


def _sum_up(
    found: _Found, group: Sequence[Sight], by_window: dict[int, list[Collective]], rows: dict[int, Any]
) -> None:
    by_rank = {sight.rank: by_window[sight.id] for sight in group}
    clocks = {sight.rank: rows[sight.id].host for sight in group}
    sums = communication(by_rank, same_step=group[0].first_step is not None, clocks=clocks)
    for sight in group:
        rank = found.ranks.setdefault(sight.process, _Rank(sight.run, _about(rows[sight.id])))
        rank.sums.add(sums[sight.rank])
        rank.windows += 1
        rank.partners += len(group) > 1


def collectives_of(connection: Connection, windows: Sequence[int], most: int) -> dict[int, list[Collective]]:
    """The first collectives of each window."""
    c = schema.collectives.c
    found: dict[int, list[Collective]] = {number: [] for number in windows}
    for low in range(0, len(windows), CHUNK):
        query = select(
            c.window_id, c.device, c.name, c.group_name, c.start_unix_ns, c.duration_ns, c.group_size, c.sequence,
            c.bytes,
        ).where(c.window_id.in_(windows[low : low + CHUNK]), c.position < most)  # fmt: skip
        for number, *rest in connection.execute(query):
            found[number].append(Collective(*rest))
    return found


def _about(row: Any) -> dict[str, Any]:
    return {
        "job": row.job, "node": row.host, "pid": row.pid, "model": row.model, "rank": row.rank,
        "world_size": row.world_size,
    }  # fmt: skip


def _sums(s: Communication) -> dict[str, Any]:
    """Time in collectives; moving and waiting are of those that were matched."""
    return {
        "calls": s.calls,
        "total_ns": s.total_ns,
        "matched_share": ratio(s.matched_ns, s.total_ns),
        "complete_share": ratio(s.complete_ns, s.matched_ns),
        "moving_ns": s.moving_ns,
        "waiting_ns": s.waiting_ns,
        "lower_bound": s.complete_calls < s.matched_calls,
        "last_calls": s.last_calls,
        "caused_ns": s.caused_ns,
    }


def _row(process: int, rank: _Rank) -> dict[str, Any]:
    windows = {"windows": rank.windows, "windows_matched": rank.partners}
    return {"process": f"{process:016x}", **rank.about, **windows, **_sums(rank.sums)}


def _job(of: Iterable[tuple[int, _Rank]], shown: set[int]) -> dict[str, Any]:
    """A run: sums over the ranks that were asked for; who was last among all of its ranks."""
    members = list(of)
    total = Communication()
    for process, rank in members:
        if process in shown:
            total.add(rank.sums)
    hosts = {rank.about["node"] for _, rank in members}
    about = {**members[0][1].about, "node": hosts.pop() if len(hosts) == 1 else None}
    summed = _sums(total)
    return {
        **{key: about[key] for key in ("job", "node", "model", "world_size")},
        "ranks": len({rank.about["rank"] for _, rank in members}),
        **{key: value for key, value in summed.items() if key not in ("last_calls", "caused_ns")},
        "last": _last(members),
    }


def _last(members: Sequence[tuple[int, _Rank]]) -> dict[str, Any] | None:
    """Who let the others wait longest, in all; None where nobody waited."""
    process, rank = max(members, key=lambda item: (item[1].sums.caused_ns, -item[1].about["rank"]))
    if not rank.sums.caused_ns:
        return None
    where = {key: rank.about[key] for key in ("rank", "node", "pid")}
    return {**where, "process": f"{process:016x}", "calls": rank.sums.last_calls, "caused_ns": rank.sums.caused_ns}
