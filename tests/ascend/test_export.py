"""``roofwatch export --format insight``: what MindStudio Insight's importer asks for, and what was read."""

from __future__ import annotations

import csv
import errno
import gzip
import io
import json
import os
import re
import shutil
import signal
import subprocess
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from ascend_tables import LEVEL1, table

from roofwatch.cli import insight_files
from roofwatch.collectors.base import RawProfile, WindowContext
from roofwatch.collectors.pipeline import window_of
from roofwatch.collectors.registry import read_path
from roofwatch.model import insight
from roofwatch.model.errors import RoofwatchError
from roofwatch.model.insight import Summed
from roofwatch.model.kinds import Kind
from roofwatch.model.record import Collective, Node, Process, Signature, Trigger, Window

ALEX, QWEN, OLD = "pytorch_alexnet_910B_ddp2", "qwen3_0.6b_910B_tp1pp2dp2_level2", "old_versions"
# Insight's own patterns and columns (its public source: CommonDefs.h, KernelParse.h), written down here by hand.
DATABASE = re.compile(r"(msprof_[0-9]{1,16}|ascend_pytorch_profiler(_[0-9]{1,16}){0,1})\.db$")
NEEDED = {"Name", "Type", "Accelerator Core", "Start Time(us)", "Duration(us)", "Wait Time(us)"}
SIX = {"Input Shapes", "Input Data Types", "Input Formats", "Output Shapes", "Output Data Types", "Output Formats"}


def kernels(profile: RawProfile) -> Counter[tuple[str, str, int]]:
    """Calls and time of each kernel and its shapes."""
    return Counter({
        (g.kernel, g.shapes or "", i): n
        for g in profile.groups for i, n in ((0, g.calls), (1, g.total_ns), (2, g.min_ns), (3, g.max_ns))
    })  # fmt: skip


def cells(path: Path) -> list[list[str]]:
    """The rows of a table."""
    return list(csv.reader(io.StringIO(path.read_text("utf-8"), newline="")))


def checked(root: Path) -> None:
    """What Insight asks of a folder: a database by its name, or a view with a table beside it."""
    output = root / "ASCEND_PROFILER_OUTPUT"
    databases = [path for path in output.iterdir() if DATABASE.fullmatch(path.name)]
    views = [path for path in output.iterdir() if path.name == "trace_view.json"]
    assert databases or views
    assert root.name.endswith("_ascend_pt")
    for path in views:
        events = json.loads(path.read_text())
        assert isinstance(events, list)
        named = {event["pid"] for event in events if event["ph"] == "M" and event["name"] == "process_name"}
        slices = [event for event in events if event["ph"] == "X"]
        assert slices
        assert {event["pid"] for event in slices} <= named
        assert all({"name", "ts", "dur", "tid"} <= event.keys() for event in slices)
    for path in output.glob("kernel_details.csv"):
        head, *rows = cells(path)
        assert set(head) >= NEEDED
        assert {"Block Num", "Block Dim"} & set(head)
        assert len(set(head)) == len(head) <= 100
        assert not SIX & set(head) or set(head) >= SIX
        assert {len(row) for row in rows} == {len(head)}


@pytest.mark.parametrize(
    ("place", "files"),
    [
        (f"{ALEX}/db/level1/rank1_ascend_pt", {"ascend_pytorch_profiler_1.db", "analysis.db", "profiler_info_1.json"}),
        (f"{ALEX}/text/level2/rank0_ascend_pt", {"kernel_details.csv", "trace_view.json", "profiler_info_0.json"}),
        (f"{QWEN}/rank_2_ascend_pt", {"kernel_details.csv", "trace_view.json", "profiler_info_2.json", "analysis.db"}),
        (f"{OLD}/op_summary_2023_old.csv", {"kernel_details.csv", "trace_view.json"}),
        (f"{OLD}/msprof_0_fulldb.db", {"msprof_0_fulldb.db"}),
    ],
)
def test_real_captures(traces: Path, tmp_path: Path, place: str, files: set[str]) -> None:
    """The same kernels with the same times come back from what was written; the source is as it was."""
    source = traces / "ascend" / place
    before = {path: path.stat().st_mtime_ns for path in sorted(source.rglob("*"))}
    done = insight_files.of_capture(source, tmp_path / "out")
    names = {name.rpartition("/")[2] for name in done.files}
    if place.endswith("fulldb.db"):
        assert names == {"ascend_pytorch_profiler_0.db"}  # Insight knows no name with words in it
    else:
        assert names >= files
    checked(done.folder)
    told, again = read_path(source).profile, read_path(tmp_path / "out").profile
    assert kernels(again) == kernels(told)
    assert again.rank == told.rank
    assert {path: path.stat().st_mtime_ns for path in sorted(source.rglob("*"))} == before


