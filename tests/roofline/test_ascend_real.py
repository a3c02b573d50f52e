"""The meaning of the real Ascend captures: how much is judged, by what, and where the two verdicts differ."""

from __future__ import annotations

import csv
from collections import Counter
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

import pytest

from roofwatch.collectors import registry
from roofwatch.collectors.base import Category, Pipes, RawDevice, RawGroup, RawProfile, WindowContext
from roofwatch.collectors.pipeline import window_of
from roofwatch.model.answer import CoverageSum
from roofwatch.model.answer_rows import rows, sums_of
from roofwatch.model.formulas.ascend.operands import KernelCall, operands_of, outputs_of
from roofwatch.model.formulas.ascend.table import formula_of_type, work_of_kernel
from roofwatch.model.histogram import Histogram
from roofwatch.model.kinds import Kind
from roofwatch.model.record import Bound, Device, Evidence, Node, Phase, Process, Trigger, Vendor, Window
from roofwatch.model.roofline import exceeded

QWEN = "ascend/qwen3_0.6b_910B_tp1pp2dp2_level2/rank_{}_ascend_pt/ASCEND_PROFILER_OUTPUT/kernel_details.csv"
ALEX = "ascend/pytorch_alexnet_910B_ddp2"
TEXT = ALEX + "/text/level{}/rank{}_ascend_pt/ASCEND_PROFILER_OUTPUT/kernel_details.csv"
DB = ALEX + "/db/level{0}/rank{1}_ascend_pt/ASCEND_PROFILER_OUTPUT/ascend_pytorch_profiler_{1}.db"
MEASURED = [
    QWEN.format(0), QWEN.format(2), TEXT.format(1, 0), TEXT.format(1, 1), TEXT.format(2, 0),
    DB.format(1, 0), DB.format(1, 1), DB.format(2, 0),
]  # fmt: skip
UNMEASURED = [TEXT.format(0, 0), DB.format(0, 0)]


@lru_cache(maxsize=16)
def window(path: Path) -> Window:
    """The window in a file, without calibrations of this machine."""
    context = WindowContext("0" * 32, Process(Node("n"), 1), Trigger.IMPORTED, peaks_files=("/nonexistent/peaks.json",))
    return window_of(registry.read(path), context)


def coverage(found: Window) -> dict:
    """The coverage of one window's answer."""
    total = CoverageSum()
    total.add(found)
    return total.as_json()


def cells(path: Path) -> list[dict[str, str]]:
    """Rows as the file has them, past all of the product's own code."""
    with path.open(newline="", encoding="utf-8-sig") as file:
        return [{key: (value or "").strip() for key, value in row.items()} for row in csv.DictReader(file)]


def sides(text: str) -> list[tuple[int, ...]]:
    """Shapes of a cell: "4096,1024;1024,512" in quotes."""
    return [tuple(int(n) for n in part.split(",")) for part in text.strip('"').split(";")]


@pytest.mark.parametrize("rank", [0, 2])
def test_flops_are_what_the_cube_was_measured_to_do(traces: Path, rank: int) -> None:
    """FLOPs ÷ (duration · 20 · 1650 MHz · 8192) is aic_mac_ratio · cube_utilization within 0.03, on every 2-D product.

    The table is read here, cell by cell; the formula gets nothing but shapes and dtypes.
    """
    checked = 0
    formula = formula_of_type("MatMulV3")
    assert formula is not None
    for row in cells(traces / QWEN.format(rank)):
        if row["Type"] != "MatMulV3":
            continue
        a, b = sides(row["Input Shapes"])[:2]
        (out,) = sides(row["Output Shapes"])
        inputs = operands_of(f"[{[*a]},{[*b]}]", '["DT_BF16","DT_BF16"]', None)
        outputs = outputs_of(f'[[{[*out]}],["DT_BF16"],["ND"]]')
        assert inputs is not None
        assert outputs is not None
        work = work_of_kernel(formula, KernelCall("MatMulV3", inputs, outputs))
        assert work is not None, row["Input Shapes"]
        seconds = float(row["Duration(us)"]) * 1e-6
        counted = work.flops / (seconds * 20 * 1650e6 * 8192)
        measured = float(row["aic_mac_ratio"]) * float(row["cube_utilization(%)"]) / 100
        assert counted == pytest.approx(measured, abs=0.03), row["Input Shapes"]
        checked += 1
    assert checked >= 280


