"""Columns as ClickHouse sends them, made by hand."""

from __future__ import annotations

import numpy as np
import pytest

from roofwatch.model.errors import RoofwatchError
from roofwatch.store.clickhouse.native import Arrays, decode

# Two columns, two rows: a number that may be unknown, which the second is; and a text, of which the second is empty.
BLOCK = b"\x02\x02\x01n\x0fNullable(Int16)\x00\x01\x05\x01\x00\x00\x01t\x10Nullable(String)\x00\x00\x03\xc3\x89x\x00"


def test_unknown_numbers_and_texts() -> None:
    """Masked where unknown, over several blocks."""
    found = decode(BLOCK + BLOCK, ("n", "t"))
    assert found["n"].tolist() == [261, None, 261, None]
    assert found["t"].tolist() == ["Éx", "", "Éx", ""]
    assert decode(BLOCK, ("n", "t"))["n"].tolist() == [261, None]


@pytest.mark.parametrize("end", [len(BLOCK) - 2, len(BLOCK) - 20])
def test_what_ends_too_soon_is_told(end: int) -> None:
    """Not taken for less."""
    with pytest.raises(RoofwatchError, match="cannot be read"):
        decode(BLOCK[:end], ("n", "t"))


def test_some_rows_of_arrays() -> None:
    """Each with its own elements."""
    some = Arrays(np.array([2, 2, 5]), np.array([1, 2, 3, 4, 5])).where(np.array([False, True, True]))
    assert (some.ends.tolist(), some.values.tolist()) == ([0, 3], [3, 4, 5])
