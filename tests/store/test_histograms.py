"""Histograms as vectors: golden sums by hand, there and back, and merging held against the record's own."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from roofwatch.model.histogram import Histogram
from roofwatch.store import histograms
from roofwatch.store.histograms import BUCKETS, Histograms


def of(*parts: tuple[int, list[int]]) -> Histograms:
    """Rows of (low, counts)."""
    return Histograms(
        np.array([low for low, _ in parts], np.int64),
        np.array([len(counts) for _, counts in parts], np.int64),
        np.array([n for _, counts in parts for n in counts], np.int64),
    )


def test_merging_by_hand() -> None:
    """Three histograms into two groups and one that nobody wants: counts of the same bucket add up."""
    rows = of((10, [1, 0, 2]), (7, [9]), (12, [5, 1]), (3, []), (2, [4, 0, 0, 6]))
    merged = rows.merged(np.array([0, -1, 0, 1, 1]), 3)
    assert merged.each() == [Histogram(10, (1, 0, 7, 1)), Histogram(2, (4, 0, 0, 6)), Histogram()]


def test_cells_by_hand() -> None:
    """Row, bucket and count of what is not zero."""
    rows, buckets, counts = of((5, [1, 0, 2]), (0, []), (1199, [3])).cells()
    assert list(zip(rows.tolist(), buckets.tolist(), counts.tolist(), strict=True)) == [
        (0, 5, 1),
        (0, 7, 2),
        (2, 1199, 3),
    ]


part = st.tuples(
    st.integers(0, BUCKETS - 1), st.lists(st.one_of(st.just(0), st.integers(0, (1 << 50) - 1)), max_size=40)
)


@settings(deadline=None)
@given(st.lists(part, max_size=12))
def test_there_and_back(parts: list[tuple[int, list[int]]]) -> None:
    """A block gives every row as it was, empty ones and zeros at the ends too."""
    rows = of(*parts)
    again = Histograms.unpack(rows.pack(), len(parts))
    assert [(h.low, list(h.counts)) for h in again.each()] == [(low if n else 0, n) for low, n in parts]
    assert np.array_equal(again.lows, rows.lows)


@settings(deadline=None)
@given(st.lists(st.tuples(part, st.integers(-1, 3)), max_size=12))
def test_merging_is_the_records_own(rows: list[tuple[tuple[int, list[int]], int]]) -> None:
    """Groups of rows merge to what the record's dictionary gives, in any mixture."""
    given, groups = of(*(one for one, _ in rows)), np.array([group for _, group in rows], np.int64)
    expected = [Histogram.merged(Histogram(low, tuple(n)) for (low, n), g in rows if g == group) for group in range(4)]
    for dense in (0, histograms.DENSE):  # by sorting, where there are few counts, and each in its place
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(histograms, "DENSE", dense)
            assert given.merged(groups, 4).each() == expected
