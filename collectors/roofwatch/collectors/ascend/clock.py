"""Clock and number of an Ascend device's cube cores, as its own counters tell them: no table of chips is needed.

Cycles are summed over the cores that a kernel ran on, times are of one core: so the clock is cycles ÷ (blocks × time)
where every block had a core of its own. Core occupation (``cube_utilization``) is cycles ÷ (clock × cores × duration):
the number of cores follows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from roofwatch.collectors.ascend.values import blocks as blocks_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from roofwatch.collectors.ascend.csv_cells import Cells
    from roofwatch.collectors.ascend.csv_head import Head

    Floats = NDArray[np.float64]

MAX_SAMPLES = 20_000  # rows looked at; the figures do not change within a window
_SHORTEST_US = 5.0  # times are written to the nanosecond: what is longer is known to 1 in 5000
_LEAST_OCCUPIED = 0.05
_SAME = 0.01  # clocks that differ by less are one
_TOP = 90  # per cent: blocks that shared a core lower the quotient, so the true clock is at the top
_LOWEST_HZ, _HIGHEST_HZ = 1e8, 5e9
_MAX_CORES = 1024
_WHOLE = 0.1  # how far from a whole number of cores an answer may be


def clock_of(cycles: Floats, blocks: Floats, time_us: Floats) -> float | None:
    """The cores' clock in Hz, from kernels that ran on cores of one sort alone; None where they do not agree."""
    with np.errstate(all="ignore"):
        found = cycles / (blocks * time_us * 1e-6)
    found = found[(time_us >= _SHORTEST_US) & (blocks > 0) & (found > _LOWEST_HZ) & (found < _HIGHEST_HZ)]
    if not len(found):
        return None
    top = np.percentile(found, _TOP)
    near = found[np.abs(found - top) <= _SAME * top]
    return round(float(np.median(near)) / 1e6) * 1e6


def cores_of(cycles: Floats, occupied: Floats, duration_us: Floats, clock_hz: float) -> int | None:
    """The number of cube cores; None where kernels do not agree on a whole number."""
    with np.errstate(all="ignore"):
        found = cycles / (clock_hz * occupied * duration_us * 1e-6)
    found = found[(duration_us >= _SHORTEST_US) & (occupied >= _LEAST_OCCUPIED) & (found > 0) & (found < _MAX_CORES)]
    if not len(found):
        return None
    middle = float(np.median(found))
    return round(middle) if abs(middle - round(middle)) <= _WHOLE and round(middle) else None


class Samples:
    """The first rows of a table that tell cycles, for ``clock_of`` and ``cores_of``."""

    def __init__(self) -> None:
        self._parts: list[Floats] = []
        self._count = 0

    def take(self, cells: Cells, head: Head, duration_ns: NDArray[np.int64]) -> None:
        """Takes rows of kernels that ran on cube cores alone."""
        needed = ("core", "blocks", "cube_time", "cube_cycles")
        if self._count >= MAX_SAMPLES or any(name not in head.places for name in needed):
            return
        cores = cells.texts(head.places["core"], head.places["core"])
        blocks = [blocks_of(text.decode("ascii", "replace")) or 0 for text in cells.texts(*[head.places["blocks"]] * 2)]
        occupied = head.pipes.get("occupied_ns", ())
        time, cycles = cells.decimals([head.places["cube_time"], head.places["cube_cycles"]])
        used = cells.decimals(occupied)[0] / 100 if occupied else np.full(len(cells), np.nan)
        chosen = np.array([core.strip() == b"AI_CORE" for core in cores]) & (cycles > 0)
        part = np.stack([cycles, np.array(blocks, dtype=np.float64), time, used, duration_ns / 1e3])[:, chosen]
        self._parts.append(part)
        self._count += len(cells)

    def answer(self) -> tuple[float | None, int | None]:
        """Clock in Hz and number of cube cores, None where not told."""
        if not self._parts:
            return None, None
        cycles, blocks, time, occupied, duration = np.concatenate(self._parts, axis=1)
        clock = clock_of(cycles, blocks, time)
        return clock, None if clock is None else cores_of(cycles, occupied, duration, clock)
