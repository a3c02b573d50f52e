"""Which advice a kernel gets, by its verdict."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping

from roofwatch.model.advice import COMPUTE, CPU, LATENCY, MEMORY, NEAR_THE_ROOF
from roofwatch.model.advice_vendors import in_words_of
from roofwatch.model.kinds import Kind
from roofwatch.model.record import Bound, Signature, Vendor

# From here on the measured peak itself is in doubt: datasheet peaks are not reached by the best library kernels.
NEAR = 0.8
# Below it the kernel itself is in doubt before its precision is: libraries reach half of the roof on most sizes.
FAR = 0.5

_PRODUCTS = frozenset({Kind.MATMUL, Kind.GROUPED_MATMUL, Kind.CONV, Kind.ATTENTION})
_WEIGHTS = frozenset({Kind.MATMUL, Kind.GROUPED_MATMUL, Kind.MOE})
_FUSED = ("flash", "fmha", "attn_fwd", "attn_bwd", "efficient", "cudnn", "fused_attention", "attention_kernel")
_BATCHED = frozenset({"aten::bmm", "aten::baddbmm"})
_HALVES = frozenset({"bf16", "fp16"})
_EIGHTS = frozenset({"fp8", "int8"})


def helps(
    signature: Signature,
    bound: Bound,
    fraction: float | None,
    *,
    vendor: Vendor | None = None,
    precisions: Collection[str] = (),
    training: bool = False,
    in_graphs: bool = False,
) -> list[str]:
    """What helps a kernel, in the vendor's words.

    ``precisions`` are those in which the device's matrix unit has a known peak.
    ``training``: weights change with every step, so they are not quantised; ``in_graphs``: graphs launch it already.
    """
    cpu = vendor is Vendor.CPU
    if fraction is not None and fraction >= NEAR:
        found = [NEAR_THE_ROOF, *_less_work(signature, bound, precisions, cpu=cpu, training=training)]
    elif bound is Bound.COMPUTE:
        found = _compute(signature, fraction, precisions, cpu=cpu)
    elif bound is Bound.MEMORY:
        found = _memory(signature, cpu=cpu, training=training)
    elif bound is Bound.LATENCY:
        found = [one for one in _latency(signature, cpu=cpu) if not in_graphs or one != LATENCY["graphs"]]
    else:  # somewhere between: its FLOPs are a range
        found = [COMPUTE["tuned"]] if signature.kind in _PRODUCTS else []
    return [in_words_of(vendor, one) for one in found]


def _compute(signature: Signature, fraction: float | None, precisions: Collection[str], *, cpu: bool) -> list[str]:
    if cpu:
        return [CPU["threads"], *([CPU["lower_precision"]] if signature.precision == "fp32" else [])]
    if signature.kind in _PRODUCTS and signature.unit == "vector":
        lower = [COMPUTE["vector_fp32" if signature.precision == "fp32" else "matrix_unit"]]
        return [*lower, COMPUTE["occupancy"]]
    lower = _lower(signature, precisions)
    if fraction is not None and fraction < FAR:
        return [COMPUTE["tuned"], COMPUTE["occupancy"], *lower]
    return [*lower, COMPUTE["occupancy"]]


def _lower(signature: Signature, precisions: Collection[str]) -> list[str]:
    if signature.precision in {"fp32", "tf32", "fp64"}:
        return [COMPUTE["lower_precision"]]
    if signature.precision in _HALVES and _EIGHTS & set(precisions):
        return [COMPUTE["lower_precision_8bit"]]
    return []


_OF_MEMORY: Mapping[Kind, tuple[str, ...]] = {
    Kind.OPTIMIZER: ("optimizer",),
    Kind.LAYOUT: ("layout", "fusion"),
    Kind.GATHER_SCATTER: ("access",),
    Kind.SORT_TOPK: ("access",),
}


def _memory(signature: Signature, *, cpu: bool, training: bool) -> list[str]:
    if signature.op in _BATCHED:
        return [MEMORY["batched"], MEMORY["smaller_dtype"]]
    if signature.kind in _WEIGHTS:
        return [MEMORY["smaller_dtype"] if cpu or training else MEMORY["quantize"]]
    if signature.kind is Kind.ATTENTION:
        return [MEMORY["keys_and_values"] if _decodes(signature) else MEMORY[_attention(signature)]]
    return [MEMORY[name] for name in _OF_MEMORY.get(signature.kind, ("fusion", "smaller_dtype"))]


def _decodes(signature: Signature) -> bool:
    """Whether attention has one row of queries a sequence, so that it reads keys and values for little work."""
    if "paged" in signature.kernel.lower() or "paged" in (signature.op or "") or "decode" in signature.kernel.lower():
        return True
    try:
        queries = json.loads(signature.shapes or "[]")[0]
        return len(queries) == 4 and 1 in queries[1:3]
    except (ValueError, TypeError, IndexError, KeyError):
        return False


def _attention(signature: Signature) -> str:
    """Fused attention moves what it must; what is not fused moves the scores, too."""
    name = f"{signature.op} {signature.kernel}".lower()
    return "smaller_dtype" if any(word in name for word in _FUSED) else "attention"


def _latency(signature: Signature, *, cpu: bool) -> list[str]:
    if cpu:
        return [CPU["batch"], CPU["fusion"]]
    if signature.kind in _PRODUCTS:
        return [LATENCY["batch"], LATENCY["graphs"], LATENCY["split"]]
    return [LATENCY["fusion"], LATENCY["graphs"], LATENCY["batch"]]


def _less_work(
    signature: Signature, bound: Bound, precisions: Collection[str], *, cpu: bool, training: bool
) -> list[str]:
    if bound is Bound.COMPUTE and cpu:
        return [CPU["lower_precision"]] if signature.precision == "fp32" else []
    return _lower(signature, precisions) if bound is Bound.COMPUTE else _memory(signature, cpu=cpu, training=training)
