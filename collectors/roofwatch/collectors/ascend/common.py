"""Rows of device records, from whatever table they are → groups with pipes, devices, collectives.

A reader makes ``Rows``: numbers in columns, and for all that is text one id into ``whats``. Everything here is numpy.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from roofwatch.collectors.ascend.columns import PIPE_FIELDS
from roofwatch.collectors.base import Pipes, RawGroup
from roofwatch.collectors.kineto.collectives import MAX_COLLECTIVES
from roofwatch.collectors.kineto.groups import OTHER, PHASES, Grouped, Records, Texts, grouped
from roofwatch.model.collectives import collective_of
from roofwatch.model.record import Collective
from roofwatch.model.shapes import ITEM_BYTES, compact, dtype_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Ints = NDArray[np.integer[Any]]
    Floats = NDArray[np.floating[Any]]
    Mask = NDArray[np.bool_]

KERNEL, MEMCPY, MEMSET = range(3)  # categories, as in ``kineto.groups``
NOTHING, NO_PHASE = -1, len(PHASES) - 1
MAX_GROUPS = 50_000  # each costs 3 kB and 0.2 ms; captures of a million kernels have some thousands
MAX_RATIO = 1.5  # of a pipe; rounding takes real ones a little above 1, more is damage
MAX_AMOUNT = float(1 << 56)  # of one call, in bytes or nanoseconds of cores
MAX_MESSAGE = 1 << 50  # bytes; more than all memory of a machine is damage
_FARTHEST_NS = 1 << 49  # of a collective from the window's begin, either way


class What(NamedTuple):
    """All that is text about a record: records with one ``What`` are of one kind, and make one group."""

    kernel: str  # the op type where it is known, else the name without numbers
    category: int = KERNEL
    type: str | None = None
    core: str | None = None
    shapes: str | None = None  # JSON lists
    dtypes: str | None = None
    formats: str | None = None
    outputs: str | None = None
    message: Message | None = None  # what a collective moves among whom
    hf32: bool | None = None
    inserted: bool = False


class Message(NamedTuple):
    """What a collective moves: ``word`` is the library's own name of it ("hcom_allReduce_").

    ``group`` is the same text on all ranks of the group; "" and None where it is not told.
    """

    word: str
    group: str = ""
    group_size: int | None = None
    dtype: str | None = None  # as the source names it
    elements: int | None = None  # as the library was called

    @property
    def collective(self) -> str | None:
        """Its name among ``collectives.COLLECTIVES``; None where the word tells none (hcom_batchSendRecv_)."""
        return collective_of(self.word)

    @property
    def bytes(self) -> int | None:
        """The larger of what a rank puts in and gets out; None where not told.

        Ranks put in ``elements``, and to scatter a reduction or to all it is what each gets: those of all ranks
        are told only where the group's size is.
        """
        item = ITEM_BYTES.get(dtype_of(self.dtype or "") or "")
        name = self.collective
        if item is None or self.elements is None or name is None:
            return None
        parts = self.group_size if name in ("all_gather", "reduce_scatter", "all_to_all") else 1
        size = None if parts is None else item * self.elements * parts
        return size if size is not None and 0 <= size < MAX_MESSAGE else None


@dataclass(frozen=True, slots=True)
class Rows:
    """Device records, a row each. Times are Unix nanoseconds; -1 is unknown in ids, blocks and bytes."""

    start: NDArray[np.int64]
    end: NDArray[np.int64]
    what: Ints  # id in ``whats``
    whats: Sequence[What]
    device: NDArray[np.int64]  # position in the profile's devices
    blocks: Ints
    bytes: Ints | None = None  # moved, of copies

    def __len__(self) -> int:
        return len(self.start)

    def of(self, test: Mapping[bool, bool] | Sequence[bool]) -> Mask:
        """For each row what ``test`` says of its ``what``, a value each."""
        return np.asarray(test, dtype=np.bool_)[self.what]

    @property
    def communication(self) -> Mask:
        """Which rows are collectives: they overlap the others, and are no compute."""
        return self.of([what.message is not None for what in self.whats])

    @property
    def copies(self) -> Mask:
        """Which rows are copies between host and device."""
        return self.of([what.category == MEMCPY for what in self.whats])


@dataclass(frozen=True, slots=True)
class Origins:
    """What the host did to launch each record; -1 where that is not known. ``names`` and ``modules`` are of the ids."""

    op: Ints  # id in ``names``
    op_row: Ints  # which call of the op
    phase: Ints
    module: Ints
    backlog: Mask
    linked: Mask
    in_step: Mask
    names: Sequence[str] = ()
    modules: Sequence[str] = ()

    @staticmethod
    def unknown(count: int, in_step: Mask | None = None) -> Origins:
        """Of records whose host is not told."""
        none, no = constant(count, NOTHING), np.broadcast_to(np.bool_(False), (count,))
        return Origins(none, none, constant(count, NO_PHASE), none, no, no, no if in_step is None else in_step)


def constant(count: int, value: int) -> Ints:
    """A column of one small value, which takes no memory."""
    return np.broadcast_to(np.int8(value), (count,))


class PipeSums:
    """Ratio × duration of each pipe, and amounts, summed over the calls of each group, as metrics stream by."""

    def __init__(self, which: Ints, duration: Ints, groups: int) -> None:
        """``which``: of each row its group."""
        self._which, self._duration, self._groups = which, duration, groups
        self._measured = np.zeros(len(which), dtype=np.bool_)
        self._sums: dict[str, Floats] = {}
        self._seen: dict[str, Floats] = {}
        self.bad = 0  # values that are no ratio

    def know(self, pipe: str) -> None:
        """A pipe that is 0 for every call with metrics that it is not told of."""
        self._sums.setdefault(pipe, np.zeros(self._groups))
        self._seen[pipe] = np.ones(self._groups)

    def add(self, pipe: str, rows: Ints, ratio: Floats) -> None:
        """Metrics of one pipe (of ``PIPE_FIELDS``): the rows they are of, and the ratios, NaN where there is none."""
        rows, ratio = self._good(rows, ratio, MAX_RATIO)
        self._sum(pipe, rows, ratio * self._duration[rows])

    def add_amount(self, field: str, rows: Ints, amount: Floats) -> None:
        """The same of what is no share of the time: bytes, nanoseconds of all cores."""
        self._sum(field, *self._good(rows, amount, MAX_AMOUNT))

    def _good(self, rows: Ints, values: Floats, most: float) -> tuple[Ints, Floats]:
        known = ~np.isnan(values)
        good = known & (values >= 0) & (values <= most)
        self.bad += int(np.count_nonzero(known & ~good))
        return (rows, values) if good.all() else (rows[good], values[good])

    def _sum(self, field: str, rows: Ints, values: Floats) -> None:
        owner = self._which[rows]
        for sums, weight in ((self._sums, values), (self._seen, None)):
            found = np.bincount(owner, weight, minlength=self._groups)
            sums[field] = sums[field] + found if field in sums else found.astype(np.float64)
        self._measured[rows] = True

    def of_groups(self) -> list[Pipes | None]:
        """The pipes of each group, None for groups without metrics."""
        durations = np.where(self._measured, self._duration, 0)
        measured = np.bincount(self._which, durations, minlength=self._groups)
        calls = np.bincount(self._which, self._measured, minlength=self._groups)
        columns = {
            name: [
                value if count else None for value, count in zip(sums.tolist(), self._seen[name].tolist(), strict=True)
            ]
            for name, sums in self._sums.items()
        }
        none: list[float | None] = [None] * self._groups
        parts = zip(*(columns.get(name, none) for name in PIPE_FIELDS), strict=True)
        return [
            Pipes(round(total), **dict(zip(PIPE_FIELDS, values, strict=True))) if count else None
            for total, count, values in zip(measured.tolist(), calls.tolist(), parts, strict=True)
        ]


@dataclass(frozen=True, slots=True)
class Found:
    """The groups of rows; ``which`` is the group of each row."""

    groups: list[RawGroup]
    which: Ints
    folded: int  # groups that were put together because there were too many

    def with_pipes(self, sums: PipeSums) -> None:
        """Gives each group its pipes."""
        for group, pipes in zip(self.groups, sums.of_groups(), strict=True):
            group.pipes = pipes


def groups_of(rows: Rows, origins: Origins, max_groups: int) -> Found:
    """Rows alike as groups: of one ``What``, from one op in one place, on one device."""
    whats = rows.whats
    names = list(origins.names)
    plain: dict[What, int] = {}  # whose group of ranks alone differs are one
    place = np.array([plain.setdefault(w._replace(message=None), len(plain)) for w in whats], dtype=np.int32)
    kernel = np.arange(len(plain), dtype=np.int32) + len(names)
    messages = dict.fromkeys(_message(what) for what in whats if what.message is not None)
    message_ids = {message: i for i, message in enumerate(messages)}
    told = [NOTHING if what.message is None else message_ids[_message(what)] for what in whats]
    message = np.array(told, dtype=np.int32)
    category = np.array([what.category for what in whats], dtype=np.int8)
    count = len(rows)
    records = Records(
        device=rows.device,
        name=kernel[place][rows.what],
        category=category[rows.what],
        op=origins.op,
        op_row=origins.op_row,
        inputs=place[rows.what],
        phase=origins.phase,
        module=origins.module,
        message=message[rows.what],
        told_apart=constant(count, NOTHING),
        backlog=origins.backlog,
        linked=origins.linked,
        in_step=origins.in_step,
        duration=rows.end - rows.start,
        blocks=rows.blocks,
        grid=constant(count, NOTHING),
        bytes=constant(count, NOTHING) if rows.bytes is None else rows.bytes,
    )
    inputs = [b"\0".join(((w.shapes or "").encode(), (w.dtypes or "").encode(), b"", b"")) for w in plain]
    texts = Texts([*names, *(what.kernel for what in plain)], origins.modules, inputs, list(messages))
    found = grouped(records, texts, min(max_groups, MAX_GROUPS))
    _describe(found, rows)
    return Found(found.groups, found.which, found.folded)


def _describe(found: Grouped, rows: Rows) -> None:
    """Adds what only Ascend's records tell; those that were put together have nothing of it."""
    for group, what in zip(found.groups, rows.what[found.first].tolist(), strict=True):
        if group.kernel == OTHER:
            continue
        told = rows.whats[what]
        group.type, group.core, group.formats, group.outputs = told.type, told.core, told.formats, told.outputs
        group.hf32, group.inserted = told.hf32, told.inserted


