"""Which Ascend chip it is: databases tell a family, tables nothing but what its clock and cores can be recovered from.

The clock that a profile tells goes before the table's: FLOP/s are cores × clock × what a core does in a cycle, and one
board was seen to run faster than its platform file says.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from roofwatch.model.record import Peak, Peaks

if TYPE_CHECKING:
    from roofwatch.model.devices import Entry

MEMORY_TOLERANCE = 0.06
CLOCK_TOLERANCE = 0.01  # recovered from cycles, clocks come out within 0.1 %; the nearest two chips differ by 2.7 %
SLOWEST, FASTEST = 0.3, 1.3  # of the nominal clock; a chip never runs beyond, so such a figure is damage
CUBE_FLOPS = 8192  # of a core in a cycle, in half types: a product of 16 × 16 × 16 on every chip there is
_FAMILIES = (
    (re.compile(r"(ascend ?)?910b"), ("910b", "910c")),
    (re.compile(r"(ascend ?)?910(c|_93)"), ("910c",)),
    (re.compile(r"(ascend ?)?910a"), ("910a",)),
    (re.compile(r"(ascend ?)?310p"), ("310p",)),
    (re.compile(r"(ascend ?)?(950|910_95)\w*"), ("950",)),
    (re.compile(r"(ascend ?)?(910)?|npu"), ("910a", "910b", "910c", "310p", "950")),
)


@dataclass(frozen=True, slots=True)
class Chip:
    """What is known of a chip; ``model`` is "" where its own name stays."""

    model: str = ""
    units: int | None = None  # cube cores, where all chips that fit have as many
    inferred: bool = False
    peaks: Peaks = field(default_factory=Peaks)


def identify(
    entries: Sequence[Entry],
    name: str,
    units: int | None,
    memory_bytes: int | None,
    clock_hz: float | None,
    least_units: int | None = None,
) -> Chip:
    """The chip of a name in lower case; ``units`` are its cube cores, ``least_units`` those that were seen at work.

    A full name decides, unless it has other cores than the whole chip (a slice). A family is narrowed down by cores,
    memory and clock; of the chips that are left only the ceilings that all share are known, and the chip is inferred.
    Of a chip that nothing fits the cube's half-type ceiling is known, where cores and clock are.
    """
    exact = [e for e in entries if any(p.fullmatch(name) for p in e.names)]
    if exact:
        whole = [e for e in exact if units in (None, e.units)]
        return Chip(peaks=_shared([_at(e, clock_hz) for e in whole]) if whole else _cube(units, clock_hz))
    fitting = [e for e in _fitting(entries, name, units, clock_hz, least_units) if _fits(e.memory, memory_bytes)]
    if not fitting:
        return Chip(peaks=_cube(units, clock_hz))
    model = " or ".join(e.model for e in fitting)
    counts = {e.units for e in fitting}
    shared = next(iter(counts)) if len(counts) == 1 else None
    return Chip(model, units or shared, inferred=True, peaks=_shared([_at(e, clock_hz) for e in fitting]))


def _fitting(
    entries: Sequence[Entry], name: str, units: int | None, clock_hz: float | None, least_units: int | None
) -> list[Entry]:
    """The chips of a family with these cores at this clock; nothing where neither is told."""
    families = next((found for pattern, found in _FAMILIES if pattern.fullmatch(name)), ())
    found = [e for e in entries if e.family in families and units in (None, e.units)]
    same = found
    if clock_hz is not None:
        same = [e for e in found if any(abs(c - clock_hz) <= CLOCK_TOLERANCE * c for c in e.clocks)]
    if units is not None:
        return same or found  # a chip that is held at a lower clock is still one of these
    if clock_hz is None:
        return []
    return [e for e in same if e.units is not None and e.units >= (least_units or 0)]


def _fits(memory: float | None, told: int | None) -> bool:
    return told is None or memory is None or abs(told - memory) <= MEMORY_TOLERANCE * memory


def _at(entry: Entry, clock_hz: float | None) -> Peaks:
    """An entry's ceilings at the clock that a profile tells."""
    nominal = entry.clocks[0] if entry.clocks else None
    if clock_hz is None or nominal is None or not SLOWEST <= clock_hz / nominal <= FASTEST:
        return entry.peaks
    scaled = {key: Peak(peak.value * clock_hz / nominal, "reported") for key, peak in entry.peaks.flops.items()}
    return Peaks(scaled, entry.peaks.bandwidth)


def _shared(peaks: Sequence[Peaks]) -> Peaks:
    """What all know alike."""
    first, *others = peaks
    flops = {
        key: peak for key, peak in first.flops.items() if all(_alike(peak, other.flops.get(key)) for other in others)
    }
    return Peaks(flops, first.bandwidth if all(_alike(first.bandwidth, o.bandwidth) for o in others) else None)


def _alike(one: Peak | None, other: Peak | None) -> bool:
    return one is not None and other is not None and math.isclose(one.value, other.value, rel_tol=1e-4)


def _cube(units: int | None, clock_hz: float | None) -> Peaks:
    if units is None or clock_hz is None:
        return Peaks()
    return Peaks({("fp16", "matrix"): Peak(units * clock_hz * CUBE_FLOPS, "reported")})
