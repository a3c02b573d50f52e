"""Hand-made sides, and the program as a user calls it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # comparison_scene; the import mode leaves the path alone

from program import Done, call

Roofwatch = Callable[..., Done]


@pytest.fixture
def roofwatch(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Roofwatch:
    """The whole program, in this process: its exit code and what it wrote; away from any store of this machine."""
    for name in ("ROOFWATCH_STORE", "ROOFWATCH_DB"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    return call
