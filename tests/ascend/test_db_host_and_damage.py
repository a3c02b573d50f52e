"""Databases made by hand: the host side, limits and damage."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from roofwatch.collectors.base import Limits
from roofwatch.collectors.registry import read
from roofwatch.model.errors import RoofwatchError
from roofwatch.model.record import Cause, Phase

BASE = 1_736_410_576_000_000_000
OP = ("startNs", "endNs", "globalTid", "connectionId", "name", "sequenceNumber", "fwdThreadId", "inputDtypes",
      "inputShapes", "callchainId", "type")  # fmt: skip
API = ("startNs", "endNs", "type", "globalTid", "connectionId", "name")
MAIN, OTHER = (77 << 32) | 77, (77 << 32) | 80  # threads of process 77


# -- the host ----------------------------------------------------------------------------------------------------------


def linked(made: Callable[[], Any], op_type: int | None = 50_001) -> Any:
    """A forward and a backward op, each of which put one kernel into the queue; and one launched before the window."""
    db = made()
    db.kernels(
        [
            {"start": 130_000, "end": 140_000, "connectionId": 11},
            {"start": 400_000, "end": 500_000, "connectionId": 12, "opType": "ReluGrad"},
            {"start": 20_000, "end": 60_000, "connectionId": 13, "opType": "Mul"},
        ]
    )
    shape, dtype = db.text("2,3;\r\n3;\r\n"), db.text("float;\r\nfloat;\r\nScalar")
    ops = [
        (0, 900_000, MAIN, None, "ProfilerStep#3", 0, None, None),
        (60_000, 110_000, MAIN, None, "aten::add", 0, dtype, shape),
        (70_000, 100_000, MAIN, 1, "aclnnAdd", 0, None, None),
        (75_000, 78_000, MAIN, 7, "Enqueue", 0, None, None),
        (200_000, 390_000, OTHER, 9, "autograd::engine::evaluate_function: ReluBackward0", 0, None, None),
        (210_000, 380_000, OTHER, None, "MyRelu", 1, dtype, shape),
        (220_000, 370_000, OTHER, 2, "aclnnThresholdBackward", 0, None, None),
    ]
    rows = [
        [str(BASE + a), str(BASE + b), t, c, db.text(n), -1, f, d, s, None, op_type] for a, b, t, c, n, f, d, s in ops
    ]
    rows[3][10] = None if op_type is None else 50_002
    db.table("PYTORCH_API", OP, rows)
    if op_type is None:
        db.connection.execute("alter table PYTORCH_API drop column type")
    db.table("CONNECTION_IDS", ["id", "connectionId"], [[1, 11], [2, 12], [7, 900], [9, 901], [2, 10_050]])
    db.table("CANN_API", API, [[BASE + 112_000, BASE + 115_000, 10_000, OTHER + 1, 11, db.text("launch")],
                               [BASE + 375_000, BASE + 395_000, 10_000, OTHER + 1, 12, db.text("launch")],
                               [BASE + 800_000, BASE + 801_000, 10_000, OTHER + 1, 99, db.text("launch")]])  # fmt: skip
    return db


@pytest.mark.parametrize("op_type", [50_001, None])
def test_ops_phases_and_steps(made: Callable[[], Any], op_type: int | None) -> None:
    """Through the queue to the op of torch; an op that says which forward thread it is of is of the backward pass."""
    profile = linked(made, op_type).read()
    found = {g.kernel: g for g in profile.groups}
    assert (found["Add"].op, found["Add"].phase, found["Add"].linked) == ("aten::add", Phase.FORWARD, True)
    assert (found["ReluGrad"].op, found["ReluGrad"].phase) == ("MyRelu", Phase.BACKWARD)
    assert (found["Mul"].op, found["Mul"].linked, found["Mul"].backlog) == (None, False, True)
    assert [found[k].step_calls for k in ("Add", "ReluGrad", "Mul")] == [1, 1, 0]
    assert (profile.steps, profile.step_ns) == (1, (900_000,))
    assert profile.dropped == {"unfinished": 1}
    assert profile.has_host_events


def test_where_the_device_waited(made: Callable[[], Any]) -> None:
    """From the op on torch's thread to the end of CANN's call it is the launch that is late, after it the device.

    Idle are 0-20 µs (its record was launched before the window), 60-130 (op from 70, call until 115), 140-400 (op from
    220, call until 395), and 500-900, after the last record.
    """
    [device] = linked(made).read().devices
    assert (device.span_ns, device.busy_ns) == (900_000, 150_000)
    causes = {cause.cause: cause.total_ns for cause in device.causes}
    assert sum(causes.values()) == 750_000
    # 20 before the backlog's record and 130 - 115 = 15 after the first launch and 400 - 395 = 5 after the second
    assert causes[Cause.LAUNCH_GAP] == 20_000 + 15_000 + 5_000
    assert causes[Cause.LAUNCH_BOUND] == (115_000 - 60_000) + (395_000 - 140_000) + 400_000
    assert set(causes) == {Cause.LAUNCH_GAP, Cause.LAUNCH_BOUND}


def test_calls_of_cann_alone_tell_the_timeline(made: Callable[[], Any]) -> None:
    """Without torch's ops nothing is tied to one; the thread that launched still tells what the device waited for."""
    db = made()
    db.kernels([{"start": 0, "end": 100_000, "connectionId": 1}, {"start": 900_000, "end": 950_000, "connectionId": 2}])
    calls = [(-5000, -1000, 1, "launch", 10_000), (150_000, 700_000, 50, "aclrtSynchronizeStreamWithTimeout", 20_000),
             (880_000, 890_000, 2, "launch", 10_000)]  # fmt: skip
    db.table("CANN_API", API, [[BASE + a, BASE + b, t, MAIN, c, db.text(n)] for a, b, c, n, t in calls])
    profile = db.read()
    assert not profile.has_host_events
    assert not any(g.linked or g.backlog for g in profile.groups)
    causes = {cause.cause: cause.total_ns for cause in profile.devices[0].causes}
    # In the wait from 150 to 700; it had returned before the launch: what is left before that is its fault, too.
    assert causes == {Cause.SYNC: 780_000, Cause.LAUNCH_GAP: 20_000}


