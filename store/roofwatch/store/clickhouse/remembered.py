"""Rows of hours and days that were read before: what is summed up does not change until its build does.

Who looks at a dashboard asks for the same hours again and again: of such an answer it is read anew which builds count,
and no more.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Any
from weakref import WeakKeyDictionary

from sqlalchemy import Connection, Engine

from roofwatch.store.clickhouse.ddl import cluster_of
from roofwatch.store.clickhouse.native import Arrays

MOST_BYTES = 64 << 20  # of one database
TEXT_BYTES = 80  # that a short text takes in memory
ENTRY_BYTES = 1_000  # that columns without rows take
Columns = dict[str, Any]
Key = tuple[str, bytes]  # what was asked, and of which builds


class Remembered:
    """Columns by what was asked; what was not asked for longest goes first. May be used by several threads."""

    def __init__(self) -> None:
        self._lock, self._bytes = threading.Lock(), 0
        self._found: OrderedDict[Key, tuple[Columns, int]] = OrderedDict()

    def get(self, key: Key) -> Columns | None:
        """What was found before."""
        with self._lock:
            found = self._found.get(key)
            if found is None:
                return None
            self._found.move_to_end(key)
            return found[0]

    def add(self, key: Key, columns: Columns) -> None:
        """Remember it."""
        size = ENTRY_BYTES + sum(map(len, key)) + sum(map(_size, columns.values()))
        with self._lock:
            if key in self._found or size > MOST_BYTES // 4:
                return
            self._found[key] = columns, size
            self._bytes += size
            while self._bytes > MOST_BYTES:
                self._bytes -= self._found.popitem(last=False)[1][1]

    def clear(self) -> None:
        """Forget all: to measure what a question costs that nobody has asked."""
        with self._lock:
            self._found.clear()
            self._bytes = 0


def _size(column: Any) -> int:
    if isinstance(column, Arrays):
        return _size(column.ends) + _size(column.values)
    return len(column) * TEXT_BYTES if column.dtype == object else int(column.nbytes)


_lock = threading.Lock()
_of: WeakKeyDictionary[Engine, Remembered] = WeakKeyDictionary()


def remembered(connection: Connection) -> Remembered | None:
    """What is remembered of a database; None on a cluster, whose servers do not all have a build at the same moment."""
    if cluster_of(connection):
        return None
    with _lock:
        return _of.setdefault(connection.engine, Remembered())
