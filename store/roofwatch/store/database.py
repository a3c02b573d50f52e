"""Opening a database: which engine, schema version, transactions, and failures told in a sentence."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Connection, Engine, inspect, text
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError

from roofwatch.model.errors import RoofwatchError, UnreachableError, UsageError
from roofwatch.store import postgres_engine, postgres_partitions, postgres_sums, sqlite_engine
from roofwatch.store.clickhouse import engine as clickhouse_engine
from roofwatch.store.config import default_url
from roofwatch.store.schema import REVISION

CLICKHOUSE = "clickhousedb"
# One state of the database for as long as an answer takes; SQLite's transactions are like that by themselves.
READ_S = 30.0  # the longest that an answer may read: SQLite's log grows meanwhile, and who asked has gone
_ONE_STATE = {"isolation_level": "REPEATABLE READ", "postgresql_readonly": True}


@dataclass(slots=True)
class Database:
    """An open database whose schema is this version's."""

    engine: Engine
    url: str  # without password, for messages
    still: sqlite_engine.Still | None = None  # a file that must not change while it is read
    gate: sqlite_engine.Gate = field(default_factory=sqlite_engine.Gate)  # where answers wait while a log is cut

    @property
    def on_postgres(self) -> bool:
        """Whether it is a server, whose connections may break."""
        return self.engine.dialect.name == "postgresql"

    @property
    def revised(self) -> str:
        """What its tables are, for people."""
        return f"schema {REVISION}"

    @contextmanager
    def read(self, within_s: float = READ_S) -> Iterator[Connection]:
        """A connection that sees one state of the database and writes nothing.

        A statement that runs on after ``within_s`` is ended, as a failure of the database.
        """
        options: dict[str, Any] = _ONE_STATE if self.on_postgres else {}
        limited = postgres_engine.limited if self.on_postgres else sqlite_engine.limited
        with telling(self.url), self.engine.connect() as connection:
            reader = connection.execution_options(**options)
            with limited(reader, within_s):
                yield reader
        if self.still is not None:
            self.still.check()

    @contextmanager
    def write(self) -> Iterator[Connection]:
        """A transaction that holds the write lock from its beginning; it is committed when the block ends."""
        with self.engine.connect() as connection:
            writer = connection.execution_options(roofwatch_write=True)
            with writer.begin():
                yield writer

    def lost(self, error: BaseException) -> bool:
        """Whether it was the connection that failed, so that the transaction may be tried again."""
        return self.on_postgres and isinstance(error, DBAPIError) and postgres_engine.lost(error.orig or error)

    def log_keeper(self) -> Callable[[], None]:
        """What the one who writes calls now and then, lest readers let a log grow. Postgres does it by itself."""
        return (lambda: None) if self.on_postgres else sqlite_engine.LogKeeper(self.engine, self.gate).look

    def truncate_log(self) -> None:
        """Give back space that only an idle moment frees; tidiness, so never an error. Postgres does it by itself."""
        if not self.on_postgres:
            sqlite_engine.truncate_log(self.engine)

    def close(self) -> None:
        """Close every connection."""
        self.engine.dispose()


def open(url: str | None = None, *, migrate: bool = True) -> Database:  # noqa: A001 - reads database.open(url)
    """Open a database by URL or SQLite file name; None opens the user's own.

    With ``migrate`` it is created or brought to this version's schema; without, it must be there and be current.
    A Postgres database itself is never created, only what is in it.

    Raises:
        RoofwatchError: it cannot be opened or written, or a newer version wrote it.
        UnreachableError: without ``migrate``, there is no database; no Postgres server answers.
        UsageError: the URL is none, or names an engine that this version does not have.
    """
    parsed = _parse(url or default_url())
    name = postgres_engine.shown_url(parsed)
    if parsed.get_backend_name() == CLICKHOUSE:
        from roofwatch.store.clickhouse import opening  # noqa: PLC0415  # an extra

        with telling(name):
            return opening.open_url(parsed, name, migrate=migrate)
    with telling(name):
        database = Database(_engine(parsed, create=migrate), name)
        if not migrate and not database.on_postgres and (still := sqlite_engine.Still.of(parsed)):
            database = Database(sqlite_engine.engine(still.url), name, still)
        try:
            if database.on_postgres:
                postgres_engine.check_server(database.engine, name)
            elif migrate:
                sqlite_engine.check_writable(parsed)  # say so now, not with each commit
            if migrate:
                _migrate(database)
            _check(database)
            if migrate and database.on_postgres:
                _partitions_ahead(database)
            elif migrate:
                sqlite_engine.log_ahead(database.engine)
        except BaseException:
            database.close()
            raise
    return database


def _parse(url: str) -> URL:
    try:
        parsed = make_url(url if "://" in url else f"sqlite:///{url}")
    except ArgumentError:
        shown = url if "@" not in url else url.partition(":")[0] + "://…"  # what precedes an @ may be a password
        raise UsageError(f"'{shown}' is not a database URL: give e.g. sqlite:////var/lib/roofwatch/store.db") from None
    name = parsed.get_backend_name()
    if name == "postgresql":
        return postgres_engine.check(parsed, url)
    if name == CLICKHOUSE:
        return clickhouse_engine.check(parsed, url)
    if name != "sqlite":
        raise UsageError(f"this version stores in SQLite, Postgres and ClickHouse, not in {name}: give sqlite:///FILE")
    return sqlite_engine.check(parsed, url)


def _engine(url: URL, *, create: bool) -> Engine:
    if url.get_backend_name() == "postgresql":
        return postgres_engine.engine(url)
    sqlite_engine.prepare(url, create=create)
    return sqlite_engine.engine(url)


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


def _partitions_ahead(database: Database) -> None:
    with database.read() as connection:
        missing = postgres_partitions.missing(connection, time.time_ns())
    if missing:
        with database.write() as connection:
            postgres_partitions.make_ahead(connection, time.time_ns())
    with database.read() as connection:
        lacking = postgres_sums.missing(connection, time.time_ns())
    for span in lacking:
        with database.write() as connection:
            postgres_sums.make_if_free(connection, span)


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
        f"{database.url} has the older schema {found}: 'roofwatch store migrate' brings it to {REVISION}"
    )


def revision(connection: Connection) -> str | None:
    """The schema revision of a database, None where there is none."""
    if connection.dialect.name == CLICKHOUSE:
        from roofwatch.store.clickhouse import ddl  # noqa: PLC0415  # an extra

        return REVISION if ddl.version(connection) == ddl.VERSION else None
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
        raise _told(url, error.orig or error) from error
    except OSError as error:
        raise RoofwatchError(
            f"cannot use {error.filename} for the database {url}: {os.strerror(error.errno or 0)}"
        ) from error


def _told(url: str, error: BaseException) -> RoofwatchError:
    if url.startswith(CLICKHOUSE):
        kind = UnreachableError if clickhouse_engine.unreachable(error) else RoofwatchError
        return kind(f"the database {url} failed: {clickhouse_engine.sentence(error)}")
    if not url.startswith("postgresql"):
        return RoofwatchError(f"the database {url} failed: {sqlite_engine.sentence(str(error))}")
    kind = UnreachableError if postgres_engine.unreachable(error) else RoofwatchError
    return kind(f"the database {url} failed: {postgres_engine.sentence(error)}")
