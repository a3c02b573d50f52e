"""``analysis.db``: the collectives of a capture, and nothing of its kernels.

A capture that was copied without its large files still has it.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import numpy as np

from roofwatch.collectors.ascend import values
from roofwatch.collectors.ascend.common import NOTHING, Message, Rows, What, collectives_of, constant, groups_of
from roofwatch.collectors.ascend.db_file import Database
from roofwatch.collectors.ascend.db_parts import good_times
from roofwatch.collectors.ascend.near import Whole, kept, middle_of
from roofwatch.collectors.ascend.timeline import Linked
from roofwatch.collectors.base import Limits, RawDevice, RawProfile
from roofwatch.model.errors import RoofwatchError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]

_TABLE = "CommAnalyzerTime"
_COLUMNS = ("hccl_op_name", "start_timestamp", "elapse_time", "group_name")
_NAME = 256  # characters
LATEST = 1 << 54  # quarter microseconds, or picoseconds: 570 years, or five hours
_TOTAL = "Total Op Info"  # a row of sums


def has_analysis(database: Database) -> bool:
    """Whether it is such a database."""
    return database.has(_TABLE, *_COLUMNS) or database.has("StepTraceTime", "step")


def analysis_of(database: Database, limits: Limits, collector: str) -> RawProfile:
    """The collectives as records. Times are microseconds, written as a number: a start is exact to a quarter of one.

    Raises:
        RoofwatchError: there are none.
    """
    dropped: Counter[str] = Counter()
    start, duration, whats, what = _collectives(database, limits.max_events)
    good = good_times(start, start + duration, dropped)
    good[good] = kept(start[good], (start + duration)[good], middle_of([start[good]]), dropped)
    if not good.any():
        raise RoofwatchError(
            f"{database.name} is the analysis of a capture without collectives, and has no kernels: give its "
            "ascend_pytorch_profiler_N.db or kernel_details.csv."
        )
    start, end, what = start[good], (start + duration)[good], what[good]
    rows = Rows(start, end, what, whats, np.zeros_like(start), constant(len(start), NOTHING))
    linked = _linked(rows)
    found = groups_of(rows, linked.origins(start), limits.max_groups)
    steps = _step_rows(database)
    device = RawDevice("ascend", "", index=_device(database))
    linked.add_timelines([device], rows)
    begin = int(start.min())
    entries, dropped["over_collective_limit"] = collectives_of(rows, begin)
    return RawProfile(
        collector=collector,
        devices=[device],
        groups=found.groups,
        collectives=entries,
        start_unix_ns=begin,
        duration_ns=int(end.max()) - begin,
        steps=steps,
        has_host_events=False,
        shapes_recorded=False,
        events_read=len(good),
        dropped={reason: lost for reason, lost in sorted(dropped.items()) if lost},
        problem=database.problem or f"{database.name} has the collectives of a capture alone: none of its kernels.",
    )


def _linked(rows: Rows) -> Linked:
    """The records, tied to nothing."""
    columns = Whole(_NAME)
    names = np.array([columns.names[one.kernel] for one in rows.whats], dtype=np.int64)
    nothing = constant(len(rows), NOTHING)
    columns.device.add(start=rows.start, end=rows.end, name=names[rows.what], sort=nothing + 1, correlation=nothing)
    columns.close()
    return Linked(columns)


def _collectives(database: Database, limit: int) -> tuple[Ints, Ints, list[What], Ints]:
    """Starts and durations in nanoseconds, and of each what it is."""
    rows: list[tuple[object, ...]] = []
    if database.has(_TABLE, *_COLUMNS):
        name, group = (f"substr({column},1,{_NAME:d})" for column in ("hccl_op_name", "group_name"))
        # Whole numbers of quarter microseconds and of picoseconds fit a double, nanoseconds since 1970 do not.
        sql = (
            f"select {name},{group},cast(start_timestamp*4+0.5 as integer),cast(elapse_time*1000000+0.5 as integer) "  # noqa: S608 - ours
            f"from {_TABLE}"
        )
        rows = [row for row in database.values(sql, min(limit, 1_000_000)) if row[0] != _TOTAL]
    known: dict[What, int] = {}
    start, duration, what = [], [], []
    for called, of, begun, elapsed in rows:
        if not isinstance(called, str) or type(begun) is not int or type(elapsed) is not int:
            continue
        if not (0 <= begun < LATEST and 0 <= elapsed < LATEST):
            continue
        word = values.collective_word(called)
        told = values.word(of) if isinstance(of, str) else None
        one = What(word, type=word, core="COMMUNICATION", message=Message(word, group=told or ""))
        what.append(known.setdefault(one, len(known)))
        start.append(begun * 250)
        duration.append(elapsed)
    columns = (np.array(column, dtype=np.int64) for column in (start, duration, what))
    begun_at, lasted, which = columns
    return begun_at, lasted, list(known), which


def _step_rows(database: Database) -> int | None:
    """How many steps of the profiler there were; a capture without any has one nameless row."""
    if not database.has("StepTraceTime", "step"):
        return None
    steps = {row[0] for row in database.values("select distinct substr(step,1,64) from StepTraceTime", 100_000)}
    return len([one for one in steps if isinstance(one, str) and one.strip()]) or None


def _device(database: Database) -> int | None:
    devices = np.unique(database.columns_of("StepTraceTime", ("deviceId",), limit=1000))
    return int(devices[0]) if len(devices) == 1 and 0 <= devices[0] < 1 << 31 else None
