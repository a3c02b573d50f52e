"""The two ceilings of a kernel apart: the least time its arithmetic takes, and the least time its bytes take.

A record keeps the larger of the two (the roof) and the ridge; FLOPs and bytes give the other. What-if answers move one
ceiling and carry the achieved fraction along: time' = time · max(compute', memory') ÷ max(compute, memory).
"""

from __future__ import annotations

from dataclasses import dataclass

from roofwatch.model.answer_rows import StatSum
from roofwatch.model.record import Signature


@dataclass(frozen=True, slots=True)
class Ceilings:
    """Least time of the arithmetic and of the bytes, in ns of all calls."""

    compute: float
    memory: float

    @property
    def roof(self) -> float:
        """The larger one."""
        return max(self.compute, self.memory)


def ceilings_of(s: StatSum) -> Ceilings | None:
    """The ceilings of a row's sums; None where the roof is unknown or nothing."""
    return split_roof(s.signature, s.roof_total_ns, s.ridge)


def split_roof(signature: Signature, roof_ns: float | None, ridge: float | None) -> Ceilings | None:
    """The ceilings behind a roof: with intensity I = FLOPs ÷ bytes and ridge I*, compute ÷ memory = I ÷ I*."""
    if not roof_ns or roof_ns <= 0:
        return None
    if not signature.flops or not ridge:
        return Ceilings(0.0, roof_ns)
    if not signature.bytes:
        return Ceilings(roof_ns, 0.0)
    ratio = signature.flops / signature.bytes / ridge
    return Ceilings(roof_ns, roof_ns / ratio) if ratio >= 1 else Ceilings(roof_ns * ratio, roof_ns)
