"""``roofwatch regressions --watch``: what it prints and how it ends."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from regression_scene import Scene, Work, kernel, stored

Roofwatch = Callable[..., Any]
WORK = tuple(Work(kernel(i)) for i in range(30))
BEFORE = Scene(WORK, 30, {"image": "v1"})
AFTER = Scene(WORK, 30, {"image": "v2"}, seed=2, first_minute=60, pid=200)
SIDES = ("--since", "all", "--before", "image=v1", "--after", "image=v2")


def _interrupted() -> None:
    raise KeyboardInterrupt


def _until(ready: Callable[[], bool], limit_s: float = 30.0) -> None:
    end = time.monotonic() + limit_s
    while not ready():
        assert time.monotonic() < end
        time.sleep(0.05)


def test_watching_prints_only_changes(tmp_path: Path) -> None:
    """First the report, then nothing while nothing changes; a slower kernel is one line; Ctrl-C: the last exit code."""
    url = stored(tmp_path, BEFORE, AFTER)
    clean = {k: v for k, v in os.environ.items() if not k.startswith("ROOFWATCH_")} | {"PYTHONUNBUFFERED": "1"}
    command = [sys.executable, "-m", "roofwatch.cli.main", "regressions", "--db", url, "--since", "all", "--before",
               "image=v1", "--after", "image=v2", "--watch", "--interval", "0.2s"]  # fmt: skip
    out = tmp_path / "out"
    with out.open("wb") as file:
        watching = subprocess.Popen(command, stdout=file, stderr=subprocess.STDOUT, env=clean)
    try:
        _until(lambda: "Nothing is slower" in out.read_text())
        quiet = out.read_text()
        time.sleep(1.0)
        assert out.read_text() == quiet
        late = replace(AFTER, seed=5, first_minute=200, pid=300, windows=40, scale={"gemm_7": 1.3})
        stored(tmp_path, late)
        _until(lambda: len(out.read_text()) > len(quiet))
        told = out.read_text()[len(quiet) :]
        assert "slower: gemm_7" in told
        watching.send_signal(signal.SIGINT)
        assert watching.wait(20) == 1
    finally:
        if watching.poll() is None:
            watching.kill()
            watching.wait()


def test_watching_for_programs(roofwatch: Roofwatch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Side after has no windows at first (said once); then one line of JSON an answer that changed; the last code."""
    url = stored(tmp_path, BEFORE)
    late = replace(AFTER, scale={"gemm_7": 1.2})
    rounds = iter([lambda: None, lambda: stored(tmp_path, late), lambda: None, _interrupted])
    monkeypatch.setattr("roofwatch.cli.commands.regressions.time.sleep", lambda _: next(rounds)())
    done = roofwatch("regressions", "--db", url, *SIDES, "--watch", "--format", "json")
    assert done.returncode == 1
    assert done.stderr.count("no window has the label image=v2") == 1
    (line,) = done.stdout.splitlines()
    assert [row["kernel"] for row in json.loads(line)["rows"] if row["finding"]] == ["gemm_7"]


def test_watching_ends_where_asking_again_is_no_use(roofwatch: Roofwatch, tmp_path: Path) -> None:
    """Windows on both sides, a table for a program, no pause: one sentence and exit code 2."""
    url = stored(tmp_path, replace(BEFORE, windows=2))
    watch = ("regressions", "--db", url, "--since", "all", "--before", "image=v1", "--after", "node=gpu-07", "--watch")
    assert "on both sides" in roofwatch(*watch).stderr
    assert [roofwatch(*watch, *more).returncode for more in ((), ("--format", "csv"), ("--interval", "0s"))] == [
        2,
        2,
        2,
    ]
