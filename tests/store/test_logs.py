"""The store's log: one line an event for people or programs, and no storms."""

from __future__ import annotations

import json
import os
import pty
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

PROGRAM = """
import logging, sys
from roofwatch.store import logs
logs.set_up(sys.argv[1], sys.argv[2])
log = logging.getLogger("roofwatch.store.service")
for number in range(1000):
    log.warning("segment %d of agent %r rejected: %s", number, "a\\n", "x" * 500)
log.info("a word")
for number in range(40):
    logs.audit("capture by %r: %d processes", "alice", number)
try:
    1 / 0
except ZeroDivisionError:
    log.exception("unpacking failed")
"""


def lines(*arguments: str) -> list[str]:
    """What a program of its own writes."""
    done = subprocess.run([sys.executable, "-c", PROGRAM, *arguments], capture_output=True, text=True, check=True)
    assert done.stdout == ""
    return done.stderr.splitlines()


def test_a_repeating_line_is_thinned_and_a_fault_brings_its_traceback() -> None:
    """Of a thousand rejections ten are written; a level below is not; the last words are the fault's."""
    told = lines("text", "warning")
    assert sum("rejected" in line for line in told) == 10
    assert "WARNING: segment 0 of agent 'a\\n' rejected" in told[0]
    assert not any("a word" in line for line in told)
    assert told[-1] == "ZeroDivisionError: division by zero"
    asked = [line.partition(" ")[2] for line in told if "capture by" in line]
    assert asked == [f"INFO: capture by 'alice': {number} processes" for number in range(40)]


def test_json_is_one_object_a_line() -> None:
    """With time, level, event, where from and what; hostile values stay in their string."""
    rows = [json.loads(line) for line in lines("json", "info")]
    assert {row["level"] for row in rows} == {"warning", "info", "error"}
    assert rows[0]["logger"] == "roofwatch.store.service"
    assert rows[0]["message"].startswith("segment 0 of agent 'a\\n' rejected: xxx")
    assert len(rows[0]["message"]) <= 301
    assert rows[-1]["traceback"].endswith("ZeroDivisionError: division by zero\n")
    assert len(rows) == 12 + 40


def test_a_terminal_that_goes_does_not_fail_the_store(tmp_path: Path) -> None:
    """It serves on, takes what its lines were in, and ends in order: exit 0 and not Python's 120."""
    master, terminal = pty.openpty()
    command = [sys.executable, "-m", "roofwatch.cli.main", "store", "serve", "--listen", "127.0.0.1:0", "--db"]
    process = subprocess.Popen([*command, str(tmp_path / "store.db")], stdout=terminal, stderr=terminal)
    os.close(terminal)
    told = b""
    while b"listening on" not in told and select.select([master], [], [], 30)[0]:
        told += os.read(master, 4096)
    assert b"listening on" in told
    os.close(master)
    time.sleep(0.2)
    assert process.poll() is None
    process.send_signal(signal.SIGTERM)
    assert process.wait(30) == 0


def test_a_pipe_that_nobody_reads() -> None:
    """A thousand lines into it, and still exit 0."""
    reading, writing = os.pipe()
    os.close(reading)
    try:
        done = subprocess.run([sys.executable, "-c", PROGRAM, "text", "info"], stderr=writing, check=False)
    finally:
        os.close(writing)
    assert done.returncode == 0
