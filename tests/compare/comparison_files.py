"""One step as two profilers would write it: a Kineto trace of an H100, a kernel table of an Ascend 910B4."""

from __future__ import annotations

import csv
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

BASE_US = 1_700_000_000_000_000
BEFORE_US = 40.0  # from the step's begin to its first kernel
CLOCK_HZ, CORES = 1.65e9, 20  # by which a 910B4 is known
HEAD = (
    "Step Id", "Device_id", "Model ID", "Task ID", "Stream ID", "Name", "Type", "OP State", "Accelerator Core",
    "Start Time(us)", "Duration(us)", "Wait Time(us)", "Block Dim", "Mix Block Dim", "HF32 Eligible", "Input Shapes",
    "Input Data Types", "Input Formats", "Output Shapes", "Output Data Types", "Output Formats", "Context ID",
    "aicore_time(us)", "aic_total_cycles", "cube_utilization(%)",
)  # fmt: skip
# What a formula reads beside shapes: of flash attention that it is not causal.
CONCRETE = {"aten::_flash_attention_forward": ["", "", "", "", "", "128", "128", "0.", "False", "False"]}
Kernel = tuple[str, str, Sequence[Sequence[int]], Sequence[int], float]  # op, kernel, inputs, output, µs


def kineto(path: Path, kernels: Sequence[Kernel], gap_us: float) -> Path:
    """A step in which the device runs the kernels one after another, with a gap before each."""
    events: list[dict[str, Any]] = []
    begin = BEFORE_US
    for i, (op, kernel, inputs, _, took) in enumerate(kernels, 1):
        told = {"External id": i, "Input Dims": list(inputs), "Input type": ["c10::BFloat16"] * len(inputs)}
        if concrete := CONCRETE.get(op):
            told |= {"Concrete Inputs": concrete, "Input Dims": [*inputs, *([[]] * (len(concrete) - len(inputs)))]}
            told["Input type"] += [""] * (len(concrete) - len(inputs))
        at = 20.0 + 2 * i
        events += [
            _event("cpu_op", op, at, 1.5, 7, told),
            _event("cuda_runtime", "cudaLaunchKernel", at + 0.5, 0.5, 7, {"correlation": i, "External id": i}),
            _event("kernel", kernel, begin, took, 0, {"correlation": i, "External id": i, "device": 0, "stream": 7}),
        ]
        begin += took + gap_us
    end = begin - gap_us
    events.append(_event("user_annotation", "ProfilerStep#1", 0.0, end, 7, {}))
    device = {"id": 0, "name": "NVIDIA H100 80GB HBM3", "numSms": 132, "totalGlobalMem": 85_018_279_936}
    trace = {"schemaVersion": 1, "deviceProperties": [device], "traceEvents": events, "baseTimeNanoseconds": 0}
    path.write_text(json.dumps(trace), encoding="utf-8")
    return path


def _event(category: str, name: str, at: float, took: float, thread: int, told: dict[str, Any]) -> dict[str, Any]:
    return {"ph": "X", "cat": category, "name": name, "pid": 1, "tid": thread, "ts": at, "dur": took, "args": told}


def ascend(path: Path, kernels: Sequence[Kernel], gap_us: float) -> Path:
    """The same as ``kernel_details.csv`` has it; a cube kernel keeps all cores busy at the clock."""
    lines = []
    begin = float(BASE_US)
    for i, (_, type_, inputs, output, took) in enumerate(kernels, 1):
        cube = "MatMul" in type_
        shapes = f'"{";".join(",".join(map(str, shape)) for shape in inputs)}"'
        many = ";".join(["DT_BF16"] * len(inputs)), ";".join(["ND"] * len(inputs))
        cycles = round(took * 1e-6 * CLOCK_HZ * CORES) if cube else 0
        lines.append([
            "1", "0", "4294967295", i, "2", f"aclnn{type_}_{type_}", type_, "dynamic",
            "AI_CORE" if cube else "AI_VECTOR_CORE", f"{begin:.3f}\t", took, 0 if i == 1 else gap_us,
            CORES if cube else 2 * CORES, 0, "NO", shapes, *many, f'"{",".join(map(str, output))}"', "DT_BF16", "ND",
            "N/A", took if cube else 0.0, cycles, 100.0 if cube else 0.0,
        ])  # fmt: skip
        begin += took + gap_us
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([HEAD, *lines])
    return path
