"""Rows on their way into ClickHouse: a stand-in for a connection that collects what ``load`` would insert.

So rows of windows and dimensions are made by the same code for every engine.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

from sqlalchemy import Connection, Table

from roofwatch.store.clickhouse import native
from roofwatch.store.clickhouse.engine import client, raising
from roofwatch.store.clickhouse.tables import LAYOUTS, OWN


class _Named:
    name = "rows"  # of no engine


class Sink:
    """Values by table, one row after the other."""

    dialect = _Named()

    def __init__(self) -> None:
        self.flat: dict[str, list[Any]] = defaultdict(list)
        self.names: dict[str, tuple[str, ...]] = {}

    def add(self, table: Table, names: Sequence[str], flat: Sequence[Any]) -> None:
        """More rows of a table, always with the same columns."""
        if len(flat):
            self.names[table.name] = tuple(names)
            self.flat[table.name].extend(flat)

    def execute(self, _statement: Any) -> None:
        """Labels are removed before they are inserted; here all of an owner are known to be new ones."""

    def columns(self, table: str) -> dict[str, list[Any]]:
        """What was collected of a table, by column."""
        names, flat = self.names[table], self.flat[table]
        return {name: flat[i :: len(names)] for i, name in enumerate(names)}


def type_of(table: str, column: str) -> str:
    """A column's type as it travels."""
    kind = (LAYOUTS.get(table) or OWN[table]).columns[column].partition(" CODEC")[0]
    return kind[len("LowCardinality(") : -1] if kind.startswith("LowCardinality(") else kind


def insert(connection: Connection, table: str, columns: dict[str, Any], token: str = "") -> int:
    """Insert whole columns; with a token twice the same is once. Gives how many rows.

    Raises:
        DBAPIError: the server refused, or none answers.
    """
    rows = len(next(iter(columns.values()))) if columns else 0
    return insert_blocks(connection, table, [columns], token) if rows else 0


def insert_blocks(connection: Connection, table: str, blocks: Iterable[dict[str, Any]], token: str = "") -> int:
    """The same of several blocks of one table's columns, as one insert; a block has rows.

    Raises:
        DBAPIError: the server refused, or none answers.
    """
    rows, names, data = 0, list[str](), list[bytes]()
    for columns in blocks:
        names = list(columns)
        rows += len(columns[names[0]])
        data.append(native.encode({name: (type_of(table, name), values) for name, values in columns.items()}))
    settings = {"insert_deduplication_token": token} if token else {}
    with raising(connection, f"INSERT INTO {table}"):
        client(connection).raw_insert(table, names, b"".join(data), settings=settings, fmt="Native")
    return rows
