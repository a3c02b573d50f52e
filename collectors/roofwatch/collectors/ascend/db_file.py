"""An SQLite file that may be anything: opened without rights, asked in whole numbers, a block of rows at a time.

Only plain tables are read, by the names of their columns; what is missing reads as -1. Views, triggers, virtual tables
and generated columns of the file are never touched, so that nothing in it can run.
"""

from __future__ import annotations

import mmap
import os
import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, TypeVar
from urllib.parse import quote

import numpy as np

from roofwatch.model.errors import RoofwatchError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]
    Floats = NDArray[np.float64]

MAX_IN_MEMORY = 256 << 20  # bytes of a file that is known by its descriptor alone
MAX_SECONDS = 600.0  # of CPU for all queries; a million kernels with metrics take some ten
MAX_TABLES = 1000
MAX_COLUMNS = 200
BLOCK_CELLS = 1 << 18  # at once as Python numbers
LONGEST_TEXT = 1 << 16  # bytes of one text
_LARGEST_CELL = 16 << 20  # longer ones make their query fail
_PROGRESS_STEPS = 500_000  # of SQLite's machine between two looks at the clock
_BUSY_S = 2.0
_JOURNAL_MODES = slice(18, 20)  # of the header: 2 is a write-ahead log, 1 is none
_ALLOWED = frozenset({sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ})
# The module decodes SQLite's own messages strictly, and one about a damaged schema quotes it.
_FAILURES = (sqlite3.Error, UnicodeDecodeError)
_FUNCTIONS = frozenset({"ifnull", "substr", "count", "max", "min", "typeof"})


_Number = TypeVar("_Number", np.int64, np.float64)


