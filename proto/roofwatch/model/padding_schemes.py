"""What other ways to batch would take: static padding, buckets with the best boundaries, and no padding at all.

Two ways to fill buckets are told. *Split*: each batch falls into its buckets, so that a bucket is a smaller batch. With
a share p of the sequences a bucket of a batch of B is empty with (1 - p)^B, and holds B·p ÷ (1 - (1 - p)^B) sequences
else; the kernels of so small a batch take what ``padding_time`` says (the batch-size cost). *Sorted*: sequences wait
until B of one bucket are there, so that no batch is smaller, but their order is no longer the input's.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from roofwatch.model.answer import ratio
from roofwatch.model.padding import PaddingSum
from roofwatch.model.padding_buckets import boundaries
from roofwatch.model.padding_split import Scaling
from roofwatch.model.padding_time import DeviceTime

STATIC, BUCKETS, PADDING_FREE = "static", "buckets", "padding_free"
COUNTS = (2, 4, 8, 16)
ROW_KEYS = (
    "scheme", "buckets", "boundaries", "linear_utilisation", "quadratic_utilisation", "saved_share",
    "saved_device_hours_per_day", "sorted_saved_share", "sorted_saved_device_hours_per_day",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Seen:
    """What predictions rest on: the lengths, the device time, and device-hours a day, where these are known."""

    padding: PaddingSum
    time: DeviceTime | None = None
    device_hours_per_day: float | None = None

    @property
    def timed(self) -> bool:
        """Whether savings of device time can be told."""
        return self.time is not None and self.time.fits

    def saved_share(self, taken_ns: float) -> float | None:
        """The share of the device time that is saved where linear and quadratic kernels take ``taken_ns``."""
        return None if self.time is None else ratio(self.time.scaling_ns - taken_ns, self.time.total_ns)

    def hours(self, share: float | None) -> float | None:
        """Device-hours a day of a share."""
        return None if share is None or self.device_hours_per_day is None else share * self.device_hours_per_day


def rows(seen: Seen) -> list[dict[str, Any]]:
    """A row a scheme: as it is, buckets, padding-free. Savings are null where no kernels tell the device time."""
    padding = seen.padding
    found = [_row(seen, STATIC, padding.linear, padding.quadratic, 0.0 if seen.timed else None)]
    if padding.lengths and padding.padded_tokens > 0:
        found += list(_bucket_rows(seen))
    free = None
    if seen.timed and seen.time is not None and padding.linear is not None and padding.quadratic is not None:
        free = seen.saved_share(seen.time.shrunk(padding.linear, padding.quadratic))
    return [*found, _row(seen, PADDING_FREE, 1.0, 1.0, free)]


def _bucket_rows(seen: Seen) -> Iterator[dict[str, Any]]:
    ranked = seen.padding.ranked()
    best = boundaries(ranked, _cost(seen), COUNTS[-1])
    for count in COUNTS:
        if count > len(best):  # more buckets than lengths are as many as there are lengths
            if count == COUNTS[0] or count // 2 < len(best):
                yield _buckets(seen, len(best), best[-1], ranked)
            return
        yield _buckets(seen, count, best[count - 1], ranked)


def _cost(seen: Seen) -> Any:
    """What a sequence padded to a length costs: its share of the measured times, or its tokens where there are none."""
    padding, time = seen.padding, seen.time
    if time is None or not time.fits:
        return lambda length: length
    linear = time.by[Scaling.LINEAR] / padding.padded_tokens
    quadratic = time.by[Scaling.QUADRATIC] / padding.padded_squared
    return lambda length: linear * length + quadratic * length * length


@dataclass(frozen=True, slots=True)
class _Bucket:
    boundary: int
    share: float  # of the sequences


def _filled(ranked: Sequence[tuple[int, float]], bounds: Sequence[int]) -> list[_Bucket]:
    whole, at, counts = sum(n for _, n in ranked), 0, [0.0] * len(bounds)
    for length, count in ranked:
        while length > bounds[at]:
            at += 1
        counts[at] += count
    return [_Bucket(bound, n / whole) for bound, n in zip(bounds, counts, strict=True)]


def _used(ranked: Sequence[tuple[int, float]], bounds: Sequence[int], power: int) -> float | None:
    """Real ÷ padded lengths to that power; summed alike, so that lengths that are boundaries give 1 exactly."""
    real = padded = 0.0
    at = 0
    for length, count in ranked:
        while length > bounds[at]:
            at += 1
        real += count * length**power
        padded += count * bounds[at] ** power
    return ratio(real, padded)


def _buckets(seen: Seen, count: int, bounds: tuple[int, ...], ranked: Sequence[tuple[int, float]]) -> dict[str, Any]:
    filled = _filled(ranked, bounds)
    linear, quadratic = (_used(ranked, bounds, power) for power in (1, 2))
    split = seen.saved_share(_split_ns(seen, filled)) if seen.timed else None
    ordered = seen.saved_share(_sorted_ns(seen, filled)) if seen.timed else None
    row = _row(seen, BUCKETS, linear, quadratic, split, ordered)
    return {**row, "buckets": count, "boundaries": list(bounds)}


def _split_ns(seen: Seen, filled: Sequence[_Bucket]) -> float:
    """Device time where each batch is split: a bucket is a batch of its own, if a sequence falls into it."""
    padding, time = seen.padding, seen.time
    if time is None:
        return 0.0
    size = padding.sequences / padding.batches
    tokens, squares = padding.padded_tokens / padding.batches, padding.padded_squared / padding.batches
    whole = 0.0
    for bucket in filled:
        present = 1.0 - (1.0 - bucket.share) ** size
        if present > 0:
            rows = size * bucket.share / present
            whole += present * time.shrunk(rows * bucket.boundary / tokens, rows * bucket.boundary**2 / squares)
    return whole


def _sorted_ns(seen: Seen, filled: Sequence[_Bucket]) -> float:
    """Device time where batches are as large as now, each of one bucket."""
    padding, time = seen.padding, seen.time
    if time is None:
        return 0.0
    length, square = padding.padded_tokens / padding.sequences, padding.padded_squared / padding.sequences
    return sum(b.share * time.shrunk(b.boundary / length, b.boundary**2 / square) for b in filled)


def _row(
    seen: Seen,
    scheme: str,
    linear: float | None,
    quadratic: float | None,
    saved: float | None,
    ordered: float | None = None,
) -> dict[str, Any]:
    return {
        "scheme": scheme,
        "buckets": None,
        "boundaries": None,
        "linear_utilisation": linear,
        "quadratic_utilisation": quadratic,
        "saved_share": saved,
        "saved_device_hours_per_day": seen.hours(saved),
        "sorted_saved_share": ordered,
        "sorted_saved_device_hours_per_day": seen.hours(ordered),
    }
