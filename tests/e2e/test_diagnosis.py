"""Real jobs on this machine's CPU under the hook, diagnosed from a real store: each for what is wrong with it."""

from __future__ import annotations

from typing import Any

import pytest
from whole_path import Node

# A batch takes 40 ms to load, and a step a few: the loader waits for a disk that is not there.
SLOW_LOADER = """
import sys, time, torch
class Slow(torch.utils.data.Dataset):
    def __len__(self):
        return 1 << 30
    def __getitem__(self, index):
        time.sleep(0.01)
        return torch.ones(64)
def main():
    model = torch.nn.Linear(64, 64)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    print("ready", flush=True)
    end = time.monotonic() + float(sys.argv[1])
    for batch in torch.utils.data.DataLoader(Slow(), batch_size=4):
        optimizer.zero_grad()
        model(batch).square().mean().backward()
        optimizer.step()
        if time.monotonic() > end:
            break
main()
"""
# Thousands of values, fetched one by one: Python, views and .item(), and a product in between.
ITEMS = """
import sys, time, torch
model = torch.nn.Linear(64, 64)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
x = torch.randn(64, 64)
values = torch.rand(400)
print("ready", flush=True)
end = time.monotonic() + float(sys.argv[1])
while time.monotonic() < end:
    optimizer.zero_grad()
    model(x).square().mean().backward()
    optimizer.step()
    total = 0.0
    for i in range(400):
        if values[i].item() > 0.5:
            total += values[i].item()
"""


def diagnosed(node: Node, program: str, model: str) -> dict[str, Any]:
    """The diagnosis of a job, of three windows at least."""
    node.store()
    node.agent()
    job = node.script(program, model, 40)
    node.wait_for_windows(3)
    job.kill()
    found: dict[str, Any] = node.ask("diagnose", "--model", model)
    return found


def test_a_slow_loader_is_diagnosed(node: Node) -> None:
    """The device waits for input, which takes most of the time; no kernel is to be tuned, workers are the first fix."""
    found = diagnosed(node, SLOW_LOADER, "loader")
    told = found["verdict"]
    assert (told["first_cause"], told["stop_kernels"]) == ("input", True), found["time"]
    assert told["share"] > 0.5
    assert found["causes"][0]["count"] >= 3
    assert "DataLoader" in found["causes"][0]["example"]
    assert "num_workers" in found["causes"][0]["fixes"][0]
    assert found["commands"][0]["tool"] == "py-spy"
    timeline = node.ask("timeline", "--by", "window")
    rows = [row for row in timeline["rows"] if row["startup_share"] < 1]  # not what was of its imports
    assert len(rows) >= 2
    assert all(row["input_share"] > 0.3 for row in rows)
    drawn = node.read("diagnose", "--model", "loader")
    assert "First: input," in drawn
    assert "Do not tune kernels yet" in drawn


def test_many_items_are_no_kernel_problem(node: Node) -> None:
    """The host is what is slow: Python between ops, and dispatch. No row that is worth touching fetches or views."""
    found = diagnosed(node, ITEMS, "items")
    told = found["verdict"]
    assert told["first_cause"] in {"host", "dispatch"}, found["time"]
    assert told["stop_kernels"], found["time"]
    assert sum(cause["share"] for cause in found["causes"]) + told["kernels_share"] == pytest.approx(1.0)
    touched = {row["op"] for row in found["rows"]}
    assert not touched & {"aten::item", "aten::_local_scalar_dense", "aten::select", "aten::as_strided"}
    assert "raw_time" not in {warning["mistake"] for warning in found["warnings"]}
