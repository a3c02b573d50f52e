"""Whole columns of an answer: ClickHouse's own format, made vectors of by numpy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from weakref import WeakKeyDictionary

from clickhouse_connect.driver.binding import finalize_query
from sqlalchemy import Connection, Select

from roofwatch.store.clickhouse.engine import client, raising
from roofwatch.store.clickhouse.native import decode

NUMBERS = {"aggregate_functions_null_for_empty": 0}  # groups have rows, so nothing is NULL

_found: WeakKeyDictionary[Connection, dict[str, dict[str, Any]]] = WeakKeyDictionary()


def text_of(connection: Connection, query: Select[Any]) -> str:
    """A query as it travels."""
    compiled = query.compile(dialect=connection.dialect, compile_kwargs={"render_postcompile": True})
    return str(finalize_query(str(compiled), dict(compiled.params)))


def rows(connection: Connection, query: Select[Any], names: Sequence[str]) -> dict[str, Any]:
    """The columns of a query.

    Raises:
        DBAPIError: as SQLAlchemy raises it.
    """
    return read(connection, text_of(connection, query), names)


def once(connection: Connection, query: Select[Any], names: Sequence[str]) -> dict[str, Any]:
    """The same as ``rows``, and the same again for the rest of an answer, which has a connection of its own."""
    return kept(connection, text_of(connection, query), names)


def kept(connection: Connection, sql: str, names: Sequence[str]) -> dict[str, Any]:
    """The same of a query's text."""
    known = _found.setdefault(connection, {})
    if sql not in known:
        known[sql] = read(connection, sql, names)
    return known[sql]


def read(connection: Connection, sql: str, names: Sequence[str]) -> dict[str, Any]:
    """The columns of a query's text."""
    with raising(connection, sql):
        data = client(connection).raw_query(sql, fmt="Native", settings=NUMBERS)
    return decode(data, names)
