"""Which record of an op carries its formula, when one op launches several kernels (the rule: docs/roofline.md)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from roofwatch.collectors import conv_carriers
from roofwatch.collectors.base import Category, RawGroup
from roofwatch.model.formulas import fused, nodes, views
from roofwatch.model.formulas.base import Formula
from roofwatch.model.formulas.parts import is_helper, part_of
from roofwatch.model.formulas.table import formula_of
from roofwatch.model.kinds import Kind, kind_of_kernel, kind_of_op
from roofwatch.model.shapes import Call

# Ops of these kinds launch one kernel a call: several kernels of one op with one set of shapes are alternatives.
_ONE_KERNEL = frozenset({Kind.ELEMENTWISE, Kind.ACTIVATION, Kind.CAST, Kind.COPY_FILL})


def kernel_formulas(family: Sequence[RawGroup]) -> list[Formula | None]:
    """The formula of each kernel that one op (same inputs, same place) launched; None for those that carry none."""
    op = family[0].op
    if op is None:
        return [None] * len(family)
    found = [part_of(op, group.kernel) or nodes.part_of(op, group.kernel) for group in family]
    result = [None if part is None else part[0] for part in found]
    formula = formula_of(op) or fused.formula_for_own(op, family[0].kernel)
    if formula is views.VIEW:
        return result  # a kernel ran all the same (a fill of fresh memory, say): its work is unknown, not nothing
    if conv_carriers.is_backward(formula):
        return conv_carriers.gradients(family, result)
    if formula is None or any(part is not None and part[1] for part in found):
        return result
    rest = [i for i, part in enumerate(found) if part is None]
    for i in _main(op, family, rest):
        result[i] = conv_carriers.as_computed(formula, family[i], family) if kind_of_op(op) is Kind.CONV else formula
    return result


def _main(op: str, family: Sequence[RawGroup], rest: Sequence[int]) -> Sequence[int]:
    """The kernels that carry the op's whole formula: one, or several where they are alternatives of each other."""
    kind = kind_of_op(op)
    candidates = [i for i in rest if not is_helper(family[i].kernel)] or list(rest)
    candidates = [i for i in candidates if kind_of_kernel(family[i].kernel) is kind] or candidates
    if len(candidates) < 2 or kind in _ONE_KERNEL or _alternatives([family[i].calls for i in candidates]):
        return candidates
    return [max(candidates, key=lambda i: family[i].total_ns)]


def _alternatives(calls: Sequence[int]) -> bool:
    """Kernels that each call launches together have equal counts, or multiples; others stand for each other."""
    least = min(calls)
    return any(n % least for n in calls)


def cpu_formula(call: Call, inner: Mapping[str, set[object]]) -> Formula | None:
    """The formula of an op on a CPU, where every op is a record with its self time.

    ``inner``: op → first operands seen in this capture, to tell a wrapper from an op that did the work itself.
    """
    wrapped = views.WRAPPERS.get(call.op)
    if wrapped is not None and (not wrapped or any(_first(call) in inner.get(op, ()) for op in wrapped)):
        return views.WRAPPER
    if views.is_node(call.op) or views.is_outer_overload(call):
        return views.WRAPPER
    return formula_of(call.op)


def operands(calls: Sequence[Call]) -> dict[str, set[object]]:
    """Op → the first operands it was called with."""
    seen: dict[str, set[object]] = {}
    for call in calls:
        seen.setdefault(call.op, set()).add(_first(call))
    return seen


def _first(call: Call) -> object:
    """The first operand as an inner op sees it too.

    Dtype and extents; not dimensions of one, which a wrapper may add, nor channels, which it may split by groups.
    """
    tensor = next(iter(call.tensors), None)
    return None if tensor is None else (tensor.dtype, *(n for i, n in enumerate(tensor.shape) if n != 1 and i != 1))


def is_kernel(group: RawGroup) -> bool:
    """Whether a group holds device kernels (not copies, not CPU ops)."""
    return group.category is Category.KERNEL
