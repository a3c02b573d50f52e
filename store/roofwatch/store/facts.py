"""The kernels of a segment's windows, from the columns of the wire to those of the store: checked, and never a row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
import numpy.typing as npt

from roofwatch.proto.v1 import roofwatch_pb2 as pb
from roofwatch.store.blocks import FACT, Ints
from roofwatch.store.catalog import NO_CODE
from roofwatch.store.checks import MAX_COUNT, MAX_NS, MAX_RATE, fail
from roofwatch.store.dictionary import Resolved
from roofwatch.store.histograms import BUCKETS, Histograms
from roofwatch.store.schema import EVIDENCE_CODES, NO_KERNELS

Floats = npt.NDArray[np.float64]
_LIMITS = {
    **dict.fromkeys(("total_ns", "min_ns", "max_ns", "step_ns"), MAX_NS),
    **dict.fromkeys(("calls", "step_calls"), MAX_COUNT),
}
_AT = {name: i for i, name in enumerate(FACT)}
_MARKS = 1 << 18  # places of keys that are marked one by one; more are sorted


@dataclass(frozen=True, slots=True)
class Facts:
    """The kernels of one window: a matrix of ``blocks.FACT``, and a histogram each."""

    columns: Ints
    histograms: Histograms

    def __len__(self) -> int:
        return int(self.columns.shape[1])


NO_FACTS = Facts(np.zeros((len(FACT), 0), np.int64), Histograms.joined(()))


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


def of_segment(windows: Sequence[pb.Window], dictionary: Resolved) -> tuple[list[Facts], Roofs]:
    """The kernels of each window, and the roofs that they tell.

    Raises:
        ValueError, IndexError: they cannot be stored.
    """
    kernels = [w.kernels for w in windows]
    places = _joined("signature", kernels, [len(k.signature) for k in kernels])
    counts = [len(k.signature) for k in kernels]
    total = len(places)
    if total and int(places.max()) >= len(dictionary.ids):
        fail(f"signature: {places.max()} is out of range")
    device = _joined("device", kernels, counts)
    rows = _rows(windows, counts, device, dictionary)
    columns = np.empty((len(FACT), total), np.int64)
    columns[_AT["signature_id"]] = dictionary.ids[places]
    columns[_AT["device"]] = device
    for name, limit in _LIMITS.items():
        _joined(name, kernels, counts, columns[_AT[name]])
        _limited(name, columns[_AT[name]], limit)
    _codes(columns, kernels, counts, dictionary)
    _check_once(places, columns[_AT["evidence"]], rows, len(dictionary.ids))
    columns[_AT["first"]] = _first(dictionary.names[places], columns[_AT["bound"]], rows, dictionary.strings)
    histograms = _histograms(kernels, counts)
    ends = np.cumsum(counts).tolist()
    facts = [
        Facts(np.ascontiguousarray(columns[:, end - count : end]), told) if count else NO_FACTS
        for count, end, told in zip(counts, ends, histograms, strict=True)
    ]
    return facts, _roofs(kernels, places, rows, dictionary)


def _joined(name: str, kernels: Sequence[pb.KernelStats], counts: Sequence[int], out: Ints | None = None) -> Ints:
    """A column of all windows; ``out`` is where to, as it is: whole numbers beyond 2⁶³ are negative there."""
    parts = [np.asarray(getattr(k, name)) for k in kernels]
    if [len(part) for part in parts] != counts:
        fail(f"kernel columns of unequal lengths: {name}")
    if out is None:
        return np.concatenate(parts).astype(np.int64) if parts else np.zeros(0, np.int64)
    return np.concatenate(parts, out=out, casting="unsafe") if parts else out


def _limited(name: str, column: Ints, limit: int) -> None:
    """Refuse what the wire has unsigned and is at least ``limit``."""
    if len(column) and int(column.view(np.uint64).max()) >= limit:
        fail(f"{name}: {column.view(np.uint64).max()} is out of range")


def _rows(windows: Sequence[pb.Window], counts: list[int], device: Ints, dictionary: Resolved) -> _Rows:
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


def _codes(columns: Ints, kernels: Sequence[pb.KernelStats], counts: list[int], dictionary: Resolved) -> None:
    """What travels as text: the bound, the evidence, and the formula's bound where there is another."""
    bound = dictionary.bounds[_joined("bound", kernels, counts)]
    evidence = dictionary.evidences[_joined("evidence", kernels, counts)]
    second = np.zeros(len(bound), np.int64)  # not sent by the first versions, nor where there is none
    end = 0
    for k, count in zip(kernels, counts, strict=True):
        end += count
        told = np.asarray(k.formula_bound)
        if len(told):
            if len(told) != count:
                fail("kernel columns of unequal lengths: formula_bound")
            second[end - count : end] = told
    formula = np.where(second == 0, -1, dictionary.bounds[second])
    for name, codes in (("bound", bound), ("evidence", evidence), ("formula_bound", formula)):
        if len(codes) and int(codes.min()) == NO_CODE:
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
    np.minimum.at(marks, keys, np.arange(len(keys)))
    return marks[marks < len(keys)]


def _histograms(kernels: Sequence[pb.KernelStats], counts: list[int]) -> list[Histograms]:
    lows, lengths = _joined("histogram_low", kernels, counts), _joined("histogram_length", kernels, counts)
    parts = [np.asarray(k.histogram_counts) for k in kernels]
    told = np.concatenate(parts).view(np.int64) if parts else np.zeros(0, np.int64)
    _limited("histogram_low", lows, BUCKETS)
    _limited("histogram_length", lengths, BUCKETS)
    _limited("histogram_counts", told, MAX_COUNT)
    row, cell, found = 0, 0, []
    for count, part in zip(counts, parts, strict=True):
        of = slice(row, row + count)
        if int(lengths[of].sum()) != len(part):
            fail("the histogram columns do not fit each other")
        found.append(Histograms(lows[of], lengths[of], told[cell : cell + len(part)]))
        row, cell = row + count, cell + len(part)
    return found


def _roofs(kernels: Sequence[pb.KernelStats], places: Ints, rows: _Rows, dictionary: Resolved) -> Roofs:
    """The roofs that are known, each as the first row tells it."""
    roof = _rates("roof_ns", kernels, rows.counts, 0.0, MAX_NS)
    ridge = _rates("ridge", kernels, rows.counts, 1 / MAX_RATE, MAX_RATE)
    known = np.flatnonzero(~(np.isnan(roof) & np.isnan(ridge)))
    peaks, many = rows.peaks[rows.device[known]], len(dictionary.peaks_ids)
    at = first_of(places[known] * many + peaks, len(dictionary.ids) * many)
    where = known[at]
    return Roofs(dictionary.signatures[places[where]], peaks[at], roof[where], ridge[where])


def _rates(name: str, kernels: Sequence[pb.KernelStats], counts: list[int], least: float, limit: float) -> Floats:
    """Floats as they travel, not a number where unknown."""
    parts = [np.asarray(getattr(k, name)) for k in kernels]
    if [len(part) for part in parts] != counts:
        fail(f"kernel columns of unequal lengths: {name}")
    column: Floats = np.concatenate(parts) if parts else np.zeros(0)
    if not (np.isnan(column) | ((column >= least) & (column < limit))).all():
        fail(f"{name}: a value is out of range")
    return column
