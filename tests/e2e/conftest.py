"""The node of the whole-path tests."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parent))  # whole_path; the import mode leaves the path alone

from whole_path import Node, running_node


@pytest.fixture
def node() -> Iterator[Node]:
    """A machine without anything running."""
    with running_node() as machine:
        yield machine
