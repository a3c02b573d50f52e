"""Which advice a kernel gets, by its verdict."""

from __future__ import annotations

from collections.abc import Collection

from roofwatch.model.advice import COMPUTE, CPU, LATENCY, MEMORY, NEAR_THE_ROOF
from roofwatch.model.kinds import Kind
from roofwatch.model.record import Bound, Signature

# From here on the measured peak itself is in doubt: datasheet peaks are not reached by the best library kernels.
NEAR = 0.8

_PRODUCTS = frozenset({Kind.MATMUL, Kind.GROUPED_MATMUL, Kind.CONV, Kind.ATTENTION})
_WEIGHTED = frozenset({Kind.MATMUL, Kind.GROUPED_MATMUL, Kind.MOE})
_INDEXED = frozenset({Kind.GATHER_SCATTER, Kind.SORT_TOPK})
_HALVES = frozenset({"bf16", "fp16"})
_EIGHTS = frozenset({"fp8", "int8"})


def helps(
    signature: Signature, bound: Bound, fraction: float | None, *, cpu: bool = False, precisions: Collection[str] = ()
) -> list[str]:
    """What helps a kernel; ``precisions`` are those in which the device's matrix unit has a known peak."""
    if fraction is not None and fraction >= NEAR:
        return [NEAR_THE_ROOF, *_less_work(signature, bound, precisions, cpu=cpu)]
    if bound is Bound.COMPUTE:
        return _compute(signature, precisions, cpu=cpu)
    if bound is Bound.MEMORY:
        return _memory(signature, cpu=cpu)
    if bound is Bound.LATENCY:
        return _latency(signature, cpu=cpu)
    return []


def _compute(signature: Signature, precisions: Collection[str], *, cpu: bool) -> list[str]:
    if cpu:
        return [CPU["threads"], *([CPU["lower_precision"]] if signature.precision == "fp32" else [])]
    found = []
    if signature.kind in _PRODUCTS and signature.unit == "vector":
        found.append(COMPUTE["tensor_cores_fp32" if signature.precision == "fp32" else "matrix_unit"])
    else:
        found += _lower(signature, precisions)
    if signature.kind is Kind.ATTENTION:
        found.append(COMPUTE["causal"])
    return [*found, COMPUTE["occupancy"]]


def _lower(signature: Signature, precisions: Collection[str]) -> list[str]:
    if signature.precision in {"fp32", "tf32", "fp64"}:
        return [COMPUTE["lower_precision"]]
    if signature.precision in _HALVES and _EIGHTS & set(precisions):
        return [COMPUTE["lower_precision_8bit"]]
    return []


def _memory(signature: Signature, *, cpu: bool) -> list[str]:
    kind = signature.kind
    if kind in _WEIGHTED:
        return [MEMORY["quantize"]]
    if kind is Kind.ATTENTION:
        return [MEMORY["attention"]]
    if kind is Kind.OPTIMIZER:
        return [MEMORY["optimizer"]]
    if kind is Kind.LAYOUT:
        return [MEMORY["layout"], MEMORY["fusion"]]
    if kind in _INDEXED:
        return [MEMORY["access"]]
    return [CPU["fusion"] if cpu else MEMORY["fusion"], MEMORY["smaller_dtype"]]


def _latency(signature: Signature, *, cpu: bool) -> list[str]:
    if cpu:
        return [CPU["batch"], CPU["fusion"]]
    if signature.kind in _PRODUCTS:
        return [LATENCY["batch"], LATENCY["graphs"], LATENCY["split"]]
    return [LATENCY["fusion"], LATENCY["graphs"], LATENCY["batch"]]


def _less_work(signature: Signature, bound: Bound, precisions: Collection[str], *, cpu: bool) -> list[str]:
    if bound is Bound.COMPUTE and cpu:
        return [CPU["lower_precision"]] if signature.precision == "fp32" else []
    return _lower(signature, precisions) if bound is Bound.COMPUTE else _memory(signature, cpu=cpu)
