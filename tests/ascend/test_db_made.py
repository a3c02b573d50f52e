"""Databases made by hand: versions of the schema, values that stand for nothing, damage, and figures worked out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from roofwatch.collectors.base import Category

BASE = 1_736_410_576_000_000_000
ABSENT = 4_294_967_295
NEW = ("name", "globalTaskId", "blockNum", "mixBlockNum", "taskType", "opType", "inputFormats", "inputDataTypes",
       "inputShapes", "outputFormats", "outputDataTypes", "outputShapes", "attrInfo", "opState", "hf32Eligible",
       "gridDim", "blockDim")  # fmt: skip
COMMUNICATION = ("opName", "startNs", "endNs", "connectionId", "groupName", "opId", "dataType", "count", "opType")


# -- schemas and absent values -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["blockDim", "block_dim"])
def test_blocks_of_old_schemas(made: Callable[[], Any], name: str) -> None:
    """Before blockNum there was blockDim, and at first block_dim."""
    db = made()
    columns = ["name", "globalTaskId", "blockDim", "taskType", "opType"]
    db.kernels([{"start": 0, "end": 10, "blockDim": 24}], columns)
    db.connection.execute(f"alter table COMPUTE_TASK_INFO rename column blockDim to {name}")
    [group] = db.read().groups
    assert group.blocks == 24


def test_block_dim_of_the_new_schema_is_no_number_of_blocks(made: Callable[[], Any]) -> None:
    """In 1.2.0 blockDim is the id of a text that says how threads are laid out; blockNum is the number."""
    db = made()
    row = {"start": 0, "end": 10, "blockNum": 20, "mixBlockNum": 0, "opState": "static", "hf32Eligible": "NO",
           "gridDim": "N/A", "blockDim": "32,1,1"}  # fmt: skip
    db.kernels([row], NEW)
    [group] = db.read().groups
    assert group.blocks == 20


@pytest.mark.parametrize("blocks", [0, -1, ABSENT, 65_534, None, "N/A", "x", 1 << 40, 2.5e300])
def test_a_number_of_blocks_that_is_none(made: Callable[[], Any], blocks: object) -> None:
    """0 and the absent markers are unknown, never a number."""
    db = made()
    db.kernels([{"start": 0, "end": 10}])
    db.connection.execute("update COMPUTE_TASK_INFO set blockDim=?", (blocks,))
    [group] = db.read().groups
    assert group.blocks is None


@pytest.mark.parametrize("missing", ["N/A", ABSENT, -1, None, 12345, 1 << 33])
def test_texts_that_are_not_there(made: Callable[[], Any], missing: object) -> None:
    """A kernel without type has it from its name, one without shapes has none."""
    db = made()
    db.kernels([{"start": 0, "end": 10, "name": "Conv2D7"}])
    value = db.text(missing) if isinstance(missing, str) else missing
    for column in ("opType", "inputShapes", "inputDataTypes", "inputFormats", "outputShapes", "taskType"):
        db.connection.execute(f"update COMPUTE_TASK_INFO set {column}=?", (value,))  # noqa: S608 - ours
    [group] = db.read().groups
    assert (group.kernel, group.type) == ("Conv2D", "Conv2D")
    assert group.shapes is group.dtypes is group.formats is group.outputs is None
    assert group.core == "AI_VECTOR_CORE"  # what the device itself says


def test_a_type_that_is_a_zero(made: Callable[[], Any]) -> None:
    """Some versions write 0 for the type of what they fill memory with."""
    db = made()
    db.kernels([{"start": 0, "end": 10, "name": "NonZero_MemSet", "opType": "0"}])
    [group] = db.read().groups
    assert (group.kernel, group.type) == ("MemSet", "MemSet")


def test_shapes_formats_and_outputs(made: Callable[[], Any]) -> None:
    """Quotes and separators become lists; an absent tensor keeps its place."""
    db = made()
    inputs = {"inputDataTypes": "DT_BF16;UINT8;FLOAT;INT64", "inputFormats": "FRACTAL_NZ;ND;NCL;ND"}
    outputs = {"outputShapes": '""', "outputDataTypes": "FLOAT"}
    db.kernels([{"start": 0, "end": 10, "inputShapes": '"512,16;;1,2048,16;"', **inputs, **outputs}])
    [group] = db.read().groups
    assert group.shapes == "[[512,16],[],[1,2048,16],[]]"
    assert group.dtypes == '["DT_BF16","UINT8","FLOAT","INT64"]'
    assert group.formats == '["FRACTAL_NZ","ND","NCL","ND"]'
    assert group.outputs == '[[[]],["FLOAT"],["ND"]]'


def test_times_that_are_text(made: Callable[[], Any]) -> None:
    """Nineteen digits as text are read exactly."""
    db = made()
    db.kernels([{"start": str(BASE + 1_234_567), "end": str(BASE + 1_234_577)}])
    profile = db.read()
    assert profile.start_unix_ns == BASE + 1_234_567
    assert profile.groups[0].total_ns == 10


def test_kernels_alone_are_enough(made: Callable[[], Any]) -> None:
    """Without texts, host, metrics, collectives and names of devices: a kernel and its time."""
    db = made()
    db.kernels([{"start": 5, "end": 25}], ["name", "globalTaskId"])
    db.connection.execute("drop table STRING_IDS")
    profile = db.read()
    [group] = profile.groups
    assert (group.kernel, group.total_ns, group.linked, group.backlog) == ("(no name)", 20, False, False)
    assert (profile.devices[0].name, profile.devices[0].clock_hz, profile.steps) == ("", None, None)
    assert not profile.has_host_events
    assert group.pipes is None


def test_columns_in_any_case_and_order(made: Callable[[], Any]) -> None:
    """Columns are found by name; what Insight adds, and what nobody knows, is passed by."""
    db = made()
    db.kernels([{"start": 0, "end": 7}])
    for table in ("TASK", "COMPUTE_TASK_INFO"):
        db.connection.execute(f"alter table {table} add column depth integer default 9")
        db.connection.execute(f"alter table {table} rename column globalTaskId to GLOBALTASKID")
    db.table("OVERLAP_ANALYSIS", ["id"], [[1]])
    assert db.read().groups[0].total_ns == 7


def test_a_task_without_work_is_no_record(made: Callable[[], Any]) -> None:
    """Events, waits, and the parent of a task in parts: neither records nor busy."""
    db = made()
    db.kernels([{"start": 0, "end": 100}])
    for at, kind in enumerate(("EVENT_WAIT", "Notify Wait", "AI_CORE", "MEMCPY_ASYNC")):
        db.fill("TASK", [[BASE + 200 + at, BASE + 900, 0, 5, 50 + at, 77, db.text(kind), ABSENT, 3, 1, ABSENT]])
    profile = db.read()
    assert sum(g.calls for g in profile.groups) == 1
    assert profile.devices[0].busy_ns == 100


def test_impossible_times_are_counted(made: Callable[[], Any]) -> None:
    """They are no records; what is left counts."""
    db = made()
    db.kernels(
        [
            {"start": 0, "end": 10},
            {"start": 50, "end": 40},
            {"start": 0, "end": 8 * 86_400 * 10**9},
            {"start": None, "end": 10},
            {"start": "soon", "end": 10},
            {"start": 20, "end": str(1 << 63)},
        ]
    )
    profile = db.read()
    assert sum(g.calls for g in profile.groups) == 1
    assert profile.dropped == {"bad_duration": 2, "bad_time": 3}


def test_kernels_that_no_task_was_of_are_counted(made: Callable[[], Any]) -> None:
    """A description without a time is no record."""
    db = made()
    db.kernels([{"start": 0, "end": 10}, {"start": 20, "end": 30}])
    db.connection.execute("delete from TASK where globalTaskId=1")
    profile = db.read()
    assert sum(g.calls for g in profile.groups) == 1
    assert profile.dropped == {"without_task": 1}


def test_a_graph_that_is_launched_again(made: Callable[[], Any]) -> None:
    """One description of several tasks: each of them is a record, and metrics with a time are of the one they hit."""
    db = made()
    first = {"start": 0, "end": 100, "globalTaskId": 4}
    db.kernels(
        [first, first | {"start": 200, "end": 240, "again": True}, {"start": 300, "end": 310, "globalTaskId": 9}]
    )
    mac = db.text("aic_mac_ratio")
    rows = [(4, 0.5, 100), (4, 0.25, 205), (9, 1.0, 300), (4, 1.0, 150)]
    columns = ["globalTaskId", "name", "value", "timestampNs"]
    db.table("TASK_PMU_INFO", columns, [[task, mac, value, BASE + at] for task, value, at in rows])
    profile = db.read()
    [group] = profile.groups
    assert group.calls == 3
    assert group.pipes is not None
    assert group.pipes.mac_ns == pytest.approx(0.5 * 100 + 0.25 * 40 + 1.0 * 10)
    assert group.pipes.measured_ns == 150
    assert profile.dropped == {"ambiguous_metric": 1}


def test_metrics_of_a_task_that_ran_twice_are_of_neither(made: Callable[[], Any]) -> None:
    """Without a time nothing tells which of the two was measured."""
    db = made()
    db.kernels(
        [{"start": 0, "end": 100, "globalTaskId": 4}, {"start": 200, "end": 240, "globalTaskId": 4, "again": True}]
    )
    db.table("TASK_PMU_INFO", ["globalTaskId", "name", "value"], [[4, db.text("aic_mac_ratio"), 0.5]])
    profile = db.read()
    assert profile.groups[0].pipes is None
    assert profile.dropped == {"ambiguous_metric": 1}


def test_metrics_that_are_none(made: Callable[[], Any]) -> None:
    """Only ratios count; a zero that is not written down is a zero, a task without metrics has none."""
    db = made()
    db.kernels(
        [
            {"start": 0, "end": 100},
            {"start": 100, "end": 300, "opType": "Mul"},
            {"start": 300, "end": 400, "opType": "Sub"},
        ]
    )
    mac, vec, scalar = (db.text(name) for name in ("aic_mac_ratio", "aiv_vec_ratio", "aiv_scalar_ratio"))
    rows = [[0, mac, 0], [0, vec, "0.5"], [1, mac, 0], [1, vec, 7.0], [1, scalar, None], [99, vec, 0.5],
            [1, 12345, 1.0], [None, vec, 0.5], [0, db.text("aic_total_cycles"), 900]]  # fmt: skip
    db.table("TASK_PMU_INFO", ["globalTaskId", "name", "value"], rows)
    profile = db.read()
    pipes = {g.kernel: g.pipes for g in profile.groups}
    assert pipes["Sub"] is None
    assert pipes["Add"] is not None
    assert (pipes["Add"].measured_ns, pipes["Add"].mac_ns, pipes["Add"].vec_ns) == (100, 0.0, 50.0)
    assert pipes["Mul"] is not None
    assert (pipes["Mul"].measured_ns, pipes["Mul"].vec_ns, pipes["Mul"].vector_scalar_ns) == (200, 0.0, 0.0)
    assert pipes["Mul"].mte1_ns is None  # no such metric in the set
    assert profile.dropped == {"bad_metric": 1}


# -- collectives, copies, devices --------------------------------------------------------------------------------------


def test_collectives_overlap_compute(made: Callable[[], Any]) -> None:
    """Busy is 0-150 and 200-240; 100-150 and 200-210 no compute hides."""
    db = made()
    db.kernels([{"start": 0, "end": 100}, {"start": 210, "end": 240}])
    group, kind = db.text("group_name_1"), db.text("hcom_allReduce_")
    rows = [[db.text(f"hcom_allReduce__1_{i}_1"), BASE + a, BASE + b, 5, group, i, 11, 1000, kind]
            for i, (a, b) in enumerate([(50, 150), (200, 230)])]  # fmt: skip
    db.table("COMMUNICATION_OP", COMMUNICATION, rows)
    profile = db.read()
    [device] = profile.devices
    assert (device.busy_ns, device.exposed_communication_ns) == (190, 60)
    [collective] = [g for g in profile.groups if g.core == "COMMUNICATION"]
    assert (collective.calls, collective.total_ns, collective.category) == (2, 130, Category.KERNEL)
    assert collective.arguments == '{"collective":"all_reduce","dtype":"bf16"}'
    assert collective.moved_bytes == 2 * 2000
    assert [(c.name, c.group, c.start_unix_ns, c.duration_ns, c.bytes) for c in profile.collectives] == [
        ("all_reduce", "group_name_1", 50, 100, 2000), ("all_reduce", "group_name_1", 200, 30, 2000),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "count", "size", "dtype", "moved"),
    [
        ("hcom_allReduce_", 10, 4, 4, 40),
        ("hcom_broadcast_", 10, 4, 3, 20),
        ("hcom_allGather_", 10, 4, 4, 160),
        ("hcom_reduceScatter_", 10, 4, 4, 160),
        ("hcom_allGather_", 10, None, 4, None),
        ("hcom_allReduce_", 10, None, 4, 40),
        ("hcom_allReduce_", 10, 4, 65_534, None),
        ("hcom_allReduce_", None, 4, 4, None),
        ("hcom_allReduce_", -1, 4, 4, None),
        ("hcom_batchSendRecv_", 10, 4, 4, None),
    ],
)
def test_the_message_of_a_collective(
    made: Callable[[], Any], kind: str, count: int | None, size: int | None, dtype: int, moved: int | None
) -> None:
    """The larger of what a rank puts in and gets out; unknown where a part of it is."""
    db = made()
    columns = [*COMMUNICATION, "rankSize"]
    db.table("COMMUNICATION_OP", columns, [[db.text(f"{kind}_1_0_1"), BASE, BASE + 9, 5, db.text("g"), 1, dtype, count,
                                            db.text(kind), size]])  # fmt: skip
    profile = db.read()
    assert profile.groups[0].moved_bytes == moved
    assert profile.collectives[0].bytes == moved
    assert profile.collectives[0].group_size == size


def test_names_of_collectives_without_a_type(made: Callable[[], Any]) -> None:
    """At Level0 the type is N/A: what a call's name begins with is the word for it; calls are not told apart by it."""
    db = made()
    rows = [[db.text(f"hcom_allReduce__586_{i}_1"), BASE + i, BASE + i + 1, 5, ABSENT, i, 65_534, -1, db.text("N/A")]
            for i in range(3)]  # fmt: skip
    db.table("COMMUNICATION_OP", COMMUNICATION, rows)
    profile = db.read()
    [group] = profile.groups
    assert (group.kernel, group.calls) == ("hcom_allReduce_", 3)
    assert {(c.name, c.group, c.bytes) for c in profile.collectives} == {("all_reduce", "", None)}


