"""Blocks: there and back, those of older stores, a golden one, and damaged ones that are told and not believed."""

from __future__ import annotations

import struct

import numpy as np
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from roofwatch.model.errors import RoofwatchError
from roofwatch.store.blocks import FAST, Ints, pack, pack_parts, unpack, unpack_of
from roofwatch.store.histograms import Histograms

whole = st.integers(-(1 << 63), (1 << 63) - 1) | st.integers(-1, 300) | st.just(7)
matrix = st.integers(0, 6).flatmap(
    lambda rows: st.lists(st.lists(whole, min_size=rows, max_size=rows), min_size=1, max_size=4)
)


def before_0011(values: Ints) -> bytes:
    """As stores wrote blocks before schema 0011: all eight bytes of every number, the low ones of all first."""
    octets = [[number >> 8 * at & 255 for number in values.reshape(-1).tolist()] for at in range(8)]
    return zstandard.ZstdCompressor().compress(b"".join(map(bytes, octets)))


@settings(deadline=None)
@given(matrix)
def test_there_and_back(rows: list[list[int]]) -> None:
    """Every number as it was, of any size, none and all alike included; so of older stores' blocks."""
    values = np.array(rows, np.int64).reshape(len(rows), -1)
    assert np.array_equal(unpack(pack(values), len(rows)), values)
    assert pack(np.asfortranarray(values)) == pack(values)  # however it lies in memory
    assert np.array_equal(unpack(before_0011(values), len(rows)), values)


@settings(deadline=None)
@given(matrix, st.sets(whole))
def test_some_of_a_block(rows: list[list[int]], wanted: set[int]) -> None:
    """Columns that begin with one of some numbers, as if all had been read."""
    values = np.array(rows, np.int64).reshape(len(rows), -1)
    for block in (pack(values), before_0011(values)):
        found, kept = unpack_of(block, len(rows), np.array(sorted(wanted), np.int64))
        assert kept.tolist() == [number in wanted for number in values[0].tolist()]
        assert np.array_equal(found, values[:, kept])


def test_windows_together_are_windows_alone() -> None:
    """Blocks that are made together hold what each would alone, whatever the others' numbers are."""
    values = np.array([[5, 6, 7, 1 << 40, -9], [1, 1, 1, 1, 1]], np.int64)
    parts = pack_parts(values, (0, 2, 2, 5), FAST)
    assert [unpack(part, 2).tolist() for part in parts] == [[[5, 6], [1, 1]], [[], []], [[7, 1 << 40, -9], [1, 1, 1]]]


def test_a_block_by_hand() -> None:
    """Three rows; of the first column two bytes are left, of the second none."""
    head = struct.pack("<I2B2q", 3, 2, 0, 100, -1)
    raw = zstandard.ZstdDecompressor().decompress(pack(np.array([[100, 101, 100 + 0x0203], [-1, -1, -1]]))[1:])
    assert raw == head + bytes([0, 1, 3]) + bytes([0, 0, 2])


def test_a_block_of_histograms_by_hand() -> None:
    """Counts of 15 and more stand apart; of five counts the last half byte is empty."""
    rows = Histograms(np.array([10, 12]), np.array([2, 3]), np.array([1, 15, 0, 14, 300]))
    raw = zstandard.ZstdDecompressor().decompress(rows.pack()[1:])
    rows_of = struct.pack("<I2B2q", 2, 1, 1, 10, 2) + bytes([0, 2]) + bytes([0, 1])
    large = struct.pack("<I1B1q", 2, 2, 15) + bytes([0, 29]) + bytes([0, 1])
    assert raw == rows_of + bytes([0xF1, 0xE0, 0x0F]) + large


def test_histograms_of_older_stores() -> None:
    """Three vectors one after the other."""
    block = before_0011(np.array([10, 12, 2, 1, 1, 0, 300], np.int64))
    assert [(h.low, h.counts) for h in Histograms.unpack(block, 2).each()] == [(10, (1, 0)), (12, (300,))]
    assert [h.low for h in Histograms.unpack_of(block, np.array([False, True])).each()] == [12]


def test_damaged_blocks_are_told() -> None:
    """Cut anywhere, with what is not its own behind it, or another's: one sentence, never other numbers."""
    values = np.arange(40, dtype=np.int64).reshape(2, -1) * 1000
    raw = zstandard.ZstdDecompressor().decompress(pack(values)[1:])
    again = zstandard.ZstdCompressor().compress
    for bad in (*(raw[:end] for end in range(len(raw))), raw + b"\0", b"\xff" * 60):
        with pytest.raises(RoofwatchError, match="damaged block"):
            unpack(b"\x01" + again(bad), 2)
    for bad_block in (b"", b"\x01", b"\x07" + pack(values)[1:], pack(values)[:-3]):
        with pytest.raises(RoofwatchError, match="damaged block"):
            unpack(bad_block, 2)


def test_damaged_histograms_are_told() -> None:
    """The same of histograms: counts that are missing, and large ones without a place."""
    rows = Histograms(np.array([10, 12]), np.array([2, 3]), np.array([1, 15, 0, 14, 300]))
    raw = zstandard.ZstdDecompressor().decompress(rows.pack()[1:])
    again = zstandard.ZstdCompressor().compress
    bare = Histograms(np.array([10, 12]), np.array([2, 3]), np.array([1, 1, 0, 14, 3]))
    unescaped = zstandard.ZstdDecompressor().decompress(bare.pack()[1:])
    for bad in (*(raw[:end] for end in range(len(raw))), raw + b"\0", unescaped + raw[len(unescaped) :]):
        with pytest.raises(RoofwatchError, match="damaged block"):
            Histograms.unpack(b"\x02" + again(bad), 2)
