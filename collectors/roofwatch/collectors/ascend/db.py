"""From a database of Ascend's profilers (``ascend_pytorch_profiler_N.db``, ``msprof_*.db``) to a raw profile."""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING, BinaryIO

import numpy as np

from roofwatch.collectors.ascend import values
from roofwatch.collectors.ascend.common import collectives_of, groups_of
from roofwatch.collectors.ascend.db_analysis import analysis_of, has_analysis
from roofwatch.collectors.ascend.db_clock import recovered_clock
from roofwatch.collectors.ascend.db_file import Database, opened
from roofwatch.collectors.ascend.db_host import HostSide, host_of
from roofwatch.collectors.ascend.db_metrics import add_pipes
from roofwatch.collectors.ascend.db_rows import Records, records_of
from roofwatch.collectors.ascend.db_texts import Texts
from roofwatch.collectors.ascend.lost import mostly_lost
from roofwatch.collectors.ascend.timeline import Linked
from roofwatch.collectors.base import Limits, RawDevice, RawProfile
from roofwatch.collectors.kineto.bounds import taken
from roofwatch.model.errors import RoofwatchError

if TYPE_CHECKING:
    from roofwatch.collectors.kineto.source import Progress

COLLECTOR = "ascend_db"
_MAX_STEPS = 1000  # whose lengths are told
_MAX_META = 1 << 20  # characters of one entry of META_DATA
# Databases that are not this reader's, by a table that they have: what it is, and what to give.
_OTHERS = (
    ("cupti_activity_kind_kernel", "an export of Nsight Systems", "give a trace of the PyTorch profiler"),
    ("clusterbaseinfo", "a result of a cluster analysis", "give the ascend_pytorch_profiler_N.db of one rank"),
    ("ascendtask", "a raw database of a PROF folder", "give the folder's msprof_*.db"),
    ("tasktime", "a raw database of a PROF folder", "give the folder's msprof_*.db"),
)


def read(
    file: BinaryIO,
    limits: Limits,
    progress: Progress | None = None,
    name: str = "the database",
    bounds: tuple[int, int] | None = None,
    *,
    path: str | None = None,
) -> RawProfile:
    """Reads a database.

    Args:
        file: open for reading in binary.
        limits: how much is taken before the rest is counted as dropped.
        progress: called with bytes and size of the file; it jumps, for SQLite reads where it likes.
        name: what messages call the file.
        bounds: begin and end of the window in Unix nanoseconds, from who took it.
        path: where the file lies, if it may be opened by that; else it is read into memory.

    Raises:
        RoofwatchError: there is nothing in it that could be accounted for; the message says what is wrong and where.
    """
    database = opened(file, name, path)
    try:
        if not _has_records(database) and has_analysis(database):
            return analysis_of(database, limits, COLLECTOR)
        _require_tables(database)
        return _profile(database, limits, _Steps(file, progress), bounds)
    finally:
        database.close()


class _Steps:
    """Progress in four strides."""

    def __init__(self, file: BinaryIO, progress: Progress | None) -> None:
        self._size = file.seek(0, 2)
        self._progress = progress

    def at(self, share: float) -> None:
        if self._progress is not None:
            self._progress(int(self._size * share), self._size)


def _has_records(database: Database) -> bool:
    return database.has("TASK", "startNs") or database.has("COMMUNICATION_OP", "startNs")


def _require_tables(database: Database) -> None:
    if _has_records(database):
        return
    known = next(((what, advice) for table, what, advice in _OTHERS if table in database.tables), None)
    if known is not None:
        raise RoofwatchError(f"{database.name} is {known[0]}, which is not read here: {known[1]}.")
    if not database.tables:
        raise RoofwatchError(
            f"{database.name} is an SQLite database without a table: its writer may not have finished."
        )
    raise RoofwatchError(
        f"{database.name} is an SQLite database without the tables TASK and COMPUTE_TASK_INFO, so it is not from an "
        "Ascend profiler."
    )


