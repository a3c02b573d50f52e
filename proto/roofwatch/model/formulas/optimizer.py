"""Multi-tensor and fused optimizer ops over lists of tensors.

A trace does not record the dtypes of a list; the CUDA kernel's template arguments do, and without them the bytes stay
unknown. FLOPs an element of the fused updates, from their formula text: Adam and AdamW 15 (first moment 3, second 4,
decay 2, denominator 3, update 3), SGD 2, with momentum 4, Adagrad 6.
"""

from __future__ import annotations

import math

from roofwatch.model.formulas.base import Formula, Work
from roofwatch.model.formulas.movement import item_of_kernel
from roofwatch.model.shapes import Call

# _foreach_<name>: lists read, FLOPs an element
_FOREACH: dict[str, tuple[int, int]] = {
    "add": (2, 1), "sub": (2, 1), "mul": (2, 1), "div": (2, 1), "maximum": (2, 1), "minimum": (2, 1), "pow": (2, 1),
    "addcmul": (3, 3), "addcdiv": (3, 3), "lerp": (2, 3), "clamp_min": (2, 1), "clamp_max": (2, 1),
    "sqrt": (1, 1), "rsqrt": (1, 1), "neg": (1, 1), "abs": (1, 1), "exp": (1, 1), "reciprocal": (1, 1), "sign": (1, 1),
}  # fmt: skip


def _list_elements(call: Call, index: int) -> int | None:
    shapes = call[index].shapes
    return None if shapes is None else sum(math.prod(s) for s in shapes)


def _foreach(lists: int, flops: int) -> Formula:
    def count(call: Call) -> Work | None:
        elements, item = _list_elements(call, 0), item_of_kernel(call.kernel)
        if elements is None or item is None:
            return None
        given = [n for i in range(lists) if (n := _list_elements(call, i)) is not None]
        return Work(flops * elements, item * (sum(given) + elements))

    return Formula("foreach", count)


def foreach_norm(call: Call) -> Work | None:
    """_foreach_norm(list, order): the list is read; one value a tensor is written."""
    elements, item = _list_elements(call, 0), item_of_kernel(call.kernel)
    if elements is None or item is None:
        return None
    return Work(2 * elements, item * (elements + len(call[0].shapes or ())))


def foreach_zero(call: Call) -> Work | None:
    """_foreach_zero_(list): the list is written."""
    elements, item = _list_elements(call, 0), item_of_kernel(call.kernel)
    return None if elements is None or item is None else Work(0, item * elements)


def _fused(lists: int, flops: tuple[int, int]) -> Formula:
    """A fused step: up to ``lists`` lists (parameters, gradients, states) are read, all but the gradients written back.

    ``flops`` an element: without and with all states (SGD's momentum list may be empty).
    """

    def count(call: Call) -> Work | None:
        elements, item = _list_elements(call, 0), item_of_kernel(call.kernel)
        if elements is None or item is None:
            return None
        present = sum(1 for i in range(lists) if call[i].shapes)
        return Work(flops[present > 2] * elements, item * elements * (2 * present - 1))

    return Formula("fused_optimizer", count)


ADAM = _fused(5, (15, 15))  # the fifth list is amsgrad's maximum
SGD = _fused(3, (2, 4))
ADAGRAD = _fused(3, (6, 6))

TABLE: dict[str, Formula] = {
    **{f"aten::_foreach_{name}{s}": _foreach(*entry) for name, entry in _FOREACH.items() for s in ("", "_")},
    "aten::_foreach_norm": Formula("foreach_norm", foreach_norm),
    "aten::_foreach_zero_": Formula("foreach_zero", foreach_zero),
    "aten::_fused_adam_": ADAM,
    "aten::_fused_adamw_": ADAM,
    "aten::_fused_sgd_": SGD,
    "aten::_fused_adagrad_": ADAGRAD,
}
