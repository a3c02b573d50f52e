"""Graph launches that ran a part of a graph's kernels: cut off by an edge of the window, or told by node ids."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from roofwatch.collectors.kineto.graphs_found import NONE, Launched

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from roofwatch.collectors.kineto.columns import Columns
    from roofwatch.collectors.kineto.link import Launches

    Ints = NDArray[np.int64]

MAX_SEQUENCES = 256  # that are looked at as wholes, the longest; and as parts
LEAST = 2  # records of a part: one alone may be of many graphs


def parts(columns: Columns, of: Launched, launches: Launches) -> tuple[Ints, Ints]:
    """By sequence the whole that it is a part of (itself where it is whole), and by place the place in the whole."""
    whole = np.arange(len(of.first))
    place = np.arange(len(of.order)) - of.starts[of.launch]
    if of.nodes:
        _by_nodes(columns, of, whole, place)
    else:
        shift = np.zeros(len(of.first), dtype=np.int64)
        _by_edges(columns, of, launches, whole, shift)
        place += shift[of.sequence[of.launch]]
    return whole, place


def _by_edges(columns: Columns, of: Launched, launches: Launches, whole: Ints, shift: Ints) -> None:
    """What began before the window is the end of a whole, what ran last may be the beginning of one; one, not two."""
    count = of.count[of.first]
    name = columns.device["name"][of.order]
    last = int(of.launch[int(columns.device["end"][of.order].argmax())])
    early = launches.backlog[of.order[of.starts[of.first]]]
    longest = np.argsort(-count, kind="stable")[:MAX_SEQUENCES].tolist()
    candidates = np.flatnonzero((early | (of.first == last)) & (count >= LEAST))[:MAX_SEQUENCES].tolist()
    for part in candidates:
        own = name[of.places(part)]
        fits = []
        for other in longest:
            offset = int(count[other]) - len(own) if early[part] else 0
            if count[other] <= len(own) or not _together(columns, of, part, other):
                continue
            if np.array_equal(name[of.places(other)][offset : offset + len(own)], own):
                fits.append((other, offset))
        if len({int(of.graph[of.first[other]]) for other, _ in fits}) == 1:
            whole[part], shift[part] = fits[0]


def _together(columns: Columns, of: Launched, part: int, other: int) -> bool:
    """Whether two sequences may be of one graph: no id says otherwise, and they ran on one device."""
    launches = of.first[part], of.first[other]
    if of.graph[launches[0]] == of.graph[launches[1]]:
        return True
    rows = of.order[of.starts[list(launches)]]
    told = (of.seen[list(launches)] >= 0).any() or (columns.device["graph"][rows] > 0).any()
    device = columns.device["device"][rows]
    return not told and bool(device[0] == device[1])


def _by_nodes(columns: Columns, of: Launched, whole: Ints, place: Ints) -> None:
    """The longest sequence of a graph is whole; the others' nodes have their places in it."""
    node = columns.device["node"][of.order]
    count, graph = of.count[of.first], of.graph[of.first]
    by = np.lexsort((-count, graph))
    begun = np.append(True, graph[by][1:] != graph[by][:-1])
    whole[by] = by[np.maximum.accumulate(np.where(begun, np.arange(len(by)), 0))]
    for part in np.flatnonzero(whole != np.arange(len(whole))).tolist():
        nodes = node[of.places(int(whole[part]))]
        mine = np.flatnonzero(of.sequence[of.launch] == part)
        at = np.minimum(np.searchsorted(nodes, node[mine]), len(nodes) - 1)
        place[mine] = np.where(nodes[at] == node[mine], at, NONE)
