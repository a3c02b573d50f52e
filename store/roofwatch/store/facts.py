"""The kernels of a segment's windows, from the columns of the wire to those of the store: checked, and never a row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, chain
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from roofwatch.store import wire
from roofwatch.store.blocks import FACT, FAST, Ints, pack_parts
from roofwatch.store.catalog import NO_CODE
from roofwatch.store.checks import MAX_COUNT, MAX_NS, MAX_RATE, fail
from roofwatch.store.dictionary import Resolved
from roofwatch.store.histograms import BUCKETS, Histograms
from roofwatch.store.schema import EVIDENCE_CODES, NO_KERNELS

Floats = npt.NDArray[np.float64]
_LIMITS = {  # of what is stored as it comes; these columns follow each other in FACT
    **dict.fromkeys(("total_ns", "min_ns", "max_ns", "step_ns"), MAX_NS),
    **dict.fromkeys(("calls", "step_calls"), MAX_COUNT),
}
_PLAIN = slice(FACT.index("total_ns"), FACT.index("step_calls") + 1)
_NUMBERS = ("signature", *_LIMITS, "device", "bound", "evidence", "histogram_low", "histogram_length")
_AT = {name: i for i, name in enumerate(FACT)}
_MARKS = 1 << 18  # places of keys that are marked one by one; more are sorted


@dataclass(frozen=True, slots=True)
class Facts:
    """The kernels of one window: a matrix of ``blocks.FACT``, and a histogram each."""

    columns: Ints
    histograms: Histograms

    def __len__(self) -> int:
        return int(self.columns.shape[1])


@dataclass(frozen=True, slots=True)
class Kernels:
    """The kernels of a segment's windows, one after the other."""

    columns: Ints  # of ``blocks.FACT``
    histograms: Histograms  # counts as bytes, where none needs more
    ends: tuple[int, ...]  # where the rows of each window end, after where the first begin
    cells: tuple[int, ...]  # the same of counts of histograms

    def facts(self, place: int, *, narrow: bool = False) -> Facts:
        """Those of one window; ``narrow``: counts of histograms as they came, which must not be added up."""
        rows, cells = slice(*self.ends[place : place + 2]), slice(*self.cells[place : place + 2])
        of = self.histograms
        counts = of.counts[cells] if narrow else of.counts[cells].astype(np.int64)
        return Facts(self.columns[:, rows], Histograms(of.lows[rows], of.lengths[rows], counts))

    def count(self, place: int) -> int:
        """How many are those of one window."""
        return self.ends[place + 1] - self.ends[place]

    def packed(self) -> list[tuple[bytes, bytes]]:
        """The two blocks of each window: made together, which costs a third."""
        facts = pack_parts(self.columns, self.ends, FAST)
        return list(zip(facts, self.histograms.pack_parts(self.ends), strict=True))


@dataclass(frozen=True, slots=True)
class Roofs:
    """Roofs of signatures under peaks, each pair once; not a number where unknown, but never both."""

    signatures: Ints  # their numbers in the catalog
    peaks: Ints  # their places in the dictionary
    roof_ns: Floats
    ridge: Floats


@dataclass(frozen=True, slots=True)
class _Rows:
    """Of every kernel of a segment the window it is of, and its device among those of all windows."""

    counts: list[int]  # of windows
    device: Ints
    devices: int
    model: Ints  # of each device: the first in its window of this model
    peaks: Ints  # of each device: place of its peaks in the dictionary


def of_segment(windows: Sequence[Any], counts: list[int], dictionary: Resolved) -> tuple[Kernels, Roofs]:
    """The kernels of windows, as ``wire.read`` gives them and as many as ``wire.counts`` says, and their roofs.

    Raises:
        ValueError, IndexError: they cannot be stored.
    """
    kernels = [w.kernels for w in windows]
    told = wire.columns({name: [getattr(k, name) for k in kernels] for name in _NUMBERS}, counts)
    places = told["signature"]
    if len(places) and int(places.max()) >= len(dictionary.ids):
        fail(f"signature: {places.max()} is out of range")
    rows = _rows(windows, counts, told["device"], dictionary)
    columns = np.empty((len(FACT), len(places)), np.int64)
    columns[_AT["signature_id"]] = dictionary.ids[places]
    columns[_AT["device"]] = told["device"]
    for name in _LIMITS:
        columns[_AT[name]] = told[name]
    if len(places):
        for name, most in zip(_LIMITS, columns[_PLAIN].max(axis=1).tolist(), strict=True):
            if most >= _LIMITS[name]:
                fail(f"{name}: {most} is out of range")
    _codes(columns, kernels, counts, told, dictionary)
    _check_once(places, columns[_AT["evidence"]], rows, len(dictionary.ids))
    columns[_AT["first"]] = _first(dictionary.names[places], columns[_AT["bound"]], rows, dictionary.strings)
    ends = (0, *accumulate(counts))
    histograms, cells = _histograms(kernels, told, ends)
    return Kernels(columns, histograms, ends, cells), _roofs(kernels, places, rows, dictionary)


def _limited(name: str, column: npt.NDArray[np.integer[Any]], limit: int) -> None:
    """Refuse what is at least ``limit``."""
    if int(column.max(initial=0)) >= limit:
        fail(f"{name}: {column.max()} is out of range")


