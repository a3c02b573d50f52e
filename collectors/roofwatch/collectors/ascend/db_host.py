"""What the host did, from a database: ops of torch, calls of CANN, and which of them launched what.

A device record carries a connection id. A call of CANN has the same; an op of torch has a number that stands for
several of them. Between the two lies a queue: torch's thread puts the op in, another thread launches it. The launch of
a record is therefore the op on torch's thread, where that was recorded, and is over when CANN's call returned.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from roofwatch.collectors.ascend import values
from roofwatch.collectors.ascend.common import NOTHING
from roofwatch.collectors.ascend.db_file import Database
from roofwatch.collectors.ascend.db_parts import good_times
from roofwatch.collectors.ascend.db_rows import Records
from roofwatch.collectors.ascend.db_texts import NO_NAME, Texts
from roofwatch.collectors.ascend.near import Whole
from roofwatch.collectors.kineto import calls
from roofwatch.collectors.kineto.columns import Columns

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]
    Narrow = NDArray[np.integer[Any]]
    Mask = NDArray[np.bool_]

_OP_TYPE, _TRACE_TYPE, _NODE_TYPE = 50_001, 50_003, 10_000  # by ENUM_API_TYPE, where the file does not say otherwise
_OPS = ("startNs", "endNs", "globalTid", "name", "connectionId", "fwdThreadId", "inputShapes", "inputDtypes")
_CALLS = ("startNs", "endNs", "globalTid", "name", "connectionId", "type")
_NOTES = (calls.is_step, calls.is_optimizer, calls.is_input)
_QUEUE = ("Enqueue", "Dequeue")
_LIBRARY = ("Hccl", "hccl")
_MODULE = "nn.Module: "
_TID_BITS = 32
_ABSENT = np.array([4_294_967_295, NOTHING])
MAX_STEPS = 100_000


@dataclass(frozen=True, slots=True)
class HostSide:
    """Columns as a Kineto trace has them; and by row of the ops whether they are surely of a backward pass."""

    columns: Columns
    backward: Mask
    returned: Ints  # by device record: when CANN's call returned, NOTHING where not known
    python_events: int
    unfinished: int  # launches without a record


def host_of(database: Database, texts: Texts, records: Records, limit: int, dropped: Counter[str]) -> HostSide:
    """Reads what the host did; ``limit`` is the most rows of a table."""
    columns = Whole(4096)
    _add_records(columns, records)
    types = _types(database)
    found = database.columns_of("CANN_API", _CALLS, limit=limit)
    found = found[:, good_times(found[0], found[1], dropped, records.middle)]
    returned, unfinished = _launched(found, records.connection, types["node"])
    start, end, thread, name, connection, _ = found
    _add(columns, "host", texts, start=start, end=end, thread=thread, name=name, correlation=connection)
    backward, in_steps = _add_ops(columns, database, texts, limit, dropped, types["op"], records)
    _add_modules(columns, database, texts, limit, dropped, records.middle)
    if not in_steps:
        _add_steps(columns, database, records.middle)
    columns.close()
    return HostSide(columns, backward, returned, _python_events(database, types["trace"]), unfinished)


def _add_records(columns: Columns, records: Records) -> None:
    rows = records.rows
    names = np.array([columns.names[what.kernel] for what in rows.whats], dtype=np.int32)
    sorts = np.array([what.category for what in rows.whats], dtype=np.int8)
    connection = records.connection
    if connection.itemsize > 1:  # else nothing is known of any
        connection = np.where(np.isin(connection, _ABSENT), NOTHING, connection)
    columns.device.add(start=rows.start, end=rows.end, name=names[rows.what], sort=sorts[rows.what],
                       correlation=connection)  # fmt: skip


def _types(database: Database) -> dict[str, int]:
    """The numbers of sorts of calls, as the file names them."""
    known = {"op": _OP_TYPE, "trace": _TRACE_TYPE, "node": _NODE_TYPE}
    if database.has("ENUM_API_TYPE", "id", "name"):
        told = database.values("select id,name from ENUM_API_TYPE", 1000)
        known |= {name: one for one, name in told if isinstance(one, int) and isinstance(name, str) and name in known}
    return known


def _launched(found: Ints, connection: Narrow, node: int) -> tuple[Ints, int]:
    """When the call of CANN's that launched each record returned, and how many launches have no record."""
    _, end, _, _, ids, kind = found
    returned = np.full(len(connection), NOTHING, dtype=np.int64)
    if len(ids):
        order = np.lexsort((end, ids))
        at = np.searchsorted(ids[order], connection, side="right") - 1
        known = (at >= 0) & (connection >= 0) & (ids[order][at] == connection)
        returned[known] = end[order[at[known]]]
    return returned, int(np.count_nonzero((kind == node) & (ids >= 0) & ~np.isin(ids, connection)))


