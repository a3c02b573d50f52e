"""Metric sets beside PipeUtilization: what they tell is summed, and judges a kernel together with its sizes."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from ascend_tables import LEVEL1, line, only, read_bytes, rows_of, table

from roofwatch.collectors.base import Pipes, RawGroup
from roofwatch.collectors.pipes import Needed, judge_by_one_side, with_occupied
from roofwatch.collectors.registry import read
from roofwatch.model.record import Bound

GIB, KIB = 1 << 30, 1 << 10
# 10 blocks for 100 µs at 1650 MHz: 165,000 cycles each.
RAN = {"Block Num": "10", "aicore_time(us)": "100", "aic_total_cycles": "1650000", "Duration(us)": "100"}
COLUMNS = (*LEVEL1[:22], "aicore_time(us)", "aic_total_cycles", "aiv_time(us)", "aiv_total_cycles")
AT = (0, 100)  # begin and end in µs


def told(columns: dict[str, str], **more: str) -> Pipes:
    """The pipes of one kernel whose table has these metrics."""
    group = only(read_bytes(table({**RAN, **columns, **more}, columns=(*COLUMNS, *columns))))
    assert group.pipes is not None
    return group.pipes


def test_arithmetic_by_type() -> None:
    """The types of a pipe's instructions add up; one that is not told counts as nothing beside the others."""
    found = told({
        "aic_mac_fp16_ratio": "0.5", "aic_mac_int8_ratio": "0.25", "aic_cube_fops": "123456",
        "aiv_vec_fp32_ratio": "0.1", "aiv_vec_fp16_ratio": "0.2", "aiv_vec_int32_ratio": "0.05",
        "aiv_vec_misc_ratio": "N/A", "aiv_vector_fops": "7",
    })  # fmt: skip
    assert found.mac_ns == pytest.approx(75_000)
    assert found.vec_ns == pytest.approx(35_000)
    assert found.cube_mte2_ns is None
    assert found.core_ns == pytest.approx(1_000_000)  # ten cores for 100 µs


def test_a_whole_pipe_goes_before_its_parts() -> None:
    """Where both stand in a table, the parts are in the whole already."""
    assert told({"aic_mac_ratio": "0.8", "aic_mac_fp16_ratio": "0.5"}).mac_ns == pytest.approx(80_000)


def test_rates_of_memory_are_over_cycles_of_all_cores() -> None:
    """4 and 1 GiB/s a core while ten of them ran for 100 µs: 5 GiB/s × 1 ms. On-chip rates are no traffic."""
    rates = {"aic_main_mem_read_bw(GB/s)": "4", "aic_main_mem_write_bw(GB/s)": "1", "aic_l1_read_bw(GB/s)": "99",
             "aiv_main_mem_read_bw(GB/s)": "8", "aiv_ub_read_bw(GB/s)": "99", "aic_l2_read_bw(GB/s)": "99"}  # fmt: skip
    assert told(rates).moved_bytes == pytest.approx(5 * GIB * 1e-3, rel=1e-6)
    vector = {"aiv_time(us)": "100", "aiv_total_cycles": "3300000"}  # 20 vector cores beside them
    assert told(rates, **vector).moved_bytes == pytest.approx((5 + 16) * GIB * 1e-3, rel=1e-6)


def test_rates_without_a_clock_are_unknown() -> None:
    """A rate is over cycles, and nothing tells how long one took."""
    columns = (*LEVEL1[:22], "aiv_total_cycles", "aiv_main_mem_read_bw(GB/s)")
    row = {"Accelerator Core": "AI_VECTOR_CORE", "aiv_total_cycles": "1000", "aiv_main_mem_read_bw(GB/s)": "3"}
    assert only(read_bytes(table(row, columns=columns))).pipes is None


def test_amounts_of_memory() -> None:
    """KiB from and to memory; what went between memory and a core's buffers is in them already."""
    amounts = {"aic_read_main_memory_datas(KB)": "10", "aic_write_main_memory_datas(KB)": "6",
               "aiv_read_main_memory_datas(KB)": "0.5", "aic_GM_to_L1_datas(KB)": "10"}  # fmt: skip
    assert told(amounts).moved_bytes == pytest.approx(16.5 * KIB)


@pytest.mark.parametrize("cell", ["-1", "1e300", "nan", "inf", "x"])
def test_amounts_that_are_none(cell: str) -> None:
    """Not counted as bytes; those that are numbers are counted as damage."""
    profile = read_bytes(table({**RAN, "aic_read_main_memory_datas(KB)": cell},
                               columns=(*COLUMNS, "aic_read_main_memory_datas(KB)")))  # fmt: skip
    pipes = only(profile).pipes
    assert pipes is None or pipes.moved_bytes is None
    assert profile.dropped == ({"bad_metric": 1} if cell in ("-1", "1e300") else {})