def test_without_any_host_idle_is_unknown(made: Callable[[], Any]) -> None:
    """Nobody was seen launching."""
    db = made()
    db.kernels([{"start": 0, "end": 100}, {"start": 1000, "end": 1200}])
    [device] = db.read().devices
    assert [(c.cause, c.total_ns, c.count) for c in device.causes] == [(Cause.UNKNOWN, 900, 1)]


def test_steps_of_their_own_table(made: Callable[[], Any]) -> None:
    """Where no range names steps: a record whose launch is not known is in the step that it began in."""
    db = made()
    db.kernels([{"start": 0, "end": 100}, {"start": 1000, "end": 1200}, {"start": 5000, "end": 5100}])
    db.table("STEP_TIME", ["id", "startNs", "endNs"], [[50, BASE - 10, BASE + 500], [51, BASE + 900, BASE + 2000]])
    profile = db.read()
    assert (profile.steps, profile.step_ns) == (2, (510, 1100))
    assert sum(g.step_calls for g in profile.groups) == 2
    assert sum(g.step_ns for g in profile.groups) == 300


# -- limits and damage -------------------------------------------------------------------------------------------------


def test_too_many_records(made: Callable[[], Any]) -> None:
    """What is beyond the limit is counted, not read."""
    db = made()
    db.kernels([{"start": 10 * i, "end": 10 * i + 5} for i in range(50)])
    profile = db.read(limits=Limits(max_events=20))
    assert sum(g.calls for g in profile.groups) == 20
    assert profile.dropped["over_event_limit"] == 1


def test_too_many_groups(made: Callable[[], Any]) -> None:
    """The smallest are put together, and their time is not lost; what they were put together from is not told."""
    db = made()
    db.kernels([{"start": 1000 * i, "end": 1000 * i + i + 1, "opType": f"Op{i}x"} for i in range(30)])
    mac = db.text("aic_mac_ratio")
    db.table("TASK_PMU_INFO", ["globalTaskId", "name", "value"], [[i, mac, 0.5] for i in range(30)])
    profile = db.read(limits=Limits(max_groups=10))
    assert sum(g.total_ns for g in profile.groups) == sum(range(1, 31))
    [rest] = [g for g in profile.groups if g.kernel == "(other)"]
    assert (rest.calls, rest.type, rest.core, rest.formats) == (20, None, None, None)
    assert rest.pipes is not None
    assert rest.pipes.mac_ns == pytest.approx(rest.total_ns / 2)
    assert profile.dropped == {"over_group_limit": 20}


def test_a_locked_database(made: Callable[[], Any]) -> None:
    """One sentence that says what to do."""
    db = made()
    db.kernels([{"start": 0, "end": 100}])
    db.connection.commit()
    db.connection.execute("begin exclusive")
    with pytest.raises(RoofwatchError, match=r"is locked by a program that writes it: close that program"):
        read(db.path)


