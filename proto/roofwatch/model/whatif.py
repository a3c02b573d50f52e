"""What if: the roofline of every kernel once more, with fewer bytes or other ceilings.

A kernel's roof time is max(FLOPs/π, bytes/β). A change moves one of the two (weights or keys and values of fewer bits
take fewer bytes; more peak; more bandwidth; another device's figures for both), and the kernel is taken to keep the
share of its roof that it reaches now: time' = time · roof' ÷ roof. Of what has no roof, or none that explains its time,
nothing is foretold: it takes as long as before, and how much of the time that is stands in the answer. Where a change
might move such a kernel the answer is a bound ("at least"), and where most of the time is such there is none.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from roofwatch.model import operands
from roofwatch.model.answer_rows import StatSum
from roofwatch.model.ceilings import Ceilings, ceilings_of
from roofwatch.model.errors import UsageError
from roofwatch.model.kinds import Kind
from roofwatch.model.record import Bound, Peaks, Phase, Signature
from roofwatch.model.roofline import roof_time_ns
from roofwatch.model.shapes import Tensor

OPEN_LITTLE = 0.05  # of the device time that the change might move, unknown how: what is told holds for the whole
OPEN_MUCH = 0.5  # …and there is no answer
# On a device without the ceiling of a product's precision and unit, those that it may run at, best known first: fp32
# runs on the matrix unit where that takes it whole, else on vector units; reduced fp32 is another vendor's by name.
_ELSEWHERE: Mapping[str, tuple[tuple[str, str], ...]] = {
    "tf32": (("hf32", "matrix"), ("fp32", "matrix"), ("fp32", "vector")),
    "hf32": (("tf32", "matrix"), ("fp32", "matrix"), ("fp32", "vector")),
    "fp32": (("fp32", "matrix"), ("fp32", "vector")),
    "fp64": (("fp64", "matrix"), ("fp64", "vector")),
}
_WEIGHTY = {Kind.MOE, Kind.OTHER}  # may read weights, beside products
_PRODUCTS = {Kind.MATMUL, Kind.GROUPED_MATMUL, Kind.CONV, Kind.ATTENTION}

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


class Certainty(StrEnum):
    """What the sums of an answer are worth, where of some kernels it is unknown what the change does to them."""

    TOLD = "told"
    AT_LEAST = "at_least"  # the kernels that are known all gain, or all lose: the others can only add to it
    ABOUT = "about"
    CANNOT_SAY = "cannot_say"


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
    open_ns: float = 0.0  # time of kernels that the change may move, unknown how far
    training: bool = False

    @property
    def before_ns(self) -> float:
        """Device time as it is."""
        return sum(self.by.values())

    @property
    def after_ns(self) -> float:
        """Device time as foretold."""
        return sum(kernel.est_ns for kernel in self.kernels)

    @property
    def models(self) -> list[str]:
        """The device models of the kernels."""
        return sorted({kernel.sums.device or "unnamed device" for kernel in self.kernels})

    @property
    def certainty(self) -> Certainty:
        """What before and after are worth."""
        share = self.open_ns / self.before_ns if self.before_ns else 0.0
        if share < OPEN_LITTLE:
            return Certainty.TOLD
        if share >= OPEN_MUCH:
            return Certainty.CANNOT_SAY
        moved = [k.est_ns - k.sums.est_ns for k in self.kernels if k.fate is Fate.CHANGED]
        one_way = bool(moved) and (max(moved) <= 0 or min(moved) >= 0)
        return Certainty.AT_LEAST if one_way else Certainty.ABOUT if moved else Certainty.CANNOT_SAY


def replay(sums: Iterable[StatSum], change: Change) -> Replay:
    """Foretell every kernel. In a selection that trains, only what is marked as forward has weights that can shrink.

    Raises:
        UsageError: another device's ceilings are asked for, and the kernels are of several device models.
    """
    every = list(sums)
    models = sorted({s.device or "unnamed device" for s in every})
    if change.peaks is not None and len(models) > 1:
        raise UsageError(
            f"--device foretells one device as another, and the selection holds {', '.join(models[:6])}"
            f"{f' and {len(models) - 6} more' if len(models) > 6 else ''}: choose with --on-device."
        )
    found = Replay(change, training=any(_trains(s) for s in every))
    for s in every:
        kernel = _foretold(s, found)
        found.kernels.append(kernel)
        found.by[kernel.fate] += s.est_ns
    return found


def _trains(s: StatSum) -> bool:
    return s.signature.phase in {Phase.BACKWARD, Phase.OPTIMIZER} or s.signature.kind is Kind.OPTIMIZER


def _foretold(s: StatSum, found: Replay) -> Foretold:
    saved, may_save = _saved_bytes(s, found)
    kept = _KEPT.get(s.bound)
    if kept is not None:
        return Foretold(s, s.est_ns, kept, s.bound)
    ceilings, change = ceilings_of(s), found.change
    then = None if ceilings is None else _moved(s, ceilings, saved, change)
    if ceilings is None or then is None:
        moves_all = change.peaks is not None or change.compute != 1.0 or change.bandwidth != 1.0
        found.open_ns += s.est_ns if moves_all or may_save else 0.0
        return Foretold(s, s.est_ns, Fate.UNKNOWN, s.bound)
    found.open_ns += s.est_ns if may_save and s.bound is Bound.MEMORY else 0.0
    ratio = then.roof / ceilings.roof
    bound = s.bound if ratio == 1.0 else Bound.COMPUTE if then.compute >= then.memory else Bound.MEMORY
    return Foretold(s, s.est_ns * ratio, Fate.SAME if ratio == 1.0 else Fate.CHANGED, bound)


def _moved(s: StatSum, ceilings: Ceilings, saved: float, change: Change) -> Ceilings | None:
    """The ceilings after the change; ``saved`` is the share of the bytes that falls away."""
    if change.peaks is not None:
        times = _times(s.signature, change.peaks)
        if times is None:
            return None
        ceilings = Ceilings(times[0] * s.calls, times[1] * s.calls)
    return Ceilings(ceilings.compute / change.compute, ceilings.memory * (1.0 - saved) / change.bandwidth)


def _times(g: Signature, peaks: Peaks) -> tuple[float, float] | None:
    """Least times of a call's arithmetic and bytes on another device; a product runs there on the unit that it has."""
    if g.flops is None or g.bytes is None:
        return None
    found = roof_time_ns(g.flops, g.bytes, peaks, g.precision, g.unit)
    if found is not None or g.kind not in _PRODUCTS:
        return found
    tried = (roof_time_ns(g.flops, g.bytes, peaks, *place) for place in _ELSEWHERE.get(g.precision or "", ()))
    return next((times for times in tried if times is not None), None)


