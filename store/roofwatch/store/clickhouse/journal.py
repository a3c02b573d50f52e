"""What a store has acknowledged and ClickHouse does not have yet, in a SQLite file beside the store.

It answers what is a repetition, gives windows their numbers, and says which sums lack windows. One store at a time
holds it. Everything but segments under way is small, and bounded by age.
"""

from __future__ import annotations

import fcntl
import json
import os
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import numpy as np
from sqlalchemy import Connection, Engine, event
from sqlalchemy.engine import URL
from sqlalchemy.exc import DBAPIError

from roofwatch.model.errors import RoofwatchError
from roofwatch.model.record import Node
from roofwatch.proto.v1 import roofwatch_pb2 as pb
from roofwatch.store import sqlite_engine
from roofwatch.store.clickhouse.pieces import PIECES_DDL, Key
from roofwatch.store.clickhouse.taking import Days, entry, raw, segment
from roofwatch.store.days import day_of
from roofwatch.store.given_up import GivenUp
from roofwatch.store.load import Hello
from roofwatch.store.outcome import STORED, Outcome
from roofwatch.store.rollup_schema import DAY_S, SECOND_NS
from roofwatch.store.unpack import Unpacked

KEEP_NS = 7 * DAY_S * SECOND_NS  # how long numbers of segments and uids of live windows are known: a spool keeps less
MOST_ID = (1 << 63) - 1
FORGET_MOST = 20_000  # ids forgotten in one transaction
FORMAT = 2  # of the journal: who would misread it must not open it
_META = "CREATE TABLE IF NOT EXISTS meta (key TEXT PRIMARY KEY, value) WITHOUT ROWID"
_DDL = (
    """CREATE TABLE IF NOT EXISTS segments (agent_id INTEGER, sequence INTEGER, crc32 INTEGER,
    received_unix_ns INTEGER, PRIMARY KEY (agent_id, sequence)) WITHOUT ROWID""",
    "CREATE INDEX IF NOT EXISTS segments_received ON segments (received_unix_ns)",
    # Of windows imported from files it is known for good: whoever imports a file again, does it much later.
    "CREATE TABLE IF NOT EXISTS uids (uid BLOB PRIMARY KEY, received_unix_ns INTEGER) WITHOUT ROWID",
    "CREATE INDEX IF NOT EXISTS uids_received ON uids (received_unix_ns) WHERE received_unix_ns > 0",
    """CREATE TABLE IF NOT EXISTS entries (id INTEGER PRIMARY KEY AUTOINCREMENT, batch INTEGER,
    received_unix_ns INTEGER, rows INTEGER, payload BLOB, numbers BLOB)""",
    # A batch is told by its last entry: to write its number into each would write all that came once more.
    "CREATE TABLE IF NOT EXISTS sealed (batch INTEGER PRIMARY KEY, upto INTEGER)",
    # Sums with late windows, from when they are made until their batch is done.
    """CREATE TABLE IF NOT EXISTS staged (batch INTEGER, grain INTEGER, bucket_unix_ns INTEGER, process_id INTEGER,
    sums TEXT, PRIMARY KEY (batch, grain, bucket_unix_ns, process_id)) WITHOUT ROWID""",
    "CREATE TABLE IF NOT EXISTS days (day INTEGER PRIMARY KEY)",  # that are partitions of windows
    *PIECES_DDL,
)


@dataclass(frozen=True, slots=True)
class Entry:
    """A segment, or a greeting where it has no numbers; a window whose number is 0 was stored before."""

    id: int
    received_unix_ns: int
    numbers: tuple[int, ...]
    older: bool = False  # in a batch of a store before this version, whose kernels were one insert


