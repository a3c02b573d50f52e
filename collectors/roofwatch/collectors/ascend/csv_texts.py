"""What the rows of a CSV table are: their text columns → ids of ``What``, each distinct text looked at once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from roofwatch.collectors.ascend import values
from roofwatch.collectors.ascend.common import NOTHING, Message, What
from roofwatch.collectors.ascend.csv_cells import Cells, row_of
from roofwatch.collectors.kineto.groups import OTHER
from roofwatch.collectors.kineto.tables import Interner

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from roofwatch.collectors.ascend.csv_head import Head

    Ints = NDArray[np.int64]

MAX_SORTS = 400_000  # different rows of text; a real table of a million rows has some thousands
_INPUTS = ("input_shapes", "input_dtypes", "input_formats")
_OUTPUTS = ("output_shapes", "output_dtypes", "output_formats")
_TEXTS = ("name", "type", "core", "blocks", "hf32", *_INPUTS, *_OUTPUTS)
_NUMBERS = ("start", "duration")
_NEAR = 3  # columns: what lies that near is cut out in one piece, with what is between


class Whats:
    """All that was found in any file of a table; ids count into ``found``."""

    def __init__(self, longest_name: int, messages: Mapping[str, Message]) -> None:
        """``messages``: what collectives move, by their names."""
        self._messages = messages
        self.found: list[What] = []
        self.blocks: list[int] = []  # by sort
        self.overflown = 0
        self._longest = longest_name
        self._ids: dict[What, int] = {}
        self._of: list[int] = []  # by sort: id in ``found``

    def sort(self, cells: dict[str, str]) -> int:
        """A new sort of row: what it is, and on how many blocks it ran."""
        name = cells["name"][: self._longest]
        if not name:
            return self.other()
        inputs, outputs = (_three(cells, keys) for keys in (_INPUTS, _OUTPUTS))
        what = values.what_of(name, cells["type"], cells["core"], inputs, outputs, self._messages, cells["hf32"])
        return self._add(what, values.blocks(cells["blocks"]) or NOTHING)

    def other(self) -> int:
        """The sort of rows that come after too many different ones."""
        return self._add(What(OTHER), NOTHING)

    def of(self, sorts: Ints) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """Ids and blocks of rows by their sorts."""
        return np.array(self._of, dtype=np.int32)[sorts], np.array(self.blocks, dtype=np.int32)[sorts]

    def _add(self, what: What, blocks: int) -> int:
        if what not in self._ids:
            self._ids[what] = len(self.found)
            self.found.append(what)
        self._of.append(self._ids[what])
        self.blocks.append(blocks)
        return len(self._of) - 1


class Texts:
    """The text columns of one file."""

    def __init__(self, head: Head, whats: Whats) -> None:
        self._whats = whats
        self._runs = _runs(head)
        self._seen = [Interner() for _ in self._runs]
        self._sorts: dict[tuple[int, ...], int] = {}
        self._rest: int | None = None

    @property
    def overflown(self) -> int:
        """How many rows are told by nothing, since there were too many different ones before."""
        return sum(seen.overflown for seen in self._seen)

    def sorts(self, cells: Cells) -> Ints:
        """The sort of each row."""
        ids = [
            np.array([seen[text] for text in cells.texts(run[0][1], run[-1][1])], dtype=np.int64)
            for run, seen in zip(self._runs, self._seen, strict=True)
        ]
        distinct, which = np.unique(np.stack(ids), axis=1, return_inverse=True)
        sorts = np.array([self._sort(tuple(key)) for key in distinct.T.tolist()], dtype=np.int64)
        result: Ints = sorts[which.reshape(-1)]
        return result

    def _sort(self, key: tuple[int, ...]) -> int:
        if key in self._sorts:
            return self._sorts[key]
        if len(self._sorts) >= MAX_SORTS:
            if self._rest is None:
                self._rest = self._whats.other()
            return self._rest
        self._sorts[key] = self._whats.sort(self._cells(key))
        return self._sorts[key]

    def _cells(self, key: tuple[int, ...]) -> dict[str, str]:
        found = dict.fromkeys(_TEXTS, "")
        for run, seen, at in zip(self._runs, self._seen, key, strict=True):
            cells = row_of(seen.values_seen[at])
            first = run[0][1]
            found |= {what: cells[place - first] for what, place in run if place - first < len(cells)}
        return found


def _three(cells: Mapping[str, str], keys: tuple[str, str, str]) -> tuple[str, str, str]:
    shapes, dtypes, formats = (cells[key] for key in keys)
    return shapes, dtypes, formats


def _runs(head: Head) -> list[list[tuple[str, int]]]:
    """Text columns that stand near each other, in order, with no time between them."""
    placed = sorted(((what, head.places[what]) for what in _TEXTS if what in head.places), key=lambda one: one[1])
    apart = {head.places[what] for what in _NUMBERS}
    runs = [[placed[0]]]
    for what, place in placed[1:]:
        last = runs[-1][-1][1]
        if place - last > _NEAR or apart.intersection(range(last, place)):
            runs.append([])
        runs[-1].append((what, place))
    return runs
