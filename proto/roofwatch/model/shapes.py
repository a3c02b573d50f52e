"""One call of an op as a profiler wrote it: shapes, dtypes, strides and concrete inputs, read from untrusted JSON text.

Everything here returns None (or an argument without content) for what it cannot read; nothing is evaluated.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

MAX_TEXT = 1 << 20  # characters; the widest real argument list (a foreach over thousands of tensors) is a tenth of it
MAX_EXTENT = 1 << 48  # elements of one dimension, and of one tensor; more is damage
MAX_RANK = 25  # torch's own indexing limit is 25 dimensions

# The one name used here ← names as Kineto writes them (C++ type names, in two spellings) and as torch does.
_DTYPES = {
    "fp64": ("double", "float64", "c10::Double"),
    "fp32": ("float", "float32", "c10::Float"),
    "fp16": ("c10::Half", "half", "float16", "at::Half", "__half"),
    "bf16": ("c10::BFloat16", "bfloat16", "at::BFloat16", "__nv_bfloat16", "__hip_bfloat16"),
    "fp8_e4m3": ("c10::Float8_e4m3fn", "float8_e4m3fn"),
    "fp8_e5m2": ("c10::Float8_e5m2", "float8_e5m2"),
    "fp8_e4m3fnuz": ("c10::Float8_e4m3fnuz", "float8_e4m3fnuz"),
    "fp8_e5m2fnuz": ("c10::Float8_e5m2fnuz", "float8_e5m2fnuz"),
    "fp8_e8m0": ("c10::Float8_e8m0fnu", "float8_e8m0fnu"),
    "fp4x2": ("c10::Float4_e2m1fn_x2", "float4_e2m1fn_x2"),
    "int64": ("long int", "long", "long long", "int64_t", "c10::Long"),
    "int32": ("int", "int32_t", "c10::Int"),
    "int16": ("short", "short int", "int16_t"),
    "int8": ("signed char", "int8_t", "char", "c10::qint8"),
    "uint8": ("unsigned char", "uint8_t", "c10::quint8", "c10::bits8"),
    "uint16": ("unsigned short", "short unsigned int", "uint16_t", "c10::bits16"),
    "uint32": ("unsigned int", "uint32_t"),
    "uint64": ("unsigned long", "long unsigned int", "uint64_t"),
    "bool": (),
    "complex32": ("c10::complex<c10::Half>",),
    "complex64": ("c10::complex<float>",),
    "complex128": ("c10::complex<double>",),
}
_CANONICAL = {alias: name for name, aliases in _DTYPES.items() for alias in (name, *aliases)}
_CANONICAL["c10::qint32"] = "int32"

# ← names of Ascend's kernel tables, also with DT_ before them, and of its collectives. What has no entry (INT4, HIF8,
# formats of less than a byte) stays unknown.
_ASCEND = {
    "fp64": ("DOUBLE", "FP64"),
    "fp32": ("FLOAT", "FP32"),
    "fp16": ("FLOAT16", "FP16"),
    "bf16": ("BF16", "BFLOAT16", "BFP16"),
    "fp8_e4m3": ("FLOAT8_E4M3FN", "FP8E4M3"),
    "fp8_e5m2": ("FLOAT8_E5M2", "FP8E5M2"),
    "fp8_e8m0": ("FLOAT8_E8M0", "FP8E8M0"),
    **{name: (name.upper(),) for name in ("bool", "complex32", "complex64", "complex128")},
    **{f"{sign}int{bits}": (f"{sign}int{bits}".upper(),) for sign in ("", "u") for bits in (8, 16, 32, 64)},
}
_CANONICAL.update(
    (prefix + alias, name) for name, aliases in _ASCEND.items() for alias in aliases for prefix in ("", "DT_")
)

ITEM_BYTES = {
    "fp64": 8, "fp32": 4, "fp16": 2, "bf16": 2, "fp8_e4m3": 1, "fp8_e5m2": 1, "fp8_e4m3fnuz": 1, "fp8_e5m2fnuz": 1,
    "fp8_e8m0": 1, "fp4x2": 1, "int64": 8, "int32": 4, "int16": 2, "int8": 1, "uint8": 1, "uint16": 2, "uint32": 4,
    "uint64": 8, "bool": 1, "complex32": 4, "complex64": 8, "complex128": 16,
}  # fmt: skip

# Type names as they stand among a C++ kernel's template arguments.
TEMPLATE_TYPES = (
    "c10::BFloat16", "c10::Half", "__hip_bfloat16", "__nv_bfloat16", "c10::complex<double>", "c10::complex<float>",
    "double", "float", "unsigned char", "signed char", "bool", "short", "long", "int",
)  # fmt: skip

FLOATING = frozenset(name for name in ITEM_BYTES if name.startswith(("fp", "bf")))


def dtype_of(text: str) -> str | None:
    """The one name of a dtype ("bf16", "fp32", "int64", …), or None for what is not a tensor dtype."""
    return _CANONICAL.get(text)


@dataclass(frozen=True, slots=True)
class Tensor:
    """A tensor argument. ``strides`` are in elements, None where the source does not tell."""

    shape: tuple[int, ...]
    dtype: str
    strides: tuple[int, ...] | None = None

    @property
    def numel(self) -> int:
        """Elements, expanded dimensions counted in full."""
        return math.prod(self.shape)

    @property
    def item(self) -> int:
        """Bytes of one element."""
        return ITEM_BYTES[self.dtype]

    @property
    def distinct(self) -> int:
        """Elements in memory: an expanded (stride 0) dimension is read once, overlapping windows share elements."""
        if self.strides is None or not self.numel:
            return self.numel
        steps = list(zip(self.shape, self.strides, strict=True))
        unexpanded = math.prod(n for n, step in steps if step)
        extent = 1 + sum((n - 1) * abs(step) for n, step in steps)
        return min(unexpanded, extent)

    @property
    def bytes(self) -> int:
        """Bytes in memory, each counted once."""
        return self.distinct * self.item


@dataclass(frozen=True, slots=True)
class Argument:
    """One argument: a tensor, a list of shapes (whose dtypes the source does not tell), or a value as text."""

    tensor: Tensor | None = None
    shapes: tuple[tuple[int, ...], ...] | None = None
    type: str = ""
    text: str | None = None


@dataclass(frozen=True, slots=True)
class Call:
    """One call of an op. ``kernel`` is the device kernel's name (on a CPU the op's own)."""

    op: str
    arguments: tuple[Argument, ...] = ()
    kernel: str = ""
    _nothing: Argument = field(default=Argument(), repr=False, compare=False)

    def __getitem__(self, index: int) -> Argument:
        """The argument at a position; an empty one beyond the end."""
        return self.arguments[index] if 0 <= index < len(self.arguments) else self._nothing

    def tensor(self, index: int) -> Tensor | None:
        """The tensor at a position, or None."""
        return self[index].tensor

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """All tensor arguments, in order."""
        return tuple(a.tensor for a in self.arguments if a.tensor is not None)

    def value(self, index: int) -> Any:
        """The concrete input at a position as a JSON value (number, bool, list), or None where it was not recorded."""
        text = self[index].text
        return None if not text else _literal(text)

    def flag(self, index: int) -> bool | None:
        """The concrete boolean at a position; None where it was not recorded."""
        value = self.value(index)
        return bool(value) if isinstance(value, bool | int) else None

    def integer(self, index: int) -> int | None:
        """The concrete integer at a position; None where it was not recorded or is none."""
        value = self.value(index)
        return value if isinstance(value, int) and not isinstance(value, bool) else None

    def integers(self, index: int) -> tuple[int, ...] | None:
        """The concrete list of integers at a position; None where it was not recorded."""
        value = self.value(index)
        if not isinstance(value, list) or not all(isinstance(v, int) for v in value):
            return None
        return tuple(int(v) for v in value)


def call_of(
    op: str,
    shapes: str | None,
    dtypes: str | None,
    strides: str | None = None,
    concrete: str | None = None,
    kernel: str = "",
) -> Call | None:
    """Read one call from four JSON texts; None when shapes or dtypes are absent or not what they should be."""
    arguments = _arguments(shapes, dtypes, strides, concrete)
    return None if arguments is None else Call(op, arguments, kernel)


@lru_cache(maxsize=4096)
def _arguments(
    shapes: str | None, dtypes: str | None, strides: str | None, concrete: str | None
) -> tuple[Argument, ...] | None:
    dims, types = _list(shapes), _list(dtypes)
    if dims is None or types is None:
        return None
    steps, texts = _list(strides) or [], _list(concrete) or []
    return tuple(
        _argument(dims[i] if i < len(dims) else [], kind, _at(steps, i), _at(texts, i)) for i, kind in enumerate(types)
    )


def _argument(dims: Any, kind: Any, steps: Any, text: Any) -> Argument:
    kind = kind if isinstance(kind, str) else ""
    words = text if isinstance(text, str) else None
    dtype = dtype_of(kind)
    if dtype is not None:
        shape = _extents(dims)
        if shape is None:
            return Argument(type=kind, text=words)
        return Argument(Tensor(shape, dtype, _strides(steps, len(shape))), None, kind, words)
    if isinstance(dims, list) and dims and all(isinstance(d, list) for d in dims):
        parts = [_extents(d) for d in dims]
        if all(p is not None for p in parts):
            return Argument(None, tuple(p for p in parts if p is not None), kind, words)
    return Argument(type=kind, text=words)


def _extents(dims: Any) -> tuple[int, ...] | None:
    if not isinstance(dims, list) or len(dims) > MAX_RANK:
        return None
    if not all(type(d) is int and 0 <= d < MAX_EXTENT for d in dims) or math.prod(dims) >= MAX_EXTENT:
        return None
    return tuple(dims)


def _strides(steps: Any, rank: int) -> tuple[int, ...] | None:
    if not isinstance(steps, list) or len(steps) != rank:
        return None
    return tuple(steps) if all(type(s) is int and abs(s) < MAX_EXTENT for s in steps) else None


def _at(values: list[Any], index: int) -> Any:
    return values[index] if index < len(values) else None


def _list(text: str | None) -> list[Any] | None:
    value = None if text is None else _json(text)
    return value if isinstance(value, list) else None


def _literal(text: str) -> Any:
    """A concrete input: Kineto writes Python's True/False and C++'s trailing-dot numbers ("0.", "1e-05")."""
    value = _json(text.replace("True", "true").replace("False", "false"))
    if value is None and text.endswith("."):
        value = _json(text + "0")
    return value


def _json(text: str) -> Any:
    if len(text) > MAX_TEXT:
        return None
    try:
        return json.loads(text)
    except (ValueError, RecursionError):  # ValueError covers damaged JSON and integers of absurd length
        return None


def compact(values: Iterator[Any] | list[Any] | tuple[Any, ...]) -> str:
    """Compact JSON text of a list."""
    return json.dumps(list(values), separators=(",", ":"))
