"""Ascend captures on the command line: the same words as for other devices, and what only they have."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from roofwatch.cli.render import ascend, kernels
from roofwatch.model.answer_rows import ROW_KEYS

Roofwatch = Callable[..., "subprocess.CompletedProcess[str]"]
QWEN = "ascend/qwen3_0.6b_910B_tp1pp2dp2_level2/rank_2_ascend_pt/ASCEND_PROFILER_OUTPUT/kernel_details.csv"
ALEX = "ascend/pytorch_alexnet_910B_ddp2/db/level1/rank1_ascend_pt/ASCEND_PROFILER_OUTPUT/ascend_pytorch_profiler_1.db"
LEVEL0 = "ascend/pytorch_alexnet_910B_ddp2/text/level0/rank0_ascend_pt/ASCEND_PROFILER_OUTPUT/kernel_details.csv"


@pytest.mark.parametrize("name", [QWEN, ALEX, LEVEL0])
def test_analyze_fits_80_columns_and_tells_the_layout_tax(roofwatch: Roofwatch, traces: Path, name: str) -> None:
    """One line for the tax, under busy and idle; no line is wider than the terminal."""
    done = roofwatch("analyze", str(traces / name))
    assert done.returncode == 0
    lines = done.stdout.splitlines()
    assert max(len(line) for line in lines if str(traces) not in line) <= 80  # a path is told whole
    told = [line for line in lines[: lines.index("")] if line.startswith("layout tax ")]
    assert len(told) == 1
    assert told[0].endswith("): TransData, Transpose, Cast")


def test_the_json_has_both_verdicts(roofwatch: Roofwatch, traces: Path) -> None:
    """Rows with ``formula_bound`` and ``l2_assisted``, coverage with what they add up to."""
    answer = json.loads(roofwatch("analyze", str(traces / QWEN), "--top", "0", "--format", "json").stdout)
    assert all(tuple(row) == ROW_KEYS for row in answer["rows"])
    differ = sum(r["total_ns"] for r in answer["rows"] if r["formula_bound"] not in (None, r["bound"]))
    both = sum(r["total_ns"] for r in answer["rows"] if r["formula_bound"] is not None)
    assert answer["coverage"]["disagree_share"] == pytest.approx(differ / both)
    assert answer["coverage"]["layout_share"] == pytest.approx(0.026, abs=0.001)
    cached = {r["kernel"] for r in answer["rows"] if r["l2_assisted"]}
    assert "SwiGlu" in cached
    assert "MatMulV3" not in cached
    assert answer["device"]["model"] == "Ascend 910B4"
    assert answer["device"]["inferred"] is True


def test_the_marks_beside_a_roof_fraction() -> None:
    """L2 where memory could not deliver, "!" where a roof is beaten otherwise; a note says what the mark means."""
    row = {"bound": "memory", "roof_fraction": 1.65, "l2_assisted": True}
    assert kernels.roof(row) == "165 % L2"
    assert kernels.roof({**row, "l2_assisted": None}) == "165 %!"
    coverage = {"layout_share": None, "layout_ns": None, "disagree_share": 0.44}
    assert ascend.notes(coverage, [row, {**row, "l2_assisted": False}]) == [
        "L2 1 row: more bytes than memory delivers, part came from L2",
        "pipes and shapes differ on 44 % of the time (JSON: bound, formula_bound)",
    ]
    assert ascend.notes({**coverage, "disagree_share": None}, []) == []


def test_both_verdicts_in_words() -> None:
    """One where they agree or there is one, both where they differ."""
    row = {"bound": "memory", "formula_bound": "compute"}
    assert ascend.both_bounds(row) == "memory bound by its pipes, compute bound by its sizes"
    assert ascend.both_bounds({**row, "formula_bound": None}) == "memory bound"
    assert ascend.both_bounds({**row, "formula_bound": "memory"}) == "memory bound"


@pytest.mark.parametrize(("share", "lines"), [(None, 0), (0.004, 0), (0.174, 1)])
def test_the_layout_tax_is_told_where_there_is_one(share: float | None, lines: int) -> None:
    """Nothing for other devices, and nothing below half a per cent."""
    coverage = {"layout_share": share, "layout_ns": None if share is None else 1_530_000}
    found = ascend.layout_tax(coverage, 80)
    assert len(found) == lines
    assert found in ([], ["layout tax 17 % of compute time (1.53 ms): TransData, Transpose, Cast"])


def test_diagnose_says_what_opens_the_result(roofwatch: Roofwatch, traces: Path) -> None:
    """Both of the vendor's tools, each with what opens its result; the layout tax beside busy and idle."""
    done = roofwatch("diagnose", str(traces / ALEX))
    assert done.returncode == 0
    assert max(len(line) for line in done.stdout.splitlines() if str(traces) not in line) <= 80
    assert "   layout tax " in done.stdout
    said = " ".join(done.stdout.replace("\\\n", " ").split())
    assert "msprof --output=./timeline --ascendcl=on" in said
    assert "then: open timeline/PROF_* in MindStudio Insight" in said
    assert "msprof op --kernel-name=" in said
    assert "visualize_data.bin in MindStudio Insight" in said
    assert f"roofwatch export {traces / ALEX} --format insight --output insight" in said
    assert "then: open insight in MindStudio Insight (Import Data)" in said
