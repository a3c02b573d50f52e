"""SIGHUP: a running agent takes other settings and loses nobody."""

from __future__ import annotations

import json
import os
import pty
import signal
import sys
from pathlib import Path

import pytest


@pytest.fixture
def file(short: Path) -> Path:
    """A file of settings."""
    path = short / "config.toml"
    write(path, "interval = 0.5")
    return path


def write(path: Path, *lines: str) -> None:
    """One section, closed to others."""
    path.write_text("\n".join(["[agent]", *lines]) + "\n")
    path.chmod(0o644)


def hang_up(agent, wait, event: str) -> dict:
    """SIGHUP; the fields of the line of the log that it makes, which are JSON by then."""
    before = agent.log.read_text().count(event)
    agent.process.send_signal(signal.SIGHUP)
    wait(lambda: agent.log.read_text().count(event) > before, f"the log says {event}")
    return json.loads([line for line in agent.log.read_text().splitlines() if event in line][-1])


def test_new_settings_are_taken_and_no_window_is_lost(agents, job, wait, short, file):
    """The window that was asked for before is read after; the interval is another; what is not hot is told once."""
    agent = agents("--config", str(file), "--log-format", "json")
    peer = job(agent.socket)
    request = peer.receive()
    write(file, "interval = 300", "max_events = 777", "node-name = 'other'", f"socket = '{short}/x.sock'")
    told = hang_up(agent, wait, '"reloaded"')
    assert (told["changed"], told["needs_restart"]) == ("interval,max_events", "node_name")  # --socket is a flag
    assert told["level"] == "warning"
    settings = agent.status()["settings"]
    assert (settings["interval_s"], settings["max_events"]) == (300.0, 777)
    peer.answer(request)
    wait(lambda: agent.status()["windows"].get("recorded") == 1, "the window is read")
    assert agent.status()["process_list"][0]["budget"]["next_s"] > 5
    write(file, "interval = 0.5")
    assert hang_up(agent, wait, '"reloaded"')["changed"] == "interval,max_events"
    assert peer.receive()["type"] == "take_window"
    assert agent.status()["connections"]["accepted"] >= 1
    assert agent.stop() == 0


def test_a_file_that_cannot_be_used_changes_nothing(agents, wait, file):
    """One line with the reason; the log's level changes at once, and its format."""
    agent = agents("--config", str(file), "--log-format", "json")
    write(file, "intervall = 3", "max-events = 999")
    told = hang_up(agent, wait, '"not_reloaded"')
    assert "[agent] has no setting 'intervall'; did you mean 'interval'?" in told["error"]
    assert agent.status()["settings"]["max_events"] == 60_000
    write(file, "interval = 0.5", "log-level = 'warning'", "steps = 0")
    assert "agent.steps '0': must be at least 1" in hang_up(agent, wait, '"not_reloaded"')["error"]
    write(file, "interval = 0.5", "log-level = 'warning'")
    agent.process.send_signal(signal.SIGHUP)
    wait(lambda: agent.status()["settings"]["log_level"] == "warning", "the level is taken")
    before = agent.log.read_text()
    assert agent.stop() == 0
    assert agent.log.read_text() == before  # "stopped" is info


def test_an_agent_whose_terminal_is_closed_stops(short):
    """SIGHUP of a terminal that goes is no word to read settings again: what was started there ends, in order."""
    pid, terminal = pty.fork()
    if not pid:
        command = ["-m", "roofwatch.agent", "--socket", str(short / "a.sock"), "--state", str(short / "state")]
        os.execv(sys.executable, [sys.executable, *command])  # noqa: S606 - the agent
    told = b""
    while b"event=listening" not in told:
        told += os.read(terminal, 4096)
    os.kill(pid, signal.SIGHUP)  # by hand, with the terminal there: it lives on
    while b"event=reloaded" not in told:
        told += os.read(terminal, 4096)
    os.close(terminal)
    _, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    assert not (short / "a.sock").exists()


def test_a_variable_that_is_no_setting_is_one_line(agents):
    """The nearest is told; the agent runs."""
    agent = agents(env={"ROOFWATCH_AGENT_INTERVALL": "5"})
    (line,) = (line for line in agent.log.read_text().splitlines() if "event=unknown_variable" in line)
    assert "did you mean 'ROOFWATCH_AGENT_INTERVAL'?" in line
    assert agent.stop() == 0
