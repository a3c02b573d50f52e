"""Real ``kernel_details.csv`` and ``op_summary`` files, against a slow reading of the same rows."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from ascend_tables import ns, rows_of, slow_busy

from roofwatch.collectors.base import RawProfile
from roofwatch.collectors.registry import read

ALEXNET = "pytorch_alexnet_910B_ddp2/text"
OUTPUT = "ASCEND_PROFILER_OUTPUT/kernel_details.csv"
# File → compute rows, collectives, damaged rows: as the data's own description says and grep counts.
COUNTS = {
    f"{ALEXNET}/level0/rank0_ascend_pt/{OUTPUT}": (187, 4, 0),
    f"{ALEXNET}/level1/rank0_ascend_pt/{OUTPUT}": (187, 4, 0),
    f"{ALEXNET}/level1/rank1_ascend_pt/{OUTPUT}": (187, 4, 0),
    f"{ALEXNET}/level2/rank0_ascend_pt/{OUTPUT}": (187, 4, 0),
    f"qwen3_0.6b_910B_tp1pp2dp2_level2/rank_0_ascend_pt/{OUTPUT}": (2448, 15, 0),
    f"qwen3_0.6b_910B_tp1pp2dp2_level2/rank_2_ascend_pt/{OUTPUT}": (2564, 23, 0),
    "old_versions/kernel_details_2023-09_MemoryL0_rank0.csv": (16, 4, 1),
    "old_versions/op_summary_2023_old.csv": (16, 4, 1),
}
LEVEL0 = f"{ALEXNET}/level0/rank0_ascend_pt/{OUTPUT}"
LEVEL1 = f"{ALEXNET}/level1/rank0_ascend_pt/{OUTPUT}"
QWEN = f"qwen3_0.6b_910B_tp1pp2dp2_level2/rank_0_ascend_pt/{OUTPUT}"
OLD = "old_versions/kernel_details_2023-09_MemoryL0_rank0.csv"
PIPES = {
    "mac_ns": "aic_mac_ratio", "cube_scalar_ns": "aic_scalar_ratio", "mte1_ns": "aic_mte1_ratio",
    "cube_mte2_ns": "aic_mte2_ratio", "fixpipe_ns": "aic_fixpipe_ratio", "vec_ns": "aiv_vec_ratio",
    "vector_scalar_ns": "aiv_scalar_ratio", "vector_mte2_ns": "aiv_mte2_ratio", "mte3_ns": "aiv_mte3_ratio",
}  # fmt: skip
NAMES = {"Op Name": "Name", "OP Type": "Type", "Task Type": "Accelerator Core", "Task Duration(us)": "Duration(us)"}


def slow_rows(path: Path) -> list[dict[str, str]]:
    """A table's rows under one set of names."""
    return [{NAMES.get(name, name): cell for name, cell in row.items()} for row in rows_of(path)]


def is_collective(row: dict[str, str]) -> bool:
    """Whether a row is a collective, by the older or the newer word."""
    return row["Accelerator Core"] in ("HCCL", "COMMUNICATION")


def calls(profile: RawProfile) -> tuple[int, int]:
    """Compute records and collectives."""
    collectives = sum(group.calls for group in profile.groups if group.core == "COMMUNICATION")
    return sum(group.calls for group in profile.groups) - collectives, collectives


@pytest.mark.parametrize("table", COUNTS)
def test_records_times_and_span(traces: Path, table: str) -> None:
    """As many records as rows; their time, the device's span and its busy time (a union) are those of the rows."""
    path = traces / "ascend" / table
    profile, rows = read(path), slow_rows(path)
    compute, collectives, damaged = COUNTS[table]
    assert calls(profile) == (compute, collectives)
    assert profile.events_read == compute + collectives + damaged
    assert profile.dropped == ({"damaged_row": damaged} if damaged else {})
    assert (profile.problem is None) == (damaged == 0)
    spans = [(ns(row["Start Time(us)"]), ns(row["Start Time(us)"]) + ns(row["Duration(us)"])) for row in rows]
    (device,) = profile.devices
    assert sum(group.total_ns for group in profile.groups) == sum(end - start for start, end in spans)
    assert profile.start_unix_ns == min(start for start, _ in spans)
    assert device.span_ns == profile.duration_ns == max(end for _, end in spans) - min(start for start, _ in spans)
    assert device.busy_ns == slow_busy(spans)
    compute_spans = [span for span, row in zip(spans, rows, strict=True) if not is_collective(row)]
    assert device.exposed_communication_ns == device.busy_ns - slow_busy(compute_spans)
    assert sum(cause.total_ns for cause in device.causes) == device.span_ns - device.busy_ns
    assert profile.steps == 1
    assert sum(group.step_calls for group in profile.groups) == compute + collectives


