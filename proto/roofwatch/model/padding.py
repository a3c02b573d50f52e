"""How much of a job's batches is padding: real and padded lengths over windows, and the two utilisations.

Of B sequences of lengths L padded to Lmax the work that scales with tokens is used to ΣL ÷ (B·Lmax), that of attention,
which scales with their squares, to ΣL² ÷ (B·Lmax²).
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from roofwatch.model.answer import ratio
from roofwatch.model.record import Padding


@dataclass(slots=True)
class PaddingSum:
    """Padding over windows; each weighs as much as the time that it stands for. ``seen`` and the counts do not."""

    windows: int = 0  # that told lengths
    seen: int = 0  # batches
    sequences_seen: int = 0
    coarsened: int = 0
    unread: int = 0
    batches: float = 0.0
    real_tokens: float = 0.0
    padded_tokens: float = 0.0
    real_squared: float = 0.0
    padded_squared: float = 0.0
    lengths: defaultdict[int, float] = field(default_factory=lambda: defaultdict(float))  # weighted sequences
    shapes: Counter[tuple[int, int]] = field(default_factory=Counter)  # (sequences, padded length) → batches

    def add(self, p: Padding, weight: float = 1.0) -> None:
        """Count one window."""
        self.windows += p.batches > 0
        self.seen += p.batches
        self.coarsened += p.coarsened
        self.unread += p.unread
        self.batches += p.batches * weight
        self.real_tokens += p.real_tokens * weight
        self.padded_tokens += p.padded_tokens * weight
        self.real_squared += p.real_squared * weight
        self.padded_squared += p.padded_squared * weight
        for length, count in p.lengths:
            self.sequences_seen += count
            self.lengths[length] += count * weight
        for sequences, length, batches in p.shapes:
            self.shapes[sequences, length] += batches

    @property
    def linear(self) -> float | None:
        """The share of the tokens that is real."""
        return ratio(self.real_tokens, self.padded_tokens)

    @property
    def quadratic(self) -> float | None:
        """The share of the squares that is real."""
        return ratio(self.real_squared, self.padded_squared)

    @property
    def sequences(self) -> float:
        """Weighted sequences whose length is known."""
        return float(sum(self.lengths.values()))

    def ranked(self) -> list[tuple[int, float]]:
        """Lengths with their weighted counts, ascending."""
        return sorted(self.lengths.items())

    def as_json(self) -> dict[str, Any]:
        """What the lengths are like: null where none is known."""
        ranked, whole = self.ranked(), self.sequences
        mean = sum(length * n for length, n in ranked) / whole if whole else None
        spread = (
            None if mean is None else math.sqrt(max(0.0, sum(n * (length - mean) ** 2 for length, n in ranked) / whole))
        )
        return {
            "windows": self.windows,
            "batches": self.seen,
            "sequences": self.sequences_seen,
            "unread": self.unread,
            "coarsened": self.coarsened,
            "distinct": len(ranked),
            "shortest": ranked[0][0] if ranked else None,
            "p50": quantile(ranked, 0.5),
            "p95": quantile(ranked, 0.95),
            "longest": ranked[-1][0] if ranked else None,
            "mean": mean,
            "variation": None if spread is None or not mean else spread / mean,
            "sequences_per_batch": ratio(whole, self.batches),
            "padded_length": ratio(self.padded_tokens, whole),
        }


def quantile(ranked: Sequence[tuple[int, float]], q: float) -> int | None:
    """The least length that at least the share ``q`` of the sequences does not exceed."""
    whole, passed = sum(n for _, n in ranked), 0.0
    for length, count in ranked:
        passed += count
        if passed >= q * whole:
            return length
    return ranked[-1][0] if ranked else None


def of_batches(batches: Iterable[Sequence[int]], padded_to: int | None = None) -> Padding:
    """The record of batches whose lengths are given, each padded to its longest or to ``padded_to``.

    A sequence that is longer than that counts as cut to it.
    """
    sums = [0] * 5
    lengths: Counter[int] = Counter()
    shapes: Counter[tuple[int, int]] = Counter()
    for told in batches:
        longest = max(told, default=0) if padded_to is None else padded_to
        real, rows = [min(length, longest) for length in told], len(told)
        if not rows:
            continue
        squares = sum(length * length for length in real)
        found = (1, sum(real), rows * longest, squares, rows * longest * longest)
        sums = [a + b for a, b in zip(sums, found, strict=True)]
        lengths.update(real)
        shapes[rows, longest] += 1
    batches_seen, real_tokens, padded, real_squared, padded_squared = sums
    return Padding(
        batches_seen,
        real_tokens,
        padded,
        real_squared,
        padded_squared,
        tuple(sorted(lengths.items())),
        tuple((rows, longest, count) for (rows, longest), count in sorted(shapes.items())),
    )
