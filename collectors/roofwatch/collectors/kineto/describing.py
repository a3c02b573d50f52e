"""Which op says what the work of a launch was, and from which call of it the inputs are.

The launching op is sometimes not the one with the shapes. Looked at, in this order:

1. the innermost op around the launch that recorded inputs;
2. if there is no formula for it, the nearest op around it that has one, inputs, and no other such op within: its work
   is done by what was launched inside;
3. if nothing around the launch has inputs, the op that ended just before it under the same parent, provided that it is
   no op of aten's own, launched nothing itself and is near: a library's record of the one call that follows;
4. for a node of autograd, the forward op of the same sequence number and name: its inputs, not the gradients', tell the
   work.

Each step is taken only where it leaves one answer; else the op stays without inputs.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from roofwatch.collectors.kineto import calls
from roofwatch.collectors.kineto.nesting import NONE, Nest, begun_before
from roofwatch.model.formulas import views
from roofwatch.model.formulas.table import formula_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from roofwatch.collectors.kineto.columns import Columns

    Ints = NDArray[np.int64]
    Mask = NDArray[np.bool_]

_NODE = re.compile(r"\A(?:autograd::engine::evaluate_function: )?(\w+?)Backward\d*\Z")
_DEEPEST = 64  # wrappers of wrappers around one launch
NEAR_NS = 50_000  # between a library's record of a call and its launch: more is time for calls that left no record


@dataclass(frozen=True, slots=True)
class Described:
    """For each launch: the op (position, NONE where there is none) and the call (row of ops) whose inputs tell."""

    op: Ints
    inputs: Ints


@dataclass(frozen=True, slots=True)
class Ops:
    """The nested ops of a trace with what is asked of them, by position."""

    columns: Columns
    nested: Nest
    good: Mask  # recorded inputs
    name: Ints
    counted: Mask  # a formula counts their work

    def mask(self, test: calls.Test) -> Mask:
        """For each op whether its name passes."""
        return calls.mask(self.columns.names.values_seen, test)[self.name]


def ops_of(columns: Columns, nested: Nest, has_inputs: Mask) -> Ops:
    """``has_inputs`` by inputs id."""
    name = columns.ops["name"][nested.order]
    counted = calls.mask(columns.names.values_seen, _is_counted)[name]
    return Ops(columns, nested, has_inputs[columns.ops["inputs"][nested.order]], name, counted)


def describe(ops: Ops, inner: Ints, thread: Ints, time: Ints) -> Described:
    """``inner``: position of the innermost op around each launch at ``time`` on ``thread``."""
    if not len(ops.good):
        return Described(inner, inner)
    op = _outwards(ops, inner, time, ops.good)
    op = _counted_around(ops, op, time)
    bare = (op >= 0) & ~ops.good[op]
    if bare.any():
        op = np.where(bare, _just_before(ops, inner, thread, time, bare), op)
    inputs = np.where(op >= 0, ops.nested.order[op], NONE)
    return Described(op, _of_forward(ops, op, inputs))


def _outwards(ops: Ops, inner: Ints, time: Ints, good: Mask) -> Ints:
    """The nearest op outwards for which ``good`` holds, else ``inner``."""
    result = inner.copy()
    (asking,) = np.nonzero(inner >= 0)
    at = inner[asking]
    while len(asking):
        found = good[at]
        result[asking[found]] = at[found]
        asking, at = asking[~found], at[~found]
        at = ops.nested.enclosing(at, time[asking])
        asking, at = asking[at >= 0], at[at >= 0]
    return result


def _counted_around(ops: Ops, op: Ints, time: Ints) -> Ints:
    """The nearest op around that a formula counts, where none counts ``op`` itself nor anything else inside."""
    known = ops.good & (ops.counted | ops.mask(calls.is_communication_call))
    (asking,) = np.nonzero((op >= 0) & ~known[op])
    asking = asking[ops.good[op[asking]]]
    if not len(asking) or not ops.counted.any():
        return op
    around = _outwards(ops, op[asking], time[asking], ops.counted & ops.good)
    at = np.unique(around)
    last = begun_before(ops.nested, ops.nested.thread[at], ops.nested.end[at])
    counted = np.concatenate([[0], np.cumsum(ops.counted & ops.good)])
    alone = np.zeros(len(ops.good), dtype=np.bool_)
    alone[at] = counted[last + 1] - counted[at + 1] == 0
    result = op.copy()
    taken = ops.counted[around] & alone[around]
    result[asking[taken]] = around[taken]
    return result


def _just_before(ops: Ops, inner: Ints, thread: Ints, time: Ints, bare: Mask) -> Ints:
    """The op that ended last under the same parent before each launch that is ``bare``, where it may stand for it."""
    child = begun_before(ops.nested, thread, time)
    for _ in range(_DEEPEST):
        deeper = bare & (child > inner) & (ops.nested.parent[child] != inner)
        if not deeper.any():
            break
        child = np.where(deeper, ops.nested.parent[child], child)
    may = ops.good & ~ops.mask(_is_atens) & ~_launching(ops, inner)
    (near,) = np.nonzero(bare & (child > inner) & (ops.nested.parent[child] == inner) & may[child])
    near = near[time[near] - ops.nested.end[child[near]] <= NEAR_NS]
    result = inner.copy()
    order = near[np.lexsort((time[near], child[near]))]
    first = np.append(True, child[order][1:] != child[order][:-1])[: len(order)]  # what follows it may be anything
    result[order[first]] = child[order[first]]
    return result


def _launching(ops: Ops, inner: Ints) -> Mask:
    """Whether an op, or one inside it, launched a record. Parents stand before their children."""
    flags = np.zeros(len(ops.good), dtype=np.bool_)
    flags[inner[inner >= 0]] = True
    listed, parents = flags.tolist(), ops.nested.parent.tolist()
    for at in range(len(listed) - 1, -1, -1):
        if listed[at] and parents[at] >= 0:
            listed[parents[at]] = True
    return np.array(listed, dtype=np.bool_)


def _of_forward(ops: Ops, op: Ints, inputs: Ints) -> Ints:
    """The forward op's call for launches that a node of autograd made itself, where there is exactly one such call."""
    names: Sequence[str] = ops.columns.names.values_seen
    sequence, name = ops.columns.ops["sequence"], ops.columns.ops["name"]
    is_node = ops.mask(_NODE.match)
    (asking,) = np.nonzero((op >= 0) & is_node[op])
    asking = asking[sequence[ops.nested.order[op[asking]]] >= 0]
    if not len(asking):
        return inputs
    nodes = np.unique(ops.nested.order[op[asking]])
    wanted = {(int(sequence[row]), _forward_of(names[name[row]])) for row in nodes.tolist()}
    forward = {row: calls_ for row, calls_ in _calls(ops, wanted, ~is_node).items() if calls_ is not None}
    result = inputs.copy()
    for at in asking.tolist():
        row = int(ops.nested.order[op[at]])
        result[at] = forward.get((int(sequence[row]), _forward_of(names[name[row]])), inputs[at])
    return result


