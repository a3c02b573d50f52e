"""The graph captures in a trace: launches that began between the begin and the end of a capture and ran nothing.

Kineto writes the runtime's calls during a capture like any others; on ROCm with the kernel's name. The ops around them
say what each was for.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from roofwatch.collectors.graphs import CAPTURE, Captured, CapturedCall
from roofwatch.collectors.kineto import calls
from roofwatch.collectors.kineto.groups import PHASES, Inputs
from roofwatch.collectors.kineto.nesting import NONE

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from roofwatch.collectors.kineto.columns import Columns
    from roofwatch.collectors.kineto.link import Host, Places

    Ints = NDArray[np.int64]
    Mask = NDArray[np.bool_]

MAX_CAPTURES = 2_000
MAX_LAUNCHES = 500_000  # of all captures of a trace


def captured_launches(columns: Columns) -> tuple[Ints, Ints]:
    """Rows of host calls that were captured, in order of time, and the capture of each."""
    nothing = np.empty(0, dtype=np.int64)
    spans = capture_spans(columns)
    if not spans:
        return nothing, nothing
    host = columns.host
    names = columns.names.values_seen
    launching = calls.mask(names, calls.is_launch) & ~calls.mask(names, calls.is_graph_launch)
    (rows,) = np.nonzero(launching[host["name"]] & ~np.isin(host["correlation"], columns.device["correlation"]))
    rows = rows[np.argsort(host["start"][rows], kind="stable")]
    _, first = np.unique(host["correlation"][rows], return_index=True)  # the driver's call inside the runtime's
    rows = rows[np.sort(first)]
    starts = host["start"][rows]
    taken, owner = [], []
    for index, (thread, begin, end) in enumerate(spans):
        own = rows[np.searchsorted(starts, begin) : np.searchsorted(starts, end, side="right")]
        if any(b < end and e > begin for t, b, e in spans[max(0, index - 8) : index + 9] if t != thread):
            own = own[host["thread"][own] == thread]  # several threads capture at once: each its own
        taken.append(own)
        owner.append(np.full(len(own), index, dtype=np.int64))
    return np.concatenate(taken)[:MAX_LAUNCHES], np.concatenate(owner)[:MAX_LAUNCHES]


def capture_spans(columns: Columns) -> list[tuple[int, int, int]]:
    """Thread, begin and end of each capture, by begin. A runtime's call may hold a driver's of the same meaning."""
    host, names = columns.host, columns.names.values_seen
    is_begin, is_end = calls.mask(names, calls.is_capture_begin), calls.mask(names, calls.is_capture_end)
    if not is_begin.any():
        return []
    (rows,) = np.nonzero((is_begin | is_end)[host["name"]])
    open_: dict[int, int] = {}
    spans: list[tuple[int, int, int]] = []
    for row in rows[np.argsort(host["start"][rows], kind="stable")].tolist():
        thread, begins = int(host["thread"][row]), bool(is_begin[host["name"][row]])
        if begins:
            open_.setdefault(thread, int(host["end"][row]))
        elif thread in open_ and len(spans) < MAX_CAPTURES:
            spans.append((thread, open_.pop(thread), int(host["start"][row])))
    return sorted(spans, key=lambda span: span[1])


def captured_in(columns: Columns, host: Host) -> list[Captured]:
    """Every capture in a trace that launched something."""
    rows, owner = captured_launches(columns)
    if not len(rows):
        return []
    places = host.places(columns.host["thread"][rows], columns.host["start"][rows])
    calls_, order = _calls(columns, host, places)
    kernel = columns.host["kernel"][rows]
    edges = np.append(np.flatnonzero(np.diff(owner, prepend=NONE)), len(rows)).tolist()
    return [
        _captured(columns, calls_, order[low:high], kernel[low:high], places.shaped[low:high])
        for low, high in pairwise(edges)
    ]


def _captured(columns: Columns, calls_: list[CapturedCall], order: Ints, kernel: Ints, op_row: Ints) -> Captured:
    used, own = np.unique(order[order >= 0], return_inverse=True)
    local = np.full(len(order), NONE, dtype=np.int64)
    local[order >= 0] = own
    _, first, again = np.unique(op_row, return_index=True, return_inverse=True)
    owner = np.where(op_row >= 0, first[again], np.arange(len(order)))
    names = columns.names.values_seen
    return Captured(
        source=CAPTURE,
        calls=tuple(calls_[i] for i in used.tolist()),
        order=tuple(local.tolist()),
        kernels=tuple(names[i] if i >= 0 else None for i in kernel.tolist()),
        owner=tuple(owner.tolist()),
    )


def _calls(columns: Columns, host: Host, places: Places) -> tuple[list[CapturedCall], Ints]:
    """The different calls that launches were in, and which each launch was in."""
    known = places.shaped >= 0
    order = np.full(len(known), NONE, dtype=np.int64)
    if not known.any():
        return [], order
    shaped, told = places.shaped[known], places.call[known]
    keys = np.stack(
        (
            columns.ops["name"][shaped],
            host.with_shapes(columns.ops["inputs"][told]),
            places.phase[known],
            places.module[known],
        )
    )
    found, inverse = np.unique(keys, axis=1, return_inverse=True)
    order[known] = inverse.reshape(-1)
    inputs = Inputs(columns.inputs.values_seen)
    names, modules = columns.names.values_seen, host.ranges.texts
    result = []
    for op, ins, phase, module in found.T.tolist():
        shapes, dtypes, strides, concrete = inputs[ins]
        part = modules[module] if module >= 0 else None
        result.append(CapturedCall(names[op], shapes, dtypes, strides, concrete, PHASES[phase], part))
    return result, order
