"""On which unit a kernel computes, and in which precision: that decides which ceiling it is measured against."""

from __future__ import annotations

import re

from roofwatch.model.formulas.base import Formula, is_float
from roofwatch.model.formulas.movement import dtype_of_kernel
from roofwatch.model.record import Vendor
from roofwatch.model.shapes import Call

_SHORT = {
    "fp64": "fp64", "fp32": "fp32", "fp16": "fp16", "bf16": "bf16", "int8": "int8", "uint8": "int8", "fp4x2": "fp4",
    "complex64": "fp32", "complex128": "fp64",
}  # fmt: skip

# TF32 runs on NVIDIA's matrix unit: kernels say so by name, or by the MMA shape that only TF32 has for fp32 operands.
# nvjet kernels exist for tensor cores only; memory-efficient attention in fp32 does three TF32 products for each one.
_TF32 = re.compile(
    r"tf32|tfloat32|tensorop_s1688|s1688gemm|s1688(fprop|dgrad|wgrad)|s16816gemm_tf32|nvjet|fmha_cutlass[FB]_f32_\w*sm(8|9|1\d)\d",
    re.IGNORECASE,
)
# No matrix instructions. "sgemm" and "scudnn" without the shape of one (s884gemm, s1688cudnn) compute on vector units.
_HALF = re.compile(r"[_:]hgemm|_hcudnn|simt_hgemm", re.IGNORECASE)  # accumulates in half, too
_PLAIN = re.compile(
    r"simt|gemv|gemmk1|gemmsn|dot_kernel|(?<![0-9])sgemm|(?<![0-9])scudnn|gcgemm|depthwise|grouped_direct|"
    r"c1_k1_nhwc|naive_conv|dgrad_engine|" + _HALF.pattern,
    re.IGNORECASE,
)
_FP64_MATRIX = re.compile(r"d884|dmma|tensorop_d|MI\d+x\d+", re.IGNORECASE)
_AMD_MATRIX = re.compile(r"_MI\d+x\d+|mfma|xdl|xdlops|gtcx\d|_wt\d+x", re.IGNORECASE)


def precision_of(formula: Formula, call: Call, vendor: Vendor | None) -> tuple[str | None, str | None]:
    """(precision, unit) of a call, (None, None) where it does no floating-point (or int8 matrix) arithmetic.

    Vector arithmetic on half types is done in fp32 (torch's op-math type), so that is what it is measured against.
    """
    dtype = _lead(formula, call) or ""
    short = "fp8" if dtype.startswith("fp8") else _SHORT.get(dtype)
    if dtype and not formula.matrix:
        return _vector(dtype, short), "vector"
    if short is None:
        return None, None
    if short == "fp32" and vendor is Vendor.NVIDIA and _TF32.search(call.kernel):
        return "tf32", "matrix"
    if _on_matrix(short, call.kernel, vendor):
        return short, "matrix"
    converted = short in ("fp16", "bf16") and _HALF.search(call.kernel) is None  # as it is read: the op-math type
    return "fp32" if converted else short, "vector"


def _vector(dtype: str, short: str | None) -> str | None:
    if not is_float(dtype):
        return None
    return "fp64" if short == "fp64" else "fp32"


def _on_matrix(short: str, kernel: str, vendor: Vendor | None) -> bool:
    if vendor in (Vendor.CPU, Vendor.ASCEND):
        return True
    if _PLAIN.search(kernel):
        return False
    if short == "fp64":
        return _FP64_MATRIX.search(kernel) is not None
    if short == "fp32":
        return vendor is Vendor.AMD and _AMD_MATRIX.search(kernel) is not None
    return True


def _lead(formula: Formula, call: Call) -> str | None:
    """The dtype that decides: as the formula tells; else a product's first matrix, of vector work the widest float."""
    tensors = call.tensors
    if formula.dtype is not None:
        return formula.dtype
    if formula.lead is not None:
        lead = call.tensor(formula.lead)
        return None if lead is None else lead.dtype
    if not tensors:
        return dtype_of_kernel(call.kernel)  # a list of tensors
    if formula.matrix:
        return next((t.dtype for t in tensors if len(t.shape) > 1), tensors[0].dtype)
    full = [t.dtype for t in tensors if t.shape and is_float(t.dtype)] or [t.dtype for t in tensors]
    return "fp64" if "fp64" in full else full[0]