def test_several_devices(made: Callable[[], Any]) -> None:
    """A collective is on the device of the tasks it is made of; names, clocks and busy time are each device's own."""
    db = made()
    db.kernels([{"start": 0, "end": 100, "deviceId": 3}, {"start": 50, "end": 250, "deviceId": 7}])
    db.fill("TASK", [[BASE + 300, BASE + 310, 7, 5, 90, 77, db.text("SDMA"), ABSENT, 4, 1, ABSENT]])
    db.table("COMMUNICATION_TASK_INFO", ["globalTaskId", "opId"], [[90, 41]])
    row = [db.text("hcom_send__1_0_1"), BASE + 300, BASE + 320, 5, ABSENT, 41, 4, 8, db.text("hcom_send_")]
    db.table("COMMUNICATION_OP", COMMUNICATION, [row])
    db.table("NPU_INFO", ["id", "name"], [[3, "Ascend910B"], [7, "Ascend310P"]])
    clocks = [(3, 0, 800), (3, 100, 1800), (7, 0, 1000), (7, -5, 0), (3, 320, 900)]
    columns = ["deviceId", "timestampNs", "freq"]
    db.table("AICORE_FREQ", columns, [[device, BASE + at, mhz] for device, at, mhz in clocks])
    profile = db.read()
    told = [(d.index, d.name, d.clock_hz, d.busy_ns, d.exposed_communication_ns) for d in profile.devices]
    assert told == [(3, "Ascend910B", 1.8e9, 100, 0), (7, "Ascend310P", 1e9, 220, 20)]
    assert [c.device for c in profile.collectives] == [1]
    assert profile.collectives[0].bytes == 32


