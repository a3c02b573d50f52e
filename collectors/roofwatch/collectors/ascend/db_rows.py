"""Device records of a database: compute tasks, collectives, and copies where the source describes them.

A task that is none of these (event, notify, wait, the parent of a task in parts) does no work and is no record. The
tasks that a collective is made of are parts of its record.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from roofwatch.collectors.ascend.common import NOTHING, Rows, constant
from roofwatch.collectors.ascend.db_file import Database
from roofwatch.collectors.ascend.db_moves import communication, copies
from roofwatch.collectors.ascend.db_parts import Part, blocks_of, good_times, ids_of, narrow, no_part, some_of
from roofwatch.collectors.ascend.db_texts import Kinds, Texts, packed
from roofwatch.collectors.ascend.near import kept, middle_of
from roofwatch.collectors.base import Limits
from roofwatch.model.errors import RoofwatchError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    Ints = NDArray[np.int64]
    Narrow = NDArray[np.integer[Any]]

MAX_DEVICES = 256
_IDS = ("name", "opType", "taskType", "inputFormats", "inputDataTypes", "inputShapes",
        "outputFormats", "outputDataTypes", "outputShapes")  # fmt: skip
_HF32 = "hf32Eligible"  # since schema 1.1
_FIXED = 3  # columns before the packed ids: start, end, device and blocks in one
_LOW = (1 << 32) - 1


@dataclass(frozen=True, slots=True)
class Records:
    """Device records with the ids that tie them to other tables; NOTHING where they have none."""

    rows: Rows
    task: Ints  # compute tasks only, the first ``len(task)`` rows
    connection: Narrow
    devices: list[int]  # device ids by position
    middle: int | None  # when the middle one begins


def records_of(database: Database, texts: Texts, limits: Limits, dropped: Counter[str]) -> Records:
    """All device records; what cannot be one is counted in ``dropped`` by reason.

    Raises:
        RoofwatchError: there are none.
    """
    compute = _compute(database, texts, limits.max_events, dropped)
    parts = [
        compute,
        communication(database, texts, compute.device, limits.max_events, dropped),
        copies(database, limits.max_events, dropped),
    ]
    middle = middle_of([part.start for part in parts])
    masks = [kept(part.start, part.end, middle, dropped) for part in parts]
    parts = [part if mask.all() else some_of(part, mask) for part, mask in zip(parts, masks, strict=True)]
    compute = parts[0]
    total = sum(len(part.start) for part in parts)
    if not total:
        lost = ", ".join(f"{count} {reason.replace('_', ' ')}" for reason, count in sorted(dropped.items()) if count)
        why = database.problem or f"{database.name} holds no compute task and no communication operation"
        raise RoofwatchError(why.rstrip(".") + (f" (dropped: {lost})" if lost else "") + ".")
    device = np.concatenate([part.device for part in parts])
    devices, position = _positions(device)
    offsets = np.cumsum([0, *(len(part.whats) for part in parts)])[:-1].tolist()
    moved = None
    if len(parts[-1].start):
        unknown = (np.full(len(part.start), NOTHING) for part in parts)
        moved = np.concatenate(
            [no if part.bytes is None else part.bytes for part, no in zip(parts, unknown, strict=True)]
        )
    rows = Rows(
        start=np.concatenate([part.start for part in parts]),
        end=np.concatenate([part.end for part in parts]),
        what=np.concatenate([part.what + np.int32(o) for part, o in zip(parts, offsets, strict=True)]),
        whats=[what for part in parts for what in part.whats],
        device=position,
        blocks=np.concatenate([part.blocks for part in parts]),
        bytes=moved,
    )
    connection = (
        np.concatenate([part.connection for part in parts]) if is_linked(database) else constant(total, NOTHING)
    )
    return Records(rows, compute.task, connection, devices, middle)


def _positions(device: Narrow) -> tuple[list[int], Ints]:
    """The devices' ids, and for each record the position of its own among them."""
    least, most = int(device.min()), int(device.max())
    if least == most:
        return [least], np.broadcast_to(np.int64(0), device.shape)
    found, counts = np.unique(device, return_counts=True)
    if len(found) > MAX_DEVICES:  # a damaged file
        kept = found[np.argsort(-counts, kind="stable")[:MAX_DEVICES]]
        device = np.where(np.isin(device, kept), device, NOTHING)
    found, position = np.unique(device, return_inverse=True)
    return found.tolist(), position.astype(np.int64)


