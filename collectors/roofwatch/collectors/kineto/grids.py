"""How each kernel was launched: by its own grid or else by the call that launched it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from roofwatch.collectors.base import Grid
from roofwatch.collectors.kineto import calls
from roofwatch.collectors.kineto.columns import KERNEL
from roofwatch.collectors.kineto.tables import small

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from roofwatch.collectors.kineto.columns import Columns
    from roofwatch.collectors.kineto.link import Launches

    Ints = NDArray[np.int64]

UNKNOWN = -1


@dataclass(frozen=True, slots=True)
class Grids:
    """By device record: blocks and which of the grids; -1 where neither the record nor its launch tells."""

    blocks: Ints
    which: Ints
    texts: Sequence[Grid]


def grids_of(columns: Columns, launches: Launches) -> Grids:
    """The grids of a trace's kernels. Where a grid counts work items its sides say nothing and are left out."""
    device, host, row = columns.device, columns.host, launches.row
    blocks, threads, x, y = (device[name] for name in ("grid", "block", "grid_x", "grid_y"))
    if len(host):
        blocks = np.where((blocks < 0) & (row >= 0), host["grid"][row], blocks)
        threads = np.where((threads < 0) & (row >= 0), host["block"][row], threads)
        in_items = (row >= 0) & calls.mask(columns.names.values_seen, calls.is_item_grid)[host["name"][row]]
        blocks = np.where(in_items & (threads > 0) & (blocks > 0), -(-blocks // np.maximum(threads, 1)), blocks)
        x, y = np.where(in_items, UNKNOWN, x), np.where(in_items, UNKNOWN, y)
    which, texts = _distinct(blocks, threads, x, y, (device["sort"] == KERNEL) & (blocks > 0))
    return Grids(small(blocks), small(which), texts)


def _distinct(blocks: Ints, threads: Ints, x: Ints, y: Ints, known: NDArray[np.bool_]) -> tuple[Ints, list[Grid]]:
    which = np.full(len(blocks), UNKNOWN, dtype=np.int64)
    (rows,) = np.nonzero(known)
    if not len(rows):
        return which, []
    columns = [column[rows] for column in (y, x, threads, blocks)]
    order = np.lexsort(columns)
    new = np.zeros(len(order), dtype=np.bool_)
    new[0] = True
    for column in columns:
        new[1:] |= column[order][1:] != column[order][:-1]
    which[rows[order]] = np.cumsum(new) - 1
    values = zip(*(column[order][new].tolist() for column in columns), strict=True)
    return which, [Grid(b, _positive(t), _positive(i), _positive(j)) for j, i, t, b in values]


def _positive(value: int) -> int | None:
    return value if value > 0 else None
