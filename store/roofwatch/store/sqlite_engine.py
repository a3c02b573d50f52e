"""SQLite: settings of a connection, where transactions begin, and the write-ahead log."""

from __future__ import annotations

import contextlib
import logging
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.engine import URL

from roofwatch.model.errors import RoofwatchError, UnreachableError, UsageError

BUSY_S = 30.0  # how long a writer waits for another one, e.g. an import beside a running store
WAL_LIMIT_BYTES = 64 << 20  # the log is cut back to this once no reader needs it
WAL_LONG_BYTES = 256 << 20  # so long because readers overlap all the time: answers wait until those before are done
CUT_WITHIN_S, CUT_AGAIN_S = 0.05, 1.0  # how long the writer waits for readers to leave, and for its next try
CLOSED_S = 35.0  # how long answers wait at most: longer than any of them may read
APART_S, APART_MOST_S = 60.0, 3600.0  # where that did not help, until the next time; twice as long each time
STEPS = 20_000  # of SQLite's machine between two looks at the clock: below a millisecond
_log = logging.getLogger(__name__)


def check(url: URL, given: str) -> URL:
    """A URL that names a file.

    Raises:
        UsageError: it names none.
    """
    if not url.database or url.database == ":memory:":
        raise UsageError(f"'{given}' names no file: give sqlite:///FILE")
    return url


def prepare(url: URL, *, create: bool) -> None:
    """Make the file's folder; without ``create`` the file must be there.

    Raises:
        UnreachableError: it is not.
        OSError: the folder cannot be made.
    """
    file = Path(url.database or "")
    if create:
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    elif not file.exists():
        raise UnreachableError(f"there is no database at {file}: start 'roofwatch store serve', or check the URL")


def engine(url: URL) -> Engine:
    """An engine whose writers hold the write lock from the beginning of their transaction."""
    made = create_engine(url, connect_args={"timeout": BUSY_S, "check_same_thread": False}, pool_size=4)

    @event.listens_for(made, "connect")
    def _settings(connection: sqlite3.Connection, _record: object) -> None:
        connection.isolation_level = None  # transactions begin where _begin says, not where the driver guesses
        for pragma in (
            "synchronous=FULL",  # an acknowledged segment survives a power cut
            f"journal_size_limit={WAL_LIMIT_BYTES}",
            "cache_size=-65536",
            "temp_store=MEMORY",
        ):
            connection.execute(f"PRAGMA {pragma}")

    @event.listens_for(made, "begin")
    def _begin(connection: Connection) -> None:
        # A reader that turns writer gets "busy" at once, however long the timeout: writers say so first.
        writes = connection.get_execution_options().get("roofwatch_write", False)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")

    return made


def log_ahead(made: Engine) -> None:
    """Let readers and the writer work beside each other. The file remembers it, so only a file that is ours gets it.

    Raises:
        RoofwatchError: another program holds the file.
    """
    name = made.url.render_as_string()
    with made.connect() as connection:
        raw: Any = connection.connection.driver_connection
        deadline = time.monotonic() + BUSY_S
        while raw.execute("PRAGMA journal_mode").fetchone() != ("wal",):
            try:
                raw.execute("PRAGMA journal_mode=WAL").fetchone()
            except sqlite3.OperationalError as error:  # for this statement the busy timeout does not hold
                if "locked" not in str(error) or time.monotonic() > deadline:
                    raise RoofwatchError(f"the database {name} failed: {sentence(str(error))}") from error
                time.sleep(0.02)


def check_writable(url: URL) -> None:
    """Refuse a file that can only be read: SQLite itself tells it at the first change, not when a transaction begins.

    Raises:
        RoofwatchError: it, or its folder, cannot be written.
    """
    file = Path(url.database or "")
    if not all(os.access(path, os.W_OK) for path in (file, file.parent) if path.exists()):
        raise RoofwatchError(f"the database {url.render_as_string()} failed: {sentence('it is readonly')}")


def truncate_log(made: Engine) -> None:
    """Give the space of the write-ahead log back where nobody needs it; tidiness, so never an error."""
    raw = made.raw_connection()
    try:
        raw.cursor().execute("PRAGMA busy_timeout=0")  # a long reader must not hold the writer up
        with contextlib.suppress(sqlite3.OperationalError):
            raw.cursor().execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    finally:
        raw.cursor().execute(f"PRAGMA busy_timeout={int(BUSY_S * 1000)}")
        raw.close()


class Gate:
    """Where answers wait, for a time that is set when it is closed."""

    def __init__(self) -> None:
        self._opened = threading.Event()
        self._opened.set()
        self._until_s = 0.0

    def close(self, for_s: float) -> None:
        """Let nobody in for so long, or until it is opened."""
        self._until_s = time.monotonic() + for_s
        self._opened.clear()

    def open(self) -> None:
        """Let all in."""
        self._opened.set()

    def wait(self, within_s: float) -> None:
        """Wait until it is open, at most so long."""
        if not self._opened.is_set():
            self._opened.wait(min(within_s, max(0.0, self._until_s - time.monotonic())))