@pytest.mark.parametrize(("unit", "rate"), [("hf32", 4096), ("fp32", 2048)])
def test_the_cubes_rate_in_other_precisions(traces: Path, unit: str, rate: int) -> None:
    """AlexNet on 24 cores at 1800 MHz: no product beats the measured cube by 3 % of the peak."""
    pairs = []
    measured = {row["Name"] + row["Start Time(us)"]: row for row in cells(traces / TEXT.format(1, 0))}
    for k in window(traces / TEXT.format(1, 0)).kernels:
        if (k.signature.precision, k.signature.unit) != (unit, "matrix") or k.calls != 1 or k.signature.flops is None:
            continue
        rows_of = [r for r in measured.values() if abs(float(r["Duration(us)"]) * 1000 - k.total_ns) < 1]
        (row,) = [r for r in rows_of if r["Type"] == k.signature.kernel]
        counted = k.signature.flops / (k.total_ns * 1e-9 * 24 * 1800e6 * rate)
        cube = float(row["aic_mac_ratio"]) * float(row["cube_utilization(%)"]) / 100
        assert counted < cube + 0.03, row["Input Shapes"]
        pairs.append(counted / cube)
    assert len(pairs) >= 8
    assert max(pairs) > 0.94


@pytest.mark.parametrize("name", MEASURED)
def test_levels_one_and_two_are_classified(traces: Path, name: str) -> None:
    """Nearly all compute time by counters, and most of it by shapes, too; disagreements are counted."""
    found = window(traces / name)
    told = coverage(found)
    assert told["classified_share"] >= 0.95
    assert 0 < told["disagree_share"] < 0.6
    assert told["mfu_known_share"] > 0.99
    judged = [k for k in found.kernels if k.evidence is Evidence.COUNTERS]
    assert sum(k.total_ns for k in judged if k.formula_bound) > 0.95 * sum(k.total_ns for k in judged)
    differing = sum(k.total_ns for k in judged if k.formula_bound not in (None, k.bound))
    assert told["disagree_share"] == differing / sum(k.total_ns for k in judged if k.formula_bound)


@pytest.mark.parametrize("name", UNMEASURED)
def test_level_zero_is_judged_by_name(traces: Path, name: str) -> None:
    """Names, blocks and durations are all there is."""
    told = coverage(window(traces / name))
    assert told["classified_share"] == 0
    assert told["named_share"] >= 0.7


def test_names_say_what_counters_say(traces: Path) -> None:
    """What Level0 judges as compute by name is compute by counters and shapes on the levels that have them."""
    named = {k.signature.kernel for k in window(traces / TEXT.format(0, 0)).kernels if k.bound is Bound.COMPUTE}
    assert named == {"Conv2DBackpropInput"}
    for name in (TEXT.format(1, 0), TEXT.format(1, 1), TEXT.format(2, 0)):
        for k in window(traces / name).kernels:
            if k.signature.kernel in named:
                assert (k.bound, k.formula_bound) == (Bound.COMPUTE, Bound.COMPUTE)


@pytest.mark.parametrize(("level", "rank"), [(0, 0), (1, 0), (1, 1), (2, 0)])
def test_text_and_database_agree(traces: Path, level: int, rank: int) -> None:
    """Other runs of the same program: the same kinds as often, and 187 compute and 4 allReduce records."""
    counts = []
    for name in (TEXT, DB):
        kinds = Counter[Kind]()
        for k in window(traces / name.format(level, rank)).kernels:
            kinds[k.signature.kind] += k.calls
        counts.append(kinds)
        assert (kinds[Kind.COMM], sum(kinds.values()) - kinds[Kind.COMM]) == (4, 187)
    assert counts[0] == counts[1]