def _saved_bytes(s: StatSum, found: Replay) -> tuple[float, bool]:
    """The share of a call's bytes that smaller weights, or keys and values, take away; whether it may be more.

    It may where nothing tells whether the kernel reads any.
    """
    change, g, saved, more = found.change, s.signature, 0.0, False
    forward = g.phase is not Phase.BACKWARD and (not found.training or g.phase is Phase.FORWARD)
    if change.weights is not None and forward:
        weights = operands.weights(g)
        if weights is not None:
            fewer = _fewer((weights,), BITS[change.weights])
            saved += fewer
            found.weights_ns += s.est_ns if fewer else 0.0
        elif operands.products(g.kind) or g.kind in _WEIGHTY:
            more = True
            found.weights_unknown_ns += s.est_ns if operands.products(g.kind) else 0.0
    if change.kv is not None and forward:
        pair = operands.keys_and_values(g)
        if pair is not None:
            fewer = _fewer(pair, BITS[change.kv])
            saved += fewer
            found.kv_ns += s.est_ns if fewer else 0.0
        more = more or (pair is None and g.kind in {Kind.ATTENTION, Kind.OTHER})
    return (min(1.0, saved / g.bytes) if g.bytes else 0.0), more


def _fewer(tensors: Iterable[Tensor], bits: int) -> float:
    """Bytes that fall away; none where a tensor has as few bits already."""
    return sum(t.bytes * (1.0 - bits / (8 * t.item)) for t in tensors if 8 * t.item > bits)


def weights_ns(parameters: float, bits: float, bandwidth: float) -> float:
    """Time in ns to read a model's weights once at ``bandwidth`` bytes/s: the least that a token takes at batch one."""
    return parameters * bits / 8 / bandwidth * 1e9
