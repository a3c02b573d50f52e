"""Sums whose rows are in order already are not added up again: that must show in no number."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from roofwatch.store.blocks import SUM
from roofwatch.store.sums import EST, KEYS, MOST, Sums

EDGE = int(MOST)  # where two whole numbers begin to be one float


def sums(rows: list[tuple[int, int, int]]) -> Sums:
    """Of signature, device and estimated time."""
    columns = np.ones((len(SUM), len(rows)), np.int64)
    columns[:KEYS] = 0
    columns[0], columns[EST] = [signature for signature, *_ in rows], [est for *_, est in rows]
    return Sums(columns, np.array([device for _, device, _ in rows], np.int64))


@settings(max_examples=200, deadline=None, derandomize=True)
@given(
    st.dictionaries(
        st.tuples(st.integers(0, 5), st.integers(0, 2)), st.integers(0, 9) | st.integers(EDGE - 2, EDGE + 2), min_size=2
    )
)
def test_rows_in_order_are_those_of_any_order(told: dict[tuple[int, int], int]) -> None:
    """The same rows, to the last digit, also where numbers are larger than floats tell apart."""
    rows = [(*key, est) for key, est in sorted(told.items())]
    found = [sums(some).reduced() for some in (rows, rows[::-1])]
    assert found[0].columns.tolist() == found[1].columns.tolist()
    assert found[0].device.tolist() == found[1].device.tolist()


@pytest.mark.parametrize(("est", "expected"), [(EDGE, EDGE), (EDGE + 1, EDGE), (EDGE + 2, EDGE + 2)])
def test_estimates_are_rounded_as_their_sums_are(est: int, expected: int) -> None:
    """A sum is one of floats: of one row, which is in order, and of two that are not."""
    assert sums([(1, 0, est)]).reduced().columns[EST].tolist() == [expected]
    assert sums([(2, 0, 1), (1, 0, est)]).reduced().columns[EST].tolist() == [expected, 1]
