"""Rows of kernels as sums: from windows' blocks, and of sums again. Whole numbers, so the order does not matter."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from roofwatch.store.blocks import FACT, SUM, Ints, joined
from roofwatch.store.histograms import Histograms

_F = {name: i for i, name in enumerate(FACT)}
COLUMN = {name: i for i, name in enumerate(SUM)}
KEYS = 4  # the first columns of SUM are what tells rows apart…
LOW, HIGH = COLUMN["min_ns"], COLUMN["max_ns"]  # …the last two are extremes, those between add up
EST = COLUMN["est_ns"]
_MIX = 0x1E3779B97F4A7C15  # odd, with ones and zeros all over
MOST = float(1 << 53)  # ns that one row may stand for: longer is no time, and a sum of 500 of them is still one


@dataclass(frozen=True, slots=True)
class Sums:
    """Rows: ``columns`` of shape (SUM, rows), the number of each row's device, and a histogram each, if asked for.

    ``est_ns`` is total × weight in whole nanoseconds (``estimated``), so that its sums are exact up to 2⁵³ ns, a
    hundred days of one kernel without pause, and in any order.
    """

    columns: Ints
    device: Ints
    histograms: Histograms | None = None

    def __len__(self) -> int:
        return int(self.columns.shape[1])

    def reduced(self) -> Sums:
        """One row a device and key; these rows themselves where they are that already, so neither is to be changed."""
        if not len(self):
            return self
        code = _code(self.columns, self.device)
        if _is_in_order(self.columns, code):
            return self
        order, begins = _groups(self.columns[0], code)
        ordered = np.take(self.columns, order, axis=1)
        result = np.empty((len(SUM), len(begins)), np.int64)
        result[:KEYS] = ordered[:KEYS, begins]
        result[KEYS:LOW] = np.add.reduceat(ordered[KEYS:LOW], begins, axis=1)
        summed = np.add.reduceat(ordered[EST].astype(np.float64), begins)
        result[EST] = np.minimum(summed, 2.0**62)
        result[LOW] = np.minimum.reduceat(ordered[LOW], begins)
        result[HIGH] = np.maximum.reduceat(ordered[HIGH], begins)
        places = np.lexsort((code[order[begins]], result[0]))  # rows are in one order, wherever they come from
        merged = None
        if self.histograms is not None:
            number = np.empty(len(begins), np.int64)
            number[places] = np.arange(len(begins))
            group = np.empty(len(self), np.int64)
            group[order] = np.repeat(number, np.diff(np.append(begins, len(self))))
            merged = self.histograms.merged(group, len(begins))
        return Sums(result[:, places], self.device[order[begins]][places], merged)

    def whole(self) -> Sums:
        """As if all were of one kernel: no number of it means anything any more, but histograms do."""
        columns = self.columns.copy()
        columns[:KEYS] = 0
        return Sums(columns, self.device, self.histograms)

    def where(self, kept: npt.NDArray[np.bool_]) -> Sums:
        """Some of the rows."""
        if kept.all():
            return self
        told = None if self.histograms is None else self.histograms.where(kept)
        return Sums(self.columns[:, kept], self.device[kept], told)

    @staticmethod
    def joined(parts: Sequence[Sums]) -> Sums:
        """Rows of all parts, one after the other."""
        told = [p.histograms for p in parts if p.histograms is not None]
        return Sums(
            joined([p.columns for p in parts], len(SUM)),
            np.concatenate([p.device for p in parts]) if parts else np.zeros(0, np.int64),
            Histograms.joined(told) if len(told) == len(parts) else None,
        )


def _code(columns: Ints, device: Ints) -> Ints:
    """Of each row what besides the signature tells it apart."""
    code: Ints = ((device * 16 + columns[1]) * 16 + columns[2]) * 16 + columns[3] + 1
    return code


def _is_in_order(columns: Ints, code: Ints) -> bool:
    """Whether the rows are those of a reduction already; where more is estimated, numbers are still to be rounded."""
    apart = np.diff(columns[0])
    if not ((apart > 0) | ((apart == 0) & (np.diff(code) > 0))).all():
        return False
    return int(columns[EST].max()) <= MOST  # numpy would compare floats, of which MOST + 1 is MOST


def _groups(signature: Ints, code: Ints) -> tuple[Ints, Ints]:
    """An order that brings rows of one group together, and where each group begins in it.

    By a hash of both, for to sort one number is six times as fast; where two groups have one hash, by both.
    """
    mixed = signature ^ (code * _MIX)
    order: Ints = np.argsort(mixed)
    hashes, first = mixed[order], np.ones(len(order), dtype=bool)
    first[1:] = (np.diff(signature[order]) != 0) | (np.diff(code[order]) != 0)
    if (first[1:] & (np.diff(hashes) == 0)).any():
        order = np.lexsort((code, signature))
        first[1:] = (np.diff(signature[order]) != 0) | (np.diff(code[order]) != 0)
    return order, np.flatnonzero(first)


def estimated(ns: Ints, weight: npt.NDArray[np.float64]) -> Ints:
    """What sampled nanoseconds stand for, in whole ones, halves up: as ``model.answer.estimated`` and the queries."""
    return np.minimum(np.floor(ns * weight + 0.5), MOST).astype(np.int64)


def of_windows(
    facts: Ints, device: Ints, weight: npt.NDArray[np.float64], steps: Ints, histograms: Histograms | None = None
) -> Sums:
    """Rows of windows' blocks: of each the number of its device, its weight, and its window's steps."""
    columns = np.empty((len(SUM), facts.shape[1]), np.int64)
    for name, i in COLUMN.items():
        if name in _F:
            columns[i] = facts[_F[name]]
    columns[EST] = estimated(facts[_F["total_ns"]], weight)
    columns[COLUMN["stepping_calls"]] = np.where(steps > 0, facts[_F["step_calls"]], 0)
    columns[COLUMN["steps"]] = facts[_F["first"]] * steps
    return Sums(columns, device, histograms)
