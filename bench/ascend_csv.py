"""How fast and how large the reader of Ascend's kernel tables is: a real one repeated to a million rows.

    python bench/ascend_csv.py [--rows N] [--cache DIR]

Each copy is later than the one before and has task ids of its own. Figures are of a fresh process: CPU seconds, rows a
CPU-second of reading alone, and the largest memory that it held.
"""

from __future__ import annotations

import argparse
import csv
import io
import os
import subprocess
import sys
import tempfile
import time
from decimal import Decimal
from pathlib import Path

from _rows import or_skipped, row, say, trace

ORIGINAL = "ascend/qwen3_0.6b_910B_tp1pp2dp2_level2/rank_0_ascend_pt/ASCEND_PROFILER_OUTPUT/kernel_details.csv"
ROWS = 1_000_000
LEAST_A_SECOND, MOST_MB = 100_000, 250


def make_table(path: Path, rows: int) -> int:
    """Writes the original's rows until there are ``rows``; how many bytes that makes."""
    text = trace(ORIGINAL).read_text("utf-8")
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


def read(path: Path) -> None:
    """Reads the table, and prints what the reading alone took: records, seconds."""
    from roofwatch.collectors.registry import read_path  # noqa: PLC0415 - measured apart

    began = time.process_time()
    profile = read_path(path).profile
    seconds = time.process_time() - began
    print(sum(group.calls for group in profile.groups), seconds)


def measure(path: Path, *, full: bool) -> None:
    """Reads the table in a process of its own, imports included."""
    with subprocess.Popen([sys.executable, __file__, "--read", str(path)], stdout=subprocess.PIPE) as process:
        output = process.stdout.read() if process.stdout else b""
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        sys.exit(f"reading ended with {process.returncode}")
    records, seconds = (float(told) for told in output.split())
    name = "Ascend kernel_details.csv"
    row(f"{name}: records", int(records), "rows")
    row(f"{name}: rate", records / seconds, "rows per CPU-second", at_least=LEAST_A_SECOND if full else None)
    row(f"{name}: CPU time of the whole process", usage.ru_utime + usage.ru_stime, "s")
    row(f"{name}: peak memory", usage.ru_maxrss * 1024 / 1e6, "MB", at_most=MOST_MB if full else None)


def main() -> None:
    """Makes the table, and reads it in a process of its own."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=ROWS, help="below a million nothing is judged")
    parser.add_argument("--cache", type=Path, help="keep the table here for the next run")
    parser.add_argument("--read", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.read:
        read(given.read)
        return
    with or_skipped("reader: Ascend's kernel tables"), tempfile.TemporaryDirectory() as folder:
        path = (given.cache or Path(folder)) / f"kernel_details_{given.rows}.csv"
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            make_table(path, given.rows)
        say(f"kernel_details.csv, {given.rows:,} rows, {path.stat().st_size / 1e6:.0f} MB")
        measure(path, full=given.rows >= ROWS)


if __name__ == "__main__":
    main()
