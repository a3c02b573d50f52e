"""Real jobs that tell their lengths, through hook, agent and store: the numbers worked out by hand come back."""

from __future__ import annotations

import time

import pytest
from whole_path import Node

# Lengths 30, 128, 24, 77 padded to 128: 259 of 512 tokens are real; of their squares 900 + 16,384 + 576 + 5,929 =
# 23,789 of 65,536.
TOKENS, SQUARES = 259 / 512, 23_789 / 65_536
JOB = """
import sys, time, torch
from roofwatch.hook import attach, batch
torch.manual_seed(0)
layer = torch.nn.TransformerEncoderLayer(64, 4, 256, batch_first=True)
model = torch.nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
lengths = [30, 128, 24, 77]
x = torch.randn(4, 128, 64)
padding = torch.arange(128)[None] >= torch.tensor(lengths)[:, None]
PREPARE
print("ready", flush=True)
end = time.monotonic() + float(sys.argv[1])
while time.monotonic() < end:
    optimizer.zero_grad()
    STEP.square().mean().backward()
    optimizer.step()
    time.sleep(0.005)
"""
TOLD = JOB.replace("PREPARE", "").replace("    STEP", "    batch(lengths=lengths)\n    model(x)")
MASKED = JOB.replace("PREPARE", "attach(model_module=model)").replace("STEP", "model(x, src_key_padding_mask=padding)")


def _with_shapes(node: Node, model: str) -> int:
    """How many windows of a model have shapes; a process's first has none."""
    found = node.ask("windows", "--model", model, "--limit", "0", allowed=(0, 4))
    return sum(row["shapes_recorded"] for row in found["rows"]) if found else 0


def test_lengths_of_live_jobs(node: Node) -> None:
    """One job calls batch(lengths=…), one gives attach() the module whose mask tells; both answers are as by hand."""
    node.store()
    node.agent()
    jobs = {"told": TOLD, "masked": MASKED}
    for model, program in jobs.items():
        node.script(program, model, 60)
    end = time.monotonic() + 60
    while min(_with_shapes(node, model) for model in jobs) < 2:
        assert time.monotonic() < end, "no windows with shapes"
        time.sleep(0.5)  # the jobs need the cores
    for model in jobs:
        found = node.ask("padding", "--model", model)
        assert found["utilisation"]["linear"] == pytest.approx(TOKENS)
        assert found["utilisation"]["quadratic"] == pytest.approx(SQUARES)
        lengths = found["lengths"]
        assert (lengths["shortest"], lengths["longest"], lengths["distinct"]) == (24, 128, 4)
        assert lengths["sequences"] == 4 * lengths["batches"] > 0
        assert lengths["unread"] == 0
        split = found["split"]
        assert split["fits"], split
        assert split["quadratic_share"] > 0.05
        assert split["linear_share"] > 0.2
        four = next(row for row in found["rows"] if row["buckets"] == 4)
        assert four["boundaries"] == [24, 30, 77, 128]
        assert four["linear_utilisation"] == 1.0
        free = found["rows"][-1]["saved_share"]
        whole = split["linear_share"] * (1 - TOKENS) + split["quadratic_share"] * (1 - SQUARES)
        assert 0 < free <= whole + 1e-3  # what is latency bound or reads weights saves less
    assert node.ask("padding")["processes"] == 2
    assert "Recommended: " in node.read("padding", "--model", "masked")
