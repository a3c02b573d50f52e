"""From which tables an answer is taken: for each time the coarsest that is exact.

Days that lie wholly in the filter's time and whose sums are up to date; else hours; else windows: those of hours that
the filter cuts, that are not over, or that a late window has made stale. Where the windows of an hour that the filter
cuts are no longer kept, nothing is exact: it is left out, and told.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from sqlalchemy import Connection, Select, bindparam, case, func, select

from roofwatch.store.filter import Filter
from roofwatch.store.gather import ROWS
from roofwatch.store.one_of import one_of
from roofwatch.store.queries.memo import once
from roofwatch.store.queries.scope import owners
from roofwatch.store.queries.spans import Plan, Which
from roofwatch.store.queries.states import days_of, states_of
from roofwatch.store.rollup_schema import DAY_S, HOUR_S, SECOND_NS, bucket_of
from roofwatch.store.schema import nodes, processes, rollups

FEW = 64  # processes that are named in a statement
NAMES = {0: "raw", HOUR_S: "hourly", DAY_S: "daily"}
_RAW_ONLY: ContextVar[bool] = ContextVar("raw_only", default=False)
_STRETCH_S: ContextVar[int] = ContextVar("stretch", default=0)


@contextmanager
def raw_only() -> Iterator[None]:
    """Take answers from windows alone: what sums are held against."""
    token = _RAW_ONLY.set(True)
    try:
        yield
    finally:
        _RAW_ONLY.reset(token)


@contextmanager
def stretches(seconds: int) -> Iterator[None]:
    """Answers are told by stretches of time so long (0: they are not): take nothing from what sums up longer ones."""
    token = _STRETCH_S.set(seconds)
    try:
        yield
    finally:
        _STRETCH_S.reset(token)


@dataclass(slots=True)
class _Bucket:
    """The pieces of one hour or day."""

    pieces: int
    stale: int
    finer: int


def plan(connection: Connection, f: Filter, coarsest: int = DAY_S) -> Plan:
    """Where the answer to a filter comes from; from nothing coarser than that while what is finer is kept."""
    if _RAW_ONLY.get() or not coarsest:
        return windows_only(f)
    if stretch := _STRETCH_S.get():
        longest = next((grain for grain in (DAY_S, HOUR_S) if stretch % grain == 0), 0)
        return once(connection, f, f"stretch{longest}", lambda: _plan(connection, f, longest, longest))
    return once(connection, f, f"plan{coarsest}", lambda: _plan(connection, f, coarsest))


def _plan(connection: Connection, f: Filter, coarsest: int, longest: int = DAY_S) -> Plan:
    """``longest``: of what is only kept in longer sums nothing is taken, as of what the filter cuts."""
    known = states_of(connection, f)
    if known is None:
        few, of_nodes = _owned(connection, f)
        counted: Iterable[Sequence[Any]] = _counts(connection, f, few)
    else:
        few, of_nodes, counted = _few(known.processes()) if known.owned else None, frozenset(), known.counted()
    found = Plan(processes=few, nodes=of_nodes)
    hours, days = _buckets(f, counted).values()
    for day, state in sorted(days.items()):
        inside = _inside(f, day, DAY_S) and longest >= DAY_S
        if inside and not state.stale and coarsest >= DAY_S:
            found.add(DAY_S, day, day + DAY_S * SECOND_NS)
            continue
        if state.finer < state.pieces:
            if inside:
                found.add(DAY_S, day, day + DAY_S * SECOND_NS, Which.GONE)
            else:
                found.left_out.append(_cut(f, day, DAY_S))
        for hour in range(day, day + DAY_S * SECOND_NS, HOUR_S * SECOND_NS):
            if hour in hours:
                _hour(found, f, hour, hours[hour], whole=_inside(f, hour, HOUR_S) and longest >= HOUR_S)
    return found


def windows_only(f: Filter) -> Plan:
    """All from windows, as far as they are kept."""
    found = Plan()
    found.add(0, f.since_unix_ns, f.until_unix_ns)
    return found


def _hour(found: Plan, f: Filter, hour: int, state: _Bucket, *, whole: bool) -> None:
    end = hour + HOUR_S * SECOND_NS
    if not whole:
        if state.finer < state.pieces:
            found.left_out.append(_cut(f, hour, HOUR_S))
        if state.finer:
            found.add(0, *_cut(f, hour, HOUR_S), Which.ALL if state.finer == state.pieces else Which.KEPT)
        return
    if state.stale < state.pieces:
        found.add(HOUR_S, hour, end)
        found.stale |= state.stale > 0
    if state.stale:
        found.add(0, hour, end, Which.ALL if state.stale == state.pieces else Which.STALE)


def _buckets(f: Filter, counted: Iterable[Sequence[Any]]) -> dict[int, dict[int, _Bucket]]:
    """The hours and days in which the filter's owners have windows, by grain."""
    first = {grain: bucket_of(max(0, f.since_unix_ns or 0), grain) for grain in (HOUR_S, DAY_S)}
    found: dict[int, dict[int, _Bucket]] = {HOUR_S: {}, DAY_S: {}}
    for grain, bucket, count, stale, finer in counted:
        if bucket >= first[grain]:
            found[grain][bucket] = _Bucket(count, int(stale), int(finer))
    return found


