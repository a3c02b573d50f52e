"""Partitions of a day on Postgres: made ahead, found, dropped; and the numbers of windows, which tell the day.

All of it happens under the writers' lock, so that two stores on one database do not meet. Nothing here waits for
readers but dropping, which gives up soon: a partition is made as a table of its own and then attached, which readers
and writers of others do not notice. For the same reason there is no default partition.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from sqlalchemy import Connection

from roofwatch.store.days import DAY_NS, SERIAL_BITS, SHARED, day_of, first_number
from roofwatch.store.window_schema import OF_KERNELS, OF_WINDOWS, windows

BY_KERNELS = {table.name: "window_id" for table in OF_KERNELS}  # dropped first
BY_WINDOWS = {windows.name: "id", **{table.name: "window_id" for table in OF_WINDOWS}}
PARTITIONED = {**BY_KERNELS, **BY_WINDOWS}
AHEAD = 3  # days after today that have their partitions before their first window
MOST_DAYS = 64  # with partitions; windows of more days than that share one
_NAME = re.compile(rf"({'|'.join(PARTITIONED)})_(\d{{8}}|shared)")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def is_partition(name: str | None) -> bool:
    """Whether a table is a partition of one of ours: Alembic is not to compare it."""
    return name is not None and _NAME.fullmatch(name) is not None


def suffix(day: int) -> str:
    """Of a partition's name: 20270115."""
    return (_EPOCH + timedelta(days=day)).strftime("%Y%m%d")


def days(connection: Connection, table: str = "kernel_blocks") -> set[int]:
    """The days of which a table has a partition; a window's day has one of each table where kernels have one."""
    found = connection.exec_driver_sql(
        "SELECT c.relname FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid WHERE i.inhparent = %s::regclass",
        (table,),
    ).scalars()
    return _days_of(found.all())


def bounds(connection: Connection) -> list[tuple[int, int]]:
    """The lowest and the highest number that windows of each partition may have."""
    return [(first_number(day), first_number(day + 1) - 1) for day in sorted({0} | days(connection, "windows"))]


def _days_of(names: Sequence[str]) -> set[int]:
    told = (name.rpartition("_")[2] for name in names)
    return {(datetime.strptime(day, "%Y%m%d").replace(tzinfo=UTC) - _EPOCH).days for day in told if day.isdigit()}


def make(connection: Connection, day: int) -> None:
    """The partitions of a day that has none."""
    low, high = first_number(day), first_number(day + 1)
    there = {table for table in PARTITIONED if day in days(connection, table)}
    statements = []
    for table in PARTITIONED:
        if table in there:
            continue
        name = f"{table}_{suffix(day)}"
        statements.append(f"CREATE TABLE {name} (LIKE {table} INCLUDING DEFAULTS INCLUDING STORAGE)")
        if table == "windows":  # unique within the day: the same window began at the same time
            statements.append(f"CREATE UNIQUE INDEX {name}_uid ON {name} (uid)")
        statements.append(f"ALTER TABLE {table} ATTACH PARTITION {name} FOR VALUES FROM ({low}) TO ({high})")
    connection.exec_driver_sql("; ".join(statements))


def missing(connection: Connection, now_ns: int, kept_days: int = 0) -> list[int]:
    """Which of today and the next days have no partitions; none once a clock that jumps has made very many.

    ``kept_days`` are those that are kept as long as they should, and tell nothing of clocks.
    """
    today, found = day_of(now_ns), days(connection)
    lacking = [day for day in range(max(1, today), today + AHEAD + 1) if day not in found]
    return lacking if len(found) < MOST_DAYS * 2 + kept_days else []


def make_ahead(connection: Connection, now_ns: int, kept_days: int = 0) -> int:
    """The partitions of today and the next days; how many days had none."""
    lacking = missing(connection, now_ns, kept_days)
    for day in lacking:
        make(connection, day)
    return len(lacking)


def numbers(connection: Connection, windows: Sequence[tuple[bytes, int, bool]]) -> list[int | None]:
    """The number of each new window, None of one that is stored; a window is (uid, start_unix_ns, imported).

    A window with the same uid began at the same time: it is looked for in its day and among those of no day.
    """
    if not windows:
        return []
    wanted = sorted({day_of(start) for _, start, imported in windows if not imported})
    ranges = " OR ".join(f"id >= {first_number(day)} AND id < {first_number(day + 1)}" for day in wanted)
    where = f"id < {SHARED} OR {ranges}" if ranges else f"id < {SHARED}"
    if len(wanted) > MOST_DAYS:  # nobody sends so many days together but by mistake
        where = "true"
    query = (
        f"SELECT ARRAY(SELECT uid FROM windows WHERE uid = ANY(%s) AND ({where})), "  # noqa: S608 - our own numbers
        f"ARRAY(SELECT nextval('windows_id_seq') FROM generate_series(1, {len(windows)})), "
        "ARRAY(SELECT c.relname::text FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid "
        "WHERE i.inhparent = 'kernel_blocks'::regclass)"
    )
    stored, serials, names = connection.exec_driver_sql(query, ([uid for uid, _, _ in windows],)).one()
    there = _days_of(names)
    there |= _made(connection, [day for day in wanted if day not in there], len(there))
    known = set(stored)
    found: list[int | None] = []
    for (uid, start, imported), number in zip(windows, serials, strict=True):
        day = day_of(start)
        own = 0 if imported or day not in there else day << SERIAL_BITS
        found.append(None if uid in known else own + number)
    return found


def _made(connection: Connection, lacking: Sequence[int], there: int) -> set[int]:
    """Days that got their partitions because windows of them came: few, and none that was cleared already."""
    made: set[int] = set()
    for day in lacking:
        if day < 1 or there + len(made) >= MOST_DAYS:
            continue
        cleared = connection.exec_driver_sql(
            f"SELECT 1 FROM rollups WHERE NOT finer AND bucket_unix_ns BETWEEN {day * DAY_NS} "  # noqa: S608 - numbers
            f"AND {(day + 1) * DAY_NS - 1} LIMIT 1"
        ).first()
        if cleared is None:
            make(connection, day)
            made.add(day)
    return made
