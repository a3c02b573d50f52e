"""Graph launches among device records: which records each made, and which launches are of one graph."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from roofwatch.collectors.kineto import calls
from roofwatch.collectors.kineto.columns import KERNEL

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from roofwatch.collectors.graphs import Replays
    from roofwatch.collectors.kineto.columns import Columns
    from roofwatch.collectors.kineto.link import Launches

    Ints = NDArray[np.int64]
    Mask = NDArray[np.bool_]
    Words = NDArray[np.uint64]

MAX_GRAPHS = 256  # told apart, those with most time; the rest is one line
MAX_SHIFT = 64  # replays that the hook and the trace disagree on at a window's edge
OTHERS = "other graphs"
NONE = -1


@dataclass(frozen=True, slots=True)
class Launched:
    """Records of graph launches. "Places" are positions in ``order``; launches, sequences, graphs count from 0."""

    order: Ints  # by place: row of the record; launch by launch, in each by node where told, else by start
    nodes: bool  # by node
    launch: Ints  # by place
    starts: Ints  # by launch: its first place
    count: Ints  # by launch
    seen: Ints  # by launch: position in ``Replays.graphs``, NONE where the hook did not tell
    graph: Ints  # by launch
    sequence: Ints  # by launch: kernels in one order are one sequence
    first: Ints  # by sequence: a launch that ran it

    def places(self, sequence: int) -> slice:
        """The places of a sequence's first launch."""
        start = int(self.starts[self.first[sequence]])
        return slice(start, start + int(self.count[self.first[sequence]]))


def launched(columns: Columns, device: Ints, launches: Launches, replays: Replays | None) -> Launched | None:
    """The graph launches of a trace; None where there are none. ``device``: position of each record's."""
    inside = _inside(columns, launches)
    if not inside.any():
        return None
    (rows,) = np.nonzero(inside)
    table = columns.device
    node = table["node"][rows]
    nodes = bool((node >= 0).all())
    within = node if nodes else table["start"][rows]
    order = rows[np.lexsort((rows, within, table["correlation"][rows], device[rows]))]
    starts = edges(device[order], table["correlation"][order])
    count = np.diff(np.append(starts, len(order)))
    seen = _seen(columns, launches, order[starts], replays)
    graph, sequence = _identities(columns, device, order, starts, seen)
    _, first = np.unique(sequence, return_index=True)
    launch = np.repeat(np.arange(len(starts)), count)
    return Launched(order, nodes, launch, starts, count, seen, graph, sequence, first.astype(np.int64))


def _inside(columns: Columns, launches: Launches) -> Mask:
    """Records of graph launches: by the launching call, by a graph id, or before the window by a shared correlation."""
    table = columns.device
    inside: Mask = table["graph"] > 0
    is_graph = calls.mask(columns.names.values_seen, calls.is_graph_launch)
    if len(columns.host) and is_graph.any():
        inside = inside | ((launches.row >= 0) & is_graph[columns.host["name"][launches.row]])
    (early,) = np.nonzero(launches.backlog & (table["correlation"] > 0) & (table["sort"] == KERNEL))
    found, counts = np.unique(table["correlation"][early], return_counts=True)
    shared = found[counts > 1]
    return inside | (launches.backlog & np.isin(table["correlation"], shared)) if len(shared) else inside


def edges(*columns: Ints) -> Ints:
    """Where in sorted columns a new combination begins."""
    new = np.zeros(len(columns[0]), dtype=np.bool_)
    new[:1] = True
    for column in columns:
        new[1:] |= column[1:] != column[:-1]
    return np.flatnonzero(new)


def _unique(*columns: Ints) -> Ints:
    """For each row which combination of columns it is, numbered from 0."""
    by = np.lexsort(columns[::-1])
    begun = edges(*(column[by] for column in columns))
    result = np.empty(len(by), dtype=np.int64)
    result[by] = np.repeat(np.arange(len(begun)), np.diff(np.append(begun, len(by))))
    return result


