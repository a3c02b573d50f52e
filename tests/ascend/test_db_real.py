"""Real databases of Ascend's profilers: sums against a slow reading of the same file, and against the vendor's own."""

from __future__ import annotations

import csv
import os
import shutil
import sqlite3
from collections import Counter, defaultdict
from pathlib import Path

import pytest

from roofwatch.collectors.base import RawProfile
from roofwatch.collectors.registry import read
from roofwatch.model.kinds import Kind, kind_of_kernel
from roofwatch.model.record import Phase

PIPES = {
    "mac_ns": "aic_mac_ratio", "cube_scalar_ns": "aic_scalar_ratio", "mte1_ns": "aic_mte1_ratio",
    "cube_mte2_ns": "aic_mte2_ratio", "fixpipe_ns": "aic_fixpipe_ratio", "vec_ns": "aiv_vec_ratio",
    "vector_scalar_ns": "aiv_scalar_ratio", "vector_mte2_ns": "aiv_mte2_ratio", "mte3_ns": "aiv_mte3_ratio",
}  # fmt: skip
LEVELS = ("level0/rank0", "level1/rank0", "level1/rank1", "level2/rank0")


@pytest.fixture(scope="module")
def alexnet(traces: Path) -> Path:
    """The folder of AlexNet's databases."""
    return traces / "ascend" / "pytorch_alexnet_910B_ddp2" / "db"


def database_of(alexnet: Path, level: str) -> Path:
    """The one large database of a rank."""
    folder = alexnet / f"{level}_ascend_pt" / "ASCEND_PROFILER_OUTPUT"
    return next(folder.glob("ascend_pytorch_profiler_*.db"))


def opened(path: Path) -> sqlite3.Connection:
    """A connection that leaves no trace."""
    return sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True)


def rows_of(path: Path, sql: str) -> list[tuple]:
    """The rows of a query."""
    with opened(path) as connection:
        return connection.execute(sql).fetchall()


def texts_of(path: Path) -> dict[int, str]:
    """All texts by id."""
    return dict(rows_of(path, "select id,value from STRING_IDS"))


def slow_union(spans: list[tuple[int, int]]) -> int:
    """The length of a union, one span after the other."""
    total, reach = 0, 0
    for start, end in sorted(spans):
        total += max(0, end - max(start, reach))
        reach = max(reach, end)
    return total


@pytest.mark.parametrize("level", LEVELS)
def test_every_level_has_its_kernels_and_collectives(alexnet: Path, level: str) -> None:
    """187 compute tasks and 4 all-reduces, no matter how much was recorded, nor that Insight wrote into the file."""
    profile = read(database_of(alexnet, level))
    compute = [g for g in profile.groups if g.core != "COMMUNICATION"]
    collective = [g for g in profile.groups if g.core == "COMMUNICATION"]
    assert sum(g.calls for g in compute) == 187
    assert sum(g.calls for g in collective) == 4
    assert {g.kernel for g in collective} == {"hcom_allReduce_"}
    assert all(kind_of_kernel(g.kernel) is Kind.COMM for g in collective)
    assert (profile.steps, profile.rank) == (1, int(level[-1]))
    assert profile.problem is None
    assert profile.dropped == {}


@pytest.mark.parametrize("level", LEVELS[1:])
def test_sums_by_type_shape_and_core(alexnet: Path, level: str) -> None:
    """Calls, time, shortest, longest and blocks of each sort of kernel, against one row at a time."""
    path = database_of(alexnet, level)
    text = texts_of(path)
    slow: dict[tuple, list[int]] = defaultdict(list)
    blocks: dict[tuple, list[int]] = defaultdict(list)
    for kind, shapes, core, block, start, end in rows_of(
        path,
        "select opType,inputShapes,c.taskType,blockDim,startNs,endNs from COMPUTE_TASK_INFO c "
        "join TASK using(globalTaskId)",
    ):
        dims = text[shapes].strip('"')
        listed = [[int(n) for n in part.split(",") if n] for part in dims.split(";")] if dims != "N/A" else None
        key = (text[kind], str(listed).replace(" ", "") if listed is not None else None, text[core])
        slow[key].append(end - start)
        blocks[key].append(block)
    fast: dict[tuple, list] = defaultdict(lambda: [0, 0, 1 << 62, 0, 1 << 62])
    for g in read(path).groups:
        if g.core == "COMMUNICATION":
            continue
        total = fast[g.type, g.shapes, g.core]
        total[0] += g.calls
        total[1] += g.total_ns
        total[2] = min(total[2], g.min_ns)
        total[3] = max(total[3], g.max_ns)
        total[4] = min(total[4], 1 << 62 if g.blocks is None else g.blocks)
    expected = {k: [len(v), sum(v), min(v), max(v), min(b for b in blocks[k] if b) if any(blocks[k]) else 1 << 62]
                for k, v in slow.items()}  # fmt: skip
    assert dict(fast) == expected
    assert len(expected) > 60


