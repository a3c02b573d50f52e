"""Which advice a kernel gets, by its verdict."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from roofwatch.model.advice import COMPUTE, CPU, LATENCY, MEMORY, NEAR_THE_ROOF
from roofwatch.model.kinds import Kind
from roofwatch.model.record import Bound, Signature

# From here on the measured peak itself is in doubt: datasheet peaks are not reached by the best library kernels.
NEAR = 0.8
# Below it the kernel itself is in doubt before its precision is: libraries reach half of the roof on most sizes.
FAR = 0.5

_PRODUCTS = frozenset({Kind.MATMUL, Kind.GROUPED_MATMUL, Kind.CONV, Kind.ATTENTION})
_BATCHED = frozenset({"aten::bmm", "aten::baddbmm"})
_HALVES = frozenset({"bf16", "fp16"})
_EIGHTS = frozenset({"fp8", "int8"})


def helps(
    signature: Signature, bound: Bound, fraction: float | None, *, cpu: bool = False, precisions: Collection[str] = ()
) -> list[str]:
    """What helps a kernel; ``precisions`` are those in which the device's matrix unit has a known peak."""
    if fraction is not None and fraction >= NEAR:
        return [NEAR_THE_ROOF, *_less_work(signature, bound, precisions, cpu=cpu)]
    if bound is Bound.COMPUTE:
        return _compute(signature, fraction, precisions, cpu=cpu)
    if bound is Bound.MEMORY:
        return _memory(signature)
    if bound is Bound.LATENCY:
        return _latency(signature, cpu=cpu)
    return [COMPUTE["tuned"]] if signature.kind in _PRODUCTS else []  # somewhere between: its FLOPs are a range


def _compute(signature: Signature, fraction: float | None, precisions: Collection[str], *, cpu: bool) -> list[str]:
    if cpu:
        return [CPU["threads"], *([CPU["lower_precision"]] if signature.precision == "fp32" else [])]
    if signature.kind in _PRODUCTS and signature.unit == "vector":
        lower = [COMPUTE["tensor_cores_fp32" if signature.precision == "fp32" else "matrix_unit"]]
        return [*lower, COMPUTE["occupancy"]]
    lower = _lower(signature, precisions)
    causal = [COMPUTE["causal"]] if signature.kind is Kind.ATTENTION else []
    if fraction is not None and fraction < FAR:
        return [COMPUTE["tuned"], COMPUTE["occupancy"], *causal, *lower]
    return [*lower, COMPUTE["occupancy"], *causal]


def _lower(signature: Signature, precisions: Collection[str]) -> list[str]:
    if signature.precision in {"fp32", "tf32", "fp64"}:
        return [COMPUTE["lower_precision"]]
    if signature.precision in _HALVES and _EIGHTS & set(precisions):
        return [COMPUTE["lower_precision_8bit"]]
    return []


_OF_MEMORY: Mapping[Kind, tuple[str, ...]] = {
    Kind.MATMUL: ("quantize",),
    Kind.GROUPED_MATMUL: ("quantize",),
    Kind.MOE: ("quantize",),
    Kind.ATTENTION: ("attention",),
    Kind.OPTIMIZER: ("optimizer",),
    Kind.LAYOUT: ("layout", "fusion"),
    Kind.GATHER_SCATTER: ("access",),
    Kind.SORT_TOPK: ("access",),
}


def _memory(signature: Signature) -> list[str]:
    if signature.op in _BATCHED:
        return [MEMORY["batched"], MEMORY["smaller_dtype"]]
    return [MEMORY[name] for name in _OF_MEMORY.get(signature.kind, ("fusion", "smaller_dtype"))]


def _latency(signature: Signature, *, cpu: bool) -> list[str]:
    if cpu:
        return [CPU["batch"], CPU["fusion"]]
    if signature.kind in _PRODUCTS:
        return [LATENCY["batch"], LATENCY["graphs"], LATENCY["split"]]
    return [LATENCY["fusion"], LATENCY["graphs"], LATENCY["batch"]]


def _less_work(signature: Signature, bound: Bound, precisions: Collection[str], *, cpu: bool) -> list[str]:
    if bound is Bound.COMPUTE and cpu:
        return [CPU["lower_precision"]] if signature.precision == "fp32" else []
    return _lower(signature, precisions) if bound is Bound.COMPUTE else _memory(signature)
