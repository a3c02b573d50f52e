"""ClickHouse's Native format, between its bytes and numpy's columns: nothing is copied row by row.

A block is the number of columns, the number of rows, and of each column its name, its type and its values: numbers as
they lie in memory, texts each after their length, arrays as the ends of their rows and then all their elements.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from roofwatch.model.errors import RoofwatchError

Column = npt.NDArray[Any]
_NUMBERS = {
    "Int8": "<i1", "Int16": "<i2", "Int32": "<i4", "Int64": "<i8", "UInt8": "<u1", "UInt16": "<u2", "UInt32": "<u4",
    "UInt64": "<u8", "Float64": "<f8", "Bool": "<u1",
}  # fmt: skip
_SHORT = [bytes([number]) for number in range(0x80)]
_UNSIGNED = (("UInt8", 8), ("UInt16", 16), ("UInt32", 32))


@dataclass(frozen=True, slots=True)
class Arrays:
    """A column of arrays: where each row's ends, and all elements one after the other."""

    ends: Column
    values: Column

    def __len__(self) -> int:
        return len(self.ends)

    def where(self, rows: Column) -> Arrays:
        """Some of the rows."""
        sizes = np.diff(self.ends, prepend=0)
        return Arrays(np.cumsum(sizes[rows]), self.values[np.repeat(rows, sizes)])


def encode(columns: Mapping[str, tuple[str, Any]], *, narrow: bool = True) -> bytes:
    """A block of columns: name → type, values (a numpy array, ``Arrays``, or a list with None where unknown).

    ``narrow``: whole numbers travel in the fewest bytes that hold all of their column; the server makes them the
    table's.
    """
    rows = len(next(iter(columns.values()))[1])
    parts: list[Any] = [_varint(len(columns)), _varint(rows)]
    for name, (kind, values) in columns.items():
        travels, buffers = _values(kind, values, narrow)
        parts += [_text(name), _text(travels), *buffers]
    return b"".join(parts)


def _values(kind: str, values: Any, narrow: bool) -> tuple[str, list[Any]]:
    """As which type values travel, and their bytes."""
    if kind.startswith("LowCardinality("):
        raise ValueError(kind)  # the server takes the plain type, and finds the values itself
    if kind.startswith("Nullable("):
        inner = kind[len("Nullable(") : -1]
        empty: Any = "" if inner == "String" else 0
        gaps = bytes(value is None for value in values)
        known = [empty if value is None else value for value in values] if any(gaps) else values
        travels, buffers = _values(inner, known, narrow)
        return f"Nullable({travels})", [gaps, *buffers]
    if kind.startswith("Array("):
        travels, buffers = _values(kind[len("Array(") : -1], values.values, narrow)
        return f"Array({travels})", [_buffer(values.ends, "<u8"), *buffers]
    if kind == "String":
        return kind, [b"".join(map(_text, values))]
    if kind.startswith("FixedString("):
        return kind, list(values)
    numbers = np.asarray(values)
    if narrow and numbers.dtype.kind in "iu" and _NUMBERS[kind][1] in "iu":
        kind = _narrow(kind, numbers)
    return kind, [_buffer(numbers, _NUMBERS[kind])]


def _narrow(kind: str, numbers: Column) -> str:
    """The smallest type without a sign that holds such numbers; ``kind`` where some are below zero, or none is it."""
    size = 8 if len(numbers) == 0 else int(np.bitwise_or.reduce(numbers))
    width = np.dtype(_NUMBERS[kind]).itemsize
    fitting = (name for name, bits in _UNSIGNED if bits <= 8 * width and 0 <= size < 1 << bits)
    return kind if kind == "Bool" else next(fitting, kind)


def _buffer(numbers: Column, kind: str) -> Any:
    return np.ascontiguousarray(numbers, dtype=kind).data.cast("B") if len(numbers) else b""


def _text(value: str) -> bytes:
    data = value.encode()
    return _varint(len(data)) + data


def _varint(number: int) -> bytes:
    if number < len(_SHORT):
        return _SHORT[number]
    found = bytearray()
    while number > 0x7F:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    found.append(number)
    return bytes(found)


def decode(data: bytes, names: Sequence[str]) -> dict[str, Any]:
    """The blocks of an answer as columns of numbers (masked where unknown), ``Arrays`` of numbers, or texts.

    Raises:
        RoofwatchError: it holds something else.
    """
    parts: dict[str, list[Any]] = {name: [] for name in names}
    try:
        for block in _blocks(memoryview(data)):
            for name, values in zip(names, block, strict=True):
                parts[name].append(values)
        return {name: _joined(found) for name, found in parts.items()}
    except (IndexError, KeyError, ValueError) as error:
        raise RoofwatchError(f"the answer of ClickHouse cannot be read ({error!r})") from error


def _joined(parts: Sequence[Any]) -> Any:
    if not parts:
        return np.zeros(0, np.int64)
    if not isinstance(parts[0], Arrays):
        if len(parts) == 1:
            return parts[0]
        return (np.ma.concatenate if isinstance(parts[0], np.ma.MaskedArray) else np.concatenate)(parts)
    begins = np.cumsum([0, *(len(part.values) for part in parts)])[:-1]
    ends = [part.ends + begin for part, begin in zip(parts, begins, strict=True)]
    return Arrays(np.concatenate(ends), np.concatenate([part.values for part in parts]))


def _blocks(data: memoryview) -> Iterator[list[Any]]:
    at = 0
    while at < len(data):
        columns, at = _number(data, at)
        rows, at = _number(data, at)
        block = []
        for _ in range(columns):
            size, at = _number(data, at)
            at += size  # its name
            size, at = _number(data, at)
            kind = bytes(data[at : at + size]).decode()
            values, at = _column(data, at + size, kind, rows)
            block.append(values)
        yield block


def _column(data: memoryview, at: int, kind: str, rows: int) -> tuple[Any, int]:
    if kind.startswith("Array("):
        ends, at = _column(data, at, "UInt64", rows)
        count = int(ends[-1]) if rows else 0
        values, at = _column(data, at, kind[len("Array(") : -1], count)
        return Arrays(ends.astype(np.int64), values), at
    if kind.startswith("Nullable("):
        unknown, at = _column(data, at, "Bool", rows)
        values, at = _column(data, at, kind[len("Nullable(") : -1], rows)
        return np.ma.MaskedArray(values, unknown.astype(np.bool_)), at
    if kind == "String":
        return _texts(data, at, rows)
    kind_of = np.dtype(_NUMBERS[kind])
    end = at + rows * kind_of.itemsize
    if end > len(data):
        raise ValueError("it ends too soon")
    return np.frombuffer(data[at:end], kind_of), end


def _texts(data: memoryview, at: int, rows: int) -> tuple[Column, int]:
    found = np.empty(rows, object)
    for row in range(rows):
        size, at = _number(data, at)
        if at + size > len(data):
            raise ValueError("it ends too soon")
        found[row] = bytes(data[at : at + size]).decode()
        at += size
    return found, at


def _number(data: memoryview, at: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        byte = data[at]
        number |= (byte & 0x7F) << shift
        at += 1
        if byte < 0x80:
            return number, at
        shift += 7