@pytest.mark.parametrize("table", [path for path in COUNTS if path != LEVEL0])
def test_kernels_by_type_core_and_blocks(traces: Path, table: str) -> None:
    """Calls and time of each type on each core, and the smallest number of blocks, as in the rows."""
    path = traces / "ascend" / table
    slow: Counter[tuple[str, str]] = Counter()
    times: Counter[tuple[str, str]] = Counter()
    blocks: dict[tuple[str, str], int | None] = {}
    for row in slow_rows(path):
        sort = row["Type"] if row["Type"] != "0" else "MemSet"  # what is named NonZero_MemSet and has no type
        key = (sort, "COMMUNICATION" if is_collective(row) else row["Accelerator Core"])
        slow[key] += 1
        times[key] += ns(row["Duration(us)"])
        count = int(row["Block Dim"]) or None
        blocks[key] = min(filter(None, (blocks.get(key), count)), default=None)
    found: Counter[tuple[str, str]] = Counter()
    found_times: Counter[tuple[str, str]] = Counter()
    found_blocks: dict[tuple[str, str], int | None] = {}
    for group in read(path).groups:
        key = (group.type or "", group.core or "")
        found[key] += group.calls
        found_times[key] += group.total_ns
        found_blocks[key] = min(filter(None, (found_blocks.get(key), group.blocks)), default=None)
    assert found == slow
    assert found_times == times
    assert found_blocks == blocks


@pytest.mark.parametrize("table", [LEVEL1, QWEN])
def test_pipes_are_ratio_times_duration(traces: Path, table: str) -> None:
    """Each pipe's time of all records of a type is the sum of ratio × duration; occupation is told in per cent."""
    path = traces / "ascend" / table
    slow: Counter[tuple[str, str]] = Counter()
    for row in slow_rows(path):
        for field, column in {**PIPES, "occupied_ns": "cube_utilization(%)"}.items():
            if row[column] != "N/A":
                share = float(row[column]) / (100 if field == "occupied_ns" else 1)
                slow[row["Type"], field] += share * ns(row["Duration(us)"])
    found: Counter[tuple[str, str]] = Counter()
    for group in read(path).groups:
        if group.core in ("COMMUNICATION", "DSA_SQE"):  # which are on no core that has counters
            assert group.pipes is None
            continue
        assert group.pipes is not None
        assert group.pipes.measured_ns == group.total_ns
        for field in (*PIPES, "occupied_ns"):
            value = getattr(group.pipes, field)
            assert value is not None
            found[group.type or "", field] += value
    assert set(found) == set(slow)
    for key, value in slow.items():
        assert found[key] == pytest.approx(value, rel=1e-6, abs=1e-3), key


def test_a_matrix_product_of_the_qwen_set(traces: Path) -> None:
    """Cells looked up by hand: shapes, dtypes, formats and outputs of the MLP's first product."""
    groups = [g for g in read(traces / "ascend" / QWEN).groups if g.shapes == "[[4096,1024],[6144,1024]]"]
    assert sum(group.calls for group in groups) == 28
    for group in groups:
        assert (group.type, group.core, group.kernel, group.blocks) == ("MatMulV3", "AI_CORE", "MatMulV3", 20)
        assert group.dtypes == '["DT_BF16","DT_BF16"]'
        assert group.formats == '["ND","ND"]'
        assert group.outputs == '[[[4096,6144]],["DT_BF16"],["ND"]]'
        assert not group.linked


def test_known_check_of_the_qwen_set(traces: Path) -> None:
    """FLOPs ÷ (duration × 20 × 1650 MHz × 8192) is the mac ratio × occupation, within 0.03, for 2-D products.

    So shapes, durations and pipes of a group belong together, and clock and cores are recovered from cycles.
    """
    profile = read(traces / "ascend" / QWEN)
    (device,) = profile.devices
    assert (device.units, device.clock_hz) == (20, 1.65e9)
    checked = 0
    for group in profile.groups:
        if group.type != "MatMulV3" or group.shapes is None or group.shapes.count("[") != 3 or group.pipes is None:
            continue
        (m, n), inner = sides_of(group.outputs), inner_of(group.shapes, group.outputs)
        assert group.pipes.mac_ns is not None
        assert group.pipes.occupied_ns is not None
        reached = 2 * m * n * inner / (group.total_ns / group.calls * 1e-9 * 20 * 1650e6 * 8192)
        told = group.pipes.mac_ns / group.total_ns * group.pipes.occupied_ns / group.total_ns
        assert reached == pytest.approx(told, abs=0.03), group
        checked += group.calls
    assert checked == 280


def sides_of(outputs: str | None) -> tuple[int, int]:
    """M and N of a product, from its output's shape."""
    words = (outputs or "").replace("[", "").split("]")[0].split(",")
    return int(words[0]), int(words[1])


def inner_of(shapes: str, outputs: str | None) -> int:
    """The inner dimension: what both inputs have beside M and N."""
    numbers = [int(word) for word in shapes.replace("[", "").replace("]", "").split(",")]
    m, n = sides_of(outputs)
    return round((numbers[0] * numbers[1] * numbers[2] * numbers[3] / (m * n)) ** 0.5)


