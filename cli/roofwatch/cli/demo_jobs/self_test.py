"""The job of ``roofwatch self-test``: a small network under AdamW on the first accelerator, or the CPU."""

from __future__ import annotations

import argparse
import time

import torch
from torch import nn


def chosen(wanted: str) -> str:
    """The device to train on."""
    if wanted != "auto":
        return wanted
    if torch.cuda.is_available():
        return "cuda"
    npu = getattr(torch, "npu", None)  # torch_npu loads itself where it is installed
    return "npu" if npu is not None and npu.is_available() else "cpu"


def main() -> None:
    """Train on noise for a number of seconds; a step takes some milliseconds."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--device", default="auto")
    given = parser.parse_args()
    torch.set_num_threads(1)
    device = chosen(given.device)
    model = nn.Sequential(nn.Linear(256, 512), nn.LayerNorm(512), nn.GELU(), nn.Linear(512, 10)).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    inputs, targets = torch.randn(128, 256, device=device), torch.randint(0, 10, (128,), device=device)
    print(f"device {device}", flush=True)  # noqa: T201 - read by the self-test
    end, steps = time.monotonic() + given.seconds, 0
    while time.monotonic() < end:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(inputs), targets)
        loss.backward()
        optimizer.step()
        steps += 1
    print(f"steps {steps} loss {loss.item():.4f}", flush=True)  # noqa: T201 - the same


if __name__ == "__main__":
    main()
