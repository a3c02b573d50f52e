"""From which tables an answer is taken: for each time the coarsest that is exact.

Days that lie wholly in the filter's time and whose sums are up to date; else hours; else windows: those of hours that
the filter cuts, that are not over, or that a late window has made stale. Where the windows of an hour that the filter
cuts are no longer kept, nothing is exact: it is left out, and told.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from enum import Enum
from functools import lru_cache
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    Select,
    Table,
    and_,
    bindparam,
    case,
    false,
    func,
    or_,
    select,
    union_all,
)

from roofwatch.store.filter import Filter
from roofwatch.store.gather import ROWS
from roofwatch.store.one_of import one_of
from roofwatch.store.queries.memo import once
from roofwatch.store.queries.scope import began, device_matches, device_sets_of, owners, times
from roofwatch.store.queries.states import days_of, states_of
from roofwatch.store.rollup_schema import DAY_S, HOUR_S, SECOND_NS, bucket_of
from roofwatch.store.rollup_sources import FIGURES, SOURCES, fresh_rows, piece_rows, plain_columns, window_rows
from roofwatch.store.schema import nodes, processes, rollups, window_sums, windows

FEW = 64  # processes that are named in a statement…
NAMED_MOST = 400  # …and hours or days
NAMES = {0: "raw", HOUR_S: "hourly", DAY_S: "daily"}
_RAW_ONLY: ContextVar[bool] = ContextVar("raw_only", default=False)
_STRETCH_S: ContextVar[int] = ContextVar("stretch", default=0)


class Which(Enum):
    """Whose windows or pieces of a time are meant, by what ``rollups`` says of their piece."""

    ALL = "all"
    STALE = "stale"
    KEPT = "kept"  # finer ones are still there
    GONE = "gone"


@dataclass(slots=True)
class Plan:
    """Times from ≤ t < until, by grain (0: windows)."""

    spans: dict[int, list[tuple[int | None, int | None, Which]]] = field(default_factory=lambda: defaultdict(list))
    left_out: list[tuple[int, int]] = field(default_factory=list)
    stale: bool = False  # whether some pieces of the spans are, or are not meant
    processes: tuple[int, ...] | None = None  # the filter's, where they are few…
    nodes: frozenset[int] = frozenset()  # …and whose they are

    def add(self, grain: int, since: int | None, until: int | None, which: Which = Which.ALL) -> None:
        """One more span; called in ascending order, so that those that touch become one."""
        self.stale |= bool(grain) and which is not Which.ALL
        spans = self.spans[grain]
        if spans and since is not None and spans[-1][1] == since and spans[-1][2] is which:
            since = spans.pop()[0]
        spans.append((since, until, which))

    @property
    def windows(self) -> ColumnElement[bool]:
        """Which windows are asked for themselves."""
        return or_(false(), *(self._window(*span) for span in self.spans.get(0, ())))

    def _window(self, since: int | None, until: int | None, which: Which) -> ColumnElement[bool]:
        start, r = windows.c.start_unix_ns, rollups.c
        found = began(since, until)
        if which is not Which.ALL:
            piece = select(r.grain).where(
                r.grain == HOUR_S,
                r.bucket_unix_ns == start - start % (HOUR_S * SECOND_NS),
                r.process_id == windows.c.process_id,
                r.stale if which is Which.STALE else r.finer,
            )
            found.append(piece.exists())
        return and_(*found) if found else windows.c.id.is_not(None)

    @property
    def pieces(self) -> ColumnElement[bool]:
        """Which pieces are: fresh ones of the spans."""
        r = rollups.c
        found = []
        for grain in (HOUR_S, DAY_S):
            for since, until, which in self.spans.get(grain, ()):
                gone = [~r.finer] if which is Which.GONE else []
                found.append(and_(r.grain == grain, *times(r.bucket_unix_ns, since, until), *gone))
        return and_(~r.stale, or_(false(), *found))

    def fresh(self, c: Any) -> ColumnElement[bool]:
        """The same of a table of sums, by its own columns; where none is stale."""
        found: list[ColumnElement[bool]] = [false()]
        for grain in (HOUR_S, DAY_S):
            step, spans = grain * SECOND_NS, self.spans.get(grain, ())
            each = [
                list(range(since, until, step)) for since, until, _ in spans if since is not None and until is not None
            ]
            if self.processes is not None and spans and sum(map(len, each)) <= NAMED_MOST:
                found.append(and_(c.grain == grain, c.bucket_unix_ns.in_([bucket for of in each for bucket in of])))
            else:
                found += [and_(c.grain == grain, *times(c.bucket_unix_ns, since, until)) for since, until, _ in spans]
        return or_(*found)

    @property
    def has_windows(self) -> bool:
        """Whether windows are asked."""
        return bool(self.spans.get(0))

    @property
    def has_pieces(self) -> bool:
        """Whether sums are."""
        return bool(self.spans.get(HOUR_S) or self.spans.get(DAY_S))


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


def plain_rows(found: Plan, f: Filter, table: Table) -> Any:
    """As ``rows_of``, without whose the rows are: fewer tables are joined."""
    rows = rows_of(found, f, table) if found.stale or not found.has_pieces else None
    names = [column.name for column in plain_columns(table)]
    if rows is not None:
        return select(*(rows.c[name] for name in names)).subquery()
    t, own = table.c, owners(f)
    if found.processes is not None:
        own = [t.process_id.in_(found.processes)]
    of = device_sets_of(f, t.devices_id) if "devices_id" in t else device_matches(f)
    owned, of_device = bool(own) and found.processes is None, bool(of) and "devices_id" not in t
    fresh = fresh_rows(table, [found.fresh(t), *own, *of], owned=owned, of_device=of_device)
    if not found.has_windows:
        return fresh.subquery()
    alone = Plan({0: found.spans[0]}, processes=found.processes)
    rows = rows_of(alone, f, table)
    return union_all(select(*(rows.c[name] for name in names)), fresh).subquery()


def rows_of(found: Plan, f: Filter, table: Table, *, timed: bool = False, names: Sequence[str] = tuple(FIGURES)) -> Any:
    """The rows of a table of sums and of the windows that these do not hold, with the same columns (rollup_sources).

    ``timed``: and ``at_unix_ns``, when the window or the hour or day began. ``names``: the figures wanted of windows;
    to name few is faster.
    """
    starts = {"windows": windows.c.start_unix_ns, "pieces": table.c.bucket_unix_ns}
    at = {name: [column.label("at_unix_ns")] if timed else [] for name, column in starts.items()}
    by_set = "devices_id" in table.c
    parts = []
    if found.has_windows or not found.has_pieces:
        own = device_sets_of(f, windows.c.devices_id) if by_set else device_matches(f)
        where = [found.windows, *owners(f), *own]
        rows = window_rows(where, names) if table is window_sums else SOURCES[table.name](where)
        parts.append(rows.add_columns(*at["windows"]))
    if found.has_pieces:
        own = device_sets_of(f, table.c.devices_id) if by_set else device_matches(f)
        parts.append(piece_rows(table, [found.pieces, *owners(f), *own], names).add_columns(*at["pieces"]))
    return (parts[0] if len(parts) == 1 else union_all(*parts)).subquery()
