"""Records → groups of records alike, with exact sums and histograms."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from roofwatch.collectors.base import Category, Grid, RawGroup
from roofwatch.model.histogram import GAMMA, Histogram, bucket_of
from roofwatch.model.record import Phase

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    Ints = NDArray[np.integer[Any]]  # narrow types serve as well
    Mask = NDArray[np.bool_]

_CATEGORIES = (Category.KERNEL, Category.MEMCPY, Category.MEMSET, Category.CPU_OP)
CPU_OP = 3
PHASES = (Phase.FORWARD, Phase.BACKWARD, Phase.OPTIMIZER, Phase.NONE)
OTHER = "(other)"  # the kernel name of what does not fit in a limit
_TOP_BUCKET = 900  # γ^899 ns are 23 days, more than any duration that is kept
_KEYS = ("device", "name", "category", "op", "inputs", "phase", "module", "message", "told_apart", "backlog", "linked")


@dataclass(frozen=True, slots=True)
class Records:
    """Columns of equal length, a row for each device record or op. -1 is unknown in ids, blocks and bytes."""

    device: NDArray[np.int64]  # position in the profile's devices
    name: Ints
    category: Ints
    op: Ints  # name id
    op_row: Ints  # which call of the op
    inputs: Ints
    phase: Ints
    module: Ints  # id among the texts' modules
    message: Ints  # what a collective moved among whom
    told_apart: Ints  # the grid of records whose inputs are not known, -1 for others
    backlog: Mask
    linked: Mask
    in_step: Mask
    duration: NDArray[np.int64]
    blocks: Ints
    grid: Ints  # which of the texts' grids
    bytes: Ints
    graph: Ints | None = None  # that launched it, -1 for none; None where there are no graphs


@dataclass(frozen=True, slots=True)
class Texts:
    """What the ids stand for."""

    names: Sequence[str]
    modules: Sequence[str]
    inputs: Sequence[bytes]
    messages: Sequence[tuple[str | None, int | None]]  # arguments as JSON, bytes of one call
    grids: Sequence[Grid] = ()


@dataclass(frozen=True, slots=True)
class Grouped:
    """Groups of records alike; how many more there were, which were put together; and where each record went."""

    groups: list[RawGroup]
    folded: int
    which: Ints  # by record: position in ``groups``
    first: Ints  # by group: one record of it


def group(records: Records, texts: Texts, max_groups: int) -> tuple[list[RawGroup], int]:
    """Groups of records alike, and how many groups were folded into others because there were too many."""
    found = grouped(records, texts, max_groups)
    return found.groups, found.folded


def grouped(records: Records, texts: Texts, max_groups: int) -> Grouped:
    """``group``, and which record is in which group."""
    if not len(records.duration):
        none = np.empty(0, dtype=np.int64)
        return Grouped([], 0, none, none)
    order, starts = _runs(records)
    folded = len(starts) - max_groups
    if folded > 0:
        texts = replace(texts, names=[*texts.names, OTHER])
        records = _fold(records, order, starts, max_groups, len(texts.names) - 1)
        order, starts = _runs(records)
    which = np.empty(len(order), dtype=np.int32)
    which[order] = np.repeat(np.arange(len(starts), dtype=np.int32), np.diff(np.append(starts, len(order))))
    return Grouped(_groups(records, texts, order, starts), max(0, folded), which, order[starts])


def _runs(records: Records) -> tuple[Ints, Ints]:
    """An order in which records alike stand together, and where each run begins in it."""
    keys = [getattr(records, key) for key in _KEYS] + ([] if records.graph is None else [records.graph])
    keys = [key for key in keys if key.min() != key.max()] or keys[:1]
    order = np.lexsort(keys[::-1])
    new = np.zeros(len(order), dtype=np.bool_)
    new[0] = True
    for key in keys:
        sorted_key = key[order]
        new[1:] |= sorted_key[1:] != sorted_key[:-1]
    return order, np.flatnonzero(new)


def _fold(records: Records, order: Ints, starts: Ints, max_groups: int, other: int) -> Records:
    """Makes the groups with the least time alike, but for device, category, backlog and linked."""
    totals = np.add.reduceat(records.duration[order], starts)
    small = np.ones(len(starts), dtype=np.bool_)
    small[np.argsort(-totals, kind="stable")[:max_groups]] = False
    lengths = np.diff(np.append(starts, len(order)))
    rows = order[np.repeat(small, lengths)]
    fading = ("name", "op", "inputs", "phase", "module", "message", "told_apart")
    columns = {key: getattr(records, key).copy() for key in fading}
    for key, column in columns.items():
        column[rows] = {"name": other, "phase": len(PHASES) - 1}.get(key, -1)
    return replace(records, **columns)


def _sums(records: Records, order: Ints, starts: Ints) -> Iterator[tuple[Any, ...]]:
    """The figures of each group: calls, total, least, most, histogram, calls and time in steps, and what all share."""
    duration, in_step = records.duration[order], records.in_step[order]
    return zip(
        np.diff(np.append(starts, len(order))).tolist(),
        np.add.reduceat(duration, starts).tolist(),
        np.minimum.reduceat(duration, starts).tolist(),
        np.maximum.reduceat(duration, starts).tolist(),
        _histograms(duration, starts),
        np.add.reduceat(in_step.astype(np.int64), starts).tolist(),
        np.add.reduceat(np.where(in_step, duration, 0), starts).tolist(),
        _smallest_known(records.blocks[order], starts),
        _shared(records.grid[order], starts),
        _sum_where_all_known(records.bytes[order], starts),
        _distinct(records.op_row[order], starts),
        strict=True,
    )


def _groups(records: Records, texts: Texts, order: Ints, starts: Ints) -> list[RawGroup]:
    first = order[starts]
    numbers = _sums(records, order, starts)
    keys = zip(*(getattr(records, key)[first].tolist() for key in _KEYS), strict=True)
    graphs = [None] * len(first) if records.graph is None else records.graph[first].tolist()
    inputs = Inputs(texts.inputs)
    result = []
    for key, figures, graph in zip(keys, numbers, graphs, strict=True):
        device, name, category, op, ins, phase, module, message, _, backlog, linked = key
        calls, total, least, most, histogram, step_calls, step_ns, blocks, grid, moved, op_calls = figures
        shapes, dtypes, strides, concrete = inputs[ins]
        arguments, size = texts.messages[message] if message >= 0 else (None, None)
        result.append(
            RawGroup(
                device=device,
                kernel=texts.names[name],
                category=_CATEGORIES[category],
                op=texts.names[op] if op >= 0 else None,
                shapes=shapes,
                dtypes=dtypes,
                strides=strides,
                concrete=concrete,
                phase=PHASES[phase],
                module=texts.modules[module] if module >= 0 else None,
                backlog=backlog,
                linked=linked,
                calls=calls,
                total_ns=total,
                min_ns=least,
                max_ns=most,
                histogram=histogram,
                step_calls=step_calls,
                step_ns=step_ns,
                blocks=blocks,
                grid=texts.grids[grid] if grid >= 0 else None,
                moved_bytes=moved if size is None else size * calls,
                graph=None if graph is None or graph < 0 else graph,
                arguments=arguments,
                op_calls=op_calls if op >= 0 else None,
            )
        )
    return result


class Inputs(dict[int, tuple[str | None, ...]]):
    """Inputs id → shapes, dtypes, strides and concrete inputs as text; None where not recorded."""

    def __init__(self, texts: Sequence[bytes]) -> None:
        super().__init__()
        self._texts = texts

    def __missing__(self, key: int) -> tuple[str | None, ...]:
        parts = self._texts[key].split(b"\0") if key >= 0 else []
        texts = tuple(part.decode("utf-8", "replace") or None for part in parts)
        self[key] = texts if len(texts) == 4 else (None,) * 4
        return self[key]


def _smallest_known(values: Ints, starts: Ints) -> list[int | None]:
    none = np.iinfo(np.int64).max
    least = np.minimum.reduceat(np.where(values >= 0, values.astype(np.int64), none), starts)
    return [None if value == none else value for value in least.tolist()]


def _shared(values: Ints, starts: Ints) -> list[int]:
    """The one value of each run, -1 where there are several."""
    least, most = np.minimum.reduceat(values, starts), np.maximum.reduceat(values, starts)
    shared: list[int] = np.where(least == most, least, -1).tolist()
    return shared


def _sum_where_all_known(values: Ints, starts: Ints) -> list[int | None]:
    """Sums; None where a value of the run is unknown, for part of a sum is not the sum."""
    unknown = np.minimum.reduceat(values, starts) < 0
    sums = np.add.reduceat(values, starts)
    return [None if no else value for no, value in zip(unknown.tolist(), sums.tolist(), strict=True)]


def _distinct(values: Ints, starts: Ints) -> list[int]:
    """How many different values each run has."""
    if values.min() == values.max():
        return [1] * len(starts)
    owner = np.repeat(np.arange(len(starts)), np.diff(np.append(starts, len(values))))
    order = np.lexsort((values, owner))
    owner, values = owner[order], values[order]
    new = np.append(True, (owner[1:] != owner[:-1]) | (values[1:] != values[:-1]))
    result: list[int] = np.add.reduceat(new.astype(np.int64), starts).tolist()
    return result


def _histograms(duration: Ints, starts: Ints) -> list[Histogram]:
    """The histogram of each run."""
    lengths = np.diff(np.append(starts, len(duration)))
    keys = np.repeat(np.arange(len(starts)), lengths) * (_TOP_BUCKET + 1) + buckets_of(duration)
    found, counts = np.unique(keys, return_counts=True)
    owner, bucket = found // (_TOP_BUCKET + 1), found % (_TOP_BUCKET + 1)
    edges = np.searchsorted(owner, np.arange(len(starts) + 1)).tolist()
    bucket_list, count_list = bucket.tolist(), counts.tolist()
    result = []
    for low, high in pairwise(edges):
        base = bucket_list[low]
        dense = [0] * (bucket_list[high - 1] - base + 1)
        for at in range(low, high):
            dense[bucket_list[at] - base] = count_list[at]
        result.append(Histogram(base, tuple(dense)))
    return result


def buckets_of(values: Ints) -> Ints:
    """``bucket_of`` of many durations: the count of buckets whose smallest value is not above the duration."""
    return np.searchsorted(_smallest_of_buckets(), values, side="right").astype(np.int64)


@lru_cache(maxsize=1)
def _smallest_of_buckets() -> Ints:
    """For each bucket from 1 on the smallest duration in it or above it, by ``bucket_of`` itself."""
    smallest: list[int] = []
    for bucket in range(1, _TOP_BUCKET):
        value = max(2, int(GAMMA ** (bucket - 1 + 1e-9)))  # within a few of the answer
        while value > 2 and bucket_of(value - 1) >= bucket:
            value -= 1
        while bucket_of(value) < bucket:
            value += 1
        smallest.append(value)
    return np.array(smallest, dtype=np.int64)
