"""The rows of an hour or a day in the four small tables of sums, once more as one text: an answer reads all at once.

What a statement takes is mostly its columns, which the engine analyses one by one, and those tables have sixty. A piece
that an earlier version summed up has no such text; then its tables are read.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import chain
from typing import Any

import numpy as np
from sqlalchemy import Column, Connection, String

from roofwatch.store.clickhouse import reading
from roofwatch.store.clickhouse.remembered import Columns
from roofwatch.store.clickhouse.sink import insert
from roofwatch.store.clickhouse.states import States
from roofwatch.store.clickhouse.tables import PACKED
from roofwatch.store.schema import cause_sums, device_sums, drop_sums, window_sums

TABLES = (window_sums, drop_sums, device_sums, cause_sums)
KEY = ("grain", "bucket_unix_ns", "process_id")
_READ = (*KEY, "build", "packed")
_OWN = {table.name: [column for column in table.c if column.name not in KEY] for table in TABLES}


def write(connection: Connection, rows: Mapping[str, Sequence[Sequence[Any]]], number: int) -> None:
    """The rows of an attempt, by table; columns in the order of ``KEY`` and then of the table."""
    pieces: dict[tuple[int, ...], dict[str, list[Sequence[Any]]]] = defaultdict(lambda: defaultdict(list))
    for name, of in rows.items():
        for row in of:
            pieces[tuple(row[: len(KEY)])][name].append(row[len(KEY) :])
    if pieces:
        columns: dict[str, Any] = dict(zip(KEY, map(list, zip(*pieces, strict=True)), strict=True))
        told = [json.dumps(piece, separators=(",", ":")) for piece in pieces.values()]
        insert(connection, PACKED, {**columns, "build": [number] * len(told), "packed": told})


def columns_of(connection: Connection, of: States) -> Mapping[str, Columns]:
    """The rows of pieces by table; of no table where not all of them have a text of the build that counts."""
    found = reading.kept(connection, _statement(of), _READ, of.told(), partial(_laid, of))
    return {
        name: {column: found[f"{name}.{column}"] for column in ("grain", *(column.name for column in own))}
        for name, own in _OWN.items()
        if found
    }


def ahead(connection: Connection, of: States) -> None:
    """Ask for them, while the answer goes on."""
    reading.ahead(connection, _statement(of), _READ, of.told(), partial(_laid, of))


def _statement(of: States) -> str:
    return f"SELECT {', '.join(_READ)} FROM {PACKED} WHERE {of.condition()} {reading.ALONE}"  # noqa: S608 - our own words


def _laid(of: States, found: Columns) -> Columns:
    """Texts as columns of the tables, named with the table before them."""
    if _named(found) != _named(of.columns):
        return {}
    pieces = [json.loads(text) for text in found["packed"].tolist()]
    columns: Columns = {}
    for name, own in _OWN.items():
        each = [piece.get(name, ()) for piece in pieces]
        columns[f"{name}.grain"] = np.repeat(found["grain"], np.fromiter(map(len, each), np.int64, len(each)))
        rows = list(chain.from_iterable(each))
        values = zip(*rows, strict=True) if rows else [()] * len(own)
        columns |= {f"{name}.{column.name}": _column(column, told) for column, told in zip(own, values, strict=True)}
    return columns


def _named(columns: Mapping[str, Any]) -> set[tuple[int, ...]]:
    return set(zip(*(columns[name].tolist() for name in (*KEY, "build")), strict=True))


def _column(column: Column[Any], values: Sequence[Any]) -> Any:
    """As ``native.decode`` gives it."""
    text = isinstance(column.type, String)
    gaps = [value is None for value in values]
    known = [("" if text else 0) if gap else value for gap, value in zip(gaps, values, strict=True)]
    found = np.array(known, object if text else np.int64)
    return np.ma.MaskedArray(found, np.array(gaps, np.bool_)) if column.nullable else found
