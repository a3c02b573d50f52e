"""The device time of the same kernels on smaller batches, from what each reached of its roof.

The achieved fraction is carried along: time' = time · roof' ÷ roof. Of the roof's two ceilings the arithmetic shrinks
with the work; the bytes have a part that does not (weights are read once a call, however few the tokens), so a kernel
that is bound by compute may become bound by memory. What is latency bound takes as long whatever its size. A kernel of
unknown roof is taken to shrink with its work.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

from roofwatch.model import operands
from roofwatch.model.answer_rows import StatSum
from roofwatch.model.ceilings import ceilings_of
from roofwatch.model.padding_split import Batches, Scaling, scaling, square, tokenless
from roofwatch.model.record import Bound, Signature
from roofwatch.model.shapes import Tensor

FITTING = 0.25  # of the time of kernels with shapes: with less of the batches' sizes nothing is told
_DIGITS = 3  # kernels whose ceilings relate alike to a thousandth are one: there may be thousands

Parts = tuple[float, float, float]  # compute, fixed and moved bytes' time, the roof being one


@dataclass(slots=True)
class Shrinking:
    """Kernels that scale alike: their device time as a function of how much of their work is left."""

    total_ns: float = 0.0
    parts: defaultdict[Parts, float] = field(default_factory=lambda: defaultdict(float))

    def add(self, est_ns: float, parts: Parts) -> None:
        """Count a kernel."""
        compute, fixed, moved = (round(part, _DIGITS) for part in parts)
        self.total_ns += est_ns
        self.parts[compute, fixed, moved] += est_ns

    def at(self, work: float, data: float) -> float:
        """Device time with that share of the arithmetic and of the batch's bytes; (1, 1) gives the total."""
        whole = 0.0
        for (compute, fixed, moved), est_ns in self.parts.items():
            roof = max(compute, fixed + moved)
            whole += est_ns * max(compute * work, fixed + moved * data) / roof
        return whole


@dataclass(slots=True)
class DeviceTime:
    """Device time by how it scales.

    Of linear and quadratic ``unroofed_ns`` is of unknown roof, ``latency_ns`` latency bound. ``judged_ns`` is the time
    of all kernels that might be of a batch and whose shapes are known.
    """

    linear: Shrinking = field(default_factory=Shrinking)
    fused: Shrinking = field(default_factory=Shrinking)  # attention that keeps its scores on the chip
    scores: Shrinking = field(default_factory=Shrinking)  # …and what reads or writes them
    by: dict[Scaling, float] = field(default_factory=lambda: dict.fromkeys(Scaling, 0.0))
    unroofed_ns: float = 0.0
    latency_ns: float = 0.0
    judged_ns: float = 0.0

    @property
    def total_ns(self) -> float:
        """All device time."""
        return sum(self.by.values())

    def shrunk(self, linear: float, quadratic: float) -> float:
        """Device time of the linear and quadratic kernels with that share of the tokens and of their squares."""
        return (
            self.linear.at(linear, linear)
            + self.fused.at(quadratic, linear)
            + self.scores.at(quadratic, quadratic)
        )  # fmt: skip

    @property
    def scaling_ns(self) -> float:
        """Device time of the linear and quadratic kernels."""
        return self.linear.total_ns + self.fused.total_ns + self.scores.total_ns

    @property
    def fits(self) -> bool:
        """Whether enough kernels have the shapes of the batches: else batches and kernels are not of one another."""
        return self.scaling_ns > 0 and self.scaling_ns >= FITTING * self.judged_ns


def device_time(sums: Iterable[StatSum], batches: Batches) -> DeviceTime:
    """The device time of these kernels by how it scales with the batches that were seen."""
    found = DeviceTime()
    for s in sums:
        how = scaling(s.signature, s.bound, batches)
        found.by[how] += s.est_ns
        if how is not Scaling.UNKNOWN and not tokenless(s.signature, s.bound):
            found.judged_ns += s.est_ns
        if how not in {Scaling.LINEAR, Scaling.QUADRATIC}:
            continue
        latent = s.bound is Bound.LATENCY
        ceilings = None if latent else ceilings_of(s)
        if latent:
            parts: Parts = (0.0, 1.0, 0.0)
            found.latency_ns += s.est_ns
        elif ceilings is None:
            parts = (1.0, 0.0, 0.0)
            found.unroofed_ns += s.est_ns
        else:
            share = fixed_share(s.signature, batches) if how is Scaling.LINEAR else 0.0
            memory = ceilings.memory / ceilings.roof
            parts = (ceilings.compute / ceilings.roof, memory * share, memory * (1 - share))
        _curve(found, s.signature, how, batches).add(s.est_ns, parts)
    return found


def _curve(found: DeviceTime, signature: Signature, how: Scaling, batches: Batches) -> Shrinking:
    if how is Scaling.LINEAR:
        return found.linear
    return found.scores if square(signature, batches) else found.fused


def fixed_share(signature: Signature, batches: Batches) -> float:
    """The share of a linear kernel's bytes that is not of the batch: its weights, or a gradient of weights."""
    told = operands.call(signature)
    if told is None or not signature.bytes:
        return 0.0
    apart = [t for t in told.tensors if not batches.hold(t.shape)]
    fixed = sum(t.bytes for t in apart)
    if not apart and operands.products(signature.kind):  # the tokens are summed over: the output is as weights are
        fixed = max(0, signature.bytes - _bytes(told.tensors))
    return min(1.0, fixed / signature.bytes)


def _bytes(tensors: Iterable[Tensor]) -> int:
    return sum(t.bytes for t in tensors)