def test_copies_that_are_described(made: Callable[[], Any]) -> None:
    """With a size and a direction a copy is a record, beside kernels; it is exposed where no compute runs."""
    db = made()
    db.kernels([{"start": 0, "end": 100}])
    rows = [[BASE + 50, BASE + 150, 0, 5, 60, 77, db.text("MEMCPY_ASYNC"), ABSENT, 3, 1, ABSENT],
            [BASE + 200, BASE + 230, 0, 6, 61, 77, db.text("MEMCPY_ASYNC"), ABSENT, 3, 1, ABSENT]]  # fmt: skip
    db.fill("TASK", rows)
    db.table("MEMCPY_INFO", ["globalTaskId", "size", "memcpyOperation"], [[60, 4096, 1], [61, 512, 1]])
    db.table("ENUM_MEMCPY_OPERATION", ["id", "name"], [[1, "host to device"]])
    profile = db.read()
    [copy] = [g for g in profile.groups if g.category is Category.MEMCPY]
    assert (copy.kernel, copy.calls, copy.total_ns, copy.moved_bytes) == ("Memcpy (host to device)", 2, 130, 4608)
    assert (profile.devices[0].busy_ns, profile.devices[0].exposed_copy_ns) == (180, 80)


def test_host_kernels_keep_their_core(made: Callable[[], Any]) -> None:
    """A kernel on the device's own CPU, and the engine of random numbers."""
    db = made()
    db.kernels([{"start": 0, "end": 100, "taskType": "AI_CPU", "opType": "TopK"},
                {"start": 100, "end": 110, "taskType": "DSA_SQE", "opType": "DSAGenBitMask"}])  # fmt: skip
    assert {(g.kernel, g.core) for g in db.read().groups} == {("TopK", "AI_CPU"), ("DSAGenBitMask", "DSA_SQE")}


