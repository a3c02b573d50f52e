"""Device records that graph launches made: which launch, which graph, and which op each record belongs to.

All records of a graph launch share one correlation. Launches that run the same kernels are of one graph; where the
trace tells graph and node ids, or the hook which graph it saw replayed, these tell. Each different sequence of kernels
is laid along what was captured once (``collectors.graphs``), however often it ran.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from roofwatch.collectors.graphs import CAPTURE, Captured, CapturedCall, Known, Match, Shape, match, prepare
from roofwatch.collectors.kineto.graphs_captured import captured_in
from roofwatch.collectors.kineto.graphs_found import NONE, Launched, launched, named
from roofwatch.collectors.kineto.graphs_parts import parts
from roofwatch.collectors.kineto.groups import PHASES, Records
from roofwatch.collectors.kineto.tables import small
from roofwatch.model.record import Graph

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from roofwatch.collectors.kineto.columns import Columns
    from roofwatch.collectors.kineto.link import Host, Launches

    Ints = NDArray[np.int64]

MAX_MATCHED = 64  # sequences of kernels that are laid along captures, those with most time first
MAX_LAID = 40_000  # kernels in all of them: seconds at the worst, in a hostile trace
NODES = "nodes"
_ABSENT = 1 << 61  # above every row of ops: owners of captured calls begin here


@dataclass(slots=True)
class _Tied:
    """What graph launches could be tied to."""

    call: Ints  # by place: position in ``calls``
    owner: Ints  # by place: which call of it
    calls: list[CapturedCall]
    source: list[str | None]  # by graph
    fitting: Ints  # by graph: records × confidence, in millionths


def attributed(
    records: Records, columns: Columns, host: Host, launches: Launches, known: Known
) -> tuple[Records, list[Graph]]:
    """The records with the ops that graphs were captured from, and the graphs; what could not be tied says so."""
    of = launched(columns, records.device, launches, known.replays)
    if of is None:
        return records, []
    whole, place = parts(columns, of, launches)
    time = np.add.reduceat(records.duration[of.order], of.starts)
    graph, names = named(columns, of, of.graph[of.first[whole[of.sequence]]], time, known.replays)
    tied = _Tied(
        call=np.full(len(of.order), NONE, dtype=np.int64),
        owner=np.full(len(of.order), NONE, dtype=np.int64),
        calls=[],
        source=[None] * len(names),
        fitting=np.zeros(len(names), dtype=np.int64),
    )
    inside = captured_in(columns, host)
    if inside or known.captured:
        _tie(columns, of, (whole, place, graph, time), (known, inside), tied)
    ids = graph[of.launch]
    return _with_ops(records, of, ids, names, tied, columns, host), _graphs(records, of, ids, names, graph, tied)


def _tie(
    columns: Columns,
    of: Launched,
    parts_: tuple[Ints, Ints, Ints, Ints],
    sources: tuple[Known, list[Captured]],
    tied: _Tied,
) -> None:
    """Lays each whole sequence along what was captured, and ties all records that ran it or a part of it."""
    whole, place, graph, time = parts_
    known, inside = sources
    ids: dict[CapturedCall, int] = {}
    names = columns.names.values_seen
    spent = np.zeros(len(of.first), dtype=np.int64)
    np.add.at(spent, whole[of.sequence], time)
    main = whole[of.sequence[of.launch]]
    prepared: dict[str | None, list[Shape]] = {}
    laid = 0
    for sequence in np.argsort(-spent, kind="stable")[:MAX_MATCHED].tolist():
        laid += int(of.count[of.first[sequence]])
        if not spent[sequence] or laid > MAX_LAID:
            break
        kernels = [names[i] for i in columns.device["name"][of.order[of.places(sequence)]].tolist()]
        key = _key(of, sequence, known)
        if key not in prepared:
            prepared[key] = prepare([*(c for c in known.captured if key in (None, c.key)), *inside])
        result = match(kernels, prepared[key])
        if result is not None:
            at = np.flatnonzero((main == sequence) & (place >= 0))
            _take(result, of, at, place[at], graph[of.launch[at]], ids, tied)
    tied.calls = list(ids)


def _take(
    result: Match, of: Launched, at: Ints, place: Ints, graph: Ints, ids: dict[CapturedCall, int], tied: _Tied
) -> None:  # fmt: skip
    """Ties the records ``at`` these places, each of which is at a ``place`` of the matched sequence."""
    call = np.array([NONE if c is None else ids.setdefault(c, len(ids)) for c in result.call], dtype=np.int64)
    owner = np.array(result.owner, dtype=np.int64)
    tied.call[at] = call[place]
    tied.owner[at] = of.launch[at] * (1 + max(result.owner)) + owner[place]
    tied.fitting += np.bincount(graph, minlength=len(tied.source)) * round(result.confidence * 1e6)
    source = NODES if of.nodes and result.source == CAPTURE else result.source
    tied.source[int(graph[0])] = tied.source[int(graph[0])] or source


def _key(of: Launched, sequence: int, known: Known) -> str | None:
    """The one log that the hook names for a sequence; None where any capture may be its own."""
    seen = int(of.seen[of.first[sequence]])
    return None if known.replays is None or seen < 0 else known.replays.graphs[seen][1]


def _graphs(records: Records, of: Launched, graph: Ints, names: list[str], of_launch: Ints, tied: _Tied) -> list[Graph]:
    duration, count = records.duration[of.order], len(names)
    total = _sums(graph, duration, count)
    attributed_ns = _sums(graph, np.where(tied.call >= 0, duration, 0), count)
    members = np.bincount(graph, minlength=count).tolist()
    launches = np.bincount(of_launch, minlength=count).tolist()
    _, first = np.unique(graph, return_index=True)
    device = records.device[of.order[first]].tolist()
    return [
        Graph(
            device=device[i],
            name=name,
            launches=launches[i],
            records=members[i],
            total_ns=total[i],
            attributed_ns=attributed_ns[i],
            source=tied.source[i],
            confidence=None if tied.source[i] is None else min(1.0, int(tied.fitting[i]) / 1e6 / members[i]),
        )
        for i, name in enumerate(names)
    ]


def _sums(owner: Ints, values: Ints, count: int) -> list[int]:
    """Exact sums by owner."""
    result = np.zeros(count, dtype=np.int64)
    np.add.at(result, owner, values)
    listed: list[int] = result.tolist()
    return listed


def _with_ops(
    records: Records, of: Launched, graph: Ints, names: list[str], tied: _Tied, columns: Columns, host: Host
) -> Records:
    """The records with op, inputs, phase and part of the model of their calls; and with their graph."""
    graphs = np.full(len(records.duration), NONE, dtype=np.int64)
    graphs[of.order] = graph
    op, inputs, row = records.op.copy(), records.inputs.copy(), records.op_row.copy()
    phase, module, linked = records.phase.copy(), records.module.copy(), records.linked.copy()
    told_apart = records.told_apart.copy()
    op[of.order] = np.array([columns.names[f"{name}, unattributed"] for name in names], dtype=np.int64)[graph]
    inputs[of.order], told_apart[of.order] = NONE, records.grid[of.order]
    known = tied.call >= 0
    rows, call = of.order[known], tied.call[known]
    if len(rows):
        op[rows] = np.array([columns.names[c.op] for c in tied.calls], dtype=np.int64)[call]
        inputs[rows] = np.array([_inputs(columns, c) for c in tied.calls], dtype=np.int64)[call]
        row[rows] = _ABSENT + tied.owner[known]
        phases = np.array([NONE if c.phase is None else PHASES.index(c.phase) for c in tied.calls], dtype=np.int64)
        phase[rows] = np.where(phases[call] >= 0, phases[call], phase[rows])
        modules = np.array([_module(host, c) for c in tied.calls], dtype=np.int64)
        module[rows] = np.where(modules[call] >= 0, modules[call], module[rows])
        linked[rows] = True
        told_apart[rows] = np.where(inputs[rows] >= 0, NONE, told_apart[rows])
    return replace(
        records, op=small(op), inputs=small(inputs), op_row=small(row), phase=small(phase), module=small(module),
        told_apart=small(told_apart), linked=linked, graph=small(graphs),
    )  # fmt: skip


def _inputs(columns: Columns, call: CapturedCall) -> int:
    if call.shapes is None:
        return NONE
    texts = (call.shapes, call.dtypes, call.strides, call.concrete)
    return columns.inputs[b"\0".join((text or "").encode("utf-8", "replace") for text in texts)]


def _module(host: Host, call: CapturedCall) -> int:
    if call.module is None:
        return NONE
    texts = host.ranges.texts
    if call.module not in texts:
        texts.append(call.module)
    return texts.index(call.module)