def test_a_view_of_a_tables_rows(tmp_path: Path) -> None:
    """Begin and length of each row, exactly; collectives apart; a row without a time is left out."""
    rows = [
        {"Name": "aclnnMatmul_MatMulV3"},
        {
            "Name": "hcom_allReduce__1",
            "Type": "hcom_allReduce_",
            "Accelerator Core": "COMMUNICATION",
            "Stream ID": "N/A",
        },
        {"Name": "x", "Start Time(us)": "N/A"},
    ]
    path = tmp_path / "kernel_details.csv"
    path.write_bytes(gzip.compress(table(*rows)))
    done = insight_files.of_capture(path, tmp_path / "out")
    checked(done.folder)
    events = json.loads((done.folder / "ASCEND_PROFILER_OUTPUT/trace_view.json").read_text())
    names = {(e["name"], e["pid"], e["tid"]): e["args"].get("name") for e in events if e["ph"] == "M"}
    slices = [e for e in events if e["ph"] == "X"]
    assert [(e["name"], e["ts"], e["dur"]) for e in slices] == [
        ("aclnnMatmul_MatMulV3", "1736408883000000.000", 10.5),
        ("hcom_allReduce__1", "1736408883000000.000", 10.5),
    ]
    assert [names["process_name", e["pid"], 0] for e in slices] == ["Ascend Hardware", "Communication"]
    assert [names["thread_name", e["pid"], e["tid"]] for e in slices] == ["Stream 2", "Group"]
    assert done.notes == ("there was no trace view beside the table: one is made of its rows, without the host",)


def test_columns_that_insight_does_not_take(tmp_path: Path) -> None:
    """Old names become today's, what is required is there, twins and metrics with odd names are left out."""
    columns = "Op Name,OP Type,Start Time(us),Task Duration(us),aicore_time(us),aic_mac_ratio,x;y(%),aic_mac_ratio"
    text = columns + "\nmm,MatMul,1736408883000000,5,1,0.5,9,0.6\n"
    path = tmp_path / "summary.csv"
    path.write_text(text)
    done = insight_files.of_capture(path, tmp_path / "out")
    checked(done.folder)
    head, row = cells(done.folder / "ASCEND_PROFILER_OUTPUT/kernel_details.csv")
    assert dict(zip(head, row, strict=True)) == {
        "Name": "mm", "Type": "MatMul", "Start Time(us)": "1736408883000000", "Duration(us)": "5",
        "Accelerator Core": "N/A", "Wait Time(us)": "N/A", "Block Num": "N/A", "aicore_time(us)": "1",
        "aic_mac_ratio": "0.5",
    }  # fmt: skip


def test_a_write_ahead_log_comes_along(traces: Path, tmp_path: Path) -> None:
    """A database whose rows are still in its log."""
    source = next((traces / "ascend" / ALEX / "db/level0").rglob("ascend_pytorch_profiler_0.db"))
    copy = tmp_path / "ascend_pytorch_profiler_0.db"
    shutil.copyfile(source, copy)
    code = (
        "import os, sqlite3, sys; c = sqlite3.connect(sys.argv[1]); c.execute('pragma journal_mode=wal');"
        "c.execute('update TASK set endNs = endNs + 1'); c.commit(); os._exit(0)"
    )
    subprocess.run(["python3", "-c", code, str(copy)], check=True)
    done = insight_files.of_capture(copy, tmp_path / "out")
    assert {"ASCEND_PROFILER_OUTPUT/ascend_pytorch_profiler_0.db-wal"} < set(done.files)
    assert (
        kernels(read_path(tmp_path / "out").profile)
        == kernels(read_path(copy).profile)
        != kernels(read_path(source).profile)
    )


