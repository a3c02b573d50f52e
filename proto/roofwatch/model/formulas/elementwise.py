"""Elementwise ops: one pass over broadcast inputs to one output of the promoted dtype.

FLOPs: the operations in the op's formula text for each output element, a function such as exp counting as one;
integer, logical and moving ops count none. Bytes: inputs once (a broadcast operand at its own size, a 0-dim operand is
passed as a scalar and counts nothing), output once; an in-place op reads and writes its first argument.
"""

from __future__ import annotations

import math

from roofwatch.model.formulas.base import Formula, Work, broadcast, dense, is_float, promoted, words
from roofwatch.model.shapes import ITEM_BYTES, Call, Tensor

# base name → (tensor inputs, FLOPs an element). More tensors than inputs: the rest are outputs handed in (``out=``).
ARITHMETIC: dict[str, tuple[int, int]] = {
    # one input
    "abs": (1, 1), "neg": (1, 1), "reciprocal": (1, 1), "square": (1, 1), "sqrt": (1, 1), "rsqrt": (1, 1),
    "exp": (1, 1), "exp2": (1, 1), "expm1": (1, 1), "log": (1, 1), "log2": (1, 1), "log10": (1, 1), "log1p": (1, 1),
    "sin": (1, 1), "cos": (1, 1), "tan": (1, 1), "asin": (1, 1), "acos": (1, 1), "atan": (1, 1), "sinh": (1, 1),
    "cosh": (1, 1), "tanh": (1, 1), "erf": (1, 1), "erfc": (1, 1), "erfinv": (1, 1), "lgamma": (1, 1),
    "digamma": (1, 1), "floor": (1, 1), "ceil": (1, 1), "round": (1, 1), "trunc": (1, 1), "frac": (1, 1),
    "sign": (1, 1), "sgn": (1, 1), "relu": (1, 1), "relu6": (1, 2), "clamp": (1, 2), "clamp_min": (1, 1),
    "clamp_max": (1, 1), "hardtanh": (1, 2), "threshold": (1, 1), "leaky_relu": (1, 1), "rrelu": (1, 1),
    "sigmoid": (1, 3), "log_sigmoid_forward": (1, 4), "silu": (1, 4), "gelu": (1, 5), "mish": (1, 4),
    "softplus": (1, 3), "elu": (1, 3), "celu": (1, 3), "hardswish": (1, 5), "hardsigmoid": (1, 4),
    "hardshrink": (1, 0), "softshrink": (1, 1), "logit": (1, 3), "nan_to_num": (1, 0),
    "bitwise_not": (1, 0),
    # two inputs
    "add": (2, 1), "sub": (2, 1), "rsub": (2, 1), "mul": (2, 1), "div": (2, 1), "true_divide": (2, 1),
    "floor_divide": (2, 2), "remainder": (2, 3), "fmod": (2, 3), "pow": (2, 1), "atan2": (2, 1), "hypot": (2, 4),
    "maximum": (2, 1), "minimum": (2, 1), "fmax": (2, 1), "fmin": (2, 1), "copysign": (2, 0), "xlogy": (2, 2),
    "lerp": (3, 3), "addcmul": (3, 3), "addcdiv": (3, 3), "prelu": (2, 1), "_prelu_kernel": (2, 1),
    "glu": (2, 4), "bitwise_and": (2, 0), "bitwise_or": (2, 0), "bitwise_xor": (2, 0),
    "__and__": (2, 0), "__or__": (2, 0), "__xor__": (2, 0), "__lshift__": (2, 0), "__rshift__": (2, 0),
    "bitwise_left_shift": (2, 0), "bitwise_right_shift": (2, 0),
    # backward: (grad, input or output, …) → input's gradient
    "threshold_backward": (2, 1), "relu_backward": (2, 1), "sigmoid_backward": (2, 3), "tanh_backward": (2, 3),
    "gelu_backward": (2, 9), "silu_backward": (2, 7), "mish_backward": (2, 8), "hardswish_backward": (2, 4),
    "hardsigmoid_backward": (2, 2), "hardtanh_backward": (2, 1), "leaky_relu_backward": (2, 1), "elu_backward": (2, 3),
    "softplus_backward": (2, 4), "logit_backward": (2, 3), "native_dropout_backward": (2, 2),
    "_masked_scale": (2, 2), "log_sigmoid_backward": (3, 4), "_prelu_kernel_backward": (3, 2),
}  # fmt: skip