@pytest.mark.parametrize("level", LEVELS[1:])
def test_pipes_against_one_metric_at_a_time(alexnet: Path, level: str) -> None:
    """Ratio × duration, summed by type of kernel in Python from all metric rows."""
    path = database_of(alexnet, level)
    text = texts_of(path)
    kinds, lasted = {}, {}
    for task, kind, start, end in rows_of(
        path, "select globalTaskId,opType,startNs,endNs from COMPUTE_TASK_INFO join TASK using(globalTaskId)"
    ):
        kinds[task], lasted[task] = text[kind], end - start
    slow: dict[str, Counter] = defaultdict(Counter)
    measured: dict[str, set] = defaultdict(set)
    for task, name, value in rows_of(path, "select globalTaskId,name,value from TASK_PMU_INFO"):
        slow[kinds[task]][text[name]] += value * lasted[task]
        measured[kinds[task]].add(task)
    assert sum(map(len, measured.values())) == 185  # all but the two of the random number engine
    fast: dict[str, Counter] = defaultdict(Counter)
    for g in read(path).groups:
        if g.pipes is None:
            assert g.type in ("DSAGenBitMask", "hcom_allReduce_")
            continue
        assert g.pipes.measured_ns == g.total_ns
        assert g.pipes.occupied_ns is None  # this metric set has no such row
        fast[g.type]["measured"] += g.pipes.measured_ns
        for field in PIPES:
            fast[g.type][field] += getattr(g.pipes, field)
    for kind, sums in fast.items():
        assert sums["measured"] == sum(lasted[task] for task in measured[kind])
        for field, metric in PIPES.items():
            assert sums[field] == pytest.approx(slow[kind][metric], rel=1e-12, abs=1e-6)
    assert fast["MatMulV2"]["mac_ns"] > 0
    assert fast["TransData"]["mac_ns"] == 0  # a vector kernel does nothing on the cube, and that was measured
    assert set(fast) == set(measured)


@pytest.mark.parametrize("level", LEVELS[1:])
def test_busy_and_exposed_time_are_the_vendors_own(alexnet: Path, level: str) -> None:
    """Compute and communication that no compute hides, to the nanosecond, as the vendor's analysis has them (in µs)."""
    path = database_of(alexnet, level)
    [(computing, exposed, free_or_preparing)] = rows_of(
        path.with_name("analysis.db"), "select computing,communication_not_overlapped,free from StepTraceTime"
    )
    [device] = read(path).devices
    assert device.exposed_communication_ns == round(exposed * 1000)
    assert device.busy_ns == round(computing * 1000) + round(exposed * 1000)
    assert sum(cause.total_ns for cause in device.causes) == device.span_ns - device.busy_ns
    assert free_or_preparing > 0
    spans = rows_of(path, "select startNs,endNs from COMPUTE_TASK_INFO join TASK using(globalTaskId)")
    collectives = rows_of(path, "select startNs,endNs from COMMUNICATION_OP")
    assert device.busy_ns == slow_union(spans + collectives)
    assert device.busy_ns < sum(end - start for start, end in spans + collectives)  # they overlap
    assert (device.vendor, device.name, device.clock_hz) == ("ascend", "Ascend910B", 1.8e9)


