"""Traps of Ascend's tables, each on a table written by hand."""

from __future__ import annotations

import dataclasses
import gzip
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from ascend_tables import DEFAULTS, LEVEL0, LEVEL1, START, line, only, read_bytes, table

from roofwatch.collectors.ascend.csv_head import head_of
from roofwatch.collectors.registry import read
from roofwatch.model.errors import RoofwatchError

SECOND = {"Start Time(us)": f"{START + 20}.000\t"}
COLLECTIVE = {
    "Name": "hcom_allReduce__586_0_1", "Type": "hcom_allReduce_", "Accelerator Core": "COMMUNICATION",
    "Block Num": "0", "Input Shapes": "N/A", "Input Data Types": "N/A", "Input Formats": "N/A", "Output Shapes": "N/A",
}  # fmt: skip


def test_one_row() -> None:
    """Every cell where it belongs."""
    profile = read_bytes(table({"aic_mac_ratio": "0.8", "cube_utilization(%)": "50", "HF32 Eligible": "YES"}))
    group = only(profile)
    assert (group.kernel, group.type, group.core, group.blocks) == ("MatMulV3", "MatMulV3", "AI_CORE", 24)
    assert (group.shapes, group.dtypes) == ("[[16,32],[32,8]]", '["DT_BF16","DT_BF16"]')
    assert (group.formats, group.outputs) == ('["ND","FRACTAL_NZ"]', '[[[16,8]],["DT_BF16"],["ND"]]')
    assert (group.calls, group.total_ns, group.step_calls, group.hf32) == (1, 10_500, 1, True)
    assert group.pipes is not None
    assert (group.pipes.mac_ns, group.pipes.occupied_ns) == (pytest.approx(8_400), pytest.approx(5_250))
    assert group.pipes.vec_ns is None  # N/A in its only row
    assert (profile.start_unix_ns, profile.duration_ns) == (START * 1000, 10_500)
    assert (profile.collector, profile.steps, profile.events_read) == ("ascend_csv", 1, 1)
    assert not profile.has_host_events
    assert profile.shapes_recorded


@pytest.mark.parametrize("cell", [f"{START}\t", f" {START}.000", f"{START}.000\t\t", f'"{START}"', f"{START}.0"])
def test_start_times(cell: str) -> None:
    """Trailing tabs, blanks, quotes, and whole microseconds as in 2023."""
    assert read_bytes(table({"Start Time(us)": cell})).start_unix_ns == START * 1000


@pytest.mark.parametrize(
    ("cell", "shapes"),
    [
        ('"512,16;8,2048,16;;;"', "[[512,16],[8,2048,16],[],[],[]]"),
        ("512,16", "[[512,16]]"),
        ('""', "[[]]"),  # one scalar
        ("", None),
        ("N/A", None),
        ('"12,x"', None),
        ('"-1,5"', None),
        ('"99999999999999999999"', None),
        ('"' + ";".join(["1,2"] * 5000) + '"', None),  # longer than any real list
    ],
)
def test_shapes(cell: str, shapes: str | None) -> None:
    """Quotes inside quotes, scalars, what is absent and what is damaged."""
    assert only(read_bytes(table({"Input Shapes": cell}))).shapes == shapes


@pytest.mark.parametrize(
    ("blocks", "told"),
    [("24", 24), ("0", None), ("", None), ("N/A", None), ("4294967295", None), ("65534", None), ("24.0", 24),
     ("x", None), ("-3", None), ("9999999999999", None)],
)  # fmt: skip
def test_blocks(blocks: str, told: int | None) -> None:
    """A number of blocks, and all that stands for none."""
    assert only(read_bytes(table({"Block Num": blocks}))).blocks == told


def test_block_dim_beside_block_num_is_something_else() -> None:
    """Where both stand, the older name means the threads of a block; alone it means the blocks."""
    both = (*LEVEL0[:-1], "Block Dim", "Block Num")
    assert only(read_bytes(table({"Block Dim": "7", "Block Num": "24"}, columns=both))).blocks == 24
    assert only(read_bytes(table({"Block Dim": "7"}, columns=LEVEL0))).blocks == 7
    num = (*LEVEL0[:-1], "Block Num")
    assert only(read_bytes(table({"Block Num": ""}, columns=num))).blocks is None  # a mix of versions


