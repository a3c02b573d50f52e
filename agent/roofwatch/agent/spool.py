"""Finished segments on disk until the store has committed them: SQLite, one writer, bounded in bytes and age."""

from __future__ import annotations

import os
import sqlite3
import time
import uuid
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from google.protobuf.message import DecodeError

from roofwatch.agent import counters
from roofwatch.agent.listener import lock_file
from roofwatch.model.errors import RoofwatchError
from roofwatch.proto import codec
from roofwatch.proto.v1 import roofwatch_pb2 as pb

SCHEMA = 1
JOURNAL_LIMIT = 4 << 20  # bytes the write-ahead log keeps after a checkpoint
_TABLES = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE segment (
  row INTEGER PRIMARY KEY AUTOINCREMENT,
  boot TEXT NOT NULL,
  sequence INTEGER NOT NULL,
  created_unix_ns INTEGER NOT NULL,
  windows INTEGER NOT NULL,
  size INTEGER NOT NULL,
  envelope BLOB NOT NULL,
  UNIQUE (boot, sequence)
);
"""
# Sealed windows that were given up and that no sealed segment tells yet: they are told even if the agent is killed now.
# Not part of the version: an older agent leaves it alone.
_UNTOLD = "CREATE TABLE IF NOT EXISTS untold (reason TEXT PRIMARY KEY, windows INTEGER NOT NULL) WITHOUT ROWID"
_ADD = "INSERT INTO untold VALUES (?, ?) ON CONFLICT (reason) DO UPDATE SET windows = windows + excluded.windows"
_INSERT = "INSERT INTO segment (boot, sequence, created_unix_ns, windows, size, envelope) VALUES (?, ?, ?, ?, ?, ?)"


class SpoolError(RoofwatchError):
    """The spool cannot be used."""


@dataclass(frozen=True, slots=True)
class Spooled:
    """A segment as it lies in the spool: a position that only grows, and the envelope's bytes."""

    row: int
    windows: int
    envelope: bytes


