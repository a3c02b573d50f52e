"""Windows under stress: every configuration that could crash a job, window after window.

    python tests/stress/run.py --windows 1000

prints a table and exits 1 when any process crashed, hung, or wrote to stderr. It is the condition for a build of torch
to stand in ``roofwatch.hook.native.PROVED``.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "hook"))

from little_agent import LittleAgent, read_all  # noqa: E402 - found by the line above

from roofwatch.hook import protocol  # noqa: E402

CONFIGURATIONS = (
    ("1 busy thread", "busy", 1, 0),
    ("3 busy threads", "busy", 3, 0),
    ("8 busy threads", "busy", 8, 0),
    ("32 busy threads", "busy", 32, 0),
    ("8 busy threads, 2 hogs", "busy", 8, 2),
    ("3 threads with long ops", "long", 3, 2),
    ("thread churn", "churn", 2, 0),
    ("multi-threaded autograd", "backward", 4, 0),
    ("torch.compile", "compile", 3, 0),
    ("forks beside 2 busy threads", "forks", 2, 0),
    ("training, DataLoader workers", "steps", 0, 0),
)
HOG = "while True: pass"


@dataclass
class Outcome:
    """What became of one configuration."""

    name: str
    windows: int = 0
    refused: int = 0
    crashes: int = 0
    note: str = ""
    seconds: float = 0.0


def run(name: str, kind: str, threads: int, hogs: int, windows: int, patience: float) -> Outcome:
    """Take ``windows`` windows of one job, in as many processes as it needs after crashes (at most five)."""
    outcome = Outcome(name)
    begun = time.monotonic()
    beside = [subprocess.Popen([sys.executable, "-c", HOG]) for _ in range(hogs)]
    try:
        while outcome.windows + outcome.refused < windows and outcome.crashes < 5:
            one_job(outcome, [sys.executable, str(HERE / "job.py"), kind, str(threads)], windows, patience)
    finally:
        for hog in beside:
            hog.kill()
            hog.wait()
    outcome.seconds = time.monotonic() - begun
    return outcome


def one_job(outcome: Outcome, command: list[str], windows: int, patience: float) -> None:
    """One process: windows until it has them all or dies."""
    with tempfile.TemporaryDirectory() as folder, LittleAgent(Path(folder)) as agent:
        environ = dict(os.environ, ROOFWATCH_SOCKET=agent.path)
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        job = subprocess.Popen(command, env=environ, text=True, **pipes)
        begun = time.monotonic()
        try:
            connection = agent.accept()
            while outcome.windows + outcome.refused < windows:
                duration = random.choice((1, 2, 5))
                connection.ask(steps=1, duration_ms=duration, shapes=random.random() < 0.5, max_ms=200)
                answer, fd = connection.receive(patience)
                if answer.get("detail") == "no steps" and time.monotonic() < begun + patience:
                    time.sleep(0.1)  # the job has not made its first step, which the plain path waits for
                    continue
                outcome.windows += bool(read_all(fd))
                outcome.refused += answer["type"] == protocol.REFUSED
        except (TimeoutError, OSError, protocol.Closed) as error:
            outcome.note = type(error).__name__
        try:
            _, errors = job.communicate(timeout=patience)
        except subprocess.TimeoutExpired:
            job.kill()
            _, errors = job.communicate()
            outcome.note = "hung at exit"
        # Kineto's lines are those of the children's own profilers; the second is of a build for GPUs without one.
        kineto = ("USDT:", "gpuGetDeviceCount failed")
        errors = "".join(line for line in errors.splitlines(keepends=True) if not any(word in line for word in kineto))
        if job.returncode != 0 or errors or outcome.note:
            outcome.crashes += 1
            outcome.note = f"{outcome.note} rc {job.returncode} {errors[-2000:]}"


def exits(number: int, patience: float) -> Outcome:
    """Processes that leave in the middle of a window."""
    outcome = Outcome("exit in every phase")
    begun = time.monotonic()
    with tempfile.TemporaryDirectory() as folder, LittleAgent(Path(folder)) as agent:
        environ = dict(os.environ, ROOFWATCH_SOCKET=agent.path)
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        parent = subprocess.Popen(
            [sys.executable, str(HERE / "exits.py"), str(number)], env=environ, text=True, **pipes
        )
        phases: Counter[str] = Counter()
        server = threading.Thread(target=serve_exits, args=(agent, parent, phases))
        server.start()
        output, errors = parent.communicate(timeout=patience + number)
        server.join()
    result = json.loads(output) if output else {"ends": {}, "longest_ms": None}
    outcome.windows = phases["window"]
    outcome.crashes = number - result["ends"].get("clean", 0) + bool(errors)
    outcome.refused = sum(phases.values()) - phases["window"] - phases["cut short"]
    inside = phases["exiting"] + phases["cut short"]
    outcome.note = f"{number} exits, {inside} during a request, held back {result['longest_ms']} ms at most {errors}"
    outcome.seconds = time.monotonic() - begun
    return outcome


def serve_exits(agent: LittleAgent, parent: subprocess.Popen[str], phases: Counter[str]) -> None:
    """One window after another of whoever is connected, until the parent has ended."""
    while parent.poll() is None:
        try:
            connection = agent.accept(timeout=0.5)
        except (TimeoutError, OSError, protocol.Closed):
            continue
        try:
            while True:
                connection.ask(steps=2, duration_ms=3, shapes=True, max_ms=50)
                answer, fd = connection.receive(10)
                phases["window" if read_all(fd) else str(answer["reason"])] += 1
                if answer.get("reason") == protocol.EXITING:
                    break
        except (TimeoutError, OSError, protocol.Closed):
            phases["cut short"] += 1
        connection.close()
        agent.connections.clear()


def control(windows: int) -> Outcome:
    """The same race without protection: has to crash, or the harness proves nothing."""
    outcome = Outcome("control: closed as torch does")
    begun = time.monotonic()
    environ = dict(os.environ, STRESS_CONTROL=str(windows))
    job = subprocess.run(
        [sys.executable, str(HERE / "job.py"), "busy", "3"], env=environ, capture_output=True, check=False
    )
    outcome.windows, outcome.crashes = windows, int(job.returncode < 0)
    outcome.note = f"rc {job.returncode}"
    outcome.seconds = time.monotonic() - begun
    return outcome


def main() -> int:
    """Run all, print the table."""
    parser = argparse.ArgumentParser(description="Profiler windows under stress.")
    parser.add_argument("--windows", type=int, default=1000, help="windows a configuration (default 1000)")
    parser.add_argument("--only", default="", help="configurations whose name contains this")
    parser.add_argument("--patience", type=float, default=60.0, help="seconds to wait for one window")
    options = parser.parse_args()
    outcomes = []
    print(f"{'configuration':32} {'windows':>8} {'refused':>8} {'crashes':>8} {'seconds':>8}  note")
    for name, kind, threads, hogs in CONFIGURATIONS:
        if options.only in name:
            outcomes.append(run(name, kind, threads, hogs, options.windows, options.patience))
            show(outcomes[-1])
    if options.only in "exit in every phase":
        outcomes.append(exits(options.windows, options.patience))
        show(outcomes[-1])
    if options.only in "control":
        show(control(options.windows))
    return 1 if any(outcome.crashes for outcome in outcomes) else 0


def show(outcome: Outcome) -> None:
    """One line of the table."""
    figures = f"{outcome.windows:8d} {outcome.refused:8d} {outcome.crashes:8d} {outcome.seconds:8.1f}"
    print(f"{outcome.name:32} {figures}  {outcome.note}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