def _calls(ops: Ops, wanted: set[tuple[int, str]], may: Mask) -> dict[tuple[int, str], int | None]:
    """(sequence number, name) → the row of the call; None where calls with different inputs share both."""
    names: Sequence[str] = ops.columns.names.values_seen
    order, inputs = ops.nested.order, ops.columns.ops["inputs"]
    sequence = ops.columns.ops["sequence"][order]
    (at,) = np.nonzero(may & ops.good & np.isin(sequence, np.array([number for number, _ in wanted])))
    found: dict[tuple[int, str], int | None] = {}
    for row, number, name in zip(order[at].tolist(), sequence[at].tolist(), ops.name[at].tolist(), strict=True):
        key = (number, _plain(names[name]))
        if key in wanted:
            other = found.setdefault(key, row)
            if other is not None and inputs[other] != inputs[row]:
                found[key] = None
    return found


@lru_cache(maxsize=8192)
def _forward_of(node: str) -> str:
    """The plain name of the op that a node is the backward of: "AddmmBackward0" → "addmm"."""
    found = _NODE.match(node)
    return _plain(found[1]) if found else ""


@lru_cache(maxsize=8192)
def _plain(op: str) -> str:
    return op.rpartition("::")[2].replace("_", "").lower()


def _is_counted(name: str) -> bool:
    formula = formula_of(name)
    return formula is not None and formula is not views.VIEW


def _is_atens(name: str) -> bool:
    return name.startswith(("aten::", "autograd::", "torch::autograd::", "ProfilerStep"))
