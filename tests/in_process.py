"""The program's own entry, called in this process: a new one for each question would take most of the time."""

from __future__ import annotations

import io
import os
import subprocess
from collections.abc import Mapping
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from unittest import mock

from roofwatch.cli.main import main

Done = subprocess.CompletedProcess[str]
KEPT = ("ROOFWATCH_TRACES", "ROOFWATCH_TRACES_REQUIRED")


def environment(home: Path, cache: Path | None = None) -> dict[str, str]:
    """This environment, away from any store or agent of this machine, with a home of its own."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("ROOFWATCH_") or name in KEPT}
    folders = {
        "HOME": home,
        "XDG_RUNTIME_DIR": home,
        "XDG_CONFIG_HOME": home / "config",
        "XDG_STATE_HOME": home / "state",
    }
    return clean | {name: str(path) for name, path in {**folders, "XDG_CACHE_HOME": cache or home / "cache"}.items()}


def call(*arguments: object, env: Mapping[str, str] | None = None) -> Done:
    """Run ``roofwatch ARGUMENTS``, in ``env`` instead of this environment; a bug that ends in a traceback is raised."""
    words, code = [str(argument) for argument in arguments], 0
    out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8", newline="", write_through=True) for _ in range(2))
    with redirect_stdout(out), redirect_stderr(err), mock.patch.dict(os.environ, env or {}, clear=env is not None):
        try:
            main(words)
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else 1
    told = (stream.buffer.getvalue().decode("utf-8") for stream in (out, err))  # type: ignore[attr-defined]
    return subprocess.CompletedProcess(["roofwatch", *words], code, *told)
