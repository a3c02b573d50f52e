"""Reaching ClickHouse: what a URL may be, the settings of every statement, and failures in words."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sqlalchemy import Connection, Engine, create_engine
from sqlalchemy.dialects import registry
from sqlalchemy.engine import URL
from sqlalchemy.exc import DBAPIError

from roofwatch.model.errors import RoofwatchError, UsageError
from roofwatch.model.extras import install

OLDEST = (25, 8)  # correlated subqueries; 25.6 has the tables that never take unknown for known
# Each makes ClickHouse answer as SQL says, or as SQLite and Postgres do.
READING = {
    "join_use_nulls": "1",  # an outer join without a partner gives NULL, not 0
    "aggregate_functions_null_for_empty": "1",  # a sum over nothing is NULL
    "final": "1",  # of rows with one key the newest only
    "do_not_merge_across_partitions_select_final": "1",  # a key has one day
    # Compiling what is asked once or twice costs more than it saves.
    **dict.fromkeys(("compile_expressions", "compile_aggregate_expressions", "compile_sort_description"), "0"),
    "max_query_size": str(64 << 20),  # ids are named by the thousand
    "async_insert": "0",  # acknowledged is written
    "insert_deduplicate": "1",
    "deduplicate_blocks_in_dependent_materialized_views": "1",
    "max_partitions_per_insert_block": "0",  # who imports a year sends it at once
    "distributed_product_mode": "global",
    "insert_distributed_sync": "1",
    "distributed_ddl_task_timeout": "15",  # a server that is away must not hold batches up: dropping is tried again
    "max_partition_size_to_drop": "0",  # a day of a fleet is more than the 50 GB that a server drops without being told
}
TIMES = {"connect_timeout": 10, "send_receive_timeout": 120}


def check(url: URL, given: str) -> URL:
    """A URL for clickhouse-connect.

    Raises:
        UsageError: it names another driver, or no database.
    """
    if url.drivername not in {"clickhousedb", "clickhousedb+connect"}:
        raise UsageError(f"ClickHouse is reached as clickhousedb://…, not as {url.drivername}://…")
    if not url.database or not url.host:
        shown = url.render_as_string() if url.password else given
        raise UsageError(f"'{shown}' names no server or no database: give clickhousedb://USER@HOST:PORT/DATABASE")
    return url.set(drivername="clickhousedb")


def engine(url: URL) -> Engine:
    """An engine whose every statement has those settings.

    Raises:
        RoofwatchError: clickhouse-connect is not installed.
    """
    registry.register("clickhousedb.roofwatch", "roofwatch.store.clickhouse.dialect", "Dialect")
    arguments: dict[str, Any] = {**READING, **TIMES, "autogenerate_session_id": False}
    options = {name: value for name, value in arguments.items() if name not in url.query}
    cluster = url.query.get("cluster", "")
    url = url.difference_update_query(["cluster"])
    # What they say, exceptions say too. Of urllib3 that part: clickhouse-connect sets the level of the whole.
    logging.getLogger("clickhouse_connect").setLevel(logging.CRITICAL)
    logging.getLogger("urllib3.connectionpool").setLevel(logging.ERROR)
    try:
        made = create_engine(
            url.set(drivername="clickhousedb+roofwatch"), connect_args=options, pool_size=8,
            execution_options={"roofwatch_cluster": cluster},
        )  # fmt: skip
    except ImportError as error:
        raise RoofwatchError(f"ClickHouse needs clickhouse-connect ({error}): {install('clickhouse')}") from None
    return made


def client(connection: Connection) -> Any:
    """clickhouse-connect's own client of a connection: for whole columns."""
    driver: Any = connection.connection.driver_connection
    return driver.client


@contextmanager
def raising(connection: Connection, statement: str) -> Iterator[None]:
    """Failures of the client as SQLAlchemy raises those of its own statements.

    Raises:
        DBAPIError: the server refused, or none answers.
    """
    errors: Any = connection.dialect.loaded_dbapi.Error
    try:
        yield
    except errors as error:
        raise DBAPIError.instance(statement, None, error, errors, dialect=connection.dialect) from error


def check_server(made: Engine, name: str) -> None:
    """Refuse a server that is too old.

    Raises:
        RoofwatchError: it is.
    """
    with made.connect() as connection:
        version = str(connection.exec_driver_sql("SELECT version()").scalar_one())
    told = tuple(int(part) for part in version.split(".")[:2])
    if told < OLDEST:
        raise RoofwatchError(f"{name} is ClickHouse {version}: Roofwatch needs {'.'.join(map(str, OLDEST))} or later")


_UNREACHABLE = ("HTTPConnectionPool", "executing HTTP request", "Connection refused", "NameResolution", "timed out")
_ADVICE = (
    ("AUTHENTICATION_FAILED", "check user and password"),
    ("UNKNOWN_DATABASE", "create it first"),
    ("ACCESS_DENIED", "let a user with that right run 'roofwatch store serve' once, or grant it"),
    ("NOT_ENOUGH_SPACE", "free some space"),
    ("TOO_MANY_PARTS", "the server merges too slowly; it is tried again"),
)


def unreachable(error: BaseException) -> bool:
    """Whether no server answers."""
    return any(part in str(error) for part in _UNREACHABLE)


def sentence(error: BaseException) -> str:
    """What went wrong in one line, with what to do about it."""
    text = " ".join(str(error).split())
    seen: BaseException | None = error
    while seen is not None:  # what TLS says stands below what HTTP makes of it
        if "CERTIFICATE_VERIFY_FAILED" in str(seen):
            why = str(seen).partition("certificate verify failed: ")[2].partition(" (_ssl")[0]
            return (
                f"its certificate cannot be trusted ({why or 'no reason told'}): give the CA that issued it as ca_cert="
            )
        seen = seen.__cause__ or seen.__context__
    if unreachable(error):
        return "no ClickHouse answers: check host and port, and whether the server is running"
    text = text.partition("DB::Exception: ")[2] or text
    text = text.partition(" (for url")[0][:300]
    advice = next((advice for part, advice in _ADVICE if part in text), None)
    return f"{text}: {advice}" if advice else text