def _counts(connection: Connection, f: Filter, of: tuple[int, ...] | None) -> Sequence[Any]:
    """Pieces counted by grain and bucket; ``of`` are the filter's processes, if few."""
    if connection.dialect.name == ROWS:
        of = None
    if of is None and (wanted := owners(f)):
        query = _counted().join(processes, processes.c.id == rollups.c.process_id)
        query = query.join(nodes, nodes.c.id == processes.c.node_id).where(*wanted)
    else:
        query = _counted() if of is None else _counted_of_some()
    given: dict[str, Any] = days_of(f)
    return connection.execute(query, given if of is None else {**given, "processes": of}).all()


@lru_cache(maxsize=1)
def _counted() -> Select[Any]:
    r = rollups.c
    stale, finer = (func.sum(case((flag, 1), else_=0)) for flag in (r.stale, r.finer))
    return (
        select(r.grain, r.bucket_unix_ns, func.count(), stale, finer)
        .where(r.grain.in_((HOUR_S, DAY_S)), r.bucket_unix_ns >= bindparam("since"))
        .where(r.bucket_unix_ns < bindparam("until"))
        .group_by(r.grain, r.bucket_unix_ns)
    )


@lru_cache(maxsize=1)
def _counted_of_some() -> Select[Any]:
    return _counted().where(one_of(rollups.c.process_id, "processes"))


def _owned(connection: Connection, f: Filter) -> tuple[tuple[int, ...] | None, frozenset[int]]:
    """The processes of a filter, if they are few, and their nodes: then their rows are found one by one."""
    wanted = owners(f)
    if not wanted:
        return None, frozenset()
    p = processes.c
    query = select(p.id, p.node_id).join(nodes, nodes.c.id == p.node_id).where(*wanted).limit(FEW + 1)
    found = connection.execute(query).all()
    few = _few([process for process, _ in found])
    return few, frozenset() if few is None else frozenset(node for _, node in found)


def _few(of: Sequence[int]) -> tuple[int, ...] | None:
    return tuple(of) if len(of) <= FEW else None


def _inside(f: Filter, bucket: int, grain: int) -> bool:
    """Whether a bucket lies wholly in the filter's time."""
    since, until = f.since_unix_ns, f.until_unix_ns
    return (since is None or since <= bucket) and (until is None or bucket + grain * SECOND_NS <= until)


def _cut(f: Filter, bucket: int, grain: int) -> tuple[int, int]:
    """What of a bucket the filter's time leaves."""
    end = bucket + grain * SECOND_NS
    since, until = f.since_unix_ns, f.until_unix_ns
    return bucket if since is None else max(since, bucket), end if until is None else min(until, end)