@dataclass(slots=True)
class Journal:
    """An open journal."""

    engine: Engine
    lock: IO[bytes]
    file: Path
    size: int = 0  # bytes of payloads that are not in ClickHouse yet
    meta: dict[str, Any] = field(default_factory=dict)
    broken: GivenUp = field(default_factory=GivenUp)  # pieces that cannot be summed up
    stale: set[Key] = field(default_factory=set)  # pieces that ClickHouse was told to be, since they were summed up

    @property
    def name(self) -> str:
        """What tells it from every other journal."""
        return str(self.meta["name"])

    @contextmanager
    def write(self) -> Iterator[Connection]:
        """A transaction; only numbers and short rows inside, since acknowledgements wait for it."""
        with self.engine.connect() as connection, connection.execution_options(roofwatch_write=True).begin():
            try:
                yield connection
            except sqlite3.Error as error:  # of ``raw``
                raise DBAPIError.instance("", None, error, sqlite3.Error, dialect=connection.dialect) from error

    def next(self, connection: Connection, what: str, count: int = 1) -> int:
        """The first of so many numbers that were never given before."""
        found = connection.exec_driver_sql(
            "INSERT INTO meta VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET value = value + ? RETURNING value",
            (what, count, count),
        ).scalar_one()
        return int(found) - count + 1

    def take(
        self, connection: Connection, work: Sequence[Unpacked | Hello], now_ns: int
    ) -> tuple[list[Outcome], list[int | None]]:
        """Write down what is new; what became of each, and under which number it lies."""
        kept, outcomes, entries = raw(connection), [], list[int | None]()
        days = Days(kept, day_of(now_ns))
        windows = sum(len(one.windows) for one in work if isinstance(one, Unpacked))
        serial = self.next(connection, "serial", windows) if windows else 0
        for one in work:
            outcome = STORED if isinstance(one, Hello) else segment(kept, one, now_ns)
            outcomes.append(outcome)
            entries.append(entry(kept, one, now_ns, serial, days) if outcome is STORED else None)
            serial += 0 if isinstance(one, Hello) else len(one.windows)
        return outcomes, entries

    def adopted_ns(self) -> int:
        """Before when windows may be known to another journal that had this database; 0 where there was none."""
        with self.engine.connect() as connection:
            found = connection.exec_driver_sql("SELECT value FROM meta WHERE key = 'adopted'").scalar()
        return int(found or 0)

    def last(self) -> int:
        """The newest entry, 0 where none waits."""
        with self.engine.connect() as connection:
            return int(connection.exec_driver_sql("SELECT coalesce(max(id), 0) FROM entries").scalar_one())

    def sealed(self, connection: Connection, rows: int, last: int | None = None) -> tuple[int, list[Entry]] | None:
        """The batch that is not done; else a new one of what waits up to entry ``last``, of so many rows.

        A sealed batch never changes.
        """
        first = connection.exec_driver_sql("SELECT batch, upto FROM sealed ORDER BY batch").first()
        known = (int(first[0]), int(first[1])) if first is not None else self._seal(connection, rows, last)
        if known is None:
            return None
        number, upto = known
        found = raw(connection).execute(
            "SELECT id, received_unix_ns, numbers, batch IS NOT NULL FROM entries WHERE id <= ? ORDER BY id", (upto,)
        )
        return int(number), [
            Entry(identity, received, tuple(np.frombuffer(numbers, np.int64).tolist()), bool(older))
            for identity, received, numbers, older in found
        ]

    def _seal(self, connection: Connection, rows: int, last: int | None) -> tuple[int, int] | None:
        waiting = connection.exec_driver_sql(
            "SELECT id, rows FROM entries WHERE id <= ? ORDER BY id LIMIT 10000", (MOST_ID if last is None else last,)
        ).all()
        if not waiting:
            return None
        total, upto = 0, 0
        for identity, count in waiting:
            total, upto = total + count, int(identity)
            if total >= rows:
                break
        number = self.next(connection, "batch")
        connection.exec_driver_sql("INSERT INTO sealed VALUES (?, ?)", (number, upto))
        return number, upto

    def payload(self, entry: int) -> bytes:
        """What was written down."""
        with self.engine.connect() as connection:
            found: bytes = raw(connection).execute("SELECT payload FROM entries WHERE id = ?", (entry,)).fetchone()[0]
        return found

    def done(self, connection: Connection, batch: int) -> None:
        """A batch is in ClickHouse."""
        upto = "(SELECT upto FROM sealed WHERE batch = ?)"
        connection.exec_driver_sql(f"DELETE FROM entries WHERE id <= {upto}", (batch,))  # noqa: S608 - our own words
        for table in ("sealed", "staged"):
            connection.exec_driver_sql(f"DELETE FROM {table} WHERE batch = ?", (batch,))  # noqa: S608 - our own names

    def staged(self, connection: Connection, batch: int, key: tuple[int, int, int]) -> dict[str, Any] | None:
        """The sums of a piece that a batch was about to write; None where it had not come to it."""
        found = connection.exec_driver_sql(
            "SELECT sums FROM staged WHERE batch = ? AND grain = ? AND bucket_unix_ns = ? AND process_id = ?",
            (batch, *key),
        ).scalar()
        told: dict[str, Any] | None = None if found is None else json.loads(found)
        return told

    def stage(self, connection: Connection, batch: int, key: tuple[int, int, int], sums: dict[str, Any]) -> None:
        """Write down what is about to be written."""
        connection.exec_driver_sql("INSERT INTO staged VALUES (?, ?, ?, ?, ?)", (batch, *key, json.dumps(sums)))

    def waiting(self) -> tuple[int, int, int, int | None]:
        """Entries, their kernels, their bytes, and when the oldest of them came."""
        with self.engine.connect() as connection:
            found = connection.exec_driver_sql(
                "SELECT count(*), coalesce(sum(rows), 0), coalesce(sum(length(payload)), 0), min(received_unix_ns) "
                "FROM entries"
            ).one()
        return found[0], found[1], found[2], found[3]

    def forget(self, connection: Connection, now_ns: int) -> int:
        """Ids that no agent sends again: counted from the newest, so that a clock that jumps takes nothing away."""
        gone = 0
        for table, key in (("segments", "agent_id, sequence"), ("uids", "uid")):
            # By its index: a walk over all ids would hold acknowledgements up.
            latest = f"SELECT max(received_unix_ns) FROM {table} WHERE received_unix_ns > 0"  # noqa: S608 - our own names
            newest = connection.exec_driver_sql(latest).scalar() or 0
            before = min(int(newest), now_ns) - KEEP_NS
            gone += connection.exec_driver_sql(
                f"DELETE FROM {table} WHERE ({key}) IN (SELECT {key} FROM {table} "  # noqa: S608 - our own names
                f"WHERE received_unix_ns > 0 AND received_unix_ns < ? LIMIT {FORGET_MOST})",
                (before,),
            ).rowcount
        return gone

    def close(self) -> None:
        """Let another store hold it."""
        sqlite_engine.truncate_log(self.engine)
        self.engine.dispose()
        self.lock.close()


