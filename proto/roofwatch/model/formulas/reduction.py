"""Reductions, scans, sorts: one pass over the input, one FLOP an element for a sum or a maximum."""

from __future__ import annotations

import math
from collections.abc import Callable

from roofwatch.model.formulas.base import SCALAR_TYPES, Formula, Work, broadcast, dense, is_float
from roofwatch.model.shapes import ITEM_BYTES, Call, Tensor


def reduced(x: Tensor, dims: tuple[int, ...] | None) -> int | None:
    """Elements left when ``dims`` are reduced; an empty list reduces all; None where a dimension does not exist."""
    if not dims:
        return 1
    rank = len(x.shape)
    if any(not -rank <= d < rank for d in dims):
        return None
    gone = {d % rank for d in dims}
    return math.prod(n for i, n in enumerate(x.shape) if i not in gone)


def _dims(call: Call, at: int) -> tuple[int, ...] | None:
    """Dimensions to reduce; () for all; None where the source does not record them."""
    value = call.value(at)
    if isinstance(value, int) and not isinstance(value, bool):
        return (value,)
    found = call.integers(at)
    if found is not None:
        return found
    recorded = any(a.text is not None for a in call.arguments)
    return () if recorded or len(call.arguments) <= at else None


def _written(call: Call, x: Tensor, dtype_at: int | None) -> int | None:
    """Bytes of one result: as an output handed in, as the dtype argument says, int64 for sums of integers, else x's."""
    if len(call.tensors) > 1:
        return call.tensors[-1].item
    number = None if dtype_at is None else call.integer(dtype_at)
    if number is not None:
        dtype = SCALAR_TYPES.get(number)
        return None if dtype is None else ITEM_BYTES[dtype]
    return x.item if dtype_at is None or is_float(x.dtype) else ITEM_BYTES["int64"]


def _operations(op: str, dtype: str, flops: int) -> int | None:
    """FLOPs an element; a complex sum is two real ones, of other complex reductions the count is unknown."""
    if dtype.startswith("complex"):
        return 2 if op in ("aten::sum", "aten::mean") else None
    return flops if is_float(dtype) else 0


def _reduction(
    flops: int, at: int = 1, item: int | None = None, outputs: int = 1, dtype_at: int | None = None
) -> Callable[[Call], Work | None]:
    """Input read once, outputs written once.

    Where the dimensions were not recorded the output (never larger than the input) is left out: a lower bound.
    """

    def count(call: Call) -> Work | None:
        x = call.tensor(0)
        if x is None:
            return None
        dims = _dims(call, at)
        left = 0 if dims is None else reduced(x, dims)
        size = item if item is not None else _written(call, x, dtype_at)
        operations = _operations(call.op, x.dtype, flops)
        if left is None or size is None or operations is None:
            return None
        return Work(operations * x.numel, x.bytes + left * outputs * size)

    return count


def argument_of(call: Call) -> Work | None:
    """argmax, argmin (x, dim, keepdim): one comparison an element, an int64 written for each result."""
    return _reduction(1, item=8)(call)


def extreme(call: Call) -> Work | None:
    """max, min: of all (x), along a dimension (x, dim, keepdim: values and int64 indices), or of two tensors."""
    x, other = call.tensor(0), call.tensor(1)
    if x is None:
        return None
    one = int(is_float(x.dtype))
    if other is not None and len(call.arguments) == 2:
        shape = broadcast((x, other))
        return None if shape is None else Work(math.prod(shape) * one, x.bytes + other.bytes + dense(shape, x.dtype))
    if call.integer(1) is None:
        return _reduction(1)(call)
    left = reduced(x, (call.integer(1) or 0,))
    return None if left is None else Work(x.numel * one, x.bytes + left * (x.item + 8))


def scan(call: Call) -> Work | None:
    """cumsum, cumprod (x, dim, dtype): each element read, added, written; integer narrow inputs widen to int64."""
    x = call.tensor(0)
    size = None if x is None else _written(call, x, 2)
    if x is None or size is None:
        return None
    return Work(x.numel if is_float(x.dtype) else 0, x.bytes + x.numel * size)


def sort(call: Call) -> Work | None:
    """sort, argsort, msort: input read, values and int64 indices written once: the least any sort can move."""
    x = call.tensor(0)
    return None if x is None else Work(0, x.bytes + x.numel * (x.item + 8))


def topk(call: Call) -> Work | None:
    """Topk (x, k, dim): input read; k values and int64 indices of each row written."""
    x, k, dim = call.tensor(0), call.integer(1), call.integer(2)
    if x is None or k is None or not x.shape:
        return None
    rows = reduced(x, (-1 if dim is None else dim,))
    return None if rows is None else Work(0, x.bytes + rows * k * (x.item + 8))


SUM = Formula("reduction", _reduction(1, dtype_at=3), concrete=True)
EXTREMA = Formula("reduction", _reduction(1), concrete=True)
MOMENTS = Formula("moments", _reduction(4), concrete=True)  # mean, difference, square, sum
TWO_MOMENTS = Formula("moments", _reduction(4, outputs=2), concrete=True)
NORM = Formula("vector_norm", _reduction(2, at=2), concrete=True)  # power, sum

TABLE: dict[str, Formula] = {
    **{f"aten::{name}": SUM for name in ("sum", "mean", "prod", "nansum")},
    **{f"aten::{name}": EXTREMA for name in ("amax", "amin")},
    "aten::aminmax": Formula("reduction", _reduction(2, outputs=2), concrete=True),
    **{f"aten::{name}": Formula("reduction", _reduction(3), concrete=True) for name in ("logsumexp",)},
    **{f"aten::{name}": MOMENTS for name in ("var", "std")},
    **{f"aten::{name}": TWO_MOMENTS for name in ("var_mean", "std_mean")},
    "aten::norm": NORM,
    "aten::linalg_vector_norm": NORM,
    **{f"aten::{name}": Formula("logical_reduction", _reduction(0, item=1), concrete=True) for name in ("any", "all")},
    "aten::count_nonzero": Formula("logical_reduction", _reduction(0, item=8), concrete=True),
    "aten::argmax": Formula("arg_reduction", argument_of, concrete=True),
    "aten::argmin": Formula("arg_reduction", argument_of, concrete=True),
    "aten::max": Formula("extreme", extreme, concrete=True),
    "aten::min": Formula("extreme", extreme, concrete=True),
    "aten::cumsum": Formula("scan", scan, concrete=True),
    "aten::cumprod": Formula("scan", scan, concrete=True),
    "aten::sort": Formula("sort", sort),
    "aten::argsort": Formula("sort", sort),
    "aten::topk": Formula("topk", topk, concrete=True),
}
