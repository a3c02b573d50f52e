"""Four ranks with known lateness, from their traces through reader, wire and tables to the answer."""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from store_builders import SQLITE_ALONE, process_of, segment_of, stat, uid_of, window_of

from roofwatch.collectors import pipeline
from roofwatch.collectors.base import WindowContext
from roofwatch.collectors.registry import read
from roofwatch.model.kinds import Kind
from roofwatch.model.record import Collective, Process, Signature, Trigger, Window
from roofwatch.proto.v1 import roofwatch_pb2 as pb
from roofwatch.store.database import Database
from roofwatch.store.filter import Filter
from roofwatch.store.ingest import Writer
from roofwatch.store.queries import Queries, peers
from roofwatch.store.unpack import Unpacker

MS = 1_000_000
START = 1_700_000_000_000_000_000
JOB = "slurm:7.0"
KERNEL = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevComm*)"
# When each rank arrives at three all_reduces, in ms after the first one there; moving takes 2 ms each time.
LATE = [(0, 0, 5, 0), (1, 0, 0, 0), (0, 0, 0, 0)]
MOVING = 2


def submit(writer: Writer, windows: Sequence[Window], sequence: int = 1) -> None:
    """Commit them."""
    outcome = writer.submit(Unpacker().unpack(segment_of(list(windows), sequence))).result(60)
    assert (outcome.status, outcome.reason) == (pb.STORED, "")


def trace_of(rank: int, *, numbered: bool) -> dict[str, Any]:
    """What Kineto writes on one rank: three calls, 100 ms apart, each kernel from its arrival to the common end."""
    events: list[dict[str, Any]] = []
    for i, arrivals in enumerate(LATE):
        arrived = 100_000 * i + 10_000 + 1000 * arrivals[rank]
        us = 1000 * (max(arrivals) + MOVING - arrivals[rank])
        told = {
            "Collective name": "allreduce", "In msg nelems": 1 << 18, "Out msg nelems": 1 << 18, "Group size": 4,
            "dtype": "Float", "Process Group Name": "0", "Process Group Ranks": "[0, 1, 2, 3]",
        } | ({"Seq": 50 + i} if numbered else {})  # fmt: skip
        common = {"ph": "X", "pid": 100, "tid": 100}
        events += [
            common | {"cat": "cpu_op", "name": "record_param_comms", "ts": arrived - 50, "dur": 30, "args": told},
            common | {"cat": "cuda_runtime", "name": "cudaLaunchKernelExC", "ts": arrived - 40, "dur": 5,
                      "args": {"correlation": i + 1}},
            {"ph": "X", "cat": "kernel", "name": KERNEL, "pid": 0, "tid": 7, "ts": arrived, "dur": us,
             "args": {"correlation": i + 1, "device": 0, "stream": 7}},
        ]  # fmt: skip
    return {"schemaVersion": 1, "baseTimeNanoseconds": START, "traceEvents": events}


def rank_window(
    folder: Path, rank: int, *, numbered: bool = True, step: int | None = 100, at: int = 0, **process: Any
) -> Window:
    """The window of a rank, read from its trace; each rank notes another begin, by its own clock."""
    about = {"host": f"gpu-0{rank // 2}", "pid": 1000 + rank, "job": JOB, "rank": rank, "world_size": 4} | process
    owner: Process = process_of(**about)
    path = folder / f"{about['host']}-{about['pid']}-{at}.json"
    text = json.dumps(trace_of(rank, numbered=numbered)).replace(str(START), str(START + at))
    path.write_text(text)
    begin = START + at - rank * 30_000
    context = WindowContext(
        uid_of(path.name), owner, Trigger.SYNCHRONIZED, steps=3, first_step=step, bounds=(begin, begin + 400 * MS)
    )
    return pipeline.window_of(read(path, bounds=context.bounds), context)


def by_rank(found: dict[str, Any], key: str) -> list[Any]:
    """One key of all rows, which stand by rank."""
    assert [row["rank"] for row in found["rows"]] == sorted(row["rank"] for row in found["rows"])
    return [row[key] for row in found["rows"]]