def _add_ops(
    columns: Columns, database: Database, texts: Texts, limit: int, dropped: Counter[str], kind: int, records: Records
) -> tuple[Mask, bool]:
    """Torch's ops; those of its NPU backend that stand for a launch alone ("aclnnMuls") are calls, and ranges notes.

    So are those of the library of collectives: the op around them says what they were for.

    By op whether it is surely of a backward pass; and whether the profiler's steps are among the ranges.
    """
    where = f"where type={kind:d}" if database.has("PYTORCH_API", "type") else ""
    found = database.columns_of("PYTORCH_API", _OPS, limit=limit, where=where)
    found = found[:, good_times(found[0], found[1], dropped, records.middle)]
    ids, which = np.unique(found[3], return_inverse=True)
    texts.read(ids.tolist())
    names = [texts.name(one) for one in ids.tolist()]
    queued = _mask(names, lambda name: name.startswith(_QUEUE))[which]
    found, which = found[:, ~queued], which[~queued]
    start, end, thread, name, number, forward, shapes, dtypes = found
    row, connection = _connections(database, number, records.connection, limit)
    launching = np.zeros(len(start), dtype=np.bool_)
    launching[row] = True
    library = _mask(names, lambda name: name.startswith(_LIBRARY))[which]
    bare = library | (launching & (shapes < 0) & ~_mask(names, lambda name: "::" in name)[which])
    notes = _mask(names, lambda name: any(test(name) for test in _NOTES))[which]
    ops = ~bare & ~notes
    (other,) = np.nonzero(library & ~launching)
    row, connection = np.append(row, other), np.append(connection, np.full(len(other), NOTHING))
    call = {"start": start[row], "end": end[row], "thread": thread[row], "name": name[row]}
    _add(columns, "host", texts, **call, correlation=connection)
    _add(columns, "notes", texts, start=start[notes], end=end[notes], thread=thread[notes], name=name[notes])
    inputs = _inputs(columns, texts, shapes[ops], dtypes[ops])
    _add(columns, "ops", texts, start=start[ops], end=end[ops], thread=thread[ops], name=name[ops], inputs=inputs,
         sequence=np.full(int(ops.sum()), NOTHING))  # fmt: skip
    return forward[ops] > 0, any(calls.is_step(name) for name in names)


def _connections(database: Database, number: Ints, wanted: Narrow, limit: int) -> tuple[Ints, Ints]:
    """Rows of ops and the connection ids of what they launched; an op may have launched several."""
    if database.has("CONNECTION_IDS", "id", "connectionId"):
        ids, connection = database.columns_of("CONNECTION_IDS", ("id", "connectionId"), limit=limit)
        kept = np.isin(connection, wanted) & (connection >= 0) & (connection != _ABSENT[0])
        ids, connection = ids[kept], connection[kept]
    else:
        ids = connection = np.unique(wanted[wanted >= 0].astype(np.int64))
    (asking,) = np.nonzero((number >= 0) & (number != _ABSENT[0]))
    order = np.argsort(ids, kind="stable")
    low = np.searchsorted(ids[order], number[asking], side="left")
    count = np.searchsorted(ids[order], number[asking], side="right") - low
    total = int(count.sum())
    if total > limit:  # a damaged file: one number for everything
        return np.empty(0, np.int64), np.empty(0, np.int64)
    begun = np.cumsum(count) - count
    at = np.repeat(low - begun, count) + np.arange(total)
    return np.repeat(asking, count), connection[order][at]


