"""Which operands of a kernel are what: weights, keys and values; read from a signature's shapes and dtypes.

The second operand of a product is taken for weights where it is a plain matrix; of a gradient it may be anything, so
backward kernels have none here. Nothing else tells weights from activations: what has no entry has unknown weights.
"""

from __future__ import annotations

import json
from functools import lru_cache
from typing import Any

from roofwatch.model.kinds import Kind
from roofwatch.model.record import Phase, Signature
from roofwatch.model.shapes import Call, Tensor, call_of

# Position of the weights among the arguments, by op.
_WEIGHTS = {
    "aten::mm": 1, "aten::matmul": 1, "aten::linear": 1, "aten::mkldnn_linear": 1, "mkldnn::_linear_pointwise": 1,
    "aten::addmm": 2, "aten::addmm_": 2, "aten::_addmm_activation": 2, "aten::mv": 0, "aten::addmv": 1,
    "aten::_scaled_mm": 1, "aten::_int_mm": 1, "vllm::rocm_unquantized_gemm": 1,
}  # fmt: skip
_EMBEDDING = "aten::embedding"
_BACKWARD = ("backward", "bwd", "grad")
_OUTPUT_FIRST = ("inplace", "paged_attention")  # (out, q, k, v, …); else (q, k, v, …)
_MATRIX = 2
_TILED = 4  # dimensions of a matrix in Ascend's FRACTAL_NZ


def call(signature: Signature) -> Call | None:
    """The signature's arguments; None where they were not recorded."""
    return call_of(signature.op or signature.kernel, signature.shapes, signature.dtypes)


def products(kind: Kind) -> bool:
    """Whether kernels of this kind may have weights."""
    return kind in {Kind.MATMUL, Kind.GROUPED_MATMUL, Kind.CONV}


def weights(signature: Signature) -> Tensor | None:
    """The weights that a forward product or embedding reads; None where there are none or nothing tells."""
    if signature.phase in {Phase.BACKWARD, Phase.OPTIMIZER}:
        return None
    told = call(signature)
    if told is None:
        return None
    if signature.op == _EMBEDDING:
        return _gathered(told)
    if signature.kind is not Kind.MATMUL:
        return None
    if signature.op is None or "::" not in signature.op:
        return _of_ascend(signature, told)
    place = _WEIGHTS.get(signature.op)
    found = None if place is None else told.tensor(place)
    return found if found is not None and len(found.shape) == _MATRIX else None


def _gathered(told: Call) -> Tensor | None:
    """Of an embedding's table the rows that are read."""
    table, indices = told.tensor(0), told.tensor(1)
    if table is None or indices is None or len(table.shape) != _MATRIX:
        return None
    return Tensor((min(indices.numel, table.shape[0]), table.shape[1]), table.dtype)


def _of_ascend(signature: Signature, told: Call) -> Tensor | None:
    """The second input of a product, which a kernel table tells without an op."""
    found, first = told.tensor(1), told.tensor(0)
    if found is None or first is None or "matmul" not in signature.kernel.lower():
        return None
    tiled = len(found.shape) == _TILED and formats(signature)[1:2] == ["FRACTAL_NZ"]
    return found if len(found.shape) == _MATRIX or tiled else None


def keys_and_values(signature: Signature) -> tuple[Tensor, Tensor] | None:
    """Keys and values that a forward attention reads; None where nothing tells."""
    name = (signature.op or signature.kernel).lower()
    if signature.kind is not Kind.ATTENTION or signature.phase is Phase.BACKWARD or any(w in name for w in _BACKWARD):
        return None
    told = call(signature)
    if told is None:
        return None
    first = 2 if any(word in name for word in _OUTPUT_FIRST) else 1
    key, value = told.tensor(first), told.tensor(first + 1)
    if key is None or value is None or min(len(key.shape), len(value.shape)) <= _MATRIX:
        return None
    return (key, value) if key.dtype == value.dtype else None


def formats(signature: Signature) -> list[Any]:
    """Formats of an Ascend kernel's inputs, [] where they are not told."""
    found = told(signature).get("formats")
    return found if isinstance(found, list) else []


def told(signature: Signature) -> dict[str, Any]:
    """What a signature's arguments say."""
    return _object(signature.arguments)


@lru_cache(maxsize=4096)
def _object(text: str | None) -> dict[str, Any]:
    try:
        found = json.loads(text) if text else {}
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