class Spool:
    """The segments of one agent. One process at a time; not thread-safe; each call is one short transaction."""

    def __init__(self, folder: Path, most_bytes: int, most_age_s: float, count: counters.Counters) -> None:
        """Open or create.

        Raises:
            SpoolError: the folder cannot be written, another agent uses it, or a newer version made the spool.
        """
        self.path = folder / "spool.db"
        self._most_bytes = most_bytes
        self._most_age_ns = int(most_age_s * 1e9)
        self._counters = count
        self._lock = _lock(folder)
        try:
            self._db = _open(self.path)
        except SpoolError:
            os.close(self._lock)
            raise
        self.agent = self._kept("agent", lambda: uuid.uuid4().hex)
        self.boot = uuid.uuid4().hex
        self._sequence = 0
        self.segments, self.windows, self.bytes = self._totals()
        count.unreported.update(dict(self._db.execute("SELECT reason, windows FROM untold").fetchall()))

    def limit(self, most_bytes: int, most_age_s: float) -> None:
        """Other bounds, from the next segment and the next upkeep on."""
        self._most_bytes, self._most_age_ns = most_bytes, int(most_age_s * 1e9)

    def remember(self, key: str, value: Callable[[], str]) -> str:
        """A value made once and kept over restarts."""
        return self._kept(key, value)

    def append(
        self,
        seal: Callable[[str, str, int], pb.SegmentEnvelope],
        in_flight: Collection[int] = (),
        told: Collection[str] = (),
    ) -> bool:
        """Seal a segment under the next number and keep it; older ones make room. False where it was dropped, counted.

        ``seal`` takes agent, boot and sequence; ``told`` are the reasons whose drops the segment tells. A number whose
        write failed is not used again.
        """
        self._sequence += 1
        envelope = seal(self.agent, self.boot, self._sequence)
        blob = envelope.SerializeToString()
        if len(blob) > self._most_bytes:
            self._counters.drop(counters.SPOOL_BYTES, envelope.windows)
            return False
        row = (self.boot, self._sequence, time.time_ns(), envelope.windows, len(blob), blob)
        try:
            with self._transaction():
                self._db.executemany("DELETE FROM untold WHERE reason = ?", [(reason,) for reason in told])
                pushed_out, untold = self._give_up(self._room_for(len(blob), in_flight), counters.SPOOL_BYTES)
                self._db.execute(_INSERT, row)
        except sqlite3.Error:
            self._counters.drop(counters.SPOOL_ERROR, envelope.windows)
            return False
        self._gave_up(counters.SPOOL_BYTES, pushed_out, untold)
        self.segments, self.windows, self.bytes = (
            self.segments + 1,
            self.windows + envelope.windows,
            self.bytes + len(blob),
        )
        return True

    def after(self, row: int) -> Spooled | None:
        """The first segment behind a position; 0 is before all."""
        found = self._db.execute(
            "SELECT row, windows, envelope FROM segment WHERE row > ? ORDER BY row LIMIT 1", (row,)
        ).fetchone()
        return None if found is None else Spooled(*found)

    def delete(self, row: int) -> int:
        """Forget a segment that is stored; the windows it held, 0 where it is gone already."""
        with self._transaction():
            return sum(windows for windows, _ in self._remove([row]))

    def reject(self, row: int) -> None:
        """Give a segment up that the store will never take, and count its windows."""
        with self._transaction():
            windows, untold = self._give_up([row], counters.STORE_REJECTED)
        self._gave_up(counters.STORE_REJECTED, windows, untold)

    def expire(self, in_flight: Collection[int] = ()) -> int:
        """Drop what is too old, count it; the number of windows. Also folds the log back into the file."""
        oldest = time.time_ns() - self._most_age_ns
        with self._transaction():
            found = self._db.execute("SELECT row FROM segment WHERE created_unix_ns < ?", (oldest,)).fetchall()
            windows, untold = self._give_up([row for (row,) in found if row not in in_flight], counters.SPOOL_AGE)
        self._gave_up(counters.SPOOL_AGE, windows, untold)
        if not self.segments:
            self._db.executescript("PRAGMA incremental_vacuum;")  # execute() steps once: one page
        self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        return windows

    def close(self) -> None:
        """Close and unlock."""
        with suppress(sqlite3.Error):
            self._db.close()
        os.close(self._lock)

    def _kept(self, key: str, value: Callable[[], str]) -> str:
        with self._db:
            self._db.execute("INSERT OR IGNORE INTO meta VALUES (?, ?)", (key, value()))
        return str(self._db.execute("SELECT value FROM meta WHERE key = ?", (key,)).fetchone()[0])

    def _totals(self) -> tuple[int, int, int]:
        count, windows, size = self._db.execute("SELECT count(*), sum(windows), sum(size) FROM segment").fetchone()
        return count, windows or 0, size or 0

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        """What fails has removed nothing, also not from the totals."""
        try:
            with self._db:
                self._db.execute("BEGIN IMMEDIATE")
                yield
        except sqlite3.Error:
            self._recount()
            raise

    def _recount(self) -> None:
        with suppress(sqlite3.Error):
            self.segments, self.windows, self.bytes = self._totals()

    def _room_for(self, size: int, in_flight: Collection[int]) -> list[int]:
        """Rows that have to go before so many bytes can come."""
        excess = self.bytes + size - self._most_bytes
        rows: list[int] = []
        if excess <= 0:
            return rows
        for row, held in self._db.execute("SELECT row, size FROM segment ORDER BY row").fetchall():
            if row in in_flight:
                continue  # the store may be committing it: it is neither lost nor kept yet
            rows.append(row)
            excess -= held
            if excess <= 0:
                break
        return rows

    def _give_up(self, rows: list[int], reason: str) -> tuple[int, Mapping[str, int]]:
        """Within a transaction: remove them unsent, and note it; how many windows, and the drops they would tell."""
        windows, untold = 0, Counter[str]()
        for held, envelope in self._remove(rows):
            windows += held
            with suppress(codec.WireError, DecodeError):
                untold.update(codec.unseal(pb.SegmentEnvelope.FromString(envelope)).agent_drops)
        self._db.executemany(_ADD, list((untold + Counter({reason: windows})).items()))
        return windows, untold

    def _gave_up(self, reason: str, windows: int, untold: Mapping[str, int]) -> None:
        """The transaction is over: count."""
        if windows:
            self._counters.drop(reason, windows)
        self._counters.unreported.update(untold)

    def _remove(self, rows: list[int]) -> list[tuple[int, bytes]]:
        """Windows and envelope of those that were there."""
        removed = []
        for row in rows:
            command = "DELETE FROM segment WHERE row = ? RETURNING windows, size, envelope"
            found = self._db.execute(command, (row,)).fetchone()
            if found is None:
                continue
            windows, size, envelope = found
            removed.append((windows, envelope))
            self.segments, self.windows, self.bytes = self.segments - 1, self.windows - windows, self.bytes - size
        return removed


def _lock(folder: Path) -> int:
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        lock = lock_file(folder / "spool.lock")
    except OSError as error:
        why = os.strerror(error.errno) if error.errno else str(error)
        raise SpoolError(f"cannot use the state folder {folder}: {why}; choose another with --state") from error
    if lock is None:
        raise SpoolError(f"another agent uses the state folder {folder}; stop it, or choose another with --state")
    return lock


def _open(path: Path) -> sqlite3.Connection:
    try:
        database = sqlite3.connect(path, timeout=5.0, isolation_level=None)
        version = database.execute("PRAGMA user_version").fetchone()[0]
        if version > SCHEMA:
            database.close()
            raise SpoolError(
                f"the spool {path} was made by a newer agent (schema {version}, this one knows {SCHEMA}); "
                "upgrade, or choose another folder with --state"
            )
        if version == 0:
            database.execute("PRAGMA auto_vacuum = INCREMENTAL")
        database.execute("PRAGMA journal_mode = WAL").fetchall()
        database.execute("PRAGMA synchronous = FULL")  # a sealed window survives power loss
        database.execute(f"PRAGMA journal_size_limit = {JOURNAL_LIMIT}").fetchall()
        if version == 0:
            database.executescript(f"BEGIN IMMEDIATE; {_TABLES} PRAGMA user_version = {SCHEMA}; COMMIT;")
        database.execute(_UNTOLD)
    except sqlite3.Error as error:
        raise SpoolError(
            f"cannot use the spool {path}: {error}; move it away, or choose another folder with --state"
        ) from error
    return database
