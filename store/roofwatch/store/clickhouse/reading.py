"""Whole columns of an answer: ClickHouse's own format, made vectors of by numpy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any
from weakref import WeakKeyDictionary

from clickhouse_connect.driver.binding import finalize_query
from sqlalchemy import Connection, Engine, Select

from roofwatch.store.clickhouse.engine import client, raising
from roofwatch.store.clickhouse.native import decode
from roofwatch.store.clickhouse.remembered import Columns, remembered

NUMBERS = {"aggregate_functions_null_for_empty": 0}  # groups have rows, so nothing is NULL

ALONE = "SETTINGS max_threads = 1"  # at the end of what reads a few rows: to share them out takes longer
BESIDE = 4  # statements of all answers on their way at once, beside those that an answer waits for

_found: WeakKeyDictionary[Connection, dict[str, Columns | Future[Columns]]] = WeakKeyDictionary()
Made = Callable[[Columns], Columns]
_beside = ThreadPoolExecutor(BESIDE, "roofwatch-reading")


def _as_it_is(columns: Columns) -> Columns:
    return columns


def text_of(connection: Connection, query: Select[Any]) -> str:
    """A query as it travels."""
    compiled = query.compile(dialect=connection.dialect, compile_kwargs={"render_postcompile": True})
    return str(finalize_query(str(compiled), dict(compiled.params)))


def rows(connection: Connection, query: Select[Any], names: Sequence[str]) -> Columns:
    """The columns of a query.

    Raises:
        DBAPIError: as SQLAlchemy raises it.
    """
    return read(connection, text_of(connection, query), names)


def once(connection: Connection, query: Select[Any], names: Sequence[str]) -> Columns:
    """The same as ``rows``, and the same again for the rest of an answer, which has a connection of its own."""
    return kept(connection, text_of(connection, query), names)


def kept(
    connection: Connection, sql: str, names: Sequence[str], builds: bytes | None = None, made: Made = _as_it_is
) -> Columns:
    """The same of a query's text. ``builds``: of rows that are the same for ever while these are (``remembered``).

    ``made`` makes of the columns what is kept.
    """
    known = _found.setdefault(connection, {})
    found = known.get(sql)
    if found is None:
        found = _before(connection, sql, builds)
    if isinstance(found, Future):  # one that waits behind other answers' is not waited for
        found = None if found.cancel() else found.result()
    if found is None:
        found = made(read(connection, sql, names))
    if builds is not None and (of := remembered(connection)) is not None:
        of.add((sql, builds), found)
    known[sql] = found
    return found


def ahead(
    connection: Connection, sql: str, names: Sequence[str], builds: bytes | None = None, made: Made = _as_it_is
) -> None:
    """Ask what ``kept`` will be asked for: on a connection of its own, while the answer goes on."""
    known = _found.setdefault(connection, {})
    if sql not in known and _before(connection, sql, builds) is None:
        known[sql] = _beside.submit(_read_beside, connection.engine, _settings(connection), sql, names, made)


def _before(connection: Connection, sql: str, builds: bytes | None) -> Columns | None:
    if builds is None or (of := remembered(connection)) is None:
        return None
    return of.get((sql, builds))


def read(connection: Connection, sql: str, names: Sequence[str]) -> Columns:
    """The columns of a query's text."""
    return _read(connection, _settings(connection), sql, names)


def _settings(connection: Connection) -> dict[str, Any]:
    given: dict[str, Any] = connection.get_execution_options().get("settings", {})  # how long it may take
    return {**NUMBERS, **given}


def _read_beside(engine: Engine, settings: dict[str, Any], sql: str, names: Sequence[str], made: Made) -> Columns:
    with engine.connect() as connection:
        return made(_read(connection, settings, sql, names))


def _read(connection: Connection, settings: dict[str, Any], sql: str, names: Sequence[str]) -> Columns:
    with raising(connection, sql):
        data = client(connection).raw_query(sql, fmt="Native", settings=settings)
    return decode(data, names)
