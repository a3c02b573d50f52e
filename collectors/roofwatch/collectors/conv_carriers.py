"""Which kernels of one convolution carry its work: cuDNN and MIOpen name some of them after products or nothing at all.

Of a backward's kernels those named after a gradient carry that one (``parts``). Of the others, helpers aside, each
carries one gradient where as many ran a call as there are gradients left. Where the numbers do not fit, they are
unknown: nothing would tell which gradient, or which part of one, a kernel makes.
"""

from __future__ import annotations

from collections.abc import Sequence

from roofwatch.collectors.base import RawGroup
from roofwatch.model.formulas import conv, conv_gradients
from roofwatch.model.formulas.base import Formula
from roofwatch.model.formulas.parts import is_helper
from roofwatch.model.shapes import call_of


def is_backward(formula: Formula | None) -> bool:
    """Whether it counts both gradients of a convolution at once."""
    return formula is conv.BACKWARD


def as_computed(formula: Formula, group: RawGroup, family: Sequence[RawGroup]) -> Formula | None:
    """The formula of a kernel that carries a convolution, by the algorithm that the family's names tell."""
    return conv_gradients.as_computed(formula, group.kernel, " ".join(one.kernel for one in family))


def gradients(family: Sequence[RawGroup], named: Sequence[Formula | None]) -> list[Formula | None]:
    """Formulas of the kernels of ``convolution_backward``; ``named`` are those that their names tell."""
    result = list(named)
    op, first = family[0].op or "", family[0]
    call = call_of(op, first.shapes, first.dtypes, first.strides, first.concrete, first.kernel)
    wanted = None if call is None else conv_gradients.asked(call)
    rest = [i for i, one in enumerate(named) if one is None and not is_helper(family[i].kernel)]
    if wanted is None or not rest:
        return result
    left = wanted - len({one.name for one in named if one in (conv.BACKWARD_INPUT, conv.BACKWARD_WEIGHT)})
    ops = max(group.op_calls or group.calls for group in family)
    if sum(family[i].calls for i in rest) != left * ops:
        return result
    for i in rest:
        several = family[i].op_calls is not None and family[i].calls == 2 * (family[i].op_calls or 0)
        if several or family[i].calls == (family[i].op_calls or family[i].calls):
            # of both gradients by one kernel ``normalize`` gives each record its half
            result[i] = as_computed(conv.BACKWARD if several else conv_gradients.GRADIENT, family[i], family)
    return result
