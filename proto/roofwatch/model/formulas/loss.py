"""Losses. The pointwise ones write an element for each input: the mean over them is an op of its own."""

from __future__ import annotations

import math

from roofwatch.model.formulas.base import Formula, Work, broadcast, dense
from roofwatch.model.shapes import Call


def _pointwise(flops: int) -> Formula:
    def count(call: Call) -> Work | None:
        x, target = call.tensor(0), call.tensor(1)
        if x is None or target is None:
            return None
        shape = broadcast((x, target))
        if shape is None:
            return None
        return Work(flops * math.prod(shape), x.bytes + target.bytes + dense(shape, x.dtype))

    return Formula("pointwise_loss", count)


def _pointwise_backward(flops: int) -> Formula:
    """(grad, x, target, …) → dx; a reduced loss hands in a 0-dim gradient."""

    def count(call: Call) -> Work | None:
        grad, x, target = call.tensor(0), call.tensor(1), call.tensor(2)
        if grad is None or x is None or target is None:
            return None
        read = x.bytes + target.bytes + (grad.bytes if grad.shape else 0)
        return Work(flops * x.numel, read + dense(x.shape, x.dtype))

    return Formula("pointwise_loss_backward", count)


def nll(call: Call) -> Work | None:
    """nll_loss_forward(log-probabilities, target, weight?, reduction, ignore): one element a row is read."""
    x, target, reduction = call.tensor(0), call.tensor(1), call.integer(3)
    if x is None or target is None:
        return None
    outputs = target.numel if reduction == 0 else 2
    return Work(target.numel, target.bytes + (target.numel + outputs) * x.item)


def nll_backward(call: Call) -> Work | None:
    """nll_loss_backward(grad, x, target, …): one element a row is written (clearing the rest is an op of its own)."""
    x, target = call.tensor(1), call.tensor(2)
    return None if x is None or target is None else Work(target.numel, target.bytes + target.numel * x.item)


NLL = Formula("nll_loss", nll, concrete=True)
NLL_BACKWARD = Formula("nll_loss_backward", nll_backward)

TABLE: dict[str, Formula] = {
    "aten::mse_loss": _pointwise(2),  # difference, square
    "aten::smooth_l1_loss": _pointwise(4),
    "aten::huber_loss": _pointwise(4),
    "aten::l1_loss": _pointwise(2),
    "aten::binary_cross_entropy": _pointwise(7),  # two logs, two products, 1 - x, 1 - t, sum
    "aten::soft_margin_loss": _pointwise(4),
    "aten::mse_loss_backward": _pointwise_backward(3),
    "aten::smooth_l1_loss_backward": _pointwise_backward(3),
    "aten::huber_loss_backward": _pointwise_backward(3),
    "aten::binary_cross_entropy_backward": _pointwise_backward(5),
    "aten::nll_loss_forward": NLL,
    "aten::nll_loss2d_forward": NLL,
    "aten::nll_loss_backward": NLL_BACKWARD,
    "aten::nll_loss2d_backward": NLL_BACKWARD,
}