def _mixed(values: Words) -> Words:
    """Spreads every bit over all (the finalizer of splitmix64)."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))


def _identities(columns: Columns, device: Ints, order: Ints, starts: Ints, seen: Ints) -> tuple[Ints, Ints]:
    """For each launch its graph and its sequence: by what is told of it, else by the kernels it ran, with their grids.

    Streams may change the order, so a graph is its kernels in any order and a sequence in one.
    """
    table = columns.device
    count = np.diff(np.append(starts, len(order)))
    place = np.arange(len(order)) - np.repeat(starts, count)
    ran = table["name"][order].astype(np.uint64) * np.uint64(2654435761) + table["grid"][order].astype(np.uint64)
    mixed = _mixed(ran + np.uint64(1))
    unordered = np.add.reduceat(mixed, starts).astype(np.int64)
    ordered = np.add.reduceat(_mixed(mixed + place.astype(np.uint64)), starts).astype(np.int64)
    ids = table["graph"][order[starts]]
    sort = np.where(seen >= 0, 2, np.where(ids > 0, 1, 0))
    name = np.where(seen >= 0, seen, np.where(ids > 0, ids, unordered))
    graph = _unique(device[order[starts]], sort, name, np.where(sort == 0, count, 0))
    return graph, _unique(graph, count, ordered)


def _seen(columns: Columns, launches: Launches, row: Ints, replays: Replays | None) -> Ints:
    """For each launch, by its first record, the graph that the hook saw replayed: in order, thread by thread."""
    seen = np.full(len(row), NONE, dtype=np.int64)
    if replays is None:
        return seen
    known = np.array([number > 0 for number, _ in replays.graphs], dtype=np.bool_)
    threads = {thread[1]: i for i, thread in enumerate(columns.threads.values_seen) if len(thread) == 2}
    for thread, replayed in replays.threads.items():
        (own,) = np.nonzero(launches.thread[row] == threads.get(thread, len(threads)))
        own = own[np.argsort(launches.time[row[own]], kind="stable")]
        times = np.array([at for at, _ in replayed], dtype=np.int64)
        graph = np.array([position for _, position in replayed], dtype=np.int64)
        shift = _shift(launches.time[row[own]], times)
        at = np.arange(len(own)) + shift
        inside = (at >= 0) & (at < len(times))
        told = graph[at[inside]]
        seen[own[inside]] = np.where(known[told], told, NONE)
    return seen


def _shift(launched_at: Ints, replayed_at: Ints) -> int:
    """Which replay the first launch is, where one of the two saw a few more at an edge: both then go at one pace."""
    if not len(launched_at) or not len(replayed_at) or len(launched_at) == len(replayed_at):
        return 0
    best, least = 0, None
    for shift in range(-min(MAX_SHIFT, len(launched_at) - 1), min(MAX_SHIFT, len(replayed_at) - 1) + 1):
        low, high = max(0, -shift), min(len(launched_at), len(replayed_at) - shift)
        if high - low < min(len(launched_at), len(replayed_at)):
            continue  # neither saw one that the other missed in the middle
        apart = launched_at[low:high] - replayed_at[low + shift : high + shift]
        spread = float(np.abs(apart - np.median(apart)).sum())
        if least is None or spread < least:
            best, least = shift, spread
    return best


def named(columns: Columns, of: Launched, graph: Ints, time: Ints, replays: Replays | None) -> tuple[Ints, list[str]]:
    """For each launch its graph, numbered by first start, the least of too many folded into one; and their names.

    ``graph``: of each launch. ``time``: device time of each launch.
    """
    total = np.zeros(int(graph.max()) + 1, dtype=np.int64)
    np.add.at(total, graph, time)
    begun = np.full(len(total), np.iinfo(np.int64).max)
    start = np.minimum.reduceat(columns.device["start"][of.order], of.starts)
    np.minimum.at(begun, graph, start)
    present = np.unique(graph)
    kept = present[np.argsort(-total[present], kind="stable")[:MAX_GRAPHS]]
    kept = kept[np.argsort(begun[kept], kind="stable")]
    number = np.full(len(total), len(kept), dtype=np.int64)
    number[kept] = np.arange(len(kept))
    _, first = np.unique(number[graph], return_index=True)
    names = [_name(columns, of, int(launch), place, replays) for place, launch in enumerate(first[: len(kept)], 1)]
    return number[graph], [*names, OTHERS] if len(present) > len(kept) else names


def _name(columns: Columns, of: Launched, launch: int, place: int, replays: Replays | None) -> str:
    """Its number in the process, else the trace's id, else its place among the trace's graphs."""
    if replays is not None and of.seen[launch] >= 0:
        return f"graph {replays.graphs[int(of.seen[launch])][0]}"
    told = int(columns.device["graph"][of.order[of.starts[launch]]])
    return f"graph {told if told > 0 else place}"