def _profile(database: Database, limits: Limits, steps: _Steps, bounds: tuple[int, int] | None) -> RawProfile:
    dropped: Counter[str] = Counter()
    texts = Texts(database)
    steps.at(0.0)
    records = records_of(database, texts, limits, dropped)
    lost = mostly_lost(len(records.rows), dropped)
    steps.at(0.3)
    side = host_of(database, texts, records, limits.max_events, dropped)
    steps.at(0.5)
    window = None if bounds is None else taken(bounds, 0, side.columns)
    linked = Linked(side.columns, window, side.backward)
    rows = records.rows
    found = groups_of(rows, linked.origins(rows.start), limits.max_groups)
    devices = _devices(database, records)
    add_pipes(database, records, found, dropped, [device.clock_hz for device in devices])
    steps.at(0.9)
    linked.add_timelines(devices, rows, side.returned)
    start, end = bounds or _hull(side)
    entries, dropped["over_collective_limit"] = collectives_of(rows, start if window is None else window.start)
    dropped.update(unfinished=side.unfinished, over_group_limit=found.folded, over_text_limit=texts.overflown)
    dropped["clock_disagreement"] = int(window is not None and not window.agrees)
    host = linked.host
    rank, world_size = _rank(database)
    steps.at(1.0)
    return RawProfile(
        collector=COLLECTOR,
        devices=devices,
        groups=found.groups,
        collectives=entries,
        start_unix_ns=start,
        duration_ns=end - start,
        steps=host.steps,
        has_host_events=linked.has_host,
        shapes_recorded=any(group.shapes is not None for group in found.groups),
        events_read=database.rows_read,
        pid=_process(database),
        rank=rank,
        world_size=world_size,
        dropped={reason: count for reason, count in sorted(dropped.items()) if count},
        problem=database.problem or (lost and f"{database.name}: {lost}."),
        python_events=side.python_events,
        step_ns=tuple((host.step_ends - host.step_starts)[:_MAX_STEPS].tolist()) if window is None else (),
    )


def _hull(side: HostSide) -> tuple[int, int]:
    """Begin and end of all that was recorded."""
    columns = side.columns
    filled = [table for table in (columns.ops, columns.device, columns.host, columns.notes) if len(table)]
    return min(int(table["start"].min()) for table in filled), max(int(table["end"].max()) for table in filled)


def _devices(database: Database, records: Records) -> list[RawDevice]:
    """The devices that have records. A database names only the family of a chip: Ascend910B is every 910B and 910C."""
    names = {}
    if database.has("NPU_INFO", "id", "name"):
        told = database.values("select id,substr(name,1,64) from NPU_INFO", 1000)
        names = {
            one: text for one, text in told if isinstance(one, int) and isinstance(text, str) and values.word(text)
        }
    only = next(iter(names.values()), "") if len(set(names.values())) == 1 else ""
    clocks = _clocks(database, int(records.rows.end.max()))
    recovered = None if clocks else recovered_clock(database, records)
    return [
        RawDevice("ascend", names.get(one, only), index=one if one >= 0 else None, clock_hz=clocks.get(one, recovered))
        for one in records.devices
    ]


def _clocks(database: Database, end: int) -> dict[int, float]:
    """Device → the clock of its AI cores that held longest, in Hz: each entry holds until the next."""
    device, time, freq = database.columns_of("AICORE_FREQ", ("deviceId", "timestampNs", "freq"), limit=1_000_000)
    good = (freq > 0) & (freq < 100_000) & (time > 0)
    found = {}
    for one in np.unique(device[good]).tolist():
        mine = good & (device == one)
        order = np.argsort(time[mine], kind="stable")
        begun, mhz = time[mine][order], freq[mine][order]
        held = np.maximum(np.diff(begun, append=max(end, int(begun[-1]))), 1)
        known, which = np.unique(mhz, return_inverse=True)
        found[one] = float(known[np.argmax(np.bincount(which, held))]) * 1e6
    return found


def _rank(database: Database) -> tuple[int | None, int | None]:
    """Rank and world size; None where not told."""
    world = None
    if database.has("META_DATA", "name", "value"):
        sql = f"select substr(value,1,{_MAX_META:d}) from META_DATA where name='distributed_args'"  # noqa: S608 - ours
        told = database.values(sql, 1)
        world = _number(told[0][0], "world_size") if told else None
    ranks = database.columns_of("RANK_DEVICE_MAP", ("rankId",), limit=2)[0].tolist()
    return (ranks[0] if len(ranks) == 1 and 0 <= ranks[0] < 1 << 31 else None), world


def _number(text: object, key: str) -> int | None:
    try:
        told = json.loads(text) if isinstance(text, str) else None
    except (ValueError, RecursionError):
        return None
    value = told.get(key) if isinstance(told, dict) else None
    return value if type(value) is int and 0 < value < 1 << 31 else None


def _process(database: Database) -> int | None:
    """The process that most tasks were of."""
    if not database.has("TASK", "globalPid"):
        return None
    found = database.values("select globalPid from TASK where globalPid>0 limit 1", 1)
    pid = found[0][0] if found else None
    return pid if isinstance(pid, int) and 0 < pid < 1 << 31 else None
