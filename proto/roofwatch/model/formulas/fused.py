"""Kernels that a compiler made, and users' Triton kernels: bytes from arguments, FLOPs from what names say.

Inductor's call of ``triton_poi_fused_add_mul_3`` has its buffers (those read and written in place, then inputs, then
outputs), symbolic sizes where shapes are dynamic, and last its element counts (z, y, x, then the reduced ones). A
buffer is read or written at least once, but no more of it than the kernel has elements (of an embedding's table, of a
sliced tensor only a part is read): the sum is a lower bound of the bytes. FLOPs: the listed elementwise ops times the
element count, a lower bound as well; the name lists each op once and may be cut.

A template's kernel (``triton_tem_fused_addmm_7``) is a product: of its two operands and its output, whose sizes are
M·K, K·N and M·N in whatever layout, K² is the first two over the third. Attention templates stay unknown.

A user's Triton kernel says nothing of its FLOPs. Where its name tells a norm, a softmax, an activation or the like,
each tensor is moved once and the FLOPs are far too few to matter: at least those of the kind's simplest form.
"""

from __future__ import annotations

import math
import re

from roofwatch.model.formulas.base import Formula, Work, is_float
from roofwatch.model.formulas.elementwise import ARITHMETIC
from roofwatch.model.kinds import Kind, kind_of_kernel
from roofwatch.model.shapes import Call, Tensor

_INDUCTOR = re.compile(r"^triton_(poi|red|per)_fused_?(.*?)_?\d*$")
_TEMPLATE = re.compile(
    r"^triton_tem_fused_(?:.*_)?(?:bmm|mm|addmm|baddbmm)(?:_.*)?$|^triton_(?:bmm|mm|addmm)(?:_\d+)?$"
)
_PARTIAL = re.compile(r"embedding|index|gather|scatter|slice|select|split|narrow")
_GENERATED = re.compile(r"arange|full|zeros|ones|rand|empty|eye|linspace|scalar_tensor")
# FLOPs an element: of sums and norms as in the formulas of those ops, without affine parameters.
_REDUCTIONS = {
    "sum": 1, "mean": 1, "amax": 1, "amin": 1, "prod": 1, "var": 4, "var_mean": 4, "linalg_vector_norm": 2,
    "native_layer_norm": 6, "native_group_norm": 6, "native_layer_norm_backward": 10, "_fused_rms_norm": 4,
    "_native_batch_norm_legit": 6, "_native_batch_norm_legit_functional": 6, "native_batch_norm_backward": 10,
    "_softmax": 5, "_log_softmax": 5, "_softmax_backward_data": 4, "_log_softmax_backward_data": 4,
}  # fmt: skip
_NAMES = sorted((*ARITHMETIC, *_REDUCTIONS), key=lambda n: (-len(n), n))
_MOST_COUNTS = 4  # z, y, x and a reduced one, or y, x and two reduced ones


def flops_per_element(listed: str) -> int:
    """FLOPs an element of the ops in a fused kernel's name, longest names first ("add_mean_mul" → 1 + 1 + 1)."""
    total, at = 0, 0
    while at < len(listed):
        name = next((n for n in _NAMES if _is_word(listed, at, n)), None)
        if name is not None:
            total += ARITHMETIC[name][1] if name in ARITHMETIC else _REDUCTIONS[name]
            at += len(name) + 1
            continue
        following = listed.find("_", at + 1)
        at = len(listed) if following < 0 else following + 1
    return total


def _is_word(text: str, at: int, word: str) -> bool:
    end = at + len(word)
    return text.startswith(word, at) and (end == len(text) or text[end] == "_")


def inductor(call: Call) -> Work | None:
    """triton_poi_ (pointwise), triton_red_ and triton_per_ (reductions)."""
    match = _INDUCTOR.match(call.op.rpartition("::")[2])
    tensors = call.tensors
    if match is None or not tensors:
        return None
    elements = _elements(call, reduces=match[1] != "poi")
    if elements is None:
        if not match[2] or _PARTIAL.search(match[2]) is not None:
            return None  # nothing tells how much of its buffers it reads
        elements = max(t.numel for t in tensors)
    floating = any(is_float(t.dtype) for t in tensors)
    moved = sum(min(t.distinct, elements) * t.item for t in tensors)
    if match[1] == "poi" and _in_place(tensors, elements, match[2]):
        moved += elements * tensors[0].item
    return Work(elements * flops_per_element(match[2]) if floating else 0, moved)


