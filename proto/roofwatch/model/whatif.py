"""What if: the roofline of every kernel once more, with fewer bytes or other ceilings.

A kernel's roof time is max(FLOPs/π, bytes/β). A change moves one of the two (weights or keys and values of fewer bits
take fewer bytes; more peak; more bandwidth; another device's figures for both), and the kernel is taken to keep the
share of its roof that it reaches now: time' = time · roof' ÷ roof. Of what has no roof, or none that explains its time,
nothing is foretold: it takes as long as before, and how much of the time that is stands in the answer.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from roofwatch.model import operands
from roofwatch.model.answer_rows import StatSum
from roofwatch.model.ceilings import Ceilings, ceilings_of
from roofwatch.model.kinds import Kind
from roofwatch.model.record import Bound, Peaks, Phase
from roofwatch.model.roofline import roof_time_ns
from roofwatch.model.shapes import Tensor

BITS: Mapping[str, int] = {"fp8": 8, "int8": 8, "fp4": 4, "int4": 4}


@dataclass(frozen=True, slots=True)
class Change:
    """What is to be different: names of ``BITS``, factors, the ceilings of another device (``device`` names it)."""

    weights: str | None = None
    kv: str | None = None
    compute: float = 1.0
    bandwidth: float = 1.0
    device: str | None = None
    peaks: Peaks | None = None


class Fate(StrEnum):
    """What became of a kernel's time, and if nothing, why."""

    CHANGED = "changed"
    SAME = "same"  # its roof is the same
    LATENCY = "latency"
    COMMUNICATION = "communication"
    COPY = "copy"
    HOST = "host"
    UNKNOWN = "unknown"  # no roof, or none on the other device


_KEPT = {
    Bound.LATENCY: Fate.LATENCY,
    Bound.COMMUNICATION: Fate.COMMUNICATION,
    Bound.COPY: Fate.COPY,
    Bound.HOST: Fate.HOST,
}


@dataclass(frozen=True, slots=True)
class Foretold:
    """A kernel's sums with the time that is foretold, what became of it, and what bounds it then."""

    sums: StatSum
    est_ns: float
    fate: Fate
    bound: Bound


@dataclass(slots=True)
class Replay:
    """All kernels once more."""

    change: Change
    kernels: list[Foretold] = field(default_factory=list)
    by: dict[Fate, float] = field(default_factory=lambda: dict.fromkeys(Fate, 0.0))  # est ns before
    weights_ns: float = 0.0  # time of kernels whose weights are fewer bytes
    weights_unknown_ns: float = 0.0  # time of forward products without known weights
    kv_ns: float = 0.0
    training: bool = False

    @property
    def before_ns(self) -> float:
        """Device time as it is."""
        return sum(self.by.values())

    @property
    def after_ns(self) -> float:
        """Device time as foretold."""
        return sum(kernel.est_ns for kernel in self.kernels)


def replay(sums: Iterable[StatSum], change: Change) -> Replay:
    """Foretell every kernel. In a selection that trains, only what is marked as forward has weights that can shrink."""
    every = list(sums)
    found = Replay(change, training=any(_trains(s) for s in every))
    for s in every:
        kernel = _foretold(s, found)
        found.kernels.append(kernel)
        found.by[kernel.fate] += s.est_ns
    return found


def _trains(s: StatSum) -> bool:
    return s.signature.phase in {Phase.BACKWARD, Phase.OPTIMIZER} or s.signature.kind is Kind.OPTIMIZER


def _foretold(s: StatSum, found: Replay) -> Foretold:
    saved = _saved_bytes(s, found)
    kept = _KEPT.get(s.bound)
    if kept is not None:
        return Foretold(s, s.est_ns, kept, s.bound)
    ceilings = ceilings_of(s)
    then = None if ceilings is None else _moved(s, ceilings, saved, found.change)
    if ceilings is None or then is None:
        return Foretold(s, s.est_ns, Fate.UNKNOWN, s.bound)
    ratio = then.roof / ceilings.roof
    bound = s.bound if ratio == 1.0 else Bound.COMPUTE if then.compute >= then.memory else Bound.MEMORY
    return Foretold(s, s.est_ns * ratio, Fate.SAME if ratio == 1.0 else Fate.CHANGED, bound)


def _moved(s: StatSum, ceilings: Ceilings, saved: float, change: Change) -> Ceilings | None:
    """The ceilings after the change; ``saved`` is the share of the bytes that falls away."""
    if change.peaks is not None:
        g = s.signature
        if g.flops is None or g.bytes is None:
            return None
        times = roof_time_ns(g.flops, g.bytes, change.peaks, g.precision, g.unit)
        if times is None:
            return None
        ceilings = Ceilings(times[0] * s.calls, times[1] * s.calls)
    return Ceilings(ceilings.compute / change.compute, ceilings.memory * (1.0 - saved) / change.bandwidth)


def _saved_bytes(s: StatSum, found: Replay) -> float:
    """The share of a call's bytes that smaller weights, or keys and values, take away."""
    change, g, saved = found.change, s.signature, 0.0
    if change.weights is not None and (not found.training or g.phase is Phase.FORWARD):
        weights = operands.weights(g)
        if weights is not None:
            fewer = _fewer((weights,), BITS[change.weights])
            saved += fewer
            found.weights_ns += s.est_ns if fewer else 0.0
        elif operands.products(g.kind) and g.phase is not Phase.BACKWARD:
            found.weights_unknown_ns += s.est_ns
    if change.kv is not None and (not found.training or g.phase is Phase.FORWARD):
        pair = operands.keys_and_values(g)
        if pair is not None:
            fewer = _fewer(pair, BITS[change.kv])
            saved += fewer
            found.kv_ns += s.est_ns if fewer else 0.0
    return min(1.0, saved / g.bytes) if g.bytes else 0.0


def _fewer(tensors: Iterable[Tensor], bits: int) -> float:
    """Bytes that fall away; none where a tensor has as few bits already."""
    return sum(t.bytes * (1.0 - bits / (8 * t.item)) for t in tensors if 8 * t.item > bits)


def weights_ns(parameters: float, bits: float, bandwidth: float) -> float:
    """Time in ns to read a model's weights once at ``bandwidth`` bytes/s: the least that a token takes at batch one."""
    return parameters * bits / 8 / bandwidth * 1e9
