"""What is old on Postgres: partitions of days are dropped, as whole tables, once nothing in them is needed.

A day's partitions of kernels go once its hours are summed up and all are told to be without kernels, and those of its
windows once its days are. What must stay (hours with windows imported from files, or whose sums cannot be made) is
moved to the shared partition first. Dropping waits only a moment for readers, and is tried again later: while it waits
for a long one, all others would wait behind it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from enum import Enum

from sqlalchemy import ColumnElement, Connection, Select, Table, delete, select, update
from sqlalchemy.exc import DBAPIError

from roofwatch.model.record import Trigger
from roofwatch.store import postgres_partitions as partitions
from roofwatch.store.config import Keep
from roofwatch.store.database import Database
from roofwatch.store.days import DAY_NS, SHARED, day_of, first_number
from roofwatch.store.given_up import GivenUp, Piece
from roofwatch.store.postgres_engine import busy
from roofwatch.store.postgres_sums import WAIT
from roofwatch.store.rollup_schema import DAY_S, HOUR_S, SECOND_NS, bucket_of
from roofwatch.store.schema import metadata, rollups, windows

AT_ONCE = 500  # windows that are moved in one transaction


class _Found(Enum):
    """What became of a day that is old."""

    DROPPED = "dropped"
    MOVED = "moved"  # some of its windows: look again
    NEEDED = "needed"  # it is still to be summed up, or told that its kernels go
    READ = "read"  # for too long: try again later


def tidy(database: Database, now_ns: int, reference_ns: int, keep: Keep, broken: GivenUp) -> tuple[int, bool]:
    """Make partitions ahead and drop old ones; how many days were dropped, and whether there is more to do."""
    with database.read() as connection:
        lacking = partitions.missing(connection, now_ns, kept_days := keep.raw_s // DAY_S + 1)
    if lacking:
        with database.write() as connection:
            partitions.make_ahead(connection, now_ns, kept_days)
    dropped = 0
    for tables, grain, age_s in (
        (partitions.BY_KERNELS, HOUR_S, keep.raw_s),
        (partitions.BY_WINDOWS, DAY_S, keep.hourly_s),
    ):
        for day in _leaving(database, next(iter(tables)), now_ns, reference_ns - age_s * SECOND_NS):
            found = _dropped(database, tables, day, grain, broken)
            if found is _Found.MOVED:
                return dropped, True
            dropped += found is _Found.DROPPED
    return dropped, False


def _leaving(database: Database, table: str, now_ns: int, before_ns: int) -> list[int]:
    """Days that ended before a time, and days to come that a clock that jumped had partitions made for."""
    ahead = range(day_of(now_ns), day_of(now_ns) + partitions.AHEAD + 1)
    with database.read() as connection:
        there = sorted(partitions.days(connection, table) - set(ahead))
        if table not in partitions.BY_KERNELS:  # as long as kernels have a day, its windows need one
            kernels = partitions.days(connection)
            there = [day for day in there if day not in kernels]
        old = [day for day in there if (day + 1) * DAY_NS <= before_ns]
        return old + [day for day in there if day > ahead[-1] and day not in old and not _used(connection, day)]


def _used(connection: Connection, day: int) -> bool:
    """Whether any window was ever in a day, as far as sums tell."""
    r = rollups.c
    return connection.execute(select(r.grain).where(_within(r.bucket_unix_ns, day)).limit(1)).first() is not None


def _within(column: ColumnElement[int], day: int) -> ColumnElement[bool]:
    return column.between(day * DAY_NS, (day + 1) * DAY_NS - 1)


def _moved(connection: Connection, day: int, grain: int, broken: GivenUp) -> int | None:
    """Move windows that must stay from a day to the shared partition; how many, None where the day must wait."""
    r = rollups.c
    kept = (r.grain == grain, r.finer, _within(r.bucket_unix_ns, day))
    own = select(r.bucket_unix_ns, r.process_id).where(*kept)
    due = own.where(r.stale, r.bucket_unix_ns >= broken.before_ns)
    stale = connection.execute(due.limit(len(broken) + 1)).all()
    given_up = broken_days(broken) if grain == DAY_S else {(at, process) for of, at, process in broken if of == grain}
    if any(piece not in given_up for piece in map(tuple, stale)):
        return None  # it is still to be summed up
    if connection.execute(own.where(~r.stale, ~imported(grain).exists()).limit(1)).first() is not None:
        return None  # its kernels are still to be told gone
    staying = [(bucket, process) for bucket, process in connection.execute(own)]
    for at in range(0, len(staying), AT_ONCE):
        numbers = _numbers(connection, day, grain, set(staying[at : at + AT_ONCE]))[:AT_ONCE]
        for name, key in partitions.PARTITIONED.items() if numbers else ():
            column = metadata.tables[name].c[key]
            where = (column >= first_number(day), column < first_number(day + 1), column.in_(numbers))
            connection.execute(update(metadata.tables[name]).where(*where).values({key: column.op("&")(SHARED - 1)}))
        if numbers:
            return len(numbers)
    return 0


def _numbers(connection: Connection, day: int, grain: int, pieces: Collection[tuple[int, int]]) -> list[int]:
    """The windows of pieces that are in a day's partition."""
    w, length = windows.c, grain * SECOND_NS
    query = select(w.id, w.start_unix_ns, w.process_id).where(
        w.id >= first_number(day), w.id < first_number(day + 1), w.process_id.in_({process for _, process in pieces})
    )
    return [i for i, start, process in connection.execute(query) if (start - start % length, process) in pieces]


