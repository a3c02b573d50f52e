"""``top --by`` and ``--every`` as a user meets them: names, bounds, sparklines, whole stretches."""

from __future__ import annotations

import csv
import io
import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from roofwatch.cli.render import course, grouped, text
from roofwatch.model.grouping import GROUP_KEYS, too_many
from roofwatch.model.histogram import Histogram
from roofwatch.model.kinds import Kind
from roofwatch.model.record import (
    Bound,
    Device,
    DeviceWindow,
    Evidence,
    KernelStat,
    Ledger,
    Node,
    Process,
    Signature,
    Trigger,
    Vendor,
    Window,
)
from roofwatch.proto import codec
from roofwatch.store import database
from roofwatch.store.ingest import Writer
from roofwatch.store.unpack import Unpacker

Roofwatch = Callable[..., "subprocess.CompletedProcess[str]"]
HOUR_NS = 3600 * 10**9
NOON_NS = 1_800_000_000_000_000_000 // (24 * HOUR_NS) * 24 * HOUR_NS + 12 * HOUR_NS
COLUMNS = ("kernel", "calls", "p50", "p95", "p99", "time", "share", "bound", "roof", "winnable")
GROUP: dict[str, Any] = {
    **dict.fromkeys(GROUP_KEYS),
    "kernel": "gemm", "device": "NVIDIA H100 SXM", "signatures": 1, "calls": 4, "total_ns": 8000, "est_ns": 8000,
    "share": 0.8, "mean_ns": 2000.0, "min_ns": 1000, "p50_ns": 2000, "p95_ns": 3000, "p99_ns": 3100, "max_ns": 3100,
    "kind": "matmul", "kinds": {"matmul": 1.0}, "phases": {"none": 1.0}, "bound": "memory",
    "bounds": {"memory": 0.83, "compute": 0.17}, "evidence": "shapes", "evidences": {"shapes": 1.0},
    "roof_fraction": 0.5, "roofed_share": 1.0, "winnable_ns": 4000,
}  # fmt: skip


def told(answer: dict[str, Any], by: str, groups: list[dict[str, Any]], every: int = 0, rows: Any = ()) -> list[str]:
    """The table's lines in 80 columns."""
    query = {"by": by} | ({"every_ns": every} if every else {})
    parts = {"groups": groups, "rows": list(rows)} if every else {"rows": groups}
    drawn = grouped.report({**answer, "query": query, "timeline": None, **parts}, ["all nodes"], 80)
    assert max(text.width(line) for line in drawn.splitlines()) <= 80
    return drawn.splitlines()


def test_a_group_is_a_line(answer: dict[str, Any]) -> None:
    """A bound that is not of all has its share; what is left out is told."""
    lines = told(answer, "kernel", [GROUP])
    at = next(i for i, line in enumerate(lines) if line.startswith("#"))
    assert lines[at].split() == ["#", *COLUMNS]
    assert " ".join(lines[at + 1].split()) == "1 gemm 4 2.00 µs 3.00 µs 3.10 µs 8.00 µs 80 % memory 83 % 50 % 4.00 µs"
    assert lines[-1] == "further kernels: 20.0 % of device time (--top 0 shows all)"


def test_what_has_no_name_or_roof(answer: dict[str, Any]) -> None:
    """Unknown is a dash; a bound of all stands alone; a roof fraction that cannot be is marked."""
    rows = [
        {**GROUP, "kernel": None, "op": None, "roof_fraction": None, "winnable_ns": None, "bounds": {"memory": 1.0}},
        {**GROUP, "kernel": None, "op": "aten::mm", "roof_fraction": 1.5, "share": 0.2},
    ]
    lines = told(answer, "op", rows)
    first, second = lines[-2:]
    assert first.split()[1] == text.UNKNOWN
    assert first.split()[-3:] == ["memory", text.UNKNOWN, text.UNKNOWN]
    assert "150 %!" in second


