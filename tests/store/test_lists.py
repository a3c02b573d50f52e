"""``nodes``, ``processes`` and ``windows``, against values worked out by hand."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from store_builders import CPU, GEMM, H100, NORM, process_of, segment_of, stat, uid_of, window_of

from roofwatch.model.record import BudgetState, Cost, Ledger, ProcessState, Window
from roofwatch.proto import codec
from roofwatch.store import retention
from roofwatch.store.config import Keep
from roofwatch.store.database import Database
from roofwatch.store.filter import Filter
from roofwatch.store.ingest import Writer
from roofwatch.store.load import Loader
from roofwatch.store.queries import Queries
from roofwatch.store.queries.process_list import BUDGET
from roofwatch.store.unpack import Unpacker

SECOND = 1_000_000_000
DAY = 86_400 * SECOND
START = 2_000_000_000 * SECOND


def answers(db: Database, writer: Writer, *windows: Window) -> Queries:
    """Store the windows and ask."""
    assert writer.submit(Unpacker().unpack(segment_of(list(windows), 1))).result(30).reason == ""
    return Queries(db)


def column(found: dict[str, Any], key: str) -> list[Any]:
    """One key of all rows."""
    return [row[key] for row in found["rows"]]


def test_nodes(db: Database, writer: Writer) -> None:
    """Two processes share a CPU, two GPUs are told apart by uuid, boots are one node; drops are the agent's.

    Busy, weighted: gpu-07 (500 × 10 + 100 × 1) of (1000 × 10 + 1000 × 1) = 5100 / 11000.
    """
    other_boot = process_of(pid=3, versions={"torch": "2.12"})
    other_boot = dataclasses.replace(other_boot, node=dataclasses.replace(other_boot.node, boot_id="boot-2"))
    windows = [
        window_of("a", [stat(GEMM, [500])], span_ns=1000, represents_ns=10_000,
                  process=process_of(pid=1, versions={"torch": "2.13", "cuda": "13"})),
        window_of("b", [stat(GEMM, [100])], span_ns=1000, represents_ns=1000, process=other_boot,
                  device=dataclasses.replace(H100, uuid="GPU-9"), start_unix_ns=START + 5),
        window_of("c", [stat(NORM, [10])], span_ns=1000, process=process_of("cpu-01", 1), device=CPU),
        window_of("d", [stat(NORM, [10])], span_ns=1000, process=process_of("cpu-01", 2), device=CPU),
    ]  # fmt: skip
    unpacked = Unpacker().unpack(codec.seal(codec.segment(windows, {"spool_full": 2}), "agent-a", "boot-a", 1))
    writer.submit(unpacked).result(30)
    found = Queries(db).run("nodes", Filter())
    first, second = found["rows"]
    assert first == {
        "node": "gpu-07",
        "last_seen_unix_ns": START + 5 + 1000,
        "processes": 2,
        "devices": 2,
        "device": "NVIDIA H100 80GB HBM3",
        "windows": 2,
        "device_time_ns": 600,
        "busy_share": pytest.approx(5100 / 11_000),
        "mfu": None,
        "mfu_known_share": None,
        "versions": {"cuda": ["13"], "torch": ["2.12", "2.13"]},
        "agent_drops": {},  # this agent never said on which node it is
    }
    assert (second["node"], second["processes"], second["devices"], second["busy_share"]) == ("cpu-01", 2, 1, 0.01)
    assert Queries(db).run("nodes", Filter(), 1)["rows"] == [first]


def test_devices_without_an_identity_are_not_counted(db: Database, writer: Writer) -> None:
    """Two imported traces of one GPU each may be of the same one: unknown for the node, one for each process."""
    nameless = dataclasses.replace(H100, uuid=None)
    windows = [window_of(str(pid), [stat(GEMM, [5])], process=process_of(pid=pid), device=nameless) for pid in (1, 2)]
    queries = answers(db, writer, *windows)
    assert column(queries.run("nodes", Filter()), "devices") == [None]
    assert column(queries.run("processes", Filter()), "devices") == [1, 1]
    assert column(queries.run("nodes", Filter(process="1")), "devices") == [1]


def test_processes(db: Database, writer: Writer) -> None:
    """Steps, cost and labels of a process; what no window tells is null. The last seen comes first."""
    trainer = process_of(
        pid=1, user="ada", job="slurm:7", rank=3, world_size=8, model="llama", labels={"git": "abc"},
        versions={"torch": "2.13"}, container="c1",
    )  # fmt: skip
    cost = Cost("plain", 1, 2, 3, 4, 5, lost_in_ns=40)
    windows = [
        window_of("a", [stat(GEMM, [500])], process=trainer, steps=12, span_ns=1000, represents_ns=10_000, cost=cost),
        window_of("b", [stat(GEMM, [300])], process=trainer, span_ns=1000, represents_ns=10_000),
        window_of("c", [stat(GEMM, [10])], process=process_of(pid=2), start_unix_ns=START + 50),
    ]
    found = answers(db, writer, *windows).run("processes", Filter())
    assert column(found, "pid") == [2, 1]
    row = found["rows"][1]
    assert row == {
        "process": f"{trainer.id:016x}",
        "node": "gpu-07",
        "pid": 1,
        "model": "llama",
        "user": "ada",
        "job": "slurm:7",
        "container": "c1",
        "rank": 3,
        "world_size": 8,
        "device": "NVIDIA H100 80GB HBM3",
        "devices": 1,
        "windows": 2,
        "last_window_unix_ns": START + 1000,
        "steps": 12,
        "device_time_ns": 800,
        "busy_share": pytest.approx(0.4),
        "mfu": None,
        "mfu_known_share": None,
        "lost_ns": 40,
        "lost_noise_ns": None,
        "represented_ns": 10_000,
        "lost_share": pytest.approx(0.004),
        "versions": {"torch": "2.13"},
        "labels": {"git": "abc"},
        "start_unix_ns": SECOND,
        "local_rank": None,
        **dict.fromkeys(("pod", "namespace", "pod_uid", *BUDGET, "skipped", "registered_unix_ns", "told_unix_ns")),
        "resource": {
            "container.id": "c1", "host.name": "gpu-07", "process.creation.time": "1970-01-01T00:00:01.000Z",
            "process.owner": "ada", "process.pid": 1, "service.name": "llama",
        },
    }  # fmt: skip
    assert (found["rows"][0]["steps"], found["rows"][0]["lost_share"], found["rows"][0]["model"]) == (None,) * 3


def told(account: BudgetState, pid: int, unix_ns: int, **skipped: int) -> ProcessState:
    """How a process of gpu-07 stands."""
    return ProcessState(process_of(pid=pid, model="llama"), unix_ns, START - 7, account, skipped)


def test_a_clock_that_was_ahead_hides_nothing(db: Database) -> None:
    """What an agent told a year ahead yields to what it tells once its clock is right, and to nothing older before."""
    year, now = 365 * 86_400 * SECOND, START
    loader = Loader(now_ns=lambda: now)

    def tell(sequence: int, unix_ns: int, **skipped: int) -> tuple[int, dict[str, int]]:
        message = codec.segment([], {}, [told(BudgetState("schedule"), 1, unix_ns, **skipped)])
        with db.write() as connection:
            loader.load(connection, [Unpacker().unpack(codec.seal(message, "agent-a", "boot-a", sequence))])
        loader.commit()
        [row] = Queries(db).run("processes", Filter())["rows"]
        return row["told_unix_ns"], row["skipped"]

    assert tell(1, START + year, budget=1) == (START + year, {"budget": 1})
    assert tell(2, START + year - 9, budget=2) == (START + year, {"budget": 1})  # it is older, and as wrong
    assert tell(3, START + 5, budget=3) == (START + 5, {"budget": 3})
    assert tell(4, START + 4, budget=4) == (START + 5, {"budget": 3})


def test_budget_and_spend_of_processes_and_windows(db: Database, writer: Writer) -> None:
    """What an agent tells stands in both; the newest of a process, whatever came last; an older agent tells nothing.

    Of three processes one took no window: it is there with what was skipped, where no devices are asked for.
    """
    paid = BudgetState("budget", 0.005, 0.01, 0.004, -120, 900, True, 70 * SECOND, 8000)
    rests = dataclasses.replace(paid, reason="residue", charged_ns=None, measured=None, interval_ns=3600 * SECOND)
    window = dataclasses.replace(window_of("a", [stat(GEMM, [500])], process=process_of(pid=1)), budget=paid)
    old = window_of("b", [stat(GEMM, [10])], process=process_of(pid=2), start_unix_ns=START + 50)
    states = [told(rests, 1, START + 90, budget=2, no_steps=1), told(paid, 1, START + 80),
              told(BudgetState("cold_start", 0.005, 0.01), 3, START + 9 * SECOND, own_profiler=4)]  # fmt: skip
    for sequence, message in enumerate((codec.segment([window, old], {}, states),
                                        codec.segment([], {}, [told(paid, 1, START + 70)])), 1):  # fmt: skip
        unpacked = Unpacker().unpack(codec.seal(message, "agent-a", "boot-a", sequence))
        assert writer.submit(unpacked).result(30).reason == ""
    rows = {row["pid"]: row for row in Queries(db).run("processes", Filter())["rows"]}
    assert {key: rows[1][key] for key in BUDGET} == {
        "interval_reason": "residue", "budget_share": 0.005, "hard_stop_share": 0.01, "spent_share": 0.004,
        "balance_ns": -120, "charged_ns": None, "charge_measured": None, "interval_ns": 3600 * SECOND,
        "event_cap": 8000,
    }  # fmt: skip
    assert (rows[1]["skipped"], rows[1]["windows"]) == ({"budget": 2, "no_steps": 1}, 1)
    assert (rows[1]["told_unix_ns"], rows[1]["registered_unix_ns"]) == (START + 90, START - 7)
    assert {rows[2][key] for key in (*BUDGET, "skipped")} == {None}
    waiting = rows[3]
    assert (waiting["windows"], waiting["skipped"], waiting["interval_reason"]) == (
        0,
        {"own_profiler": 4},
        "cold_start",
    )
    assert (waiting["last_window_unix_ns"], waiting["devices"], waiting["busy_share"], waiting["steps"]) == (None,) * 4
    assert list(rows) == [3, 2, 1]
    first, second = Queries(db).run("windows", Filter())["rows"]
    assert {first[key] for key in BUDGET} == {None}
    assert [second[key] for key in BUDGET] == ["budget", 0.005, 0.01, 0.004, -120, 900, True, 70 * SECOND, 8000]
    for scope, pids in (
        (Filter(model="llama"), [3, 1]),
        (Filter(device="h100"), [2, 1]),
        (Filter(until_unix_ns=START + SECOND), [2, 1]),
        (Filter(since_unix_ns=START + 8 * SECOND), [3]),
        (Filter(node="other"), []),
    ):
        assert column(Queries(db).run("processes", scope), "pid") == pids, scope
    assert column(Queries(db).run("processes", Filter(), 2), "pid") == [3, 2]


def test_a_process_is_one_row_whatever_is_kept_of_it(db: Database, writer: Writer) -> None:
    """Of the first a day's sums are left; the second took its window before the time, in the same hour, and stands by.

    The third's window may be in the part of an hour that nothing tells of any more: it is not said to have none.
    """
    account, late, gone = BudgetState("budget"), START + 59 * DAY, START + 50 * DAY
    kernels, half = [stat(GEMM, [500])], 600 * SECOND
    windows, states = [], []
    for pid, at in ((1, START), (2, late), (3, gone)):
        process = process_of(pid=pid, model="llama")
        windows.append(window_of(str(pid), kernels, process=process, start_unix_ns=at))
        states.append(told(account, pid, at + 1200 * SECOND))
    unpacked = Unpacker().unpack(codec.seal(codec.segment(windows, {}, states), "agent-a", "boot-a", 1))
    assert writer.submit(unpacked).result(30).reason == ""
    retention.prune_all(db, START + 60 * DAY, Keep())
    day = START // DAY * DAY
    for scope, rows in (
        (Filter(), [(2, 1), (3, 1), (1, 1)]),
        (Filter(since_unix_ns=day, until_unix_ns=day + DAY), [(1, 1)]),
        (Filter(since_unix_ns=late - half), [(2, 1)]),
        (Filter(since_unix_ns=late + half), [(2, 0)]),
        (Filter(since_unix_ns=gone - half, until_unix_ns=gone + DAY), []),
    ):
        found = Queries(db).run("processes", scope)
        assert list(zip(column(found, "pid"), column(found, "windows"), strict=True)) == rows, scope
    retention.prune_all(db, START + 500 * DAY, Keep())
    assert Queries(db).run("processes", Filter())["rows"] == []  # and none that is said to have taken no window


def test_place_is_told_and_found(db: Database, writer: Writer) -> None:
    """Pod, container, job and rank are in the row, and in names of OpenTelemetry; each finds the process."""
    pod = {"k8s.pod.name": "train-0", "k8s.namespace.name": "ml", "k8s.pod.uid": "u-1", "process.vpid": "7",
           "service.name": "trainer", "team": "a"}  # fmt: skip
    in_pod = process_of(pid=1, container="c" * 64, model="llama", labels=pod, rank=1, local_rank=1, world_size=2)
    steps = [process_of(pid=2 + i, job=f"slurm:7{end}") for i, end in enumerate((".0", ".batch", "", "0.0"))]
    windows = [window_of(str(p.pid), [stat(GEMM, [5])], process=p) for p in (in_pod, *steps)]
    queries = answers(db, writer, *windows)
    row = next(row for row in queries.run("processes", Filter())["rows"] if row["pid"] == 1)
    assert (row["pod"], row["namespace"], row["pod_uid"], row["local_rank"]) == ("train-0", "ml", "u-1", 1)
    assert row["resource"] == {
        "container.id": "c" * 64, "host.name": "gpu-07", "k8s.namespace.name": "ml", "k8s.pod.name": "train-0",
        "k8s.pod.uid": "u-1", "process.creation.time": "1970-01-01T00:00:01.000Z", "process.pid": 1,
        "process.vpid": 7, "service.name": "trainer",
    }  # fmt: skip
    for scope, pids in (
        (Filter(labels={"k8s.pod.name": "train-0", "container.id": "c" * 64, "host.name": "gpu-07"}), [1]),
        (Filter(labels={"container.id": "d" * 64}), []),
        (Filter(job="slurm:7"), [2, 3, 4]),
        (Filter(job="slurm:7.0"), [2]),
        (Filter(job="slurm:70"), [5]),
    ):
        for query in ("processes", "windows"):
            assert sorted(column(queries.run(query, scope), "pid")) == pids, (query, scope)


def test_what_windows_cost_is_told_with_what_it_varies_by(db: Database, writer: Writer) -> None:
    """Lost 500, -30, -40 and 90 ns: below zero √((900 + 1600) ÷ 2) = 35.36; over four windows 70.7. One has no noise.

    Nine steps tell no share of the cost, ten do.
    """
    lost = [500, -30, -40, 90]
    first = [
        window_of(f"a{i}", [], process=process_of(pid=1), steps=3 if i < 3 else 1, represents_ns=1000,
                  start_unix_ns=START + i, cost=Cost("plain", 1, 2, 3, 4, 5, lost_in_ns=ns))
        for i, ns in enumerate(lost)
    ]  # fmt: skip
    cost = Cost("plain", 1, 2, 3, 4, 5, lost_in_ns=-7)
    other = window_of("b", [], process=process_of(pid=2), steps=9, represents_ns=1000, cost=cost)
    found = answers(db, writer, *first, other)
    told = {row["uid"]: row["lost_noise_ns"] for row in found.run("windows", Filter())["rows"]}
    assert told == {**{uid_of(f"a{i}"): 35 for i in range(4)}, uid_of("b"): None}
    rows = {row["pid"]: row for row in found.run("processes", Filter())["rows"]}
    assert (rows[1]["lost_noise_ns"], rows[1]["lost_share"]) == (71, pytest.approx(520 / 4000))
    assert (rows[2]["lost_noise_ns"], rows[2]["lost_share"], rows[2]["lost_ns"]) == (None, None, -7)
    for process, told in (("1", (71, 10)), ("2", (None, 9)), (None, (71, 19))):
        cost = found.run("top", Filter(process=process))["cost"]
        assert (cost["noise_ns"], cost["steps"]) == told, process


def test_windows(db: Database, writer: Writer) -> None:
    """The latest first, with busy, shares, cost and drops; a window without host events has no linked share."""
    cost = Cost("native", 1, 2, 3, 4, 5, 600, 700, 80, -9, 10)
    first = window_of("a", [stat(GEMM, [500])], steps=4, represents_ns=10_000, cost=cost, dropped={"unfinished": 3})
    ledger = Ledger(events_read=9, device_records=1, device_time_ns=10, has_host_events=False)
    second = dataclasses.replace(window_of("b", [stat(NORM, [10])], start_unix_ns=START + 50), ledger=ledger)
    found = answers(db, writer, first, second).run("windows", Filter())
    assert column(found, "uid") == [uid_of("b"), uid_of("a")]
    assert column(found, "linked_share") == [None, 1.0]
    assert column(found, "classified_share") == [None, 1.0]
    row = found["rows"][1]
    assert row["dropped"] == {"unfinished": 3}
    expected = {
        "close_path": "native", "open_ns": 1, "quiesce_ns": 2, "close_ns": 3, "save_ns": 4, "free_ns": 5,
        "base_step_ns": 600, "longest_step_ns": 700, "lost_in_ns": 80, "lost_after_ns": -9, "lost_ns": 71,
        "parse_cpu_ns": 10, "steps": 4, "represents_ns": 10_000, "duration_ns": 1_000_000, "busy_ns": 500,
        "span_ns": 1_000_000, "device_records": 1, "trigger": "periodic", "collector": "kineto", "pid": 100,
        "node": "gpu-07", "device": "NVIDIA H100 80GB HBM3", "start_unix_ns": START, "events_read": 100,
        "shapes_recorded": False, "process": f"{process_of().id:016x}",
    }  # fmt: skip
    assert {key: row[key] for key in expected} == expected
    assert column(Queries(db).run("windows", Filter(), 1), "uid") == [uid_of("b")]
