"""Jobs that torch really ran on this CPU: what their device waited for."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from roofwatch.collectors.base import RawDevice
from roofwatch.collectors.registry import read

# In a process of its own: torch's profiler is global to a process. Each sample takes `slow` seconds to load.
JOB = """
import sys, time, torch
from torch.profiler import ProfilerActivity, profile, schedule
path, workers, slow, between, items = sys.argv[1], int(sys.argv[2]), *map(float, sys.argv[3:5]), int(sys.argv[5])
torch.set_num_threads(1)

class Samples(torch.utils.data.Dataset):
    def __len__(self):
        return 40
    def __getitem__(self, index):
        time.sleep(slow)
        return torch.full((256,), float(index))

model = torch.nn.Linear(256, 256)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

def train(batch):
    loss = model(batch).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    for _ in range(items):
        loss.item()
    time.sleep(between)

if __name__ == "__main__":
    loader = torch.utils.data.DataLoader(Samples(), batch_size=4, num_workers=workers)
    when = schedule(wait=0, warmup=2, active=8, repeat=1)
    done = lambda profiler: profiler.export_chrome_trace(path)
    with profile(activities=[ProfilerActivity.CPU], schedule=when, on_trace_ready=done) as profiler:
        for batch in loader:
            train(batch)
            profiler.step()
"""


def run(path: Path, workers: int = 0, slow: float = 0, between: float = 0, items: int = 0) -> RawDevice:
    """The device of a window of eight steps."""
    script = path / "job.py"
    script.write_text(JOB)
    window = path / "window.json"
    command = [sys.executable, script, window, str(workers), str(slow), str(between), str(items)]
    subprocess.run(command, capture_output=True, text=True, timeout=100, check=True)
    profile = read(window)
    assert (profile.steps, profile.problem) == (8, None)
    (device,) = profile.devices
    assert device.vendor == "cpu"
    assert sum(c.total_ns for c in device.causes) == device.span_ns - device.busy_ns
    return device


@pytest.mark.parametrize(
    ("workers", "loader"), [(0, "_SingleProcessDataLoaderIter"), (2, "_MultiProcessingDataLoaderIter")]
)
def test_a_slow_data_loader_is_input(tmp_path: Path, workers: int, loader: str) -> None:
    """20 ms a sample, 4 a batch: 80 ms a step to load in the process, 40 with two workers, and some 1 to train on.

    Most of the window is the wait for the loader, and at least half of the time that loading needs at its quickest.
    """
    device = run(tmp_path, workers=workers, slow=0.02)

    first = device.causes[0]
    assert first.cause.value == "input"
    assert first.total_ns > 0.5 * device.span_ns
    assert first.total_ns > 0.5 * 8 * 80e6 / max(workers, 1)
    assert str(first.example).startswith(f"in enumerate(DataLoader)#{loader}.__next__; at ")


def test_a_quick_data_loader_is_not_the_first_cause(tmp_path: Path) -> None:
    """Samples at once and 30 ms of Python between two steps: host, at least 7 x 30 ms, and input a small part of it."""
    device = run(tmp_path, between=0.03)

    first = device.causes[0]
    assert first.cause.value == "host"
    assert first.total_ns >= 7 * 30e6
    assert sum(c.total_ns for c in device.causes if c.cause.value == "input") < 0.2 * first.total_ns


def test_items_on_a_cpu_are_no_waits(tmp_path: Path) -> None:
    """2,000 ``.item()`` a step: ops of the CPU, so no cause of idle is a wait for a device."""
    device = run(tmp_path, items=2000)

    assert {c.cause.value for c in device.causes} <= {"host", "input"}
    assert device.busy_ns > 0
