"""Matrix products. 2·M·N·K FLOPs: M·N dot products of K multiply-adds; a bias is not counted (as torch's counter does).

A complex multiply-add is four real ones (8·M·N·K). Bytes: A, B, the addend where it is read, and the output, once each
(the classic GEMM traffic, e.g. 4096³ in fp16: 2·4096³ = 1.374e11 FLOPs, 3·4096²·2 = 1.007e8 bytes).
"""

from __future__ import annotations

import math

from roofwatch.model.formulas.base import Formula, Work, dense, promoted, real_operations
from roofwatch.model.shapes import Call, Tensor


def product(a: Tensor | None, b: Tensor | None) -> tuple[tuple[int, ...], int] | None:
    """Output shape and 2·M·N·K of a (batched, broadcast) product by torch.matmul's rules; None if they do not fit."""
    if a is None or b is None or not a.shape or not b.shape:
        return None
    left = a.shape if len(a.shape) > 1 else (1, *a.shape)
    right = b.shape if len(b.shape) > 1 else (*b.shape, 1)
    if left[-1] != right[-2]:
        return None
    batch = _batch(left[:-2], right[:-2])
    if batch is None:
        return None
    rows = () if len(a.shape) == 1 else (left[-2],)
    columns = () if len(b.shape) == 1 else (right[-1],)
    return (*batch, *rows, *columns), 2 * math.prod(batch) * left[-2] * right[-1] * left[-1]


def _batch(left: tuple[int, ...], right: tuple[int, ...]) -> tuple[int, ...] | None:
    size = max(len(left), len(right))
    pairs = zip((1,) * (size - len(left)) + left, (1,) * (size - len(right)) + right, strict=True)
    result = []
    for m, n in pairs:
        if m != n and 1 not in (m, n):
            return None
        result.append(n if m == 1 else m)
    return tuple(result)


def gemm(a: Tensor | None, b: Tensor | None, out: str | None = None) -> Work | None:
    """The work of a·b → ``out``, by default the dtype both promote to; two fp4 values in an element are two."""
    shaped = product(a, b)
    if shaped is None or a is None or b is None:
        return None
    shape, flops = shaped
    result = out or promoted((a, b)) or a.dtype
    flops *= 2 if a.dtype == "fp4x2" else 1
    return Work(flops * real_operations(result), a.bytes + b.bytes + dense(shape, result))


def mm(call: Call) -> Work | None:
    """mm, bmm, matmul, mv, dot: (a, b)."""
    return gemm(call.tensor(0), call.tensor(1))


def addmm(call: Call) -> Work | None:
    """addmm, baddbmm, addmv, addbmm: (addend, a, b, beta, alpha); the addend is read unless beta is zero."""
    addend, a, b = call.tensor(0), call.tensor(1), call.tensor(2)
    work = gemm(a, b, addend.dtype if addend is not None and addend.shape else None)
    if work is None or addend is None:
        return None
    beta = call.value(3)
    if beta is not None and not isinstance(beta, list) and float(beta) == 0.0:
        return work
    return Work(work.flops, work.bytes + addend.bytes)


def linear(call: Call) -> Work | None:
    """linear: (x, weight, bias?) = x · weightᵀ + bias."""
    x, weight, bias = call.tensor(0), call.tensor(1), call.tensor(2)
    if x is None or weight is None or len(weight.shape) != 2 or not x.shape:
        return None
    if x.shape[-1] != weight.shape[1]:
        return None
    shape = (*x.shape[:-1], weight.shape[0])
    flops = 2 * math.prod(shape) * weight.shape[1] * real_operations(x.dtype)
    return Work(flops, x.bytes + weight.bytes + (bias.bytes if bias else 0) + dense(shape, x.dtype))


def bilinear_outer(call: Call) -> Work | None:
    """addr, ger: (addend?, u, v): an outer product, one multiply (and one add) an output."""
    tensors = [t for t in call.tensors if t.shape]
    vectors = [t for t in tensors if len(t.shape) == 1][-2:]
    if len(vectors) != 2:
        return None
    u, v = vectors
    addends = [t for t in tensors if len(t.shape) == 2]
    outputs = u.numel * v.numel
    moved = u.bytes + v.bytes + outputs * u.item * (1 + len(addends[:1]))
    return Work(outputs * (1 + len(addends[:1])), moved)


MM = Formula("matmul", mm, matrix=True)
ADDMM = Formula("addmm", addmm, matrix=True, concrete=True)
LINEAR = Formula("linear", linear, matrix=True)
OUTER = Formula("outer", bilinear_outer)

TABLE: dict[str, Formula] = {
    "aten::mm": MM,
    "aten::bmm": MM,
    "aten::matmul": MM,
    "aten::mv": MM,
    "aten::dot": MM,
    "aten::vdot": MM,
    "aten::addmm": ADDMM,
    "aten::addmm_": ADDMM,
    "aten::baddbmm": ADDMM,
    "aten::baddbmm_": ADDMM,
    "aten::addmv": ADDMM,
    "aten::addmv_": ADDMM,
    "aten::_addmm_activation": ADDMM,
    "aten::linear": LINEAR,
    "aten::mkldnn_linear": LINEAR,
    "mkldnn::_linear_pointwise": LINEAR,
    "aten::addr": OUTER,
    "aten::ger": OUTER,
}
