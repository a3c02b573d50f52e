"""The windows of both sides on one device model as arrays: pieces of work × windows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from roofwatch.model.record import Bound, Signature
from roofwatch.model.regression_match import Piece, pieces
from roofwatch.store.queries.regression_numbers import Bools, Floats, Ints
from roofwatch.store.queries.regression_windows import Stats, Unit
from roofwatch.store.schema import BOUNDS

PIECES_MOST = 3_000  # of a device model: four arrays of 800 windows are then 80 MB
CELL = 3  # windows that a block has on a side, on average, at least: its mean must have a noise that shows
NO_BLOCK = "none"


@dataclass(frozen=True, slots=True)
class Table:
    """What the windows of one device model say. Arrays have shape (pieces, windows), times are in ns.

    ``share`` is the share of each side's device time, shape (2, pieces); ``rest`` the number of signatures that are in
    no piece since they take next to nothing, and their share on either side.
    """

    device: str
    units: list[Unit]
    after: Bools
    block: Ints
    blocks: str
    pieces: list[Piece]
    bounds: list[Bound]
    calls: Floats
    total: Floats
    step_calls: Floats
    step_ns: Floats
    share: Floats
    rest: tuple[int, float, float]
    device_step: Floats  # device time inside the steps of each window, all kernels
    whole: Floats  # device time of either side, all kernels, shape (2,)

    def of_share(self, share: Floats, least: float) -> Table:
        """The pieces that take at least so much of either side's device time, by shares found better than from sums."""
        keep = share.max(axis=0, initial=0.0) >= least
        gone = [piece for piece, kept in zip(self.pieces, keep.tolist(), strict=True) if not kept]
        signatures = sum(len({*piece.before, *piece.after}) for piece in gone)
        count, *rest = self.rest
        before, after = (one + float(own[~keep].sum()) for one, own in zip(rest, share, strict=True))
        return replace(
            self,
            pieces=[piece for piece, kept in zip(self.pieces, keep.tolist(), strict=True) if kept],
            bounds=[bound for bound, kept in zip(self.bounds, keep.tolist(), strict=True) if kept],
            calls=self.calls[keep],
            total=self.total[keep],
            step_calls=self.step_calls[keep],
            step_ns=self.step_ns[keep],
            share=share[:, keep],
            rest=(count + signatures, before, after),
        )

    @property
    def steps(self) -> Floats:
        """Steps of each window, NaN where it has none."""
        return np.array([float(u.steps) if u.steps else np.nan for u in self.units])

    @property
    def stepping(self) -> bool:
        """Whether half of the windows of each side have steps."""
        known = ~np.isnan(self.steps)
        return all(2 * known[side].sum() >= side.sum() > 0 for side in (self.after, ~self.after))


def largest(stats: Stats, units: Sequence[Unit], after: Bools, least_share: float) -> list[int]:
    """The signatures that take at least that share of device time on either side, most time first."""
    ids, _, totals = _by_signature(stats, units, after)
    shares = (totals / np.maximum(totals.sum(axis=1, keepdims=True), 1.0)).max(axis=0)
    order = np.argsort(-shares, kind="stable")
    kept = [int(i) for i in order[:PIECES_MOST] if shares[i] >= least_share]
    return [int(ids[i]) for i in kept]


def _by_signature(stats: Stats, units: Sequence[Unit], after: Bools) -> tuple[Ints, Ints, Floats]:
    """The signatures, which of them each row has, and their device time on each side, shape (2, signatures)."""
    ids, which = np.unique(stats.signature_id, return_inverse=True)
    side = after[_columns(stats, units)].astype(np.int64)
    totals = np.zeros((2, len(ids)))
    np.add.at(totals, (side, which), stats.total_ns.astype(np.float64))
    return ids, which, totals


def _columns(stats: Stats, units: Sequence[Unit]) -> Ints:
    """The unit of each row; all windows of the rows are among the units."""
    places = {unit.window_id: i for i, unit in enumerate(units)}
    ids, which = np.unique(stats.window_id, return_inverse=True)
    return np.array([places[int(i)] for i in ids], dtype=np.int64)[which]


def tabled(stats: Stats, units: list[Unit], after: Bools, known: Mapping[int, Signature]) -> Table:
    """Lay out rows of ``units`` as a table; signatures that are not ``known`` are the rest."""
    ids, which, totals = _by_signature(stats, units, after)
    column = _columns(stats, units)
    seen = [
        {int(i) for i, time in zip(ids, totals[side], strict=True) if time > 0 and int(i) in known} for side in (0, 1)
    ]
    found = pieces(known, seen[0], seen[1])
    place = {i: p for p, piece in enumerate(found) for i in (*piece.before, *piece.after)}
    row = np.array([place.get(int(i), -1) for i in ids], dtype=np.int64)[which]
    inside = row >= 0
    arrays = {}
    for name in ("calls", "total_ns", "step_calls", "step_ns"):
        arrays[name] = np.zeros((len(found), len(units)))
        np.add.at(arrays[name], (row[inside], column[inside]), getattr(stats, name)[inside].astype(np.float64))
    device_step = np.zeros(len(units))
    np.add.at(device_step, column, stats.step_ns.astype(np.float64))
    whole = np.maximum(totals.sum(axis=1), 1.0)
    own = [arrays["total_ns"][:, side].sum(axis=1) / w for side, w in zip((~after, after), whole, strict=True)]
    block, name = _blocks(units, after)
    left = np.array([int(i) not in place for i in ids], dtype=np.bool_)
    rest = [float(totals[side][left].sum() / whole[side]) for side in (0, 1)]
    return Table(
        device=units[0].device,
        units=units,
        after=after,
        block=block,
        blocks=name,
        pieces=found,
        bounds=_bounds(row[inside], stats.bound[inside], stats.total_ns[inside], len(found)),
        calls=arrays["calls"],
        total=arrays["total_ns"],
        step_calls=arrays["step_calls"],
        step_ns=arrays["step_ns"],
        share=np.array(own),
        rest=(int(left.sum()), rest[0], rest[1]),
        device_step=device_step,
        whole=whole,
    )


def _bounds(row: Ints, bound: Ints, total: Ints, count: int) -> list[Bound]:
    """Of each piece the verdict of the larger part of its time."""
    codes = sorted(BOUNDS)
    sums = np.zeros((count, len(codes)))
    np.add.at(sums, (row, np.searchsorted(codes, bound)), total.astype(np.float64))
    return [BOUNDS[codes[int(i)]] for i in sums.argmax(axis=1)]


def _blocks(units: Sequence[Unit], after: Bools) -> tuple[Ints, str]:
    """What is compared with itself: each device in its rank where both sides ran on it, else each rank, else none."""

    def on_device(unit: Unit) -> Hashable:
        return tuple(sorted(map(str, unit.identities))), unit.rank

    kinds: tuple[tuple[str, Callable[[Unit], Hashable]], ...] = (("device", on_device), ("rank", lambda u: u.rank))
    for name, key in kinds:
        labels = [key(unit) for unit in units]
        if name == "rank" and None in labels:
            continue
        sides = [Counter(label for label, late in zip(labels, after, strict=True) if late == side) for side in (0, 1)]
        both = sides[0].keys() & sides[1].keys()
        inside = [sum(side[label] for label in both) for side in sides]
        if both and all(2 * n >= side.total() and n >= CELL * len(both) for n, side in zip(inside, sides, strict=True)):
            numbers = {label: i for i, label in enumerate(dict.fromkeys(labels))}
            return np.array([numbers[label] for label in labels], dtype=np.int64), name
    return np.zeros(len(units), dtype=np.int64), NO_BLOCK
