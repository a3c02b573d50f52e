"""Blocks: many rows of integers as few bytes, one block a window, or a process's hour or day on one device.

A block is a matrix of eight-byte integers. Of each column is kept its least number, and of what is above that the bytes
that are not zero in all rows, laid out by significance, then zstd. It is a fifth of what the same rows take in a table,
and read thirty times as fast (docs/performance.md). Any engine that stores bytes stores it.

Blocks written before schema 0011 are all eight bytes of every column, and zstd; they begin with zstd's own four bytes.
"""

from __future__ import annotations

import struct
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import zstandard

from roofwatch.model.errors import RoofwatchError

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
Planes = npt.NDArray[np.uint8]

# Columns of a window's block. ``device`` is the position in the window; ``formula_bound`` is -1 where there is none;
# ``first`` marks one row of each kernel's name a device model, so that a window's steps are counted once a kernel.
FACT = (
    "signature_id", "total_ns", "min_ns", "max_ns", "step_ns", "calls", "step_calls", "device", "evidence", "bound",
    "formula_bound", "first",
)  # fmt: skip
# Columns of a block of sums. ``stepping_calls`` are the calls inside steps of windows with steps; ``steps`` those of
# the windows where a row is the first of its kernel.
SUM = (
    "signature_id", "evidence", "bound", "formula_bound", "total_ns", "est_ns", "step_ns", "calls", "step_calls",
    "stepping_calls", "steps", "min_ns", "max_ns",
)  # fmt: skip
TRIMMED = b"\x01"  # what a block begins with
LEVEL = 1  # more takes longer and saves nothing: what is left is noise
FAST = -1  # two thirds less time for three hundredths more bytes: of what is kept for days, not for months

_own = threading.local()  # zstd's objects must not be shared between threads


