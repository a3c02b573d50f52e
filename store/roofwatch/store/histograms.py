"""Many histograms as three vectors, and as a block (``blocks.py``); merging them is exact, in any order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from roofwatch.model.histogram import Histogram
from roofwatch.store.blocks import Bools, Ints, pack_all, planes_of, unpack, whole

BUCKETS = 1200  # γ^1200 ns is more than the universe's age; also a guard against hostile lengths


@dataclass(frozen=True, slots=True)
class Histograms:
    """One histogram a row: its lowest bucket, how many counts it has, and all counts one after the other."""

    lows: Ints
    lengths: Ints
    counts: Ints

    def __len__(self) -> int:
        return len(self.lows)

    def pack(self) -> bytes:
        """As a block; how many rows it has is told beside it."""
        return pack_all((self.lows, self.lengths, self.counts))

    @staticmethod
    def unpack(block: bytes, rows: int) -> Histograms:
        """Of a block of so many rows."""
        values = unpack(block, 1)[0]
        return Histograms(values[:rows], values[rows : 2 * rows], values[2 * rows :])

    @staticmethod
    def unpack_of(block: bytes, kept: Bools) -> Histograms:
        """Of a block only the rows that are kept."""
        planes, rows = planes_of(block), len(kept)
        lengths = whole(planes[:, rows : 2 * rows])
        counts = whole(planes[:, 2 * rows :][:, np.repeat(kept, lengths)])
        return Histograms(whole(planes[:, :rows][:, kept]), lengths[kept], counts)

    @staticmethod
    def joined(parts: Sequence[Histograms]) -> Histograms:
        """Rows of all parts, one after the other."""
        nothing = np.zeros(0, np.int64)
        if not parts:
            return Histograms(nothing, nothing, nothing)
        return Histograms(
            np.concatenate([p.lows for p in parts]),
            np.concatenate([p.lengths for p in parts]),
            np.concatenate([p.counts for p in parts]),
        )

    def where(self, kept: npt.NDArray[np.bool_]) -> Histograms:
        """Some of the rows."""
        return Histograms(self.lows[kept], self.lengths[kept], self.counts[np.repeat(kept, self.lengths)])

    def cells(self) -> tuple[Ints, Ints, Ints]:
        """Row, bucket and count of every count that is not zero."""
        rows = np.repeat(np.arange(len(self)), self.lengths)
        begins = np.repeat(np.cumsum(self.lengths) - self.lengths, self.lengths)
        buckets = self.lows[rows] + np.arange(len(self.counts)) - begins
        kept = self.counts != 0
        return rows[kept], buckets[kept], self.counts[kept]

    def merged(self, group: Ints, groups: int) -> Histograms:
        """One histogram a group: ``group`` says of each row which; a row of group -1 is left out."""
        rows, buckets, counts = self.cells()
        wanted = group[rows] >= 0
        keys = group[rows[wanted]] * (2 * BUCKETS) + buckets[wanted]
        order = np.argsort(keys, kind="stable")
        keys, counts = keys[order], counts[wanted][order]
        lows, lengths = np.zeros(groups, np.int64), np.zeros(groups, np.int64)
        if not len(keys):
            return Histograms(lows, lengths, counts)
        begins = np.flatnonzero(np.diff(keys, prepend=-1))
        sums = np.add.reduceat(counts, begins)
        of, bucket = np.divmod(keys[begins], 2 * BUCKETS)
        first = np.flatnonzero(np.diff(of, prepend=-1))
        last = np.append(first[1:], len(of)) - 1
        lows[of[first]] = bucket[first]
        lengths[of[first]] = bucket[last] - bucket[first] + 1
        filled = np.zeros(int(lengths.sum()), np.int64)
        filled[(np.cumsum(lengths) - lengths)[of] + bucket - lows[of]] = sums
        return Histograms(lows, lengths, filled)

    def each(self) -> list[Histogram]:
        """The histograms as records."""
        ends = np.cumsum(self.lengths).tolist()
        return [
            Histogram(low, tuple(self.counts[end - length : end].tolist())) if length else Histogram()
            for low, length, end in zip(self.lows.tolist(), self.lengths.tolist(), ends, strict=True)
        ]
