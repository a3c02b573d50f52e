"""Growing columns of numbers, and small ids for what repeats."""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, Any

import numpy as np

from roofwatch.collectors.kineto.groups import OTHER

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]
    Columns = NDArray[np.integer[Any]]  # narrow types serve as well

UNKNOWN = -1  # in a column of ids, indexes or sizes
MAX_EXTENTS = 1 << 16  # different launch grids and blocks; a real trace has some hundreds
UNNAMED = "(unnamed)"
MAX_TEXT_BYTES = 96 << 20  # of the distinct values of one ``Interner``


class Interner(dict[Any, int]):
    """Value → small id, in order of first sight. Once ``MAX_TEXT_BYTES`` are held, new texts share one id.

    With ``longest`` characters it holds names, which anything may be in: what no store takes is changed, and counted.
    """

    def __init__(self, longest: int | None = None) -> None:
        super().__init__()
        self.values_seen: list[Any] = []
        self.overflown = 0
        self.changed = 0  # how often a name was cut, or was none
        self._longest = longest
        self._bytes = 0
        self._rest: int | None = None

    def __missing__(self, key: Any) -> int:
        kept = key if self._longest is None else _as_name(key, self._longest)
        if kept is not key:
            self.changed += 1
            if kept in self:
                return self[kept]
        self._bytes += len(kept) + 128
        if self._bytes > MAX_TEXT_BYTES:
            return self._overflow(type(kept)() if self._longest is None else OTHER)
        self.values_seen.append(kept)
        self[kept] = len(self.values_seen) - 1
        return self[kept]

    def _overflow(self, rest: Any) -> int:
        self.overflown += 1
        if self._rest is None:
            self._rest = self[rest] if rest in self else len(self.values_seen)
            if rest not in self:
                self.values_seen.append(rest)
                self[rest] = self._rest
        return self._rest


def _as_name(text: str, longest: int) -> str:
    """The text itself where it can be a name."""
    kept = text if len(text) <= longest else text[:longest]
    if "\0" in kept:
        kept = kept.replace("\0", "\N{REPLACEMENT CHARACTER}")
    return kept if kept.strip() else UNNAMED


class Extents(dict[Any, int]):
    """A grid's or a block's [x, y, z] → small id; 0 is what is none, or one too many."""

    def __init__(self) -> None:
        super().__init__({None: 0})
        self._sides = array("q", (UNKNOWN, UNKNOWN, UNKNOWN))  # volume, x and y by id

    def __missing__(self, key: tuple[Any, ...]) -> int:
        if len(self) > MAX_EXTENTS or len(key) != 3 or not all(type(side) is int for side in key):
            return 0
        x, y, z = key
        if min(key) <= 0 or x * y * z >= 1 << 62:
            return 0
        self[key] = len(self._sides) // 3
        self._sides.extend((x * y * z, x, y))
        return self[key]

    def ids(self, extents: list[Any]) -> Ints:
        """The ids of values as the trace gives them."""
        try:
            return np.array([self[tuple(e)] if type(e) is list else 0 for e in extents], dtype=np.int64)
        except TypeError:  # a list in the list
            plain = [e if type(e) is list and all(type(side) is int for side in e) else None for e in extents]
            return self.ids(plain)

    def sides(self, ids: Ints) -> tuple[Ints, Ints, Ints]:
        """Volume, x and y; ``UNKNOWN`` for what is no list of three positive numbers."""
        table = np.frombuffer(self._sides, dtype=np.int64).reshape(-1, 3)
        return table[ids, 0], table[ids, 1], table[ids, 2]

    def volumes(self, extents: list[Any]) -> Ints:
        """The volume of each, ``UNKNOWN`` as in ``sides``."""
        ids = self.ids(extents)
        volumes: Ints = np.frombuffer(self._sides, dtype=np.int64)[3 * ids]
        return volumes


class Table:
    """Columns of one sort of event; a column is a numpy array once ``close`` was called."""

    def __init__(self, *names: str) -> None:
        self._parts: dict[str, list[Any]] = {name: [] for name in ("start", "end", "name", *names)}
        self._columns: dict[str, Ints] = {}

    def add(self, **columns: Columns) -> None:
        """Appends rows: equally long columns."""
        for name, column in columns.items():
            self._parts[name].append(column)

    def close(self) -> None:
        """Ends appending."""
        for name, parts in self._parts.items():
            self._columns[name] = small(parts[0] if len(parts) == 1 else np.concatenate(parts or [_NOTHING]))
            parts.clear()

    def keep(self, mask: NDArray[np.bool_]) -> None:
        """Keeps the rows where ``mask`` is true."""
        self._columns = {name: small(column[mask]) for name, column in self._columns.items()}

    def put(self, name: str, column: Ints) -> None:
        """Puts other values in a column's place, one for each row."""
        self._columns[name] = small(column)

    def __getitem__(self, name: str) -> Ints:
        return self._columns[name]

    def __len__(self) -> int:
        return len(self._columns["start"])


_NOTHING: Ints = np.empty(0, np.int64)


def small(column: NDArray[Any]) -> NDArray[Any]:
    """The column, read-only where it has the same value in every row: then it takes the memory of one.

    Most columns of a trace without ops, or of one huge graph launch, are such.
    """
    if len(column) < 2 or column[0] != column[-1] or (column != column[0]).any():
        return column
    return np.broadcast_to(column[:1].copy(), len(column))
