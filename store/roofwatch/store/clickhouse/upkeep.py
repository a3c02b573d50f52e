"""What is old goes by whole days: a partition is dropped once what is coarser holds it.

As ``retention.py``, in days instead of hours: kernels stay up to a day longer than asked for.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection

from roofwatch.model.errors import RoofwatchError
from roofwatch.store.clickhouse import pieces, sums
from roofwatch.store.clickhouse.ddl import cluster_of, on, stored
from roofwatch.store.clickhouse.journal import Journal
from roofwatch.store.clickhouse.sink import insert
from roofwatch.store.config import Keep
from roofwatch.store.days import DAY_NS, SERIAL_BITS, SHARED
from roofwatch.store.retention import Dropped
from roofwatch.store.rollup_schema import DAY_S, HOUR_S, SECOND_NS

EVERY_S = 30.0
HELD_NS = 120 * SECOND_NS  # after so long without a word another journal may take a database over
_OF_KERNELS = ("kernel_facts", "kernel_blocks", "collectives", "graphs")  # dropped first…
_OF_WINDOWS = ("windows", "window_devices", "window_drops", "idle_causes")  # …and with the windows
_SUMS = ("kernel_sums", "window_sums", "drop_sums", "device_sums", "cause_sums", "rollups")


def clear(connection: Connection, journal: Journal, now_ns: int, keep: Keep) -> Dropped:
    """Drop the days that are older than that and summed up."""
    found = Dropped()
    for day in _days(journal, HOUR_S, now_ns - keep.raw_s * SECOND_NS, finer=1):
        # Dropped first and then noted: what fails in between is done again, nothing is forgotten.
        _drop(connection, _OF_KERNELS, str(day))
        found.hours_of_kernels += _coarser(connection, journal, HOUR_S, day)
    for day in _days(journal, DAY_S, now_ns - keep.hourly_s * SECOND_NS, finer=1):
        _drop(connection, (*_OF_KERNELS, *_OF_WINDOWS), str(day))
        found.days_of_hours += _coarser(connection, journal, DAY_S, day)
        _drop_sums(connection, journal, HOUR_S, day)
    for day in _days(journal, DAY_S, now_ns - keep.daily_s * SECOND_NS, finer=0):
        found.days += _drop_sums(connection, journal, DAY_S, day)
    with journal.write() as kept:
        found.segments = journal.forget(kept, now_ns)
    return found


def prune_all(connection: Connection, journal: Journal, now_ns: int, keep: Keep) -> Dropped:
    """Sum up all that is over, and drop all that is old."""
    while sums.sweep(connection, journal, now_ns):
        pass
    return clear(connection, journal, now_ns, keep)


def reference(journal: Journal, now_ns: int) -> int:
    """Now, but not long after the newest window: a clock that jumps ahead must not take everything away."""
    with journal.engine.connect() as kept:
        newest = kept.exec_driver_sql("SELECT max(bucket_unix_ns) FROM pieces WHERE grain = ?", (HOUR_S,)).scalar()
    return now_ns if newest is None else min(now_ns, int(newest) + HOUR_S * SECOND_NS)


def _days(journal: Journal, grain: int, before_ns: int, *, finer: int) -> list[int]:
    """Days that ended before a time, with such pieces, all of them summed up.

    Never day 0: its partition has every imported window, whatever its date, and those stay.
    """
    query = (
        "SELECT bucket_unix_ns / ? AS day FROM pieces WHERE grain = ? AND bucket_unix_ns >= ? AND bucket_unix_ns < ? "
        "GROUP BY day HAVING sum(finer = ? AND NOT imported) AND NOT sum(stale) ORDER BY day"
    )
    last = max(0, before_ns) // DAY_NS * DAY_NS
    with journal.engine.connect() as kept:
        return [int(day) for (day,) in kept.exec_driver_sql(query, (DAY_NS, grain, DAY_NS, last, finer))]


def _coarser(connection: Connection, journal: Journal, grain: int, day: int) -> int:
    """Say of the pieces of a day that what they are made of is gone; those of imported windows keep it."""
    low, high = day * DAY_NS, (day + 1) * DAY_NS
    stays = _imported(connection, grain, low, high)
    with journal.write() as kept:
        for bucket, process in stays:
            kept.exec_driver_sql(
                "UPDATE pieces SET imported = 1 WHERE grain = ? AND bucket_unix_ns = ? AND process_id = ?",
                (grain, bucket, process),
            )
        found = kept.exec_driver_sql(
            "SELECT grain, bucket_unix_ns, process_id FROM pieces WHERE grain = ? AND finer AND NOT imported "
            "AND bucket_unix_ns >= ? AND bucket_unix_ns < ?",
            (grain, low, high),
        ).all()
        keys = [(g, b, p) for g, b, p in found]
        version = journal.next(kept, "version")
        told = [(*row[:4], 0, row[5]) for row in pieces.states(kept, keys)]
    # Before the rows go; were they to stay after that, they would not be asked for.
    pieces.publish(connection, told, version)
    with journal.write() as kept:
        kept.exec_driver_sql(
            "UPDATE pieces SET finer = 0 WHERE grain = ? AND NOT imported "
            "AND bucket_unix_ns >= ? AND bucket_unix_ns < ?",
            (grain, low, high),
        )
    return len(keys)


def _imported(connection: Connection, grain: int, low: int, high: int) -> Sequence[Any]:
    """Pieces whose windows were all imported from files: somebody put them there, whatever their date."""
    return connection.exec_driver_sql(
        f"SELECT start_unix_ns - modulo(start_unix_ns, {grain * SECOND_NS}) AS bucket, process_id FROM windows "  # noqa: S608
        f"WHERE start_unix_ns >= {low} AND start_unix_ns < {high} GROUP BY bucket, process_id "
        f"HAVING max(id) < {SHARED}"
    ).all()


def _drop(connection: Connection, tables: Sequence[str], partition: str) -> None:
    cluster = cluster_of(connection)
    for table in tables:
        connection.exec_driver_sql(f"ALTER TABLE {stored(table, cluster)}{on(cluster)} DROP PARTITION {partition}")


def _drop_sums(connection: Connection, journal: Journal, grain: int, day: int) -> int:
    """The hours of a day, or the day: its partition, or all but what is of imported windows."""
    low, high = day * DAY_NS, (day + 1) * DAY_NS
    where = "grain = ? AND bucket_unix_ns >= ? AND bucket_unix_ns < ?"
    with journal.engine.connect() as kept:
        query = f"SELECT DISTINCT process_id FROM pieces WHERE {where} AND imported"  # noqa: S608 - our own words
        stays = kept.exec_driver_sql(query, (grain, low, high)).scalars().all()
    if not stays:
        _drop(connection, _SUMS, f"({grain}, {day})")
    else:
        cluster = cluster_of(connection)
        for table in _SUMS:
            connection.exec_driver_sql(
                f"DELETE FROM {stored(table, cluster)}{on(cluster)} WHERE grain = {grain} AND bucket_unix_ns >= {low} "  # noqa: S608
                f"AND bucket_unix_ns < {high} AND process_id NOT IN ({', '.join(map(str, stays))})"
            )
    with journal.write() as kept:
        gone = kept.exec_driver_sql(f"DELETE FROM pieces WHERE {where} AND NOT imported", (grain, low, high))  # noqa: S608
        return int(gone.rowcount)


def hold(connection: Connection, journal: Journal, now_ns: int) -> None:
    """Say that this journal is the database's, and that its store runs."""
    columns: dict[str, Any] = {
        "name": [journal.name],
        "place": [f"{socket.gethostname()}:{os.path.abspath(journal.file)}"],  # noqa: PTH100 - need not be there
        "seen_unix_ns": [now_ns],
    }
    insert(connection, "journals", columns)


