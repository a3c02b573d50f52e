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
from roofwatch.model.record import Collective
from roofwatch.model.shapes import compact

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from roofwatch.collectors.kineto.columns import Columns

    Ints = NDArray[np.int64]

MAX_COLLECTIVES = 4096  # entries in one window; 1,000 layers' worth of a step, and 250 KB in the store
_LEVELS = 4  # calls around a launch: annotation, record, op, and one wrapper
_FARTHEST_NS = 1 << 49  # from the window's begin, either way; farther is a damaged time
_KERNEL = 0
_HOST_LIBRARIES = ("gloo:", "mpi:", "ucc:")  # whose annotation is the transfer itself, on a thread of its own


@dataclass(frozen=True, slots=True)
class Linked:
    """For each device record its message (an id; NOTHING where it communicates not) and its sequence number."""

    message: Ints
    sequence: Ints
    messages: list[Told]

    @property
    def texts(self) -> list[tuple[str | None, int | None]]:
        """For each message what a group of records tells: arguments as compact JSON, and bytes where all are alike."""
        return [(_arguments(told), None if told.uneven else told.bytes) for told in self.messages]


def linked(columns: Columns, launches: Launches, only: Group | None) -> Linked:
    """What is known of each collective's kernel; ``only`` is the one process group there is, where that is so.

    Of what lies around a launch the innermost tells first, arguments before shapes; at last the kernel's name.
    """
    device, calls = columns.device, columns.messages.table
    message = np.full(len(device), NOTHING, dtype=np.int64)
    sequence = message.copy()
    (rows,) = np.nonzero((device["sort"] == _KERNEL) & columns.messages.is_kernel(device["name"]))
    if not len(rows):
        return Linked(message, sequence, [])
    around = _around(nest(calls["thread"], calls["start"], calls["end"]), launches.thread[rows], launches.time[rows])
    sources = [device["message"][rows], *(_picked(calls["what"], row) for row in around)]
    numbers = [device["message_sequence"][rows], *(_picked(calls["sequence"], row) for row in around)]
    found, which = np.unique(np.stack([device["name"][rows], *sources]), axis=1, return_inverse=True)
    told = _Told(columns.messages.told.values_seen, only)
    names = columns.names.values_seen
    ids: dict[Told, int] = {}
    resolved = [ids.setdefault(_resolved(names[n], [told[i] for i in of if i >= 0]), len(ids)) for n, *of in found.T]
    message[rows] = np.array(resolved, dtype=np.int64)[which.reshape(-1)]
    for number in reversed(numbers):
        sequence[rows] = np.where(number >= 0, number, sequence[rows])
    return Linked(message, sequence, list(ids))


def entries(columns: Columns, position: Ints, links: Linked, begin: int) -> tuple[list[Collective], int]:
    """An entry a kernel, the earliest first, and how many more there were. ``begin`` is the zero of the starts."""
    device = columns.device
    near = np.abs(device["start"] - begin) < _FARTHEST_NS
    (rows,) = np.nonzero((links.message != NOTHING) & near)
    kept = rows[np.argsort(device["start"][rows], kind="stable")][:MAX_COLLECTIVES]
    table = zip(
        position[kept].tolist(),
        links.message[kept].tolist(),
        (device["start"][kept] - begin).tolist(),
        (device["end"] - device["start"])[kept].tolist(),
        links.sequence[kept].tolist(),
        strict=True,
    )
    return [_entry(on, links.messages[of], *rest) for on, of, *rest in table], len(rows) - len(kept)


def host_entries(columns: Columns, only: Group | None, begin: int) -> tuple[list[Collective], int]:
    """The same for a window without a device: transfers between hosts, which gloo and its like annotate."""
    calls, names = columns.messages.table, columns.names.values_seen
    ours = np.fromiter((names[name].startswith(_HOST_LIBRARIES) for name in calls["name"].tolist()), np.bool_)
    (rows,) = np.nonzero(ours & (np.abs(calls["start"] - begin) < _FARTHEST_NS))
    kept = rows[np.argsort(calls["start"][rows], kind="stable")][:MAX_COLLECTIVES]
    told = _Told(columns.messages.told.values_seen, only)
    found = [
        _entry(0, told[what], start - begin, end - start, sequence)
        for what, start, end, sequence in zip(
            *(calls[name][kept].tolist() for name in ("what", "start", "end", "sequence")), strict=True
        )
    ]
    return found, len(rows) - len(kept)


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


def _entry(device: int, told: Told, start: int, duration: int, sequence: int) -> Collective:
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
