"""Ascend's tables that are damaged, too large or none: records, or one sentence that says what is wrong."""

from __future__ import annotations

import csv
from collections.abc import Callable

import pytest
from ascend_tables import LEVEL0, LEVEL1, START, line, read_bytes, table
from hypothesis import given, settings
from hypothesis import strategies as st

from roofwatch.collectors.ascend import common, csv_table, csv_texts
from roofwatch.collectors.base import Limits
from roofwatch.model.errors import RoofwatchError

SECOND = {"Start Time(us)": f"{START + 20}.000\t"}


def test_every_place_where_a_table_may_be_cut() -> None:
    """Cut anywhere behind its first row it gives the whole rows before the cut, and says where one is lost."""
    text = table({}, SECOND, {**SECOND, "Start Time(us)": f"{START + 40}.000"})
    lines = text.splitlines(keepends=True)
    for cut in range(len(lines[0] + lines[1]), len(text)):
        profile = read_bytes(text[:cut])
        last = text[:cut].rpartition(b"\n")[2].decode()
        whole = bool(last) and len(next(csv.reader([last]))) == len(LEVEL1)  # only its last cell may be cut
        lost = bool(last) and not whole
        assert sum(group.calls for group in profile.groups) == text[:cut].count(b"\n") - 1 + whole
        assert profile.dropped == ({"cut_off": 1} if lost else {})
        assert (profile.problem is not None and "is cut off" in profile.problem) == lost


def test_damaged_rows_are_counted_and_said_once() -> None:
    """Rows with other numbers of cells: how many, and where the first is."""
    lines = table({}, SECOND).splitlines(keepends=True)
    profile = read_bytes(b"".join([lines[0], lines[1], b"1,2,3\n", lines[2], lines[2].replace(b'"', b"", 1)]))
    assert profile.dropped == {"damaged_row": 2}
    assert profile.problem == (
        f"the trace: 2 rows are damaged, the first in line 3, without the {len(LEVEL1)} cells of a row."
    )
    assert sum(group.calls for group in profile.groups) == 2


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (b"", "is empty"),
        (b"\n \n", "blanks|is empty"),
        (line(LEVEL1).encode() + b"\n", "holds no kernel and no collective"),
        (table({"Start Time(us)": "x"}), r"holds no kernel and no collective \(dropped: 1 bad time\)"),
        (b"Device_id,OP Type,Core Type,Count,Total Time(us)\n0,Add,AI_CORE,1,5\n", "statistics of op types"),
        (b"Name,Input Shapes,Call Stack,Host Self Duration(us)\na,b,c,1\n", "operators of the host"),
        (b"Device_id,Step,Computing,Communication(Not Overlapped)\n0,1,2,3\n", "times of steps"),
        (b"Device_id,Level,API Name,Time(us)\n0,acl,x,1\n", "statistics of API calls"),
        (b"a,b,c,d\n1,2,3,4\n", "has no column 'Name' or 'Op Name', 'Start Time"),
        (line(LEVEL1).encode("utf-16"), "UTF-16"),
        (("a," * 600).encode() + b"\n", "has 601 columns"),
        (b"a,b," + b"c" * 70_000, "first line has more than 64 KiB"),
    ],
)
def test_what_is_no_table(text: bytes, sentence: str) -> None:
    """One sentence says what is wrong."""
    with pytest.raises(RoofwatchError, match=sentence):
        read_bytes(text)


def test_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows beyond the limit are counted, as are sorts of rows beyond theirs; groups beyond theirs are put together."""
    rows = [{"Start Time(us)": f"{START + 20 * i}", "Type": f"Type{i}"} for i in range(50)]
    profile = read_bytes(table(*rows), Limits(max_events=10))
    assert profile.dropped == {"over_event_limit": 40}
    assert sum(group.calls for group in profile.groups) == profile.events_read == 10
    assert profile.problem is not None
    assert "event limit" in profile.problem
    grouped = read_bytes(table(*rows), Limits(max_groups=5))
    assert grouped.dropped == {"over_group_limit": 45}
    assert sum(group.calls for group in grouped.groups) == 50
    monkeypatch.setattr(csv_texts, "MAX_SORTS", 7)
    sorts = read_bytes(table(*rows))
    assert {group.kernel: group.calls for group in sorts.groups} == {**{f"Type{i}": 1 for i in range(7)}, "(other)": 43}


def test_a_line_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """A line of megabytes is left out; the rows around it are read."""
    monkeypatch.setattr(csv_table, "MAX_LINE_BYTES", 10_000)
    monkeypatch.setattr(csv_table, "BLOCK_BYTES", 1_000)
    lines = table({}, SECOND).splitlines(keepends=True)
    profile = read_bytes(b"".join([lines[0], lines[1], b"x" * 400_000, b"\n", lines[2]]))
    assert sum(group.calls for group in profile.groups) == 2
    assert profile.dropped["damaged_row"] == 1


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=300), st.integers(0, 600), st.integers(0, 40))
def test_anything_gives_a_profile_or_a_sentence(noise: bytes, at: int, cut: int) -> None:
    """Bytes put anywhere into a table, and taken out of it, never raise anything but a sentence."""
    text = table({}, SECOND)
    damaged = text[:at] + noise + text[at + cut :]
    try:
        profile = read_bytes(damaged)
    except RoofwatchError:
        return
    assert sum(group.calls for group in profile.groups) <= profile.events_read


@pytest.mark.parametrize(
    ("written", "says"),
    [
        (lambda text: text.replace(b",", b";"), "commas do not separate its columns"),
        (lambda text: text.replace(b",", b"\t"), "commas do not separate its columns"),
        (lambda text: text.replace(b"\n", b"\r"), "carriage return alone"),
    ],
    ids=["semicolons", "tabs", "returns"],
)
def test_tables_of_other_programs(written: Callable[[bytes], bytes], says: str) -> None:
    """What a spreadsheet may have made of it: one sentence that says what to do."""
    with pytest.raises(RoofwatchError, match=says):
        read_bytes(written(table({}, columns=LEVEL0)))


def test_rows_that_are_years_away_are_left_out() -> None:
    """Another clock: counted, and the others keep their metrics."""
    rows = [
        {"aic_mac_ratio": "0.5"},
        {"Start Time(us)": "1", "aic_mac_ratio": "0.9"},
        {**SECOND, "aic_mac_ratio": "0.5"},
    ]
    profile = read_bytes(table(*rows))
    assert profile.dropped == {"bad_time": 1}
    assert sum(g.pipes.mac_ns or 0 for g in profile.groups if g.pipes) == pytest.approx(
        0.5 * sum(g.total_ns for g in profile.groups)
    )


def test_many_kinds_of_kernels_cost_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """More groups than any capture has are put together and counted."""
    monkeypatch.setattr(common, "MAX_GROUPS", 10)
    profile = read_bytes(table(*({"Type": f"Kind{i}x", "Name": f"n{i}"} for i in range(40)), columns=LEVEL0))
    assert len(profile.groups) == 11
    assert profile.dropped == {"over_group_limit": 30}


def test_a_table_that_lost_most_says_so() -> None:
    """Two rows of three without a time: one record, and a sentence."""
    bad = {"Start Time(us)": "N/A"}
    assert read_bytes(table({}, {}, bad)).problem is None
    profile = read_bytes(table({}, bad, {"Duration(us)": "-1"}))
    assert profile.problem is not None
    assert profile.problem.endswith(": most of its records cannot be used (1 bad time, 1 bad duration).")
