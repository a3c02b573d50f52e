"""Whose database it is: one journal's, which says so again and again; another may take it over when it no longer does.

ClickHouse knows no condition of an insert. So a store looks whether the database is still its own before each batch
and before a batch's windows, which make it seen; and who takes over begins with numbers that nobody can have given.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterable, Sequence
from typing import Any

from sqlalchemy import Connection

from roofwatch.model.errors import RoofwatchError
from roofwatch.store.clickhouse import pieces
from roofwatch.store.clickhouse.journal import Journal
from roofwatch.store.clickhouse.pieces import Numbered
from roofwatch.store.clickhouse.sink import insert
from roofwatch.store.days import SERIAL_BITS
from roofwatch.store.rollup_schema import SECOND_NS

HELD_NS = 120 * SECOND_NS  # after so long without a word another journal may take a database over
AGAIN_NS = 30 * SECOND_NS  # a word is given so often
NAMED = 1000  # windows in one statement
AHEAD = 1 << 28  # numbers left out by who takes over: more than the one before may have given and not shown
_JOURNALS = "SELECT name, place, seen_unix_ns FROM journals ORDER BY seen_unix_ns"


class LostError(RoofwatchError):
    """The database is another store's now."""


def hold(connection: Connection, journal: Journal, now_ns: int) -> None:
    """Say that this journal is the database's, and that its store runs."""
    columns: dict[str, Any] = {
        "name": [journal.name],
        "place": [f"{socket.gethostname()}:{os.path.abspath(journal.file)}"],  # noqa: PTH100 - need not be there
        "seen_unix_ns": [now_ns],
    }
    insert(connection, "journals", columns)


def renew(connection: Connection, journal: Journal, now_ns: int) -> None:
    """Make sure that the database is this journal's.

    Raises:
        LostError: another store has taken it over; nothing may be inserted any more.
    """
    found = connection.exec_driver_sql(_JOURNALS).all()
    if found and found[-1][0] != journal.name:
        raise LostError(
            f"another store has taken the database over, its journal is {found[-1][1]}: stop one of the two; what this "
            "one acknowledged stays in its journal, and is inserted once it has the database again"
        )
    if not found or now_ns - int(found[-1][2]) > AGAIN_NS:
        hold(connection, journal, now_ns)


def take_over(connection: Connection, journal: Journal, name: str, now_ns: int) -> None:
    """Begin where the database is, where the journal is new to it.

    Raises:
        RoofwatchError: another store's journal was heard of a moment ago.
    """
    found = connection.exec_driver_sql(_JOURNALS).all()
    others = [(place, seen) for own, place, seen in found if own != journal.name]
    if others and now_ns - others[-1][1] < HELD_NS:
        raise RoofwatchError(
            f"{name} is written by another store, whose journal is {others[-1][0]}: stop that one, and two minutes "
            "later this one may take its place"
        )
    if not any(own == journal.name for own, _, _ in found) or (others and others[-1][1] > _own_seen(found, journal)):
        _adopt(connection, journal, now_ns if others else 0)
    hold(connection, journal, now_ns)


def _own_seen(found: Sequence[Any], journal: Journal) -> int:
    return max((seen for own, _, seen in found if own == journal.name), default=0)


def _adopt(connection: Connection, journal: Journal, now_ns: int) -> None:
    """Numbers go on far after those in the database; which sums are whole is what it says.

    ``now_ns``: until when another journal's windows came, of which this one knows no uids; 0 where there was none.
    """
    mask = (1 << SERIAL_BITS) - 1
    known = {
        "serial": f"SELECT max(bitAnd(id, {mask})) FROM windows",  # noqa: S608 - our own numbers
        "version": (
            "SELECT max(v) FROM (SELECT max(version) AS v FROM rollups UNION ALL SELECT max(version) AS v FROM labels)"
        ),
        "build": "SELECT max(build) FROM kernel_sums",
    }
    numbers = {what: int(connection.exec_driver_sql(query).scalar() or 0) for what, query in known.items()}
    if now_ns:  # windows may be told to be of times that are still to come
        newest = connection.exec_driver_sql("SELECT max(start_unix_ns) FROM windows").scalar()
        numbers = {what: number + AHEAD for what, number in numbers.items()}
        numbers["adopted"] = max(now_ns, int(newest or 0) + 1)
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


def known_before(connection: Connection, journal: Journal, windows: Numbered) -> set[int]:
    """Of windows that a journal before this one may have had, the numbers of those that the database has."""
    adopted = journal.adopted_ns()
    old = [(number, w) for number, w in windows if w.window.start_unix_ns < adopted]
    found: set[int] = set()
    for low in range(0, len(old), NAMED):
        found |= _had(connection, old[low : low + NAMED])
    return found


def _had(connection: Connection, some: Numbered) -> set[int]:
    spans = _listed(f"({w.process_id},{w.window.start_unix_ns})" for _, w in some)
    uids = _listed(f"'{w.window.uid}'" for _, w in some)
    query = (
        "SELECT lower(hex(uid)), id FROM windows "  # noqa: S608 - numbers, and uids that are checked to be hex
        f"WHERE (process_id, start_unix_ns) IN ({spans}) AND lower(hex(uid)) IN ({uids})"
    )
    there = {uid: int(identity) for uid, identity in connection.exec_driver_sql(query)}
    return {number for number, w in some if there.get(w.window.uid, number) != number}  # its own is a repetition


def _listed(parts: Iterable[str]) -> str:
    return ",".join(dict.fromkeys(parts))
