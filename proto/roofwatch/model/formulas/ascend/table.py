"""Which type of Ascend kernel has which formula: one explicit list, first match wins; and its precision and unit."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

from roofwatch.model.formulas.ascend import attention, memory, products, vector
from roofwatch.model.formulas.ascend.operands import Count, KernelCall
from roofwatch.model.formulas.base import Work
from roofwatch.model.formulas.table import MAX_COUNT
from roofwatch.model.kinds import Kind, kind_of_type

_LONGEST = 256  # characters of a type that are looked at


@dataclass(frozen=True, slots=True)
class KernelFormula:
    """A named way to count the work of a kernel.

    ``matrix``: it runs on the cube unit. ``hf32``: the framework's default for fp32 where the source does not tell
    (torch_npu allows HF32 in convolutions, not in products).
    """

    name: str
    count: Count
    matrix: bool = False
    hf32: bool = False


def _cube(name: str, count: Count, *, hf32: bool = False) -> KernelFormula:
    return KernelFormula(name, count, matrix=True, hf32=hf32)


_TABLE: tuple[tuple[str, KernelFormula], ...] = (
    (r"transpose(quant)?batchmatmul", _cube("matmul", products.transposed_batch)),
    (r"grouped_?matmul|groupmatmul", _cube("grouped_matmul", products.grouped)),
    (r"(batch|quant|weightquant|fused)*matmul(v\d|d)*$|gemm|fullyconnection", _cube("matmul", products.product)),
    (r"(depthwise)?conv[23]d\w*backpropfilter", _cube("convolution_filter", products.convolution_filter, hf32=True)),
    (r"(depthwise)?conv[23]d\w*backpropinput", _cube("convolution_input", products.convolution_input, hf32=True)),
    (r"conv[23]dtranspose|deconvolution", _cube("convolution", products.transposed_convolution, hf32=True)),
    (r"(depthwise|quant|extend)?conv[123]d(v\d)?$", _cube("convolution", products.convolution, hf32=True)),
    (r"(unpad)?flashattentionscoregrad", _cube("attention_backward", attention.backward)),
    (r"(unpad)?flashattentionscore", _cube("attention", attention.forward)),
    (r"promptflashattention|fusedinferattentionscore|increflashattention", _cube("attention", attention.prompt)),
    (r"(swiglu|geglu|swi_?glu)(v\d)?grad|gegluv?\d?grad", KernelFormula("gate_backward", memory.gate_gradient)),
    (r"swiglu(v\d)?$|geglu(v\d)?$", KernelFormula("gate", memory.gate)),
    (r"(resource)?apply\w*adam|fusedadam", KernelFormula("adam", memory.adam)),
    (r"(resource)?apply\w*momentum|\w*sgd", KernelFormula("momentum", memory.momentum)),
    (r"(resource)?applygradientdescent", KernelFormula("gradient_descent", memory.descent)),
    (r"foreach", KernelFormula("foreach", memory.foreach)),
    (r"(zeros|ones)like|fill|range|arange|linspace|eye|dsa|stateless|random", KernelFormula("fill", memory.filled)),
    (r"slice|strided_?slice(?!\w*grad)|asstrided", KernelFormula("slice", memory.part)),
    (r"gather(?!\w*grad)|index(v\d)?$|embedding(v\d)?$|take|maskedselect", KernelFormula("gather", memory.looked_up)),
    (r"indexput|scatter|inplace\w*(index|scatter)|putalong", KernelFormula("scatter", memory.scattered)),
    (r"maxpool\w*grad", KernelFormula("pool_backward", memory.pool_gradient)),
    (r"embeddingdensegrad", KernelFormula("embedding_backward", memory.embedding_gradient)),
    (r"nlllossgrad", KernelFormula("nll_loss_backward", memory.nll_loss_gradient)),
    (r"nllloss", KernelFormula("nll_loss", memory.nll_loss)),
)
_RULES = tuple((re.compile(pattern, re.IGNORECASE), formula) for pattern, formula in _TABLE)

# Kinds whose kernels go over their tensors once, whatever their type: FLOPs an element of the simplest form.
_ONCE = {
    Kind.NORM: 4, Kind.SOFTMAX: 4, Kind.ACTIVATION: 1, Kind.ELEMENTWISE: 1, Kind.CAST: 0, Kind.LAYOUT: 0,
    Kind.COPY_FILL: 0, Kind.REDUCTION: 1, Kind.POOLING: 1, Kind.ROPE: 3, Kind.LOSS: 1,
}  # fmt: skip


@lru_cache(maxsize=4096)
def formula_of_type(type_: str) -> KernelFormula | None:
    """The formula of a kernel's type, or None."""
    name = type_[:_LONGEST]
    for pattern, formula in _RULES:
        if pattern.match(name):
            return formula
    for pattern, streamed in vector.RULES:
        if pattern.match(name):
            return KernelFormula("streaming", streamed)
    count = vector.elementwise(name.lower())
    if count is not None:
        return KernelFormula("elementwise", count)
    flops = _ONCE.get(kind_of_type(name) or Kind.OTHER)
    return None if flops is None else KernelFormula("streaming", vector.streaming(flops))


def work_of_kernel(formula: KernelFormula, call: KernelCall) -> Work | None:
    """FLOPs and bytes of one call; None where an operand is missing, does not fit, or gives an absurd count."""
    try:
        work = formula.count(call)
    except (ArithmeticError, ValueError, IndexError):
        return None  # damaged shapes that the formula's own checks let through: unknown, never a crash
    if work is None or not 0 <= work.flops <= MAX_COUNT or not 0 <= work.bytes <= MAX_COUNT:
        return None
    if work.flops_max is None or work.flops_max == work.flops:
        return Work(work.flops, work.bytes)
    return work if work.flops < work.flops_max <= MAX_COUNT else None


_CUBE = {"fp16": "fp16", "bf16": "bf16", "int8": "int8", "int4": "int4", "fp4": "fp4", "fp8": "fp8", "fp32": "fp32"}


def precision_of_kernel(formula: KernelFormula, call: KernelCall) -> tuple[str | None, str | None]:
    """(precision, unit) of a call that does arithmetic, (None, None) where it is not known.

    The cube takes the dtype of what is multiplied, in fp32 HF32 where it may. Vector arithmetic is measured in fp32,
    as on other devices.
    """
    if not formula.matrix:
        floats = [o.dtype for o in (*call.inputs, *call.outputs) if o.floating]
        if not floats:
            return None, None
        return ("fp64" if set(_full(call)) == {"fp64"} else "fp32"), "vector"
    lead = next((o.dtype for o in call.inputs if len(o.shape) > 1 and o.bits), "")
    short = "fp8" if lead.startswith("fp8") else _CUBE.get(lead)
    if short == "fp32" and (formula.hf32 if call.hf32 is None else call.hf32):
        return "hf32", "matrix"
    return (None, None) if short is None else (short, "matrix")


def _full(call: KernelCall) -> Iterable[str]:
    return (o.dtype for o in call.operands if o.floating)
