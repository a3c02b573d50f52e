"""One pass of the whole product on a machine with an NVIDIA GPU, in at most five minutes.

    python bench/gpu_smoke.py [--device cpu] [--json FILE]

Calibration; overhead A/B; windows and links of a training job; and jobs that wait for something, each of which must get
the right first cause: a starved loader, ``.item()`` in every layer, copies from the host, and a CUDA-graph decode loop.
``--device cpu`` runs the same script without a GPU, to check the script itself. A row a check; ``--json`` has what each
of them saw.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from _rows import Lacking, or_skipped, row, say

JOBS = Path(__file__).resolve().parent / "_gpu_jobs.py"
ROOFWATCH = [sys.executable, "-m", "roofwatch.cli.main"]


def main() -> None:
    """Run the checks one after another and say what each gave."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--seconds", type=float, default=15.0, help="length of each of the eight jobs")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    with or_skipped("the whole product on an NVIDIA GPU"):
        if options.device == "cuda":
            needs_gpu()
        checks = checked(options.device, options.seconds)
        text = json.dumps({"device": options.device, "checks": checks}, indent=1)
        say(text)
        if options.json:
            options.json.write_text(text + "\n")


def needs_gpu() -> None:
    """Raises Lacking where torch sees no GPU."""
    import torch  # noqa: PLC0415 - takes seconds

    if not torch.cuda.is_available():
        raise Lacking("torch sees no NVIDIA GPU here")


def checked(device: str, seconds: float) -> dict[str, dict[str, Any]]:
    """All checks, each with a row as it ends."""
    checks: dict[str, dict[str, Any]] = {}

    def note(name: str, found: dict[str, Any]) -> None:
        checks[name] = found
        row(f"{device}: {name}, checks that fail", int(not found["ok"]), at_most=0)

    with tempfile.TemporaryDirectory(prefix="roofwatch-smoke-") as folder:
        os.environ["HOME"] = folder  # the calibration is this run's own
        note("calibrate", calibrate(device))
        with services(Path(folder)) as env:
            env["SMOKE_DEVICE"], env["SMOKE_SECONDS"] = device, str(seconds)
            note("overhead", overhead(env))
            note("windows", windows(env))
            note("links", links(env))
            for name, causes in FIRST_CAUSES.items():
                note(name, first_cause(env, name, causes))
    return checks


@contextmanager
def services(folder: Path) -> Iterator[dict[str, str]]:
    """A store and an agent on private paths, and the environment in which jobs and questions find them."""
    port_file = folder / "port"
    env = dict(os.environ, ROOFWATCH_SOCKET=str(folder / "agent.sock"))
    store = subprocess.Popen(
        [*ROOFWATCH, "store", "serve", "--listen", "127.0.0.1:0", "--db", f"sqlite:///{folder}/store.db",
         "--port-file", str(port_file)], env=env,
    )  # fmt: skip
    agent = None
    try:
        wait(port_file.exists, "the store")
        env["ROOFWATCH_STORE"] = f"127.0.0.1:{port_file.read_text().strip()}"
        agent = subprocess.Popen([*ROOFWATCH, "agent", "--state", str(folder / "agent"), "--interval", "4"], env=env)
        wait(lambda: Path(env["ROOFWATCH_SOCKET"]).exists(), "the agent")
        yield env
    finally:
        for process in (agent, store):
            if process is not None:
                process.send_signal(signal.SIGTERM)
                process.wait(timeout=20)


def wait(ready: Any, what: str, limit_s: float = 30.0) -> None:
    """Until ``ready()``."""
    end = time.monotonic() + limit_s
    while not ready():
        if time.monotonic() > end:
            sys.exit(f"{what} did not start within {limit_s:.0f} s")
        time.sleep(0.05)


def job(env: dict[str, str], kind: str, *, hooked: bool = True) -> tuple[float, int]:
    """One job of _gpu_jobs.py; its mean step in seconds and its number of steps."""
    command = [sys.executable, str(JOBS), kind]
    if hooked:
        command = [*ROOFWATCH, "run", "--model", kind, "--", *command]
    done = subprocess.run(command, env=env, stdout=subprocess.PIPE, text=True, check=True)
    mean, steps = done.stdout.split()
    return float(mean), int(steps)


def ask(env: dict[str, str], *arguments: str) -> dict[str, Any]:
    """A reading command's answer."""
    done = subprocess.run(
        [*ROOFWATCH, *arguments, "--format", "json"], env=env, stdout=subprocess.PIPE, text=True, check=False
    )
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def calibrate(device: str) -> dict[str, Any]:
    """The measured peaks, beside the data sheet's."""
    command = [*ROOFWATCH, "devices", "calibrate", "--device", device, "--format", "json"]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    return {"ok": done.returncode == 0, "rows": json.loads(done.stdout)["rows"] if done.returncode == 0 else None}


def overhead(env: dict[str, str]) -> dict[str, Any]:
    """Mean step without and with the hook and its windows, interleaved A B A B. Windows every 4 s, 15 × the default."""
    bare, hooked = [], []
    for _ in range(2):
        bare.append(job(env, "train", hooked=False)[0])
        hooked.append(job(env, "train")[0])
    share = sum(hooked) / sum(bare) - 1
    return {"ok": share < 0.05, "bare_step_s": bare, "hooked_step_s": hooked, "share": share}


def windows(env: dict[str, str]) -> dict[str, Any]:
    """At least two windows of the training job are in the store, and none was lost without a reason."""
    rows = ask(env, "windows", "--model", "train")["rows"]
    return {"ok": len(rows) >= 2, "windows": len(rows), "last": rows[0] if rows else None}


def links(env: dict[str, str]) -> dict[str, Any]:
    """Device time linked to an op, and with a verdict."""
    answer = ask(env, "top", "--model", "train")
    coverage = answer["coverage"]
    good = (coverage["linked_share"] or 0) > 0.9 and (coverage["classified_share"] or 0) > 0.9
    return {"ok": good, "coverage": coverage, "top": answer["rows"][:5]}


# Which first causes are right for a job that waits for one thing. On a CPU ops run where they are called: only the
# loader can be told from the host there.
FIRST_CAUSES = {
    "starved": {"input"},
    "item": {"sync"},
    "h2d": {"copy", "exposed_copy"},
    "decode": {"kernels", "launch_gap", "unknown"},
}


def first_cause(env: dict[str, str], kind: str, right: set[str]) -> dict[str, Any]:
    """Run a job and ask ``diagnose`` what it waits for."""
    job(env, kind)
    verdict = ask(env, "diagnose", "--model", kind)["verdict"]
    summary = ask(env, "top", "--model", kind)["summary"]
    good = verdict["first_cause"] in right or (env["SMOKE_DEVICE"] == "cpu" and kind != "starved")
    return {"ok": good, "verdict": verdict, "summary": summary}


if __name__ == "__main__":
    main()
