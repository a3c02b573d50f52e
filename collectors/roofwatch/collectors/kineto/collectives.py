"""Kernels of collectives: which call launched each, what it moved among whom, and one entry for each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from roofwatch.collectors.kineto.link import Launches
from roofwatch.collectors.kineto.messages import NOTHING, Group, Told, told_by
from roofwatch.collectors.kineto.nesting import Nest, nest
from roofwatch.model.collectives import collective_of_kernel
from roofwatch.model.kinds import Kind, kind_of, kind_of_op
from roofwatch.model.record import Collective
from roofwatch.model.shapes import compact

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from roofwatch.collectors.kineto.columns import Columns
    from roofwatch.collectors.kineto.groups import Records

    Ints = NDArray[np.int64]

MAX_COLLECTIVES = 4096  # entries in one window: a few steps of a large model, 250 KB in the store
_LEVELS = 4  # calls around a launch: annotation, record, op, and one wrapper
_FARTHEST_NS = 1 << 49  # from the window's begin, either way; farther is a damaged time
_KERNEL = 0
_HOST_LIBRARIES = ("gloo:", "mpi:", "ucc:")  # whose annotation is the transfer itself, on a thread of its own


@dataclass(frozen=True, slots=True)
class Found:
    """The collectives of a trace, a row each: position of its device, begin, end, sequence number, an id in ``told``.

    ``grouped`` gives each device record an id in ``texts`` (NOTHING where it does not communicate): arguments as
    compact JSON, and the bytes of one call where all calls alike move as much.
    """

    device: Ints
    start: Ints
    end: Ints
    sequence: Ints
    message: Ints
    told: Sequence[Told]
    grouped: Ints
    texts: Sequence[tuple[str | None, int | None]]


def of_device(columns: Columns, position: Ints, launches: Launches, only: Group | None) -> Found:
    """The kernels of collectives; ``only`` is the one process group there is, where that is so.

    Of what lies around a launch the innermost tells first, arguments before shapes; at last the kernel's name.
    """
    device, table = columns.device, columns.messages.table
    (rows,) = np.nonzero((device["sort"] == _KERNEL) & columns.messages.is_kernel(device["name"]))
    around = _around(nest(table["thread"], table["start"], table["end"]), launches.thread[rows], launches.time[rows])
    sources = [device["message"][rows], *(_picked(table["what"], row) for row in around)]
    sequence = np.full(len(rows), NOTHING, dtype=np.int64)
    for number in (device["message_sequence"][rows], *(_picked(table["sequence"], row) for row in around)):
        sequence = np.where(sequence >= 0, sequence, number)
    keys, which = np.unique(np.stack([device["name"][rows], *sources]), axis=1, return_inverse=True)
    names, told = columns.names.values_seen, _Told(columns.messages.told.values_seen, only)
    resolved = [_resolved(names[name], [told[i] for i in ids if i >= 0]) for name, *ids in keys.T.tolist()]
    message = which.reshape(-1).astype(np.int64)
    texts = [(_arguments(found), None if found.uneven else found.bytes) for found in resolved]
    distinct = {text: i for i, text in enumerate(dict.fromkeys(texts))}
    grouped = np.full(len(device), NOTHING, dtype=np.int64)
    grouped[rows] = np.array([distinct[text] for text in texts], dtype=np.int64)[message]
    start, end = device["start"][rows], device["end"][rows]
    return Found(position[rows], start, end, sequence, message, resolved, grouped, list(distinct))


def communicating(columns: Columns, records: Records) -> NDArray[np.bool_]:
    """Which records are kernels that communicate: those whose rows are of that kind, by their names or their ops."""
    names = columns.names.values_seen
    kernel = records.category == _KERNEL
    found: NDArray[np.bool_] = kernel & columns.messages.is_kernel(columns.device["name"])
    ops = np.unique(records.op[records.op >= 0]).tolist()
    (rest,) = np.nonzero(kernel & ~found & np.isin(records.op, [i for i in ops if kind_of_op(names[i]) is Kind.COMM]))
    found[rest] = [
        kind_of(names[op], names[name]) is Kind.COMM
        for op, name in zip(records.op[rest].tolist(), records.name[rest].tolist(), strict=True)
    ]
    return found


def of_host(columns: Columns, only: Group | None) -> Found:
    """Those of a window without a device: transfers between hosts, which gloo and its like annotate."""
    table, names = columns.messages.table, columns.names.values_seen
    (rows,) = np.nonzero([names[name].startswith(_HOST_LIBRARIES) for name in table["name"].tolist()])
    told = _Told(columns.messages.told.values_seen, only)
    ids, message = np.unique(table["what"][rows], return_inverse=True)
    return Found(
        np.zeros(len(rows), dtype=np.int64), table["start"][rows], table["end"][rows], table["sequence"][rows],
        message.astype(np.int64), [told[i] for i in ids.tolist()], np.empty(0, dtype=np.int64), (),
    )  # fmt: skip


def entries(found: Found, begin: int) -> tuple[list[Collective], int]:
    """An entry each, the earliest first, and how many more there were. ``begin`` is the zero of their starts."""
    start = found.start - begin
    (rows,) = np.nonzero(np.abs(start) < _FARTHEST_NS)
    kept = rows[np.argsort(start[rows], kind="stable")][:MAX_COLLECTIVES]
    columns = (found.device, start, found.end - found.start, found.sequence, found.message)
    made = [_entry(found.told[of], *rest) for *rest, of in zip(*(c[kept].tolist() for c in columns), strict=True)]
    return made, len(start) - len(kept)


class _Told(dict[int, Told]):
    """Id → what it tells, with the only group there is where none is told."""

    def __init__(self, texts: Sequence[bytes], only: Group | None) -> None:
        super().__init__()
        self._texts, self._only = texts, only

    def __missing__(self, key: int) -> Told:
        self[key] = told_by(self._texts[key], self._only)
        return self[key]


def _around(nested: Nest, thread: Ints, time: Ints) -> list[Ints]:
    """The calls that were running on a thread at a time, innermost first: rows of the table or NOTHING."""
    at = nested.at(thread, time)
    found = []
    for _ in range(_LEVELS):
        found.append(_picked(nested.order, at))
        at = nested.enclosing(at, time)
    return found


def _picked(column: Ints, row: Ints) -> Ints:
    return np.where(row >= 0, column[row], NOTHING) if len(column) else np.full_like(row, NOTHING)


def _resolved(kernel: str, sources: Sequence[Told]) -> Told:
    """One account from several sources, the nearest first; one that is of another collective says nothing of this."""
    ordered = sorted(sources, key=lambda source: not source.by_args)
    collective = next((s.collective for s in ordered if s.collective), None) or collective_of_kernel(kernel)
    fitting = [s for s in ordered if s.collective in (None, collective)]
    groups = [s.group for s in fitting]
    group = next((g for g in groups if g.identity), None) or next((g for g in groups if g.size), Group())
    moved = next((s for s in fitting if s.bytes is not None), Told())
    return Told(collective, group, moved.dtype, moved.bytes, any(s.uneven for s in fitting))


def _arguments(told: Told) -> str | None:
    if told.collective is None:
        return None
    parts = {
        "collective": told.collective, "group": told.group.label, "group_size": told.group.size, "dtype": told.dtype,
    }  # fmt: skip
    return compact([{key: value for key, value in parts.items() if value is not None}])[1:-1]


def _entry(told: Told, device: int, start: int, duration: int, sequence: int) -> Collective:
    return Collective(
        device=device,
        name=told.collective or "",
        group=told.group.identity or "",
        start_unix_ns=start,
        duration_ns=duration,
        group_size=told.group.size,
        sequence=sequence if sequence >= 0 else None,
        bytes=told.bytes,
    )
