"""Histograms as the engine has them, sparse (each bucket with its count), and as numpy has them, dense."""

from __future__ import annotations

from typing import Any

import numpy as np
from sqlalchemy import ColumnElement, func

from roofwatch.store.clickhouse.native import Arrays
from roofwatch.store.histograms import Histograms

SPREAD = ("histogram_buckets", "histogram_counts")


def spread(c: Any) -> list[ColumnElement[Any]]:
    """Buckets and counts, added up by bucket."""
    merged = func.sumMap(c.histogram_buckets, c.histogram_counts)
    return [func.tupleElement(merged, i).label(name) for i, name in enumerate(SPREAD, 1)]


def dense(buckets: Arrays, counts: Arrays) -> Histograms:
    """Histograms of rows that name their buckets, ascending, each with its count."""
    sizes = np.diff(buckets.ends, prepend=0)
    filled = sizes > 0
    at = buckets.values.astype(np.int64)
    lows, lengths = np.zeros(len(sizes), np.int64), np.zeros(len(sizes), np.int64)
    first, last = (buckets.ends - sizes)[filled], buckets.ends[filled] - 1
    lows[filled] = at[first]
    lengths[filled] = at[last] - at[first] + 1
    row = np.repeat(np.arange(len(sizes)), sizes)
    values = np.zeros(int(lengths.sum()), np.int64)
    values[(np.cumsum(lengths) - lengths)[row] + at - lows[row]] = counts.values.astype(np.int64)
    return Histograms(lows, lengths, values)


def sparse(told: Histograms) -> tuple[Arrays, Arrays]:
    """The other way round."""
    at, all_ends = np.flatnonzero(told.counts), np.cumsum(told.lengths)
    ends = np.searchsorted(at, all_ends)
    # Buckets are below 2¹⁶ and so is what is added up for them, whatever overflows on the way.
    first = (told.lows - (all_ends - told.lengths)).astype(np.uint16)
    buckets = at.astype(np.uint16) + np.repeat(first, np.diff(ends, prepend=0))
    return Arrays(ends, buckets), Arrays(ends, told.counts[at])
