"""Device records of one table of a database, and what is asked of its columns."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from roofwatch.collectors.ascend import values
from roofwatch.collectors.ascend.common import NOTHING, What
from roofwatch.collectors.ascend.db_file import Database
from roofwatch.collectors.ascend.near import near
from roofwatch.collectors.kineto.columns import MAX_DURATION_NS

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]
    Narrow = NDArray[np.integer[Any]]

_LARGEST_DEVICE = 1 << 31
_LATEST = 1 << 62
_ABSENT = np.array([4_294_967_295, 65_534, 65_535])


@dataclass(slots=True)
class Part:
    """Records of one table."""

    start: Ints
    end: Ints
    device: Narrow
    blocks: Narrow
    what: Narrow
    whats: Sequence[What]
    connection: Ints
    task: Ints
    bytes: Ints | None = None


def only(database: Database, table: str, column: str) -> int | None:
    """The one value of a column; None where there are several."""
    if not database.has(table, column):
        return NOTHING
    value = database.numbers(table, column)
    found = database.values(f"select min({value}),max({value}) from {table}", 1)  # noqa: S608 - ours
    least, most = found[0] if found else (None, None)
    return least if isinstance(least, int) and least == most else None


def some_of(part: Part, mask: NDArray[np.bool_]) -> Part:
    """Some records of a part."""
    task = part.task[mask] if len(part.task) else part.task
    moved = None if part.bytes is None else part.bytes[mask]
    return replace(
        part, start=part.start[mask], end=part.end[mask], device=part.device[mask], blocks=part.blocks[mask],
        what=part.what[mask], connection=part.connection[mask], task=task, bytes=moved,
    )  # fmt: skip


def good_times(start: Ints, end: Ints, dropped: Counter[str], middle: int | None = None) -> NDArray[np.bool_]:
    """Which rows begin and end at times that can be, near ``middle`` if that is given; the others are counted."""
    bad_time = (start <= 0) | (start >= _LATEST) | (end >= _LATEST)
    bad_length = ~bad_time & ((end < start) | (end - np.where(bad_time, end, start) > MAX_DURATION_NS))
    dropped["bad_time"] += int(np.count_nonzero(bad_time))
    dropped["bad_duration"] += int(np.count_nonzero(bad_length))
    good: NDArray[np.bool_] = ~(bad_time | bad_length)
    if middle is not None and not (close := near(start, middle)).all():
        dropped["bad_time"] += int(np.count_nonzero(good & ~close))
        good &= close
    return good


def ids_of(column: Ints) -> Ints:
    """Ids of devices; NOTHING where there is none."""
    return np.where((column >= 0) & (column < _LARGEST_DEVICE), column, NOTHING)


def blocks_of(column: Ints) -> Ints:
    """Numbers of blocks; NOTHING where there is none (0) or the value stands for nothing."""
    return np.where((column > 0) & (column < values.MAX_BLOCKS) & ~np.isin(column, _ABSENT), column, NOTHING)


def narrow(column: Ints) -> Narrow:
    """The same numbers in four bytes each where they fit."""
    fits = len(column) == 0 or (column.min() >= -(1 << 31) and column.max() < 1 << 31)
    return column.astype(np.int32) if fits else column.copy()


def no_part() -> Part:
    """The records of a table that is not there."""
    none = np.empty(0, dtype=np.int64)
    return Part(none, none, none, none, none.astype(np.int32), [], none, none)
