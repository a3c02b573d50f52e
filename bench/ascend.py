"""The readers of Ascend's profilers on a million kernels.

A real database is repeated, with times moved on and new ids, so that every row means what it meant: records join,
metrics hit their task, ops and calls their connection. Reading runs as a process of its own, imports included; what
counts is its CPU time (user and system) and its peak memory.

    python bench/ascend.py            # needs the real traces (ROOFWATCH_TRACES); 1 GB of disk while it runs
    python bench/ascend.py --kernels 100000
"""

from __future__ import annotations

import argparse
import os
import sqlite3
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from _rows import TRACES, or_skipped, row, trace

ORIGINAL = (
    "ascend/pytorch_alexnet_910B_ddp2/db/level1/rank1_ascend_pt/ASCEND_PROFILER_OUTPUT/ascend_pytorch_profiler_1.db"
)
KERNELS_A_COPY = 187
ID_STEP = 20_000  # between the ids of two copies; the original's span fewer
SPAN_NS = 200_000_000  # between the times of two copies; the original spans fewer
MIN_WITH_METRICS, MIN_WITHOUT, MAX_RSS_MB = 80_000, 250_000, 250
TIMEOUT_S = 600
MOVED = {
    "TASK": {"startNs": SPAN_NS, "endNs": SPAN_NS, "connectionId": ID_STEP, "globalTaskId": ID_STEP},
    "COMPUTE_TASK_INFO": {"globalTaskId": ID_STEP},
    "COMMUNICATION_OP": {"startNs": SPAN_NS, "endNs": SPAN_NS, "connectionId": ID_STEP, "opId": ID_STEP},
    "COMMUNICATION_TASK_INFO": {"globalTaskId": ID_STEP, "opId": ID_STEP},
}
HOST = {
    "CANN_API": {"startNs": SPAN_NS, "endNs": SPAN_NS, "connectionId": ID_STEP},
    "PYTORCH_API": {"startNs": SPAN_NS, "endNs": SPAN_NS, "connectionId": ID_STEP},
    "CONNECTION_IDS": {"id": ID_STEP, "connectionId": ID_STEP},
    "STEP_TIME": {"id": 1, "startNs": SPAN_NS, "endNs": SPAN_NS},
}
WHOLE = ("STRING_IDS", "NPU_INFO", "ENUM_API_TYPE", "ENUM_HCCL_DATA_TYPE", "AICORE_FREQ", "RANK_DEVICE_MAP")

