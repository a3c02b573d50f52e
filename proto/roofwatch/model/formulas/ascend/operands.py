"""What a kernel read and wrote: shapes in storage, their formats, and the logical sizes behind them.

A private format is a tiling: FRACTAL_NZ holds a matrix as (…, N1, M1, M0, N0), NC1HWC0 an image as (N, C1, H, W, C0),
FRACTAL_Z a filter as (C1·H·W, N1, N0, C0). The tables give the stored sizes, padding included, which is what moves; how
much of a tile is padding they do not tell, unless a TransData kernel made the tensor from a plain one.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from roofwatch.model.formulas.base import Work
from roofwatch.model.shapes import FLOATING, ITEM_BYTES, MAX_EXTENT, MAX_RANK, MAX_TEXT, dtype_of

# Bits of what is no dtype of torch's.
_BITS = {"INT4": 4, "FLOAT4_E2M1": 4, "FLOAT4_E1M2": 4, "HIFLOAT8": 8}
_SHORT = {"INT4": "int4", "FLOAT4_E2M1": "fp4", "FLOAT4_E1M2": "fp4", "HIFLOAT8": "fp8"}
_TILE = 16  # rows of a tile in every format; its other side holds 32 bytes
_TILE_BYTES = 32
PLAIN = frozenset({"", "ND", "NCHW", "NHWC", "NCL", "NCDHW", "NDHWC", "HWCN", "NC"})

Shape = tuple[int, ...]
Known = Mapping[tuple[str, Shape], Shape]  # (format, stored shape) → logical shape


@dataclass(frozen=True, slots=True)
class Operand:
    """One tensor in a format; "" is an unknown dtype. A scalar and an absent tensor both have no dimensions."""

    shape: Shape
    dtype: str  # one of ``shapes.ITEM_BYTES``, int4, fp4 or fp8; "" where unknown
    format: str = "ND"
    bits: int = 0

    @property
    def stored(self) -> int:
        """Elements that are stored. Where a source gives a logical shape in a tiled format, it is padded to tiles."""
        rank = len(self.shape)
        if self.format == "FRACTAL_NZ" and 2 <= rank < 4:
            *lead, rows, columns = self.shape
            return math.prod(lead) * _up(rows, _TILE) * _up(columns, self._across)
        if self.format == "NC1HWC0" and rank == 4:
            batch, channels, height, width = self.shape
            return batch * _up(channels, self._across) * height * width
        return math.prod(self.shape)

    @property
    def bytes(self) -> int:
        """Stored bytes; 0 where the dtype is unknown (``countable`` says so)."""
        return (self.stored * self.bits + 7) // 8

    @property
    def countable(self) -> bool:
        """Whether its bytes are known: no dimensions are none."""
        return not self.shape or self.bits > 0

    @property
    def floating(self) -> bool:
        """Whether arithmetic on it is floating-point arithmetic."""
        return self.dtype in FLOATING or self.dtype in {"fp4", "fp8"} or self.dtype.startswith("complex")

    @property
    def matrix(self) -> Shape:
        """The logical shape of a (batched) matrix: exact of plain formats, padded to tiles of FRACTAL_NZ."""
        if self.format == "FRACTAL_NZ" and len(self.shape) >= 4:
            *lead, columns, rows, inner_rows, inner_columns = self.shape
            return (*lead, rows * inner_rows, columns * inner_columns)
        return self.shape

    @property
    def _across(self) -> int:
        return _TILE_BYTES * 8 // self.bits if self.bits else _TILE


@dataclass(frozen=True, slots=True)
class KernelCall:
    """One call of a kernel. ``hf32``: whether fp32 products may be done in HF32, None where the source does not tell.

    ``known``: logical shapes of tensors in tiled formats, as this capture's TransData kernels tell them.
    """

    type: str
    inputs: tuple[Operand, ...]
    outputs: tuple[Operand, ...] = ()
    hf32: bool | None = None
    known: Known | None = None

    def logical(self, operand: Operand) -> Shape | None:
        """The logical shape of an operand: of a plain format, or as a TransData of the same capture told it."""
        if operand.format in PLAIN:
            return operand.shape
        return None if self.known is None else self.known.get((operand.format, operand.shape))

    def input(self, index: int) -> Operand | None:
        """The input at a position; None beyond the end and where it has no dimensions."""
        found = self.inputs[index] if 0 <= index < len(self.inputs) else None
        return found if found is not None and found.shape else None

    def output(self, index: int) -> Operand | None:
        """The output at a position; None beyond the end and where it has no dimensions."""
        found = self.outputs[index] if 0 <= index < len(self.outputs) else None
        return found if found is not None and found.shape else None

    @property
    def operands(self) -> tuple[Operand, ...]:
        """All inputs and outputs that have dimensions."""
        return tuple(o for o in (*self.inputs, *self.outputs) if o.shape)

    @property
    def largest(self) -> int:
        """Elements of the largest operand, at least those of a scalar."""
        return max((o.stored for o in self.operands), default=1)


Count = Callable[[KernelCall], Work | None]


def total(operands: Iterable[Operand | None]) -> int | None:
    """Stored bytes of operands, each once; None where the dtype of one is unknown."""
    given = [o for o in operands if o is not None]
    return sum(o.bytes for o in given if o.shape) if all(o.countable for o in given) else None


def moved(call: KernelCall) -> int | None:
    """All inputs and outputs once; of a kernel over scalars the output's element, so that it is not nothing."""
    found = total((*call.inputs, *call.outputs))
    if found != 0:
        return found
    return next((o.bits // 8 for o in call.outputs if o.bits), None)


@lru_cache(maxsize=8192)
def operands_of(shapes: str | None, dtypes: str | None, formats: str | None) -> tuple[Operand, ...] | None:
    """Operands from three JSON lists; None where shapes or dtypes are absent, damaged, or do not belong together."""
    dims, types, layouts = _list(shapes), _list(dtypes), _list(formats) or []
    if dims is None or types is None or len(dims) != len(types):
        return None
    found = []
    for i, (extents, name) in enumerate(zip(dims, types, strict=True)):
        shape = _shape(extents)
        if shape is None or not isinstance(name, str):
            return None
        layout = layouts[i] if i < len(layouts) and isinstance(layouts[i], str) else ""
        found.append(_operand(shape, name, layout))
    return tuple(found)


def _operand(shape: Shape, name: str, layout: str) -> Operand:
    plain = layout.partition(":")[0].removeprefix("FORMAT_")  # NC1HWC0:1 tells the sub-format after the colon
    bare = name.removeprefix("DT_")
    if bare in _BITS:
        return Operand(shape, _SHORT[bare], plain, _BITS[bare])
    dtype = dtype_of(name)
    return Operand(shape, dtype or "", plain, 8 * ITEM_BYTES[dtype] if dtype else 0)


def outputs_of(text: str | None) -> tuple[Operand, ...] | None:
    """Outputs from JSON [shapes, dtypes, formats]; None where there are none or they are damaged."""
    parts = _list(text)
    if parts is None or len(parts) != 3:
        return None
    return operands_of(*(json.dumps(part) for part in parts))


def relayouts(calls: Iterable[KernelCall]) -> dict[tuple[str, Shape], Shape]:
    """What TransData kernels tell: stored shapes in tiled formats → the plain shapes behind them.

    A stored shape that stands for several plain ones is left out: its padding is not known.
    """
    found: dict[tuple[str, Shape], set[Shape]] = {}
    for call in calls:
        source, target = call.input(0), call.output(0)
        if source is None or target is None:
            continue
        for tiled, plain in ((source, target), (target, source)):
            if tiled.format not in PLAIN and plain.format in PLAIN:
                found.setdefault((tiled.format, tiled.shape), set()).add(plain.shape)
    return {key: next(iter(plain)) for key, plain in found.items() if len(plain) == 1}


def _up(size: int, step: int) -> int:
    return -(-size // step) * step


def _shape(extents: Any) -> Shape | None:
    if not isinstance(extents, list) or len(extents) > MAX_RANK:
        return None
    if not all(type(n) is int and 0 <= n < MAX_EXTENT for n in extents) or math.prod(extents) >= MAX_EXTENT:
        return None
    return tuple(extents)


def _list(text: str | None) -> list[Any] | None:
    if text is None or len(text) > MAX_TEXT:
        return None
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, list) else None