@pytest.mark.parametrize("numbered", [True, False])
def test_known_lateness(db: Database, writer: Writer, tmp_path: Path, *, numbered: bool) -> None:
    """Rank 2 comes 5 ms late once, rank 0 1 ms late once; with sequence numbers, and by order within the step.

    Durations: 7, 7, 2, 7 · 2, 3, 3, 3 · 2, 2, 2, 2. Moving 3 × 2 ms on each. Waiting: 5 + 0, 5 + 1, 0 + 1, 5 + 1 ms.
    Rank 2 let three ranks wait 5 ms, rank 0 three ranks 1 ms; at the third nobody was last.
    """
    submit(writer, [rank_window(tmp_path, rank, numbered=numbered) for rank in range(4)])
    found = Queries(db).run("peers", Filter())
    assert by_rank(found, "total_ns") == [11 * MS, 12 * MS, 7 * MS, 12 * MS]
    assert by_rank(found, "moving_ns") == [6 * MS] * 4
    assert by_rank(found, "waiting_ns") == [5 * MS, 6 * MS, MS, 6 * MS]
    assert by_rank(found, "caused_ns") == [3 * MS, 0, 15 * MS, 0]
    assert by_rank(found, "last_calls") == [1, 0, 1, 0]
    assert by_rank(found, "matched_share") == by_rank(found, "complete_share") == [1.0] * 4
    assert by_rank(found, "lower_bound") == [False] * 4
    assert by_rank(found, "calls") == [3] * 4
    (job,) = found["jobs"]
    assert (job["job"], job["node"], job["ranks"], job["world_size"]) == (JOB, None, 4, 4)
    assert (job["moving_ns"], job["waiting_ns"], job["total_ns"]) == (24 * MS, 18 * MS, 42 * MS)
    last = job["last"]
    assert (last["rank"], last["node"], last["pid"], last["calls"]) == (2, "gpu-01", 1002, 1)
    assert last["caused_ns"] == 15 * MS
    assert (found["windows_left_out"], found["windows_ambiguous"], found["windows_without_rank"]) == (0, 0, 0)


@pytest.mark.parametrize("scope", [Filter(process="1001"), Filter(node="gpu-00")])
def test_peers_outside_the_filter_are_compared_with(
    db: Database, writer: Writer, tmp_path: Path, scope: Filter
) -> None:
    """Asked for rank 1 alone, or for its node, it still waited 6 ms, and rank 2 on the other node was last."""
    submit(writer, [rank_window(tmp_path, rank) for rank in range(4)])
    found = Queries(db).run("peers", scope)
    (row,) = (row for row in found["rows"] if row["rank"] == 1)
    assert (row["moving_ns"], row["waiting_ns"], row["lower_bound"]) == (6 * MS, 6 * MS, False)
    assert found["jobs"][0]["last"]["rank"] == 2
    assert found["jobs"][0]["total_ns"] == sum(row["total_ns"] for row in found["rows"])
    assert {row["node"] for row in found["rows"]} == {"gpu-00"}


def test_a_rank_that_was_not_profiled(db: Database, writer: Writer, tmp_path: Path) -> None:
    """Without rank 2 the first wait is not seen: the others' 7 ms look like moving, and waiting is a lower bound.

    Durations 7, 7, 7 · 2, 3, 3 · 2, 2, 2: moving 7 + 2 + 2, waiting 0, 1, 1 ms.
    """
    submit(writer, [rank_window(tmp_path, rank) for rank in (0, 1, 3)])
    found = Queries(db).run("peers", Filter())
    assert by_rank(found, "waiting_ns") == [0, MS, MS]
    assert by_rank(found, "moving_ns") == [11 * MS] * 3
    assert by_rank(found, "matched_share") == [1.0] * 3
    assert by_rank(found, "complete_share") == [0.0] * 3
    assert by_rank(found, "lower_bound") == [True] * 3
    assert found["jobs"][0]["last"]["rank"] == 0