@pytest.mark.parametrize("rank", [0, 2])
def test_step_times_of_the_qwen_set(traces: Path, rank: int) -> None:
    """``step_trace_time.csv`` has computing, and communicating alone: together the busy time."""
    folder = traces / f"ascend/qwen3_0.6b_910B_tp1pp2dp2_level2/rank_{rank}_ascend_pt/ASCEND_PROFILER_OUTPUT"
    (row,) = rows_of(folder / "step_trace_time.csv")
    (device,) = read(folder / "kernel_details.csv").devices
    exposed = float(row["Communication(Not Overlapped)"]) * 1000
    assert device.exposed_communication_ns == pytest.approx(exposed, abs=1)
    assert device.busy_ns == pytest.approx(float(row["Computing"]) * 1000 + exposed, abs=1)


def test_clock_and_cores_of_the_alexnet_set(traces: Path) -> None:
    """24 cube cores at 1800 MHz: 8990318 cycles on 16 blocks in 312.164 µs, 66.301 % of 24 cores in 313.886 µs."""
    assert pytest.approx(1.8e9, rel=1e-4) == 8990318 / (16 * 312.164e-6)
    assert pytest.approx(24, rel=1e-3) == 8990318 / (1.8e9 * 0.66301 * 313.886e-6)
    (device,) = read(traces / "ascend" / LEVEL1).devices
    assert (device.vendor, device.units, device.clock_hz) == ("ascend", 24, 1.8e9)


def test_level0_tells_types_by_name(traces: Path) -> None:
    """Without types the kernels are those of Level1 by their names; nothing is told of cores, shapes and pipes."""
    by_name = Counter[str]()
    for group in read(traces / "ascend" / LEVEL0).groups:
        by_name[group.kernel] += group.calls
        if group.kernel != "hcom_allReduce_":
            assert (group.core, group.shapes, group.formats, group.outputs, group.pipes) == (None,) * 5
    by_type = Counter[str]()
    for group in read(traces / "ascend" / LEVEL1).groups:
        by_type[group.kernel] += group.calls
    assert by_name == by_type
    assert by_type["TransData"] == 57


def test_what_the_framework_put_in(traces: Path) -> None:
    """Relayouts before convolutions (``trans_…``) and inside other calls; a cast that was asked for is none."""
    groups = read(traces / "ascend" / LEVEL1).groups
    inserted = Counter[tuple[str, bool]]()
    for group in groups:
        if group.kernel in ("TransData", "Transpose", "Cast"):
            inserted[group.kernel, group.inserted] += group.calls
    rows = [row for row in slow_rows(traces / "ascend" / LEVEL1) if row["Type"] in ("TransData", "Transpose", "Cast")]
    wanted = [row["Name"].startswith(("aclnnCast_", "aclnnInplaceCopy_")) for row in rows]
    assert inserted == Counter((row["Type"], not own) for row, own in zip(rows, wanted, strict=True))
    assert inserted["TransData", True] == 57
    hf32 = {group.kernel: group.hf32 for group in groups if group.kernel in ("Conv2D", "TransData", "MatMulV2")}
    assert hf32 == {"Conv2D": True, "TransData": False, "MatMulV2": False}


def test_both_names_of_an_old_table_say_the_same(traces: Path) -> None:
    """A ``kernel_details`` of 2023 and its ``op_summary`` have the same rows under different names."""
    first = read(traces / "ascend" / OLD)
    second = read(traces / "ascend" / "old_versions/op_summary_2023_old.csv")
    assert first.groups == second.groups
    assert first.devices == second.devices


def test_rows_of_2023(traces: Path) -> None:
    """Whole microseconds, AI_CPU and DSA rows, scalars in empty quotes, a missing type, older words."""
    profile = read(traces / "ascend" / OLD)
    assert profile.start_unix_ns == 1_695_115_378_713_661_000
    groups = {(group.kernel, group.shapes): group for group in profile.groups}
    cast = groups["Cast", "[[]]"]
    assert (cast.core, cast.calls, cast.dtypes, cast.outputs) == (
        "AI_CPU",
        2,
        '["INT32"]',
        '[[[]],["UINT64"],["FORMAT_ND"]]',
    )
    masks = [group for group in profile.groups if group.shapes == "[[1],[],[1],[2]]"]
    assert sorted((mask.type, mask.core, mask.total_ns) for mask in masks) == [
        ("DSAStatelessGenBitMask", "DSA_SQE", 83_278), ("DSAStatelessGenBitMask", "DSA_SQE", 5_260_932)
    ]  # fmt: skip
    clears = [group for group in profile.groups if group.kernel == "MemSet"]
    assert [(group.calls, group.blocks, group.shapes) for group in clears] == [(2, None, None)]
    assert [one.name for one in profile.collectives] == ["broadcast", "broadcast", "all_reduce", "all_gather"]
