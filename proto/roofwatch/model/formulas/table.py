"""Which op has which formula: one explicit table, built from the families' own."""

from __future__ import annotations

from roofwatch.model.formulas import (
    attention,
    attention_kernels,
    conv,
    elementwise,
    fused,
    grouped,
    loss,
    matmul,
    movement,
    norm,
    optimizer,
    pooling,
    quantized,
    reduction,
    serving,
    sparse,
    views,
)
from roofwatch.model.formulas.base import Formula, Work
from roofwatch.model.shapes import Call

FORMULAS: dict[str, Formula] = {
    **views.TABLE,
    **elementwise.TABLE,
    **movement.TABLE,
    **reduction.TABLE,
    **norm.TABLE,
    **pooling.TABLE,
    **loss.TABLE,
    **optimizer.TABLE,
    **attention.TABLE,
    **attention_kernels.TABLE,
    **conv.TABLE,
    **matmul.TABLE,
    **quantized.TABLE,
    **grouped.TABLE,
    **serving.TABLE,
    **sparse.TABLE,
}

MAX_COUNT = (1 << 62) - 1  # what a signed 64-bit column holds; more is damage


def formula_of(op: str) -> Formula | None:
    """The formula of an op by its full name, or None."""
    return FORMULAS.get(op) or fused.formula_for(op)


def work_of(formula: Formula, call: Call) -> Work | None:
    """FLOPs and bytes of one call; None where an input is missing, does not fit, or gives an absurd count."""
    try:
        work = formula.count(call)
    except (ArithmeticError, ValueError, IndexError):
        return None  # damaged shapes that the formula's own checks let through: unknown, never a crash
    if work is None or not 0 <= work.flops <= MAX_COUNT or not 0 <= work.bytes <= MAX_COUNT:
        return None
    if work.flops_max is not None and not work.flops <= work.flops_max <= MAX_COUNT:
        return None
    if work.flops_max is None or work.flops_max == work.flops:
        return Work(work.flops, work.bytes)
    return work if work.flops < work.flops_max <= MAX_COUNT else None