@pytest.mark.parametrize("name", MEASURED)
def test_nothing_beats_its_compute_roof(traces: Path, name: str) -> None:
    """Above the roof are only kernels whose bytes came from L2 in part; they are marked as that."""
    for row in rows(sums_of(window(traces / name))):
        if row["roof_fraction"] is not None and row["roof_fraction"] > 1:
            assert row["l2_assisted"] is True, row["kernel"]
        elif row["roof_fraction"] is not None and row["bytes"]:
            assert row["l2_assisted"] is False


def test_l2_on_the_qwen_set(traces: Path) -> None:
    """SwiGlu moves 75 MB in 57 µs: 1.3 TB/s of a memory of 0.8."""
    (row,) = [r for r in rows(sums_of(window(traces / QWEN.format(2)))) if r["kernel"] == "SwiGlu"]
    assert row["bytes"] == 2 * 4096 * (6144 + 3072)
    assert row["bytes"] / row["mean_ns"] > 0.8 * 1.5
    assert exceeded(row["roof_fraction"])
    assert row["l2_assisted"] is True


def test_a_large_product_that_the_two_judge_differently(traces: Path) -> None:
    """4096 × 151936 × 1024: moves take 96 % of the time, though 815 FLOP a byte are far above the ridge of 338."""
    shapes = [[4096, 1024], [151936, 1024]]
    (row,) = [r for r in rows(sums_of(window(traces / QWEN.format(2)))) if r["shapes"] == shapes]
    assert (row["bound"], row["evidence"], row["formula_bound"]) == ("memory", "counters", "compute")
    assert row["intensity"] == pytest.approx(815, abs=1)
    assert row["ridge"] == pytest.approx(338, abs=1)


@pytest.mark.parametrize(("name", "low", "high"), [(TEXT.format(1, 0), 0.16, 0.19), (QWEN.format(2), 0.02, 0.03)])
def test_layout_tax(traces: Path, name: str, low: float, high: float) -> None:
    """TransData, Transpose and Cast that other calls needed, added up here by the names in the table."""
    tax = 0.0
    own = ("aclnnCast_", "aclnnInplaceCopy_", "aclnnContiguous_", "aclnnPermute_", "aclnnTranspose_")
    for row in cells(traces / name):
        if row["Type"] in {"TransData", "Transpose", "Cast"} and not row["Name"].startswith(own):
            tax += float(row["Duration(us)"])
    told = coverage(window(traces / name))
    assert told["layout_ns"] == pytest.approx(tax * 1000, abs=1000)
    assert low < told["layout_share"] < high


def test_ai_cpu_is_the_hosts(traces: Path) -> None:
    """A cast on the device's own CPU has no roof; what the engine of random bits does stays unknown."""
    kernels = window(traces / "ascend/old_versions/kernel_details_2023-09_MemoryL0_rank0.csv").kernels
    on_cpu = [k for k in kernels if k.signature.kind is Kind.AICPU]
    assert [(k.signature.kernel, k.bound, k.evidence, k.roof_fraction) for k in on_cpu] == [
        ("Cast", Bound.HOST, Evidence.DEFINITION, None)
    ]
    bits = [k for k in kernels if k.signature.kernel == "DSAStatelessGenBitMask"]
    assert bits
    assert {(k.signature.kind, k.bound) for k in bits} == {(Kind.RANDOM, Bound.UNKNOWN)}


# -- by hand -----------------------------------------------------------------------------------------------------------

FUSED = '[[[4096,1024]],["DT_BF16"],["ND"]]'


