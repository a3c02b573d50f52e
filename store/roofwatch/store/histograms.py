"""Histograms as short bytes.

Two bytes for the lowest bucket (little-endian), then the counts as LEB128 varints, a run of zero counts as 0 and its
length. An empty histogram is no bytes. A whole column of histograms is encoded at once, because one by one would cost
more than all else of ingest.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from roofwatch.model.histogram import Histogram

BUCKETS = 1200  # γ^1200 ns is more than the universe's age; also a guard against hostile lengths


def encode_column(
    lows: Sequence[int], lengths: Sequence[int], counts: Sequence[int] | npt.NDArray[np.uint64]
) -> list[bytes]:
    """Blobs of histograms whose counts lie one after the other in ``counts``; ``lengths`` says how many each has.

    The caller has checked that the lengths add up and that lows and lengths stay below BUCKETS.
    """
    values = np.asarray(counts, dtype=np.uint64)
    ends = np.cumsum(np.array(lengths, dtype=np.int64))
    starts = ends - np.array(lengths, dtype=np.int64)
    first = np.zeros(len(values) + 1, dtype=bool)
    first[starts] = True
    zero = values == 0
    run = zero & (first[:-1] | ~np.concatenate(([False], zero[:-1])))
    kept = np.flatnonzero(~zero | run)  # every count that is not zero, and the first of each run of zeros
    is_run = zero[kept]
    token_count = np.where(is_run, 2, 1)
    tokens = np.repeat(values[kept], token_count)
    token_ends = np.cumsum(token_count)
    run_lengths = np.diff(np.append(kept, len(values)))
    tokens[token_ends[is_run] - 1] = run_lengths[is_run].astype(np.uint64)
    body, byte_ends = _varints(tokens)
    token_ends = np.concatenate(([0], token_ends))
    byte_ends = np.concatenate(([0], byte_ends))
    begin = byte_ends[token_ends[np.searchsorted(kept, starts)]].tolist()
    end = byte_ends[token_ends[np.searchsorted(kept, ends)]].tolist()
    prefix = np.array(lows, dtype="<u2").tobytes()
    return [
        prefix[2 * i : 2 * i + 2] + body[a:b] if length else b""
        for i, (a, b, length) in enumerate(zip(begin, end, lengths, strict=True))
    ]


def _varints(tokens: npt.NDArray[np.uint64]) -> tuple[bytes, npt.NDArray[np.int64]]:
    """LEB128 of each token, and where each ends."""
    if not len(tokens) or int(tokens.max()) < 128:
        return tokens.astype(np.uint8).tobytes(), np.arange(1, len(tokens) + 1, dtype=np.int64)
    sizes = np.ones(len(tokens), dtype=np.int64)
    for group in range(1, 10):
        sizes += tokens >= np.uint64(1 << (7 * group))
    ends = np.cumsum(sizes)
    out = np.zeros(int(ends[-1]), dtype=np.uint8)
    for group in range(int(sizes.max())):
        mask = sizes > group
        part = (tokens[mask] >> np.uint64(7 * group)) & np.uint64(0x7F)
        more = np.where(sizes[mask] > group + 1, 0x80, 0).astype(np.uint8)
        out[ends[mask] - sizes[mask] + group] = part.astype(np.uint8) | more
    return out.tobytes(), ends


def add_to(buckets: dict[int, int], blob: bytes) -> None:
    """Add a stored histogram to bucket → count."""
    if not blob:
        return
    bucket = blob[0] | blob[1] << 8
    value = shift = 0
    run = False
    for byte in blob[2:]:
        value |= (byte & 0x7F) << shift
        if byte & 0x80:
            shift += 7
            continue
        if run:
            bucket += value
            run = False
        elif value:
            buckets[bucket] = buckets.get(bucket, 0) + value
            bucket += 1
        else:
            run = True
        value = shift = 0


def decode(blob: bytes) -> Histogram:
    """One stored histogram, without the zero counts at its ends."""
    buckets: dict[int, int] = {}
    add_to(buckets, blob)
    return Histogram.from_buckets(buckets)
