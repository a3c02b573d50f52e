"""Kernels of one convolution: its gradients, and algorithms that multiply less than the definition says.

Both gradients of a convolution do the FLOPs of the forward, and each reads two of gradient, input and weight and writes
the third, or what is as large: the same work, whichever one a kernel makes. So a kernel of ``convolution_backward``
whose name does not tell its gradient can be counted as long as it makes one.

Winograd's F(m × m, r × r) makes m² outputs of (m + r - 1)² products where the definition takes m²·r²: the FLOPs are a
range from that to the nominal ones. How much an FFT saves depends on its tiles and is unknown.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

from roofwatch.model.formulas import conv
from roofwatch.model.formulas.base import Formula, Work
from roofwatch.model.shapes import Call

_FFT = re.compile(r"fft2d|FFT_|fft_?conv")
_TRANSFORMS = re.compile(r"winograd_nonfused|WinogradXform")  # before and after a plain product
_FUSED = re.compile(r"winograd|miopenSp3Asm", re.IGNORECASE)
# (m + r - 1)² over m²·r². cuDNN's "4x4" is F(4 × 4, 3 × 3), its "9x9_5x5" has input tiles of 9 and filters of 5;
# fused kernels, cuDNN's and MIOpen's, are F(2 × 2, 3 × 3) or F(3 × 3, 2 × 2).
_LEAST = ((re.compile(r"9x9_5x5"), (81, 625)), (re.compile(r"4x4"), (36, 144)), (re.compile(r""), (16, 36)))


def asked(call: Call) -> int | None:
    """How many of the two gradients that are convolutions a backward call makes; None where it does not tell."""
    found = conv.gradients(call)
    return None if found is None else bool(found.mask[0]) + bool(found.mask[1])


def one(call: Call) -> Work | None:
    """One gradient, of the input or of the weight: with the bytes of the one that moves less."""
    return min(filter(None, (conv.backward_input(call), conv.backward_weight(call))), default=None)


GRADIENT = Formula("convolution_gradient", one, matrix=True, concrete=True)


def as_computed(formula: Formula, kernel: str, beside: str) -> Formula | None:
    """The formula of a convolution's main kernel, by its name and those ``beside`` it; None where an FFT hides it."""
    if _FFT.search(beside):
        return None
    if _TRANSFORMS.search(beside):
        return winograd(formula, beside)
    return winograd(formula, kernel) if _FUSED.search(kernel) else formula


def winograd(formula: Formula, name: str) -> Formula:
    """The same work with FLOPs from what the least tile named so needs to the nominal ones."""
    part, whole = next(share for pattern, share in _LEAST if pattern.search(name))
    return replace(formula, name=f"{formula.name}_winograd", count=_fewer(formula.count, part, whole))


def _fewer(count: Callable[[Call], Work | None], part: int, whole: int) -> Callable[[Call], Work | None]:
    def counted(call: Call) -> Work | None:
        work = count(call)
        return None if work is None else Work(work.flops * part // whole, work.bytes, work.flops)

    return counted
