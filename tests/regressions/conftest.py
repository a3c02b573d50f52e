"""The program, called as its entry point calls it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from roofwatch.cli.main import main


@dataclass(frozen=True, slots=True)
class Done:
    """What a run left."""

    returncode: int
    stdout: str
    stderr: str


Roofwatch = Callable[..., Done]


@pytest.fixture
def roofwatch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Roofwatch:
    """Run the whole program in this process, away from any store of this machine: thirty processes take too long."""
    for name in ("ROOFWATCH_STORE", "ROOFWATCH_DB"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))

    def call(*arguments: str) -> Done:
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main(arguments)
        out, err = capsys.readouterr()
        return Done(int(ended.value.code or 0), out, err)

    return call


sys.path.insert(0, str(Path(__file__).parent))  # regression_scene; the import mode leaves the path alone