def test_a_file_that_only_begins_like_one(tmp_path: Path) -> None:
    """A header and then text."""
    path = tmp_path / "x.db"
    path.write_bytes(b"SQLite format 3\x00" + b"Name,Type,Duration(us)\n" * 100)
    with pytest.raises(RoofwatchError, match="damaged SQLite database"):
        read(path)


@pytest.mark.parametrize(
    ("tables", "sentence"),
    [
        ([], "without a table: its writer may not have finished"),
        (["users"], "without the tables TASK and COMPUTE_TASK_INFO"),
        (["CUPTI_ACTIVITY_KIND_KERNEL"], "export of Nsight Systems.*PyTorch profiler"),
        (["AscendTask"], r"raw database of a PROF folder.*msprof_\*\.db"),
    ],
)
def test_databases_of_others(tmp_path: Path, tables: list[str], sentence: str) -> None:
    """They are named for what they are."""
    path = tmp_path / "x.db"
    with sqlite3.connect(path) as connection:
        for name in tables:
            connection.execute(f"create table {name} (a)")
        connection.execute("pragma user_version=3")
    with pytest.raises(RoofwatchError, match=sentence):
        read(path)


def test_tables_without_rows(made: Callable[[], Any]) -> None:
    """Nothing to account for is a sentence."""
    db = made()
    db.kernels([])
    with pytest.raises(RoofwatchError, match="no compute task and no communication operation"):
        db.read()


def test_only_impossible_records(made: Callable[[], Any]) -> None:
    """What was lost is said."""
    db = made()
    db.kernels([{"start": 50, "end": 40}])
    with pytest.raises(RoofwatchError, match=r"dropped: 1 bad duration"):
        db.read()


def test_nothing_in_the_file_runs(tmp_path: Path) -> None:
    """A view in place of a table, a virtual table and a generated column are passed by, however they are named."""
    path = tmp_path / "x.db"
    with sqlite3.connect(path) as connection:
        connection.execute("create table TASK (startNs, endNs, globalTaskId, deviceId generated always as (abs(-3)))")
        connection.execute("insert into TASK values (?,?,1)", (BASE, BASE + 10))
        connection.execute("create view COMPUTE_TASK_INFO as select 1 globalTaskId, abs(-9223372036854775808) name")
        connection.execute("create virtual table MEMCPY_INFO using fts5(globalTaskId)")
    with pytest.raises(RoofwatchError, match="no compute task"):
        read(path)
    with sqlite3.connect(path) as connection:
        connection.execute("drop view COMPUTE_TASK_INFO")
        connection.execute("create table COMPUTE_TASK_INFO (globalTaskId)")
        connection.execute("insert into COMPUTE_TASK_INFO values (1)")
    profile = read(path)
    assert sum(g.calls for g in profile.groups) == 1
    assert profile.devices[0].index is None


def test_damage_in_the_middle_leaves_what_was_before(made: Callable[[], Any]) -> None:
    """A page of one table is gone: the sentence says so, and what could be read counts."""
    db = made()
    db.connection.execute("pragma page_size=4096")
    db.kernels([{"start": 10 * i, "end": 10 * i + 5} for i in range(3000)])
    db.table("STEP_TIME", ["id", "startNs", "endNs"], [[1, BASE, BASE + 100]])
    db.connection.commit()
    [(page,)] = db.connection.execute("select rootpage from sqlite_master where name='STEP_TIME'").fetchall()
    db.connection.close()
    content = bytearray(db.path.read_bytes())
    content[(page - 1) * 4096 : (page - 1) * 4096 + 200] = b"\xff" * 200
    db.path.write_bytes(content)
    profile = read(db.path)
    assert sum(g.calls for g in profile.groups) == 3000
    assert profile.problem is not None
    assert "damaged SQLite database" in profile.problem
    assert profile.steps is None


def test_a_database_that_was_cut_off(made: Callable[[], Any]) -> None:
    """Wherever it ends: a profile, or one sentence."""
    db = made()
    db.kernels([{"start": 10 * i, "end": 10 * i + 5, "opType": f"Kind{i % 7}x"} for i in range(2000)])
    db.connection.commit()
    db.connection.close()
    content = db.path.read_bytes()
    for share in range(1, 20):
        db.path.write_bytes(content[: len(content) * share // 20])
        try:
            profile = read(db.path)
        except RoofwatchError as error:
            told = str(error)
        else:
            assert 0 < sum(g.calls for g in profile.groups) <= 2000
            told = profile.problem or ""
        assert told.endswith(".")
        assert "\n" not in told
