"""Autograd nodes that launch products themselves, not through ops with shapes: their work by the forward op's inputs.

Of C = A·B, dA = dC·Bᵀ and dB = Aᵀ·dC have 2·M·N·K FLOPs each, as C has, and each reads two of the three matrices and
writes the third: the traffic of the forward product (without its addend). So every product that such a node launches
has the same work, whichever gradient it is.
"""

from __future__ import annotations

from dataclasses import dataclass

from roofwatch.model.formulas.base import Formula, Work
from roofwatch.model.formulas.matmul import gemm
from roofwatch.model.kinds import Kind, kind_of_kernel
from roofwatch.model.shapes import Call, Tensor


@dataclass(frozen=True, slots=True)
class _Forward:
    """Where the operands are among the forward op's inputs; the second may be stored transposed (a layer's weight)."""

    a: int
    b: int
    transposed: bool = False


_PRODUCTS = {
    "MmBackward0": _Forward(0, 1),
    "BmmBackward0": _Forward(0, 1),
    "AddmmBackward0": _Forward(1, 2),
    "BaddbmmBackward0": _Forward(1, 2),
    "LinearBackward0": _Forward(0, 1, transposed=True),
    # Megatron: the weight's gradient is added to by a kernel of an extension
    "LinearWithGradAccumulationAndAsyncCommunicationBackward": _Forward(0, 1, transposed=True),
}


def gradient(call: Call) -> Work | None:
    """One gradient of a product, by the forward op's inputs; None where there are only the node's own (gradients)."""
    place = _PRODUCTS.get(call.op)
    if place is None:
        return None
    b = call.tensor(place.b)
    if b is not None and place.transposed:
        b = Tensor((*b.shape[:-2], *b.shape[:-3:-1]), b.dtype) if len(b.shape) > 1 else None
    return gemm(call.tensor(place.a), b)


GRADIENT = Formula("matmul_gradient", gradient, matrix=True)


def part_of(op: str, kernel: str) -> tuple[Formula, bool] | None:
    """As ``parts.part_of``: the products among the kernels that a node launched, which are all of its counted work."""
    return (GRADIENT, True) if op in _PRODUCTS and kind_of_kernel(kernel) is Kind.MATMUL else None