def _message(what: What) -> tuple[str | None, int | None]:
    """Arguments of a collective as JSON, and the bytes of one call."""
    message = what.message
    if message is None or message.collective is None:
        return None, None
    dtype = dtype_of(message.dtype or "")
    parts = {"collective": message.collective, "group_size": message.group_size, "dtype": dtype}
    return compact([{key: value for key, value in parts.items() if value is not None}])[1:-1], message.bytes


def collectives_of(rows: Rows, begin: int) -> tuple[list[Collective], int]:
    """An entry for each collective, the earliest first, and how many more there were; starts count from ``begin``."""
    (at,) = np.nonzero(rows.communication)
    start = rows.start[at] - begin
    near = np.abs(start) < _FARTHEST_NS
    kept = at[near][np.argsort(start[near], kind="stable")][:MAX_COLLECTIVES]
    columns = (rows.what, rows.device, rows.start, rows.end)
    entries = []
    for what, device, started, ended in zip(*(column[kept].tolist() for column in columns), strict=True):
        message = rows.whats[what].message or Message("")
        entries.append(
            Collective(
                device=device,
                name=message.collective or "",
                group=message.group,
                start_unix_ns=started - begin,
                duration_ns=ended - started,
                group_size=message.group_size,
                bytes=message.bytes,
            )
        )
    return entries, len(at) - len(entries)


__all__ = [
    "KERNEL", "MEMCPY", "MEMSET", "NOTHING", "Found", "Message", "Origins", "PipeSums", "Rows", "What",
    "collectives_of", "constant", "groups_of",
]  # fmt: skip
