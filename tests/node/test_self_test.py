"""``roofwatch self-test``: a real job, agent and store; and what it says where a part is not as it should be."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

STAGES = ["torch", "store", "agent", "job", "registered", "window", "stored", "answer", "job's end", "stop"]


@pytest.fixture
def short() -> Iterator[Path]:
    """A folder of its own for what is temporary, since others test beside this; a socket's path has 107 bytes."""
    folder = Path(tempfile.mkdtemp(prefix="rw-"))
    yield folder
    shutil.rmtree(folder)


def test_a_short_job_end_to_end(started, short) -> None:
    """Each stage works and says what it saw; nothing is left."""
    done = started("self-test", "--seconds", "2", "--device", "cpu", "--format", "json", env={"TMPDIR": str(short)})
    answer = json.loads(done.stdout)
    rows = answer["rows"]
    assert [(row["stage"], row["ok"]) for row in rows] == [(name, True) for name in STAGES], rows
    assert done.returncode == 0
    told = {row["stage"]: row["detail"] for row in rows}
    assert told["job"] == "trains on cpu"
    assert told["job's end"].startswith("steps ")
    assert told["stop"].endswith("windows stored, none lost")
    assert all(0 <= row["seconds"] < 60 for row in rows)
    assert list(short.glob("roofwatch-self-test-*")) == []
    lines = [" ".join(p.info["cmdline"] or ()) for p in psutil.process_iter(["cmdline"])]
    assert [line for line in lines if str(short) in line] == []


def test_a_stage_that_fails_ends_it_and_says_what_to_do(started) -> None:
    """A Python without torch: exit code 1. A store that is not there: 3, before anything is started."""
    done = started("self-test", "--python", "/bin/false")
    assert done.returncode == 1
    assert done.stdout.splitlines()[0].startswith("fail  torch")
    assert "→ name the job's Python with --python" in done.stdout
    done = started("self-test", "--store", "127.0.0.1:1")
    assert (done.returncode, "no store answers at 127.0.0.1:1" in done.stderr) == (3, True)
