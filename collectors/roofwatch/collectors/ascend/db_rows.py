"""Device records of a database: compute tasks, collectives, and copies where the source describes them.

A task that is none of these (event, notify, wait, the parent of a task in parts) does no work and is no record. The
tasks that a collective is made of are parts of its record.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from roofwatch.collectors.ascend import values
from roofwatch.collectors.ascend.common import MEMCPY, NOTHING, Message, Rows, What, constant
from roofwatch.collectors.ascend.db_file import Database
from roofwatch.collectors.ascend.db_texts import Kinds, Texts, packed
from roofwatch.collectors.base import Limits
from roofwatch.collectors.kineto.columns import MAX_DURATION_NS
from roofwatch.model.errors import RoofwatchError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    Ints = NDArray[np.int64]
    Narrow = NDArray[np.integer]

MAX_DEVICES = 256
_LARGEST_DEVICE = 1 << 31
MAX_BYTES = 1 << 50
_LATEST = 1 << 62
_IDS = ("name", "opType", "taskType", "inputFormats", "inputDataTypes", "inputShapes",
        "outputFormats", "outputDataTypes", "outputShapes")  # fmt: skip
_FIXED = 3  # columns before the packed ids: start, end, device and blocks in one
_LOW = (1 << 32) - 1
_COMMUNICATION = ("startNs", "endNs", "opName", "opType", "groupName", "dataType", "count", "rankSize", "deviceId",
                  "connectionId", "opId")  # fmt: skip
# HCCL's data types by number, for databases without the table that names them.
_HCCL_DTYPES = ("INT8", "INT16", "INT32", "FP16", "FP32", "INT64", "UINT64", "UINT8", "UINT16", "UINT32", "FP64",
                "BFP16")  # fmt: skip


@dataclass(frozen=True, slots=True)
class Records:
    """Device records with the ids that tie them to other tables; NOTHING where they have none."""

    rows: Rows
    task: Ints  # compute tasks only, the first ``len(task)`` rows
    connection: Narrow
    devices: list[int]  # device ids by position


@dataclass(slots=True)
class _Part:
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


def records_of(database: Database, texts: Texts, limits: Limits, dropped: Counter[str]) -> Records:
    """All device records; what cannot be one is counted in ``dropped`` by reason.

    Raises:
        RoofwatchError: there are none.
    """
    compute = _compute(database, texts, limits.max_events, dropped)
    parts = [
        compute,
        _communication(database, texts, compute.device, limits.max_events, dropped),
        _copies(database, limits.max_events, dropped),
    ]
    total = sum(len(part.start) for part in parts)
    if not total:
        lost = ", ".join(f"{count} {reason.replace('_', ' ')}" for reason, count in sorted(dropped.items()) if count)
        why = database.problem or f"{database.name} holds no compute task and no communication operation"
        raise RoofwatchError(why.rstrip(".") + (f" (dropped: {lost})" if lost else "") + ".")
    device = np.concatenate([part.device for part in parts])
    devices, position = _positions(device)
    offsets = np.cumsum([0, *(len(part.whats) for part in parts)])[:-1].tolist()
    moved = [part.bytes if part.bytes is not None else np.full(len(part.start), NOTHING) for part in parts]
    rows = Rows(
        start=np.concatenate([part.start for part in parts]),
        end=np.concatenate([part.end for part in parts]),
        what=np.concatenate([part.what + np.int32(o) for part, o in zip(parts, offsets, strict=True)]),
        whats=[what for part in parts for what in part.whats],
        device=position,
        blocks=np.concatenate([part.blocks for part in parts]),
        bytes=np.concatenate(moved) if len(parts[2].start) else None,
    )
    connection = (
        np.concatenate([part.connection for part in parts]) if is_linked(database) else constant(total, NOTHING)
    )
    return Records(rows, compute.task, connection, devices)


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


def _compute(database: Database, texts: Texts, limit: int, dropped: Counter[str]) -> _Part:
    if not database.has("COMPUTE_TASK_INFO", "globalTaskId") or not database.has("TASK", "startNs", "globalTaskId"):
        return _no_part()
    ids = [database.plain("COMPUTE_TASK_INFO", column, "c") for column in _IDS]
    ids.append(database.plain("TASK", "taskType", "t"))
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

    def part(self, texts: Texts, limit: int, dropped: Counter[str]) -> _Part:
        """All that was taken, up to a limit."""
        if not self._columns:
            return _no_part()
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
        return _Part(start, end, device, blocks, place[kind], whats, connection, task)


def _only(database: Database, table: str, column: str) -> int | None:
    """The one value of a column; None where there are several."""
    if not database.has(table, column):
        return NOTHING
    value = database.numbers(table, column)
    found = database.values(f"select min({value}),max({value}) from {table}", 1)  # noqa: S608 - ours
    least, most = found[0] if found else (None, None)
    return least if isinstance(least, int) and least == most else None


def is_linked(database: Database) -> bool:
    """Whether anything of the host is there that records could be tied to."""
    return database.has("CANN_API", "connectionId") or database.has("PYTORCH_API", "connectionId")


def _is_measured(database: Database) -> bool:
    return database.has("TASK_PMU_INFO", "globalTaskId", "name", "value")


def _without_task(database: Database, joined: int) -> int:
    found = database.values("select count(*) from COMPUTE_TASK_INFO", 1)
    count = found[0][0] if found else 0
    return max(0, count - joined) if isinstance(count, int) else 0


# -- collectives and copies --------------------------------------------------------------------------------------------


def _communication(database: Database, texts: Texts, devices: Narrow, limit: int, dropped: Counter[str]) -> _Part:
    """Collectives; ``devices`` are those of the compute tasks."""
    columns = database.columns_of("COMMUNICATION_OP", _COMMUNICATION, limit=limit)
    columns = columns[:, good_times(columns[0], columns[1], dropped)]
    start, end, name, op_type, group, dtype, count, size, device, connection, op = columns
    if not len(start):
        return _no_part()
    texts.read(np.unique(np.concatenate([name, op_type, group])).tolist())
    words = _words(name, op_type, texts)
    dtypes = _enum(database, "ENUM_HCCL_DATA_TYPE") or dict(enumerate(_HCCL_DTYPES))
    keys = np.stack([words[1], group, dtype, count, size])
    different, what = np.unique(keys, axis=1, return_inverse=True)
    whats = [
        _collective(words[0][word], texts.name(group), dtypes.get(kind, ""), elements, ranks)
        for word, group, kind, elements, ranks in different.T.tolist()
    ]
    if not database.has("COMMUNICATION_OP", "deviceId"):
        device = _devices_of(database, op, devices)
    nothing = np.broadcast_to(np.int8(NOTHING), start.shape)
    return _Part(start, end, device, nothing, what.reshape(-1).astype(np.int32), whats, connection, op[:0])


def _words(name: Ints, op_type: Ints, texts: Texts) -> tuple[list[str], Ints]:
    """The library's words for collectives, and of each which: its type, else what its own name begins with."""
    word = {one: values.kernel_type(texts.name(one)) for one in np.unique(op_type).tolist()}
    known: dict[str, int] = {}
    place = [
        known.setdefault(word[kind] or values.collective_word(texts.name(one)) or "(no name)", len(known))
        for one, kind in zip(name.tolist(), op_type.tolist(), strict=True)
    ]
    return list(known), np.array(place, dtype=np.int64)