def hello_of(payload: bytes) -> Hello:
    """A greeting as it was written down."""
    agent, boot, version, host, boot_id, labels = json.loads(payload)
    return Hello(agent, boot, version, Node(host, boot_id, labels))


def envelope_of(payload: bytes) -> pb.SegmentEnvelope:
    """A segment as it was written down."""
    return pb.SegmentEnvelope.FromString(payload)


def _settings(connection: sqlite3.Connection, _record: object) -> None:
    connection.execute("PRAGMA secure_delete=FAST")  # zeros over all that was inserted would be written twice more


def open_file(file: Path) -> Journal:
    """Open a journal, or make an empty one.

    Raises:
        RoofwatchError: another store holds it, or a newer version wrote it.
        OSError: it cannot be opened or made.
    """
    file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    lock = file.with_name(f"{file.name}.lock").open("ab")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        lock.close()
        raise RoofwatchError(
            f"another store holds the journal {file}: give each store its own with --journal, or stop that one"
        ) from error
    made = sqlite_engine.engine(URL.create("sqlite", database=str(file)))
    event.listen(made, "connect", _settings)
    sqlite_engine.log_ahead(made)
    journal = Journal(made, lock, file)
    try:
        with journal.write() as connection:
            journal.meta = _made(connection, file)
        journal.size = journal.waiting()[2]
    except BaseException:
        made.dispose()
        lock.close()
        raise
    return journal


def _made(connection: Connection, file: Path) -> dict[str, Any]:
    """Make what is missing of a journal, and bring an older one to this format; what it says of itself."""
    connection.exec_driver_sql(_META)
    known = connection.exec_driver_sql("SELECT value FROM meta WHERE key = 'format'").scalar()
    if known is not None and int(known) > FORMAT:
        raise RoofwatchError(
            f"the journal {file} was written by a newer version of Roofwatch (format {known}, this one knows "
            f"{FORMAT}): upgrade Roofwatch"
        )
    for text in _DDL:
        connection.exec_driver_sql(text)
    if connection.exec_driver_sql("SELECT 1 FROM sqlite_master WHERE name = 'entries_batch'").first():
        # Of a store before format 2, which wrote a batch's number into each entry, and had this index to find them.
        connection.exec_driver_sql(
            "INSERT INTO sealed SELECT batch, max(id) FROM entries WHERE batch IS NOT NULL GROUP BY batch "
            "ON CONFLICT DO NOTHING"
        )
        connection.exec_driver_sql("DROP INDEX entries_batch")
    connection.exec_driver_sql("INSERT INTO meta VALUES ('name', ?) ON CONFLICT DO NOTHING", (os.urandom(8).hex(),))
    connection.exec_driver_sql("INSERT OR REPLACE INTO meta VALUES ('format', ?)", (FORMAT,))
    return {key: value for key, value in connection.exec_driver_sql("SELECT key, value FROM meta")}  # noqa: C416 - rows
