"""What to beware of in the windows that two sides are made of: what is in no unit, how few units there are."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from roofwatch.model.comparison_pieces import COMPUTE
from roofwatch.model.comparison_sides import CALL, STEP, WINDOW, Taken

WITHOUT_SHAPES = 0.2  # of a side's kernels
FEW = 3  # steps: fewer show a moment, not a mean
LONGER = 0.05  # relative: how far mean windows are apart before the window is no unit
OUTSIDE = 0.01  # of a side's device time: what is left out of a step and less needs no word

Found = Iterator[tuple[str, dict[str, Any]]]


def of_windows(left: Taken, right: Taken) -> Found:
    """Warnings of units and windows, as names and figures."""
    if left.per == WINDOW:
        told = [side.side.counts.steps for side in (left, right)]
        if bool(told[0]) != bool(told[1]):
            yield "steps", {"side": "left" if told[0] else "right"}
        lengths = [side.time_ns / side.side.counts.pairs for side in (left, right)]
        if not all(told) and abs(lengths[0] - lengths[1]) > LONGER * max(lengths):
            yield "windows", {"left_ns": round(lengths[0]), "right_ns": round(lengths[1])}
    for name, side in (("left", left), ("right", right)):
        counts = side.side.counts
        without = counts.without(side.per)
        if without is None:
            yield ("sums" if side.per == STEP else "silent_sums"), {"side": name}
        elif without:
            yield ("left_out" if side.per == STEP else "silent"), {"side": name, "count": without}
        yield from _left_out(name, side)
        kernels, blind = side.pieces.total(COMPUTE), side.pieces.shapeless()
        if kernels and blind > WITHOUT_SHAPES * kernels:
            yield "shapes", {"side": name, "share": blind / kernels}
    where = [name for name, side in (("on the left", left), ("on the right", right)) if side.side.counts.python_events]
    if where:
        yield "stacks", {"where": where[0] if len(where) == 1 else "on both sides"}
    yield from _few(left, right)


def _left_out(name: str, side: Taken) -> Found:
    """What of a side's windows is in no unit, and what makes its host slow."""
    device = side.outside_ns + side.pieces.total()
    if side.outside_ns > OUTSIDE * device:
        share, each = side.outside_ns / device, round(side.outside_ns / side.units)
        yield "outside", {"side": name, "share": share, "each_ns": each}
    if side.startup_ns > OUTSIDE * (side.time_ns + side.startup_ns):
        yield "startup", {"side": name, "each_ns": round(side.startup_ns / side.units), "per": side.per}


def _few(left: Taken, right: Taken) -> Found:
    """Too few steps or calls to be a mean; of both sides in one where they have as many."""
    if left.per not in {STEP, CALL}:
        return
    counts = [side.side.counts.steps if side.per == STEP else side.side.counts.calls for side in (left, right)]
    places = (
        [("on both sides", counts[0])]
        if counts[0] == counts[1]
        else list(zip(("on the left", "on the right"), counts, strict=True))
    )
    for where, units in places:
        if units < FEW:
            yield "few", {"where": where, "units": units, "per": left.per if units == 1 else f"{left.per}s"}