class Database:
    """The tables of a database. ``problem`` says what was damaged, where a table could be read in part."""

    def __init__(self, connection: sqlite3.Connection, name: str) -> None:
        """Takes an open connection, and closes it on ``close``.

        Raises:
            RoofwatchError: it cannot be read at all.
        """
        self.name = name
        self.problem: str | None = None
        self.rows_read = 0
        self._connection = connection
        self._deadline = time.process_time() + MAX_SECONDS
        try:
            self._shield()
            self._columns = self._tables()
        except _FAILURES as error:
            connection.close()
            raise RoofwatchError(self._sentence(error)) from error
        connection.set_authorizer(_authorize)

    def close(self) -> None:
        """Ends reading."""
        self._connection.close()

    @property
    def tables(self) -> frozenset[str]:
        """The names of its tables."""
        return frozenset(self._columns)

    def has(self, table: str, *columns: str) -> bool:
        """Whether a table and columns of it are there; names are compared without case, as SQLite does."""
        return columns_in(self._columns.get(table.lower(), ()), columns)

    def first_of(self, table: str, *columns: str) -> str | None:
        """The first of the columns that a table has."""
        return next((column for column in columns if self.has(table, column)), None)

    def numbers(self, table: str, column: str | None, alias: str = "") -> str:
        """SQL for a column as whole numbers; -1 for nothing, and for a column that is missing."""
        plain = self.plain(table, column, alias)
        return plain if plain == "-1" else f"ifnull(cast({plain} as integer),-1)"

    def plain(self, table: str, column: str | None, alias: str = "") -> str:
        """SQL for a column as it is; -1 where it is missing."""
        if column is None or not self.has(table, column):
            return "-1"
        return f'{alias}."{column}"' if alias else f'"{column}"'

    def integers(self, sql: str, width: int) -> Iterator[Ints]:
        """The rows of a query of ``width`` whole numbers, as blocks of [rows, width]."""
        return self._blocks(sql, width, np.dtype(np.int64))

    def floats(self, sql: str, width: int) -> Iterator[Floats]:
        """The rows of a query of ``width`` numbers as doubles: whole ones only below 2⁵³."""
        return self._blocks(sql, width, np.dtype(np.float64))

    def values(self, sql: str, limit: int, arguments: Sequence[int] = ()) -> list[tuple[object, ...]]:
        """At most ``limit`` rows as they are; what the file has may be of any type."""
        try:
            return self._connection.execute(sql, arguments).fetchmany(limit)
        except (*_FAILURES, OverflowError) as error:
            self._note(error)
            return []

    def columns_of(self, table: str, columns: Sequence[str], *, limit: int, where: str = "") -> Ints:
        """Columns of a table as [column, row]; missing ones are -1, and a missing table has no rows."""
        if not self.has(table):
            return np.empty((len(columns), 0), dtype=np.int64)
        parts = ",".join(self.numbers(table, column) for column in columns)
        sql = f'select {parts} from "{table}" {where} limit {limit:d}'  # noqa: S608 - names are ours, found in the file
        blocks = [block.T for block in self.integers(sql, len(columns))]
        return np.concatenate([np.empty((len(columns), 0), dtype=np.int64), *blocks], axis=1)

    def _blocks(self, sql: str, width: int, dtype: np.dtype[_Number]) -> Iterator[NDArray[_Number]]:
        rows = max(1, BLOCK_CELLS // width)
        try:
            cells = chain.from_iterable(self._connection.execute(sql))
            while len(block := np.fromiter(islice(cells, rows * width), dtype=dtype)):
                self.rows_read += len(block) // width
                yield block[: len(block) // width * width].reshape(-1, width)
        except (sqlite3.Error, OverflowError, TypeError, ValueError) as error:
            self._note(error)

    def _note(self, error: Exception) -> None:
        """Damage in the middle: what was read before it counts."""
        if self.problem is None:
            self.problem = self._sentence(error)

    def _sentence(self, error: Exception) -> str:
        text = "malformed schema" if isinstance(error, UnicodeDecodeError) else str(error)
        if "locked" in text or "busy" in text:
            return f"{self.name} is locked by a program that writes it: close that program, or give a copy."
        if "interrupted" in text:
            return f"{self.name} took more than {MAX_SECONDS:.0f} seconds to read: it is too large or damaged."
        if "unable to open" in text:
            return f"{self.name} cannot be opened as a database: its folder or its journal cannot be read."
        return f"{self.name} is a damaged SQLite database ({text[:120]})."

    def _shield(self) -> None:
        connection = self._connection
        connection.text_factory = lambda text: text.decode("utf-8", "replace")
        for limit, most in (
            (sqlite3.SQLITE_LIMIT_LENGTH, _LARGEST_CELL),
            (sqlite3.SQLITE_LIMIT_ATTACHED, 0),
            (sqlite3.SQLITE_LIMIT_WORKER_THREADS, 0),
            (sqlite3.SQLITE_LIMIT_TRIGGER_DEPTH, 1),
        ):
            connection.setlimit(limit, most)
        connection.set_progress_handler(lambda: time.process_time() > self._deadline, _PROGRESS_STEPS)
        for pragma in ("trusted_schema=OFF", "query_only=ON", "cell_size_check=ON", "temp_store=MEMORY", "mmap_size=0"):
            connection.execute(f"pragma {pragma}")

    def _tables(self) -> dict[str, tuple[str, ...]]:
        """Table → its columns, both in lower case; generated and hidden columns are left out."""
        sql = """select name from sqlite_master
                 where type='table' and rootpage>0 and typeof(name)='text' and length(name)<100"""
        found = {}
        for (name,) in self._connection.execute(sql).fetchmany(MAX_TABLES):
            quoted = str(name).replace('"', '""')
            columns = self._connection.execute(f'pragma table_info("{quoted}")').fetchmany(MAX_COLUMNS)
            found[str(name).lower()] = tuple(str(column[1]).lower() for column in columns)
        return found


def columns_in(found: Sequence[str], wanted: Sequence[str]) -> bool:
    """Whether a table that has columns (none: it is missing) has all that are wanted."""
    return bool(found) and all(column.lower() in found for column in wanted)


def _authorize(action: int, _first: str | None, second: str | None, _base: str | None, inside: str | None) -> int:
    """Lets through the reading of tables by our own statements; ``inside`` names a view or trigger that asks."""
    if inside is not None:
        return sqlite3.SQLITE_DENY
    if action == sqlite3.SQLITE_FUNCTION:
        return sqlite3.SQLITE_OK if (second or "").lower() in _FUNCTIONS else sqlite3.SQLITE_DENY
    return sqlite3.SQLITE_OK if action in _ALLOWED else sqlite3.SQLITE_DENY


def opened(file: BinaryIO, name: str, path: str | None = None) -> Database:
    """Opens a database for reading.

    Args:
        file: open for reading in binary.
        name: what messages call it.
        path: where it lies, if it may be opened by that (the user named it). A file of which only the descriptor may
            be used, since whoever handed it over might put another one at its path, is read into memory: SQLite opens
            by path alone, and follows ``/proc/self/fd`` back to it.

    Raises:
        RoofwatchError: it cannot be opened, or is too large to be read by its descriptor.
    """
    try:
        connection = _in_memory(file, name) if path is None else _by_path(path)
    except _FAILURES as error:
        raise RoofwatchError(f"{name} cannot be opened as a database: {error}.") from error
    return Database(connection, name)


def _by_path(path: str) -> sqlite3.Connection:
    """Read-only; a finished file with a write-ahead log as immutable, since SQLite would make files beside it."""
    place = Path(path).absolute()
    with place.open("rb") as file:
        logged = 2 in file.read(20)[_JOURNAL_MODES]
    pending = False
    with suppress(OSError):
        pending = place.with_name(f"{place.name}-wal").stat().st_size > 0
    mode = "mode=ro&immutable=1" if logged and not pending else "mode=ro"
    return sqlite3.connect(f"file:{quote(str(place))}?{mode}", uri=True, timeout=_BUSY_S)


def _in_memory(file: BinaryIO, name: str) -> sqlite3.Connection:
    size = file.seek(0, os.SEEK_END)
    if size > MAX_IN_MEMORY:
        raise RoofwatchError(
            f"{name} has {size >> 20} MiB, and a database handed over by descriptor is read only up to "
            f"{MAX_IN_MEMORY >> 20} MiB: take a shorter window."
        )
    connection = sqlite3.connect(":memory:")
    with _writable(file) as content:
        content[_JOURNAL_MODES] = b"\x01\x01"  # in memory there is no write-ahead log
        connection.deserialize(content)
    return connection


@contextmanager
def _writable(file: BinaryIO) -> Iterator[mmap.mmap | bytearray]:
    """The content of a file, of which what is changed is nobody else's."""
    try:
        number = file.fileno()
    except OSError:  # it is in memory already
        file.seek(0)
        yield bytearray(file.read())
        return
    with mmap.mmap(number, 0, access=mmap.ACCESS_COPY) as content:
        yield content
