"""Which hours and days of processes are summed up: kept in the journal, and told to ClickHouse for those who ask.

ClickHouse hears that a sum lacks windows before it gets them, and that it holds all of them after it does: so what it
says is never more than what is there.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container, Iterable, Sequence
from typing import Any

from sqlalchemy import Connection

from roofwatch.store.clickhouse.sink import insert
from roofwatch.store.given_up import GivenUp, Piece
from roofwatch.store.rollup_schema import DAY_S, HOUR_S, SECOND_NS, bucket_of
from roofwatch.store.unpack import UnpackedWindow

PIECES_DDL = (
    """CREATE TABLE IF NOT EXISTS pieces (grain INTEGER, bucket_unix_ns INTEGER, process_id INTEGER, stale INTEGER,
    finer INTEGER, build INTEGER DEFAULT 0, imported INTEGER DEFAULT 0,
    PRIMARY KEY (grain, bucket_unix_ns, process_id)) WITHOUT ROWID""",
    "CREATE INDEX IF NOT EXISTS pieces_due ON pieces (stale, grain, finer, bucket_unix_ns)",
)
_DAY_NS = DAY_S * SECOND_NS
_WHOLE = (
    "AND NOT EXISTS (SELECT 1 FROM pieces h WHERE h.stale AND h.grain = 3600 AND h.process_id = p.process_id "  # noqa: S608
    f"AND h.bucket_unix_ns BETWEEN p.bucket_unix_ns AND p.bucket_unix_ns + {_DAY_NS - 1})"
)
Key = Piece
Numbered = Sequence[tuple[int, UnpackedWindow]]
Late = dict[Key, list[tuple[int, UnpackedWindow]]]
NAMES = ("grain", "bucket_unix_ns", "process_id", "stale", "finer", "build")


def mark(connection: Connection, windows: Numbered, told: Container[Key] = ()) -> tuple[list[Key], Late]:
    """Make the pieces of windows stale; those of which nothing finer is kept stay, and get the windows added.

    ``told`` are pieces that are stale already and known to be: of those there is nothing to write, nor to tell.
    """
    stale: list[Key] = []
    late: Late = {}
    left = list(windows)
    for grain in (DAY_S, HOUR_S):  # where only a day's sums are kept there is no hour to make stale
        of: Late = defaultdict(list)
        for number, w in left:
            of[grain, bucket_of(w.window.start_unix_ns, grain), w.process_id].append((number, w))
        left = []
        for key, own in of.items():
            if key in told:
                left += own
                continue
            finer = connection.exec_driver_sql(
                "INSERT INTO pieces (grain, bucket_unix_ns, process_id, stale, finer) VALUES (?, ?, ?, 1, 1) "
                "ON CONFLICT DO UPDATE SET stale = stale OR finer RETURNING finer",
                key,
            ).scalar_one()
            if finer:
                stale.append(key)
                left += own
            else:
                late[key] = own
    return stale, late


def due(connection: Connection, until_ns: int, most: int, broken: GivenUp) -> list[Key]:
    """Stale pieces of one length and beginning that ended before a time: hours first, then days of summed up hours.

    Without those that are ``broken``.
    """
    for grain, more in ((HOUR_S, ""), (DAY_S, _WHOLE)):
        found = connection.exec_driver_sql(
            "SELECT grain, bucket_unix_ns, process_id FROM pieces p WHERE stale = 1 AND grain = ? AND finer = 1 "  # noqa: S608
            f"AND bucket_unix_ns BETWEEN ? AND ? {more} ORDER BY bucket_unix_ns LIMIT ?",
            (grain, broken.before_ns, until_ns - grain * SECOND_NS, most + len(broken)),
        ).all()
        whole = [key for row in found if (key := (row[0], row[1], row[2])) not in broken]
        if whole:
            return [key for key in whole if key[1] == whole[0][1]][:most]
    return []


def states(connection: Connection, keys: Iterable[Key]) -> list[tuple[Any, ...]]:
    """Rows of pieces, in the order of ``NAMES``."""
    query = f"SELECT {', '.join(NAMES)} FROM pieces WHERE grain = ? AND bucket_unix_ns = ? AND process_id = ?"  # noqa: S608
    return [tuple(connection.exec_driver_sql(query, key).one()) for key in keys]


def built(connection: Connection, keys: Iterable[Key], number: int) -> None:
    """Pieces are summed up, by that attempt."""
    for key in keys:
        connection.exec_driver_sql(
            "UPDATE pieces SET stale = 0, build = ? WHERE grain = ? AND bucket_unix_ns = ? AND process_id = ?",
            (number, *key),
        )


def publish(connection: Connection, rows: Sequence[Sequence[Any]], version: int) -> None:
    """Tell ClickHouse."""
    if rows:
        columns: dict[str, Any] = dict(zip(NAMES, map(list, zip(*rows, strict=True)), strict=True))
        insert(connection, "rollups", {**columns, "version": [version] * len(rows)})