def _collective(word: str, group: str, dtype: str, elements: int, ranks: int) -> What:
    message = Message(
        word,
        group=values.word(group) or "",
        group_size=ranks if 0 < ranks < 1 << 31 and ranks not in values.ABSENT_IDS else None,
        dtype=values.word(dtype),
        elements=elements if 0 < elements < MAX_BYTES else None,
    )
    return What(word, type=word, core="COMMUNICATION", message=message)


def _devices_of(database: Database, op: Ints, devices: Narrow) -> Ints:
    """The device of each collective: the only one, or that of the tasks it is made of."""
    one: int | None = None
    if not len(devices):
        one = _only(database, "TASK", "deviceId")
    elif devices.min() == devices.max():
        one = int(devices[0])
    if one is not None:
        return np.full(len(op), one, dtype=np.int64)
    if not database.has("COMMUNICATION_TASK_INFO", "opId", "globalTaskId"):
        return np.full(len(op), NOTHING, dtype=np.int64)
    told = np.full(len(op), NOTHING, dtype=np.int64)
    order = np.argsort(op, kind="stable")
    numbers = database.numbers("COMMUNICATION_TASK_INFO", "opId", "i"), database.numbers("TASK", "deviceId", "t")
    sql = (
        f"select {','.join(numbers)} from TASK t cross join COMMUNICATION_TASK_INFO i "  # noqa: S608 - ours
        "where i.globalTaskId=t.globalTaskId"
    )
    for block in database.integers(sql, 2):
        at = np.minimum(np.searchsorted(op[order], block[:, 0]), len(op) - 1)
        known = op[order][at] == block[:, 0]
        told[order[at[known]]] = block[known, 1]
    return told