@pytest.mark.parametrize("level", LEVELS)
def test_each_kernel_is_tied_to_the_op_that_launched_it(alexnet: Path, level: str) -> None:
    """By connection id, one record at a time: the innermost op with inputs around the one that the id stands for."""
    path = database_of(alexnet, level)
    text = texts_of(path)
    ops = rows_of(
        path,
        "select cast(startNs as int),cast(endNs as int),globalTid,name,connectionId,inputShapes from PYTORCH_API "
        "where type=50001",
    )
    numbers = defaultdict(list)
    for number, connection in rows_of(path, "select id,connectionId from CONNECTION_IDS"):
        numbers[connection].append(number)
    records = rows_of(path, "select t.connectionId,c.name,1 from COMPUTE_TASK_INFO c join TASK t using(globalTaskId)")
    slow: Counter = Counter()
    for connection, _, _ in [*records, *rows_of(path, "select connectionId,opName,1 from COMMUNICATION_OP")]:
        [launch] = [op for op in ops if op[4] in numbers[connection] and op[4] is not None]
        around = [op for op in ops if op[2] == launch[2] and op[0] <= launch[0] <= op[1] and op[5] is not None
                  and not text[op[3]].startswith("Hccl")]  # fmt: skip
        slow[text[max(around)[3]]] += 1
    profile = read(path)
    fast: Counter = Counter()
    for g in profile.groups:
        assert g.linked
        assert not g.backlog
        fast[g.op] += g.calls
    assert fast.total() == slow.total() == 191
    assert fast["c10d::allreduce_"] == 4
    # The two kernels of aten::ones, which no formula counts, stand for the losses that asked for them.
    assert slow - fast == Counter({"aten::ones": 2})
    assert fast - slow == Counter({"aten::nll_loss_forward": 1, "aten::nll_loss_backward": 1})


def test_phases_and_steps(alexnet: Path) -> None:
    """The foreach kernels are the optimizer's, gradients are of the backward pass; all are in the one step."""
    profile = read(database_of(alexnet, "level1/rank1"))
    phases = defaultdict(set)
    for g in profile.groups:
        phases[g.kernel].add(g.phase)
    assert phases["ForeachAddList"] == phases["ForeachMulScalar"] == {Phase.OPTIMIZER}
    for kernel in ("Conv2DBackpropFilter", "Conv2DBackpropInput", "ReluGrad", "MaxPoolGradWithArgmaxV1", "NLLLossGrad"):
        assert phases[kernel] == {Phase.BACKWARD}, kernel
    assert phases["Conv2D"] == phases["LogSoftmaxV2"] == {Phase.FORWARD}
    assert sum(g.step_calls for g in profile.groups) == 191
    assert profile.step_ns == (148_265_420,)
    assert {g.module for g in profile.groups if g.kernel == "Conv2D"} == {
        "DistributedDataParallel.AlexNet.Sequential.Conv2d"
    }


def test_a_collective_has_its_message(alexnet: Path) -> None:
    """Four buckets of gradients, in elements of four bytes, on a group with one name for both ranks."""
    found = [read(database_of(alexnet, f"level1/rank{rank}")).collectives for rank in (0, 1)]
    for entries in found:
        assert [c.bytes for c in entries] == [4 * n for n in (4_097_000, 16_781_312, 37_752_832, 2_469_696)]
        assert {c.name for c in entries} == {"all_reduce"}
    assert {c.group for c in found[0]} == {c.group for c in found[1]} != {""}
    assert [c.duration_ns for c in found[1]] == [85_233_843, 2_179_243, 2_407_868, 8_769_236]


def test_levels_and_text_agree_in_kernels(alexnet: Path) -> None:
    """The same program: types counted from the text, from Level1, and from the names that are all Level0 has."""
    counts = []
    for level in LEVELS:
        count: Counter = Counter()
        for g in read(database_of(alexnet, level)).groups:
            count[g.kernel] += g.calls
        counts.append(count)
    table = alexnet.parent / "text" / "level1" / "rank0_ascend_pt" / "ASCEND_PROFILER_OUTPUT" / "kernel_details.csv"
    with table.open(newline="") as file:
        told = Counter(row["Type"] for row in csv.DictReader(file))
    assert counts[0] == counts[1] == counts[2] == counts[3] == told


def test_levels_tell_what_they_tell(alexnet: Path) -> None:
    """Level0 has neither shapes nor pipes; types are told by names, cores by what the device says where it is clear."""
    zero, one = (read(database_of(alexnet, level)).groups for level in ("level0/rank0", "level1/rank0"))
    kernels = [g for g in zero if g.core != "COMMUNICATION"]
    assert {g.shapes for g in kernels} == {g.pipes for g in kernels} == {g.blocks for g in kernels} == {None}
    assert {g.core for g in kernels} == {None, "AI_VECTOR_CORE", "MIX_AIV"}
    conv = [g for g in one if g.kernel == "Conv2D"]
    assert {g.formats for g in conv} == {'["NC1HWC0","FRACTAL_Z","NCHW"]'}
    assert conv[0].outputs is not None
    assert conv[0].outputs.endswith(',["FLOAT"],["NC1HWC0"]]')