def _add_modules(
    columns: Columns, database: Database, texts: Texts, limit: int, dropped: Counter[str], middle: int | None
) -> None:
    """Ranges of modules, which are among the Python functions."""
    if not database.has("PYTORCH_API", "name"):
        return
    ids = texts.ids_like(_MODULE, 1000)
    if not ids:
        return
    where = f"where name in ({','.join(str(one) for one in ids)})"
    found = database.columns_of("PYTORCH_API", _OPS[:4], limit=limit, where=where)
    start, end, thread, name = found[:, good_times(found[0], found[1], dropped, middle)]
    _add(columns, "modules", texts, start=start, end=end, thread=thread, name=name)


def _add_steps(columns: Columns, database: Database, middle: int | None) -> None:
    """The profiler's steps, from a table of their own."""
    found = database.columns_of("STEP_TIME", ("startNs", "endNs", "id"), limit=MAX_STEPS)
    start, end, number = found[:, good_times(found[0], found[1], Counter(), middle)]
    if not len(start):
        return
    thread = np.full(len(start), columns.threads[0, NOTHING])
    names = np.array([columns.names[f"ProfilerStep#{max(0, one)}"] for one in number.tolist()])
    columns.notes.add(start=start, end=end, name=names, thread=thread)


def _add(columns: Columns, table: str, texts: Texts, *, thread: Ints, name: Ints, **rest: Ints) -> None:
    """Rows of a table of events on the host; ids of threads and texts become those of the columns."""
    threads, thread_at = np.unique(thread, return_inverse=True)
    ids, name_at = np.unique(name, return_inverse=True)
    texts.read(ids.tolist())
    own = [columns.threads[one >> _TID_BITS, one & ((1 << _TID_BITS) - 1)] for one in threads.tolist()]
    names = [columns.names[texts.name(one) or NO_NAME] for one in ids.tolist()]
    getattr(columns, table).add(
        **rest,
        thread=np.array(own, dtype=np.int64)[thread_at] if len(thread) else thread,
        name=np.array(names, dtype=np.int64)[name_at] if len(name) else name,
    )


def _inputs(columns: Columns, texts: Texts, shapes: Ints, dtypes: Ints) -> Ints:
    """Ids of the inputs of ops: shapes and dtypes as Kineto writes them."""
    keys = np.stack([shapes, dtypes])
    different, which = np.unique(keys, axis=1, return_inverse=True)
    texts.read(different.ravel().tolist())
    ids = []
    for shape, dtype in different.T.tolist():
        told, kinds = texts.get(shape), texts.get(dtype)
        found = None if told is None else values.shapes(told) or "[[]]"  # recorded, but lists of tensors
        parts = (found or "", (kinds and values.names(kinds)) or "", "", "")
        ids.append(columns.inputs["\0".join(parts).encode("utf-8", "replace")])
    return np.array(ids, dtype=np.int64)[which.reshape(-1)] if ids else np.empty(0, dtype=np.int64)


def _python_events(database: Database, kind: int) -> int:
    if not database.has("PYTORCH_API", "type"):
        return 0
    found = database.values(f"select count(*) from PYTORCH_API where type={kind:d}", 1)  # noqa: S608 - a number
    count = found[0][0] if found else 0
    return count if isinstance(count, int) else 0


def _mask(names: list[str], test: calls.Test) -> Mask:
    return calls.mask(names, test)