def _elements(call: Call, *, reduces: bool) -> int | None:
    """The product of the element counts at the arguments' end; None where there are none.

    Sizes of dynamic shapes stand before them. A kernel has no more elements than its largest buffer (an output has all
    of a pointwise kernel's): of the numbers at the end as many are counts as stay within it, but always the last, and
    of a reduction the last two.
    """
    counts: list[int] = []
    for i in range(len(call.arguments) - 1, -1, -1):
        value = call.integer(i) if call[i].type == "Scalar" else None
        if value is None or value <= 0 or len(counts) == _MOST_COUNTS:
            break
        counts.append(value)
    if not counts:
        return None
    most, least = max(t.numel for t in call.tensors), 2 if reduces else 1
    elements = math.prod(counts[:least])
    for count in counts[least:]:
        if elements * count > most:
            break
        elements *= count
    return elements


def _in_place(tensors: tuple[Tensor, ...], elements: int, listed: str) -> bool:
    """Whether the first buffer is read and written: outputs hold all elements and come last, and the last is too small.

    A single buffer is read, too, unless what the kernel does needs no input.
    """
    if _PARTIAL.search(listed) is not None or tensors[0].numel != elements:
        return False
    if len(tensors) == 1:
        return flops_per_element(listed) > 0 and _GENERATED.search(listed) is None
    return tensors[-1].numel < elements


def template(call: Call) -> Work | None:
    """triton_tem_ and older triton_mm: a product of two matrices, or of batches of them; more is not counted."""
    matrices = [t for t in call.tensors if len(t.shape) > 1]
    if len(matrices) != 3 or not all(t.dtype in ("fp16", "bf16") for t in matrices[:2]):
        return None  # of fp32 operands nothing tells whether the kernel rounds them to TF32
    a, b, out = matrices
    batch = 1
    if "bmm" in call.op:
        batch = out.shape[0]
        if len(out.shape) != 3 or a.shape[0] != batch or b.shape[0] != batch:
            return None
    if not out.numel or a.numel * b.numel % (out.numel * batch):
        return None
    inner = math.isqrt(a.numel * b.numel // (out.numel * batch))
    fits = inner * inner * out.numel * batch == a.numel * b.numel and inner in a.shape and inner in b.shape
    return Work(2 * out.numel * inner, sum(t.bytes for t in call.tensors)) if fits else None


_LEAST_FLOPS = {Kind.NORM: 4, Kind.SOFTMAX: 3, Kind.ACTIVATION: 1, Kind.ELEMENTWISE: 1, Kind.LOSS: 3, Kind.CAST: 1}


def streaming(call: Call) -> Work | None:
    """A user's kernel of a kind that goes over its tensors once."""
    least = _LEAST_FLOPS.get(kind_of_kernel(call.op))
    tensors = call.tensors
    if least is None or not tensors or not any(is_float(t.dtype) for t in tensors):
        return None
    return Work(least * max(t.numel for t in tensors), sum(t.bytes for t in tensors))


INDUCTOR = Formula("inductor", inductor, concrete=True)
TEMPLATE = Formula("inductor_product", template, matrix=True)
STREAMING = Formula("triton_arguments", streaming)


def formula_for(op: str) -> Formula | None:
    """The formula of a compiler's kernel by its name's form, or None."""
    name = op.rpartition("::")[2]
    if _INDUCTOR.match(name):
        return INDUCTOR
    return TEMPLATE if _TEMPLATE.match(name) else None


def formula_for_own(op: str, kernel: str) -> Formula | None:
    """The formula of a kernel that a user launched: the op's record bears the kernel's own name; else None."""
    return STREAMING if op == kernel and kind_of_kernel(kernel) in _LEAST_FLOPS else None
