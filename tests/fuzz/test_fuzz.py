"""A little of the fuzzing in every test run; `make fuzz` goes on for minutes with new changes each time."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

RUN = Path(__file__).parent / "run.py"
SECONDS = os.environ.get("ROOFWATCH_FUZZ_SECONDS", "3")
SEED = os.environ.get("ROOFWATCH_FUZZ_SEED", "1")  # the same every time: a fault found here can be found again


@pytest.mark.parametrize("target", ["kineto", "ascend", "protocol", "segments"])
def test_broken_input_is_refused_or_read(target, tmp_path):
    """Nothing but a word for what became of it: no other error, no crash, no flood of memory, no endless work."""
    command = [sys.executable, RUN, "--seconds", SECONDS, "--seed", SEED, "--keep", tmp_path, target]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60 + 3 * float(SECONDS), check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "inputs of" in done.stdout


def test_a_fault_is_told_and_its_input_kept(tmp_path):
    """What a target cannot take ends the run with 1, and the file makes the fault again."""
    program = tmp_path / "faulty.py"
    program.write_text(
        f"import sys; sys.path.insert(0, {str(RUN.parent)!r})\n"
        "import run, targets\n"
        "from dataclasses import replace\n"
        "def fails_on_two(data):\n"
        "    if data.count(b'hello') != 1: raise ZeroDivisionError\n"
        "    return 'fine'\n"
        "targets.TARGETS['protocol'] = targets.Target(lambda: [b'hello'], targets.WORDS, fails_on_two)\n"
        "from pathlib import Path\n"
        "sys.exit(run.fuzz('protocol', 30, 1, Path(sys.argv[1])))\n"
    )
    done = subprocess.run([sys.executable, program, tmp_path], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert "ZeroDivisionError" in done.stderr
    assert (tmp_path / "fuzz-protocol-1.input").read_bytes().count(b"hello") != 1
