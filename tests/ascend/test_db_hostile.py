"""Databases whose cells hold anything: a profile that adds up, or one sentence; never another error, never for long."""

from __future__ import annotations

import contextlib
import io
import sqlite3
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from roofwatch.collectors.base import Limits, WindowContext
from roofwatch.collectors.pipeline import window_of
from roofwatch.collectors.registry import read
from roofwatch.model.errors import RoofwatchError
from roofwatch.model.record import Node, Process, Trigger

BASE = 1_736_410_576_000_000_000
TABLES = {
    "TASK": ("startNs", "endNs", "deviceId", "connectionId", "globalTaskId", "globalPid", "taskType"),
    "COMPUTE_TASK_INFO": ("name", "globalTaskId", "blockDim", "taskType", "opType", "inputShapes", "inputDataTypes",
                          "inputFormats", "outputShapes"),
    "COMMUNICATION_OP": ("opName", "startNs", "endNs", "connectionId", "groupName", "opId", "dataType", "count",
                         "opType"),
    "COMMUNICATION_TASK_INFO": ("globalTaskId", "opId"),
    "MEMCPY_INFO": ("globalTaskId", "size", "memcpyOperation"),
    "TASK_PMU_INFO": ("globalTaskId", "name", "value", "timestampNs"),
    "CANN_API": ("startNs", "endNs", "type", "globalTid", "connectionId", "name"),
    "PYTORCH_API": ("startNs", "endNs", "globalTid", "connectionId", "name", "sequenceNumber", "fwdThreadId",
                    "inputDtypes", "inputShapes", "type"),
    "CONNECTION_IDS": ("id", "connectionId"),
    "STEP_TIME": ("id", "startNs", "endNs"),
    "AICORE_FREQ": ("deviceId", "timestampNs", "freq"),
    "NPU_INFO": ("id", "name"),
    "RANK_DEVICE_MAP": ("rankId", "deviceId"),
    "ENUM_API_TYPE": ("id", "name"),
    "ENUM_HCCL_DATA_TYPE": ("id", "name"),
    "META_DATA": ("name", "value"),
}  # fmt: skip
METRICS = ["aic_mac_ratio", "aiv_vec_ratio", "cube_utilization(%)"]
MAIN = ("TASK", "COMPUTE_TASK_INFO")
TEXTS = (
    "N/A", "", "0", "aclnnAdd_AddAiCore_Add", "Conv2D1", '"2,3;;4"', '"9999999999999999999"', "1,-1", "FLOAT;;BOOL",
    ";" * 50, "aic_mac_ratio", "aiv_vec_ratio", "cube_utilization(%)", "hcom_allReduce_", "hcom_allGather__1_2_3",
    "AI_CORE", "AI_CPU",
    "ProfilerStep#1", "Optimizer.step#SGD.step", "enumerate(DataLoader)#x", "nn.Module: Linear_1", "aten::mm", "launch",
    "aclrtSynchronizeStream", "autograd::engine::evaluate_function: MmBackward0", "\x00\x1b[31m", "é" * 3000,
)  # fmt: skip
TIMES = st.integers(0, 400).map(lambda n: BASE + 1000 * n)
CELLS = st.one_of(
    st.integers(-2, 30),
    TIMES,
    TIMES.map(str),
    st.sampled_from(
        [None, -1, 0, 4_294_967_295, 65_534, 1 << 62, -(1 << 63), (1 << 63) - 1, 1.5, -0.5, 1e300, float("inf")]
    ),
    st.sampled_from([50_001, 50_003, 10_000, (77 << 32) | 77, (77 << 32) | 78]),
    st.sampled_from(TEXTS),
    st.binary(max_size=5),
)


SENSIBLE = {
    "startNs": st.integers(0, 200).map(lambda n: BASE + 1000 * n),
    "endNs": st.integers(200, 400).map(lambda n: BASE + 1000 * n),
    "timestampNs": st.integers(0, 400).map(lambda n: BASE + 1000 * n),
    "globalTid": st.sampled_from([(77 << 32) | 77, (77 << 32) | 78]),
    "type": st.sampled_from([50_001, 50_001, 10_000]),
    "value": st.floats(0, 1),
    **{column: st.integers(0, 3) for column in ("globalTaskId", "connectionId", "id", "opId", "deviceId")},
}


def cell(table: str, column: str) -> st.SearchStrategy:
    """Mostly what belongs there, so that what is read gets far."""
    good = SENSIBLE.get(column, st.integers(0, 29))
    if (table, column) == ("TASK_PMU_INFO", "name"):
        good = st.integers(0, 2)
    return st.integers(0, 11).flatmap(lambda n: CELLS if n == 11 else good)