def test_a_metric_that_nobody_knows_is_counted() -> None:
    """A new version's column is read over and told of; the vendor's own sets hold none that is unknown."""
    columns = (*COLUMNS, "aic_warp_ratio", "aiv_vec_time(us)", "aic_r0_read_cache_hit", "aiv_vec_bank_cflt_ratio",
               "aic_l0c_read_bw_cube(GB/s)", "aic_icache_miss_rate", "aiv_ub_write_bw_scalar(GB/s)")  # fmt: skip
    assert read_bytes(table(RAN, columns=columns)).dropped == {"unknown_metric": 1}


def test_real_tables_hold_no_metric_that_nobody_knows(traces: Path) -> None:
    """Of 2023 and of 2025."""
    for path in sorted((traces / "ascend").rglob("kernel_details*.csv")):
        assert "unknown_metric" not in read(path).dropped, path


# -- databases ---------------------------------------------------------------------------------------------------------


def measured(
    made: Callable[[], Any], metrics: dict[str, object], *, freq: int | None = 1650, **kernel: Any
) -> RawGroup:
    """A kernel of 100 µs whose database has these metrics."""
    db = made()
    db.kernels([{"start": 0, "end": 100_000, "opType": "MatMulV3", "taskType": "AI_CORE", "raw": "KERNEL_AICORE",
                 "blockDim": 10, **kernel}])  # fmt: skip
    if freq is not None:
        db.table("AICORE_FREQ", ["deviceId", "timestampNs", "freq"], [[0, 1_736_410_576_000_000_000, freq]])
    db.table("TASK_PMU_INFO", ["globalTaskId", "name", "value"], [[0, db.text(k), v] for k, v in metrics.items()])
    [group] = db.read().groups
    assert isinstance(group, RawGroup)
    return group


def test_cores_that_were_taken_by_cycles(made: Callable[[], Any]) -> None:
    """A database has no cube utilisation; 1.65e6 cycles at 1650 MHz are 1 ms of cores, 50 % of 20 for 100 µs."""
    group = measured(made, {"aic_mac_ratio": 0.5, "aic_total_cycles": 1_650_000})
    assert group.pipes is not None
    assert (group.pipes.occupied_ns, group.pipes.core_ns) == (None, pytest.approx(1e6))
    assert with_occupied(group.pipes, 20).occupied_ns == pytest.approx(50_000)
    assert with_occupied(group.pipes, None).occupied_ns is None
    unclocked = measured(made, {"aic_mac_ratio": 0.5, "aic_total_cycles": 1_650_000}, freq=None)
    assert unclocked.pipes is not None
    assert unclocked.pipes.core_ns is None


def test_rates_and_amounts_of_a_database(made: Callable[[], Any]) -> None:
    """Rates are bytes a second there, without a unit; amounts stay KiB."""
    rates = {"aic_main_mem_read_bw": 4 * GIB, "aic_main_mem_write_bw": 1 * GIB, "aic_total_cycles": 1_650_000,
             "aic_l1_read_bw": 99 * GIB, "aiv_main_mem_read_bw": 8 * GIB, "aiv_total_cycles": 3_300_000}  # fmt: skip
    group = measured(made, rates)
    assert group.pipes is not None
    assert group.pipes.moved_bytes == pytest.approx((5 + 16) * GIB * 1e-3)
    for unit in ("", "(KB)"):
        group = measured(made, {f"aic_read_main_memory_datas{unit}": 10, f"aiv_write_main_memory_datas{unit}": 6})
        assert group.pipes is not None
        assert group.pipes.moved_bytes == pytest.approx(16 * KIB)


def test_arithmetic_of_a_database(made: Callable[[], Any]) -> None:
    """The types add up; the whole pipe goes before them."""
    types = {"aic_mac_fp16_ratio": 0.5, "aic_mac_int8_ratio": 0.25}
    first, second = measured(made, types).pipes, measured(made, {**types, "aic_mac_ratio": 0.8}).pipes
    assert first is not None
    assert second is not None
    assert (first.mac_ns, second.mac_ns) == (pytest.approx(75_000), pytest.approx(80_000))


def test_an_unknown_metric_of_a_database(made: Callable[[], Any]) -> None:
    """Counted once, however many tasks have it."""
    db = made()
    db.kernels([{"start": 0, "end": 10}, {"start": 20, "end": 30}])
    rows = [[task, db.text(name), 0.5] for task in (0, 1) for name in ("aiv_vec_ratio", "aiv_warp_ratio")]
    db.table("TASK_PMU_INFO", ["globalTaskId", "name", "value"], rows)
    assert db.read().dropped == {"unknown_metric": 1}