def group(**more: object) -> RawGroup:
    """A product of 4096 × 2048 × 1024 in bf16, once, 100 µs on 20 cores."""
    base = RawGroup(
        0, "MatMulV3", Category.KERNEL, None, "[[4096,2048],[2048,1024]]", '["DT_BF16","DT_BF16"]', None, None,
        Phase.NONE, None, False, False, 1, 100_000, 100_000, 100_000, Histogram.from_values([100_000]),
        blocks=20, type="MatMulV3", core="AI_CORE", formats='["ND","ND"]', outputs=FUSED,
    )  # fmt: skip
    return replace(base, **more)


def judged(*groups: RawGroup, known: tuple[Device, ...] = ()) -> Window:
    """The window of groups on a 910B4 at 1650 MHz; ``known``: as its process registered it."""
    device = RawDevice("ascend", "Ascend910B4", units=20, clock_hz=1650e6, span_ns=10**6, busy_ns=10**5)
    raw = RawProfile("test", [device], list(groups), 0, 10**6, None, False, True, 1)
    process = Process(Node("n"), 1)
    context = WindowContext("0" * 32, process, Trigger.IMPORTED, known, peaks_files=("/nonexistent/x",))
    return window_of(raw, context)


def test_the_verdict_without_pipes_is_the_formulas() -> None:
    """2·4096·2048·1024 FLOPs need 63.6 µs at 270 TFLOP/s, 29.4 MB need 36.7 µs: compute, by shapes, no second one."""
    (kernel,) = judged(group()).kernels
    assert (kernel.bound, kernel.evidence, kernel.formula_bound) == (Bound.COMPUTE, Evidence.SHAPES, None)
    assert kernel.roof_ns == pytest.approx(2 * 4096 * 2048 * 1024 / (20 * 1650e6 * 8192) * 1e9, rel=1e-5)
    assert kernel.ridge == pytest.approx(20 * 1650e6 * 8192 / 0.8e12, rel=1e-5)


def test_both_verdicts_are_kept() -> None:
    """Pipes that only move: memory by counters, compute by shapes, and the roof stays."""
    moving = Pipes(100_000, mac_ns=70_000.0, cube_mte2_ns=97_000.0, occupied_ns=99_000.0)
    found = judged(group(pipes=moving))
    (kernel,) = found.kernels
    assert (kernel.bound, kernel.evidence, kernel.formula_bound) == (Bound.MEMORY, Evidence.COUNTERS, Bound.COMPUTE)
    assert kernel.roof_fraction == pytest.approx(0.636, abs=0.001)
    assert (found.ledger.compared_ns, found.ledger.disagreed_ns) == (100_000, 100_000)
    assert found.ledger.classified_ns == found.ledger.classifiable_ns == 100_000


def test_a_formula_that_counts_more_than_the_cube_did_is_dropped() -> None:
    """A mac of 10 % cannot have done 64 % of the peak: FLOPs and formula are unknown, the counters' verdict stays."""
    idle = Pipes(100_000, mac_ns=10_000.0, cube_mte2_ns=97_000.0, occupied_ns=99_000.0)
    (kernel,) = judged(group(pipes=idle)).kernels
    assert (kernel.signature.flops, kernel.signature.formula, kernel.formula_bound) == (None, None, None)
    assert (kernel.bound, kernel.evidence) == (Bound.MEMORY, Evidence.COUNTERS)


@pytest.mark.parametrize(("core", "bound"), [("AI_CORE", Bound.COMPUTE), ("AI_VECTOR_CORE", Bound.LATENCY)])
def test_blocks_are_counted_in_cores_of_their_sort(core: str, bound: Bound) -> None:
    """20 blocks fill 20 cube cores, and half of 40 vector cores: latency there, if far from the roof."""
    slow = {"total_ns": 400_000, "min_ns": 400_000, "max_ns": 400_000}
    (kernel,) = judged(group(core=core, **slow)).kernels
    assert kernel.roof_fraction == pytest.approx(0.159, abs=0.001)
    assert kernel.bound is bound