def test_a_rank_alone_is_not_split(db: Database, writer: Writer, tmp_path: Path) -> None:
    """One rank's window tells how long its collectives took, and nothing of waiting."""
    submit(writer, [rank_window(tmp_path, 0)])
    found = Queries(db).run("peers", Filter())
    (row,) = found["rows"]
    assert (row["total_ns"], row["moving_ns"], row["waiting_ns"], row["matched_share"]) == (11 * MS, 0, 0, 0.0)
    assert (row["complete_share"], row["windows"], row["windows_matched"]) == (None, 1, 0)
    assert found["jobs"][0]["last"] is None


@pytest.mark.parametrize(
    "other",
    [
        {"job": "slurm:8.0"},
        {"world_size": 2},
        {"job": "rendezvous:127.0.0.1:29500"},
        {"job": None},
    ],
)
def test_other_runs_are_never_mixed_in(db: Database, writer: Writer, tmp_path: Path, other: dict[str, Any]) -> None:
    """Ranks 0 and 1 of one run, 2 and 3 of another at the same time on another machine: rank 2 is compared with 3 only.

    Another job, another world size, a rendezvous on the loopback of each machine, no job at all.
    """
    same = {key: other[key] for key in other if key == "job" and other[key] != "slurm:8.0"}
    first = [rank_window(tmp_path, rank, **same) for rank in (0, 1)]
    submit(writer, [*first, *(rank_window(tmp_path, rank, **other) for rank in (2, 3))])
    found = Queries(db).run("peers", Filter())
    assert [job["ranks"] for job in found["jobs"]] == [2, 2]
    assert sum(by["waiting_ns"] for by in found["rows"] if by["rank"] in (2, 3)) == 5 * MS
    assert sum(by["waiting_ns"] for by in found["rows"] if by["rank"] in (0, 1)) == MS


def test_ranks_of_one_machine_without_a_job(db: Database, writer: Writer, tmp_path: Path) -> None:
    """All four on one machine, same user, model and world size: they are ranks of one run."""
    submit(writer, [rank_window(tmp_path, rank, job=None, host="box") for rank in range(4)])
    found = Queries(db).run("peers", Filter())
    assert by_rank(found, "waiting_ns") == [5 * MS, 6 * MS, MS, 6 * MS]
    assert (found["jobs"][0]["job"], found["jobs"][0]["node"]) == (None, "box")


def test_a_job_that_started_over(db: Database, writer: Writer, tmp_path: Path) -> None:
    """New processes reach the same step and the same numbers ten minutes later: each run is compared with itself."""
    submit(writer, [rank_window(tmp_path, rank) for rank in (0, 2)])
    again = [rank_window(tmp_path, rank, at=600_000 * MS, pid=2000 + rank) for rank in (0, 1)]
    submit(writer, again, 2)
    found = Queries(db).run("peers", Filter())
    waits = {(row["pid"], row["waiting_ns"]) for row in found["rows"]}
    assert waits == {(1000, 5 * MS), (1002, MS), (2000, 0), (2001, MS)}


def test_two_runs_that_nothing_tells_apart(db: Database, writer: Writer, tmp_path: Path) -> None:
    """The same job, ranks and time twice: no time is split, and the windows are counted."""
    windows = [rank_window(tmp_path, rank, pid=pid + rank) for rank in range(2) for pid in (1000, 2000)]
    submit(writer, windows)
    found = Queries(db).run("peers", Filter())
    assert found["windows_ambiguous"] == 4
    assert found["rows"] == []


def test_windows_without_steps_need_sequence_numbers(db: Database, writer: Writer, tmp_path: Path) -> None:
    """Timed windows begin anywhere, so that the n-th collective of one is not the n-th of another."""
    submit(writer, [rank_window(tmp_path, rank, step=None, numbered=False) for rank in range(4)])
    assert by_rank(Queries(db).run("peers", Filter()), "matched_share") == [0.0] * 4
    numbered = [rank_window(tmp_path, rank, step=None, at=3_600_000 * MS) for rank in range(4)]
    submit(writer, numbered, 2)
    later = Filter(since_unix_ns=START + 1_000_000 * MS)
    assert by_rank(Queries(db).run("peers", later), "waiting_ns") == [5 * MS, 6 * MS, MS, 6 * MS]


