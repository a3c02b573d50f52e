"""How fast and how large the reader of Ascend's kernel tables is: a real one repeated to a million rows.

    python bench/ascend_csv.py [--rows N] [--cache DIR]

Each copy is later than the one before and has task ids of its own. Figures are of a fresh process: CPU seconds, rows a
CPU-second, and the largest memory that it held. Targets: 100,000 rows a CPU-second, 250 MB.
"""

from __future__ import annotations

import argparse
import csv
import io
import os
import resource
import sys
import tempfile
import time
from decimal import Decimal
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TRACES = Path(os.environ.get("ROOFWATCH_TRACES", ROOT.parent / "shared" / "traces")) / "ascend"
ORIGINAL = "qwen3_0.6b_910B_tp1pp2dp2_level2/rank_0_ascend_pt/ASCEND_PROFILER_OUTPUT/kernel_details.csv"
ROWS = 1_000_000
LEAST_A_SECOND, MOST_BYTES = 100_000, 250e6


def make_table(path: Path, rows: int) -> int:
    """Writes the original's rows until there are ``rows``; how many bytes that makes."""
    text = (TRACES / ORIGINAL).read_text("utf-8")
    head, *lines = text.splitlines()
    names = next(csv.reader([head]))
    start, task = names.index("Start Time(us)"), names.index("Task ID")
    cells = [next(csv.reader([line])) for line in lines]
    times = [Decimal(row[start].strip()) for row in cells]
    span = max(times) - min(times) + 1_000_000
    with path.open("w", encoding="utf-8", newline="") as out:
        out.write(f"{head}\n")
        for at in range(rows):
            copy, row = divmod(at, len(cells))
            cells[row][start] = f"{times[row] + copy * span}\t"
            if cells[row][task].isdigit():
                cells[row][task] = str(at % 65_536)
            line = io.StringIO()
            csv.writer(line, lineterminator="\n").writerow(cells[row])
            out.write(line.getvalue())
    return path.stat().st_size


def read_in_child(path: Path) -> tuple[float, int, int]:
    """CPU seconds, most bytes in memory and records of a process that reads the table, imports included."""
    pid = os.fork()
    if not pid:
        os.execv(sys.executable, [sys.executable, __file__, "--read", str(path)])  # noqa: S606 - ourselves
    _, status, usage = os.wait4(pid, 0)
    if status:
        sys.exit(f"reading ended with status {status}")
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024, usage.ru_minflt


def read(path: Path) -> None:
    """Reads the table and tells what the reading alone took."""
    from roofwatch.collectors.registry import read_path  # noqa: PLC0415 - measured apart

    began = time.process_time()
    profile = read_path(path).profile
    seconds = time.process_time() - began
    records = sum(group.calls for group in profile.groups)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(f"  {records} records in {len(profile.groups)} groups: {seconds:.2f} CPU-s = {records / seconds:,.0f} rows/s")
    print(f"  at most {peak / 1e6:.0f} MB in memory")
    if records / seconds < LEAST_A_SECOND or peak > MOST_BYTES:
        print("  BELOW TARGET")


def main() -> None:
    """Makes the table, and reads it in a process of its own."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rows", type=int, default=ROWS)
    parser.add_argument("--cache", type=Path, help="keep the table here for the next run")
    parser.add_argument("--read", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.read:
        read(given.read)
        return
    with tempfile.TemporaryDirectory() as folder:
        path = (given.cache or Path(folder)) / f"kernel_details_{given.rows}.csv"
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            make_table(path, given.rows)
        print(f"kernel_details.csv, {given.rows:,} rows, {path.stat().st_size / 1e6:.0f} MB:", flush=True)
        seconds, peak, _ = read_in_child(path)
        print(f"  whole process: {seconds:.2f} CPU-s, {peak / 1e6:.0f} MB")


if __name__ == "__main__":
    main()
