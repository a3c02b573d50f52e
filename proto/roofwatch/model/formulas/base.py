"""What a formula is, and the arithmetic they share.

Conventions (the field's): a multiply-add is two FLOPs; an arithmetic operation or a function such as exp or tanh in the
formula text is one; integer, logical and moving operations are none. Bytes are the least traffic possible: each input
and each output once, at its dtype. A formula that lacks an input it needs returns None: unknown, never a guess.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NamedTuple

from roofwatch.model.shapes import FLOATING, ITEM_BYTES, Call, Tensor


class Work(NamedTuple):
    """FLOPs and bytes of one call. Where the inputs leave the FLOPs in a range, ``flops`` is its lower end."""

    flops: int
    bytes: int
    flops_max: int | None = None  # the range's upper end; None where ``flops`` is exact


@dataclass(frozen=True, slots=True)
class Formula:
    """A named way to count the work of a call.

    ``concrete``: it reads the concrete inputs, so they belong to the signature. ``lead``: position of the tensor whose
    dtype decides the precision, where that is not the first matrix. ``dtype``: the precision's dtype where no tensor
    tells it (two 4-bit floats stored as one byte).
    """

    name: str
    count: Callable[[Call], Work | None]
    matrix: bool = False  # runs on the matrix unit where the dtype allows
    concrete: bool = False
    lead: int | None = None
    dtype: str | None = None


def words(text: str) -> tuple[str, ...]:
    """The names in a text, for tables of many."""
    return tuple(text.split())


def total_bytes(tensors: Iterable[Tensor | None]) -> int:
    """Bytes of the tensors that are there, each once."""
    return sum(t.bytes for t in tensors if t is not None)


def dense(shape: Iterable[int], dtype: str) -> int:
    """Bytes of a fresh, contiguous tensor."""
    return math.prod(shape) * ITEM_BYTES[dtype]


def broadcast(tensors: Iterable[Tensor]) -> tuple[int, ...] | None:
    """The shape several tensors broadcast to; None when they do not."""
    result: list[int] = []
    for tensor in tensors:
        reverse = tensor.shape[::-1]
        for i, n in enumerate(reverse):
            if i == len(result):
                result.append(n)
            elif result[i] == 1:
                result[i] = n
            elif n not in (1, result[i]):
                return None
    return tuple(result[::-1])


_RANK = ["bool", "uint8", "int8", "int16", "int32", "int64"]
_FLOAT_RANK = ["fp16", "bf16", "fp32", "fp64"]


def promoted(tensors: Iterable[Tensor]) -> str | None:
    """The dtype that arithmetic over these tensors gives, by torch's rules; a 0-dim tensor counts only in category."""
    items = list(tensors)
    full = [t for t in items if t.shape] or items
    best: str | None = None
    for tensor in full:
        best = tensor.dtype if best is None else _wider(best, tensor.dtype)
    for tensor in items:
        if best is not None and not tensor.shape and _category(tensor.dtype) > _category(best):
            best = _lifted(best, tensor.dtype)
    return best


_COMPLEX_OF = {"fp16": "complex32", "bf16": "complex64", "fp32": "complex64", "fp64": "complex128"}


def _lifted(full: str, scalar: str) -> str:
    """What a 0-dim tensor of a higher category makes of a full one.

    A trace writes a Python float as a 0-dim double (complex likewise), which gives the default type; a real 0-dim
    tensor of doubles looks the same and is far rarer.
    """
    if scalar.startswith("complex"):
        return _COMPLEX_OF.get(full, "complex64")
    return "fp32" if scalar == "fp64" else scalar


def _category(dtype: str) -> int:
    """Bool 0, integer 1, float 2, complex 3."""
    if dtype.startswith("complex"):
        return 3
    return 2 if dtype in FLOATING else int(dtype != "bool")


_MIXED = {
    frozenset({"fp16", "bf16"}): "fp32",
    frozenset({"int8", "uint8"}): "int16",
    frozenset({"complex64", "fp64"}): "complex128",
    frozenset({"complex32", "fp32"}): "complex64",
    frozenset({"complex32", "fp64"}): "complex128",
}  # pairs whose result is neither


def _wider(a: str, b: str) -> str:
    if a == b:
        return a
    mixed = _MIXED.get(frozenset({a, b}))
    if mixed is not None:
        return mixed
    if a.startswith("complex") or b.startswith("complex"):
        return max((a, b), key=lambda d: (d.startswith("complex"), ITEM_BYTES[d]))
    ranks = _RANK + _FLOAT_RANK
    return max((a, b), key=lambda d: ranks.index(d) if d in ranks else -1)


SCALAR_TYPES = {
    0: "uint8", 1: "int8", 2: "int16", 3: "int32", 4: "int64", 5: "fp16", 6: "fp32", 7: "fp64", 8: "complex32",
    9: "complex64", 10: "complex128", 11: "bool", 15: "bf16", 23: "fp8_e5m2", 24: "fp8_e4m3", 25: "fp8_e5m2fnuz",
    26: "fp8_e4m3fnuz", 27: "uint16", 28: "uint32", 29: "uint64", 44: "fp8_e8m0", 45: "fp4x2",
}  # fmt: skip
"""A dtype argument as a trace records it: the number of c10::ScalarType."""


def real_operations(dtype: str) -> int:
    """How many real multiply-adds one of this dtype is: a complex one is four products and four sums."""
    return 4 if dtype.startswith("complex") else 1


def is_float(dtype: str) -> bool:
    """Whether arithmetic on this dtype is floating-point arithmetic."""
    return dtype in FLOATING or dtype.startswith("complex")