# base name → tensor inputs; the output is bool, and nothing is floating-point arithmetic.
PREDICATES: dict[str, int] = {
    "eq": 2, "ne": 2, "lt": 2, "le": 2, "gt": 2, "ge": 2, "isinf": 1, "isfinite": 1, "isposinf": 1, "isneginf": 1,
    "signbit": 1, "isnan": 1, "logical_not": 1, "isclose": 2, "isin": 2, "logical_and": 2, "logical_or": 2,
    "logical_xor": 2,
}  # fmt: skip

_FLOAT_RESULT = frozenset(
    words(
        "sqrt rsqrt exp exp2 expm1 log log2 log10 log1p sin cos tan asin acos atan sinh cosh tanh erf erfc erfinv "
        "lgamma digamma sigmoid reciprocal div true_divide logit atan2 xlogy copysign"
    )
)  # integer inputs give fp32


_OUTPUTS = {"_prelu_kernel_backward": 2}  # of the input and, elementwise, of the weight


def base_of(op: str) -> str:
    """The name without namespace and in-place underscore: "aten::add_" → "add"; "aten::__and__" keeps its own."""
    name = op.rpartition("::")[2]
    return name[:-1] if name.endswith("_") and not name.endswith("__") else name


def _read(tensors: tuple[Tensor, ...]) -> int:
    return sum(t.bytes for t in tensors if t.shape or len(tensors) == 1)


# Real operations of a complex one; those of others depend on the algorithm and stay unknown.
_COMPLEX = {"add": 2, "sub": 2, "rsub": 2, "neg": 2, "mul": 6}
_BOUNDS = {"clamp": 2, "clamp_min": 1, "clamp_max": 1}  # bounds that may be tensors, after the input
_NUMBER_AT_1 = ("pow", "remainder", "fmod", *_BOUNDS)  # others are called again with the number made a tensor


def _inputs(call: Call, name: str, inputs: int) -> int:
    """How many of the tensors are read: a clamp's bounds are numbers or tensors."""
    return inputs + sum(call.tensor(i) is not None for i in range(1, 1 + _BOUNDS.get(name, 0)))


def _with_number(call: Call, name: str, dtype: str) -> str:
    """The dtype after a Python number at position 1: a float makes fp32 of integers, an integer int64 of bools."""
    if is_float(dtype) or call[1].type != "Scalar" or name not in _NUMBER_AT_1:
        return dtype
    number = call.value(1)
    if isinstance(number, float):
        return "fp32"
    return "int64" if dtype == "bool" and isinstance(number, int) and not isinstance(number, bool) else dtype


def _result(call: Call, name: str, dtype: str) -> str | None:
    """The dtype of a fresh output whose inputs promote to ``dtype``; None where the trace does not tell."""
    if name in _FLOAT_RESULT and not is_float(dtype):
        # a third argument is the rounding mode, whose text is not recorded: it decides between integer and fp32
        return None if name == "div" and len(call.arguments) > 2 else "fp32"
    if name == "abs" and dtype.startswith("complex"):
        return {"complex32": "fp16", "complex64": "fp32", "complex128": "fp64"}[dtype]
    return _with_number(call, name, dtype)


def pointwise(call: Call, inputs: int, flops: int, out: str | None = None, outputs: int = 1) -> Work | None:
    """The work of one elementwise pass over the first ``inputs`` tensors."""
    name = base_of(call.op)
    count = _inputs(call, name, inputs)
    tensors, spare = call.tensors[:count], call.tensors[count:]
    if not tensors:
        return None
    shape, dtype = broadcast(tensors), promoted(tensors)
    if shape is None or dtype is None:
        return None
    elements = math.prod(shape)
    if flops and dtype.startswith("complex"):
        if name not in _COMPLEX:
            return None
        flops = _COMPLEX[name]
    result: str | None
    if call.op.endswith(name + "_"):
        shape, result = tensors[0].shape, tensors[0].dtype
    elif spare:
        result = spare[-1].dtype
    else:
        result = out if out is not None else _result(call, name, dtype)
    if result is None:
        return None
    floating = is_float(result) or any(is_float(t.dtype) for t in tensors)
    return Work(elements * flops if floating else 0, _read(tensors) + outputs * dense(shape, result))


