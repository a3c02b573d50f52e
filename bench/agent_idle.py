"""What an agent costs its node with 8 registered processes: CPU and resident memory of it and its parse worker.

The processes are Python children that speak the hook's protocol without torch, so that the machine stays quiet; the
agent cannot tell them from jobs, since it sees nothing but the socket. A store runs beside it, so the uplink is open.

Idle: the default interval, and every process answers that it has no steps. Sampled: every process gives a window of
about 6,000 events whenever it is asked, in the agent's first minute, when it asks four times as often as later.

    python bench/agent_idle.py [--idle SECONDS] [--sampled SECONDS]
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
from _rows import row, say

from roofwatch.agent import status

PROCESSES = 8
SETTLE_S, MEASURE_S, SAMPLED_S = 12.0, 30.0, 60.0
CPU_LIMIT, RSS_LIMIT_MB = 1.0, 120.0
CHILD = r"""
import json, os, socket, sys, time
from roofwatch.hook import protocol
path, trace = sys.argv[1], sys.argv[2]
sock = socket.socket(socket.AF_UNIX)
sock.connect(path)
channel = protocol.job_side(sock)
channel.send({"type": "hello", "protocol": 1, "hook": "bench", "pid": os.getpid(), "model": "bench"})
while True:
    for message, _ in channel.receive():
        if message["type"] != "take_window":
            continue
        answer = {"request": message["request"]}
        if not trace:
            channel.send({"type": "refused", "reason": "no_steps", "detail": "", **answer})
            continue
        with open(trace, "rb") as file:
            channel.send({"type": "window", "format": "kineto-json", "start_unix_ns": time.time_ns(), "shapes": True,
                          "duration_ns": 20_000_000, "steps": message["steps"], "size": os.path.getsize(trace),
                          "cost": None, "padding": None, "steps_seen": 100, **answer}, file.fileno())
"""


def trace_of(path: Path, events: int) -> None:
    """A CPU trace as torch writes it: nested ops with shapes, two steps."""
    step = {"ph": "X", "cat": "user_annotation", "pid": 1, "tid": 1, "dur": 10_000.0}
    rows = [{**step, "name": f"ProfilerStep#{number}", "ts": 10_000.0 * number} for number in range(2)]
    shapes = {"Input Dims": [[128, 256], [256, 256]], "Input type": ["float", "float"], "Concrete Inputs": ["", ""]}
    for number in range(events // 2):
        start = 20_000.0 * number / (events // 2)
        for depth, name in enumerate(("aten::linear", ("aten::addmm", "aten::mul", "aten::add_")[number % 3])):
            args = {"External id": 2 * number + depth, **shapes, "Ev Idx": 2 * number + depth}
            at = {"pid": 1, "tid": 1, "ts": round(start + 0.1 * depth, 3), "dur": round(5.0 - 0.2 * depth, 3)}
            rows.append({"ph": "X", "cat": "cpu_op", "name": name, **at, "args": args})
    head = {"schemaVersion": 1, "baseTimeNanoseconds": time.time_ns(), "displayTimeUnit": "ms"}
    path.write_text(json.dumps({**head, "traceEvents": rows}))


def until(condition: Callable[[], object], what: str, within: float = 30.0) -> None:
    """Wait, or end with what was waited for."""
    end = time.monotonic() + within
    while not condition():
        if time.monotonic() > end:
            sys.exit(f"not within {within} s: {what}")
        time.sleep(0.1)


@contextmanager
def started(*commands: list[str]) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Programs that end with the block."""
    running: list[subprocess.Popen[bytes]] = []
    try:
        running.extend(subprocess.Popen(command, stderr=subprocess.DEVNULL) for command in commands)
        yield running
    finally:
        for process in reversed(running):
            process.terminate()
        for process in running:
            process.wait(20)


def cpu_s(process: psutil.Process) -> float:
    """CPU seconds of a process, its living children, and those it has waited for."""
    spent = 0.0
    for one in (process, *process.children(recursive=True)):
        times = one.cpu_times()
        spent += times.user + times.system
    times = process.cpu_times()
    return spent + times.children_user + times.children_system


def rss_mb(process: psutil.Process) -> float:
    """Resident megabytes of a process and its children, shared pages counted for each."""
    return sum(one.memory_info().rss for one in (process, *process.children(recursive=True))) / 1e6


Cost = tuple[float, float, dict[str, object]]


def measured(folder: Path, port: int, trace: str, settle_s: float, seconds: float) -> Cost:
    """Percent of a core, peak megabytes, and the agent's status at the end."""
    path = folder / "agent.sock"
    arguments = ["--socket", str(path), "--state", str(folder / "state"), "--store", f"127.0.0.1:{port}"]
    child = [sys.executable, "-c", CHILD, str(path), trace]
    with started([sys.executable, "-m", "roofwatch.agent", *arguments]) as (agent,):
        until(path.exists, "the agent listens")
        with started(*[child] * PROCESSES):
            until(lambda: status.request(str(path))["processes"] == PROCESSES, "all registered")
            until(lambda: status.request(str(path))["uplink"]["connected"], "the store is reached")
            time.sleep(settle_s)
            process = psutil.Process(agent.pid)
            began, spent, peak = time.monotonic(), cpu_s(process), rss_mb(process)
            while time.monotonic() - began < seconds:
                time.sleep(1.0)
                peak = max(peak, rss_mb(process))
            used = 100 * (cpu_s(process) - spent) / (time.monotonic() - began)
            return used, peak, status.request(str(path))


def main() -> None:
    """Idle, then sampled."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--idle", type=float, default=MEASURE_S, help="seconds without a window, after 12 to settle")
    parser.add_argument("--sampled", type=float, default=SAMPLED_S, help="seconds with windows; 0: none")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="rw-") as name:
        folder = Path(name)
        port_file, trace = folder / "port", folder / "trace.json"
        trace_of(trace, 6_000)
        serve = [sys.executable, "-m", "roofwatch.cli.main", "store", "serve", "--listen", "127.0.0.1:0"]
        serve += ["--db", f"sqlite:///{folder}/store.db", "--port-file", str(port_file)]
        with started(serve):
            until(lambda: port_file.exists() and port_file.read_text().strip(), "the store listens")
            port = int(port_file.read_text())
            for title, given, settle_s, seconds in (
                (f"agent, {PROCESSES} idle processes", "", SETTLE_S, options.idle),
                (f"agent and worker, {PROCESSES} processes in their first minute", str(trace), 0.0, options.sampled),
            ):
                if not seconds:
                    continue
                say(f"{title}: {seconds:g} s")
                part = folder / ("sampled" if given else "idle")
                part.mkdir()
                cpu, rss, told = measured(part, port, given, settle_s, seconds)
                say(json.dumps({key: told[key] for key in ("windows", "refusals", "drops", "workers")}))
                row(f"{title}: CPU", cpu, "% of a core", at_most=None if given else CPU_LIMIT)
                row(f"{title}: resident", rss, "MB", at_most=RSS_LIMIT_MB)


if __name__ == "__main__":
    os.environ.pop("ROOFWATCH_STORE", None)
    main()