READ = """
import sys
from roofwatch.collectors.registry import read
profile = read(sys.argv[1])
assert not profile.problem, profile.problem
assert all(d.span_ns - d.busy_ns == sum(c.total_ns for c in d.causes) for d in profile.devices)
kernels = [g for g in profile.groups if g.core != "COMMUNICATION"]
print(*(sum(g.calls for g in kernels if test(g)) for test in (bool, lambda g: g.pipes, lambda g: g.linked)))
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kernels", type=int, default=1_000_000)
    parser.add_argument("--times", type=int, default=1, help="runs of each; the one with the least CPU time counts")
    options = parser.parse_args()
    with or_skipped("reader: Ascend's databases"):
        trace(ORIGINAL)
        measure(options.kernels, options.times)


def measure(kernels: int, times: int) -> None:
    copies = -(-kernels // KERNELS_A_COPY)
    full = kernels >= 1_000_000  # the limits are on a million; a quick look has none
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "repeated.db"
        for name, metrics, host, size, least in (
            ("with metrics", True, False, copies, MIN_WITH_METRICS),
            ("without metrics", False, False, copies, MIN_WITHOUT),
            ("with metrics, ops and calls", True, True, -(-copies // 10), None),
        ):
            make(path, size, metrics=metrics, host=host)
            measured(name, path, times, least if full else None, MAX_RSS_MB if full and least else None)
            path.unlink()


def measured(name: str, path: Path, times: int, least: int | None, most_mb: int | None) -> None:
    cpu_s, wall_s, rss_mb, output = min(run([sys.executable, "-c", READ, str(path)]) for _ in range(times))
    kernels, with_pipes, linked = (int(count) for count in output.split())
    name = f"Ascend database, {name}"
    row(f"{name}: size", path.stat().st_size / 1e6, "MB")
    row(f"{name}: kernels", kernels, "kernels")
    row(f"{name}: of them with pipes", with_pipes, "kernels")
    row(f"{name}: of them linked to an op", linked, "kernels")
    row(f"{name}: rate", kernels / cpu_s, "kernels per CPU-second", at_least=least)
    row(f"{name}: wall time", wall_s, "s")
    row(f"{name}: peak memory", rss_mb, "MB", at_most=most_mb)


def run(command: list[str]) -> tuple[float, float, float, str]:
    """CPU seconds, wall seconds, peak memory in MB and output of a process."""
    start = time.monotonic()
    with tempfile.TemporaryFile() as out:
        process = subprocess.Popen(command, stdout=out)
        pid = 0
        while not pid:
            pid, status, usage = os.wait4(process.pid, os.WNOHANG)
            if not pid and time.monotonic() > start + TIMEOUT_S:
                process.kill()
            time.sleep(0.01)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            raise subprocess.SubprocessError(f"the reader ended with {process.returncode}")
        out.seek(0)
        text = out.read().decode()
    return usage.ru_utime + usage.ru_stime, time.monotonic() - start, usage.ru_maxrss * 1024 / 1e6, text


def make(path: Path, copies: int, *, metrics: bool, host: bool) -> None:
    """Writes the original ``copies`` times, in a process of its own: a parent's memory is in its children's peak."""
    subprocess.run([sys.executable, "-c", MAKE, str(path), str(copies), str(int(metrics)), str(int(host))], check=True)


MAKE = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
import ascend
ascend.repeat(sys.argv[1], int(sys.argv[2]), metrics=sys.argv[3] == "1", host=sys.argv[4] == "1")
"""


def repeat(path: str, copies: int, *, metrics: bool, host: bool) -> None:
    connection = sqlite3.connect(path)
    for pragma in ("journal_mode=off", "synchronous=off"):
        connection.execute(f"pragma {pragma}")
    connection.execute("attach ? as original", (str(TRACES / ORIGINAL),))
    connection.execute("create temp table copy (k integer primary key)")
    connection.executemany("insert into copy values (?)", ((k,) for k in range(copies)))
    for table in WHOLE:
        connection.execute(f"create table {table} as select * from original.{table}")  # noqa: S608 - our own names
    for table, moved in (MOVED | (HOST if host else {})).items():
        [(sql,)] = connection.execute("select sql from original.sqlite_master where name=?", (table,)).fetchall()
        connection.execute(sql)
        columns = [column[1] for column in connection.execute(f"pragma original.table_info({table})")]
        cells = [f"t.{name}+copy.k*{moved[name]}" if name in moved else f"t.{name}" for name in columns]
        made = f"insert into {table} select {','.join(cells)} from copy cross join original.{table} t"  # noqa: S608 - ours
        connection.execute(made)
    if metrics:  # a real one has all rows of one metric, then those of the next
        connection.execute("create table TASK_PMU_INFO (globalTaskId INTEGER,name INTEGER,value NUMERIC)")
        connection.execute("create temp table one as select * from original.TASK_PMU_INFO")
        for (name,) in connection.execute("select distinct name from one order by name").fetchall():
            moved_id = f"t.globalTaskId+copy.k*{ID_STEP}"
            of_one = "from copy cross join (select * from one where name=?) t"
            connection.execute(f"insert into TASK_PMU_INFO select {moved_id},t.name,t.value {of_one}", (name,))
    connection.execute("create index TaskIndex on TASK (startNs,globalTaskId)")
    connection.commit()
    connection.close()


if __name__ == "__main__":
    main()