@pytest.mark.parametrize(
    ("name", "type_", "kernel", "told"),
    [
        ("aclnnAdd_AddAiCore_Add", "N/A", "Add", "Add"),
        ("trans_TransData_0", "N/A", "TransData", "TransData"),
        ("Conv2D1", "N/A", "Conv2D", "Conv2D"),
        ("NonZero_MemSet", "0", "MemSet", "MemSet"),
        ("my_kernel", "N/A", "my_kernel", None),
        ("my_kernel", "", "my_kernel", None),
        ("anything", "MatMulV2", "MatMulV2", "MatMulV2"),
    ],
)
def test_types(name: str, type_: str, kernel: str, told: str | None) -> None:
    """A missing type, and "0" for one, is told by the name where that can."""
    group = only(read_bytes(table({"Name": name, "Type": type_})))
    assert (group.kernel, group.type) == (kernel, told)


@pytest.mark.parametrize("core", ["HCCL", "COMMUNICATION", "N/A"])
def test_collectives(core: str) -> None:
    """By the older and the newer word for their core, and by their name; calls of one sort are one kernel."""
    rows = [{**COLLECTIVE, "Accelerator Core": core, "Name": f"hcom_allReduce__586_{i}_1", "Type": "N/A",
             "Start Time(us)": f"{START + 20 * i}"} for i in range(3)]  # fmt: skip
    profile = read_bytes(table(*rows))
    group = only(profile)
    assert (group.kernel, group.core, group.calls, group.blocks) == ("hcom_allReduce_", "COMMUNICATION", 3, None)
    assert json.loads(group.arguments or "") == {"collective": "all_reduce"}
    assert [one.start_unix_ns for one in profile.collectives] == [0, 20_000, 40_000]
    assert profile.devices[0].exposed_communication_ns == profile.devices[0].busy_ns == 3 * 10_500


def test_busy_is_a_union() -> None:
    """A collective of 100 µs over a kernel of 10.5 µs: 100 busy, 89.5 of it exposed, 110.5 of device time."""
    profile = read_bytes(table({}, {**COLLECTIVE, "Start Time(us)": f"{START - 50}.000", "Duration(us)": "100"}))
    (device,) = profile.devices
    assert (device.busy_ns, device.exposed_communication_ns) == (100_000, 89_500)
    assert sum(group.total_ns for group in profile.groups) == 110_500
    assert device.causes == ()


def test_idle_is_unknown_without_a_host() -> None:
    """Two kernels 9 µs apart: why the device waited is not told, and said so."""
    (device,) = read_bytes(table({"Duration(us)": "11"}, {**SECOND, "Type": "Add"})).devices
    (cause,) = device.causes
    assert (cause.cause, cause.total_ns, cause.count, cause.longest_ns) == ("unknown", 9_000, 1, 9_000)
    assert cause.example == "nothing is told of the host, before Add; at 0.011 ms, a gap of 0.009 ms"


@pytest.mark.parametrize(
    "written",
    [
        lambda text: b"\xef\xbb\xbf" + text,
        lambda text: text.replace(b"\n", b"\r\n"),
        lambda text: text.removesuffix(b"\n"),
        lambda text: text + b"\n \n\n",
        lambda text: b"\n\n" + text,
        gzip.compress,
        lambda text: text + text.splitlines(keepends=True)[0] + b"\n",  # the head again, as from `cat`
    ],
    ids=["bom", "crlf", "no-last-break", "blank-lines", "blank-begin", "gzip", "head-again"],
)
def test_ways_of_writing(written: Callable[[bytes], bytes]) -> None:
    """What editors and tools do to a table changes nothing."""
    text = table({}, {**SECOND, "Name": "an, other", "Type": "Add"})
    plain, other = read_bytes(text), read_bytes(written(text))
    assert other.groups == plain.groups
    assert (other.events_read, other.dropped, other.problem) == (2, {}, None)


