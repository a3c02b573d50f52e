"""Kernels that touch a part of a tensor, write in place, or work on lists: what of their operands they really move."""

from __future__ import annotations

from roofwatch.model.formulas.ascend.operands import KernelCall, moved, total
from roofwatch.model.formulas.base import Work

_ADAM = 15  # operations an element: as ``formulas.optimizer`` derives them
_FOREACH = (("addc", 3), ("lerp", 3), ("norm", 2), ("copy", 0), ("zero", 0))
_INDEX = ("int64", "int32")


def filled(call: KernelCall) -> Work | None:
    """ZerosLike, OnesLike, Fill, Range, random bits: the output is written, the input only tells its shape."""
    size = total(call.outputs)
    return None if size is None or not call.outputs else Work(0, size or (call.outputs[0].bits // 8) or 1)


def part(call: KernelCall) -> Work | None:
    """Slice, StridedSlice, AsStrided: as much is read as written."""
    size = total(call.outputs)
    return None if size is None or not call.outputs else Work(0, 2 * size or 1)


def looked_up(call: KernelCall) -> Work | None:
    """Gather, Index: (table, indices …) → out; of the table no more than the entries, and every element once."""
    table, size = call.input(0), total(call.outputs)
    out = call.output(0)
    indices = total(o for o in call.inputs[1:] if o.dtype in _INDEX)
    if table is None or size is None or out is None or indices is None or not table.countable:
        return None
    return Work(0, min(size, table.bytes) + size + indices)


def scattered(call: KernelCall) -> Work | None:
    """IndexPut, Scatter, InplaceIndexAdd: (x, values and indices …), x changed in place.

    Values read, as many elements of x read and written; the output's shape is all of x, of which the rest stays. The
    updates are the largest other input that is no index.
    """
    x, others = call.input(0), [o for o in call.inputs[1:] if o.shape]
    indices = [o for o in others if o.dtype in _INDEX]
    values = [o for o in others if o.dtype not in _INDEX] or indices
    size = total(others)
    if x is None or not values or size is None or not x.bits:
        return None
    entries = min(max(v.stored for v in values), x.stored)
    adds = "add" in call.type.lower() and x.floating
    return Work(entries if adds else 0, size + 2 * entries * x.bits // 8)


def pool_gradient(call: KernelCall) -> Work | None:
    """MaxPoolGrad: (x, dy, argmax …) → dx: dy read, dx written, an addition an element of dy.

    The argmax is left out: tables give it in a shape of more elements than it has.
    """
    given = [o for o in call.inputs if o.floating and o.shape]
    size = total((*given[1:], *call.outputs))
    return None if len(given) < 2 or size is None else Work(given[-1].stored, size)


def embedding_gradient(call: KernelCall) -> Work | None:
    """EmbeddingDenseGrad: (dy, indices …) → the table's gradient, cleared by a kernel before: dy's rows are added."""
    dy, out, size = call.input(0), call.output(0), total(call.inputs)
    if dy is None or out is None or size is None or not out.bits:
        return None
    return Work(dy.stored, size + 2 * min(dy.stored, out.stored) * out.bits // 8)


def nll_loss(call: KernelCall) -> Work | None:
    """NLLLoss: (log-probabilities, target, weight?) → loss: one element a row is read."""
    x, target = call.input(0), call.input(1)
    if x is None or target is None or not x.bits or not target.bits:
        return None
    return Work(target.stored, target.bytes + target.stored * x.bits // 8)


def nll_loss_gradient(call: KernelCall) -> Work | None:
    """NLLLossGrad: (x, dy, target, weight, …) → dx: all of dx is written, of x nothing is read."""
    size = total((*call.inputs[1:], *call.outputs))
    return None if size is None else Work(0, size)


def gate(call: KernelCall) -> Work | None:
    """SwiGlu, GeGlu: x → half as wide: an activation (4) and a product for each element of the output."""
    out, size = call.output(0), moved(call)
    return None if out is None or size is None else Work(5 * out.stored, size)


def gate_gradient(call: KernelCall) -> Work | None:
    """SwiGluGrad: (dy, x) → dx: of each element of dy both halves: the activation's derivative 7, three products."""
    dy, size = call.input(0), moved(call)
    return None if dy is None or size is None else Work(10 * dy.stored, size)


# -- optimizers --------------------------------------------------------------------------------------------------------


def adam(call: KernelCall) -> Work | None:
    """ApplyAdam, ApplyAdamW: parameter, moments and gradient (and amsgrad's maximum) are read, all but it written."""
    return _step(call, _ADAM, 4)


def momentum(call: KernelCall) -> Work | None:
    """ApplyMomentum and SGD with momentum: parameter, state, gradient."""
    return _step(call, 4, 3)


def descent(call: KernelCall) -> Work | None:
    """ApplyGradientDescent: parameter and gradient."""
    return _step(call, 2, 2)


def _step(call: KernelCall, flops: int, least: int) -> Work | None:
    """Tensors as large as the parameter are read, all but one (the gradient) written; smaller ones are rates."""
    parameter = call.input(0)
    if parameter is None:
        return None
    large = [o for o in call.inputs if o.stored == parameter.stored and o.shape and o.floating]
    read, written = total(large), total(large[:-1])
    if len(large) < least or read is None or written is None:
        return None
    return Work(flops * parameter.stored, read + written)


def foreach(call: KernelCall) -> Work | None:
    """Foreach…: lists of tensors in, lists out; an operation an element, three of the fused ones."""
    name, size = call.type.lower(), moved(call)
    if size is None:
        return None
    flops = next((n for word, n in _FOREACH if word in name), 1)
    counted = call.inputs if "norm" in name or not call.outputs else call.outputs
    return Work(flops * sum(o.stored for o in counted if o.shape and o.floating), size)
