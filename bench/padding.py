"""Whether the savings that ``roofwatch padding`` foretells are those that come: a small transformer on this CPU.

Recorded padded, the command says what buckets and padding-free execution would save; then the same layers run so: each
batch split into its buckets, and without padding (linear layers over the tokens of all sequences, attention a sequence
at a time). TOLERANCE is how far foretold and measured shares of the time may lie apart. On one thread, by CPU time: of
several threads those that wait for another spin, and on a busy machine that would be most of what is measured.

    python bench/padding.py [--rounds N]
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional

from roofwatch.cli.files import Origin, recorded_on, window_of
from roofwatch.model.answer_rows import sums_of
from roofwatch.model.padding import PaddingSum, of_batches
from roofwatch.model.padding_report import report
from roofwatch.model.padding_schemes import Seen
from roofwatch.model.padding_split import Batches
from roofwatch.model.padding_time import device_time

TOLERANCE = 0.10
WIDTH, HEADS, LAYERS, BATCH, LONGEST = 256, 4, 4, 16, 384


class Layer(nn.Module):
    """Attention and a feed-forward net, before each a normalisation. Tokens of any shape, attention as it is told."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.three, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: torch.Tensor, attend: Callable[[torch.Tensor], torch.Tensor]) -> torch.Tensor:
        """(…, WIDTH) → the same."""
        x = x + self.out(attend(self.three(self.first(x))))
        return x + self.down(functional.gelu(self.up(self.second(x))))


def attention(qkv: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
    """(B, L, 3·WIDTH) → (B, L, WIDTH)."""
    q, k, v = qkv.unflatten(-1, (3, HEADS, WIDTH // HEADS)).permute(2, 0, 3, 1, 4)
    return functional.scaled_dot_product_attention(q, k, v, mask).transpose(1, 2).flatten(2)


def padded(layers: Sequence[Layer], lengths: Sequence[int], width: int) -> Callable[[], None]:
    """A batch padded to ``width``."""
    x = torch.randn(len(lengths), width, WIDTH)
    mask = (torch.arange(width)[None] < torch.tensor(lengths)[:, None])[:, None, None]

    def run() -> None:
        y = x
        for layer in layers:
            y = layer(y, lambda qkv: attention(qkv, mask))

    return run


def packed(layers: Sequence[Layer], lengths: Sequence[int]) -> Callable[[], None]:
    """The same sequences one after another."""
    x = torch.randn(sum(lengths), WIDTH)

    def attend(qkv: torch.Tensor) -> torch.Tensor:
        return torch.cat([attention(part[None])[0] for part in qkv.split(list(lengths))])

    def run() -> None:
        y = x
        for layer in layers:
            y = layer(y, attend)

    return run


def split(layers: Sequence[Layer], lengths: Sequence[int], bounds: Sequence[int]) -> Callable[[], None]:
    """Each bucket of the batch as a batch of its own."""
    inside = [[n for n in lengths if low < n <= high] for low, high in zip((0, *bounds), bounds, strict=False)]
    runs = [padded(layers, part, bound) for part, bound in zip(inside, bounds, strict=True) if part]
    return lambda: [run() for run in runs] and None


def foretold(run: Callable[[], None], lengths: Sequence[int]) -> dict[str, object]:
    """The answer of ``roofwatch padding`` about a recording of the padded batch."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "trace.json"
        with torch.profiler.profile(record_shapes=True) as recorded:
            for _ in range(3):
                run()
        recorded.export_chrome_trace(str(file))
        window, problem = window_of(file, Origin(cpu=recorded_on(here=True, threads=1)))
    assert problem is None
    told = PaddingSum()
    told.add(of_batches([lengths]))
    return report(Seen(told, device_time(sums_of(window), Batches(told.shapes))))


def measured(runs: dict[str, Callable[[], None]], rounds: int) -> dict[str, float]:
    """The least CPU time of each, in turns, so that a busy machine is busy for all of them."""
    least = dict.fromkeys(runs, float("inf"))
    for _ in range(rounds):
        for name, run in runs.items():
            begin = time.process_time()
            run()
            least[name] = min(least[name], time.process_time() - begin)
    return least


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=12)
    given = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    rng = random.Random(0)
    lengths = sorted(min(LONGEST, max(8, int(rng.lognormvariate(4.5, 0.8)))) for _ in range(BATCH - 1))
    lengths.append(LONGEST)
    with torch.inference_mode():
        layers = [Layer().eval() for _ in range(LAYERS)]
        run = padded(layers, lengths, LONGEST)
        run()
        answer = foretold(run, lengths)
        rows = {row["buckets"] or row["scheme"]: row for row in answer["rows"]}  # type: ignore[attr-defined]
        runs = {"static": run, "padding_free": packed(layers, lengths)}
        runs |= {k: split(layers, lengths, rows[k]["boundaries"]) for k in (2, 4)}
        took = measured(runs, given.rounds)
    print(json.dumps({"split": answer["split"], "utilisation": answer["utilisation"]}), file=sys.stderr)
    for name in (2, 4, "padding_free"):
        real, told = 1 - took[name] / took["static"], rows[name]["saved_share"]
        label = "padding-free" if name == "padding_free" else f"{name} buckets, split"
        print(json.dumps({
            "name": f"padding: share of the time that {label} saves, foretold {told:.3f}", "value": round(real, 3),
            "unit": "", "limit": f"± {TOLERANCE:.2f}", "ok": abs(real - told) <= TOLERANCE,
        }))  # fmt: skip


if __name__ == "__main__":
    main()
