"""What is deployed, as a compose implementation reads it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.append(str(Path(__file__).parent))  # deploy_*; the import mode leaves the path alone

from deploy_files import FILES, read


@pytest.fixture(scope="session", params=FILES)
def compose(request: pytest.FixtureRequest) -> dict[str, Any]:
    """Each of the two files."""
    return read(request.param)


@pytest.fixture(scope="session")
def postgres_compose() -> dict[str, Any]:
    """The file with Postgres."""
    return read("docker-compose.yml")