@dataclass(frozen=True, slots=True)
class Trimmed:
    """Columns of integers without the bytes that tell nothing."""

    lows: Ints  # of each column, the least number
    used: tuple[int, ...]  # how many bytes of what is above that
    planes: Planes  # these bytes of all rows, column after column, the low ones first

    @staticmethod
    def of(values: Ints) -> Trimmed:
        """A matrix, a row a column."""
        if not values.shape[1]:
            return Trimmed(np.zeros(len(values), np.int64), (0,) * len(values), np.zeros((0, 0), np.uint8))
        lows = values.min(axis=1)
        above = np.ascontiguousarray(values - lows[:, None], "<i8").view("<u8")  # modulo 2⁶⁴: right for any two numbers
        used = tuple((most.bit_length() + 7) // 8 for most in np.bitwise_or.reduce(above, axis=1).tolist())
        planes, at = np.empty((sum(used), values.shape[1]), np.uint8), 0
        for column, count in zip(above, used, strict=True):
            if count == 1:
                planes[at] = column
            elif count:
                planes[at : at + count] = column.view(np.uint8).reshape(-1, 8)[:, :count].T
            at += count
        return Trimmed(lows, used, planes)

    def some(self, since: int, until: int) -> bytes:
        """Some rows, one after the other in the matrix: what ``parted`` reads."""
        head = struct.pack(f"<I{len(self.used)}B{len(self.used)}q", until - since, *self.used, *self.lows.tolist())
        return head + self.planes[:, since:until].tobytes()

    def whole(self) -> Ints:
        """The matrix again."""
        rows = self.planes.shape[1]
        octets = np.zeros((len(self.used), 8, rows), np.uint8)
        octets[np.arange(8) < np.array(self.used)[:, None]] = self.planes
        values: Ints = np.ascontiguousarray(octets.transpose(0, 2, 1)).view("<i8").reshape(len(self.used), rows)
        values += self.lows[:, None]
        return values

    def where(self, kept: Bools) -> Trimmed:
        """Some of the rows."""
        return self if kept.all() else Trimmed(self.lows, self.used, self.planes[:, kept])


def parted(raw: bytes, columns: int) -> tuple[Trimmed, bytes]:
    """What begins with so many columns, and what comes after them.

    Raises:
        ValueError: it is shorter than it says.
    """
    head = struct.Struct(f"<I{columns}B{columns}q")
    if len(raw) < head.size:
        raise ValueError("it ends before its rows begin")
    rows, *told = head.unpack_from(raw)
    used, end = tuple(told[:columns]), head.size + sum(told[:columns]) * rows
    if max(used) > 8 or end > len(raw):
        raise ValueError("it ends before its rows do")
    planes = np.frombuffer(raw, np.uint8, end - head.size, head.size).reshape(sum(used), rows)
    return Trimmed(np.array(told[columns:], np.int64), used, planes), raw[end:]


def pack(values: Ints, level: int = LEVEL) -> bytes:
    """A matrix as a block."""
    return pack_parts(values, (0, values.shape[1]), level)[0]


def pack_parts(values: Ints, ends: Sequence[int], level: int = LEVEL) -> list[bytes]:
    """The rows between each two of ``ends`` as blocks: much cheaper than one by one."""
    of = Trimmed.of(values)
    return [TRIMMED + compressed(of.some(*two), level) for two in pairwise(ends)]


def compressed(raw: bytes, level: int = LEVEL) -> bytes:
    """By zstd."""
    if not hasattr(_own, "compressors"):
        _own.compressors = {level: zstandard.ZstdCompressor(level=level) for level in (LEVEL, FAST)}
    packed: bytes = _own.compressors[level].compress(raw)
    return packed


def decompressed(block: bytes | memoryview) -> bytes:
    """The other way round.

    Raises:
        ZstdError: the block is damaged.
    """
    if not hasattr(_own, "decompressor"):
        _own.decompressor = zstandard.ZstdDecompressor()
    raw: bytes = _own.decompressor.decompress(block)
    return raw


@contextmanager
def telling() -> Iterator[None]:
    """Tell of damaged blocks what to do about them."""
    try:
        yield
    except (zstandard.ZstdError, ValueError) as error:
        raise RoofwatchError(
            f"the database holds a damaged block of kernels ({error}): restore it from a copy"
        ) from error


def unpack(block: bytes, columns: int) -> Ints:
    """The matrix of a block, shape (columns, rows).

    Raises:
        RoofwatchError: the block is damaged.
    """
    with telling():
        return _trimmed(block, columns).whole() if block.startswith(TRIMMED) else of_older(block, columns)


def unpack_of(block: bytes, columns: int, wanted: Ints) -> tuple[Ints, Bools]:
    """Of a block only the columns whose first number is one of ``wanted``, which ascend, and which these are.

    Raises:
        RoofwatchError: the block is damaged.
    """
    with telling():
        if not block.startswith(TRIMMED):
            matrix = of_older(block, columns)
            kept = _among(matrix[0], wanted)
            return matrix[:, kept], kept
        of = _trimmed(block, columns)
    kept = _among(Trimmed(of.lows[:1], of.used[:1], of.planes[: of.used[0]]).whole()[0], wanted)
    return of.where(kept).whole(), kept


def _among(own: Ints, wanted: Ints) -> Bools:
    if not len(wanted):
        return np.zeros(len(own), np.bool_)
    found: Bools = wanted.take(np.searchsorted(wanted, own), mode="clip") == own
    return found


def _trimmed(block: bytes, columns: int) -> Trimmed:
    of, rest = parted(decompressed(memoryview(block)[1:]), columns)
    if rest:
        raise ValueError("more than its rows")
    return of


def of_older(block: bytes, columns: int) -> Ints:
    """The matrix of a block written before schema 0011.

    Raises:
        ValueError, ZstdError: the block is damaged.
    """
    planes = np.frombuffer(decompressed(block), np.uint8).reshape(8, columns, -1)
    found: Ints = np.ascontiguousarray(planes.reshape(8, -1).T).view("<i8").reshape(columns, -1)
    return found


def joined(parts: Sequence[Ints], columns: int) -> Ints:
    """Matrices side by side."""
    return np.concatenate(parts, axis=1) if parts else np.zeros((columns, 0), np.int64)
