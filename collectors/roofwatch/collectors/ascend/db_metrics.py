"""Pipe metrics of a database: a row for each metric of each task, thirty times as many as there are tasks.

Only the ratios that are used are asked for, and none that is 0: a metric that the table has is 0 for a task that has
metrics at all, which one metric, read in full, tells.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import numpy as np

from roofwatch.collectors.ascend.columns import OCCUPIED, PIPES
from roofwatch.collectors.ascend.common import Found, PipeSums
from roofwatch.collectors.ascend.db_file import Database
from roofwatch.collectors.ascend.db_rows import Records

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]
    Floats = NDArray[np.float64]

_PER_CENT = 100.0
_MAX_NAME = 1 << 31
_LARGEST = 1 << 53  # whole number that a double holds


def add_pipes(database: Database, records: Records, found: Found, dropped: Counter[str]) -> None:
    """Gives the groups their pipes, where the database has metrics; what cannot be used is counted by reason."""
    names = _metrics(database)
    if not names or not len(records.task):
        return
    tasks = _Tasks(records, timed=database.has("TASK_PMU_INFO", "timestampNs"))
    rows = records.rows
    sums = PipeSums(found.which, rows.end - rows.start, len(found.groups))
    for pipe in dict.fromkeys(pipe for pipe, _ in names.values()):
        sums.know(pipe)
    base = int(rows.start.min())
    first, spread = min(names), max(names) - min(names) + 1
    for block in database.floats(_query(database, list(names), base), 3 if tasks.timed else 2):
        task, name = np.divmod(block[:, 0].astype(np.int64), spread)
        time = block[:, 2].astype(np.int64) + base if tasks.timed else None
        at = tasks.rows(task, time, dropped)
        known = at >= 0
        for one in np.unique(name).tolist():
            pipe, scale = names[one + first]
            chosen = known & (name == one)
            sums.add(pipe, at[chosen], block[chosen, 1] / scale)
    dropped["bad_metric"] += sums.bad
    found.with_pipes(sums)


def _metrics(database: Database) -> dict[int, tuple[str, float]]:
    """Id of a metric's name → the pipe it is of, and by what to divide its values.

    A name stands among the texts only if some table uses it.
    """
    if not database.has("TASK_PMU_INFO", "globalTaskId", "name", "value") or not database.has("STRING_IDS", "value"):
        return {}
    wanted = {name: (pipe, 1.0) for name, pipe in PIPES.items()} | {OCCUPIED: ("occupied_ns", _PER_CENT)}
    marks = ",".join(f"'{name}'" for name in wanted)
    texts = database.values(f"select id,value from STRING_IDS where value in ({marks})", 1000)  # noqa: S608 - ours
    return {one: wanted[str(name)] for one, name in texts if isinstance(one, int) and 0 <= one < _MAX_NAME}


def _query(database: Database, names: list[int], base: int) -> str:
    """SQL for task and metric in one number (cells are what takes time), value, and time less ``base``."""
    timed = f",cast(timestampNs as integer)-{base:d}" if database.has("TASK_PMU_INFO", "timestampNs") else ""
    first, spread = min(names), max(names) - min(names) + 1
    marks = ",".join(f"{name:d}" for name in names)
    return (
        f"select cast(globalTaskId as integer)*{spread:d}+name-{first:d},cast(value as real){timed} "  # noqa: S608 - ours
        f"from TASK_PMU_INFO where name in ({marks}) and (value!=0 or name={first:d}) "
        f"and value notnull and globalTaskId between 0 and {_LARGEST // spread:d}"
    )


class _Tasks:
    """Ids of tasks → rows. One id may be of several records (a graph that is launched again): the time tells which."""

    def __init__(self, records: Records, *, timed: bool) -> None:
        task = records.task
        start = records.rows.start[: len(task)]
        order = np.argsort(task, kind="stable")
        if (np.diff(task[order]) == 0).any():
            order = np.lexsort((start, task))
        self._order = order.astype(np.int32)
        self._ids = task[order]
        same = np.diff(self._ids) == 0
        self._several = np.append(same, False) | np.append(False, same)
        self.timed = timed
        self._start, self._end = start, records.rows.end

    def rows(self, task: Ints, time: Ints | None, dropped: Counter[str]) -> Ints:
        """The row of each task; -1 where it has none, or it cannot be told which."""
        ids = self._ids
        at = np.minimum(np.searchsorted(ids, task), len(ids) - 1)
        found = np.where(ids[at] == task, self._order[at], -1).astype(np.int64)
        (asked,) = np.nonzero((found >= 0) & self._several[at])
        if len(asked):
            found[asked] = -1 if time is None else self._by_time(task[asked], at[asked], time[asked])
            dropped["ambiguous_metric"] += int(np.count_nonzero(found[asked] < 0))
        return found

    def _by_time(self, task: Ints, low: Ints, time: Ints) -> Ints:
        """Of the records of a task, in order of their start from ``low`` on, the one that ran at a time."""
        first, high = low, np.searchsorted(self._ids, task, side="right")
        low = low.copy()
        while (open_ := low < high).any():
            middle = (low + high) // 2
            begun = self._start[self._order[np.where(open_, middle, 0)]] <= time
            low = np.where(open_ & begun, middle + 1, low)
            high = np.where(open_ & ~begun, middle, high)
        row = self._order[np.maximum(low - 1, first)].astype(np.int64)
        return np.where((low > first) & (self._end[row] >= time), row, -1)
