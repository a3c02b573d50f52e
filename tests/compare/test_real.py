"""The same model and batch on an H100 and on an MI300X: figures from the traces themselves, read slowly.

Both traces hold one step of a forward pass. Peaks by the vendors' datasheets: H100 SXM 989.4 TFLOP/s in bf16 and
3.35 TB/s; MI300X 1,307.4 and 5.3.
"""

from __future__ import annotations

import gzip
import json
from collections import defaultdict
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from roofwatch.cli.files import Origin, window_of
from roofwatch.model.comparison import compare
from roofwatch.model.comparison_sides import basis, side_of

NAMES = ("h100_Qwen_Qwen1.5-0.5B-Chat.json.gz", "mi300_Qwen1.5-0.5B.json.gz")
PEAKS = ((989.4e12, 3.35e12), (1307.4e12, 5.3e12))
Event = dict[str, Any]


def ns(value: Any) -> int:
    """Microseconds as the trace has them, as whole nanoseconds."""
    return int((Decimal(str(value)) * 1000).to_integral_value())


def slow(path: Path) -> tuple[int, dict[tuple[str, str], int], dict[tuple[str, str], int]]:
    """Time of the step; ns and calls by (op, shapes), of the kernels that were launched in it.

    The step's time is the hull of the step and of all device records, less the records launched before it.
    """
    with gzip.open(path, "rt", encoding="utf-8") as file:
        events = json.load(file, parse_float=Decimal)["traceEvents"]
    step = next(e for e in events if e.get("name", "").startswith("ProfilerStep") and e.get("cat") == "user_annotation")
    begin, end = ns(step["ts"]), ns(step["ts"]) + ns(step["dur"])
    launches = {e["args"]["correlation"] for e in events
                if e.get("cat") in {"cuda_runtime", "cuda_driver", "hip_runtime"} and "correlation" in e.get("args", {})
                and begin <= ns(e["ts"]) <= end}  # fmt: skip
    ops = {e["args"]["External id"]: e for e in events if e.get("cat") == "cpu_op" and "External id" in e["args"]}
    records = [e for e in events if e.get("cat") in {"kernel", "gpu_memcpy", "gpu_memset"}]
    hull = max([end, *(ns(r["ts"]) + ns(r["dur"]) for r in records)]) - min([begin, *(ns(r["ts"]) for r in records)])
    took: dict[tuple[str, str], int] = defaultdict(int)
    calls: dict[tuple[str, str], int] = defaultdict(int)
    outside = 0
    for r in records:
        if r["args"]["correlation"] not in launches:
            outside += ns(r["dur"])
        elif r["cat"] == "kernel" and (op := ops.get(r["args"].get("External id"))):
            key = op["name"], json.dumps(op["args"].get("Input Dims"))
            took[key] += ns(r["dur"])
            calls[key] += 1
    return hull - outside, took, calls


@pytest.fixture(scope="module")
def paths(traces: Path) -> list[Path]:
    """The two traces."""
    return [traces / "kineto" / name for name in NAMES]


@pytest.fixture(scope="module")
def answer(paths: list[Path]) -> dict[str, Any]:
    """What the product says."""
    left, right = (side_of(window_of(path, Origin())[0], path.name) for path in paths)
    return compare(left, right, basis(left.counts, right.counts, None))


@pytest.fixture(scope="module")
def read(paths: list[Path]) -> list[tuple[int, dict[tuple[str, str], int], dict[tuple[str, str], int]]]:
    """What the slow reading says of both."""
    return [slow(path) for path in paths]


def test_the_times_of_the_step(answer: dict[str, Any], read: Any) -> None:
    """Both to the nanosecond, and their parts add up."""
    summary = answer["summary"]
    for name, (time, _, _) in zip(("left", "right"), read, strict=True):
        side = summary[name]
        assert side["time_ns"] == time
        assert side["rows_ns"] - side["overlap_ns"] + side["idle_ns"] == time
        assert sum(r[f"{name}_ns"] for r in answer["rows"]) == side["rows_ns"]
    assert summary["ratio"] == pytest.approx(read[1][0] / read[0][0])


