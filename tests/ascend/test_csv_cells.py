"""Cells of CSV tables in bulk, against the slow way: Python's own parser and decimal numbers."""

from __future__ import annotations

import csv
import io
import math
import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roofwatch.collectors.ascend.csv_cells import cells_of, row_of
from roofwatch.collectors.kineto.times import NO_TIME, text_to_ns

ODD = ["", "N/A", ".", "1.2.3", "-5", "1e3", "abc", ".5", "5.", "1764246877073569.640\t", '"12.5"', " 7 ", "0", "0.0",
       "nan", "inf", "-inf", "1_0", "9" * 30, "/", ":", "1 2", "1736408883704643.212345", "+3", "0x10"]  # fmt: skip
TABLES = (
    "old_versions/kernel_details_2023-09_MemoryL0_rank0.csv",
    "pytorch_alexnet_910B_ddp2/text/level0/rank0_ascend_pt/ASCEND_PROFILER_OUTPUT/kernel_details.csv",
    "pytorch_alexnet_910B_ddp2/text/level2/rank0_ascend_pt/ASCEND_PROFILER_OUTPUT/kernel_details.csv",
    "qwen3_0.6b_910B_tp1pp2dp2_level2/rank_2_ascend_pt/ASCEND_PROFILER_OUTPUT/kernel_details.csv",
)


def slow_float(text: str) -> float:
    """A number as Python reads it, NaN where it is none."""
    try:
        value = float(text.strip(' \t"').replace("_", "?"))
    except ValueError:
        return math.nan
    return value if math.isfinite(value) else math.nan


def number(rng: random.Random) -> str:
    """A decimal number of any length, or something odd."""
    if rng.random() < 0.1:
        return rng.choice(ODD)
    decimals = "".join(rng.choice("0123456789") for _ in range(rng.randrange(14)))
    return str(rng.randrange(10 ** rng.randrange(1, 20))) + (f".{decimals}" if rng.random() < 0.7 else "")


@pytest.mark.parametrize("seed", range(40))
def test_numbers_are_those_of_the_slow_way(seed: int) -> None:
    """Times to the nanosecond and ratios, in columns where good, long and odd ones stand side by side."""
    rng = random.Random(seed)
    texts = [number(rng) for _ in range(rng.randrange(1, 300))]
    cells = cells_of("\n".join(f"x,{text}" for text in texts).encode(), 2)
    assert cells.times(1).tolist() == [text_to_ns(text.encode()) for text in texts]
    for text, found in zip(texts, cells.decimals([1])[0].tolist(), strict=True):
        expected = slow_float(text)
        assert (math.isnan(expected) and math.isnan(found)) or math.isclose(expected, found, rel_tol=4e-16), text


def test_absolute_times_keep_their_last_digit() -> None:
    """Microseconds since 1970 with three decimals are 19 digits: a double would be off by 100 ns and more."""
    texts = ["1736408883704643.212\t", "1736408883704643.213\t", "1695115378713661", "9999999999999999.999"]
    cells = cells_of(("\r\n".join(texts) + "\r\n").encode(), 1)
    assert cells.times(0).tolist() == [
        1736408883704643212, 1736408883704643213, 1695115378713661000, NO_TIME
    ]  # fmt: skip  # the last one is beyond 2^62 ns


@pytest.mark.parametrize("table", TABLES)
def test_cells_of_real_tables(traces: Path, table: str) -> None:
    """Every cell of every column is what Python's parser finds there."""
    text = (traces / "ascend" / table).read_bytes()
    head, *rows = csv.reader(io.StringIO(text.decode(), newline=""))
    cells = cells_of(text.partition(b"\n")[2], len(head))
    whole = [row for row in rows if len(row) == len(head)]
    assert len(cells) == len(whole) > 10
    assert len(cells.odd) == len(rows) - len(whole)
    for column in range(len(head)):
        expected = [row[column].strip() for row in whole]
        assert [row_of(one)[0] for one in cells.texts(column, column)] == expected


@given(st.lists(st.lists(st.text('ab,"\t ;0', max_size=6), min_size=3, max_size=3), min_size=1, max_size=8))
def test_quoting(rows: list[list[str]]) -> None:
    """Whatever the csv module writes into three columns is found in three columns, but for blanks at the edges."""
    out = io.StringIO()
    csv.writer(out, lineterminator="\n", quoting=csv.QUOTE_ALL).writerows(rows)
    text = out.getvalue().encode()
    cells = cells_of(text, 3)
    assert not cells.odd
    for column in range(3):
        found = [row_of(one)[0].strip() for one in cells.texts(column, column)]
        assert found == [row[column].strip() for row in rows]
    assert [row_of(line) for line in text.splitlines()] == [list(row) for row in rows]


def test_an_open_quote_damages_its_own_row_alone() -> None:
    """A parser that lets cells hold line breaks would swallow the rows behind it."""
    cells = cells_of(b'1,"a,2\n3,b,4\n"5",c,6\n', 3)
    assert [row_of(one)[0] for one in cells.texts(0, 0)] == ["3", "5"]
    assert cells.odd == [(0, b'1,"a,2')]


def test_rows_with_other_numbers_of_cells_are_told_apart() -> None:
    """Short and long rows are given back with their line; blank lines are nothing."""
    cells = cells_of(b"1,2\n\n1\r\n1,2,3\n \n4,5", 2)
    assert [cells.texts(0, 1)[i] for i in range(len(cells))] == [b"1,2", b"4,5"]
    assert cells.odd == [(2, b"1"), (3, b"1,2,3")]


def test_nothing() -> None:
    """Neither text nor rows."""
    assert len(cells_of(b"", 3)) == 0
    only_odd = cells_of(b"1\n2\n", 3)
    assert len(only_odd) == 0
    assert only_odd.times(0).tolist() == []
    assert only_odd.decimals([0, 1]).shape == (2, 0)
