"""Shared fixtures."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent

# A shell's background jobs begin with SIGINT ignored, and so would every program that a test interrupts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def traces() -> Path:
    """The folder of real profiler output; tests that use it skip where it is absent, unless it is required."""
    folder = Path(os.environ.get("ROOFWATCH_TRACES", ROOT.parent / "shared" / "traces"))
    if not folder.is_dir():
        message = f"no real traces at {folder}: set ROOFWATCH_TRACES to the folder that holds them"
        if os.environ.get("ROOFWATCH_TRACES_REQUIRED"):
            pytest.fail(message)
        pytest.skip(message)
    return folder
