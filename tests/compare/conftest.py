"""Hand-made sides, and the program as a user runs it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

Roofwatch = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def roofwatch(tmp_path: Path) -> Roofwatch:
    """Run the program in a process of its own, away from any store of this machine."""

    def call(*arguments: str) -> subprocess.CompletedProcess[str]:
        clean = {k: v for k, v in os.environ.items() if not k.startswith("ROOFWATCH_")}
        clean |= {"HOME": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path / "cache")}
        return subprocess.run(
            [sys.executable, "-m", "roofwatch.cli.main", *arguments],
            capture_output=True, text=True, timeout=60, check=False, cwd=tmp_path, env=clean,
        )  # fmt: skip

    return call


sys.path.insert(0, str(Path(__file__).parent))  # comparison_scene; the import mode leaves the path alone
