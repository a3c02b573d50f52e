"""``timeline`` and ``diagnose`` of windows made by hand, against figures worked out by hand."""

from __future__ import annotations

import dataclasses
import time
from typing import Any

import pytest
from store_builders import COPY, CPU, GEMM, H100, NORM, process_of, segment_of, stat, uid_of, window_of

from roofwatch.model.diagnosis_report import KERNEL_KEYS
from roofwatch.model.record import Bound, Cause, Cost, IdleCause, Padding, Window
from roofwatch.model.timeline import ROW_KEYS
from roofwatch.store.database import Database
from roofwatch.store.filter import Filter
from roofwatch.store.ingest import Writer
from roofwatch.store.queries import Queries
from roofwatch.store.unpack import Unpacker

SECOND = 1_000_000_000
START = 2_000_000_000 * SECOND


def answers(db: Database, writer: Writer, *windows: Window) -> Queries:
    """Store the windows and ask."""
    assert writer.submit(Unpacker().unpack(segment_of(list(windows), 1))).result(30).reason == ""
    return Queries(db)


def idle(cause: Cause, total: int, count: int = 1, longest: int | None = None, example: str | None = None) -> IdleCause:
    """A cause; its longest stretch is all of it by default."""
    return IdleCause(cause, total, count, longest or total, example)


def timed(name: str, busy: int, *causes: IdleCause, **more: Any) -> Window:
    """A window of 1000 ns with one kernel, GEMM."""
    return window_of(name, [stat(GEMM, [busy], roof_ns=busy / 2)], span_ns=1000, causes=causes, **more)


def test_a_timeline_weighs_windows_by_what_they_stand_for(db: Database, writer: Writer) -> None:
    """1000 ns standing for 4000 and 1000 for 1000: sync (600·4 + 100) of 5000 = 0.5, input 300 of 5000 = 0.06.

    Counts add up, the longest stretch keeps its example, the parts are the span.
    """
    long = timed("a", 400, idle(Cause.SYNC, 600, 6, 300, "in aten::item"), represents_ns=4000)
    short = timed(
        "b", 600, idle(Cause.SYNC, 100, 1, 100, "other"), idle(Cause.INPUT, 300, example="next"), represents_ns=1000
    )
    found = answers(db, writer, long, short).run("timeline", Filter())
    (row,) = found["rows"]  # one device: the same uuid
    assert tuple(row) == ROW_KEYS
    assert (row["device"], row["index"], row["windows"], row["node"]) == ("NVIDIA H100 80GB HBM3", 0, 2, "gpu-07")
    assert (row["span_ns"], row["busy_ns"], row["est_span_ns"], row["sync_ns"]) == (2000, 1000, 5000, 700)
    assert (row["sync_share"], row["input_share"]) == (pytest.approx(0.5), pytest.approx(0.06))
    assert row["causes"]["sync"] == {
        "total_ns": 700, "est_ns": 2500, "share": pytest.approx(0.5), "count": 7, "longest_ns": 300,
        "example": "in aten::item",
    }  # fmt: skip
    assert list(row["causes"]) == ["sync", "input"]
    assert {key: row[key] for key in found["summary"]} == found["summary"]


def test_rows_by_window_process_node_and_device(db: Database, writer: Writer) -> None:
    """Two processes of one node, on a GPU each, and a CPU of another node; the worst first, windows latest first."""
    other = dataclasses.replace(H100, uuid="GPU-9", index=1)
    windows = [
        timed("a", 900, idle(Cause.SYNC, 100), process=process_of(pid=1, model="m"), start_unix_ns=START, steps=2),
        timed("b", 200, idle(Cause.INPUT, 800), process=process_of(pid=2), device=other, start_unix_ns=START + 5),
        timed("c", 950, idle(Cause.HOST, 50), process=process_of("cpu-01", 3), device=CPU, start_unix_ns=START + 9),
        timed("d", 900, idle(Cause.SYNC, 100), process=process_of(pid=1, model="m"), start_unix_ns=START + 2, steps=3),
    ]
    ask = answers(db, writer, *windows).run
    by_window = ask("timeline_window", Filter(), 3)
    assert [row["window"] for row in by_window["rows"]] == [uid_of(name) for name in "cbd"]
    assert by_window["summary"]["span_ns"] == 4000  # the limit is of the rows
    assert [row["start_unix_ns"] for row in by_window["rows"]] == [START + 9, START + 5, START + 2]
    by_process = ask("timeline_process", Filter())["rows"]
    assert [(row["pid"], row["windows"], row["steps"], row["idle_ns"]) for row in by_process] == [
        (2, 1, None, 800), (1, 2, 5, 200), (3, 1, None, 50),
    ]  # fmt: skip
    assert by_process[1]["model"] == "m"
    by_node = ask("timeline_node", Filter())["rows"]
    assert [(row["node"], row["windows"], row["idle_ns"]) for row in by_node] == [
        ("gpu-07", 3, 1000),
        ("cpu-01", 1, 50),
    ]
    by_device = ask("timeline", Filter())["rows"]
    assert [(row["device"], row["index"], row["windows"]) for row in by_device] == [
        ("NVIDIA H100 80GB HBM3", 1, 1), ("NVIDIA H100 80GB HBM3", 0, 2), ("Some CPU", None, 1),
    ]  # fmt: skip
    assert len(ask("timeline", Filter(node="gpu-07"), 1)["rows"]) == 1