def test_an_old_database_of_msprof(traces: Path) -> None:
    """Eight devices are named, one has records; no host to speak of, tables that were renamed by hand."""
    profile = read(traces / "ascend" / "old_versions" / "msprof_0_fulldb.db")
    assert sum(g.calls for g in profile.groups) == 11
    assert [(d.name, d.index) for d in profile.devices] == [("Ascend910B", 2)]
    assert not profile.has_host_events
    assert not any(g.linked for g in profile.groups)
    assert profile.steps is None
    assert {g.blocks for g in profile.groups} == {1, 2, 4, 5, 48, 94}


@pytest.mark.parametrize(("rank", "rows"), [(0, 15), (1, 15), (2, 23), (3, 23)])
def test_an_analysis_alone_gives_its_collectives(traces: Path, rank: int, rows: int) -> None:
    """Without kernels: as many collectives as are listed, busy as long as the vendor says."""
    folder = (
        traces / "ascend" / "qwen3_0.6b_910B_tp1pp2dp2_level2" / f"rank_{rank}_ascend_pt" / "ASCEND_PROFILER_OUTPUT"
    )
    profile = read(folder / "analysis.db")
    assert sum(g.calls for g in profile.groups) == len(profile.collectives) == rows
    [(communication, device)] = rows_of(folder / "analysis.db", "select communication,deviceId from StepTraceTime")
    assert profile.devices[0].busy_ns == pytest.approx(communication * 1000, abs=2000)
    assert profile.devices[0].index == device
    assert profile.steps == 1
    assert profile.problem is not None
    assert "none of its kernels" in profile.problem


def same(left: RawProfile, right: RawProfile) -> bool:
    """Whether two readings account for the same."""
    return left.groups == right.groups and left.devices == right.devices and left.collectives == right.collectives


def test_a_descriptor_is_read_without_any_path(alexnet: Path, tmp_path: Path) -> None:
    """A file that has no name any more, as an agent gets it, and one that stands where it was written to."""
    path = database_of(alexnet, "level1/rank1")
    copy = tmp_path / "copy.db"
    shutil.copyfile(path, copy)
    expected = read(path)
    with copy.open("rb") as file:
        copy.unlink()
        os.lseek(file.fileno(), 4096, os.SEEK_SET)
        assert same(read(file.fileno()), expected)
        assert same(read(file), expected)
    assert list(tmp_path.iterdir()) == []


def test_a_write_ahead_log_is_read_where_there_is_one(alexnet: Path, tmp_path: Path) -> None:
    """What was written after the last checkpoint counts; nothing is left beside a file that is finished."""
    path = tmp_path / "wal.db"
    shutil.copyfile(database_of(alexnet, "level1/rank1"), path)
    writer = sqlite3.connect(path)
    writer.execute("pragma journal_mode=wal")
    assert sum(g.calls for g in read(path).groups) == 191
    writer.execute("pragma wal_autocheckpoint=0")
    writer.execute("delete from COMMUNICATION_OP where opId=1")
    writer.commit()
    assert sum(g.calls for g in read(path).groups) == 190
    writer.close()
    assert [one.name for one in tmp_path.iterdir()] == ["wal.db"]
    path.chmod(0o444)
    assert sum(g.calls for g in read(path).groups) == 190
    with path.open("rb") as file:
        assert sum(g.calls for g in read(file.fileno()).groups) == 190
    assert [one.name for one in tmp_path.iterdir()] == ["wal.db"]


def test_bounds_of_a_live_window_are_its_span(alexnet: Path) -> None:
    """The window begins and ends where who took it says, though nothing was recorded there."""
    path = database_of(alexnet, "level1/rank1")
    free = read(path)
    low, high = free.start_unix_ns - 5_000_000, free.start_unix_ns + free.duration_ns + 7_000_000
    taken = read(path, bounds=(low, high))
    assert (taken.start_unix_ns, taken.duration_ns) == (low, high - low)
    assert taken.devices[0].span_ns == high - low
    assert taken.devices[0].busy_ns == free.devices[0].busy_ns
    assert taken.steps is None
    assert sum(g.step_calls for g in taken.groups) == 191
