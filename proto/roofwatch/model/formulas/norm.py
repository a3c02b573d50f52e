"""Normalisations and softmax, forward and backward. Bytes: input and output once, parameters and statistics once.

FLOPs an element, from the formula text: mean 1; variance 3 (difference, square, sum); normalise 2; scale 1; shift 1.
So layer norm with both parameters does 8, in bf16 over 4 bytes: intensity 2, memory bound on every device.
Backward of layer and batch norm: x̂ 2, dy·γ 1, the two sums 3, dx 4; dγ 2, dβ 1. Of RMS norm: x̂ 1, dy·γ 1, the sum 2,
dx 3; dγ 2. Softmax: max, subtract, exp, sum, divide; backward: product and sum, subtract, multiply.
"""

from __future__ import annotations

import math

from roofwatch.model.formulas.base import SCALAR_TYPES, Formula, Work, dense, total_bytes
from roofwatch.model.shapes import Call, Tensor

_STATISTIC = 4  # statistics are kept in fp32


def _affine(weight: Tensor | None, bias: Tensor | None) -> int:
    return (weight is not None) + (bias is not None)


def _rows(x: Tensor, normalized: tuple[int, ...] | None, weight: Tensor | None) -> int | None:
    """How many statistics layer norm keeps: elements over those of the normalized shape."""
    inner = math.prod(normalized) if normalized else weight.numel if weight is not None else None
    return None if not inner else x.numel // inner


def layer_norm(call: Call) -> Work | None:
    """native_layer_norm(x, normalized_shape, weight?, bias?, eps) → y, mean, rstd."""
    x, weight, bias = call.tensor(0), call.tensor(2), call.tensor(3)
    if x is None or (rows := _rows(x, call.integers(1), weight)) is None:
        return None
    moved = x.bytes + dense(x.shape, x.dtype) + total_bytes((weight, bias)) + 2 * rows * _STATISTIC
    return Work(x.numel * (6 + _affine(weight, bias)), moved)


def layer_norm_backward(call: Call) -> Work | None:
    """native_layer_norm_backward(grad, x, normalized_shape, mean, rstd, weight?, bias?, mask) → dx, dγ, dβ."""
    grad, x, weight, mask = call.tensor(0), call.tensor(1), call.tensor(5), call.integers(7)
    mean, rstd = call.tensor(3), call.tensor(4)
    if grad is None or x is None or mask is None or len(mask) != 3:
        return None
    inner = math.prod(call.integers(2) or (weight.shape if weight is not None else ()))
    flops = 10 * mask[0] + 2 * mask[1] + mask[2]
    item = x.item if weight is None else weight.item
    written = mask[0] * x.numel * x.item + (mask[1] + mask[2]) * inner * item
    return Work(x.numel * flops, grad.bytes + x.bytes + total_bytes((mean, rstd, weight)) + written)


def rms_norm(call: Call) -> Work | None:
    """_fused_rms_norm(x, normalized_shape, weight?, eps?) → y, rstd."""
    x, weight = call.tensor(0), call.tensor(2)
    if x is None or (rows := _rows(x, call.integers(1), weight)) is None:
        return None
    moved = x.bytes + dense(x.shape, x.dtype) + total_bytes((weight,)) + rows * _STATISTIC
    return Work(x.numel * (3 + (weight is not None)), moved)


def rms_norm_backward(call: Call) -> Work | None:
    """_fused_rms_norm_backward(grad, x, normalized_shape, rstd, weight?, mask) → dx, dγ."""
    grad, x, rstd, weight, mask = call.tensor(0), call.tensor(1), call.tensor(3), call.tensor(4), call.integers(5)
    if grad is None or x is None or mask is None or len(mask) != 2:
        return None
    inner = math.prod(call.integers(2) or (weight.shape if weight is not None else ()))
    written = mask[0] * x.numel * x.item + mask[1] * inner * (x.item if weight is None else weight.item)
    return Work(x.numel * (7 * mask[0] + 2 * mask[1]), grad.bytes + x.bytes + total_bytes((rstd, weight)) + written)


def custom_rms_norm(call: Call) -> Work | None:
    """rms_norm(out, x, weight, eps) of serving engines."""
    out, x, weight = call.tensor(0), call.tensor(1), call.tensor(2)
    return None if out is None or x is None else Work(4 * x.numel, out.bytes + x.bytes + total_bytes((weight,)))


def fused_add_rms_norm(call: Call) -> Work | None:
    """fused_add_rms_norm (x, residual, weight, eps), in place: both read and written; add 1, norm 4."""
    x, residual, weight = call.tensor(0), call.tensor(1), call.tensor(2)
    if x is None or residual is None:
        return None
    return Work(5 * x.numel, 2 * (x.bytes + residual.bytes) + total_bytes((weight,)))


def _channels(x: Tensor) -> int:
    return x.shape[1] if len(x.shape) > 1 else 1


def _batch_norm(training_at: int | None) -> Formula:
    def count(call: Call) -> Work | None:
        x, weight, bias = call.tensor(0), call.tensor(1), call.tensor(2)
        training = True if training_at is None else call.flag(training_at)
        if x is None or training is None:
            return None
        flops = (6 if training else 2) + _affine(weight, bias)
        kept = (2 if training else 0) * _channels(x) * _STATISTIC
        running = total_bytes((call.tensor(3), call.tensor(4)))
        moved = x.bytes + dense(x.shape, x.dtype) + total_bytes((weight, bias)) + kept + running
        return Work(x.numel * flops, moved)

    return Formula("batch_norm", count, concrete=True)


