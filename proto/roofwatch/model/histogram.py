"""Log-bucket histograms of durations: bucket b holds values in (γ^(b-1), γ^b] nanoseconds, γ = 1.04.

The relative error of a percentile is at most (γ - 1) / (γ + 1) ≈ 2 % (the bucket's middle is reported).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

GAMMA = 1.04
_LOG_GAMMA = math.log(GAMMA)


def bucket_of(value_ns: int) -> int:
    """The bucket of a duration in nanoseconds; everything up to 1 ns, zero included, is bucket 0."""
    if value_ns <= 1:
        return 0
    return math.ceil(math.log(value_ns) / _LOG_GAMMA - 1e-9)


def middle_of(bucket: int) -> float:
    """The value in nanoseconds that stands for a bucket: 2 γ^b / (γ + 1), relative error equal on both sides."""
    if bucket <= 0:
        return 1.0
    return float(2.0 * GAMMA**bucket / (GAMMA + 1.0))


@dataclass(frozen=True, slots=True)
class Histogram:
    """Counts of consecutive buckets; ``counts[i]`` belongs to bucket ``low + i``."""

    low: int = 0
    counts: tuple[int, ...] = ()

    @staticmethod
    def from_buckets(buckets: Mapping[int, int]) -> Histogram:
        """Build from bucket → count."""
        kept = {b: n for b, n in buckets.items() if n}
        if not kept:
            return Histogram()
        low, high = min(kept), max(kept)
        return Histogram(low, tuple(kept.get(b, 0) for b in range(low, high + 1)))

    @staticmethod
    def from_values(values_ns: Iterable[int]) -> Histogram:
        """Build from durations in nanoseconds."""
        buckets: dict[int, int] = {}
        for value in values_ns:
            b = bucket_of(value)
            buckets[b] = buckets.get(b, 0) + 1
        return Histogram.from_buckets(buckets)

    @staticmethod
    def merged(parts: Iterable[Histogram]) -> Histogram:
        """The sum of several histograms."""
        buckets: dict[int, int] = {}
        for part in parts:
            for i, n in enumerate(part.counts):
                if n:
                    buckets[part.low + i] = buckets.get(part.low + i, 0) + n
        return Histogram.from_buckets(buckets)

    @property
    def total(self) -> int:
        """How many values were counted."""
        return sum(self.counts)

    def beyond(self, factor: float) -> float:
        """The share of all time that calls of ``factor`` medians and more took longer than the median; 0 when empty."""
        median = self.percentile(0.5)
        if median is None:
            return 0.0
        middles = [(middle_of(self.low + i), n) for i, n in enumerate(self.counts) if n]
        whole = math.fsum(middle * n for middle, n in middles)
        return math.fsum((middle - median) * n for middle, n in middles if middle >= factor * median) / whole

    def percentile(self, q: float) -> float | None:
        """The value in nanoseconds at quantile ``q`` in [0, 1]; None when empty."""
        total = self.total
        if not total:
            return None
        rank = max(1, math.ceil(q * total))
        seen = 0
        for i, n in enumerate(self.counts):
            seen += n
            if seen >= rank:
                return middle_of(self.low + i)
        return middle_of(self.low + len(self.counts) - 1)
