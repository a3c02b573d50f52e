"""Jobs of these tests: real processes, started with or without the hook."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from roofwatch.hook.launch import environment

TRAIN = """
import sys, torch
torch.set_num_threads(1)
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 8), torch.nn.Linear(8, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
def step():
    optimizer.zero_grad()
    loss = model(torch.ones(4, 8)).square().mean()
    loss.backward()
    optimizer.step()
    return loss
"""
UNTIL_STDIN_CLOSES = """
import os, threading
over = threading.Event()
threading.Thread(target=lambda: (os.read(0, 1), over.set()), daemon=True).start()
"""
# The same without a thread, for what the plain path takes where Python has no other than the main one.
UNTIL_STDIN_CLOSES_ALONE = """
import select
class over:
    is_set = staticmethod(lambda: bool(select.select([0], [], [], 0)[0]))
"""


class Ended(NamedTuple):
    """How a job ended."""

    code: int
    out: str
    err: str


@dataclass
class Jobs:
    """Starts jobs, and leaves none behind."""

    folder: Path
    running: list[subprocess.Popen[str]] = field(default_factory=list)

    def write(self, code: str, name: str = "job.py") -> Path:
        """The job as a file."""
        path = self.folder / name
        path.write_text(textwrap.dedent(code))
        return path

    def start(
        self, code: str, socket: str | None, *, run: bool = False, command: Any = None, **env: str
    ) -> subprocess.Popen[str]:
        """Start a job: with ``run`` as under ``roofwatch run``, else it attaches itself or not at all."""
        environ = {key: value for key, value in os.environ.items() if not key.startswith(("ROOFWATCH", "COV"))}
        environ.update(env)
        if run:
            environ = environment(environ, env.get("MODEL"), {"test": "yes"}, socket)
        elif socket is not None:
            environ["ROOFWATCH_SOCKET"] = socket
        path = str(self.write(code))
        arguments = [part.replace("JOB", path) for part in (command or [sys.executable, "JOB"])]
        pipes: dict[str, Any] = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
        job = subprocess.Popen(arguments, env=environ, text=True, cwd=self.folder, start_new_session=True, **pipes)
        self.running.append(job)
        return job

    def end(self, job: subprocess.Popen[str], timeout: float = 60) -> Ended:
        """Close the job's standard input and wait for it."""
        out, err = job.communicate(timeout=timeout)
        return Ended(job.returncode, out, err)