@pytest.mark.parametrize(
    ("place", "says"),
    [
        (f"{QWEN}/rank_1_ascend_pt", "holds collectives and no kernel"),
        ("../kineto/a100_triton_user_kernel.json.gz", "is no profile of an Ascend device"),
        ("nothing", "cannot be opened"),
    ],
)
def test_refused(traces: Path, tmp_path: Path, place: str, says: str) -> None:
    """One sentence, and nothing is left behind."""
    with pytest.raises(RoofwatchError, match=says):
        insight_files.of_capture(traces / "ascend" / place, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    """A folder with something in it is refused."""
    (tmp_path / "kernel_details.csv").write_bytes(table({}))
    with pytest.raises(RoofwatchError, match="is not empty: name a folder that is"):
        insight_files.of_capture(tmp_path / "kernel_details.csv", tmp_path)
    with pytest.raises(RoofwatchError, match="cannot be made"):
        insight_files.of_capture(tmp_path / "kernel_details.csv", tmp_path / "kernel_details.csv" / "x")


# -- windows -----------------------------------------------------------------------------------------------------------


def window(profile: RawProfile) -> Window:
    """The window of a profile."""
    context = WindowContext("0" * 32, Process(Node("n"), 1), Trigger.IMPORTED, peaks_files=("/nonexistent/x",))
    return window_of(profile, context)


def sums(found: Window) -> Counter[tuple[str, str, str, int | None, int]]:
    """Calls, time, and the shortest and longest call of each signature, collectives by name."""
    total: Counter[tuple[str, str, str, int | None, int]] = Counter()
    for k in found.kernels:
        s = k.signature
        shapes, dtypes = ("" if text in (None, "[]") else text for text in (s.shapes, s.dtypes))  # scalars have none
        key = (s.kernel, shapes, dtypes, None if s.kind is Kind.COMM else s.flops)
        total[*key, 0] += k.calls
        total[*key, 1] += k.total_ns
    return total


@pytest.mark.parametrize("place", [f"{ALEX}/db/level1/rank1_ascend_pt", f"{QWEN}/rank_0_ascend_pt"])
def test_a_window_comes_back(traces: Path, tmp_path: Path, place: str) -> None:
    """Records as a store holds them, written and read: kernels, shapes, dtypes, FLOPs, calls, times, collectives."""
    told = window(read_path(traces / "ascend" / place).profile)
    stats = [Summed(k.signature, k.device, k.calls, k.total_ns, k.min_ns, k.max_ns) for k in told.kernels]
    calls = insight.calls_of(told.start_unix_ns, stats, told.collectives, [d.device.index for d in told.devices])
    done = insight_files.of_window("window_0", calls, told.process.rank, tmp_path / "out")
    checked(done.folder)
    profile = read_path(tmp_path / "out").profile
    profile.devices[0].name = told.devices[0].device.model.partition(" or ")[0]  # what the files do not tell
    profile.devices[0].units, profile.devices[0].clock_hz = told.devices[0].device.units, None
    again = window(profile)
    assert sums(again) == sums(told)
    assert again.process.rank == told.process.rank
    assert [c.duration_ns for c in again.collectives] == [c.duration_ns for c in told.collectives]
    begun = [c.start_unix_ns - told.collectives[0].start_unix_ns for c in told.collectives]
    assert [c.start_unix_ns - again.collectives[0].start_unix_ns for c in again.collectives] == begun


@pytest.mark.parametrize(
    ("calls", "total", "low", "high", "lengths"),
    [
        (1, 70, 70, 70, [70]),
        (2, 70, 30, 40, [30, 40]),
        (3, 90, 10, 50, [50, 30, 10]),
        (5, 101, 10, 50, [50, 14, 14, 13, 10]),
    ],
)
def test_lengths_of_calls(calls: int, total: int, low: int, high: int, lengths: list[int]) -> None:
    """As many, as long in all, with the shortest and the longest."""
    assert insight.lengths_of(Summed(Signature("k", Kind.OTHER), 0, calls, total, low, high)) == lengths


def test_calls_are_laid_end_to_end() -> None:
    """On each device from the window's begin, what took most first; a listed collective where it was, none twice."""
    add = Signature("Add", Kind.ELEMENTWISE, unit="vector")
    product = Signature("MatMulV3", Kind.MATMUL, unit="matrix", shapes="[[2,3],[3,4]]", dtypes='["bf16","bf16"]',
                        arguments='{"outputs":[[[2,4]],["fp32"],["ND"]],"formats":["ND","FRACTAL_NZ"]}')  # fmt: skip
    reduce = Signature("hcom_allReduce_", Kind.COMM, arguments='{"collective":"all_reduce"}')
    stats = [Summed(add, 0, 1, 5, 5, 5), Summed(product, 0, 2, 20, 8, 12), Summed(add, 1, 1, 7, 7, 7),
             Summed(reduce, 0, 1, 9, 9, 9)]  # fmt: skip
    found = insight.calls_of(1000, stats, [Collective(0, "all_reduce", "dp", 1003, 9)], [4, 5])
    assert [(c.name, c.start_ns, c.duration_ns, c.device, c.core) for c in found] == [
        ("MatMulV3", 1000, 8, 4, "AI_CORE"), ("MatMulV3", 1008, 12, 4, "AI_CORE"),
        ("Add", 1000, 7, 5, "AI_VECTOR_CORE"), ("Add", 1020, 5, 4, "AI_VECTOR_CORE"),
        ("hcom_allReduce_", 1003, 9, 4, "COMMUNICATION"),
    ]  # fmt: skip
    assert found[0].shapes == ('"2,3;3,4"', "DT_BF16;DT_BF16", "ND;FRACTAL_NZ", '"2,4"', "FLOAT", "ND")
    assert found[2].shapes == ("N/A",) * 6
    assert [row[5:8] for row in insight.table(found)][1:3] == [("0.008", "0.000", "N/A"), ("0.007", "0.000", "N/A")]


def test_export_on_the_command_line(tmp_path: Path, roofwatch: Callable[..., Any]) -> None:
    """Says what to open; a capture that a test has no store for is a file."""
    (tmp_path / "k.csv").write_bytes(table({}, columns=LEVEL1))
    done = roofwatch("export", str(tmp_path / "k.csv"), "--format", "insight", "-o", str(tmp_path / "out"))
    assert done.returncode == 0
    assert (
        done.stdout.splitlines()[0]
        == f"{tmp_path / 'out' / 'k_ascend_pt'}: open it in MindStudio Insight (Import Data)"
    )
    again = roofwatch("export", str(tmp_path / "k.csv"), "--format", "insight", "-o", str(tmp_path / "out"))
    assert (again.returncode, again.stdout) == (1, "")
    assert "is not empty" in again.stderr


def test_a_window_of_the_store(traces: Path, tmp_path: Path, roofwatch: Callable[..., Any]) -> None:
    """By the first digits of its uid, as a diagnosis names it; the kernels and times of the file that was imported."""
    url = f"sqlite:///{tmp_path}/s.db"
    source = traces / "ascend" / ALEX / "db/level1/rank1_ascend_pt"
    assert roofwatch("import", str(source), "--db", url).returncode == 0
    told = json.loads(roofwatch("diagnose", "--db", url, "--since", "all", "--format", "json").stdout)
    (command,) = [one for one in told["commands"] if one["what"] == "window"]
    assert command["tool"] == "roofwatch"
    _, verb, uid, *rest = command["arguments"]
    assert (verb, rest) == ("export", ["--format", "insight", "--output", "insight", "--db", url])
    done = roofwatch(verb, uid, *rest)  # as it stands there
    assert done.returncode == 0
    assert "beginnings are not" in done.stderr
    (root,) = (tmp_path / "insight").iterdir()
    checked(root)
    before, after = (read_path(place).profile for place in (source, tmp_path / "insight"))
    summed = [Counter[str](), Counter[str]()]
    for profile, total in zip((before, after), summed, strict=True):
        for group in profile.groups:
            total[group.kernel] += group.total_ns
            total[f"{group.kernel} calls"] += group.calls
    assert summed[0] == summed[1]
    assert (after.rank, len(after.collectives)) == (1, 4)


@pytest.mark.parametrize(("uid", "says"), [("ffff", "there is no window 'ffff'"), ("0123", "there is no window")])
def test_no_such_window(tmp_path: Path, roofwatch: Callable[..., Any], uid: str, says: str) -> None:
    """One sentence, usage; nothing is written."""
    url = f"sqlite:///{tmp_path}/s.db"
    (tmp_path / "k.csv").write_bytes(table({}))
    assert roofwatch("import", str(tmp_path / "k.csv"), "--db", url).returncode == 0
    done = roofwatch("export", uid, "--format", "insight", "-o", str(tmp_path / "out"), "--db", url)
    assert done.returncode == 2
    assert says in done.stderr
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("ends", ["interrupted", "failed"])
@pytest.mark.parametrize("there", [False, True])
def test_half_a_folder_is_not_left(
    tmp_path: Path, roofwatch: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, ends: str, *, there: bool
) -> None:
    """Ctrl-C or a full disk in the middle of the second file: one sentence, and all is as it was before."""
    (tmp_path / "capture").mkdir()
    for name in ("kernel_details.csv", "step_trace_time.csv", "op_statistic.csv"):
        (tmp_path / "capture" / name).write_bytes(table({}, columns=LEVEL1))
    if there:
        (tmp_path / "out").mkdir()
    copy, copied = shutil.copyfile, []

    def half(source: Path, target: Path) -> Path:
        copied.append(copy(source, target))
        if len(copied) == 2:
            target.write_bytes(target.read_bytes()[:20])
            if ends == "failed":
                raise OSError(errno.ENOSPC, "No space left on device", str(target))
            os.kill(os.getpid(), signal.SIGINT)
        return target

    monkeypatch.setattr(insight_files.shutil, "copyfile", half)
    out = tmp_path / "out" if there else tmp_path / "new" / "out"
    before = sorted(tmp_path.rglob("*"))
    done = roofwatch("export", str(tmp_path / "capture"), "--format", "insight", "-o", str(out))
    assert len(copied) == 2
    assert (done.returncode, done.stdout) == (130 if ends == "interrupted" else 1, "")
    assert len(done.stderr.splitlines()) == 1
    assert ("interrupted: " if ends == "interrupted" else "No space left") in done.stderr
    assert sorted(tmp_path.rglob("*")) == before
