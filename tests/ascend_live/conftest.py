"""A node with NPUs that are not there, and a little agent on it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parent))
sys.path.append(str(Path(__file__).parents[1] / "hook"))

from little_agent import LittleAgent  # found by the lines above
from npu_jobs import SAMPLE, Node


@pytest.fixture
def node(tmp_path: Path, traces: Path) -> Iterator[Node]:
    """A starter of jobs."""
    sample = traces / SAMPLE
    if not sample.exists():
        pytest.skip(f"no {sample}")
    one = Node(tmp_path, sample)
    yield one
    one.kill()


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[LittleAgent]:
    """A little agent on a socket of its own."""
    with LittleAgent(tmp_path) as little:
        yield little
