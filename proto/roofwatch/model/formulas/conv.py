"""Convolutions of 1, 2 and 3 dimensions, transposed and grouped, forward and backward.

FLOPs forward: 2 · N · C_out · (C_in/groups) · Πkernel · Πout (each output element is a dot product over its receptive
field); a transposed convolution does the same for each *input* element. Each gradient (input, weight) is again a
convolution of the same size; the bias gradient is a sum (not counted,
like the bias itself). The nominal count: Winograd and FFT kernels do fewer.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from roofwatch.model.formulas.base import Formula, Work, dense, real_operations
from roofwatch.model.shapes import Call, Tensor


@dataclass(frozen=True, slots=True)
class _Layout:
    """Where an op keeps its arguments; None where it has none."""

    stride: int
    padding: int
    dilation: int | None = None
    groups: int | None = None
    transposed: int | None = None
    output_padding: int | None = None
    bias: int | None = 2
    always_transposed: bool = False


# convolution(x, w, bias, stride, padding, dilation, transposed, output_padding, groups, …)
_GENERAL = _Layout(stride=3, padding=4, dilation=5, groups=8, transposed=6, output_padding=7)
# conv1d/2d/3d(x, w, bias, stride, padding, dilation, groups)
_PUBLIC = _Layout(stride=3, padding=4, dilation=5, groups=6)
# conv_transposeNd takes x, w, bias, stride, padding, output_padding, groups, dilation
_PUBLIC_TRANSPOSED = _Layout(stride=3, padding=4, output_padding=5, groups=6, dilation=7, always_transposed=True)
# cudnn_convolution(x, w, padding, stride, dilation, groups, …)
_CUDNN = _Layout(stride=3, padding=2, dilation=4, groups=5, bias=None)
# cudnn_convolution_transpose(x, w, padding, output_padding, stride, dilation, groups, …)
_CUDNN_TRANSPOSED = _Layout(
    padding=2, output_padding=3, stride=4, dilation=5, groups=6, bias=None, always_transposed=True
)
# miopen_convolution(x, w, bias, padding, stride, dilation, groups, …) and mkldnn_convolution, the same
_MIOPEN = _Layout(stride=4, padding=3, dilation=5, groups=6)
# miopen_convolution_transpose(x, w, bias, padding, output_padding, stride, dilation, groups, …)
_MIOPEN_TRANSPOSED = _Layout(padding=3, output_padding=4, stride=5, dilation=6, groups=7, always_transposed=True)
# _slow_conv2d_forward(x, w, kernel_size, bias, stride, padding); _conv_depthwise2d adds dilation
_SLOW = _Layout(stride=4, padding=5, bias=3)
# slow_conv_transposeNd takes x, w, kernel_size, bias, stride, padding, output_padding, dilation
_SLOW_TRANSPOSED = _Layout(stride=4, padding=5, output_padding=6, dilation=7, bias=3, always_transposed=True)
# _nnpack_spatial_convolution takes x, w, bias, padding, stride
_NNPACK = _Layout(padding=3, stride=4)
_DEPTHWISE = _Layout(stride=4, padding=5, dilation=6, bias=3)
# cudnn_convolution_relu takes x, w, bias, stride, padding, dilation, groups
_CUDNN_RELU = _Layout(stride=3, padding=4, dilation=5, groups=6)


def _spread(values: tuple[int, ...] | None, rank: int) -> tuple[int, ...] | None:
    """A per-dimension setting; one value stands for all dimensions."""
    if values is None:
        return None
    if len(values) == 1:
        return values * rank
    return values if len(values) == rank else None


def _output(call: Call, x: Tensor, weight: Tensor, at: _Layout) -> tuple[int, ...] | None:
    """Shape of the output, or None where a setting was not recorded."""
    rank = len(x.shape) - 2
    stride = _spread(call.integers(at.stride), rank)
    padding = _spread(call.integers(at.padding), rank)
    dilation = (1,) * rank if at.dilation is None else _spread(call.integers(at.dilation), rank)
    groups = 1 if at.groups is None else call.integer(at.groups)
    if rank < 1 or len(weight.shape) != rank + 2 or not stride or padding is None or not dilation or not groups:
        return None
    flag = at.always_transposed if at.transposed is None else call.flag(at.transposed)
    if flag is None or not all(stride):
        return None
    reach = [d * (k - 1) + 1 for d, k in zip(dilation, weight.shape[2:], strict=True)]
    if flag:
        extra = _spread(call.integers(at.output_padding), rank) if at.output_padding is not None else None
        extra = extra or (0,) * rank
        space = [
            (n - 1) * s - 2 * p + r + e
            for n, s, p, r, e in zip(x.shape[2:], stride, padding, reach, extra, strict=True)
        ]
        channels = weight.shape[1] * groups
    else:
        space = [(n + 2 * p - r) // s + 1 for n, p, r, s in zip(x.shape[2:], padding, reach, stride, strict=True)]
        channels = weight.shape[0]
    return (x.shape[0], channels, *space) if all(n >= 0 for n in space) else None


def _read(x: Tensor, kernel: tuple[int, ...], out: Sequence[int], stride: tuple[int, ...] | None) -> int:
    """Bytes of the input that filters touch: with strides beyond the filter (1 × 1, stride 2) not all of it."""
    if stride is None or all(s <= k for s, k in zip(stride, kernel, strict=True)):
        return x.bytes
    touched = [min(n, k * o) for n, k, o in zip(x.shape[2:], kernel, out, strict=True)]
    return min(x.bytes, math.prod((*x.shape[:2], *touched)) * x.item)


def conv_flops(x: Tensor, weight: Tensor, out: tuple[int, ...], *, transposed: bool) -> int:
    """2 · (elements on the dense side) · (weight elements per channel of that side)."""
    side = x.shape if transposed else out
    return 2 * side[0] * math.prod(side[2:]) * math.prod(weight.shape) * real_operations(x.dtype)


def _forward(at: _Layout) -> Formula:
    def count(call: Call) -> Work | None:
        x, weight = call.tensor(0), call.tensor(1)
        if x is None or weight is None:
            return None
        out = _output(call, x, weight, at)
        if out is None:
            return None
        transposed = at.always_transposed if at.transposed is None else bool(call.flag(at.transposed))
        bias = call.tensor(at.bias) if at.bias is not None else None
        stride = None if transposed else _spread(call.integers(at.stride), len(x.shape) - 2)
        moved = (
            _read(x, weight.shape[2:], out[2:], stride)
            + weight.bytes
            + dense(out, x.dtype)
            + (bias.bytes if bias else 0)
        )
        return Work(conv_flops(x, weight, out, transposed=transposed), moved)

    return Formula("convolution", count, matrix=True, concrete=True)


class Gradients(NamedTuple):
    """What a backward call has, and which gradients it makes: of input, weight and bias."""

    grad: Tensor
    x: Tensor
    weight: Tensor
    mask: tuple[int, ...]
    flops: int  # of one gradient
    read: int  # bytes of x that the weight's gradient needs


# Position of the mask in (grad, x, w, kernel_size, stride, padding, mask) and with a dilation before it, which has no
# gradient of a bias.
_PLAIN_MASKS = {"aten::_slow_conv2d_backward": 6, "aten::_conv_depthwise2d_backward": 7}


def gradients(call: Call) -> Gradients | None:
    """What convolution_backward and its like are given; None where that is not recorded.

    convolution_backward(grad, x, w, bias_sizes, stride, padding, dilation, transposed, output_padding, groups, mask).
    """
    grad, x, weight = call.tensor(0), call.tensor(1), call.tensor(2)
    plain = _PLAIN_MASKS.get(call.op)
    mask, transposed = call.integers(plain or 10), False if plain else call.flag(7)
    if grad is None or x is None or weight is None or mask is None or transposed is None or len(mask) not in (2, 3):
        return None
    if not len(grad.shape) == len(x.shape) == len(weight.shape) or len(x.shape) < 3:
        return None
    stride = None if transposed else _spread(call.integers(4), len(x.shape) - 2)
    read = _read(x, weight.shape[2:], grad.shape[2:], stride)
    return Gradients(grad, x, weight, (*mask, 0)[:3], conv_flops(x, weight, grad.shape, transposed=transposed), read)


def backward(call: Call) -> Work | None:
    """All the gradients that the output mask asks for."""
    found = gradients(call)
    if found is None:
        return None
    grad, x, weight, mask, flops, read = found
    moved = grad.bytes
    total = 0
    if mask[0]:
        total += flops
        moved += weight.bytes + dense(x.shape, x.dtype)
    if mask[1]:
        total += flops
        moved += read + dense(weight.shape, weight.dtype)
    if mask[2]:
        moved += dense(grad.shape[1:2], grad.dtype)
    return Work(total, moved)


def backward_input(call: Call) -> Work | None:
    """The kernel that makes the input's gradient: reads grad and weight, writes dx."""
    found = gradients(call)
    if found is None:
        return None
    grad, x, weight, _, flops, _ = found
    return Work(flops, grad.bytes + weight.bytes + dense(x.shape, x.dtype))


