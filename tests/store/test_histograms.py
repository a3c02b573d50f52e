"""Histograms as bytes: golden bytes by hand, and every histogram there and back."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from roofwatch.model.histogram import Histogram
from roofwatch.store.histograms import BUCKETS, add_to, decode, encode_column


def encode(*histograms: tuple[int, list[int]]) -> list[bytes]:
    """Blobs of (low, counts)."""
    counts = [n for _, part in histograms for n in part]
    return encode_column([low for low, _ in histograms], [len(part) for _, part in histograms], counts)


@pytest.mark.parametrize(
    ("low", "counts", "blob"),
    [
        (0, [], ""),
        (300, [1, 2, 3], "2c01 01 02 03"),  # 300 = 0x012c, low byte first
        (5, [1, 0, 0, 0, 2], "0500 01 00 03 02"),  # a run of three zeros
        (5, [127, 128, 300], "0500 7f 8001 ac02"),  # LEB128: 300 = 0b10_0101100
        (5, [0, 1], "0500 00 01 01"),
        (5, [1, 0], "0500 01 00 01"),
        (0, [1 << 49], "0000 80808080808080 01".replace(" 01", "01")),  # 7 groups of zeros, then 1
    ],
)
def test_golden_bytes(low: int, counts: list[int], blob: str) -> None:
    """Bytes worked out by hand from the format in the module's docstring."""
    assert encode((low, counts)) == [bytes.fromhex(blob)]


def test_runs_do_not_cross_histograms() -> None:
    """Zeros at the end of one and the start of the next are two runs: each blob stands alone."""
    assert encode((1, [7, 0, 0]), (2, [0, 9]), (3, [])) == [
        bytes.fromhex("0100 07 00 02"),
        bytes.fromhex("0200 00 01 09"),
        b"",
    ]


part = st.tuples(
    st.integers(0, BUCKETS - 1), st.lists(st.one_of(st.just(0), st.integers(0, (1 << 50) - 1)), max_size=40)
)


@settings(deadline=None)
@given(st.lists(part, max_size=12))
def test_there_and_back(parts: list[tuple[int, list[int]]]) -> None:
    """Decoding gives the counts of every bucket, whatever stood beside it in the column."""
    blobs = encode(*parts)
    assert len(blobs) == len(parts)
    for (low, counts), blob in zip(parts, blobs, strict=True):
        expected = {low + i: n for i, n in enumerate(counts) if n}
        assert decode(blob) == Histogram.from_buckets(expected)


def test_adding_merges() -> None:
    """Two blobs into one dictionary: counts of the same bucket add up."""
    buckets: dict[int, int] = {}
    for blob in encode((10, [1, 0, 2]), (12, [5, 1])):
        add_to(buckets, blob)
    assert buckets == {10: 1, 12: 7, 13: 1}