def test_devices_that_are_called_alike(answer: dict[str, Any]) -> None:
    """By node and number; by the end of the uuid or the process where that does not tell them apart; by model."""
    device = {**GROUP, "kernel": None, "node": "n1", "index": 0, "share": 0.25}
    rows = [
        {**device, "uuid": "GPU-aaaaaa111111"},
        {**device, "uuid": "GPU-aaaaaa222222"},
        {**device, "index": 3, "uuid": "GPU-3"},
        {**device, "device": "AMD Instinct MI300X", "process": "00ab12cd34ef5678"},
    ]
    lines = told(answer, "device", rows)[-4:]
    assert [line.split()[1] for line in lines] == ["n1:0:111111", "n1:0:222222", "n1:3", "n1:0:00ab12"]
    assert "on" in told(answer, "device", rows)[-5].split()


def test_sparklines_by_hand() -> None:
    """Eight marks from the least to the largest: 0 and 1 of 8 are the two lowest, the largest is full, none a dot."""
    assert course.sparkline([0, 1, 4, None, 8], 0.0) == "▁▂▅·█"
    assert course.sparkline([100, 101, 105], 100, 5) == "▁▂█"
    assert course.sparkline([100, 101], 100, 8) == "▁▂"
    assert course.sparkline([7, 7], 7) == "▁▁"
    assert course.sparkline([None], 0.0) == "·"


def test_the_course_of_a_group(answer: dict[str, Any]) -> None:
    """30 hours are two a mark, means are of the sums of both; a gap is a dot, and what varies is told.

    Hours 0 and 1: 2 calls of 2000 and 2 of 4000 in all: mean 1500 (not 1000 and 2000's mean by chance: 6000 ÷ 4).
    Hour 29: 1 call of 3000: mean 3000, twice that: varies 100 %.
    """
    at = [(0, 2, 2000), (1, 2, 4000), (29, 1, 3000)]
    rows = [
        {**GROUP, "start_unix_ns": NOON_NS + hour * HOUR_NS, "calls": calls, "total_ns": total, "est_ns": total}
        for hour, calls, total in at
    ]
    lines = told(answer, "kernel", [{**GROUP, "est_ns": 9000, "mean_ns": 1800.0, "share": 1.0}], HOUR_NS, rows)
    assert next(line for line in lines if "a mark" in line).startswith("30 × 1 h · 2 a mark · ")
    line = next(line for line in lines if line.startswith("1  gemm"))
    gap = "·" * 13
    assert line.split() == ["1", "gemm", "9.00", "µs", "100", "%", f"█{gap}▅", "1.80", "µs", f"▁{gap}█", "100", "%"]


@pytest.fixture
def db(tmp_path: Path) -> str:
    """A database with three windows: at 12:10, at 12:50 and at 14:30 UTC."""
    gemm = Signature("gemm", Kind.MATMUL, op="aten::mm", shapes="[[8,8],[8,8]]")
    device = Device(Vendor.NVIDIA, "NVIDIA H100 SXM", uuid="GPU-1", index=0)
    windows = []
    for i, (minute, durations) in enumerate(((10, [1000]), (50, [3000, 4000]), (150, [5000]))):
        total = sum(durations)
        kernel = KernelStat(
            gemm, 0, len(durations), total, min(durations), max(durations), Histogram.from_values(durations),
            Bound.MEMORY, Evidence.SHAPES,
        )  # fmt: skip
        windows.append(
            Window(
                uid=f"{i:032x}", process=Process(Node("n1", "b"), 5, 1), start_unix_ns=NOON_NS + minute * 60 * 10**9,
                duration_ns=10_000, trigger=Trigger.PERIODIC, collector="kineto",
                devices=(DeviceWindow(device, 10_000, total),), kernels=(kernel,),
                ledger=Ledger(1, 1, total, has_host_events=True),
            )
        )  # fmt: skip
    url = f"sqlite:///{tmp_path / 'w.db'}"
    opened = database.open(url)
    writer = Writer(opened)
    segment = codec.seal(codec.segment(windows), "a", "b", 1)
    assert writer.submit(Unpacker().unpack(segment)).result(30).reason == ""
    writer.close()
    opened.close()
    return url


