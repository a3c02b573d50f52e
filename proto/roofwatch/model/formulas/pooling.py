"""Pooling: input and output once; one FLOP for each input element a window covers."""

from __future__ import annotations

import math

from roofwatch.model.formulas.base import Formula, Work, dense
from roofwatch.model.shapes import Call, Tensor


def _spread(values: tuple[int, ...] | None, rank: int) -> tuple[int, ...] | None:
    if not values:
        return None
    return values * rank if len(values) == 1 else values if len(values) == rank else None


def pooled(x: Tensor, call: Call, *, dilation_at: int | None, ceil_at: int) -> tuple[list[int], int] | None:
    """Output extents and window size for (x, kernel, stride, padding, …) by torch's rule; None where not recorded.

    An empty stride is the kernel's. With ceil mode a last window must start inside the input or its left padding.
    """
    rank = 3 if "3d" in call.op else 2
    kernel = _spread(call.integers(1), rank)
    if kernel is None or len(x.shape) <= rank:
        return None
    space = x.shape[-rank:]
    stride = _spread(call.integers(2) or kernel, rank)
    padding = _spread(call.integers(3), rank)
    dilation = (1,) * rank if dilation_at is None else _spread(call.integers(dilation_at), rank)
    ceil = call.flag(ceil_at)
    if stride is None or padding is None or dilation is None or ceil is None or not all(stride):
        return None
    out = []
    for n, k, s, p, d in zip(space, kernel, stride, padding, dilation, strict=True):
        room = n + 2 * p - d * (k - 1) - 1
        size = (-(-room // s) if ceil else room // s) + 1
        if ceil and (size - 1) * s >= n + p:
            size -= 1
        out.append(size)
    return (out, math.prod(kernel)) if all(n > 0 for n in out) else None


def max_pool(call: Call) -> Work | None:
    """max_pool{2,3}d_with_indices(x, kernel, stride, padding, dilation, ceil) → values and int64 indices."""
    x = call.tensor(0)
    found = None if x is None else pooled(x, call, dilation_at=4, ceil_at=5)
    if x is None or found is None:
        return None
    space, window = found
    outputs = math.prod(x.shape[: -len(space)]) * math.prod(space)
    return Work(outputs * window, x.bytes + outputs * (x.item + 8))


def avg_pool(call: Call) -> Work | None:
    """avg_pool{2,3}d(x, kernel, stride, padding, ceil, …)."""
    x = call.tensor(0)
    found = None if x is None else pooled(x, call, dilation_at=None, ceil_at=4)
    if x is None or found is None:
        return None
    space, window = found
    outputs = math.prod(x.shape[: -len(space)]) * math.prod(space)
    return Work(outputs * window, x.bytes + outputs * x.item)


def adaptive_pool(call: Call) -> Work | None:
    """_adaptive_avg_pool{2,3}d(x, output_size): every input element is added once (windows that overlap: at least)."""
    x, size = call.tensor(0), call.integers(1)
    if x is None or size is None or len(x.shape) <= len(size):
        return None
    return Work(x.numel, x.bytes + dense((*x.shape[: -len(size)], *size), x.dtype))


def pool_backward(call: Call) -> Work | None:
    """*_pool*_backward(grad, x, …, indices?): grad (and the int64 indices) read, dx written; x lends only its shape.

    Each gradient is added to one input element, that of an average (x, kernel, …) to every element of its window.
    """
    grad, x = call.tensor(0), call.tensor(1)
    if grad is None or x is None:
        return None
    indices = next((t for t in call.tensors[2:] if t.dtype == "int64"), None)
    flops = grad.numel
    if "adaptive" in call.op:
        flops = max(grad.numel, x.numel)
    elif "avg" in call.op:
        rank = 3 if "3d" in call.op else 2
        kernel = _spread(call.integers(2), rank)
        if kernel is None:
            return None
        flops *= math.prod(kernel)
    return Work(flops, grad.bytes + (indices.bytes if indices else 0) + dense(x.shape, x.dtype))


BACKWARD = Formula("pooling_backward", pool_backward, concrete=True)

TABLE: dict[str, Formula] = {
    "aten::max_pool2d_with_indices": Formula("max_pool", max_pool, concrete=True),
    "aten::max_pool3d_with_indices": Formula("max_pool", max_pool, concrete=True),
    "aten::avg_pool2d": Formula("avg_pool", avg_pool, concrete=True),
    "aten::avg_pool3d": Formula("avg_pool", avg_pool, concrete=True),
    "aten::_adaptive_avg_pool2d": Formula("adaptive_pool", adaptive_pool, concrete=True),
    "aten::_adaptive_avg_pool3d": Formula("adaptive_pool", adaptive_pool, concrete=True),
    **{
        f"aten::{name}_backward": BACKWARD
        for name in (
            "max_pool2d_with_indices", "max_pool3d_with_indices", "avg_pool2d", "avg_pool3d",
            "_adaptive_avg_pool2d", "_adaptive_avg_pool3d",
        )
    },
}  # fmt: skip
