"""What is old goes by whole days: a partition is dropped once what is coarser holds it.

As ``retention.py``, in days instead of hours: kernels stay up to a day longer than asked for.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection

from roofwatch.store.clickhouse import pieces, sums
from roofwatch.store.clickhouse.ddl import cluster_of, on, stored
from roofwatch.store.clickhouse.journal import Journal
from roofwatch.store.clickhouse.tables import PACKED
from roofwatch.store.config import Keep
from roofwatch.store.days import DAY_NS, SHARED
from roofwatch.store.retention import Dropped
from roofwatch.store.rollup_schema import DAY_S, HOUR_S, SECOND_NS
from roofwatch.store.window_schema import OF_KERNELS, OF_WINDOWS

EVERY_S = 30.0
_OF_KERNELS = ("kernel_facts", *(table.name for table in OF_KERNELS))  # dropped first…
_OF_WINDOWS = ("windows", *(table.name for table in OF_WINDOWS))  # …and with the windows
_SUMS = ("kernel_sums", "window_sums", "drop_sums", "device_sums", "cause_sums", PACKED, "rollups")


def clear(connection: Connection, journal: Journal, now_ns: int, keep: Keep) -> Dropped:
    """Drop the days that are older than that and summed up."""
    found = Dropped()
    for day in _days(journal, HOUR_S, now_ns - keep.raw_s * SECOND_NS, finer=1):
        # Dropped first and then noted: what fails in between is done again, nothing is forgotten.
        _drop(connection, _OF_KERNELS, str(day))
        found.hours_of_kernels += _coarser(connection, journal, HOUR_S, day)
    for day in _days(journal, DAY_S, now_ns - keep.hourly_s * SECOND_NS, finer=1):
        _drop(connection, (*_OF_KERNELS, *_OF_WINDOWS), str(day))
        with journal.write() as kept:
            kept.exec_driver_sql("DELETE FROM days WHERE day = ?", (day,))
        found.days_of_hours += _coarser(connection, journal, DAY_S, day)
        _drop_sums(connection, journal, HOUR_S, day)
    for day in _days(journal, DAY_S, now_ns - keep.daily_s * SECOND_NS, finer=0):
        found.days += _drop_sums(connection, journal, DAY_S, day)
    if found.days:  # else a process would be said to have taken no windows, because they are gone
        where = f"seen_unix_ns < {now_ns - keep.daily_s * SECOND_NS}"
        connection.exec_driver_sql(deleting("process_states", cluster_of(connection), where))
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


def dropping(table: str, cluster: str, partition: str) -> str:
    """The statement that drops a partition of a table, on all servers of a cluster where it is one."""
    return f"ALTER TABLE {stored(table, cluster)}{on(cluster)} DROP PARTITION {partition}"


def deleting(table: str, cluster: str, where: str) -> str:
    """The statement that deletes rows of a table, on all servers of a cluster where it is one."""
    return f"DELETE FROM {stored(table, cluster)}{on(cluster)} WHERE {where}"  # noqa: S608 - our own words


def _drop(connection: Connection, tables: Sequence[str], partition: str) -> None:
    for table in tables:
        connection.exec_driver_sql(dropping(table, cluster_of(connection), partition))


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
        but = f"process_id NOT IN ({', '.join(map(str, stays))})"
        rows = f"grain = {grain} AND bucket_unix_ns >= {low} AND bucket_unix_ns < {high} AND {but}"
        for table in _SUMS:
            connection.exec_driver_sql(deleting(table, cluster_of(connection), rows))
    with journal.write() as kept:
        gone = kept.exec_driver_sql(f"DELETE FROM pieces WHERE {where} AND NOT imported", (grain, low, high))  # noqa: S608
        return int(gone.rowcount)