def _rows(windows: Sequence[Any], counts: list[int], device: Ints, dictionary: Resolved) -> _Rows:
    devices = [[d.device for d in w.devices] for w in windows]
    sizes = np.array([len(of) for of in devices], np.int64)
    begins = np.cumsum(sizes) - sizes
    if len(device) and (device >= np.repeat(sizes, counts)).any():
        fail(f"device: {device.max()} is out of range")
    flat = list(chain.from_iterable(devices))
    names = [d.model for d in dictionary.decoder.devices]
    firsts: list[int] = []
    for begin, of in zip(begins.tolist(), devices, strict=True):
        seen: dict[str, int] = {}
        firsts.extend(seen.setdefault(names[d], begin + i) for i, d in enumerate(of))
    model, peaks = np.array(firsts, np.int64), dictionary.peaks[flat] if flat else np.zeros(0, np.int64)
    return _Rows(counts, device + np.repeat(begins, counts), len(flat), model, peaks)


def _codes(
    columns: Ints, kernels: Sequence[Any], counts: list[int], told: dict[str, Ints], dictionary: Resolved
) -> None:
    """What travels as text: the bound, the evidence, and the formula's bound where there is another."""
    bound, evidence = dictionary.bounds[told["bound"]], dictionary.evidences[told["evidence"]]
    formula = np.full(len(bound), -1, np.int64)
    if any(k.formula_bound for k in kernels):  # not sent by the first versions, nor where there is none
        parts = [k.formula_bound or bytes(count) for k, count in zip(kernels, counts, strict=True)]
        second = wire.columns({"formula_bound": parts}, counts)["formula_bound"]
        formula = np.where(second == 0, -1, dictionary.bounds[second])
    for name, codes in (("bound", bound), ("evidence", evidence), ("formula_bound", formula)):
        if int(codes.min(initial=0)) == NO_CODE:
            fail(f"{name}: a text that is none")
        columns[_AT[name]] = codes


def _check_once(places: Ints, evidence: Ints, rows: _Rows, signatures: int) -> None:
    """Refuse a signature, device and evidence twice in a window."""
    keys = (rows.device * signatures + places) * len(EVIDENCE_CODES) + evidence
    size = rows.devices * signatures * len(EVIDENCE_CODES)
    if size <= _MARKS:
        marks, numbers = np.empty(size, np.int64), np.arange(len(keys))
        marks[keys] = numbers  # of one key twice one number stays, whichever it is
        once = bool((marks[keys] == numbers).all())
    else:
        once = len(np.unique(keys)) == len(keys)
    if not once:
        fail("the same signature, device and evidence twice in a window")


def _first(names: Ints, bound: Ints, rows: _Rows, strings: int) -> Ints:
    """1 for one row of each kernel's name a device model, 0 for the others and what is no kernel to look into."""
    first = np.zeros(len(names), np.int64)
    kernels = np.flatnonzero((bound != NO_KERNELS[0]) & (bound != NO_KERNELS[1]))
    keys = rows.model[rows.device[kernels]] * strings + names[kernels]
    first[kernels[first_of(keys, rows.devices * strings)]] = 1
    return first


def first_of(keys: Ints, size: int) -> Ints:
    """Where each key, all below ``size``, is for the first time."""
    if size > _MARKS:
        _, where = np.unique(keys, return_index=True)
        return where
    marks = np.full(size, len(keys), np.int64)
    marks[keys[::-1]] = np.arange(len(keys) - 1, -1, -1)  # of one key several times the last that is written stays
    return marks[marks < len(keys)]


def _histograms(
    kernels: Sequence[Any], told: dict[str, Ints], ends: tuple[int, ...]
) -> tuple[Histograms, tuple[int, ...]]:
    lows, lengths = told["histogram_low"], told["histogram_length"]
    for name, column in (("histogram_low", lows), ("histogram_length", lengths), ("histogram", lows + lengths)):
        _limited(name, column, BUCKETS + 1)
    counts, many = wire.counted("histogram_counts", [k.histogram_counts for k in kernels])
    _limited("histogram_counts", counts, MAX_COUNT)
    cells = (0, *accumulate(many))
    own = np.concatenate((np.zeros(1, np.int64), np.cumsum(lengths)))
    if own[list(ends)].tolist() != list(cells):
        fail("the histogram columns do not fit each other")
    return Histograms(lows, lengths, cast("Ints", counts)), cells  # widened where they leave ``Kernels``


def _roofs(kernels: Sequence[Any], places: Ints, rows: _Rows, dictionary: Resolved) -> Roofs:
    """The roofs that are known, each as the first row tells it."""
    roof = _rates("roof_ns", kernels, rows.counts, 0.0, MAX_NS)
    ridge = _rates("ridge", kernels, rows.counts, 1 / MAX_RATE, MAX_RATE)
    known = np.flatnonzero(~(np.isnan(roof) & np.isnan(ridge)))
    peaks, many = rows.peaks[rows.device[known]], len(dictionary.peaks_ids)
    at = first_of(places[known] * many + peaks, len(dictionary.ids) * many)
    where = known[at]
    return Roofs(dictionary.signatures[places[where]], peaks[at], roof[where], ridge[where])


def _rates(name: str, kernels: Sequence[Any], counts: list[int], least: float, limit: float) -> Floats:
    """Floats as they travel, not a number where unknown."""
    column: Floats = wire.floats(name, [getattr(k, name) for k in kernels], counts)
    if not (np.isnan(column) | ((column >= least) & (column < limit))).all():
        fail(f"{name}: a value is out of range")
    return column