# The columns of each metric set, of cores with a vector unit of their own and of fused ones.
SETS = {
    "PipeUtilization": ("aic_mac_ratio", "aic_scalar_ratio", "aic_mte1_ratio", "aic_mte2_ratio", "aic_fixpipe_ratio",
                        "aiv_vec_ratio", "aiv_scalar_ratio", "aiv_mte2_ratio", "aiv_mte3_ratio"),
    "ArithmeticUtilization": ("aic_mac_fp16_ratio", "aic_cube_fops", "aiv_vec_fp32_ratio", "aiv_vector_fops"),
    "Memory": ("aic_l1_read_bw(GB/s)", "aic_main_mem_read_bw(GB/s)", "aiv_ub_read_bw(GB/s)"),
    "MemoryL0": ("aic_l0a_read_bw(GB/s)", "aiv_l0c_read_bw(GB/s)"),
    "MemoryUB": ("aic_ub_read_bw_scalar(GB/s)", "aiv_ub_write_bw_vector(GB/s)"),
    "ResourceConflictRatio": ("aiv_vec_bankgroup_cflt_ratio", "aiv_vec_resc_cflt_ratio"),
    "L2Cache": ("aic_write_cache_hit", "aiv_r0_read_cache_hit"),
    "MemoryAccess": ("aic_read_main_memory_datas(KB)", "aiv_GM_to_UB_datas(KB)"),
    "fused": ("vec_ratio", "mac_ratio", "scalar_ratio", "mte1_ratio", "mte2_ratio", "mte3_ratio", "memory_bound"),
}  # fmt: skip
TOLD = {
    "PipeUtilization": {"mac_ns", "cube_scalar_ns", "mte1_ns", "cube_mte2_ns", "fixpipe_ns", "vec_ns",
                        "vector_scalar_ns", "vector_mte2_ns", "mte3_ns"},
    "ArithmeticUtilization": {"mac_ns", "vec_ns"},
    "fused": {"vec_ns", "mac_ns", "cube_scalar_ns", "mte1_ns", "cube_mte2_ns", "mte3_ns"},
}  # fmt: skip


@pytest.mark.parametrize("metrics", SETS)
def test_metric_sets(metrics: str) -> None:
    """Every set is read; pipes are told where the set has them."""
    columns = (*LEVEL1[:22], "aicore_time(us)", "aic_total_cycles", *SETS[metrics])
    group = only(read_bytes(table(dict.fromkeys(SETS[metrics], "0.5"), columns=columns)))
    told = {} if group.pipes is None else {k: v for k, v in dataclasses.asdict(group.pipes).items() if v is not None}
    told.pop("measured_ns", None)
    told.pop("moved_bytes", None)  # amounts: test_metric_sets.py
    assert told == dict.fromkeys(TOLD.get(metrics, ()), pytest.approx(5_250))


def test_clock_and_cores() -> None:
    """Cycles are of all cores, times of one: 1.65e6 cycles on 10 blocks in 100 µs are 1650 MHz.

    Kernels whose blocks share cores run longer; half of 20 cores for 100 µs are 50 %.
    """
    alone = {"Block Num": "10", "aicore_time(us)": "100", "aic_total_cycles": "1650000", "Duration(us)": "100"}
    shared = {**alone, "Block Num": "40", "aicore_time(us)": "200", "aic_total_cycles": "6600000"}
    rows = [{**row, "Start Time(us)": f"{START + 300 * i}"} for i, row in enumerate([alone, shared, alone])]
    (device,) = read_bytes(table(*rows)).devices
    assert (device.clock_hz, device.units) == (1.65e9, None)
    told = [{**row, "cube_utilization(%)": "50" if row["Block Num"] == "10" else "N/A"} for row in rows]
    (device,) = read_bytes(table(*told)).devices
    assert (device.clock_hz, device.units) == (1.65e9, 20)
    for damage in ("0", "N/A", "1e9", "-5"):
        (device,) = read_bytes(table(*({**row, "aic_total_cycles": damage} for row in told))).devices
        assert (device.clock_hz, device.units) == (None, None)