@pytest.mark.parametrize(
    ("op", "shapes", "flops", "elements"),
    [
        ("aten::mm", [[8944, 1024], [1024, 2816]], 2 * 8944 * 1024 * 2816, 8944 * 1024 + 1024 * 2816 + 8944 * 2816),
        ("aten::mm", [[8944, 2816], [2816, 1024]], 2 * 8944 * 1024 * 2816, 8944 * 1024 + 1024 * 2816 + 8944 * 2816),
        ("aten::mm", [[8944, 1024], [1024, 1024]], 2 * 8944 * 1024 * 1024, 2 * 8944 * 1024 + 1024 * 1024),
        ("aten::addmm", [[1024], [8944, 1024], [1024, 1024]], 2 * 8944 * 1024 * 1024,
         1024 + 2 * 8944 * 1024 + 1024 * 1024),
        ("aten::silu", [[16, 559, 2816]], 4 * 16 * 559 * 2816, 2 * 16 * 559 * 2816),
    ],
)  # fmt: skip
def test_rows_of_the_step(
    answer: dict[str, Any], read: Any, op: str, shapes: list[list[int]], flops: int, elements: int
) -> None:
    """Times are the trace's; the expected ratio that of max(FLOPs/π, bytes/β); the gap what is left of the ratio."""
    [row] = [r for r in answer["rows"] if r["op"] == op and [s for s in r["shapes"] if s] == shapes]
    found = [
        {key: value for key, value in side.items() if key[0] == op and [s for s in json.loads(key[1]) if s] == shapes}
        for _, side, _ in read
    ]
    times = [sum(side.values()) for side in found]
    counted = [read[i][2][key] for i in (0, 1) for key in found[i]]
    roofs = [max(flops / (peak if op != "aten::silu" else 1e30), 2 * elements / width) * 1e9 for peak, width in PEAKS]
    assert (row["match"], row["left_ns"], row["right_ns"]) == ("same", *times)
    assert row["ratio"] == pytest.approx(times[1] / times[0])
    assert row["expected_ratio"] == pytest.approx(roofs[1] / roofs[0], rel=1e-6)
    assert row["software_gap"] == pytest.approx(times[1] / times[0] * roofs[0] / roofs[1], rel=1e-6)
    assert row["left_roof_fraction"] == pytest.approx(roofs[0] * row["left_calls"] / times[0], rel=1e-6)
    assert row["left_calls"] == row["right_calls"] == counted[0]


def test_everything_that_computes_is_the_same_on_both(answer: dict[str, Any]) -> None:
    """All but a fill of the right's flash attention: one model, one framework, and one batch."""
    kernels = answer["summary"]["kernels"]
    assert kernels["left_share"] == 1.0
    assert kernels["right_share"] > 0.995
    alone = [r for r in answer["rows"] if r["match"] is None]
    assert [(r["op"], r["left_ns"]) for r in alone] == [("aten::fill_", 0)]
    assert [w["warning"] for w in answer["warnings"]] == ["outside", "outside", "stacks", "few"]


def test_what_explains_it(answer: dict[str, Any]) -> None:
    """The MI300X has 1.32 × the FLOP/s and 1.58 × the bandwidth, so it should be faster than it is: by all products."""
    kernels = answer["summary"]["kernels"]
    assert 989.4 / 1307.4 > kernels["expected_ratio"] > 3.35 / 5.3
    assert kernels["software_gap"] > 1.3
    assert [c["op"] for c in answer["summary"]["closing"]] == [
        "aten::mm",
        "aten::_flash_attention_forward",
        "aten::addmm",
    ]
    assert {c["side"] for c in answer["summary"]["closing"]} == {"right"}


def test_what_the_mi300x_loses(answer: dict[str, Any], paths: list[Path]) -> None:
    """The same whichever side it is on, and no place is more than all of them."""
    left, right = (side_of(window_of(path, Origin())[0], path.name) for path in reversed(paths))
    there, back = answer["summary"], compare(left, right, basis(left.counts, right.counts, None))["summary"]
    assert (there["behind"], back["behind"]) == ("right", "left")
    assert (there["lost_ns"], there["won_ns"]) == (back["lost_ns"], back["won_ns"])
    assert [c["excess_ns"] for c in there["closing"]] == [c["excess_ns"] for c in back["closing"]]
    assert sum(c["excess_ns"] for c in there["closing"]) <= there["lost_ns"]
    assert there["parts"][0]["software_ns"] == -back["parts"][0]["software_ns"] > 0