def test_whole_stretches(roofwatch: Roofwatch, db: str) -> None:
    """What --since and --until cut is taken whole: 12:30 to 14:05 by the hour is 12:00 to 15:00 UTC."""
    at = ("--since", "2027-01-15T12:30+00:00", "--until", "2027-01-15T14:05+00:00")
    done = roofwatch("top", "--db", db, "--every", "1h", *at, "--format", "json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["query"]["name"] == "top"
    assert (found["query"]["by"], found["query"]["every_ns"]) == ("kernel", HOUR_NS)
    assert (found["query"]["since_unix_ns"], found["query"]["until_unix_ns"]) == (NOON_NS, NOON_NS + 3 * HOUR_NS)
    assert [(row["start_unix_ns"], row["calls"], row["total_ns"]) for row in found["rows"]] == [
        (NOON_NS, 3, 8000), (NOON_NS + 2 * HOUR_NS, 1, 5000),
    ]  # fmt: skip
    assert found["coverage"]["sources"] == {"hourly": 2, "raw": 1}  # the process left the first hour
    done = roofwatch("top", "--db", db, "--every", "1h", *at, "--format", "csv")
    rows = list(csv.DictReader(io.StringIO(done.stdout)))
    assert tuple(rows[0]) == GROUP_KEYS
    assert [(row["start_unix_ns"], row["calls"], row["bounds"]) for row in rows] == [
        (str(NOON_NS), "3", '{"memory":1.0}'), (str(NOON_NS + 2 * HOUR_NS), "1", '{"memory":1.0}'),
    ]  # fmt: skip
    done = roofwatch("top", "--db", db, "--by", "device", "--since", "all")
    assert "n1:0" in done.stdout
    assert "n1:0:" not in done.stdout


def test_how_it_ends(roofwatch: Roofwatch, db: str) -> None:
    """Nothing matches: 4; a length that is none, a key that is none: 2; too many stretches: 2 and what to do."""
    done = roofwatch("top", "--db", db, "--by", "op", "--vendor", "amd", "--since", "all")
    assert done.returncode == 4
    assert f"'roofwatch nodes --db {db}' and 'roofwatch processes --since all --db {db}'." in done.stderr
    for words in (("--every", "0.5s"), ("--by", "colour")):
        done = roofwatch("top", "--db", db, *words)
        assert (done.returncode, done.stdout) == (2, "")
        assert words[1] in done.stderr
    ends = ("--since", "1677-09-22", "--until", "2262-04-11")
    done = roofwatch("top", "--db", db, "--every", "5000d", *ends, "--format", "csv")
    assert (done.returncode, len(done.stdout.splitlines())) == (0, 2), done.stderr
    done = roofwatch("top", "--db", db, "--every", "2s", "--since", "all")
    assert done.returncode == 2
    assert "4,201 stretches of 2 s" in done.stderr
    assert "(--every 5s or more)" in done.stderr
    assert roofwatch("top", "--db", db, "--every", "5s", "--since", "all").returncode == 0


@pytest.mark.parametrize(
    ("last_s", "size_s", "said"),
    [
        (8826 * 3600, 3600, "8,827 stretches of 1 h"),
        (8826 * 3600, 3600, "(--every 5h or more)"),  # 8,826 h / 2,000 = 4.4 h
        (2000, 1, "(--every 2s or more)"),  # 2,001 of 1 s
        (1999, 1, ""),
        (86_400 * 9000, 5400, "144,001 stretches of 90 m"),
        (86_400 * 9000, 5400, "(--every 5d or more)"),
    ],
)
def test_the_shortest_stretch_that_works(last_s: int, size_s: int, said: str) -> None:
    """By hand: a time of so many seconds from 0, and at most 2,000 stretches."""
    told = too_many(0, last_s, size_s)
    assert said in told
    assert bool(said) == bool(told)
