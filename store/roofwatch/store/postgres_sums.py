"""Partitions of sums on Postgres: of hours by day, of days by month; made ahead, found, and what of them a plan reads.

A table of sums is partitioned by grain (``…_hourly``, ``…_daily``) and these by the beginning: both are in its key and
in every question, so nothing is stored for it. By both at once a list of hours would look into all partitions. What
has no partition (of days before the store's first, of odd dates, of imported windows whose day is gone)
is in a default one, ``…_shared``: a partition that is made takes its rows out of there. Sums are written long after
their hour began, so partitions are there before; nothing is made while something is ingested.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import Boolean, ColumnElement, Connection, and_, or_
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql import operators, visitors
from sqlalchemy.sql.elements import AsBoolean, BooleanClauseList, Grouping
from sqlalchemy.sql.expression import FunctionElement

from roofwatch.store.days import DAY_NS, day_of
from roofwatch.store.postgres_engine import busy
from roofwatch.store.rollup_schema import DAY_S, HOUR_S, ROLLED, kernel_hours, rollups

AHEAD = 1  # days after today whose hours have their partitions; an hour's sums come after its end
BEHIND = 7  # days before today that get theirs after the store was away: so long agents keep windows
MOST = 128  # partitions of a table, besides those of days that are kept: a clock that jumps makes no more
WAIT = "250ms"  # for readers
BY_BOTH = tuple(table.name for table in ROLLED)
BY_TIME = kernel_hours.name  # of hours only
_OF_GRAIN = {HOUR_S: "hourly", DAY_S: "daily"}
_NAME = re.compile(rf"({'|'.join(BY_BOTH)})_(hourly|daily)(_(\d{{6}}|\d{{8}}|shared))?|{BY_TIME}_(\d{{8}}|shared)")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True, order=True)
class Span:
    """The days from ≤ day < until (since 1970) whose sums of one grain are one partition of each table."""

    grain: int
    since: int
    until: int

    @property
    def suffix(self) -> str:
        """Of the partitions' names: 20270115, or 202701."""
        return _date(self.since).strftime("%Y%m%d" if self.grain == HOUR_S else "%Y%m")

    @property
    def tables(self) -> tuple[str, ...]:
        """The tables that have one."""
        return (*BY_BOTH, BY_TIME) if self.grain == HOUR_S else BY_BOTH

    @property
    def low_ns(self) -> int:
        """The first beginning of an hour or day that is in it."""
        return self.since * DAY_NS

    @property
    def high_ns(self) -> int:
        """The first after it."""
        return self.until * DAY_NS

    def within(self, column: ColumnElement[int]) -> ColumnElement[bool]:
        """That a beginning is in it."""
        return and_(column >= self.low_ns, column < self.high_ns)

    def parent(self, table: str) -> str:
        """Of a table of sums what is partitioned by time."""
        return table if table == BY_TIME else f"{table}_{_OF_GRAIN[self.grain]}"


def hours_of(day: int) -> Span:
    """Of hours: a day."""
    return Span(HOUR_S, day, day + 1)


def days_of(day: int) -> Span:
    """Of days: the month (UTC) that a day is in."""
    first = _date(day).replace(day=1)
    after = (first + timedelta(days=31)).replace(day=1)
    return Span(DAY_S, (first - _EPOCH).days, (after - _EPOCH).days)


def _date(day: int) -> datetime:
    return _EPOCH + timedelta(days=day)


def is_partition(name: str | None) -> bool:
    """Whether a table is a partition of one of ours."""
    return name is not None and _NAME.fullmatch(name) is not None


def spans(connection: Connection) -> list[Span]:
    """Those that have partitions; all tables of one have them, or none."""
    names = connection.exec_driver_sql(
        "SELECT c.relname FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid "
        "WHERE i.inhparent IN ('kernel_sums_hourly'::regclass, 'kernel_sums_daily'::regclass)"
    ).scalars()
    return sorted(_span(told) for name in names if (told := name.rpartition("_")[2]).isdigit())


def _span(told: str) -> Span:
    by_day = len(told) == len("20270115")
    day = (datetime.strptime(told if by_day else f"{told}01", "%Y%m%d").replace(tzinfo=UTC) - _EPOCH).days
    return hours_of(day) if by_day else days_of(day)


