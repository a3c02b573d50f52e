"""The clock of a database's cube cores, recovered from the cycles of its kernels, where no table tells it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from roofwatch.collectors.ascend.clock import MAX_SAMPLES, clock_of

if TYPE_CHECKING:
    from roofwatch.collectors.ascend.db_file import Database
    from roofwatch.collectors.ascend.db_rows import Records

_CYCLES, _TIME = "aic_total_cycles", "aic_total_time"  # the time is of one core, in ns
_CUBE = "AI_CORE"


def recovered_clock(database: Database, records: Records) -> float | None:
    """Hz, from kernels that ran on cube cores alone; None without such kernels or metrics, or where they disagree."""
    if not database.has("TASK_PMU_INFO", "globalTaskId", "name", "value") or not database.has("STRING_IDS", "value"):
        return None
    told = database.values(f"select value,id from STRING_IDS where value in ('{_CYCLES}','{_TIME}')", 4)  # noqa: S608
    ids = {str(name): one for name, one in told if isinstance(one, int)}
    if len(ids) != 2 or not len(records.task):
        return None
    sql = (
        "select cast(globalTaskId as real),name,cast(value as real) from TASK_PMU_INFO "  # noqa: S608 - numbers of ours
        f"where name in ({ids[_CYCLES]:d},{ids[_TIME]:d}) and value>0 limit {2 * MAX_SAMPLES:d}"
    )
    found = np.concatenate([np.empty((0, 3)), *database.floats(sql, 3)])
    cycles, time = (found[found[:, 1] == ids[name]] for name in (_CYCLES, _TIME))
    task, at, where = np.intersect1d(cycles[:, 0], time[:, 0], return_indices=True)
    order = np.argsort(records.task, kind="stable")
    place = np.minimum(np.searchsorted(records.task, task, sorter=order), len(order) - 1)
    row = order[place]
    rows = records.rows
    on_cube = np.array([what.core == _CUBE for what in rows.whats], dtype=np.bool_)[rows.what[row]]
    good = on_cube & (records.task[row] == task)
    blocks = rows.blocks[row].astype(np.float64)
    return clock_of(cycles[at, 2][good], blocks[good], time[where, 2][good] / 1e3)
