"""Blocks: many rows of integers as few bytes, one block a window, or a process's hour or day on one device.

A block is a matrix of eight-byte integers, columns one after the other, its bytes laid out by significance (the high
ones are mostly zeros), then zstd. It is a fifth of what the same rows take in a table, and read thirty times as fast
(docs/performance.md). Any engine that stores bytes stores it.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence

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
LEVEL = 1  # more takes longer and saves nothing: what is left is noise

_own = threading.local()  # zstd's objects must not be shared between threads


def pack(values: Ints) -> bytes:
    """A matrix or vector as a block."""
    return _compressed(np.ascontiguousarray(_bytes_of(values.reshape(-1)).T))


def pack_all(vectors: Sequence[Ints]) -> bytes:
    """Vectors one after the other as the block of one vector; fast where their numbers have few bytes."""
    planes = np.zeros((8, sum(map(len, vectors))), np.uint8)
    at = 0
    for vector in vectors:
        end = at + len(vector)
        highest = int(np.bitwise_or.reduce(vector))
        used = 8 if highest < 0 else (highest.bit_length() + 7) // 8
        if used == 1:
            planes[0, at:end] = vector
        else:
            planes[:used, at:end] = _bytes_of(vector)[:, :used].T
        at = end
    return _compressed(planes)


def _bytes_of(vector: Ints) -> npt.NDArray[np.uint8]:
    return vector.astype("<i8", copy=False).view(np.uint8).reshape(-1, 8)


def _compressed(planes: npt.NDArray[np.uint8]) -> bytes:
    if not hasattr(_own, "compressor"):
        _own.compressor = zstandard.ZstdCompressor(level=LEVEL)
    packed: bytes = _own.compressor.compress(planes)
    return packed


def unpack(block: bytes, columns: int) -> Ints:
    """The matrix of a block, shape (columns, rows).

    Raises:
        RoofwatchError: the block is damaged.
    """
    return whole(_planes(block, columns)).reshape(columns, -1)


def unpack_of(block: bytes, columns: int, wanted: Ints) -> tuple[Ints, Bools]:
    """Of a block only the rows whose first column is among ``wanted``, which ascend, and which these are.

    Raises:
        RoofwatchError: the block is damaged.
    """
    planes = _planes(block, columns)
    own = whole(planes[:, 0])
    kept = (
        wanted.take(np.searchsorted(wanted, own), mode="clip") == own if len(wanted) else np.zeros(len(own), np.bool_)
    )
    return whole(planes[:, :, kept]).reshape(columns, -1), kept


def planes_of(block: bytes) -> Planes:
    """The bytes of a block's integers by significance, shape (8, integers): for who wants some of them (``whole``).

    Raises:
        RoofwatchError: the block is damaged.
    """
    return _planes(block, 1)[:, 0]


def whole(planes: Planes) -> Ints:
    """The integers of some places of a block's planes, one after the other."""
    found: Ints = np.ascontiguousarray(planes.reshape(8, -1).T).view("<i8").reshape(-1)
    return found


def _planes(block: bytes, columns: int) -> Planes:
    if not hasattr(_own, "decompressor"):
        _own.decompressor = zstandard.ZstdDecompressor()
    try:
        return np.frombuffer(_own.decompressor.decompress(block), np.uint8).reshape(8, columns, -1)
    except (zstandard.ZstdError, ValueError) as error:
        raise RoofwatchError(
            f"the database holds a damaged block of kernels ({error}): restore it from a copy"
        ) from error


def joined(parts: Sequence[Ints], columns: int) -> Ints:
    """Matrices side by side."""
    return np.concatenate(parts, axis=1) if parts else np.zeros((columns, 0), np.int64)