def backward_weight(call: Call) -> Work | None:
    """The kernel that makes the weight's gradient: reads grad and x, writes dw."""
    found = gradients(call)
    if found is None:
        return None
    grad, _, weight, _, flops, read = found
    return Work(flops, grad.bytes + read + dense(weight.shape, weight.dtype))


def backward_bias(call: Call) -> Work | None:
    """The kernel that makes the bias's gradient: a sum over batch and space."""
    grad = call.tensor(0)
    if grad is None or len(grad.shape) < 2:
        return None
    return Work(grad.numel, grad.bytes + dense(grad.shape[1:2], grad.dtype))


BACKWARD = Formula("convolution_backward", backward, matrix=True, concrete=True)
BACKWARD_INPUT = Formula("convolution_backward_input", backward_input, matrix=True, concrete=True)
BACKWARD_WEIGHT = Formula("convolution_backward_weight", backward_weight, matrix=True, concrete=True)
BACKWARD_BIAS = Formula("convolution_backward_bias", backward_bias)

TABLE: dict[str, Formula] = {
    "aten::convolution": _forward(_GENERAL),
    "aten::_convolution": _forward(_GENERAL),
    "aten::convolution_overrideable": _forward(_GENERAL),
    "aten::conv1d": _forward(_PUBLIC),
    "aten::conv2d": _forward(_PUBLIC),
    "aten::conv3d": _forward(_PUBLIC),
    "aten::conv_transpose1d": _forward(_PUBLIC_TRANSPOSED),
    "aten::conv_transpose2d": _forward(_PUBLIC_TRANSPOSED),
    "aten::conv_transpose3d": _forward(_PUBLIC_TRANSPOSED),
    "aten::cudnn_convolution": _forward(_CUDNN),
    "aten::cudnn_convolution_transpose": _forward(_CUDNN_TRANSPOSED),
    "aten::cudnn_convolution_relu": _forward(_CUDNN_RELU),
    "aten::miopen_convolution": _forward(_MIOPEN),
    "aten::miopen_convolution_transpose": _forward(_MIOPEN_TRANSPOSED),
    "aten::miopen_depthwise_convolution": _forward(_MIOPEN),
    "aten::mkldnn_convolution": _forward(_MIOPEN),
    "aten::_slow_conv2d_forward": _forward(_SLOW),
    "aten::thnn_conv2d": _forward(_SLOW),
    "aten::slow_conv3d_forward": _forward(_SLOW),
    "aten::slow_conv_dilated2d": _forward(_DEPTHWISE),
    "aten::slow_conv_dilated3d": _forward(_DEPTHWISE),
    "aten::slow_conv_transpose2d": _forward(_SLOW_TRANSPOSED),
    "aten::slow_conv_transpose3d": _forward(_SLOW_TRANSPOSED),
    "aten::_nnpack_spatial_convolution": _forward(_NNPACK),
    "aten::_slow_conv2d_backward": BACKWARD,
    "aten::_conv_depthwise2d_backward": BACKWARD,
    "aten::_conv_depthwise2d": _forward(_DEPTHWISE),
    "aten::convolution_backward": BACKWARD,
}
