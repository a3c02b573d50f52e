"""A short run of the stress test; ROOFWATCH_STRESS_WINDOWS=1000 makes it the full one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

RUN = Path(__file__).parent / "run.py"
WINDOWS = os.environ.get("ROOFWATCH_STRESS_WINDOWS")
SHORT = {"8 busy threads": 4, "thread churn": 4, "forks": 4, "DataLoader": 4, "exit": 10}


@pytest.mark.timeout(0 if WINDOWS else 300)
def test_no_window_harms_a_job() -> None:
    """No crash, no hang, no line on stderr, whatever the threads of the job do."""
    runs = {"": int(WINDOWS)} if WINDOWS else SHORT
    for only, windows in runs.items():
        command = [sys.executable, str(RUN), "--windows", str(windows), "--only", only]
        # The path that this is the condition for, also on builds that do not take it by themselves.
        environ = {"ROOFWATCH_HOOK_CLOSE": "native", **os.environ}
        result = subprocess.run(command, capture_output=True, text=True, check=False, env=environ)
        assert result.returncode == 0, result.stdout + result.stderr
