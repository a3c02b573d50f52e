"""One layer in two files, as CUDA and as Ascend would write it: read, matched and judged end to end.

16 sequences of 128 tokens, 1024 wide, bf16. Ceilings by the datasheets: H100 989.4 TFLOP/s and 3.35 TB/s; 910B4
20 cores · 1.65 GHz · 8192 = 270.336 TFLOP/s and 0.8 TB/s.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from comparison_files import Kernel, ascend, kineto
from comparison_scene import row

X, SCORES = [2048, 1024], [256, 128, 128]
QKV = [16, 128, 16, 64]
HEADS = [256, 128, 64]

CUDA: list[Kernel] = [
    ("aten::mm", "nvjet_tst_128x256_64x4_gemm", [X, [1024, 4096]], [2048, 4096], 20.0),
    ("aten::gelu", "void at::native::vectorized_elementwise_kernel<4, GeluCUDAKernelImpl>", [[2048, 4096]],
     [2048, 4096], 12.0),
    ("aten::_flash_attention_forward", "void pytorch_flash::flash_fwd_kernel", [QKV] * 3, QKV, 6.5),
    ("aten::add", "void at::native::vectorized_elementwise_kernel<4, CUDAFunctor_add>", [X, X], X, 4.5),
    ("aten::_fused_rms_norm", "void at::native::vectorized_layer_norm_kernel<rms>", [X, [], [1024]], X, 3.2),
]  # fmt: skip
ASCEND: list[Kernel] = [
    ("", "MatMulV3", [X, [4096, 1024]], [2048, 4096], 90.0),
    ("", "Gelu", [[2048, 4096]], [2048, 4096], 50.0),
    ("", "BatchMatMulV2", [HEADS, [256, 64, 128]], SCORES, 25.0),
    ("", "Muls", [SCORES], SCORES, 22.0),
    ("", "SoftmaxV2", [SCORES], SCORES, 28.0),
    ("", "BatchMatMulV2", [SCORES, HEADS], HEADS, 25.0),
    ("", "AddRmsNorm", [X, X, [1024]], X, 30.0),
]  # fmt: skip


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Both files."""
    folder = tmp_path_factory.mktemp("pair")
    return kineto(folder / "cuda.json", CUDA, 1.0), ascend(folder / "kernel_details.csv", ASCEND, 2.0)


@pytest.fixture
def answer(pair: tuple[Path, Path], roofwatch: Any) -> dict[str, Any]:
    """What the program says of them."""
    done = roofwatch("compare", *map(str, pair), "--format", "json", "--limit", "0")
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_the_layer(answer: dict[str, Any]) -> None:
    """Four rows a side: the product, the activation, attention as a group, addition and norm as a group."""
    rows = {r["group"] or r["op"]: r for r in answer["rows"]}
    assert {(name, r["match"], r["left_ns"], r["right_ns"]) for name, r in rows.items()} == {
        ("mm", "same", 20_000, 90_000), ("gelu", "same", 12_000, 50_000),
        ("attention", "group", 6_500, 100_000), ("add + norm", "group", 7_700, 30_000),
    }  # fmt: skip
    # 2·2048·1024·4096 FLOPs: compute bound on both
    assert rows["mm"]["expected_ratio"] == pytest.approx(989.4 / 270.336, rel=1e-6)
    assert rows["mm"]["software_gap"] == pytest.approx(4.5 * 270.336 / 989.4, rel=1e-6)
    # all else moves bytes on both
    for name in ("gelu", "attention", "add + norm"):
        assert rows[name]["expected_ratio"] == pytest.approx(3.35 / 0.8, rel=1e-6), name
    assert row(answer, op="gelu")["left_roof_fraction"] == pytest.approx(33_554_432 / 3.35e12 / 12e-6, rel=1e-6)


def test_the_two_steps(answer: dict[str, Any]) -> None:
    """Left 46.2 µs of kernels, 4 of gaps and the host's 40 before them; right 270 and 12."""
    left, right = answer["summary"]["left"], answer["summary"]["right"]
    assert (left["time_ns"], left["rows_ns"], left["overlap_ns"]) == (90_200, 46_200, 0)
    assert (right["time_ns"], right["rows_ns"], right["idle_ns"]) == (282_000, 270_000, 12_000)
    assert sum(p["difference_ns"] for p in answer["summary"]["parts"]) == 191_800
    assert answer["summary"]["closing"][0]["group"] == "attention"


def test_the_other_way_round(pair: tuple[Path, Path], answer: dict[str, Any], roofwatch: Any) -> None:
    """Ascend on the left: the same rows, inverted."""
    back = json.loads(roofwatch("compare", str(pair[1]), str(pair[0]), "--format", "json").stdout)
    for a, b in zip(answer["rows"], back["rows"], strict=True):
        assert a["ratio"] * b["ratio"] == pytest.approx(1.0)
        assert a["software_gap"] * b["software_gap"] == pytest.approx(1.0)


def test_the_table(pair: tuple[Path, Path], roofwatch: Any) -> None:
    """What a person sees: in 80 columns, with the sentence that counts."""
    done = roofwatch("compare", *map(str, pair))
    assert done.returncode == 0
    assert all(len(line) <= 80 for line in done.stdout.splitlines())
    words = " ".join(done.stdout.split())
    assert "A step takes 90.2 µs on the left, 282 µs on the right: 3.13 ×, 192 µs more." in words
    assert "the right's kernels would take" in words
    assert "beyond what the hardware explains (and makes up" in words


def test_csv_has_the_same_rows(pair: tuple[Path, Path], answer: dict[str, Any], roofwatch: Any) -> None:
    """A line for each row, the documented keys as its head."""
    lines = roofwatch("compare", *map(str, pair), "--format", "csv").stdout.splitlines()
    assert lines[0].startswith("op,kind,shapes,dtypes,left_ns,right_ns,ratio,expected_ratio,software_gap,left_roof_")
    assert len(lines) == 1 + len(answer["rows"])
