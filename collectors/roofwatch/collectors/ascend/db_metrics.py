"""Pipe metrics of a database: a row for each metric of each task, thirty times as many as there are tasks.

Only the ratios that are used are asked for, and none that is 0: a metric that the table has is 0 for a task that has
metrics at all, which one metric, read in full, tells.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from roofwatch.collectors.ascend.columns import AMOUNTS, CYCLES, KIB, OCCUPIED, PIPES, RATES
from roofwatch.collectors.ascend.common import Found, PipeSums
from roofwatch.collectors.ascend.csv_head import is_of_a_type, is_strange
from roofwatch.collectors.ascend.db_file import Database
from roofwatch.collectors.ascend.db_rows import Records

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]
    Floats = NDArray[np.float64]


class Metric(NamedTuple):
    """What a metric tells: a field of ``base.Pipes`` or, of ``RATES`` and ``CYCLES``, the side whose cores it is of."""

    field: str
    scale: float = 1.0  # its values times this are ratios, bytes, bytes/s or cycles


_PER_CENT = 0.01
_MOVED = "moved_bytes"
_RATES_OF = {"aic rate": "aic cycles", "aiv rate": "aiv cycles"}
_SIDES = frozenset((*_RATES_OF, *_RATES_OF.values()))
# Rates are bytes a second here, without a unit in the name; amounts keep theirs, or have lost it.
_WANTED = {
    **{name: Metric(field) for name, field in PIPES.items()},
    OCCUPIED: Metric("occupied_ns", _PER_CENT),
    **{name: Metric(f"{side} rate") for name, side in RATES.items()},
    **{f"{name}{unit}": Metric(_MOVED, KIB) for name in AMOUNTS for unit in ("", "(KB)")},
    **{name: Metric(f"{side} cycles") for side, names in CYCLES.items() for name in names},
}
_MAX_NAME = 1 << 31
_LARGEST = 1 << 53  # whole number that a double holds


def add_pipes(
    database: Database, records: Records, found: Found, dropped: Counter[str], clocks: Sequence[float | None]
) -> None:
    """Gives the groups their pipes, where the database has metrics; what cannot be used is counted by reason.

    ``clocks``: of each device in Hz, without which cycles tell nothing.
    """
    names = _metrics(database)
    if not names or not len(records.task):
        return
    dropped["unknown_metric"] += _strange(database)
    tasks = _Tasks(records, timed=database.has("TASK_PMU_INFO", "timestampNs"))
    rows = records.rows
    sums = PipeSums(found.which, rows.end - rows.start, len(found.groups))
    cycles = _Cycles(rows.device, clocks, names)
    for field in dict.fromkeys(metric.field for metric in names.values()):
        if field not in _SIDES:
            sums.know(field)
    base = int(rows.start.min())
    first, spread = min(names), max(names) - min(names) + 1
    for block in database.floats(_query(database, list(names), base), 3 if tasks.timed else 2):
        task, name = np.divmod(block[:, 0].astype(np.int64), spread)
        time = block[:, 2].astype(np.int64) + base if tasks.timed else None
        at = tasks.rows(task, time, dropped)
        known = at >= 0
        for one in np.unique(name).tolist():
            metric = names[one + first]
            chosen = known & (name == one)
            values = block[chosen, 1] * metric.scale
            if metric.field in _SIDES:
                cycles.take(metric.field, at[chosen], values)
            else:
                (sums.add_amount if metric.field == _MOVED else sums.add)(metric.field, at[chosen], values)
    cycles.give(sums)
    dropped["bad_metric"] += sums.bad
    found.with_pipes(sums)


class _Cycles:
    """Cycles of each task's cores, and rates of traffic over them: two metrics that stand in rows of their own."""

    def __init__(self, device: Ints, clocks: Sequence[float | None], names: Mapping[int, Metric]) -> None:
        fields = {metric.field for metric in names.values()}
        known = any(clock is not None for clock in clocks)
        self._clock = np.array([np.nan if clock is None else clock for clock in clocks])
        self._device = device
        self._rated = known and bool(fields & _RATES_OF.keys())
        self._occupied = known and "occupied_ns" not in fields
        wanted = fields if self._rated else {"aic cycles"} if self._occupied else set()
        self._columns = {field: np.zeros(len(device)) for field in _SIDES if field in wanted & fields}
        self._seen = np.zeros(len(device), dtype=np.bool_)

    def take(self, field: str, rows: Ints, values: Floats) -> None:
        """Takes the values of rows."""
        if field in self._columns:
            self._columns[field][rows] += values  # a row has a metric once; rates of reading and writing add up
            self._seen[rows] = True

    def give(self, sums: PipeSums) -> None:
        """Adds what follows from them."""
        (rows,) = np.nonzero(self._seen)
        clock = self._clock[self._device[rows]]
        columns = {field: column[rows] for field, column in self._columns.items()}
        if self._occupied and "aic cycles" in columns:
            sums.add_amount("core_ns", rows, columns["aic cycles"] / clock * 1e9)
        if self._rated:
            moved = np.zeros(len(rows))
            for rate, cycles in _RATES_OF.items():
                if rate in columns and cycles in columns:
                    moved += columns[rate] * columns[cycles] / clock
            sums.add_amount(_MOVED, rows, moved)


def _metrics(database: Database) -> dict[int, Metric]:
    """Id of a metric's name → what it tells. A name stands among the texts only if some table uses it."""
    if not database.has("TASK_PMU_INFO", "globalTaskId", "name", "value") or not database.has("STRING_IDS", "value"):
        return {}
    marks = ",".join(f"'{name}'" for name in _WANTED)
    texts = database.values(f"select id,value from STRING_IDS where value in ({marks})", 1000)  # noqa: S608 - ours
    named = {one: str(name) for one, name in texts if isinstance(one, int) and 0 <= one < _MAX_NAME}
    whole = {PIPES[name] for name in named.values() if name in PIPES and not is_of_a_type(name)}
    return {
        one: _WANTED[name] for one, name in named.items() if not (is_of_a_type(name) and _WANTED[name].field in whole)
    }


def _strange(database: Database) -> int:
    """How many metrics nothing here knows, of those that the first tasks have."""
    sql = (
        "select distinct s.value from (select name from TASK_PMU_INFO limit 2000) p "
        "cross join STRING_IDS s where s.id=p.name"
    )
    return sum(isinstance(name, str) and is_strange(name) for (name,) in database.values(sql, 200))


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