ROWS = {
    table: st.lists(
        st.tuples(*(cell(table, column) for column in columns)), min_size=table in ("TASK", "PYTORCH_API"), max_size=5
    )
    for table, columns in TABLES.items()
}


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(
    rows=st.fixed_dictionaries(
        {table: ROWS[table] for table in MAIN}, optional={table: ROWS[table] for table in TABLES if table not in MAIN}
    ),
    texts=st.lists(st.sampled_from(TEXTS), min_size=27, max_size=27).map(lambda some: [*METRICS, *some]),
    bounds=st.none() | st.tuples(TIMES, TIMES).map(lambda pair: tuple(sorted(pair))),
)
def test_any_cells(rows: dict, texts: list[str], bounds: tuple[int, int] | None) -> None:
    """Whatever the tables hold, what is read adds up, through to the window."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "x.db"
        with sqlite3.connect(path) as connection:
            connection.execute("create table STRING_IDS (id INTEGER PRIMARY KEY, value)")
            connection.executemany("insert into STRING_IDS values (?,?)", enumerate(texts))
            for table, cells in rows.items():
                columns = TABLES[table]
                connection.execute(f"create table {table} ({','.join(columns)})")
                marks = ",".join("?" * len(columns))
                connection.executemany(f"insert into {table} values ({marks})", cells)  # noqa: S608 - the test's own
        connection.close()
        try:
            profile = read(path, Limits(max_groups=8), bounds=bounds)
        except RoofwatchError as error:
            assert str(error).endswith(".")  # noqa: PT017 - either is right
            return
    for at, device in enumerate(profile.devices):
        assert 0 <= device.busy_ns <= device.span_ns
        assert sum(cause.total_ns for cause in device.causes) == device.span_ns - device.busy_ns
        assert 0 <= device.exposed_communication_ns + device.exposed_copy_ns <= device.busy_ns
        assert device.busy_ns <= sum(g.total_ns for g in profile.groups if g.device == at)
    for group in profile.groups:
        assert group.calls == group.histogram.total > 0
        assert group.min_ns * group.calls <= group.total_ns <= group.max_ns * group.calls
        if group.pipes is not None:
            assert 0 <= group.pipes.measured_ns <= group.total_ns
    context = WindowContext("0" * 32, Process(Node("n"), 1), Trigger.IMPORTED)
    window = window_of(profile, context)
    assert sum(k.calls for k in window.kernels) == sum(g.calls for g in profile.groups)
    assert len({(k.signature.id, k.device, k.evidence) for k in window.kernels}) == len(window.kernels)


def test_one_id_for_everything_ends(tmp_path: Path) -> None:
    """Tables that all name one task: their product would be huge, the limit is not."""
    path = tmp_path / "x.db"
    with sqlite3.connect(path) as connection:
        connection.execute("create table TASK (startNs,endNs,globalTaskId,connectionId)")
        connection.execute("create table COMPUTE_TASK_INFO (name,globalTaskId)")
        connection.executemany("insert into TASK values (?,?,1,1)", ((BASE + i, BASE + i + 5) for i in range(5000)))
        connection.executemany("insert into COMPUTE_TASK_INFO values (?,1)", ((i,) for i in range(5000)))
        connection.execute("create table PYTORCH_API (startNs,endNs,globalTid,name,connectionId)")
        connection.executemany("insert into PYTORCH_API values (?,?,1,1,1)", ((BASE, BASE + 9) for _ in range(3000)))
        connection.execute("create table CONNECTION_IDS (id,connectionId)")
        connection.executemany("insert into CONNECTION_IDS values (1,1)", (() for _ in range(3000)))
    began = time.process_time()
    profile = read(path, Limits(max_events=100_000))
    assert time.process_time() - began < 20
    assert sum(g.calls for g in profile.groups) == 100_000
    assert profile.dropped["over_event_limit"]


@pytest.mark.parametrize("size", [100_000, 20_000_000])
def test_a_text_of_any_length(tmp_path: Path, size: int) -> None:
    """A name is cut, one that is absurd is not read at all; the kernel is there."""
    path = tmp_path / "x.db"
    with sqlite3.connect(path) as connection:
        connection.execute("create table STRING_IDS (id INTEGER PRIMARY KEY, value TEXT)")
        connection.execute("insert into STRING_IDS values (1,?)", ("x" * size,))
        connection.execute("create table TASK (startNs,endNs,globalTaskId)")
        connection.execute("create table COMPUTE_TASK_INFO (name,globalTaskId,inputShapes)")
        connection.execute("insert into TASK values (?,?,1)", (BASE, BASE + 5))
        connection.execute("insert into COMPUTE_TASK_INFO values (1,1,1)")
    profile = read(path)
    [group] = profile.groups
    assert len(group.kernel) <= 4096
    assert group.shapes is None
    assert (profile.problem is not None) == (size > 1 << 24)


def test_a_schema_that_is_no_text(tmp_path: Path) -> None:
    """SQLite quotes the damaged schema in its message, which Python then cannot decode: one sentence all the same."""
    path = tmp_path / "x.db"
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("create table TASK (startNs, endNs, globalTaskId)")
        connection.commit()
    path.write_bytes(path.read_bytes().replace(b"create table TASK", b"create tabl\xd6 TASK").replace(
        b"CREATE TABLE TASK", b"CREATE TABL\xd6 TASK"))  # fmt: skip
    with pytest.raises(RoofwatchError, match=r"x\.db is a damaged SQLite database"):
        read(path)


def test_a_database_in_memory(made: Callable[[], Any]) -> None:
    """An open file without a descriptor; one that only begins as a database is damaged."""
    db = made()
    db.kernels([{"start": 0, "end": 10}])
    told = db.read()
    assert read(io.BytesIO(db.path.read_bytes())).groups == told.groups
    with pytest.raises(RoofwatchError, match=r"damaged SQLite database|cannot be opened"):
        read(io.BytesIO(b"SQLite format 3\x00" + b"x" * 100))
