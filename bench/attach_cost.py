"""What attaching costs a job that has no agent: milliseconds once, microseconds a step, and who wakes in 30 s.

Limits: 50 ms once; no thread wakes more than once in 5 s.

    python bench/attach_cost.py [--runs N] [--watch SECONDS]
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

from _rows import row, say

from roofwatch.hook.launch import environment

RUNS = 5
WATCH_S = 30.0
ATTACH = """
import torch, time
begun = time.perf_counter()
from roofwatch.hook import job
job.attach(explicit=False)
print((time.perf_counter() - begun) * 1e3)
"""
STEP = """
import torch, time
from torch.optim.optimizer import _global_optimizer_post_hooks
from roofwatch.hook import job
job.attach(explicit=False)
hook = list(_global_optimizer_post_hooks.values())[-1]
class Optimizer: pass
optimizer = Optimizer()
def cost(call, n=200_000):
    begun = time.perf_counter()
    for _ in range(n): call(optimizer, (), {})
    return (time.perf_counter() - begun) / n * 1e6
cost(hook, 1000)
print(min(cost(hook) for _ in range(5)) - min(cost(lambda o, a, k: None) for _ in range(5)))
"""
IDLE = "import torch, os\nprint(1, flush=True)\nos.read(0, 1)\n"


def main() -> None:
    """Measure the three, print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=RUNS, help="of attaching; the median counts")
    parser.add_argument("--watch", type=float, default=WATCH_S, help="seconds in which wake-ups are counted")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        environ = dict(os.environ, ROOFWATCH_SOCKET=str(Path(folder) / "nobody.sock"))
        attach = [run(ATTACH, environ) for _ in range(options.runs)]
        say(f"attach, ms: {[round(value, 1) for value in attach]}")
        row("a job without an agent: attach, once", median(attach), "ms", at_most=50)
        row("a job without an agent: the hook in an optimizer step", run(STEP, environ), "µs")
        most = wakes(environ, options.watch)
        row("a job without an agent: wake-ups of its busiest thread in 5 s", most / (options.watch / 5), at_most=1)


def run(code: str, environ: dict[str, str]) -> float:
    """The number that a program prints."""
    return float(subprocess.run([sys.executable, "-c", code], env=environ, capture_output=True, check=True).stdout)


def wakes(environ: dict[str, str], seconds: float) -> int:
    """How often the thread that woke most did so, from the fourth second of an idle job on."""
    job = subprocess.Popen(
        [sys.executable, "-c", IDLE],
        env=environment(environ, socket=environ["ROOFWATCH_SOCKET"]),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert job.stdout is not None
    job.stdout.readline()
    time.sleep(3)
    before = switches(job.pid)
    time.sleep(seconds)
    after = switches(job.pid)
    job.communicate()
    woken = {tid: after[tid] - before.get(tid, 0) for tid in after}
    say(f"wakes of each thread in {seconds:g} s: {woken}")
    return max(woken.values())


def switches(pid: int) -> dict[str, int]:
    """Voluntary switches of each thread: one for each time it went to sleep again."""
    found = {}
    for task in Path(f"/proc/{pid}/task").iterdir():
        match = re.search(r"\nvoluntary_ctxt_switches:\s+(\d+)", (task / "status").read_text())
        found[task.name] = int(match.group(1)) if match else 0
    return found


if __name__ == "__main__":
    main()
