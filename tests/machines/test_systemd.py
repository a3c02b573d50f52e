"""The units: systemd takes them, and both programs tell it when they are ready, alive and stopping."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

UNITS = Path(__file__).resolve().parents[2] / "deploy" / "systemd"
PROGRAM = (sys.executable, "-P", "-m", "roofwatch.cli.main")


@pytest.fixture
def units(tmp_path) -> list[Path]:
    """Copies of the units whose program is there."""
    if shutil.which("systemd-analyze") is None:
        pytest.skip("no systemd-analyze to look at units with")
    made = []
    for unit in UNITS.glob("*.service"):
        made.append(tmp_path / unit.name)
        made[-1].write_text(unit.read_text().replace("/opt/roofwatch/bin/roofwatch", shutil.which("true") or ""))
    assert len(made) == 2
    return made


def test_systemd_finds_no_fault(units):
    """Unknown settings, wrong sections and values are warnings: there is none."""
    told = subprocess.run(
        ["systemd-analyze", "verify", *units], capture_output=True, text=True, timeout=60, check=False
    )
    assert (told.returncode, told.stderr) == (0, "")


def test_services_are_shut_in(units):
    """Systemd's own score of exposure, 0 to 10: at most 2.5 (an unhardened service has 9.6)."""
    for unit in units:
        command = ["systemd-analyze", "security", "--offline=true", "--threshold=25", unit]
        told = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert told.returncode == 0, told.stdout


def test_the_command_of_each_unit_is_one_of_ours():
    """Its options are known to the program."""
    for unit in UNITS.glob("*.service"):
        (line,) = (line for line in unit.read_text().splitlines() if line.startswith("ExecStart="))
        words = line.split()[1:]
        command = words[: 1 if words[0] == "agent" else 2]
        known = subprocess.run([*PROGRAM, *command, "--help"], capture_output=True, text=True, timeout=60, check=True)
        assert all(word in known.stdout for word in words if word.startswith("--"))


@pytest.mark.parametrize("which", ["agent", "store"])
def test_it_says_ready_and_stopping(tmp_path, which):
    """Over a socket as systemd's: READY once it listens, STOPPING once it was told to end."""
    manager = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    manager.bind(str(tmp_path / "notify"))
    manager.settimeout(30)
    command = {
        "agent": ("agent", "--socket", str(tmp_path / "agent.sock"), "--state", str(tmp_path / "state")),
        "store": ("store", "serve", "--listen", "127.0.0.1:0", "--db", f"sqlite:///{tmp_path}/store.db"),
    }[which]
    env = {**os.environ, "NOTIFY_SOCKET": str(tmp_path / "notify")}
    with subprocess.Popen([*PROGRAM, *command], env=env, stderr=subprocess.DEVNULL) as process:
        told = manager.recv(4096).decode()
        while "READY=1" not in told:
            told = manager.recv(4096).decode()
        assert "STATUS=listening on" in told
        process.send_signal(signal.SIGTERM)
        while "STOPPING=1" not in told:
            told = manager.recv(4096).decode()
        assert process.wait(15) == 0
    manager.close()
