"""Old sums on Postgres: the partitions of a day's hours, or of a month's days, are dropped as whole tables.

A day's hours go once all of its days are summed up, in one transaction with what ``rollups`` says of them, so that an
answer sees all of it or nothing. What must stay (of a process with windows imported from files, or whose sums cannot
be made) is written to the default partition before. Dropping waits only a moment for readers, and is tried again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from sqlalchemy import ColumnElement, Connection, delete, select, update
from sqlalchemy.exc import DBAPIError

from roofwatch.store import postgres_sums, process_states
from roofwatch.store.config import Keep
from roofwatch.store.database import Database
from roofwatch.store.days import day_of
from roofwatch.store.given_up import GivenUp
from roofwatch.store.postgres_engine import busy
from roofwatch.store.postgres_retention import broken_days, drop_shared, imported
from roofwatch.store.postgres_sums import BY_TIME, WAIT, Span
from roofwatch.store.rollup_schema import DAY_S, HOUR_S, SECOND_NS
from roofwatch.store.schema import rollups, windows
from roofwatch.store.window_schema import OF_KERNELS, OF_WINDOWS


@dataclass(slots=True)
class DroppedSums:
    """What went."""

    days_of_hours: int = 0  # of one process each, as are…
    days: int = 0
    partitions: int = 0


def tidy(database: Database, now_ns: int, reference_ns: int, keep: Keep, broken: GivenUp) -> DroppedSums:
    """Make partitions ahead and drop old ones."""
    with database.read() as connection:
        lacking = postgres_sums.missing(connection, now_ns, keep.hourly_s // DAY_S + keep.daily_s // (28 * DAY_S))
    for span in lacking:
        _tried(database, lambda connection, span=span: postgres_sums.make(connection, span))  # type: ignore[misc]
    found = DroppedSums()
    for span in _leaving(database, now_ns, reference_ns, keep):
        gone: list[tuple[int, int]] = []
        if _tried(database, lambda connection, span=span, gone=gone: _drop(connection, span, broken, gone)):  # type: ignore[misc]
            found.partitions += 1
            if span.grain == HOUR_S:
                found.days_of_hours += len(gone)
            else:
                found.days += len(gone)
                with database.write() as connection:
                    process_states.forget(connection, reference_ns - keep.daily_s * SECOND_NS)
    return found


def old(connection: Connection, grain: int, before_ns: int) -> list[Span]:
    """Those with partitions of sums of a grain that begin before a time: nothing of them is deleted by key."""
    return [span for span in postgres_sums.spans(connection) if span.grain == grain and span.low_ns < before_ns]


def _tried(database: Database, work: Callable[[Connection], bool | None]) -> bool:
    """Whether it was done: not where somebody reads for long, nor where it says no."""
    try:
        with database.write() as connection:
            return work(connection) is not False
    except DBAPIError as error:
        if not busy(error):
            raise
    return False


def _leaving(database: Database, now_ns: int, reference_ns: int, keep: Keep) -> list[Span]:
    """Those that are old, and those to come that a clock that jumped had made."""
    today = day_of(now_ns)
    ages = {HOUR_S: keep.hourly_s, DAY_S: keep.daily_s}
    with database.read() as connection:
        return [
            span
            for span in postgres_sums.spans(connection)
            if span.until <= today or span.since > today + postgres_sums.AHEAD
            if span.high_ns <= reference_ns - ages[span.grain] * SECOND_NS
            or (span.since > today + postgres_sums.AHEAD and not _used(connection, span))
        ]


def _used(connection: Connection, span: Span) -> bool:
    r = rollups.c
    return connection.execute(select(r.grain).where(*_within(span, span.grain)).limit(1)).first() is not None


def _within(span: Span, grain: int) -> tuple[ColumnElement[bool], ...]:
    return (rollups.c.grain == grain, span.within(rollups.c.bucket_unix_ns))


def _drop(connection: Connection, span: Span, broken: GivenUp, gone: list[tuple[int, int]]) -> bool:
    """All of a span in one transaction; ``gone`` is told the pieces. False where it must wait."""
    if span not in postgres_sums.spans(connection) or _waits(connection, span, broken):  # another store was first
        return False
    own = {table: f"{span.parent(table)}_{span.suffix}" for table in span.tables}
    _probe(connection, span, own.values())
    gone += _marked(connection, span) if span.grain == HOUR_S else _removed(connection, span)
    drop_shared(connection, (*OF_KERNELS, *OF_WINDOWS, windows), DAY_S, gone)
    for table, name in own.items():
        connection.exec_driver_sql(f"ALTER TABLE {span.parent(table)} DETACH PARTITION {name}")
    if _used(connection, span):
        for table, name in own.items():  # which are of the default partition now
            connection.exec_driver_sql(
                f"INSERT INTO {table} SELECT * FROM {name} s WHERE EXISTS ({_kept(table, span)})"  # noqa: S608 - our own
            )
    connection.exec_driver_sql(f"DROP TABLE {', '.join(own.values())}")
    return True


def _probe(connection: Connection, span: Span, own: Iterable[str]) -> None:
    """Have the locks that dropping takes, for a moment: a long reader is met before anything is deleted.

    They are given back at once, since deleting may take a while and readers need not wait for it.

    Raises:
        DBAPIError: somebody reads for long.
    """
    connection.exec_driver_sql(f"SET LOCAL lock_timeout = '{WAIT}'")
    parents = [span.parent(table) for table in span.tables]
    names = [*parents, *(f"{parent}_shared" for parent in parents), *own]
    point = connection.begin_nested()
    connection.exec_driver_sql(f"LOCK TABLE {', '.join(f'ONLY {name}' for name in names)}")
    point.rollback()


def _kept(table: str, span: Span) -> str:
    """Of a row ``s`` of sums: a piece that stays, of a node's hours any piece of the same day."""
    if table != BY_TIME:
        return (
            "SELECT 1 FROM rollups r WHERE r.grain = s.grain AND r.bucket_unix_ns = s.bucket_unix_ns "
            "AND r.process_id = s.process_id"
        )
    return (
        f"SELECT 1 FROM rollups r JOIN processes p ON p.id = r.process_id WHERE r.grain = {HOUR_S} "  # noqa: S608 - numbers
        f"AND r.bucket_unix_ns >= {span.low_ns} AND r.bucket_unix_ns < {span.high_ns} AND p.node_id = s.node_id"
    )