# -- compute tasks -----------------------------------------------------------------------------------------------------


def block_column(database: Database) -> str | None:
    """The column with the number of blocks. Beside ``blockNum``, ``blockDim`` is something else: a text's id."""
    return database.first_of("COMPUTE_TASK_INFO", "blockNum", "blockDim", "block_dim")


def _compute(database: Database, texts: Texts, limit: int, dropped: Counter[str]) -> Part:
    if not database.has("COMPUTE_TASK_INFO", "globalTaskId") or not database.has("TASK", "startNs", "globalTaskId"):
        return no_part()
    ids = [database.plain("COMPUTE_TASK_INFO", column, "c") for column in _IDS]
    ids.append(database.plain("TASK", "taskType", "t"))
    if database.has("COMPUTE_TASK_INFO", _HF32):
        ids += [database.plain("COMPUTE_TASK_INFO", _HF32, "c"), "-1"]
    fixed = [database.numbers("TASK", column, "t") for column in ("startNs", "endNs")]
    blocks = database.plain("COMPUTE_TASK_INFO", block_column(database), "c")
    fixed.append(packed(database.plain("TASK", "deviceId", "t"), blocks))
    pairs = [packed(left, right) for left, right in zip(ids[::2], ids[1::2], strict=True)]
    linked = [("TASK", "connectionId", is_linked(database)), ("TASK", "globalTaskId", _is_measured(database))]
    fixed += [database.numbers(table, column, "t") for table, column, wanted in linked if wanted]
    sql = (
        f"select {','.join(fixed)},{','.join(pairs)} from TASK t cross join COMPUTE_TASK_INFO c "  # noqa: S608 - ours
        f"where c.globalTaskId=t.globalTaskId limit {limit + 1:d}"
    )
    found = _Blocks(len(fixed), [wanted for *_, wanted in linked])
    for block in database.integers(sql, len(fixed) + len(pairs)):
        found.add(block, dropped)
    dropped["without_task"] += _without_task(database, found.seen)
    return found.part(texts, limit, dropped)


class _Blocks:
    """Compute tasks as they stream by, kept in as few bytes as they need."""

    def __init__(self, fixed: int, linked: Sequence[bool]) -> None:
        self.seen = 0
        self._fixed = fixed
        self._linked = linked
        self._kinds = Kinds()
        self._columns: list[tuple[Narrow, ...]] = []

    def add(self, block: Ints, dropped: Counter[str]) -> None:
        """Takes a block of rows."""
        self.seen += len(block)
        good = good_times(block[:, 0], block[:, 1], dropped)
        block = block if good.all() else block[good]
        ids = [narrow(block[:, _FIXED + i]) for i in range(self._fixed - _FIXED)]
        self._columns.append(
            (
                block[:, 0].copy(),
                block[:, 1].copy(),
                narrow(ids_of(block[:, 2] >> 32)),
                narrow(blocks_of(block[:, 2] & _LOW)),
                self._kinds.of(block[:, self._fixed :]),
                *ids,
            )
        )

    def part(self, texts: Texts, limit: int, dropped: Counter[str]) -> Part:
        """All that was taken, up to a limit."""
        if not self._columns:
            return no_part()
        columns = []
        for at in range(len(self._columns[0])):
            columns.append(np.concatenate([block[at] for block in self._columns])[:limit])
            self._columns = [(*block[:at], np.empty(0, np.int8), *block[at + 1 :]) for block in self._columns]
        start, end, device, blocks, kind, *ids = columns
        dropped["over_event_limit"] += self.seen > limit
        whats, place = self._kinds.whats(texts)
        given = iter(ids)
        connection, task = (next(given) if wanted else np.empty(0, np.int64) for wanted in self._linked)
        if not self._linked[0]:
            connection = np.broadcast_to(np.int8(NOTHING), start.shape)
        return Part(start, end, device, blocks, place[kind], whats, connection, task)


def is_linked(database: Database) -> bool:
    """Whether anything of the host is there that records could be tied to."""
    return database.has("CANN_API", "connectionId") or database.has("PYTORCH_API", "connectionId")


def _is_measured(database: Database) -> bool:
    return database.has("TASK_PMU_INFO", "globalTaskId", "name", "value")


def _without_task(database: Database, joined: int) -> int:
    found = database.values("select count(*) from COMPUTE_TASK_INFO", 1)
    count = found[0][0] if found else 0
    return max(0, count - joined) if isinstance(count, int) else 0
