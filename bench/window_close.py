"""What a window costs a training job: 30 blocks of an eager MLP with AdamW, 10 steps, ~60,000 events with shapes.

A real job under the hook, asked for windows over the socket. Its steps are timed in the job itself, not by the hook.
Limits: longest step at most 5 times the median step; at most 4 µs lost an event, recording and residue included.

    python bench/window_close.py [--windows N]
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from itertools import pairwise
from pathlib import Path
from statistics import median

from _rows import ROOT, row, say

sys.path.insert(0, str(ROOT / "tests" / "hook"))

from little_agent import LittleAgent

from roofwatch.hook.launch import environment

WINDOWS = 6
JOB = """
import array, os, sys, threading, time
import torch, torch.nn as nn
torch.set_num_threads(1)
model = nn.Sequential(*[nn.Sequential(nn.Linear(128, 128), nn.ReLU(), nn.LayerNorm(128)) for _ in range(30)])
optimizer = torch.optim.AdamW(model.parameters(), foreach=False)
x = torch.randn(64, 128)
over = threading.Event()
threading.Thread(target=lambda: (os.read(0, 1), over.set()), daemon=True).start()
ends = array.array("q")
while not over.is_set():
    optimizer.zero_grad()
    model(x).square().mean().backward()
    optimizer.step()
    ends.append(time.monotonic_ns())
ends.tofile(open(sys.argv[1], "wb"))
"""


def main() -> None:
    """Take the windows, time the steps, print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--windows", type=int, default=WINDOWS)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, LittleAgent(Path(folder)) as agent:
        times = Path(folder) / "ends"
        environ = environment(os.environ, socket=agent.path)
        job = subprocess.Popen([sys.executable, "-c", JOB, str(times)], env=environ, stdin=subprocess.PIPE)
        windows = take(agent, options.windows)
        job.communicate()
        ends = memoryview(times.read_bytes()).cast("q").tolist()
    figures = [figure(window, ends) for window in windows]
    cores = parallel()
    for one in figures:
        say(str({key: round(value, 2) for key, value in one.items()}))
    row("window close: longest step", median(f["longest"] for f in figures), "median steps", at_most=5)
    row("window close: time the job lost", median(f["lost_us"] for f in figures), "µs an event", at_most=4)
    row("window close: events of a window", median(f["events"] for f in figures), "events")
    row("window close: cores that two processes get", cores, "cores")
    row("window close: median step", median(f["base_ms"] for f in figures), "ms")


def take(agent: LittleAgent, count: int) -> list[dict[str, float]]:
    """A small window first, as every process has it, then the measured ones: when each began, and its events."""
    connection = agent.accept()
    connection.take(steps=2, cost_known=False)
    windows = []
    for _ in range(count):
        time.sleep(2)
        asked = time.monotonic_ns()
        window, trace = connection.take(steps=10, shapes=True, max_ms=5000, timeout_ms=5000)
        cost = window["cost"]
        phases = sum(cost[key] for key in ("open_ns", "quiesce_ns", "close_ns", "save_ns", "free_ns"))
        say(f"hook says: { {key: value for key, value in cost.items() if value is not None} }")
        windows.append({"asked": asked, "span": window["duration_ns"] + phases, "events": trace.count(b'"ph": "X"')})
        del trace
    return windows


def parallel() -> float:
    """How many cores two processes really get. With one, the close can only take its time from the job."""
    spin = [sys.executable, "-c", "for _ in range(10_000_000): pass"]
    begun = time.monotonic()
    subprocess.run(spin, check=True)
    alone = time.monotonic() - begun
    both = [subprocess.Popen(spin) for _ in range(2)]
    begun = time.monotonic()
    for one in both:
        one.wait()
    return 2 * alone / (time.monotonic() - begun)


def figure(window: dict[str, float], ends: list[int]) -> dict[str, float]:
    """By the job's own clock: steps from the request until 10 after the hook was done, against 100 before."""
    first = next(n for n, end in enumerate(ends) if end > window["asked"])
    done = window["asked"] + window["span"] + 50e6  # and the drain, and the steps in which it began and ended
    last = next((n for n, end in enumerate(ends) if end > done), len(ends) - 11) + 10
    steps = [b - a for a, b in pairwise(ends)]
    base = median(steps[max(0, first - 100) : first - 1])
    inside = steps[first - 1 : last]
    return {
        "events": window["events"],
        "base_ms": base / 1e6,
        "longest": max(inside) / base,
        "lost_us": (sum(inside) - len(inside) * base) / 1e3 / window["events"],
    }


if __name__ == "__main__":
    main()
