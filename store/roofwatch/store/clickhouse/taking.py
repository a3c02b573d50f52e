"""What a journal writes down of a segment: its number, its windows' numbers, and what came."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np
from sqlalchemy import Connection

from roofwatch.model.errors import RoofwatchError
from roofwatch.model.record import Trigger
from roofwatch.store.days import SERIAL_BITS, day_of
from roofwatch.store.identity import agent_id
from roofwatch.store.load import Hello
from roofwatch.store.outcome import DUPLICATE, STORED, Outcome, rejected
from roofwatch.store.unpack import Unpacked, UnpackedWindow

MOST_DAYS, NEAR_DAYS = 64, 3  # days that windows may make partitions of, and those about now, which may always
WINDOW_ROWS = 20  # a window without kernels is as much to remember and to send as so many of them


def raw(connection: Connection) -> sqlite3.Connection:
    """SQLite's own connection: where a statement is one of thousands, SQLAlchemy takes ten times as long as SQLite."""
    found: Any = connection.connection.driver_connection
    return cast(sqlite3.Connection, found)


def weight(work: Unpacked | Hello) -> int:
    """How large a segment is, in kernels: so that batches are bounded whatever windows are made of."""
    if isinstance(work, Hello):
        return 1
    more = (WINDOW_ROWS + len(w.window.collectives) + len(w.window.graphs) for w in work.windows)
    return 1 + work.rows + sum(more)


@dataclass(slots=True)
class Days:
    """Days that are partitions: those about now, and no more than so many others, whatever windows say they are of."""

    kept: sqlite3.Connection
    today: int
    known: set[int] = field(init=False)

    def __post_init__(self) -> None:
        self.known = {day for (day,) in self.kept.execute("SELECT day FROM days")}

    def partition(self, day: int) -> int:
        """The day of a window's number: 0, of those that have none, for one of too many."""
        if day not in self.known:
            if day <= 0 or (len(self.known) >= MOST_DAYS and abs(day - self.today) > NEAR_DAYS):
                return 0
            self.known.add(day)
            self.kept.execute("INSERT INTO days VALUES (?)", (day,))
        return day


def segment(kept: sqlite3.Connection, work: Unpacked, now_ns: int) -> Outcome:
    """Take a segment's number; what became of it."""
    key = (agent_id(work.agent, work.boot), work.sequence)
    row = (*key, work.crc32, now_ns)
    if kept.execute("INSERT INTO segments VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING", row).rowcount:
        return STORED
    stored = kept.execute("SELECT crc32 FROM segments WHERE agent_id = ? AND sequence = ?", key).fetchone()
    if stored == (work.crc32,):
        return DUPLICATE
    return rejected(
        f"segment {work.sequence} of agent {work.agent} is stored with other content: two agents share one identity"
    )


def entry(kept: sqlite3.Connection, work: Unpacked | Hello, now_ns: int, serial: int, days: Days) -> int:
    """Write down a segment or a greeting; under which number it lies."""
    numbers = _numbers(kept, work.windows, now_ns, serial, days) if isinstance(work, Unpacked) else b""
    row = (now_ns, weight(work), _payload(work), numbers)
    kept.execute("INSERT INTO entries (received_unix_ns, rows, payload, numbers) VALUES (?, ?, ?, ?)", row)
    return int(kept.execute("SELECT last_insert_rowid()").fetchone()[0])


def _numbers(
    kept: sqlite3.Connection, windows: Sequence[UnpackedWindow], now_ns: int, serial: int, days: Days
) -> bytes:
    found = []
    for i, w in enumerate(windows):
        imported = w.window.trigger is Trigger.IMPORTED
        row = (bytes.fromhex(w.window.uid), 0 if imported else now_ns)
        new = kept.execute("INSERT INTO uids VALUES (?, ?) ON CONFLICT DO NOTHING", row).rowcount
        day = 0 if imported or not new else days.partition(day_of(w.window.start_unix_ns))
        found.append((day << SERIAL_BITS) + serial + i if new else 0)
    return np.array(found, np.int64).tobytes()


def _payload(work: Unpacked | Hello) -> bytes:
    if isinstance(work, Hello):
        node = work.node
        told = [work.agent, work.boot, work.version, node.host, node.boot_id, dict(node.labels)]
        return json.dumps(told).encode()
    if work.envelope is None:
        raise RoofwatchError("a segment without its envelope cannot be kept")
    return work.envelope.SerializeToString()