def arithmetic(call: Call) -> Work | None:
    """Any op of the table ARITHMETIC."""
    entry = ARITHMETIC.get(base_of(call.op))
    return None if entry is None else pointwise(call, *entry, outputs=_OUTPUTS.get(base_of(call.op), 1))


def predicate(call: Call) -> Work | None:
    """Comparisons and logic: inputs → bool."""
    return pointwise(call, PREDICATES[base_of(call.op)], 0, "bool")


def where(call: Call) -> Work | None:
    """Where (condition, a, b) and masked_fill (x, mask, value): a choice, no arithmetic."""
    tensors = call.tensors
    if len(tensors) < 2:
        return None
    values = [t for t in tensors if t.dtype != "bool"] or list(tensors[1:])
    shape, dtype = broadcast(tensors[:3]), promoted(values)
    if shape is None or dtype is None:
        return None
    return Work(0, _read(tensors[:3]) + dense(shape, dtype))


def dropout(call: Call) -> Work | None:
    """native_dropout(x, p, train) → output and bool mask: one compare and one multiply an element."""
    x = call.tensor(0)
    return None if x is None else Work(2 * x.numel, x.bytes + dense(x.shape, x.dtype) + x.numel * ITEM_BYTES["bool"])


def gated(call: Call) -> Work | None:
    """silu_and_mul and its like: (out, x) with x twice as wide as out: silu (4) and a multiply."""
    tensors = call.tensors
    if len(tensors) < 2:
        return None
    small, large = sorted(tensors[:2], key=lambda t: t.numel)
    return Work(5 * small.numel, small.bytes + large.bytes)


def glu(call: Call) -> Work | None:
    """Glu (x, dim): half of x times the sigmoid of the other half."""
    x = call.tensor(0)
    return None if x is None else Work(4 * (x.numel // 2), x.bytes + x.numel // 2 * x.item)


def split_heads(call: Call) -> Work | None:
    """_transform_bias_rescale_qkv (qkv, bias, heads): the bias added everywhere, the query third scaled."""
    qkv, bias = call.tensor(0), call.tensor(1)
    if qkv is None or bias is None:
        return None
    return Work(qkv.numel + qkv.numel // 3, qkv.bytes + bias.bytes + dense(qkv.shape, qkv.dtype))


def rope(call: Call) -> Work | None:
    """rotary_embedding(positions, q, k?, head size, cache of cosines and sines, …) in place.

    Of each head the first ``cache.shape[-1]`` elements are rotated: three operations each (x·cos ± y·sin), read and
    written; of the cache a row is read for each position, at most every row once.
    """
    positions, cache, head = call.tensor(0), call.tensor(4), call.integer(3)
    rotated = [t for t in (call.tensor(1), call.tensor(2)) if t is not None]
    if positions is None or cache is None or len(cache.shape) != 2 or not rotated or not head:
        return None
    rows, width = cache.shape
    elements = [t.numel * width // head for t in rotated]
    looked_up = min(positions.numel, rows) * width * cache.item
    moved = sum(2 * n * t.item for n, t in zip(elements, rotated, strict=True))
    return Work(3 * sum(elements), positions.bytes + moved + looked_up)


# Integer and bool inputs may be widened by a number among the concrete inputs, so these belong to the signature.
ARITHMETIC_FORMULA = Formula("elementwise", arithmetic)
NUMBER_FORMULA = Formula("elementwise", arithmetic, concrete=True)
PREDICATE_FORMULA = Formula("predicate", predicate)

TABLE: dict[str, Formula] = {
    **{f"aten::{name}{suffix}": ARITHMETIC_FORMULA for name in ARITHMETIC for suffix in ("", "_")},
    **{f"aten::{name}": NUMBER_FORMULA for name in _NUMBER_AT_1},
    **{f"aten::{name}{suffix}": PREDICATE_FORMULA for name in PREDICATES for suffix in ("", "_")},
    "aten::glu": Formula("glu", glu),
    "aten::where": Formula("where", where),
    "aten::masked_fill": Formula("where", where),
    "aten::masked_fill_": Formula("where", where),
    "aten::native_dropout": Formula("dropout", dropout),
    "aten::_transform_bias_rescale_qkv": Formula("split_heads", split_heads),
    "_C::rotary_embedding": Formula("rope", rope, concrete=True),
}