def _copies(database: Database, limit: int, dropped: Counter[str]) -> _Part:
    """Copies between host and device: those tasks whose size and direction the source tells."""
    if not database.has("MEMCPY_INFO", "globalTaskId") or not database.has("TASK", "startNs", "globalTaskId"):
        return _no_part()
    asked = [database.numbers("TASK", column, "t") for column in ("startNs", "endNs", "deviceId", "connectionId")]
    asked += [database.numbers("MEMCPY_INFO", column, "m") for column in ("size", "memcpyOperation")]
    sql = (
        f"select {','.join(asked)} from TASK t cross join MEMCPY_INFO m "  # noqa: S608 - ours
        f"where m.globalTaskId=t.globalTaskId limit {limit:d}"
    )
    blocks = [np.empty((0, len(asked)), dtype=np.int64), *database.integers(sql, len(asked))]
    columns = np.concatenate(blocks).T
    columns = columns[:, good_times(columns[0], columns[1], dropped)]
    start, end, device, connection, size, operation = columns
    directions = _enum(database, "ENUM_MEMCPY_OPERATION")
    found, what = np.unique(operation, return_inverse=True)
    whats = [What(f"Memcpy ({directions[one]})" if one in directions else "Memcpy", MEMCPY) for one in found.tolist()]
    size = np.where((size >= 0) & (size < MAX_BYTES), size, NOTHING)
    nothing = np.broadcast_to(np.int8(NOTHING), start.shape)
    return _Part(start, end, device, nothing, what.reshape(-1).astype(np.int32), whats, connection, start[:0], size)


def _enum(database: Database, table: str) -> dict[int, str]:
    """Number → name of a table of names, without what stands for nothing."""
    if not database.has(table, "id", "name"):
        return {}
    rows = database.values(f"select id,substr(name,1,64) from {table}", 1000)  # noqa: S608 - ours
    return {one: name for one, name in rows if isinstance(one, int) and isinstance(name, str) and values.word(name)}


# -- common ------------------------------------------------------------------------------------------------------------


def good_times(start: Ints, end: Ints, dropped: Counter[str]) -> NDArray[np.bool_]:
    """Which rows begin and end at times that can be; the others are counted."""
    bad_time = (start <= 0) | (start >= _LATEST) | (end >= _LATEST)
    bad_length = ~bad_time & ((end < start) | (end - np.where(bad_time, end, start) > MAX_DURATION_NS))
    dropped["bad_time"] += int(np.count_nonzero(bad_time))
    dropped["bad_duration"] += int(np.count_nonzero(bad_length))
    good: NDArray[np.bool_] = ~(bad_time | bad_length)
    return good


def ids_of(column: Ints) -> Ints:
    """Ids of devices; NOTHING where there is none."""
    return np.where((column >= 0) & (column < _LARGEST_DEVICE), column, NOTHING)


def blocks_of(column: Ints) -> Ints:
    """Numbers of blocks; NOTHING where there is none (0) or the value stands for nothing."""
    absent = np.isin(column, np.array([4_294_967_295, 65_534, 65_535]))
    return np.where((column > 0) & (column < values.MAX_BLOCKS) & ~absent, column, NOTHING)


def narrow(column: Ints) -> Narrow:
    """The same numbers in four bytes each where they fit."""
    fits = len(column) == 0 or (column.min() >= -(1 << 31) and column.max() < 1 << 31)
    return column.astype(np.int32) if fits else column.copy()


def _no_part() -> _Part:
    none = np.empty(0, dtype=np.int64)
    return _Part(none, none, none, none, none.astype(np.int32), [], none, none)


def names_of(ids: Iterable[int], texts: Texts) -> list[str]:
    """The names behind ids, "(no name)" where there is none."""
    return [texts.name(one) or "(no name)" for one in ids]
