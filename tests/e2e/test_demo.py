"""``roofwatch demo`` as a user runs it, to its end and interrupted."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

PROGRAM = (sys.executable, "-m", "roofwatch.cli.main", "demo")


def environment(folder: Path) -> dict[str, str]:
    """The user's own, with all that the demo writes under one folder (short: sockets live there)."""
    return {**os.environ, "TMPDIR": str(folder), "XDG_CACHE_HOME": str(folder / "cache")}


def left(folder: Path) -> list[str]:
    """Processes that have the folder in their environment, by command line; zombies have none."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                if f"TMPDIR={folder}".encode() in (entry / "environ").read_bytes():
                    found.append((entry / "cmdline").read_text().replace("\0", " "))
            except OSError:
                continue
    return found


@pytest.fixture
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A short folder."""
    return tmp_path_factory.mktemp("d")


@dataclass(frozen=True)
class Ran:
    """The demo as it ended, on a machine that has measured nothing yet."""

    folder: Path
    done: subprocess.CompletedProcess[str]
    took_s: float

    def cache(self) -> Path:
        """What it leaves: the peaks of this machine."""
        return self.folder / "cache"


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    """Run once."""
    folder = tmp_path_factory.mktemp("d")
    begin = time.monotonic()
    done = subprocess.run(
        [*PROGRAM, "--format", "json", "--top", "0"],
        capture_output=True, text=True, timeout=300, check=False, env=environment(folder),
    )  # fmt: skip
    return Ran(folder, done, time.monotonic() - begin)


@pytest.mark.timeout(320)
def test_the_demo(whole: Ran) -> None:
    """Within 60 s: both jobs' kernels with bound, evidence and roof fraction, the cost; nothing is left but peaks.

    It takes longer on a machine that it sees is busy, and says so.
    """
    done = whole.done
    assert done.returncode == 0, done.stderr
    if "other processes took" not in done.stderr and "busy" not in done.stderr:
        assert whole.took_s < 60
    answer = json.loads(done.stdout)
    assert {process["model"] for process in answer["processes"]} == {"encoder inference", "training"}
    cost = {process["model"]: process["lost_ns"] for process in answer["processes"]}
    assert cost["training"] is not None
    assert answer["coverage"]["classified_share"] > 0.5
    judged = [row for row in answer["rows"] if row["evidence"] == "shapes"]
    assert judged
    assert {"compute", "memory"} <= {row["bound"] for row in judged}
    assert all(row["roof_fraction"] > 0 for row in judged[:5])
    assert {"aten::addmm", "aten::native_layer_norm"} <= {row["op"] for row in answer["rows"]}
    assert {path.name for path in whole.folder.rglob("*") if path.is_file()} == {"peaks.json"}
    assert left(whole.folder) == []


@pytest.mark.timeout(320)  # where it runs alone, with the demo before it
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_demo_leaves_nothing(folder: Path, whole: Ran, number: signal.Signals) -> None:
    """While its jobs run: gone within 10 s with the signal's exit code, no process and no file stays, no traceback.

    The peaks are those of the demo that ended: it measures them once.
    """
    shutil.copytree(whole.cache(), folder / "cache")
    with subprocess.Popen(
        PROGRAM,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(folder),
        start_new_session=True,
    ) as demo:
        assert demo.stderr
        told = ""
        for line in demo.stderr:
            told += line
            if "window so far" in line or "windows so far" in line:
                break
        assert len(left(folder)) >= 4, told  # store, agent, two jobs
        begin = time.monotonic()
        demo.send_signal(number)
        out, err = demo.communicate(timeout=30)
    assert time.monotonic() - begin < 10
    assert demo.returncode == 128 + number
    assert out == ""
    assert "Traceback" not in err
    assert left(folder) == []
    assert {path.name for path in folder.rglob("*") if path.is_file()} == {"peaks.json"}
