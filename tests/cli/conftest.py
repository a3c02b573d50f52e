"""Hand-made answers."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

GOLDEN = Path(__file__).parent / "golden"

ROW: dict[str, Any] = {
    "kernel": "gemm", "kind": "matmul", "op": None, "phase": "forward", "module": None, "shapes": None, "dtypes": None,
    "device": "NVIDIA A100-SXM4-80GB", "calls": 1, "total_ns": 1000, "est_ns": 1000, "share": None, "mean_ns": 1000.0,
    "min_ns": 1000, "p50_ns": 1000, "p95_ns": 1000, "max_ns": 1000, "flops": None, "bytes": None, "intensity": None,
    "ridge": None, "bound": "unknown", "evidence": "none", "roof_fraction": None, "winnable_ns": None,
    "flops_max": None, "roof_fraction_max": None, "bound_range": None, "algbw": None, "busbw": None,
    "formula_bound": None, "l2_assisted": None, "roofed_share": None,
}  # fmt: skip

# What is written in golden/top_80.txt and golden/roofline_80.txt follows by hand:
#   a 4096³ half-precision product: 2·4096³ = 1.37e11 FLOP, 3·4096²·2 = 1.01e8 bytes, intensity 1365.3; on 312 TFLOP/s
#   and 2.039 TB/s the ridge is 153.0 and the roof time 440.5 µs; in 0.8 ms a call it reaches 172 TFLOP/s and 55.06 %.
#   An addition of 2 × 16 Mi floats: 1.68e7 FLOP, 2.01e8 bytes, intensity 1/12; vector ridge 19.5e12/2.039e12 = 9.56;
#   roof time 98.7 µs; in 123.4 µs it reaches 136 GFLOP/s and 80 %.
ROWS: tuple[dict[str, Any], ...] = (
    {
        "kernel": "ampere_fp16_s16816gemm_fp16_128x256_ldg8_f2f_stages_64x3_tn", "op": "aten::addmm", "kind": "matmul",
        "calls": 10_000, "total_ns": 8_000_000_000, "est_ns": 8_000_000_000, "share": 0.64, "mean_ns": 800_000.0,
        "flops": 137_438_953_472, "bytes": 100_663_296, "intensity": 1365.3333, "ridge": 153.0161,
        "bound": "compute", "evidence": "shapes", "roof_fraction": 0.550637,
        "shapes": [[4096], [4096, 4096], [4096, 4096], [], []],
    },
    {
        "kernel": "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>>(int, "
        "at::native::CUDAFunctor_add<float>, std::array<char*, 3ul>)",
        "op": "aten::add_", "kind": "elementwise", "calls": 20_000, "total_ns": 2_468_000_000,
        "est_ns": 2_468_000_000, "share": 0.19744, "mean_ns": 123_400.0, "flops": 16_777_216, "bytes": 201_326_592,
        "intensity": 0.0833333, "ridge": 9.563512, "bound": "memory", "evidence": "shapes", "roof_fraction": 0.800144,
        "shapes": [[16_777_216], [16_777_216], []],
    },
    {
        "kernel": "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
        "op": "c10d::allreduce_", "kind": "comm", "calls": 100, "total_ns": 1_500_000_000, "est_ns": 1_500_000_000,
        "share": 0.12, "mean_ns": 15_000_000.0, "bound": "communication", "evidence": "definition",
    },
    {
        "kernel": "triton_poi_fused_0", "kind": "other", "calls": 7, "total_ns": 4_550, "est_ns": 4_550,
        "share": 0.000000364, "mean_ns": 650.0,
    },
)  # fmt: skip

# A CPU: the kernel is the op. Winnable is 2.22 s × 0.42 = 932 ms and 1.5 s × 0.2 = 300 ms; a roof fraction of 2.94
# cannot be, and nothing can be won there. The shares are of 5 s; the largest part has five tensors in a list.
CPU_ROWS: tuple[dict[str, Any], ...] = (
    {
        "op": "aten::addmm", "kind": "matmul", "shapes": [[2048], [2048, 512], [512, 2048], [], []], "calls": 54,
        "mean_ns": 41_200_000.0, "est_ns": 2_220_000_000, "share": 0.444, "bound": "compute", "evidence": "shapes",
        "roof_fraction": 0.58,
    },
    {
        "op": "aten::addmm", "kind": "matmul", "shapes": [[512], [2048, 2048], [2048, 512], [], []], "calls": 48,
        "mean_ns": 31_200_000.0, "est_ns": 1_500_000_000, "share": 0.3, "bound": "compute", "evidence": "shapes",
        "roof_fraction": 0.8, "phase": "backward",
    },
    {
        "op": "aten::gelu", "kind": "activation", "shapes": [[8, 256, 2048], []], "calls": 90,
        "mean_ns": 11_100_000.0, "est_ns": 1_000_000_000, "share": 0.2, "bound": "memory", "evidence": "shapes",
        "roof_fraction": 2.94,
    },
    {
        "op": "aten::cat", "kind": "layout", "shapes": [[[8, 64]] * 5, []], "calls": 10, "mean_ns": 28_000_000.0,
        "est_ns": 280_000_000, "share": 0.056, "phase": "none",
    },
)  # fmt: skip


@pytest.fixture
def cpu_answer(answer: dict[str, Any]) -> dict[str, Any]:
    """An answer of a CPU, whose windows cost less than nothing: noise."""
    coverage = {**answer["coverage"], "windows": 2, "named_share": None, "mfu": None, "dropped": {}}
    rows = [{**ROW, **row, "kernel": row["op"], "device": "EPYC"} for row in CPU_ROWS]
    return {
        **answer,
        "coverage": coverage,
        "timeline": None,
        "cost": {"share": -0.0041, "windows": 2, "of_windows": 2},
        "rows": rows,
    }


@pytest.fixture
def answer() -> dict[str, Any]:
    """An answer of ``top`` with a little of everything: unknowns, a drop, a timeline, a cost."""
    return {
        "schema_version": 1,
        "query": {"query": "top"},
        "coverage": {
            "windows": 48, "device_records": 30_107, "device_time_ns": 12_500_000_000, "busy_ns": 6_100_000_000,
            "span_ns": 10_000_000_000, "linked_share": 0.99, "backlog_share": 0.01, "classified_share": 0.978,
            "named_share": 0.011, "sampled_share": 0.02, "graph_share": None, "graph_attributed_share": None,
            "model_flops": 10**15, "mfu": 0.382, "mfu_known_share": 0.94, "disagree_share": None, "layout_ns": None,
            "layout_share": None,
            "dropped": {"oversized": 2, "unfinished": 1_234},
        },
        "timeline": {
            "busy_ns": 6_100_000_000, "idle_ns": 3_900_000_000,
            "causes": {
                "launch_bound": {"total_ns": 2_200_000_000, "count": 10, "longest_ns": 1},
                "input": {"total_ns": 900_000_000, "count": 10, "longest_ns": 1},
                "sync": {"total_ns": 750_000_000, "count": 10, "longest_ns": 1},
                "copy": {"total_ns": 30_000_000, "count": 10, "longest_ns": 1},
                "unknown": {"total_ns": 20_000_000, "count": 10, "longest_ns": 1},
            },
            "devices": [],
        },
        "cost": {"share": 0.0012, "windows": 46, "of_windows": 48},
        "rows": [{**ROW, **row} for row in ROWS],
    }  # fmt: skip


@pytest.fixture
def golden() -> Callable[[str], str]:
    """The expected output of a name, written by hand."""
    return lambda name: (GOLDEN / name).read_text(encoding="utf-8")


sys.path.insert(0, str(Path(__file__).parent))  # diagnosis_scene; the import mode leaves the path alone
