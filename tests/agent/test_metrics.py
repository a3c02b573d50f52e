"""``roofwatch agent --metrics``: the agent's counters as Prometheus reads them."""

from __future__ import annotations

import math
import re
import subprocess
import sys
import time
import urllib.request

import pytest

from roofwatch.agent.config import parse
from roofwatch.model.errors import UsageError

COST = {"close_path": "native", "open_ns": 1, "quiesce_ns": 2, "close_ns": 3, "save_ns": 4, "free_ns": 5}


def scrape(agent):
    """Every sample by its name with labels."""
    port = re.search(r"event=metrics .*port=(\d+)", agent.log.read_text())[1]
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as page:
        lines = page.read().decode().splitlines()
    return {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in lines if not line.startswith("#")}


def test_what_happened_is_counted(agents, job, wait):
    """Two windows read, one lost, one refused; of 0.7 s that the second stands for its job lost 7 ms."""
    agent = agents("--interval", "0.5", "--metrics", "127.0.0.1:0")
    assert math.isnan(scrape(agent)["roofwatch_agent_cost_ratio"])
    client = job(agent.socket, model="llama-of-somebody")
    began = time.time_ns()
    client.answer(
        client.receive(), start_unix_ns=began, cost=COST | {"lost_in_ns": 9_000_000}
    )  # stands for nothing yet
    known = COST | {"lost_in_ns": 5_000_000, "lost_after_ns": 2_000_000}
    client.answer(client.receive(), start_unix_ns=began + 700_000_000, cost=known)
    client.answer(client.receive(), trace=b"sentence")
    request = client.receive()
    client.channel.send({"type": "refused", "request": request["request"], "reason": "own_profiler"})
    wait(lambda: agent.status()["refusals"].get("own_profiler") == 1, "a refusal")
    wait(lambda: agent.status()["drops"].get("parse_error") == 1, "a drop")
    found = scrape(agent)
    expected = {
        'windows_total{state="recorded"}': 2, 'windows_total{state="stored"}': 0,
        'refusals_total{reason="own_profiler"}': 1, 'drops_total{reason="parse_error"}': 1, "processes": 1,
        "store_connected": 0, "lost_seconds": 0.007, "represented_seconds": 0.7, "acks_total": 0,
        "kept_traces": 0, "kept_traces_bytes": 0,
    }  # fmt: skip
    assert {name: found[f"roofwatch_agent_{name}"] for name in expected} == pytest.approx(expected)
    assert found["roofwatch_agent_cost_ratio"] == pytest.approx(0.01)
    assert found['roofwatch_agent_windows_total{state="requested"}'] >= 4
    assert not [name for name in found if "somebody" in name]
    assert agent.stop() == 0


@pytest.mark.parametrize("address", ["127.0.0.1", "9432", ":9432", "127.0.0.1:x", "127.0.0.1:99999"])
def test_addresses_that_are_none(address):
    """One sentence that names the setting."""
    with pytest.raises(UsageError, match=r"--metrics .*: must be HOST:PORT"):
        parse(["--metrics", address], {})


def test_metrics_stay_on_this_machine(short):
    """Beyond loopback only with --insecure: one sentence, and no agent."""
    command = ("-m", "roofwatch.agent", "--socket", str(short / "s"), "--state", str(short / "state"))
    done = subprocess.run(
        [sys.executable, *command, "--metrics", "0.0.0.0:0"], capture_output=True, text=True, timeout=30, check=False
    )
    assert done.returncode == 2
    assert "can be read from other machines: allow it with --insecure" in done.stderr