@pytest.mark.parametrize(("told", "bound"), [(20, Bound.COMPUTE), (40, Bound.LATENCY), (None, Bound.LATENCY)])
def test_vector_cores_are_those_that_the_process_told(told: int | None, bound: Bound) -> None:
    """20 blocks fill 20 vector cores; where a process tells none, its chip is one of 40."""
    device = Device(Vendor.ASCEND, "Ascend910B4", units=20, vector_units=told)
    slow = {"total_ns": 400_000, "min_ns": 400_000, "max_ns": 400_000}
    (kernel,) = judged(group(core="AI_VECTOR_CORE", **slow), known=(device,)).kernels
    assert kernel.bound is bound


def test_event_tasks_and_copies_are_no_kernels() -> None:
    """A wait for another stream and a copy have verdicts by definition, outside of what is to be classified."""
    plain = {"shapes": None, "dtypes": None, "formats": None, "outputs": None, "type": None}
    found = judged(
        group(kernel="EVENT_WAIT", core="EVENT_WAIT", **plain),
        group(kernel="Memcpy (DtoD)", category=Category.MEMCPY, core=None, moved_bytes=100, **plain),
        group(kernel="Cast", core="AI_CPU", **plain),
    )
    assert {(str(k.signature.kind), str(k.bound), str(k.evidence)) for k in found.kernels} == {
        ("event", "latency", "definition"),
        ("copy_fill", "copy", "definition"),
        ("aicpu", "host", "definition"),
    }
    assert found.ledger.classifiable_ns == 0


def test_the_layout_tax_is_of_ascend_alone() -> None:
    """What another operator needed counts, the same type called for itself does not; other devices have none."""
    shapes = {"shapes": "[[64,64]]", "dtypes": '["FLOAT"]', "formats": '["ND"]', "type": "Cast", "kernel": "Cast"}
    made = {**shapes, "core": "AI_VECTOR_CORE", "outputs": '[[[64,64]],["DT_BF16"],["ND"]]'}
    found = judged(group(**made, inserted=True), group(**made), group(inserted=True))
    assert found.ledger.layout_ns == 100_000
    raw = RawProfile("test", [RawDevice("nvidia", "NVIDIA H100 80GB HBM3")], [], 0, 1, None, False, False, 0)
    other = window_of(raw, WindowContext("0" * 32, Process(Node("n"), 1), Trigger.IMPORTED, peaks_files=("/x",)))
    assert other.ledger.layout_ns is None
    assert coverage(other)["layout_share"] is None


@pytest.mark.parametrize(
    ("pipes", "bound"),
    [
        (Pipes(100_000, moved_bytes=0.75 * 0.8e12 * 1e-4), Bound.MEMORY),  # three quarters of 0.8 TB/s for 100 µs
        (Pipes(100_000, moved_bytes=1e6), Bound.COMPUTE),  # 1 MB of 29: the rest was in L2
        (Pipes(100_000, mac_ns=85_000.0, vec_ns=0.0, core_ns=2e6), Bound.COMPUTE),  # on 20 cores all the time
    ],
)
def test_one_sided_metrics_are_counters(pipes: Pipes, bound: Bound) -> None:
    """Memory, MemoryAccess and ArithmeticUtilization: evidence counters, the sizes' verdict beside it."""
    (kernel,) = judged(group(pipes=pipes)).kernels
    assert (kernel.bound, kernel.evidence, kernel.formula_bound) == (bound, Evidence.COUNTERS, Bound.COMPUTE)


def test_the_clock_of_a_window_is_its_devices_state() -> None:
    """What the profile tells of the clock is kept; the state of a device of others is nobody's guess."""
    (device,) = judged(group()).devices
    assert device.state is not None
    assert (device.state.clock_hz, device.state.power_w, device.state.throttle) == (1650e6, None, None)
    raw = RawProfile("test", [RawDevice("nvidia", "NVIDIA H100", clock_hz=1980e6)], [], 0, 1, None, True, True, 1)
    (other,) = window_of(raw, WindowContext("0" * 32, Process(Node("n"), 1), Trigger.IMPORTED)).devices
    assert other.state is None