class LogKeeper:
    """Keeps the write-ahead log short where a reader is there at any moment; the one who writes calls ``look``.

    The log is written from its beginning again only in a moment without readers. Where these overlap there may be
    none, so ``gate`` is closed to new ones until those that are there are done: they end by themselves (``limited``),
    unless they are another program's.
    """

    def __init__(self, made: Engine, gate: Gate, clock: Callable[[], float] = time.monotonic) -> None:
        self._engine, self._gate, self._clock = made, gate, clock
        self._log = Path(f"{made.url.database}-wal")
        self._due_s = self._closable_s = -float("inf")
        self._closed_s: float | None = None
        self._apart_s = APART_S

    def look(self) -> None:
        """Cut the log if it is long and its time has come; never an error."""
        try:
            size = self._log.stat().st_size
        except OSError:
            size = 0
        now = self._clock()
        if size <= WAL_LIMIT_BYTES:
            self._open()
        elif now >= self._due_s:
            if _cut(self._engine):
                self._apart_s = APART_S
                self._open()  # the next commit cuts the file
            elif self._closed_s is None and size > WAL_LONG_BYTES and now >= self._closable_s:
                self._closed_s = now
                self._gate.close(CLOSED_S)
            elif self._closed_s is not None and now >= self._closed_s + CLOSED_S:
                _log.warning("the log of the database has %d MB: another program reads on and on", size // 1_000_000)
                self._open()
                self._closable_s, self._apart_s = now + self._apart_s, min(APART_MOST_S, 2 * self._apart_s)
            self._due_s = self._clock() + CUT_AGAIN_S

    def _open(self) -> None:
        self._closed_s = None
        self._gate.open()


def _cut(made: Engine) -> bool:
    """Whether the log can be written from its beginning again, as soon as somebody writes."""
    raw = made.raw_connection()
    try:
        raw.cursor().execute(f"PRAGMA busy_timeout={int(CUT_WITHIN_S * 1000)}")
        with contextlib.suppress(sqlite3.OperationalError):
            return bool(raw.cursor().execute("PRAGMA wal_checkpoint(RESTART)").fetchone()[0] == 0)
        return False
    finally:
        raw.cursor().execute(f"PRAGMA busy_timeout={int(BUSY_S * 1000)}")
        raw.close()


@contextlib.contextmanager
def limited(connection: Connection, within_s: float) -> Iterator[None]:
    """Interrupt a statement that still runs, or begins, after so long: a reader that stays makes the log grow."""
    raw: Any = connection.connection.driver_connection
    until = time.monotonic() + within_s
    raw.set_progress_handler(lambda: time.monotonic() > until, STEPS)
    try:
        yield
    finally:
        raw.set_progress_handler(None, 0)


@dataclass(frozen=True, slots=True)
class Still:
    """A database in a folder that we may not write, and that nobody has open: read without a log, and looked after.

    SQLite needs two files beside a database with a log, which whoever writes it keeps there. Where there are none and
    we cannot make them, the file is read as one that does not change; that it did not is checked after each answer.
    """

    file: Path
    state: tuple[int, ...]

    @staticmethod
    def of(url: URL) -> Still | None:
        """What to check, None where the database can be opened as usual."""
        file = Path(url.database or "")
        if os.access(file.parent, os.W_OK) or Path(f"{file}-wal").exists():
            return None
        return Still(file, _state(file))

    @property
    def url(self) -> URL:
        """The file as one that does not change."""
        return URL.create("sqlite", database=self.file.absolute().as_uri(), query={"immutable": "1", "uri": "true"})

    def check(self) -> None:
        """Refuse what was read while somebody wrote.

        Raises:
            RoofwatchError: somebody opened the database to write.
        """
        if Path(f"{self.file}-wal").exists() or _state(self.file) != self.state:
            raise RoofwatchError(f"the database {self.file} was written to while it was read: ask again")


def _state(file: Path) -> tuple[int, ...]:
    found = file.stat()
    return found.st_ino, found.st_size, found.st_mtime_ns


def sentence(message: str) -> str:
    """What the engine says, with what to do about it."""
    for part, advice in (
        ("full", "free some space"),
        ("readonly", "make the file and its folder writable"),
        ("unable to open", "make its folder writable, or copy the file and its '-wal' to one that is"),
        ("interrupted", "this answer takes too long; ask for a shorter time, or for one node"),
        ("not a database", "check the URL"),
        ("locked", "another program holds it; try again"),
    ):
        if part in message:
            return f"{message}: {advice}"
    return message
