"""The transformer of ``bench/padding.py``, and the three ways in which it takes a batch of sequences."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import nn
from torch.nn import functional

WIDTH, HEADS = 256, 4


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

    def run() -> None:
        for one in runs:
            one()

    return run
