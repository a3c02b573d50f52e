"""Kernels that a compiler fused: bytes from their arguments, FLOPs from the ops that their names list.

An inductor kernel ``triton_poi_fused_add_mul_3`` takes its buffers and then its element counts. Each buffer is read or
written at least once, but not more of it than the kernel has elements (of an embedding's table, of a sliced tensor only
a part is read), so the sum of these is a lower bound of the bytes (a buffer that is read *and* written counts once; the
trace does not tell which are). FLOPs: the listed elementwise ops times the element count, also a lower bound.
Kernels of templates (``triton_tem_``: products, attention) do more than their arguments tell: no formula.
"""

from __future__ import annotations

import math
import re

from roofwatch.model.formulas.base import Formula, Work, is_float
from roofwatch.model.formulas.elementwise import ARITHMETIC
from roofwatch.model.shapes import Call

_INDUCTOR = re.compile(r"^triton_(poi|red|per)_fused_?(.*?)_?\d*$")
_PARTIAL = re.compile(r"embedding|index|gather|scatter|slice|select|split|narrow")
_REDUCTIONS = {"sum": 1, "mean": 1, "amax": 1, "amin": 1, "var_mean": 4, "native_layer_norm": 6, "_softmax": 5}
_NAMES = sorted((*ARITHMETIC, *_REDUCTIONS), key=lambda n: (-len(n), n))


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
    counts = [n for i, a in enumerate(call.arguments) if a.type == "Scalar" and (n := call.integer(i)) and n > 0]
    if not counts and _PARTIAL.search(match[2]) is not None:
        return None  # without its element count nothing tells how much of its buffers it reads
    elements = math.prod(counts) if counts else max(t.numel for t in tensors)
    floating = any(is_float(t.dtype) for t in tensors)
    moved = sum(min(t.distinct, elements) * t.item for t in tensors)
    return Work(elements * flops_per_element(match[2]) if floating else 0, moved)


INDUCTOR = Formula("inductor", inductor, concrete=True)


def formula_for(op: str) -> Formula | None:
    """The formula of a compiler's kernel by its name's form, or None."""
    return INDUCTOR if _INDUCTOR.match(op.rpartition("::")[2]) else None
