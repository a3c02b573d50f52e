"""What an Ascend core's metrics say of a kernel, beside what its sizes say. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from roofwatch.collectors import ascend_kernels
from roofwatch.collectors.base import RawGroup
from roofwatch.collectors.pipes import Needed, judge_by_one_side, judge_by_pipes, summed, with_occupied
from roofwatch.model.record import Bound, Device, Evidence, Signature
from roofwatch.model.roofline import LATENCY_NS, UNKNOWN, Verdict, roof_time_ns


@dataclass(frozen=True, slots=True)
class Ran:
    """All calls of a signature on a device; ``units`` are the cores of the sort that its blocks are counted in."""

    groups: Sequence[RawGroup]
    signature: Signature
    mean_ns: float
    blocks: int | None
    units: int | None


def measured(found: Verdict, ran: Ran, device: Device) -> Verdict:
    """With metrics their verdict stands, and the formula's (``found``) beside it."""
    if any((g.core or "").startswith("DSA") for g in ran.groups):
        return UNKNOWN  # the engine of random bits has a rate of its own, which nothing here tells
    bound = _bound(found, ran, device)
    if bound is None:
        return found
    formula = found.bound if found.evidence is Evidence.SHAPES and found.bound is not Bound.UNKNOWN else None
    return replace(found, bound=bound, evidence=Evidence.COUNTERS, formula_bound=formula)


def _bound(found: Verdict, ran: Ran, device: Device) -> Bound | None:
    pipes = summed([g.pipes for g in ran.groups if g.pipes is not None])
    if pipes is None:
        return None
    pipes = with_occupied(pipes, device.units)
    filled = None if ran.blocks is None or not ran.units else ran.blocks / ran.units
    fraction = None if found.roof_ns is None or not ran.mean_ns else found.roof_ns / ran.mean_ns
    sort = ascend_kernels.sort_of(ran.groups[0])
    bandwidth = None if device.peaks.bandwidth is None else device.peaks.bandwidth.value
    return judge_by_pipes(pipes, sort, filled, fraction) or judge_by_one_side(
        pipes, sort, filled, bandwidth, _needed(ran, device), short=ran.mean_ns < LATENCY_NS
    )


def _needed(ran: Ran, device: Device) -> Needed | None:
    """What of its time the kernel would need at each ceiling, by its sizes."""
    of = ran.signature
    if of.flops is None or of.bytes is None or ran.mean_ns <= 0:
        return None
    times = roof_time_ns(of.flops, of.bytes, device.peaks, of.precision, of.unit)
    return None if times is None else Needed(times[0] / ran.mean_ns, times[1] / ran.mean_ns)