def test_gpus_without_a_uuid_are_told_apart_by_process(db: Database, writer: Writer) -> None:
    """Eight ranks may all say device 0; a node's CPU is one for all its processes."""
    bare = dataclasses.replace(H100, uuid=None)
    windows = [
        timed("a", 1, process=process_of(pid=1), device=bare), timed("b", 1, process=process_of(pid=2), device=bare),
        timed("c", 1, process=process_of(pid=3), device=CPU), timed("d", 1, process=process_of(pid=4), device=CPU),
    ]  # fmt: skip
    rows = answers(db, writer, *windows).run("timeline", Filter())["rows"]
    assert sorted((row["device"], row["windows"]) for row in rows) == [
        ("NVIDIA H100 80GB HBM3", 1), ("NVIDIA H100 80GB HBM3", 1), ("Some CPU", 2),
    ]  # fmt: skip


def test_nothing_stored_has_no_verdict(db: Database, writer: Writer) -> None:
    """No window: no rows, a span of 0, shares unknown, nothing first."""
    ask = answers(db, writer).run
    found = ask("timeline", Filter())
    assert (found["rows"], found["summary"]["span_ns"], found["summary"]["sync_share"]) == ([], 0, None)
    assert ask("timeline_window", Filter(), 5)["rows"] == []
    assert ask("diagnose", Filter(), 5)["verdict"]["first_cause"] is None


def test_a_diagnosis_over_windows(db: Database, writer: Writer) -> None:
    """Three windows of 1000 ns and 2 steps each, of one process: GEMM 8 calls, 400 ns, half its roof; NORM, no roof.

    Per window: busy 400 + 100 + 50 (a copy beside nothing), idle 450 in launches. Kernels (550 − 50)/1000 = 0.5,
    system 0.5, which is not more; the launches' 0.45 are more than 0.2 + 0.1 that kernels might win. GEMM's calls are
    4 a step, so 40 launches are passed over. The process is one: it is looked at by its pid.
    """
    gemm = stat(GEMM, [50] * 8, roof_ns=25.0, ridge=295.0)
    copy = stat(COPY, [50], bound=Bound.COPY)
    windows = []
    for i in range(3):
        made = window_of(
            f"w{i}", [gemm, stat(NORM, [50, 50], bound=Bound.UNKNOWN), copy], span_ns=1000, steps=2,
            causes=(idle(Cause.LAUNCH_BOUND, 450, 9, 100, "in aten::linear"),), process=process_of(pid=77),
        )  # fmt: skip
        device = dataclasses.replace(made.devices[0], exposed_copy_ns=50)
        windows.append(dataclasses.replace(made, devices=(device,), first_step=100 * i))
    found = answers(db, writer, *windows).run("diagnose", Filter(), 5)
    told = found["verdict"]
    assert (told["first_cause"], told["stop_kernels"]) == ("launch_bound", False)
    assert (told["kernels_share"], told["winnable_share"]) == (pytest.approx(0.5), pytest.approx(0.2))
    assert told["unknown_roof_share"] == pytest.approx(0.1)
    assert [(c["cause"], c["share"], c["count"]) for c in found["causes"]] == [
        ("launch_bound", pytest.approx(0.45), 27), ("copy", pytest.approx(0.05), 0),
    ]  # fmt: skip
    (row,) = found["rows"]
    assert tuple(row) == KERNEL_KEYS
    assert (row["kernel"], row["calls"], row["winnable_ns"], row["cumulative_share"]) == (GEMM.kernel, 24, 600, 1.0)
    assert "--launch-skip 40 --launch-count 1" in row["command"]["command"]
    assert [r["kernel"] for r in found["unjudged"]["rows"]] == [NORM.kernel]
    assert any("--pid 77" in one["command"] for one in found["commands"])
    # The first window began at step 0; the store does not know of stacks, and nothing else is wrong.
    assert [(w["mistake"], w["early"], w["windows"]) for w in found["warnings"]] == [("early_windows", 1, 3)]


