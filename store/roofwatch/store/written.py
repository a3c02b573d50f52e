"""Which signatures and roofs are in the database, by their numbers in a catalog.

What repeats is told from what is new by comparing vectors.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from roofwatch.store.blocks import Ints
from roofwatch.store.catalog import Catalog
from roofwatch.store.unpack import Unpacked

MAX_PEAKS = 16  # sets of peaks whose roofs are remembered; those of others are looked up one by one
_NEVER = -1  # the bits of a number that is none, and not the one that is stored for unknown


@dataclass(slots=True)
class Written:
    """Taken as written as soon as it is asked for; forget() where the transaction was not committed."""

    catalog: Catalog | None = None
    signatures: npt.NDArray[np.bool_] = field(default_factory=lambda: np.zeros(0, np.bool_))
    roofs: OrderedDict[int, Ints] = field(default_factory=OrderedDict)  # by peaks: bits of roof_ns and ridge

    def forget(self) -> None:
        """Nothing is known any more."""
        self.catalog = None

    def new_signatures(self, work: Unpacked) -> Ints:
        """Of a segment's signatures the numbers of those that are not written."""
        self._of(work.dictionary.catalog)
        numbers = work.dictionary.signatures
        self.signatures = _grown(self.signatures, numbers, False)
        new: Ints = numbers[~self.signatures[numbers]]
        self.signatures[new] = True
        return new

    def new_roofs(self, work: Unpacked) -> npt.NDArray[np.bool_]:
        """Which of the roofs that a segment tells are new, or other than what is written."""
        self._of(work.dictionary.catalog)
        told = work.told
        new = np.zeros(len(told.signatures), np.bool_)
        bits = np.stack((told.roof_ns, told.ridge))
        bits = np.where(np.isnan(bits), np.nan, bits).view(np.int64)  # one not-a-number of many
        for place, peaks in enumerate(work.dictionary.peaks_ids):
            of = np.flatnonzero(told.peaks == place)
            numbers = told.signatures[of]
            roofs = self.roofs.pop(peaks, None)
            roofs = _grown(np.zeros((2, 0), np.int64) if roofs is None else roofs, numbers, _NEVER)
            new[of] = (roofs[:, numbers] != bits[:, of]).any(axis=0)
            roofs[:, numbers] = bits[:, of]
            self.roofs[peaks] = roofs
            while len(self.roofs) > MAX_PEAKS:  # at once: each is as wide as there are signatures
                self.roofs.popitem(last=False)
        return new

    def _of(self, catalog: Catalog) -> None:
        if self.catalog is not catalog:
            self.catalog, self.signatures = catalog, np.zeros(0, np.bool_)
            self.roofs.clear()


def _grown(values: npt.NDArray[Any], numbers: Ints, fill: bool | int) -> npt.NDArray[Any]:
    """With room for the numbers, twice as much as is needed."""
    needed = int(numbers.max(initial=-1)) + 1
    have = values.shape[-1]
    if needed <= have:
        return values
    more = np.full((*values.shape[:-1], 2 * needed - have), fill, values.dtype)
    return np.concatenate((values, more), axis=-1)