def _waits(connection: Connection, span: Span, broken: GivenUp) -> bool:
    """Whether some days are still to be summed up, or, of a month, have hours that are still to go."""
    r, given_up = rollups.c, broken_days(broken)
    due = r.stale if span.grain == HOUR_S else ~imported(DAY_S).exists()
    mine = (*_within(span, DAY_S), r.bucket_unix_ns >= broken.before_ns)
    query = select(r.bucket_unix_ns, r.process_id).where(*mine, r.finer, due)
    found = connection.execute(query.limit(len(given_up) + 1)).all()
    return any((bucket, process) not in given_up for bucket, process in found)


def _marked(connection: Connection, span: Span) -> list[tuple[int, int]]:
    """Days of which no hours are left from now on."""
    r = rollups.c
    mine = (*_within(span, DAY_S), ~r.stale, r.finer, ~imported(DAY_S).exists())
    told = update(rollups).where(*mine).values(finer=False).returning(r.bucket_unix_ns, r.process_id)
    found = [(bucket, process) for bucket, process in connection.execute(told)]
    staying = connection.execute(select(r.process_id).where(*_within(span, DAY_S), r.finer)).scalars().all()
    # Few, and told as they are: joined, these would be sought for each hour where the table has no statistics yet.
    connection.exec_driver_sql(
        f"DELETE FROM rollups WHERE grain = {HOUR_S} AND bucket_unix_ns >= {span.low_ns} "  # noqa: S608 - numbers
        f"AND bucket_unix_ns < {span.high_ns} AND process_id <> ALL(%s::bigint[])",
        (list(staying),),
    )
    return found


def _removed(connection: Connection, span: Span) -> list[tuple[int, int]]:
    """Days that go themselves."""
    r = rollups.c
    mine = (*_within(span, DAY_S), ~r.stale, ~r.finer, ~imported(DAY_S).exists())
    told = delete(rollups).where(*mine).returning(r.bucket_unix_ns, r.process_id)
    return [(bucket, process) for bucket, process in connection.execute(told)]
