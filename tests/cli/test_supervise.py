"""Children do not outlive the block, whatever ends it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from roofwatch.cli.supervise import Children, children
from roofwatch.model.errors import RoofwatchError

SLEEPER = [sys.executable, "-c", "import time; time.sleep(60)"]
# A leader that ignores SIGTERM and a grandchild that does not: both are in one group.
STUBBORN = [
    sys.executable,
    "-c",
    (
        "import signal, subprocess, sys, time\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "p = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'])\n"
        "print(p.pid, flush=True)\n"
        "time.sleep(60)"
    ),
]


def gone(pid: int) -> bool:
    """Whether a process has ended (a zombie has)."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


def test_what_ends_by_itself_is_told_with_its_last_words(tmp_path: Path) -> None:
    """A child that fails is named with its exit code and what it wrote."""
    failing = [sys.executable, "-c", "import sys; print('no such port'); sys.exit(3)"]
    with children(tmp_path) as group:
        group.start("store", failing, os.environ)
        with pytest.raises(RoofwatchError, match="the store ended with exit code 3: no such port"):
            group.until(lambda: False, "the store was not ready", 20)


def test_waiting_ends(tmp_path: Path) -> None:
    """What never becomes ready is told after the limit."""
    with children(tmp_path) as group:
        group.start("store", SLEEPER, os.environ)
        with pytest.raises(RoofwatchError, match="no answer within 0 s"):
            group.until(lambda: False, "no answer", 0.2)


def test_a_group_that_ignores_sigterm_is_killed_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Leader and grandchild are gone after the block although the leader ignores SIGTERM."""
    monkeypatch.setattr("roofwatch.cli.supervise.GRACE_S", 0.5)
    with children(tmp_path) as group:
        child = group.start("agent", STUBBORN, os.environ)
        group.until(lambda: bool(child.log.read_bytes().strip()), "no grandchild", 20)
        grandchild = int(child.log.read_text())
        assert not gone(grandchild)
    assert child.process.returncode == -signal.SIGKILL
    wait_until_gone(grandchild)


def wait_until_gone(pid: int) -> None:
    """A killed process needs a moment to leave."""
    end = time.monotonic() + 5
    while not gone(pid) and time.monotonic() < end:
        time.sleep(0.02)
    assert gone(pid)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
def test_a_signal_stops_everything(tmp_path: Path, number: signal.Signals) -> None:
    """A supervisor that gets a signal, twice, leaves no child; not even one that is killed does."""
    program = (
        "import os, sys, time\nfrom pathlib import Path\nfrom roofwatch.cli.supervise import children\n"
        f"with children(Path({str(tmp_path)!r})) as group:\n"
        f"    child = group.start('job', {SLEEPER!r}, os.environ)\n"
        "    print(child.process.pid, flush=True)\n    time.sleep(60)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as supervisor:
        assert supervisor.stdout
        child = int(supervisor.stdout.readline())
        supervisor.send_signal(number)
        supervisor.send_signal(number)
        assert supervisor.wait(20) != 0
    wait_until_gone(child)


def test_an_empty_group_stops_at_once(tmp_path: Path) -> None:
    """Nothing was started, nothing is waited for."""
    begin = time.monotonic()
    Children(tmp_path).stop()
    assert time.monotonic() - begin < 0.1
