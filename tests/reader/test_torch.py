"""The reader on a CPU window that torch has just recorded, against torch's own accounting."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from roofwatch.collectors.registry import read
from roofwatch.model.record import Phase

# In a process of its own: torch's profiler is global to a process, and other tests use it too.
RECORD = """
import json, sys, torch
model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 8))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

def step():
    model(torch.randn(16, 64)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()

step()
activities = [torch.profiler.ProfilerActivity.CPU]
with torch.profiler.profile(activities=activities, record_shapes=True) as profiler:
    for index in range(3):
        with torch.profiler.record_function(f"ProfilerStep#{index}"):
            step()
profiler.export_chrome_trace(sys.argv[1])
own = {e.key: (e.count, e.self_cpu_time_total) for e in profiler.key_averages()}
print(json.dumps(own))
"""


@pytest.mark.parametrize("suffix", [".json", ".json.gz"])
def test_self_times_are_torchs_own(tmp_path: Path, suffix: str) -> None:
    """Calls and self CPU time of each op are those of ``key_averages``, whose times are in microseconds."""
    path = tmp_path / f"window{suffix}"
    done = subprocess.run([sys.executable, "-c", RECORD, path], capture_output=True, text=True, timeout=100, check=True)
    expected = json.loads(done.stdout)

    profile = read(path)

    calls: Counter[str] = Counter()
    self_ns: Counter[str] = Counter()
    for group in profile.groups:
        calls[group.kernel] += group.calls
        self_ns[group.kernel] += group.total_ns
    # torch counts an op and an op of the same name that is all it calls as one; their self times add up all the same.
    assert all(calls[key] >= expected[key][0] for key in calls)
    for key in ("aten::addmm", "aten::mm", "AddmmBackward0", "aten::linear", "aten::relu"):
        assert calls[key] == expected[key][0]
    for key, total in self_ns.items():
        assert total / 1000 == pytest.approx(expected[key][1], abs=0.01 * calls[key])
    assert profile.problem is None
    assert (profile.steps, profile.shapes_recorded, profile.has_host_events) == (3, True, True)
    assert {g.phase for g in profile.groups} >= {Phase.FORWARD, Phase.BACKWARD, Phase.OPTIMIZER}
    device = profile.devices[0]
    assert device.span_ns - device.busy_ns == sum(c.total_ns for c in device.causes)
