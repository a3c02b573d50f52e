"""Small CSV tables written by hand, and the slow reading of real ones."""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path

from roofwatch.collectors.base import Limits, RawGroup, RawProfile
from roofwatch.collectors.registry import read

LEVEL0 = ("Step Id", "Name", "Type", "Accelerator Core", "Start Time(us)", "Duration(us)", "Wait Time(us)", "Block Dim")
LEVEL1 = (
    "Step Id", "Device_id", "Model ID", "Task ID", "Stream ID", "Name", "Type", "OP State", "Accelerator Core",
    "Start Time(us)", "Duration(us)", "Wait Time(us)", "Block Num", "Mix Block Num", "HF32 Eligible", "Input Shapes",
    "Input Data Types", "Input Formats", "Output Shapes", "Output Data Types", "Output Formats", "Context ID",
    "aicore_time(us)", "aic_total_cycles", "aic_mac_ratio", "aic_mte2_ratio", "aiv_vec_ratio", "cube_utilization(%)",
)  # fmt: skip
START = 1_736_408_883_000_000  # µs, January 2025
DEFAULTS = {
    "Step Id": "5", "Device_id": "0", "Model ID": "4294967295", "Task ID": "1", "Stream ID": "2", "Name": "MatMulV3_1",
    "Type": "MatMulV3", "OP State": "dynamic", "Accelerator Core": "AI_CORE", "Start Time(us)": f"{START}.000\t",
    "Duration(us)": "10.5", "Wait Time(us)": "0", "Block Dim": "24", "Block Num": "24", "Input Shapes": '"16,32;32,8"',
    "Input Data Types": "DT_BF16;DT_BF16", "Input Formats": "ND;FRACTAL_NZ", "Output Shapes": '"16,8"',
    "Output Data Types": "DT_BF16", "Output Formats": "ND", "Context ID": "N/A",
}  # fmt: skip


def line(cells: Sequence[str]) -> str:
    """One line, quoted where need be."""
    out = io.StringIO()
    csv.writer(out, lineterminator="").writerow(cells)
    return out.getvalue()


def table(*rows: dict[str, str], columns: Sequence[str] = LEVEL1, end: str = "\n") -> bytes:
    """A table of rows, each with what differs from ``DEFAULTS``; other cells are N/A."""
    lines = [line([{**DEFAULTS, **row}.get(name, "N/A") for name in columns]) for row in rows]
    return "".join(one + end for one in [line(columns), *lines]).encode()


def read_bytes(text: bytes, limits: Limits | None = None) -> RawProfile:
    """Reads a text as a file."""
    return read(io.BytesIO(text), limits)


def only(profile: RawProfile) -> RawGroup:
    """The one group of a profile."""
    assert len(profile.groups) == 1
    return profile.groups[0]


def rows_of(path: Path) -> list[dict[str, str]]:
    """The rows of a table that have all cells, by Python's own parser."""
    text = path.read_bytes().decode("utf-8-sig")
    found = csv.reader(io.StringIO(text, newline=""))
    head = next(found)
    return [dict(zip(head, (cell.strip() for cell in row), strict=True)) for row in found if len(row) == len(head)]


def ns(text: str) -> int:
    """Nanoseconds of microseconds, exactly."""
    return round(Decimal(text) * 1000)


def slow_busy(rows: Sequence[tuple[int, int]]) -> int:
    """The length of a union of stretches, by looking at each edge."""
    edges: Counter[int] = Counter()
    for start, end in rows:
        edges[start] += 1
        edges[end] -= 1
    depth = busy = 0
    before = 0
    for at in sorted(edges):
        busy += at - before if depth else 0
        depth, before = depth + edges[at], at
    return busy