def test_names_of_columns() -> None:
    """The names of ``op_summary``, and other cases, blanks and underscores."""
    renamed = {"Name": "Op Name", "Type": "OP Type", "Accelerator Core": "Task Type", "Block Num": "Block Dim",
               "Start Time(us)": "Task Start Time(us)", "Duration(us)": "Task Duration(us)"}  # fmt: skip
    text = table({}).decode()
    head, body = text.split("\n", 1)
    for names in (renamed, {"Step Id": "step_id", "Device_id": "Device Id", "Input Shapes": " INPUT SHAPES "}):
        columns = [names.get(name, name) for name in LEVEL1]
        again = read_bytes((line(columns) + "\n" + body).encode())
        assert again.groups == read_bytes(text.encode()).groups
    assert head != ""


def test_columns_that_stand_twice() -> None:
    """A name that is there twice counts where it stands first."""
    columns = (*LEVEL0, "Duration(us)")
    text = line(columns) + "\n" + line([DEFAULTS.get(name, "N/A") for name in LEVEL0] + ["77"]) + "\n"
    assert only(read_bytes(text.encode())).total_ns == 10_500


def test_columns_in_another_order() -> None:
    """Where a column stands means nothing."""
    assert read_bytes(table({}, SECOND, columns=LEVEL1[::-1])).groups == read_bytes(table({}, SECOND)).groups


@pytest.mark.parametrize(
    ("row", "dropped"),
    [
        ({"Start Time(us)": "N/A"}, {"bad_time": 1}),
        ({"Start Time(us)": ""}, {"bad_time": 1}),
        ({"Start Time(us)": "0"}, {"bad_time": 1}),
        ({"Start Time(us)": "99999999999999999999"}, {"bad_time": 1}),
        ({"Duration(us)": ""}, {"bad_time": 1}),
        ({"Duration(us)": "-1"}, {"bad_duration": 1}),
        ({"Duration(us)": "9" * 14}, {"bad_duration": 1}),
        ({"aic_mac_ratio": "7"}, {"bad_metric": 1}),
    ],
)
def test_cells_that_cannot_be(row: dict[str, str], dropped: dict[str, int]) -> None:
    """A row without a time is counted and left out; a metric that is no ratio leaves out itself."""
    profile = read_bytes(table({}, {**SECOND, **row}))
    assert profile.dropped == dropped
    assert sum(group.calls for group in profile.groups) == (2 if "bad_metric" in dropped else 1)


def test_files_are_known_by_what_is_in_them(tmp_path: Path) -> None:
    """A table named as a database, a database named as a table."""
    misnamed = tmp_path / "ascend_pytorch_profiler_0.db"
    misnamed.write_bytes(table({}))
    assert read(misnamed).collector == "ascend_csv"
    database = tmp_path / "kernel_details.csv"
    database.write_bytes(b"SQLite format 3\x00" + b"\x00" * 200)
    with pytest.raises(RoofwatchError, match=r"kernel_details\.csv"):
        read(database)


def test_devices() -> None:
    """Rows of two devices make two; an absent id is a device without one."""
    profile = read_bytes(table({}, {**SECOND, "Device_id": "3"}, {**SECOND, "Device_id": "4294967295"}))
    assert [device.index for device in profile.devices] == [None, 0, 3]
    assert [device.busy_ns for device in profile.devices] == [10_500] * 3


def test_steps() -> None:
    """Different step ids are steps; rows without one are in none."""
    rows = [
        {"Step Id": step, "Start Time(us)": f"{START + 20 * i}"} for i, step in enumerate(["5", "6", "6", "", "N/A"])
    ]
    profile = read_bytes(table(*rows))
    assert profile.steps == 2
    assert (only(profile).calls, only(profile).step_calls) == (5, 3)


@pytest.mark.parametrize("text", [line(LEVEL1), line(LEVEL0), line(LEVEL1).lower(), "﻿" + line(LEVEL0)])
def test_heads(text: str) -> None:
    """Heads that name a kernel table."""
    assert not isinstance(head_of(text.encode().removeprefix(b"\xef\xbb\xbf")), str)
