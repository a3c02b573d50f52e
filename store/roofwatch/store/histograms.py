"""Many histograms as three vectors, and as a block (``blocks.py``); merging them is exact, in any order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from roofwatch.model.histogram import Histogram
from roofwatch.store.blocks import Bools, Ints, Planes, Trimmed, compressed, decompressed, of_older, parted, telling

BUCKETS = 1200  # γ^1200 ns is more than the universe's age; also a guard against hostile lengths


NIBBLES = b"\x02"  # what a block begins with
DENSE = 1 << 16  # counts that are added in their places whatever there is to add; more where there are as many to add
ESCAPE = 15  # in the place of a count that is as large or larger


@dataclass(frozen=True, slots=True)
class Histograms:
    """One histogram a row: its lowest bucket, how many counts it has, and all counts one after the other.

    As a block counts below 15 take half a byte, the others follow; blocks before schema 0011 are those of one vector.
    """

    lows: Ints
    lengths: Ints
    counts: Ints

    def __len__(self) -> int:
        return len(self.lows)

    def pack(self) -> bytes:
        """As a block; how many rows it has is told beside it."""
        return self.pack_parts((0, len(self)))[0]

    def pack_parts(self, ends: Sequence[int]) -> list[bytes]:
        """The rows between each two of ``ends`` as blocks: much cheaper than one by one."""
        of = Trimmed.of(np.stack((self.lows, self.lengths)))
        cells = np.concatenate((np.zeros(1, np.int64), np.cumsum(self.lengths)))[list(ends)].tolist()
        halves = np.minimum(self.counts, ESCAPE).astype(np.uint8)
        escapes = bool((halves == ESCAPE).any())
        blocks = []
        for (since, until), (first, end) in zip(pairwise(ends), pairwise(cells), strict=True):
            raw = of.some(since, until) + _nibbles(halves[first:end])
            if escapes:
                raw += _escaped(self.counts[first:end])
            blocks.append(NIBBLES + compressed(raw))
        return blocks

    @staticmethod
    def unpack(block: bytes, rows: int) -> Histograms:
        """Of a block of so many rows.

        Raises:
            RoofwatchError: the block is damaged.
        """
        with telling():
            if not block.startswith(NIBBLES):
                values = of_older(block, 1)[0]
                return Histograms(values[:rows], values[rows : 2 * rows], values[2 * rows :])
            of, rest = parted(decompressed(memoryview(block)[1:]), 2)
            lows, lengths = of.whole()
            return Histograms(lows, lengths, _counts(rest, int(lengths.sum())))

    @staticmethod
    def unpack_of(block: bytes, kept: Bools) -> Histograms:
        """Of a block only the rows that are kept."""
        return Histograms.unpack(block, len(kept)).where(kept)

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
        lows, lengths = np.zeros(groups, np.int64), np.zeros(groups, np.int64)
        of, bucket, sums = _added(group[rows[wanted]], buckets[wanted], counts[wanted], groups)
        if not len(of):
            return Histograms(lows, lengths, sums)
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


def _added(group: Ints, buckets: Ints, counts: Ints, groups: int) -> tuple[Ints, Ints, Ints]:
    """Group, bucket and sum of every bucket of a group that has counts, ascending."""
    least, most = int(buckets.min(initial=BUCKETS)), int(buckets.max(initial=0))
    width = max(0, most - least + 1)
    keys = group * width + buckets - least
    if groups * width <= max(DENSE, len(keys)):  # a place for each there may be: to sort takes ten times as long
        places = np.zeros(groups * width, np.int64)
        np.add.at(places, keys, counts)
        found = np.flatnonzero(places)
        sums: Ints = places[found]
    else:
        order = np.argsort(keys, kind="stable")
        keys = keys[order]
        begins = np.flatnonzero(np.diff(keys, prepend=-1))
        found, sums = keys[begins], np.add.reduceat(counts[order], begins)
    of, bucket = np.divmod(found, max(1, width))
    return of, bucket + least, sums


def _nibbles(halves: Planes) -> bytes:
    """Two to a byte, the first in its low bits."""
    if len(halves) % 2:
        halves = np.append(halves, np.uint8(0))
    pairs = halves.view("<u2")
    packed: bytes = (pairs | pairs >> 4).astype(np.uint8).tobytes()
    return packed


def _escaped(counts: Ints) -> bytes:
    large = counts[counts >= ESCAPE]
    return Trimmed.of(large[None]).some(0, len(large)) if len(large) else b""


def _counts(raw: bytes, cells: int) -> Ints:
    """The counts of a block, from where they begin."""
    octets = np.frombuffer(raw, np.uint8, (cells + 1) // 2)
    pairs = octets.astype("<u2")
    halves = ((pairs | pairs << 4) & 0x0F0F).view(np.uint8)[:cells]
    counts: Ints = halves.astype(np.int64)
    at = np.flatnonzero(halves == ESCAPE)
    if len(at) or len(raw) > len(octets):
        large, rest = parted(raw[len(octets) :], 1)
        if rest or len(at) != large.planes.shape[1]:
            raise ValueError("more counts than there are places for, or fewer")
        counts[at] = large.whole()[0]
    return counts