def take_over(connection: Connection, journal: Journal, name: str, now_ns: int) -> None:
    """Begin where the database is, where the journal is new to it.

    Raises:
        RoofwatchError: another store's journal was heard of a moment ago.
    """
    found = connection.exec_driver_sql("SELECT name, place, seen_unix_ns FROM journals ORDER BY seen_unix_ns").all()
    others = [(place, seen) for own, place, seen in found if own != journal.name]
    if others and now_ns - others[-1][1] < HELD_NS:
        raise RoofwatchError(
            f"{name} is written by another store, whose journal is {others[-1][0]}: stop that one, and two minutes "
            "later this one may take its place"
        )
    if not any(own == journal.name for own, _, _ in found) or (others and others[-1][1] > _own_seen(found, journal)):
        _adopt(connection, journal)
    hold(connection, journal, now_ns)


def _own_seen(found: Sequence[Any], journal: Journal) -> int:
    return max((seen for own, _, seen in found if own == journal.name), default=0)


def _adopt(connection: Connection, journal: Journal) -> None:
    """Numbers go on after those in the database; which sums are whole is what it says."""
    mask = (1 << SERIAL_BITS) - 1
    known = {
        "serial": f"SELECT max(bitAnd(id, {mask})) FROM windows",  # noqa: S608 - our own numbers
        "version": (
            "SELECT max(v) FROM (SELECT max(version) AS v FROM rollups UNION ALL SELECT max(version) AS v FROM labels)"
        ),
        "build": "SELECT max(build) FROM kernel_sums",
    }
    numbers = {what: int(connection.exec_driver_sql(query).scalar() or 0) for what, query in known.items()}
    rows = connection.exec_driver_sql(f"SELECT {', '.join(pieces.NAMES)} FROM rollups").all()  # noqa: S608 - our words
    with journal.write() as kept:
        for what, number in numbers.items():
            kept.exec_driver_sql(
                "INSERT INTO meta VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET value = max(value, excluded.value)",
                (what, number),
            )
        for row in rows:
            kept.exec_driver_sql(
                f"INSERT INTO pieces ({', '.join(pieces.NAMES)}) VALUES (?, ?, ?, ?, ?, ?) "  # noqa: S608 - our words
                "ON CONFLICT DO UPDATE SET stale = excluded.stale, finer = excluded.finer, build = excluded.build",
                tuple(int(value) for value in row),
            )
