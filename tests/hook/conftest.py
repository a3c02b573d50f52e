"""Real jobs in real processes, beside a little agent."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

sys.path.insert(0, str(Path(__file__).parent))

from hook_jobs import Jobs  # found by the line above
from little_agent import LittleAgent


@pytest.fixture
def jobs(tmp_path: Path) -> Iterator[Jobs]:
    """A starter of jobs."""
    starter = Jobs(tmp_path)
    yield starter
    for job in starter.running:
        with contextlib.suppress(psutil.NoSuchProcess):
            for started in psutil.Process(job.pid).children(recursive=True):
                started.kill()  # a launcher's ranks have sessions of their own
        with contextlib.suppress(ProcessLookupError):
            os.killpg(job.pid, signal.SIGKILL)
        job.communicate()


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[LittleAgent]:
    """A little agent on a socket of its own."""
    with LittleAgent(tmp_path) as little:
        yield little
