"""One pass of the whole product on a machine with an NVIDIA GPU, in at most five minutes.

    python bench/gpu_smoke.py [--device cpu] [--json FILE]

Attach, windows, links, calibration, overhead A/B, and the first cause of a starved job. ``--device cpu`` runs the same
script without a GPU, to check the script itself. Prints one JSON object; exit 1 when a check fails.
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

TRAIN = """
import os, sys, time, torch
device = os.environ["SMOKE_DEVICE"]; starved = os.environ.get("SMOKE_STARVED") == "1"
small = device == "cpu"
width, batch = (256, 32) if small else (4096, 1024)
torch.manual_seed(0)
block = lambda: (torch.nn.Linear(width, width), torch.nn.GELU(), torch.nn.LayerNorm(width))
net = torch.nn.Sequential(*[m for _ in range(8) for m in block()]).to(device)
optimizer = torch.optim.AdamW(net.parameters(), lr=1e-4)
class Slow(torch.utils.data.Dataset):
    def __len__(self): return 1 << 30
    def __getitem__(self, i):
        time.sleep(0.05)
        return torch.randn(batch, width)
source = iter(torch.utils.data.DataLoader(Slow(), batch_size=None)) if starved else None
fixed = torch.randn(batch, width, device=device)
end = time.monotonic() + float(os.environ["SMOKE_SECONDS"]); stamps = []
while time.monotonic() < end:
    x = next(source).to(device) if starved else fixed
    with torch.autocast("cuda", torch.bfloat16, enabled=not small):
        loss = net(x).square().mean()
    optimizer.zero_grad(); loss.backward(); optimizer.step()
    stamps.append(time.monotonic())
if device != "cpu": torch.cuda.synchronize()
steps = [b - a for a, b in zip(stamps[20:], stamps[21:])]
print(sum(steps) / len(steps) if steps else float("nan"), len(stamps))
"""
ROOFWATCH = [sys.executable, "-m", "roofwatch.cli.main"]


def main() -> int:
    """Run the checks one after another and say what each gave."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--seconds", type=float, default=25.0, help="length of each of the five jobs")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    checks: dict[str, dict[str, Any]] = {}
    with tempfile.TemporaryDirectory(prefix="roofwatch-smoke-") as folder, services(Path(folder)) as env:
        env["SMOKE_DEVICE"], env["SMOKE_SECONDS"] = options.device, str(options.seconds)
        checks["calibrate"] = calibrate(options.device)
        checks["overhead"] = overhead(env)
        checks["windows"] = windows(env)
        checks["links"] = links(env)
        checks["starved"] = starved(env)
    result = {"device": options.device, "checks": checks, "ok": all(c["ok"] for c in checks.values())}
    text = json.dumps(result, indent=1)
    print(text)
    if options.json:
        options.json.write_text(text + "\n")
    return 0 if result["ok"] else 1


@contextmanager
def services(folder: Path) -> Iterator[dict[str, str]]:
    """A store and an agent on private paths, and the environment in which jobs and questions find them."""
    port_file = folder / "port"
    env = dict(os.environ, ROOFWATCH_SOCKET=str(folder / "agent.sock"), HOME=str(folder))
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


def job(env: dict[str, str], model: str, *, hooked: bool = True, starve: bool = False) -> tuple[float, int]:
    """One training job; its mean step in seconds and its number of steps."""
    command = [sys.executable, "-c", TRAIN]
    if hooked:
        command = [*ROOFWATCH, "run", "--model", model, "--", *command]
    done = subprocess.run(
        command, env=dict(env, SMOKE_STARVED="1" if starve else "0"), stdout=subprocess.PIPE, text=True, check=True
    )
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
    code = (
        "import json, sys; from roofwatch.collectors import calibrate; from roofwatch.model.answer import device_json;"
        "from roofwatch.model.record import Device, Vendor;"
        f"p = calibrate.measure(device={device!r}) if {device!r} != 'cpu' else calibrate.measure();"
        "print(json.dumps(device_json(Device(Vendor.CPU, 'x', peaks=p))['peaks']))"
    )
    done = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, check=False)
    return {"ok": done.returncode == 0, "peaks": json.loads(done.stdout) if done.returncode == 0 else None}


def overhead(env: dict[str, str]) -> dict[str, Any]:
    """Mean step without and with the hook and its windows, interleaved A B A B. Windows every 4 s, 15 × the default."""
    bare, hooked = [], []
    for _ in range(2):
        bare.append(job(env, "smoke", hooked=False)[0])
        hooked.append(job(env, "smoke")[0])
    share = sum(hooked) / sum(bare) - 1
    return {"ok": share < 0.05, "bare_step_s": bare, "hooked_step_s": hooked, "share": share}


def windows(env: dict[str, str]) -> dict[str, Any]:
    """At least two windows of the training job are in the store, and none was lost without a reason."""
    rows = ask(env, "windows", "--model", "smoke")["rows"]
    return {"ok": len(rows) >= 2, "windows": len(rows), "last": rows[0] if rows else None}


def links(env: dict[str, str]) -> dict[str, Any]:
    """Device time linked to an op, and with a verdict."""
    answer = ask(env, "top", "--model", "smoke")
    coverage = answer["coverage"]
    good = (coverage["linked_share"] or 0) > 0.9 and (coverage["classified_share"] or 0) > 0.9
    return {"ok": good, "coverage": coverage, "top": answer["rows"][:5]}


def starved(env: dict[str, str]) -> dict[str, Any]:
    """A job with a slow loader: its first cause of idle time must be ``input`` (on a GPU; a CPU is its own host)."""
    job(env, "starved", starve=True)
    summary = ask(env, "top", "--model", "starved").get("summary") or {}
    causes = summary.get("causes") or {}
    first = max(causes, key=lambda c: causes[c]["total_ns"], default=None)
    return {"ok": first == "input" or env["SMOKE_DEVICE"] == "cpu", "first_cause": first, "causes": causes}


if __name__ == "__main__":
    sys.exit(main())