def test_a_rank_that_a_few_slow_calls_made_is_told(db: Database, writer: Writer) -> None:
    """98 calls of 30 and 2 of 5000 ns, roof 25: 2 x 4970 of 12,940 - 2500 winnable, 95 %; the other row's all differ.

    Its ten calls of 900 and ten of 1100 lie 90 % above their roof, and none is slow for it.
    """
    made = window_of("a", [
        stat(GEMM, [30] * 98 + [5000] * 2, roof_ns=25.0), stat(NORM, [900] * 10 + [1100] * 10, roof_ns=100.0),
    ], span_ns=100_000)  # fmt: skip
    found = answers(db, writer, made).run("diagnose", Filter(), 5)
    assert [(row["kernel"], row["slow_share"]) for row in found["rows"]] == [
        (NORM.kernel, 0.0), (GEMM.kernel, pytest.approx(9940 / 10_440, rel=0.02)),
    ]  # fmt: skip
    (told,) = [w for w in found["warnings"] if w["mistake"] == "slow_calls"]
    assert (told["rank"], told["kernel"], told["median_ns"], told["longest_ns"]) == (2, GEMM.kernel, 30, 5000)
    assert told["share"] == found["rows"][1]["slow_share"]


def test_a_cpu_full_of_dispatch_is_no_kernel_problem(db: Database, writer: Writer) -> None:
    """Of 1000 ns a view takes 600 (dispatch), a product at its half 200, Python 200; one row, the product."""
    made = window_of(
        "a",
        [stat(NORM, [600], bound=Bound.HOST, roof_ns=0.0), stat(GEMM, [200], roof_ns=100.0)],
        span_ns=1000, device=CPU, causes=(idle(Cause.HOST, 200),),
    )  # fmt: skip
    found = answers(db, writer, made).run("diagnose", Filter(), 5)
    told = found["verdict"]
    assert (told["first_cause"], told["share"], told["stop_kernels"]) == ("dispatch", pytest.approx(0.6), True)
    assert [row["kernel"] for row in found["rows"]] == [GEMM.kernel]
    assert found["commands"][-1]["tool"] == "perf"


def test_padding_and_cost_are_told(db: Database, writer: Writer) -> None:
    """30 of 100 tokens are padding; windows cost 50 of 1000 ns that they stand for."""
    cost = Cost("native", 1, 1, 1, 1, 1, base_step_ns=10, longest_step_ns=20, lost_in_ns=50, lost_after_ns=0)
    made = timed("a", 1000, represents_ns=1000, cost=cost)
    padded = dataclasses.replace(made, padding=Padding(4, 70, 100, 49, 100), steps=10)
    found = answers(db, writer, padded).run("diagnose", Filter(), 5)["warnings"]
    assert {w["mistake"]: w["share"] for w in found} == {"padding": pytest.approx(0.3), "overhead": pytest.approx(0.05)}
    (told,) = [w for w in found if w["mistake"] == "overhead"]
    assert (told["measured"], told["windows"]) == (1, 1)


def test_several_processes_have_no_pid(db: Database, writer: Writer) -> None:
    """The host's profile is then of a new process, not of one of them."""
    windows = [timed(str(i), 100, idle(Cause.HOST, 900), process=process_of(pid=i + 1)) for i in range(2)]
    ask = answers(db, writer, *windows).run
    (host,) = [c for c in ask("diagnose", Filter(), 5)["commands"] if c["what"] == "host"]
    assert host["arguments"][-2:] == ["--", "CMD"]
    (host,) = [c for c in ask("diagnose", Filter(process="2"), 5)["commands"] if c["what"] == "host"]
    assert host["arguments"][-2:] == ["--pid", "2"]


def test_a_process_long_silent_has_no_pid(db: Database, writer: Writer) -> None:
    """A window of an hour ago: the process may be gone and its pid another's; one of a minute ago is attached to."""
    windows = [
        timed(str(i), 100, idle(Cause.HOST, 900), process=process_of(pid=i + 1), start_unix_ns=time.time_ns() - ago_ns)
        for i, ago_ns in enumerate((3600 * SECOND, 60 * SECOND))
    ]
    found = answers(db, writer, *windows)
    told = {pid: found.run("diagnose", Filter(process=str(pid)), 5)["commands"] for pid in (1, 2)}
    assert not any("--pid" in one["command"] for one in told[1])
    assert any("--pid 2" in one["command"] for one in told[2])