@pytest.mark.parametrize(("cell", "hf32"), [("YES", True), ("NO", False), ("N/A", None)])
def test_hf32_of_a_database(made: Callable[[], Any], cell: str, hf32: bool | None) -> None:
    """Schemas since 1.1 tell whether fp32 products were done in HF32."""
    columns = ("name", "globalTaskId", "blockNum", "taskType", "opType", "inputShapes", "hf32Eligible")
    db = made()
    db.kernels([{"start": 0, "end": 10, "opType": "MatMulV3", "blockNum": 20, "hf32Eligible": cell}], columns)
    [group] = db.read().groups
    assert (group.hf32, group.blocks, group.shapes) == (hf32, 20, "[[2,3],[3]]")


def test_occupation_by_cycles_is_what_the_vendor_tells(traces: Path) -> None:
    """The real AlexNet table without its cube utilisation: cycles say the same, on 24 cores, within 1 % of the time."""
    path = next((traces / "ascend/pytorch_alexnet_910B_ddp2/text/level1").rglob("rank0*/**/kernel_details.csv"))
    rows = rows_of(path)
    kept = [name for name in rows[0] if name != "cube_utilization(%)"]
    text = "\n".join([line(kept), *(line([row[name] for name in kept]) for row in rows)])
    by_cycles = {(g.kernel, g.shapes, g.outputs, g.formats): g.pipes for g in read(io.BytesIO(text.encode())).groups}
    compared = 0
    for group in read(path).groups:
        found = by_cycles[group.kernel, group.shapes, group.outputs, group.formats]
        if group.pipes is None or not group.pipes.occupied_ns or found is None:
            continue
        again = with_occupied(found, 24).occupied_ns
        assert again == pytest.approx(group.pipes.occupied_ns, abs=0.01 * group.pipes.measured_ns)
        compared += 1
    assert compared > 15


# -- verdicts ----------------------------------------------------------------------------------------------------------

BANDWIDTH = 1.6e12
MS = 1_000_000
C, M, L = Bound.COMPUTE, Bound.MEMORY, Bound.LATENCY


@pytest.mark.parametrize(
    ("pipes", "needed", "short", "bound"),
    [
        # Bytes: at 0.75 of the bandwidth they decide, whatever the sizes say.
        (Pipes(MS, moved_bytes=1.2e9), Needed(0.9, 0.2), False, M),
        (Pipes(MS, moved_bytes=1.2e9), None, False, M),
        # Half of it: the larger side; without sizes nobody knows.
        (Pipes(MS, moved_bytes=0.8e9), Needed(0.6, 0.9), False, C),
        (Pipes(MS, moved_bytes=0.8e9), Needed(0.4, 0.1), False, M),
        (Pipes(MS, moved_bytes=0.8e9), None, False, None),
        # Next to nothing came from memory, and nothing was computed: from L2, or short.
        (Pipes(MS, moved_bytes=1e6), Needed(0.05, 0.9), False, None),
        (Pipes(MS, moved_bytes=1e6), Needed(0.05, 0.9), True, L),
        # Arithmetic: a pipe at its limit decides; on half of the cores it is none.
        (Pipes(MS, mac_ns=0.85 * MS, occupied_ns=1.0 * MS), None, False, C),
        (Pipes(MS, mac_ns=0.85 * MS, occupied_ns=0.5 * MS), None, False, None),
        (Pipes(MS, mac_ns=0.5 * MS, vec_ns=0.0), Needed(0.1, 0.4), False, C),
        (Pipes(MS, mac_ns=0.3 * MS, vec_ns=0.0), Needed(0.1, 0.4), False, M),
        (Pipes(MS, mac_ns=0.0, vec_ns=0.0), Needed(0.8, 0.4), False, C),  # of a type that is not told apart
        (Pipes(MS, vec_ns=0.75 * MS), None, False, C),
        (Pipes(MS, vec_ns=0.1 * MS), Needed(0.0, 0.2), True, L),
        # Neither: sets of on-chip memories.
        (Pipes(MS, core_ns=1.0 * MS), Needed(0.9, 0.2), False, None),
        (Pipes(0, moved_bytes=1.2e9), Needed(0.9, 0.2), False, None),
    ],
)  # fmt: skip
def test_verdicts_of_one_side(pipes: Pipes, needed: Needed | None, short: bool, bound: Bound | None) -> None:
    """The measured side and what sizes say of the other."""
    assert judge_by_one_side(pipes, "MatMulV3", None, BANDWIDTH, needed, short=short) is bound


def test_bytes_without_a_bandwidth_say_nothing() -> None:
    """A chip that nobody knows."""
    assert judge_by_one_side(Pipes(MS, moved_bytes=1.2e9), "Add", None, None, Needed(0.1, 0.1), short=True) is None


def test_few_blocks_are_latency() -> None:
    """2 of 40 cores, and neither side takes 0.3 of the time."""
    pipes = Pipes(MS, vec_ns=0.1 * MS)
    assert judge_by_one_side(pipes, "Add", 0.05, BANDWIDTH, Needed(0.01, 0.02), short=False) is Bound.LATENCY