def test_rank_and_world(made: Callable[[], Any]) -> None:
    """Rank by the map of ranks to devices, world size by what the framework told."""
    db = made()
    db.kernels([{"start": 0, "end": 100}])
    db.table("RANK_DEVICE_MAP", ["rankId", "deviceId"], [[5, 0]])
    db.table(
        "META_DATA",
        ["name", "value"],
        [["distributed_args", '{"world_size": 16, "rank": 5}'], ["SCHEMA_VERSION", "1.2.0"]],
    )
    profile = db.read()
    assert (profile.rank, profile.world_size, profile.pid) == (5, 16, 77)


@pytest.mark.parametrize("text", ["{", "[16]", '{"world_size": "16"}', '{"world_size": -1}', "[" * 5000, None])
def test_a_world_size_that_is_none(made: Callable[[], Any], text: str | None) -> None:
    """What is no number of ranks is not known."""
    db = made()
    db.kernels([{"start": 0, "end": 100}])
    db.table("META_DATA", ["name", "value"], [["distributed_args", text]])
    assert db.read().world_size is None


def test_what_is_years_away_is_left_out(made: Callable[[], Any]) -> None:
    """A kernel and a call with another clock: counted, and the others keep their links and metrics."""
    db = made()
    away = 400 * 86_400 * 10**9
    db.kernels([
        {"start": 0, "end": 100, "opType": "A", "connectionId": 7},
        {"start": away, "end": away + 5, "opType": "B", "connectionId": 8},
        {"start": 200, "end": 300, "opType": "C", "connectionId": 9},
    ])  # fmt: skip
    rows = [[BASE - 20 + at, BASE - 10 + at, 10_000, 1 << 32, at, db.text("launch")] for at in (7, 9)]
    db.table("CANN_API", ["startNs", "endNs", "type", "globalTid", "connectionId", "name"], rows)
    db.fill("CANN_API", [[5, 6, 10_000, 1 << 32, 8, db.text("launch")]])
    db.table("TASK_PMU_INFO", ["globalTaskId", "name", "value"],
             [[at, db.text("aiv_vec_ratio"), 0.1 * (at + 1)] for at in range(3)])  # fmt: skip
    profile = db.read()
    assert profile.dropped["bad_time"] == 2
    assert {g.kernel: g.pipes and round(g.pipes.vec_ns or 0) for g in profile.groups} == {"A": 10, "C": 30}
    assert profile.duration_ns < 1000


def test_a_database_that_lost_most_says_so(made: Callable[[], Any]) -> None:
    """Three descriptions of kernels, one task: the answer holds one record, and a sentence."""
    db = made()
    db.kernels([{"start": 0, "end": 10}, {"start": 20, "end": 30}, {"start": 40, "end": 50}])
    db.connection.execute("delete from TASK where rowid > 2")
    assert db.read().problem is None  # two of three
    db.connection.execute("delete from TASK where rowid > 1")
    profile = db.read()
    assert sum(g.calls for g in profile.groups) == 1
    assert profile.problem == f"{db.path}: most of its records cannot be used (2 without task)."