def test_a_process_without_a_rank_is_counted(db: Database, writer: Writer, tmp_path: Path) -> None:
    """Its collectives cannot be anybody's peers."""
    window = rank_window(tmp_path, 0)
    submit(writer, [dataclasses.replace(window, process=dataclasses.replace(window.process, rank=None))])
    found = Queries(db).run("peers", Filter())
    assert (found["rows"], found["windows_without_rank"]) == ([], 1)


def test_what_is_too_much_to_look_at_is_counted(
    db: Database, writer: Writer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Room for one step's collectives: the latest step is answered, the earlier one's four windows are left out."""
    submit(writer, [rank_window(tmp_path, rank, step=100) for rank in range(4)])
    submit(writer, [rank_window(tmp_path, rank, step=200, at=60_000 * MS) for rank in range(4)], 2)
    monkeypatch.setattr(peers, "CHUNK", 4)
    monkeypatch.setattr(peers, "FEWEST", 1)
    monkeypatch.setattr(peers, "MAX_COLLECTIVES", 16)  # 4 of each window, which has 3; then 1 of each
    found = Queries(db).run("peers", Filter())
    assert by_rank(found, "calls") == [4] * 4  # 3 of the latest step, the first of the one before
    assert found["windows_left_out"] == 4
    monkeypatch.setattr(peers, "FEWEST", 2)
    found = Queries(db).run("peers", Filter())
    assert by_rank(found, "waiting_ns") == [5 * MS, 6 * MS, MS, 6 * MS]
    assert found["windows_left_out"] == 4
    monkeypatch.setattr(peers, "MAX_WINDOWS", 4)
    found = Queries(db).run("peers", Filter())
    assert by_rank(found, "calls") == [3] * 4
    assert found["windows_left_out"] == 4


def test_limit_and_an_empty_store(db: Database, writer: Writer, tmp_path: Path) -> None:
    """Nothing is an answer; a limit takes the first rows, the jobs stay whole."""
    assert Queries(db).run("peers", Filter())["jobs"] == []
    submit(writer, [rank_window(tmp_path, rank) for rank in range(4)])
    found = Queries(db).run("peers", Filter(), 2)
    assert by_rank(found, "rank") == [0, 1]
    assert found["jobs"][0]["ranks"] == 4


@SQLITE_ALONE
def test_thousands_of_windows(db: Database, writer: Writer) -> None:
    """250 steps of 8 ranks with 100 collectives in each window: 200,000 looked at, each rank 1 µs later than the last.

    Durations are 8 − i µs for rank i: moving 1 µs, rank i waits 7 − i µs, rank 7 for nobody.
    """
    signature = Signature(kernel=KERNEL, kind=Kind.COMM)
    owners = [process_of(pid=rank, rank=rank, world_size=8, job=JOB) for rank in range(8)]
    for low in range(0, 250, 50):
        windows = []
        for step in range(low, low + 50):
            begin = START + step * 60_000 * MS
            for rank, owner in enumerate(owners):
                made = window_of(
                    f"{step} {rank}", [stat(signature, [100])], process=owner, start_unix_ns=begin, steps=1
                )  # fmt: skip
                calls = tuple(
                    Collective(0, "all_reduce", "0 (0-7)", begin + (i + rank) * 1000, (8 - rank) * 1000, 8, None, 4096)
                    for i in range(100)
                )
                windows.append(dataclasses.replace(made, first_step=step, collectives=calls))
        submit(writer, windows, low + 1)
    begun = time.process_time()
    found = Queries(db).run("peers", Filter())
    spent = time.process_time() - begun
    print(f"peers over 2,000 windows, 200,000 collectives: {spent:.1f} s of CPU time")
    assert by_rank(found, "windows_matched") == [250] * 8
    assert by_rank(found, "waiting_ns") == [25_000 * (7 - rank) * 1000 for rank in range(8)]
    assert found["jobs"][0]["last"]["rank"] == 7
    assert spent < 15  # 1.3 s on a machine busy with other things
