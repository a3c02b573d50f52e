"""Jobs on a node that seems to have NPUs: the stand-in for torch_npu on their path, an ``msprof``, a scratch folder."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from roofwatch.hook.launch import environment

ROOT = Path(__file__).resolve().parents[2]
STAND_IN = ROOT / "tests" / "ascend_stand_in"
SAMPLE = (
    "ascend/pytorch_alexnet_910B_ddp2/db/level1/rank1_ascend_pt/ASCEND_PROFILER_OUTPUT/ascend_pytorch_profiler_1.db"
)
KERNELS = 187  # rows of COMPUTE_TASK_INFO in it

# Trains on the CPU while it holds device 3, until its standard input closes.
TRAIN = """
import os, sys, threading, time, torch
torch.set_num_threads(1)
torch.npu.set_device(3)
model = torch.nn.Linear(16, 16)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
over = threading.Event()
threading.Thread(target=lambda: (os.read(0, 1), over.set()), daemon=True).start()
def step():
    optimizer.zero_grad()
    model(torch.ones(4, 16)).square().mean().backward()
    optimizer.step()
    time.sleep(0.01)
"""
LOOP = "while not over.is_set():\n    step()\n"
SPEAKS = TRAIN + "print('begins', flush=True)\n" + LOOP + "print('ends', file=sys.stderr)\nsys.exit(3)\n"


class Ended(NamedTuple):
    """How a job ended."""

    code: int
    out: str
    err: str


SPOKEN = Ended(3, "begins\n", "ends\n")


@dataclass
class Node:
    """Starts jobs in one folder and leaves none behind; knows what else they leave."""

    folder: Path
    sample: Path
    running: list[subprocess.Popen[str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        """A folder for windows, and a command for the analysis to call."""
        self.scratch = self.folder / "scratch"
        self.log = self.folder / "stand_in.log"
        (self.folder / "bin").mkdir()
        self.scratch.mkdir()
        msprof = self.folder / "bin" / "msprof"
        msprof.write_text("#!/bin/sh\nexit 0\n")
        msprof.chmod(0o755)

    def environment(self, **env: str) -> dict[str, str]:
        """What a job has in its environment here, without the hook."""
        clean = {key: value for key, value in os.environ.items() if not key.startswith(("ROOFWATCH", "COV", "RANK"))}
        own = {
            "PYTHONPATH": str(STAND_IN),
            "PATH": f"{self.folder / 'bin'}:{clean['PATH']}",
            "ASCEND_STAND_IN_LIGHT": "1",
            "ASCEND_STAND_IN_DB": str(self.sample),
            "ASCEND_STAND_IN_NOW": str(self.folder / "faults"),
            "ASCEND_STAND_IN_LOG": str(self.log),
            "ROOFWATCH_NPU_DIR": str(self.scratch),
            "ROOFWATCH_HOOK_LOG": str(self.folder / "hook.log"),
            "ROOFWATCH_TEST_MARK": str(self.folder),
        }
        return {**clean, **own, **env}

    def start(self, code: str, socket: str | None, **env: str) -> subprocess.Popen[str]:
        """Start a job; with a socket, under the hook."""
        environ = self.environment(**env)
        if socket is not None:
            environ = environment(environ, socket=socket)
        path = self.folder / "job.py"
        path.write_text(code)
        pipes: dict[str, Any] = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
        job = subprocess.Popen(
            [sys.executable, str(path)], env=environ, text=True, cwd=self.folder, start_new_session=True, **pipes
        )
        self.running.append(job)
        return job

    def end(self, job: subprocess.Popen[str], timeout: float = 30) -> Ended:
        """Close the job's standard input and wait for it."""
        out, err = job.communicate(timeout=timeout)
        return Ended(job.returncode, out, err)

    def fault(self, *names: str) -> None:
        """What goes wrong from now on."""
        (self.folder / "faults.new").write_text(",".join(names))
        (self.folder / "faults.new").rename(self.folder / "faults")

    def happened(self, what: str) -> list[list[str]]:
        """The lines of the stand-in's log that begin so: time, pid, thread, and the words."""
        lines = self.log.read_text().splitlines() if self.log.exists() else []
        return [line.split() for line in lines if line.split()[3] == what]

    def until(self, condition: Callable[[], Any], what: str, within: float = 20.0, every: float = 0.05) -> Any:
        """Wait for a condition, looked at ``every`` so many seconds; fail with what was waited for."""
        end = time.monotonic() + within
        while time.monotonic() < end:
            if value := condition():
                return value
            time.sleep(every)
        return pytest.fail(f"not within {within} s: {what}")

    def windows(self) -> list[Path]:
        """Folders of windows that are still there."""
        return [path for base in self.scratch.iterdir() for path in base.iterdir() if path.is_dir()]

    def others(self, *known: int) -> list[int]:
        """Processes with this node's mark in their environment, but for the known ones."""
        mark = f"ROOFWATCH_TEST_MARK={self.folder}\0".encode()
        found = []
        for entry in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if mark in (entry / "environ").read_bytes():
                    found.append(int(entry.name))
        return [pid for pid in found if pid not in (os.getpid(), *known)]

    def nothing_left(self, *known: int) -> None:
        """Soon no window's folder and no process of ours is there, beside the known ones."""
        self.until(lambda: not self.windows(), "no folder is left", 15)
        self.until(lambda: not self.others(*known), "no process is left", 15)

    def kill(self) -> None:
        """End what still runs."""
        for job in self.running:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(job.pid, signal.SIGKILL)
            job.communicate()
