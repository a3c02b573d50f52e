"""Two thousand windows in one process: does its memory grow? For ``bench/overhead.py``."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "tests" / "hook"))

from _overhead_figures import Slope, slope  # noqa: E402 - found by the line above, as the next
from little_agent import LittleAgent  # noqa: E402

from roofwatch.hook.launch import environment  # noqa: E402

WARM_UP = 200  # windows in which caches and the allocator's free lists fill
UNSEEN = 0.001
JOB = """
import os, threading
import torch
torch.set_num_threads(1)
model = torch.nn.Sequential(*[torch.nn.Linear(64, 64) for _ in range(10)])
optimizer = torch.optim.AdamW(model.parameters(), foreach=False)
x = torch.randn(16, 64)
over = threading.Event()
threading.Thread(target=lambda: (os.read(0, 1), over.set()), daemon=True).start()
while not over.is_set():
    optimizer.zero_grad()
    model(x).square().mean().backward()
    optimizer.step()
"""


def resident(pid: int) -> int:
    """Bytes in memory now."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def descriptors(pid: int) -> int:
    """How many are open."""
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


def run(folder: Path, windows: int, cap_s: float) -> dict[str, Any]:
    """Windows of two steps with shapes, one after the other; memory after each of them."""
    with LittleAgent(folder) as agent:
        environ = environment(os.environ, socket=agent.path)
        job = subprocess.Popen([sys.executable, "-c", JOB], env=environ, stdin=subprocess.PIPE)
        try:
            memory, refused, files = take(agent, job.pid, windows, cap_s)
        finally:
            job.communicate()
    after = memory[min(WARM_UP, len(memory) // 5) :]
    grown = slope(range(len(after)), after)
    return {
        "case": "memory", "windows": len(memory), "asked_for": windows, "refused": refused, "exit_code": job.returncode,
        "first_mb": memory[0] / 1e6, "warm_mb": after[0] / 1e6, "last_mb": memory[-1] / 1e6,
        "slope_bytes_a_window": asdict(grown), "descriptors": files,
        "flat": flat(grown, windows, after[0]),
    }  # fmt: skip


def flat(grown: Slope, windows: int, resident: int) -> bool:
    """The slope's interval holds 0, or all of these windows add less than a thousandth of what the process has."""
    most = abs(grown.value) + grown.half
    return abs(grown.value) <= grown.half or most * windows < UNSEEN * resident


def take(agent: LittleAgent, pid: int, windows: int, cap_s: float) -> tuple[list[int], int, tuple[int, int]]:
    """Memory after each window, how many were refused, open descriptors before and after."""
    connection, memory, refused = agent.accept(), [], 0
    end, before = time.monotonic() + cap_s, 0
    for number in range(windows):
        if time.monotonic() > end:
            break
        answer, _ = connection.take(steps=2, shapes=True)
        refused += answer["type"] != "window"
        memory.append(resident(pid))
        before = before or descriptors(pid)
        if number % 500 == 499:
            print(f"  {number + 1} windows, {memory[-1] / 1e6:.1f} MB", file=sys.stderr, flush=True)
    return memory, refused, (before, descriptors(pid))
