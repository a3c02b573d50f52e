"""Offline analysis: forks, calls msprof, and is always done."""

from __future__ import annotations

import json
import multiprocessing
import os
import shutil
import sqlite3
import subprocess
import time
from pathlib import Path

from torch_npu import _faults
from torch_npu.profiler.analysis.prof_common_func._constant import print_error_msg, print_info_msg

OUTPUT = "ASCEND_PROFILER_OUTPUT"
BLOCK = b"\7" * (1 << 20)


def analyse(path: str) -> None:
    """In a forked process of its own, whatever becomes of it."""
    print_info_msg(f"Start parsing profiling data in sync mode at: {path}")
    _faults.happened(f"analyse {os.nice(0)} {'RANK' in os.environ} {os.environ.get('PYTHONPATH')}")
    worker = multiprocessing.get_context("fork").Process(target=_parse, args=(Path(path),))
    worker.start()
    worker.join()
    output = Path(path) / OUTPUT
    output.mkdir(exist_ok=True)
    if "old" not in _faults.wanted():
        (output / "analyse.done").touch()
    _faults.happened("done")
    print_info_msg("All profiling data parsed in a total time of 0:00:01")


def _parse(path: Path) -> None:
    faults = _faults.wanted()
    if shutil.which("msprof") is None or "fails" in faults:
        print_error_msg("Export CANN Profiling data failed! 'msprof' command not found!")
        return
    subprocess.run(["msprof", "--export=on", "--type=db"], check=True, capture_output=True)
    if "hangs" in faults:
        straggler = subprocess.Popen(["sleep", "600"], start_new_session=True)
        _faults.happened(f"hangs {os.getpid()} {straggler.pid}")
        time.sleep(600)
    if "fills" in faults:
        _fill(path)
    if "slow" in faults:
        _faults.happened("slow")
        end = time.monotonic() + 5
        while "slow" in _faults.wanted() and time.monotonic() < end:
            time.sleep(0.02)
    _export(path, faults)


def _fill(path: Path) -> None:
    """256 MiB in files of 4, unless somebody stops it."""
    for number in range(64):
        (path / f"sqlite{number}.db").write_bytes(BLOCK * 4)
        time.sleep(0.05)


def _export(path: Path, faults: frozenset[str]) -> None:
    info = json.loads(next(path.glob("profiler_info*.json")).read_text())
    rank = info.get("rank_id")
    output = path / OUTPUT
    output.mkdir()
    database = output / ("ascend_pytorch_profiler.db" if rank is None else f"ascend_pytorch_profiler_{rank}.db")
    shutil.copyfile(os.environ["ASCEND_STAND_IN_DB"], database)
    database.chmod(0o640)
    connection = sqlite3.connect(database)
    _move(connection, info["start_info"]["began_ns"])
    if "zero" in faults:
        connection.execute("DELETE FROM COMPUTE_TASK_INFO")
    if "columns" in faults:
        connection.execute("ALTER TABLE TASK RENAME COLUMN startNs TO begin")
    if "large" in faults:
        connection.execute("CREATE TABLE MORE AS SELECT randomblob(2 << 20) AS data")
    connection.commit()
    connection.close()


def _move(connection: sqlite3.Connection, to: int) -> None:
    """Every time in it as much later as the window began after the first op of the sample."""
    (first,) = connection.execute("SELECT min(CAST(startNs AS INTEGER)) FROM PYTORCH_API").fetchone()
    for (table,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
        for column in connection.execute(f"PRAGMA table_info({table})").fetchall():
            if column[1].endswith("Ns"):
                moved = f"CAST({column[1]} AS INTEGER) + {to - first}"
                moved = f"CAST({moved} AS TEXT)" if column[2] == "TEXT" else moved
                connection.execute(f"UPDATE {table} SET {column[1]} = {moved}")  # noqa: S608 - our own sample