def imported(grain: int) -> Select[tuple[int]]:
    """The windows from files in a piece of ``rollups``."""
    w, r = windows.c, rollups.c
    return select(w.id).where(
        w.id < SHARED,
        w.trigger == Trigger.IMPORTED,
        w.process_id == r.process_id,
        w.start_unix_ns.between(r.bucket_unix_ns, r.bucket_unix_ns + grain * SECOND_NS - 1),
    )


def _dropped(database: Database, tables: Iterable[str], day: int, grain: int, broken: GivenUp) -> _Found:
    """Look at a day and drop its partitions in one transaction, so that no window comes in between."""
    names = ", ".join(f"{table}_{partitions.suffix(day)}" for table in tables)
    try:
        with database.write() as connection:
            moved = _moved(connection, day, grain, broken)
            if moved is None:
                return _Found.NEEDED
            if moved:
                return _Found.MOVED
            connection.exec_driver_sql(f"SET LOCAL lock_timeout = '{WAIT}'")
            connection.exec_driver_sql(f"DROP TABLE IF EXISTS {names}")
    except DBAPIError as error:
        if not busy(error):
            raise
        return _Found.READ
    return _Found.DROPPED


def broken_days(broken: Collection[Piece]) -> set[tuple[int, int]]:
    """The days of processes that cannot be summed up, or one of their hours."""
    return {(bucket_of(bucket, DAY_S), process) for _, bucket, process in broken}


def drop_shared(
    connection: Connection, tables: Sequence[Table], grain: int, pieces: Collection[tuple[int, int]]
) -> None:
    """Delete windows of pieces from the shared partition, where those are that came when their day was over."""
    if not pieces:
        return
    w, length = windows.c, grain * SECOND_NS
    query = select(w.id, w.start_unix_ns, w.process_id).where(
        w.id < SHARED,
        w.process_id.in_({process for _, process in pieces}),
        w.start_unix_ns >= min(bucket for bucket, _ in pieces),
        w.start_unix_ns < max(bucket for bucket, _ in pieces) + length,
    )
    wanted = set(pieces)
    numbers = [i for i, start, process in connection.execute(query) if (start - start % length, process) in wanted]
    for at in range(0, len(numbers), AT_ONCE):
        for table in tables:
            key = table.c[partitions.PARTITIONED[table.name]]
            connection.execute(delete(table).where(key < SHARED, key.in_(numbers[at : at + AT_ONCE])))
