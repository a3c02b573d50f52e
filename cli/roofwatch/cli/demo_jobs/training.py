"""A small training job: a normalised multilayer perceptron under AdamW, 256 × 512 a batch, one optimizer step each."""

from __future__ import annotations

import argparse
import time

import torch
from torch import nn


def main() -> None:
    """Train on noise for a number of seconds (so that nothing runs on, whatever happens to the demo).

    A line about once a second says that it gets on, also on a machine where a step takes seconds.
    """
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=120.0)
    end = time.monotonic() + parser.parse_args().seconds
    torch.manual_seed(0)
    blocks = [nn.Sequential(nn.Linear(512, 512), nn.LayerNorm(512), nn.GELU()) for _ in range(4)]
    model = nn.Sequential(*blocks, nn.Linear(512, 10))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    inputs, targets = torch.randn(256, 512), torch.randint(0, 10, (256,))
    steps, told = 0, 0.0
    while time.monotonic() < end:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(inputs), targets).backward()
        optimizer.step()
        steps += 1
        if time.monotonic() > told + 1.0:
            told = time.monotonic()
            print(f"{steps} steps", flush=True)  # noqa: T201 - read by the demo


if __name__ == "__main__":
    main()
