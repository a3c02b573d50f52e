"""The roofline: attainable = min(π, β·I), ridge I* = π / β, and the verdict of one signature on one device.

π is the peak of the precision *and* unit that the kernel uses, β the memory bandwidth. The time of a call cannot be
less than max(FLOPs/π, bytes/β); roof fraction is that time over the measured one. Pure functions.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from roofwatch.model.record import Bound, Evidence, KernelStat, Peaks, Vendor

LATENCY_FRACTION = 0.3  # below this share of the roof neither ceiling explains the time …
LATENCY_NS = 10_000  # … and a kernel this short is mostly launch, ramp-up and tail (a few µs on any device)
EXCEEDED = 1.05  # 5 %: clocks above nominal and timestamp noise; beyond it the model is wrong for this record

MOST_ROOF_NS = 1 << 50  # 13 days: no call takes so long, so its shapes are damage, and a store takes no such time


@dataclass(frozen=True, slots=True)
class Verdict:
    """Bound and evidence, with the attainable time of one call in nanoseconds and the ridge in FLOP per byte.

    ``formula_bound``: the shapes' verdict beside a measured one.
    """

    bound: Bound
    evidence: Evidence
    roof_ns: float | None = None
    ridge: float | None = None
    formula_bound: Bound | None = None


UNKNOWN = Verdict(Bound.UNKNOWN, Evidence.NONE)


def ridge_of(peaks: Peaks, precision: str | None, unit: str | None) -> float | None:
    """π / β in FLOP per byte, or None where either is unknown."""
    peak = peak_of(peaks, precision, unit)
    return None if peak is None or peaks.bandwidth is None else peak / peaks.bandwidth.value


def attainable(intensity: float, peak: float, bandwidth: float) -> float:
    """FLOP/s that a kernel of this intensity (FLOP per byte) can reach at most."""
    return min(peak, bandwidth * intensity)


def roof_time_ns(
    flops: int, moved: int, peaks: Peaks, precision: str | None, unit: str | None
) -> tuple[float, float] | None:
    """(compute time, memory time) of one call at the ceilings, in ns; None where a ceiling that matters is unknown."""
    if peaks.bandwidth is None:
        return None
    peak = peak_of(peaks, precision, unit)
    if flops and peak is None:
        return None
    compute = flops / peak * 1e9 if flops and peak is not None else 0.0
    return compute, moved / peaks.bandwidth.value * 1e9


def judge(  # noqa: PLR0913 - the roofline of one kernel has this many givens; all but four are named
    flops: int,
    moved: int,
    mean_ns: float,
    peaks: Peaks,
    *,
    precision: str | None,
    unit: str | None,
    blocks: int | None = None,
    units: int | None = None,
    evidence: Evidence = Evidence.SHAPES,
) -> Verdict:
    """The verdict of a signature: host (no device work at all), latency, compute or memory; unknown without peaks.

    ``blocks``: the smallest launch grid; ``units``: SMs, CUs or cores. ``mean_ns``: mean duration of a call.
    """
    if flops == 0 and moved == 0:
        return Verdict(Bound.HOST, evidence, 0.0)
    times = roof_time_ns(flops, moved, peaks, precision, unit)
    if times is None or max(times) >= MOST_ROOF_NS:
        return UNKNOWN
    compute, memory = times
    roof = max(compute, memory)
    ridge = ridge_of(peaks, precision, unit) if flops else None
    fraction = roof / mean_ns if mean_ns > 0 else None
    if fraction is not None and fraction < LATENCY_FRACTION and _short(mean_ns, blocks, units):
        return Verdict(Bound.LATENCY, evidence, roof, ridge)
    return Verdict(Bound.COMPUTE if compute >= memory else Bound.MEMORY, evidence, roof, ridge)


def exceeded(fraction: float | None) -> bool:
    """Whether a record beats its roof by more than can be: wrong for it is the model (data in cache, a wrong shape)."""
    return fraction is not None and fraction > EXCEEDED


def l2_assisted(
    vendor: Vendor | None, flops: int | None, moved: int | None, ridge: float | None, fraction: float | None
) -> bool | None:
    """Whether an Ascend kernel's bytes are more than its memory delivers in the measured time: part came from L2.

    None where its bytes, its roof or its time are unknown, and for other vendors. Only where the bytes make the roof:
    a product that beats its compute ceiling is no matter of L2. ``flops`` and ``moved`` are of a call.
    """
    if vendor is not Vendor.ASCEND or fraction is None or not moved:
        return None
    by_bytes = not flops or (ridge is not None and flops / moved < ridge)
    return by_bytes and fraction > 1.0


def beyond(kernels: Iterable[KernelStat]) -> list[KernelStat]:
    """The stats with counted work that beat their roof by more than can be, by device time."""
    return sorted((k for k in kernels if exceeded(k.roof_fraction)), key=lambda k: -k.total_ns)


def _short(mean_ns: float, blocks: int | None, units: int | None) -> bool:
    return mean_ns < LATENCY_NS or (blocks is not None and units is not None and blocks < units)


def peak_of(peaks: Peaks, precision: str | None, unit: str | None) -> float | None:
    """π in FLOP/s of a precision on a unit, or None."""
    if precision is None or unit is None:
        return None
    found = peaks.flops.get((precision, unit))
    return None if found is None else found.value
