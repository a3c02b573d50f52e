"""SQLite: settings of a connection, where transactions begin, and the write-ahead log."""

from __future__ import annotations

import contextlib
import sqlite3
import time
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.engine import URL

from roofwatch.model.errors import RoofwatchError, UnreachableError, UsageError

BUSY_S = 30.0  # how long a writer waits for another one, e.g. an import beside a running store
WAL_LIMIT_BYTES = 64 << 20  # the log is cut back to this once no reader needs it


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


def sentence(message: str) -> str:
    """What the engine says, with what to do about it."""
    for part, advice in (
        ("full", "free some space"),
        ("readonly", "make the file and its folder writable"),
        ("unable to open", "make its folder writable"),
        ("not a database", "check the URL"),
        ("locked", "another program holds it; try again"),
    ):
        if part in message:
            return f"{message}: {advice}"
    return message