def batch_norm_backward(call: Call) -> Work | None:
    """native_, cudnn_ and miopen_batch_norm_backward: the first two are the gradient and x, in either order."""
    first, second, weight = call.tensor(0), call.tensor(1), call.tensor(2)
    if first is None or second is None:
        return None
    mask = call.integers(9) if call.op == "aten::native_batch_norm_backward" else (1, 1, 1)
    if mask is None or len(mask) != 3:
        return None
    moved = first.bytes + second.bytes + mask[0] * dense(first.shape, first.dtype)
    kept = (2 + mask[1] + mask[2]) * _channels(first) * _STATISTIC
    return Work(10 * first.numel, moved + total_bytes((weight,)) + kept)


def group_norm(call: Call) -> Work | None:
    """native_group_norm(x, weight?, bias?, N, C, HxW, group, eps) → y, mean, rstd."""
    x, weight, bias = call.tensor(0), call.tensor(1), call.tensor(2)
    if x is None:
        return None
    statistics = 2 * (call.integer(3) or 0) * (call.integer(6) or 0) * _STATISTIC
    moved = x.bytes + dense(x.shape, x.dtype) + total_bytes((weight, bias)) + statistics
    return Work(x.numel * (6 + _affine(weight, bias)), moved)


def group_norm_backward(call: Call) -> Work | None:
    """native_group_norm_backward(grad, x, mean, rstd, weight?, N, C, HxW, group, mask) → dx, dγ, dβ."""
    grad, x, weight, mask = call.tensor(0), call.tensor(1), call.tensor(4), call.integers(9)
    if grad is None or x is None or mask is None or len(mask) != 3:
        return None
    statistics = total_bytes((call.tensor(2), call.tensor(3), weight))
    item = x.item if weight is None else weight.item
    written = mask[0] * x.numel * x.item + (mask[1] + mask[2]) * _channels(x) * item
    return Work(x.numel * (10 * mask[0] + 2 * mask[1] + mask[2]), grad.bytes + x.bytes + statistics + written)


def softmax(call: Call) -> Work | None:
    """_softmax, _log_softmax (x, dim, half_to_float): with the flag a half input gives an fp32 output."""
    x = call.tensor(0)
    if x is None:
        return None
    return Work(5 * x.numel, x.bytes + dense(x.shape, "fp32" if call.flag(2) else x.dtype))


def softmax_backward(call: Call) -> Work | None:
    """_softmax_backward_data, _log_softmax_backward_data (grad, output, dim, dtype of the input, whose gradient it is).

    A forward from half to fp32 has a gradient in half.
    """
    grad, output = call.tensor(0), call.tensor(1)
    if grad is None or output is None:
        return None
    number = call.integer(3)
    dtype = grad.dtype if number is None else SCALAR_TYPES.get(number)
    return None if dtype is None else Work(4 * grad.numel, grad.bytes + output.bytes + dense(grad.shape, dtype))


SOFTMAX = Formula("softmax", softmax, concrete=True)
SOFTMAX_BACKWARD = Formula("softmax_backward", softmax_backward, concrete=True)
BATCH_NORM_BACKWARD = Formula("batch_norm_backward", batch_norm_backward, concrete=True)

TABLE: dict[str, Formula] = {
    "aten::native_layer_norm": Formula("layer_norm", layer_norm, concrete=True),
    "aten::native_layer_norm_backward": Formula("layer_norm_backward", layer_norm_backward, concrete=True),
    "aten::_fused_rms_norm": Formula("rms_norm", rms_norm, concrete=True),
    "aten::_fused_rms_norm_backward": Formula("rms_norm_backward", rms_norm_backward, concrete=True),
    "_C::rms_norm": Formula("rms_norm", custom_rms_norm),
    "_C::fused_add_rms_norm": Formula("fused_add_rms_norm", fused_add_rms_norm),
    # (x, weight, bias, running_mean, running_var, training, momentum, eps, …)
    "aten::native_batch_norm": _batch_norm(5),
    "aten::_native_batch_norm_legit": _batch_norm(5),
    "aten::cudnn_batch_norm": _batch_norm(5),
    "aten::miopen_batch_norm": _batch_norm(5),
    "aten::_batch_norm_with_update": _batch_norm(None),
    "aten::native_batch_norm_backward": BATCH_NORM_BACKWARD,
    "aten::cudnn_batch_norm_backward": BATCH_NORM_BACKWARD,
    "aten::miopen_batch_norm_backward": BATCH_NORM_BACKWARD,
    "aten::native_group_norm": Formula("group_norm", group_norm, concrete=True),
    "aten::native_group_norm_backward": Formula("group_norm_backward", group_norm_backward, concrete=True),
    "aten::_softmax": SOFTMAX,
    "aten::_log_softmax": SOFTMAX,
    "aten::_softmax_backward_data": SOFTMAX_BACKWARD,
    "aten::_log_softmax_backward_data": SOFTMAX_BACKWARD,
}
