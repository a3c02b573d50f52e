"""The part of a model that a launch belongs to: the path of module classes around it, else the annotation around it.

Names must repeat: a module's number and the numbers in an annotation are taken off, so that layers and steps alike are
one, and there is a limit on how many different ones are kept.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from roofwatch.collectors.kineto import calls
from roofwatch.collectors.kineto.nesting import NONE, Nest, nest

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from roofwatch.collectors.kineto.columns import Columns

    Ints = NDArray[np.int64]
    Mask = NDArray[np.bool_]

MAX_PATHS = 4096  # different paths of modules; a real model has some dozens
MAX_NOTES = 64  # different annotations; what is named anew each time is no part of a model
MAX_CLASSES = 8  # of a path the innermost
MAX_LENGTH = 200  # characters of a path or an annotation

_NUMBER = re.compile(r"\b[0-9a-z]{20,}\b|\d+")  # hashes, counts, indices
_NO_PART = re.compile(r"\A(?:ProfilerStep#|Optimizer\.|enumerate\(DataLoader|PyTorch Profiler|nccl:|gloo:|hccl:)")


@dataclass(frozen=True, slots=True)
class Ranges:
    """Module ranges and annotations, ready to be asked; ``texts`` are what the ids of ``at`` stand for."""

    modules: Nest
    path: Ints  # by position in ``modules``: id
    notes: Nest
    note: Ints  # by position in ``notes``: id
    texts: list[str]

    def at(self, thread: Ints, time: Ints) -> Ints:
        """The id of the part of the model running on ``thread`` at ``time``, NONE where there is none."""
        found = _of(self.path, self.modules.at(thread, time))
        return np.where(found >= 0, found, _of(self.note, self.notes.at(thread, time)))


def ranges_of(columns: Columns) -> Ranges:
    """The module ranges and annotations of a trace."""
    modules = nest(columns.modules["thread"], columns.modules["start"], columns.modules["end"])
    texts: list[str] = []
    path = _paths(columns, modules, texts)
    table = columns.notes
    note_of = _notes(columns, texts)
    kept = note_of[table["name"]] >= 0
    notes = nest(table["thread"][kept], table["start"][kept], table["end"][kept])
    return Ranges(modules, path, notes, note_of[table["name"][kept]][notes.order], texts)


def _paths(columns: Columns, modules: Nest, texts: list[str]) -> Ints:
    """By position the id of the path of classes from the outermost module to each."""
    names: Sequence[str] = columns.names.values_seen
    classes = {name: calls.module_of(names[name]) for name in np.unique(columns.modules["name"]).tolist()}
    known: dict[tuple[str, ...], int] = {}
    paths: list[tuple[str, ...]] = []
    ids: list[int] = []
    parents = modules.parent.tolist()
    for at, name in enumerate(columns.modules["name"][modules.order].tolist()):
        above = paths[parents[at]] if parents[at] >= 0 else ()
        path = (*above, classes[name])[-MAX_CLASSES:]
        paths.append(path)
        if path not in known and len(known) >= MAX_PATHS:
            path = path[-1:]
        if path not in known and len(known) < 2 * MAX_PATHS:
            known[path] = len(texts)
            texts.append(".".join(path)[-MAX_LENGTH:])
        ids.append(known.get(path, NONE))
    return np.array(ids, dtype=np.int64)


def _notes(columns: Columns, texts: list[str]) -> Ints:
    """Name id → id of the annotation without its numbers; NONE for what is none or too many."""
    names: Sequence[str] = columns.names.values_seen
    result = np.full(len(names), NONE, dtype=np.int64)
    known: dict[str, int] = {}
    for name in np.unique(columns.notes["name"]).tolist():
        if _NO_PART.match(names[name]):
            continue
        text = _NUMBER.sub("#", names[name][:MAX_LENGTH])
        if text not in known and len(known) < MAX_NOTES:
            known[text] = len(texts)
            texts.append(text)
        result[name] = known.get(text, NONE)
    return result


def _of(values: Ints, position: Ints) -> Ints:
    result = position.copy()
    result[position >= 0] = values[position[position >= 0]]
    return result
