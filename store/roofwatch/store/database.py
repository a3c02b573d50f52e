"""Opening a database: engine settings, schema version, transactions, and failures told in a sentence."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, create_engine, event, inspect, text
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError

from roofwatch.model.errors import RoofwatchError, UnreachableError, UsageError
from roofwatch.store.config import default_url
from roofwatch.store.schema import REVISION

BUSY_S = 30.0  # how long a writer waits for another one, e.g. an import beside a running store
WAL_LIMIT_BYTES = 64 << 20  # the log is cut back to this once no reader needs it


@dataclass(slots=True)
class Database:
    """An open database whose schema is this version's."""

    engine: Engine
    url: str  # without password, for messages

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """A connection that sees one state of the database and writes nothing."""
        with telling(self.url), self.engine.connect() as connection:
            yield connection

    @contextmanager
    def write(self) -> Iterator[Connection]:
        """A transaction that holds the write lock from its beginning; it is committed when the block ends."""
        with self.engine.connect() as connection:
            writer = connection.execution_options(roofwatch_write=True)
            with writer.begin():
                yield writer

    def truncate_log(self) -> None:
        """Give the space of SQLite's write-ahead log back where nobody needs it; tidiness, so never an error."""
        raw = self.engine.raw_connection()
        try:
            raw.cursor().execute("PRAGMA busy_timeout=0")  # a long reader must not hold the writer up
            with contextlib.suppress(sqlite3.OperationalError):
                raw.cursor().execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        finally:
            raw.cursor().execute(f"PRAGMA busy_timeout={int(BUSY_S * 1000)}")
            raw.close()

    def close(self) -> None:
        """Close every connection."""
        self.engine.dispose()


def open(url: str | None = None, *, migrate: bool = True) -> Database:  # noqa: A001 - reads database.open(url)
    """Open a database by URL or SQLite file name; None opens the user's own.

    With ``migrate`` it is created or brought to this version's schema; without, it must be there and be current.

    Raises:
        RoofwatchError: it cannot be opened or written, or a newer version wrote it.
        UnreachableError: without ``migrate``, there is no database.
        UsageError: the URL is none, or names an engine that this version does not have.
    """
    parsed = _parse(url or default_url())
    name = parsed.render_as_string()
    file = Path(parsed.database or "")
    with telling(name):
        if migrate:
            file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        elif not file.exists():
            raise UnreachableError(f"there is no database at {file}: start 'roofwatch store serve', or check the URL")
        database = Database(_engine(parsed), name)
        try:
            if migrate:
                _migrate(database)
            _check(database)
            if migrate:
                _log_ahead(database)
        except BaseException:
            database.close()
            raise
    return database


def _parse(url: str) -> URL:
    try:
        parsed = make_url(url if "://" in url else f"sqlite:///{url}")
    except ArgumentError:
        raise UsageError(f"'{url}' is not a database URL: give e.g. sqlite:////var/lib/roofwatch/store.db") from None
    if parsed.get_backend_name() != "sqlite":
        raise UsageError(f"this version stores in SQLite, not in {parsed.get_backend_name()}: give sqlite:///FILE")
    if not parsed.database or parsed.database == ":memory:":
        raise UsageError(f"'{url}' names no file: give sqlite:///FILE")
    return parsed


def _engine(url: URL) -> Engine:
    engine = create_engine(url, connect_args={"timeout": BUSY_S, "check_same_thread": False}, pool_size=4)

    @event.listens_for(engine, "connect")
    def _settings(connection: sqlite3.Connection, _record: object) -> None:
        connection.isolation_level = None  # transactions begin where _begin says, not where the driver guesses
        for pragma in (
            "synchronous=FULL",  # an acknowledged segment survives a power cut
            f"journal_size_limit={WAL_LIMIT_BYTES}",
            "cache_size=-65536",
            "temp_store=MEMORY",
        ):
            connection.execute(f"PRAGMA {pragma}")

    @event.listens_for(engine, "begin")
    def _begin(connection: Connection) -> None:
        # A reader that turns writer gets "busy" at once, however long the timeout: writers say so first.
        writes = connection.get_execution_options().get("roofwatch_write", False)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")

    return engine


def _log_ahead(database: Database) -> None:
    """Let readers and the writer work beside each other. The file remembers it, so only a file that is ours gets it."""
    with database.engine.connect() as connection:
        raw: Any = connection.connection.driver_connection
        deadline = time.monotonic() + BUSY_S
        while raw.execute("PRAGMA journal_mode").fetchone() != ("wal",):
            try:
                raw.execute("PRAGMA journal_mode=WAL").fetchone()
            except sqlite3.OperationalError as error:  # for this statement the busy timeout does not hold
                if "locked" not in str(error) or time.monotonic() > deadline:
                    raise RoofwatchError(f"the database {database.url} failed: {error}{_advice(str(error))}") from error
                time.sleep(0.02)


def _migrate(database: Database) -> None:
    """Create or upgrade the schema, all or nothing, one process at a time."""
    with database.read() as connection:
        if revision(connection) == REVISION:
            return  # alembic takes a third of a second to import
    from roofwatch.store.migrations import upgrade  # noqa: PLC0415

    with database.write() as connection:
        found = revision(connection)
        if found in upgrade.known() or (found is None and not inspect(connection).get_table_names()):
            upgrade.run(connection)


def _check(database: Database) -> None:
    with database.read() as connection:
        found = revision(connection)
    if found == REVISION:
        return
    if found is None:
        raise RoofwatchError(f"{database.url} is not a Roofwatch database: check the URL")
    if found > REVISION:
        raise RoofwatchError(
            f"{database.url} was written by a newer version of Roofwatch (schema {found}, this one knows {REVISION}): "
            "upgrade Roofwatch"
        )
    raise RoofwatchError(
        f"{database.url} has the older schema {found}: 'roofwatch store serve' of this version brings it to {REVISION}"
    )


def revision(connection: Connection) -> str | None:
    """The schema revision of a database, None where there is none."""
    if not inspect(connection).has_table("alembic_version"):
        return None
    found = connection.execute(text("SELECT version_num FROM alembic_version")).scalar()
    return None if found is None else str(found)


@contextmanager
def telling(url: str) -> Iterator[None]:
    """Turn failures of the database and its folder into one sentence."""
    try:
        yield
    except DBAPIError as error:
        raise RoofwatchError(f"the database {url} failed: {error.orig}{_advice(str(error.orig))}") from error
    except OSError as error:
        raise RoofwatchError(
            f"cannot use {error.filename} for the database {url}: {os.strerror(error.errno or 0)}"
        ) from error


def _advice(message: str) -> str:
    for part, advice in (
        ("full", "free some space"),
        ("readonly", "make the file and its folder writable"),
        ("unable to open", "make its folder writable"),
        ("not a database", "check the URL"),
        ("locked", "another program holds it; try again"),
    ):
        if part in message:
            return f": {advice}"
    return ""
