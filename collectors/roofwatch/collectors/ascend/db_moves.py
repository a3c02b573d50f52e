"""Collectives and copies of a database."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np

from roofwatch.collectors.ascend import values
from roofwatch.collectors.ascend.common import MEMCPY, NOTHING, Message, What
from roofwatch.collectors.ascend.db_file import Database
from roofwatch.collectors.ascend.db_parts import Part, good_times, no_part, only
from roofwatch.collectors.ascend.db_texts import NO_NAME, Texts

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]
    Narrow = NDArray[np.integer[Any]]

MAX_BYTES = 1 << 50
_COMMUNICATION = ("startNs", "endNs", "opName", "opType", "groupName", "dataType", "count", "rankSize", "deviceId",
                  "connectionId", "opId")  # fmt: skip
# HCCL's data types by number, for databases without the table that names them.
_HCCL_DTYPES = ("INT8", "INT16", "INT32", "FP16", "FP32", "INT64", "UINT64", "UINT8", "UINT16", "UINT32", "FP64",
                "BFP16")  # fmt: skip


def communication(database: Database, texts: Texts, devices: Narrow, limit: int, dropped: Counter[str]) -> Part:
    """Collectives; ``devices`` are those of the compute tasks."""
    columns = database.columns_of("COMMUNICATION_OP", _COMMUNICATION, limit=limit)
    columns = columns[:, good_times(columns[0], columns[1], dropped)]
    start, end, name, op_type, group, dtype, count, size, device, connection, op = columns
    if not len(start):
        return no_part()
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
    return Part(start, end, device, nothing, what.reshape(-1).astype(np.int32), whats, connection, op[:0])


def _words(name: Ints, op_type: Ints, texts: Texts) -> tuple[list[str], Ints]:
    """The library's words for collectives, and of each which: its type, else what its own name begins with."""
    word = {one: values.kernel_type(texts.name(one)) for one in np.unique(op_type).tolist()}
    known: dict[str, int] = {}
    place = [
        known.setdefault(word[kind] or values.collective_word(texts.name(one)) or NO_NAME, len(known))
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
        one = only(database, "TASK", "deviceId")
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


def copies(database: Database, limit: int, dropped: Counter[str]) -> Part:
    """Copies between host and device: those tasks whose size and direction the source tells."""
    if not database.has("MEMCPY_INFO", "globalTaskId") or not database.has("TASK", "startNs", "globalTaskId"):
        return no_part()
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
    return Part(start, end, device, nothing, what.reshape(-1).astype(np.int32), whats, connection, start[:0], size)


def _enum(database: Database, table: str) -> dict[int, str]:
    """Number → name of a table of names, without what stands for nothing."""
    if not database.has(table, "id", "name"):
        return {}
    rows = database.values(f"select id,substr(name,1,64) from {table}", 1000)  # noqa: S608 - ours
    return {one: name for one, name in rows if isinstance(one, int) and isinstance(name, str) and values.word(name)}
