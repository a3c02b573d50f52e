"""An open ClickHouse database: what ``database.open`` gives for its URLs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NoReturn

from sqlalchemy import Connection
from sqlalchemy.engine import URL

from roofwatch.model.errors import RoofwatchError
from roofwatch.store.clickhouse import ddl, engine
from roofwatch.store.database import READ_S, Database, telling


class ClickHouse(Database):
    """Read by SQLAlchemy as the others; written by batches alone (``writer.py``)."""

    @property
    def revised(self) -> str:
        """Tables have versions of their own here."""
        return f"tables of version {ddl.VERSION}"

    @contextmanager
    def read(self, within_s: float = READ_S) -> Iterator[Connection]:
        """A connection. A statement that runs on after ``within_s`` is ended, as a failure of the database."""
        options = {"settings": {"max_execution_time": max(1, round(within_s))}}
        with telling(self.url), self.engine.connect() as connection:
            yield connection.execution_options(**options)

    def write(self) -> NoReturn:
        """There are no transactions.

        Raises:
            RoofwatchError: always.
        """
        raise RoofwatchError(
            f"{self.url} is written by its store: run 'roofwatch store serve', and send to it (--store)"
        )

    def lost(self, error: BaseException) -> bool:  # noqa: ARG002 - as of the others
        """Batches are tried again whatever failed."""
        return False

    def log_keeper(self) -> Callable[[], None]:
        """Nothing to keep."""
        return lambda: None

    def truncate_log(self) -> None:
        """Nothing to give back."""


def open_url(url: URL, name: str, *, migrate: bool) -> ClickHouse:
    """Open it; with ``migrate`` make the tables, or bring them to this version.

    Raises:
        RoofwatchError: it is too old a server, not ours, or of another version.
        UnreachableError: no server answers.
    """
    database = ClickHouse(engine.engine(url), name)
    try:
        engine.check_server(database.engine, name)
        with database.engine.connect() as connection:
            if migrate:
                ddl.migrate(connection)
            ddl.check(connection, name)
    except BaseException:
        database.close()
        raise
    return database