def missing(connection: Connection, now_ns: int, kept: int = 0) -> list[Span]:
    """Which of now and soon have no partitions, and of the days that the store was away for.

    None once a clock that jumps has made very many; ``kept`` are those that are kept as long as they should.
    """
    there, today = spans(connection), day_of(now_ns)
    if today < 1 or len(there) >= MOST + kept:
        return []
    last = max((s.since for s in there if s.grain == HOUR_S and s.since < today), default=today - 1)
    first = max(last + 1, today - BEHIND)
    wanted = [hours_of(day) for day in range(first, today + AHEAD + 1)]
    wanted += sorted({days_of(day) for day in (first, today, today + AHEAD)})
    return [span for span in wanted if span not in there]


def make(connection: Connection, span: Span) -> None:
    """The partitions of a span, with what the default ones hold of it; nothing where another store made them."""
    if span in spans(connection):
        return
    connection.exec_driver_sql(f"SET LOCAL lock_timeout = '{WAIT}'")  # readers of the default ones
    for table in span.tables:
        parent = span.parent(table)
        name = f"{parent}_{span.suffix}"
        connection.exec_driver_sql(f"CREATE TABLE {name} (LIKE {parent} INCLUDING DEFAULTS INCLUDING STORAGE)")
        connection.exec_driver_sql(
            f"WITH moved AS (DELETE FROM {parent}_shared WHERE bucket_unix_ns >= {span.low_ns} "  # noqa: S608 - our own names
            f"AND bucket_unix_ns < {span.high_ns} RETURNING *) INSERT INTO {name} SELECT * FROM moved"
        )
        bounds = f"FROM ({span.low_ns}) TO ({span.high_ns})"
        connection.exec_driver_sql(f"ALTER TABLE {parent} ATTACH PARTITION {name} FOR VALUES {bounds}")


def make_if_free(connection: Connection, span: Span) -> None:
    """The same where nobody reads the default ones for long; else a store's upkeep makes them later."""
    point = connection.begin_nested()
    try:
        make(connection, span)
    except DBAPIError as error:
        if not busy(error):
            raise
        point.rollback()
    else:
        point.commit()


class _Pruning(FunctionElement[bool]):
    """What follows from other conditions anyway, for the engine that has partitions."""

    type = Boolean()
    inherit_cache = True
    name = "pruning"


@compiles(_Pruning)
def _always(_element: _Pruning, _compiler: Any, **_: Any) -> str:
    return "1 = 1"


@compiles(_Pruning, "postgresql")
def _itself(element: _Pruning, compiler: Any, **options: Any) -> str:
    return f"({compiler.process(element.clauses, **options)})"


def same_pieces(where: Iterable[ColumnElement[bool]], table: Any) -> list[ColumnElement[bool]]:
    """Of conditions of ``rollups`` what they say of grain and beginning, for columns of sums of the same pieces.

    Postgres concludes it from a join only when it runs, after it has planned for every partition there is.
    """
    told = [one for condition in where if (one := _told(condition, table)) is not None]
    return [_Pruning(and_(*told))] if told else []


def _told(condition: Any, table: Any) -> ColumnElement[bool] | None:
    """What follows from a condition, None where nothing does: a weaker one, for what is not known is left out."""
    whole = isinstance(condition, AsBoolean) and condition.operator is operators.is_true
    if isinstance(condition, Grouping) or whole:
        return _told(condition.element, table)
    if isinstance(condition, BooleanClauseList):
        parts = [_told(part, table) for part in condition.clauses]
        known = [part for part in parts if part is not None]
        if condition.operator is operators.and_:
            return and_(*known) if known else None
        return or_(*known) if len(known) == len(parts) else None
    own = {rollups.c.grain: table.grain, rollups.c.bucket_unix_ns: table.bucket_unix_ns}
    columns = [part for part in visitors.iterate(condition) if part.__visit_name__ == "column"]
    if not columns or any(column not in own for column in columns):
        return None

    of_table: Any = lambda part, **_: own.get(part)  # noqa: E731
    found: ColumnElement[bool] = visitors.replacement_traverse(condition, {}, of_table)
    return found


def not_in(column: ColumnElement[int], some: Sequence[Span]) -> list[ColumnElement[bool]]:
    """That a beginning is in none of them."""
    return [or_(column < span.low_ns, column >= span.high_ns) for span in some]
