"""The jobs of gpu_smoke.py: argv is a kind. Prints its mean step in seconds (the first 20 left out) and its steps.

train    eight blocks of Linear, GELU, LayerNorm with AdamW, its input on the device
starved  the same, its input from a loader that sleeps 50 ms a batch
item     a chain of small layers, and the host asks for a number after each
h2d      small work on large pageable copies from the host
decode   a captured CUDA graph of small layers, replayed; no optimizer
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from itertools import pairwise

import torch
from torch import nn

DEVICE, SECONDS = os.environ["SMOKE_DEVICE"], float(os.environ["SMOKE_SECONDS"])
CPU = DEVICE == "cpu"
WIDTH, BATCH = (256, 32) if CPU else (4096, 1024)


class Slow(torch.utils.data.Dataset[torch.Tensor]):
    """A loader that makes its job wait."""

    def __len__(self) -> int:
        return 1 << 30

    def __getitem__(self, _: int) -> torch.Tensor:
        time.sleep(0.05)
        return torch.randn(BATCH, WIDTH)


def training(source: Callable[[], torch.Tensor]) -> Callable[[], None]:
    """A training step on what ``source`` gives."""
    layers = [layer for _ in range(8) for layer in (nn.Linear(WIDTH, WIDTH), nn.GELU(), nn.LayerNorm(WIDTH))]
    net = nn.Sequential(*layers).to(DEVICE)
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-4)

    def step() -> None:
        with torch.autocast("cuda", torch.bfloat16, enabled=not CPU):
            loss = net(source()).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    return step


def train() -> Callable[[], None]:
    """Its input is where it is needed."""
    fixed = torch.randn(BATCH, WIDTH, device=DEVICE)
    return training(lambda: fixed)


def starved() -> Callable[[], None]:
    """Its input is late."""
    batches = iter(torch.utils.data.DataLoader(Slow(), batch_size=None))
    return training(lambda: next(batches).to(DEVICE))


def item() -> Callable[[], None]:
    """The host waits for the device after each layer, and the device then for the host."""
    layers = [nn.Linear(1024, 1024, device=DEVICE) for _ in range(20)]
    optimizer = torch.optim.SGD([p for layer in layers for p in layer.parameters()], lr=0.0)
    x = torch.randn(256, 1024, device=DEVICE)

    def step() -> None:
        y = x
        for layer in layers:
            y = layer(y)
            y = y / max(y.abs().max().item(), 1.0)
        y.mean().backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def h2d() -> Callable[[], None]:
    """Pageable memory: each copy keeps the host, and the device waits for it."""
    data = torch.randn(16 if CPU else 64, 1 << 20)
    weight = torch.zeros(1, device=DEVICE, requires_grad=True)
    optimizer = torch.optim.SGD([weight], lr=0.0)

    def step() -> None:
        (data.to(DEVICE, copy=True).mean() * weight).sum().backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def decode() -> Callable[[], None]:
    """Small layers; on a device captured once and replayed."""
    net = nn.Sequential(*[nn.Linear(1024, 1024) for _ in range(50)]).to(DEVICE)
    x = torch.randn(8, 1024, device=DEVICE)

    @torch.no_grad()
    def eager() -> None:
        net(x)

    if CPU:
        return eager
    eager()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.no_grad(), torch.cuda.graph(graph):
        net(x)

    def step() -> None:
        for _ in range(10):
            graph.replay()
        torch.cuda.synchronize()

    return step


def main() -> None:
    """Step until the time is over."""
    torch.manual_seed(0)
    step = {"train": train, "starved": starved, "item": item, "h2d": h2d, "decode": decode}[sys.argv[1]]()
    stamps = []
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        step()
        stamps.append(time.monotonic())
    if not CPU:
        torch.cuda.synchronize()
    steps = [b - a for a, b in pairwise(stamps[20:])]
    print(sum(steps) / len(steps) if steps else float("nan"), len(stamps))


if __name__ == "__main__":
    main()
