"""A Transformer encoder that answers batch after batch: d_model 512, 8 heads, 4 layers, batch 8 × 256 tokens."""

from __future__ import annotations

import argparse
import sys
import time

import torch
from torch import nn


def tell(*_: object) -> None:
    """A layer is done."""
    sys.stdout.write(f"{time.time_ns()}\n")
    sys.stdout.flush()


def main() -> None:
    """Answer batches for a number of seconds (so that nothing runs on, whatever happens to the demo).

    Prints the Unix time in ns after each layer: without optimizer steps, only the job itself can tell what slowed it.
    """
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=120.0)
    end = time.monotonic() + parser.parse_args().seconds
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(d_model=512, nhead=8, batch_first=True)
    model = nn.TransformerEncoder(layer, num_layers=4, enable_nested_tensor=False).eval()
    # The fused path is one opaque op a layer on a CPU; the ops of the layer are what the demo is about.
    torch.backends.mha.set_fastpath_enabled(False)
    for each in model.layers:
        each.register_forward_hook(tell)
    batch = torch.randn(8, 256, 512)
    with torch.inference_mode():
        while time.monotonic() < end:
            model(batch)


if __name__ == "__main__":
    main()
