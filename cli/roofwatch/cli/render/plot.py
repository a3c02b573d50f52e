"""The roofline as text: intensity and FLOP/s on logarithmic axes, the roofs as lines, kernels as marks."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

MARKS = "123456789abcdefghijklmnopqrstuvwxyz"
HEIGHT = 16
LABEL = 6  # columns of an axis label: "100 T" and some air
LABELS = 2  # an axis with one label has no scale
SLOPE = 10  # how much of a memory roof is seen: from a tenth of the ridge on
MARGIN = 0.15  # decades left free around the points


@dataclass(frozen=True, slots=True)
class Point:
    """One kernel: FLOP per byte, FLOP/s reached, and the roof above it (None where it is unknown)."""

    mark: str
    intensity: float
    reached: float
    peak: float | None = None  # FLOP/s
    bandwidth: float | None = None  # bytes/s


def points(rows: Sequence[Mapping[str, Any]]) -> list[Point]:
    """The rows that have a place: FLOPs, bytes and time known. Marks follow the rows' order.

    The roof follows from the row itself: attainable = FLOPs ÷ (mean time × roof fraction), which is β·I left of the
    ridge and π from there on; the other one is then β·ridge or π ÷ ridge.
    """
    found = []
    for mark, row in zip(MARKS, rows, strict=False):
        if not row["flops"] or not row["intensity"] or not row["mean_ns"]:
            continue
        intensity, fraction, ridge = row["intensity"], row["roof_fraction"], row["ridge"]
        reached = row["flops"] / row["mean_ns"] * 1e9
        if not fraction or not ridge:
            found.append(Point(mark, intensity, reached))
            continue
        bandwidth = reached / fraction / min(intensity, ridge)
        found.append(Point(mark, intensity, reached, bandwidth * ridge, bandwidth))
    return found


@dataclass(frozen=True, slots=True)
class _Axis:
    """A logarithmic axis over a number of cells, in decades."""

    low: float
    high: float
    cells: int

    def cell(self, value: float) -> int:
        return round((math.log10(value) - self.low) / (self.high - self.low) * (self.cells - 1))

    def value(self, cell: int) -> float:
        return float(10 ** (self.low + cell / (self.cells - 1) * (self.high - self.low)))

    def decades(self) -> range:
        return range(math.ceil(self.low), math.floor(self.high) + 1)


def _axis(values: Iterable[float], cells: int) -> _Axis:
    """An axis that holds all values, a decade at least, and so many further as make two labels."""
    logs = [math.log10(value) for value in values]
    low, high = min(logs) - MARGIN, max(max(logs) + MARGIN, min(logs) + 1)
    while math.floor(high) - math.ceil(low) + 1 < LABELS:
        below, above = math.ceil(low) - 1, math.floor(high) + 1
        low, high = (below, high) if low - below <= above - high else (low, above)
    return _Axis(low, high, cells)


def plot(shown: Sequence[Point], room: int) -> list[str]:
    """Lines of at most ``room`` columns; no lines where there is no point."""
    if not shown:
        return []
    roofs = sorted({(p.peak, p.bandwidth) for p in shown if p.peak and p.bandwidth})
    ridges = [peak / bandwidth for peak, bandwidth in roofs]
    # Left of each ridge its memory roof is seen down to a tenth, right of it some of its compute roof.
    beside = [ridge * far for ridge in ridges for far in (1 / SLOPE, math.sqrt(SLOPE))]
    across = _axis([*(p.intensity for p in shown), *beside], room - LABEL - 2)
    up = _axis([*(p.reached for p in shown), *(peak * far for peak, _ in roofs for far in (1 / SLOPE, 1))], HEIGHT)
    canvas = [[" "] * across.cells for _ in range(HEIGHT)]
    for peak, bandwidth in roofs:
        for column in range(across.cells):
            slope = bandwidth * across.value(column)
            row = up.cell(min(peak, slope))
            if 0 <= row < HEIGHT:
                canvas[row][column] = "─" if slope >= peak else "·"
    for point in reversed(shown):  # where two coincide, the one with more time is seen
        canvas[up.cell(point.reached)][across.cell(point.intensity)] = point.mark
    return [*_with_labels(canvas, up), *_foot(across)]


def _with_labels(canvas: Sequence[Sequence[str]], up: _Axis) -> list[str]:
    names = {up.cell(10.0**decade): _short(10.0**decade) for decade in up.decades()}
    lines = [
        f"{names.get(row, ''):>{LABEL}} {'┤' if row in names else '│'}{''.join(cells)}".rstrip()
        for row, cells in enumerate(canvas)
    ]
    return ["  FLOP/s over FLOP per byte", *reversed(lines)]


def _foot(across: _Axis) -> list[str]:
    rule, labels = ["─"] * across.cells, [" "] * (across.cells + LABEL)
    for decade in across.decades():
        column, name = across.cell(10.0**decade), _short(10.0**decade)
        rule[column] = "┬"
        start = min(column, across.cells - len(name))
        labels[start : start + len(name)] = name
    return [" " * (LABEL + 1) + "└" + "".join(rule), (" " * (LABEL + 2) + "".join(labels)[: across.cells]).rstrip()]


def _short(value: float) -> str:
    """A decade without a unit: 0.01, 1, 100, 1 k, 10 T."""
    prefix = next((p for p in (15, 12, 9, 6, 3) if value >= 10**p * 0.999), 0)
    return f"{value / 10**prefix:g} {'kMGTP'[prefix // 3 - 1]}" if prefix else f"{value:g}"
