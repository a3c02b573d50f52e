"""Shapes from a window that recorded them, for one of the same process that did not.

A window without shapes costs the job a third. Where each thread makes the same ops in each step, and each op launches
the same kernels on the same grids, what an op worked on in the window with shapes it works on in this one. The check is
of whole sequences: one op or kernel that differs, anywhere, and nothing is lent. What a window lends is one step, and
only if all its steps are alike to the last shape. Names of ops alone tell nothing of shapes (another batch size has the
same), so a window of a CPU, in which no kernel tells its grid, lends nothing. Nor does a grid tell values (the longest
of packed sequences): those that differ in two windows, one after the other, are not lent.
"""

from __future__ import annotations

import json
import zlib
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

import numpy as np

from roofwatch.collectors.base import BORROWED, CHANGED
from roofwatch.collectors.kineto.link import launches_of
from roofwatch.collectors.kineto.messages import told_by
from roofwatch.collectors.kineto.nesting import Nest, nest

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from roofwatch.collectors.kineto.columns import Columns

    Ints = NDArray[np.int64]

MOST_OPS = 60_000  # of a step: as many events as a window has
MOST_BYTES = 8 << 20  # of a step as text
MOST_PACKED = 1 << 20
_CONCRETE = 3  # which of the inputs' four parts
_KERNEL_COLUMNS = ("sort", "grid", "grid_x", "grid_y", "block", "bytes")


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a window of whole steps has to do with others: lend what it has, or borrow what another has lent.

    One that lends is given what the one before lent.
    """

    steps: int
    lend: bool = False
    lent: bytes = b""


@dataclass(frozen=True, slots=True)
class Line:
    """One thread's step: by op its name, how far before it its parent stands, its inputs; and kernels by op."""

    names: list[str]
    parents: list[int]
    inputs: list[bytes]
    kernels: list[tuple[int, int]]  # which op of the step, hash of what was launched; in order of launching


def lend(columns: Columns, steps: int, before: bytes = b"") -> bytes:
    """The one step that all of a window's steps are, packed; empty where they differ, or there is too much of it.

    ``before``: what the window before lent. Values that were others there are left out.
    """
    lines = _lines(columns, steps)
    if lines is None or not _checkable(lines):
        return b""
    known = (_unpacked(before) if before else None) or {}
    return _packed({tid: _lasting(line, known[tid]) if tid in known else line for tid, line in lines.items()})


def _lasting(line: Line, before: Line) -> Line:
    if line.names != before.names:
        return line
    pairs = zip(line.inputs, before.inputs, strict=True)
    return replace(line, inputs=[now if now == then else _without_values(now) for now, then in pairs])


def _without_values(text: bytes) -> bytes:
    return b"\0".join((*text.split(b"\0")[:_CONCRETE], b""))


def borrow(columns: Columns, steps: int, lent: bytes) -> str:
    """Give each op the inputs it has in the lent step. Says whether that could be done; if not, nothing is changed."""
    known = _unpacked(lent)
    if known is None or not _checkable(known):
        return CHANGED
    inputs = np.array(columns.ops["inputs"], dtype=np.int64)
    found = _threads(columns)
    if {tid for tid, _ in found} != set(known):
        return CHANGED
    nested = _nested(columns)
    launched = _launched(columns, nested)
    for tid, thread in found:
        where = nested.of_thread(thread)
        rows, line = nested.order[where], known[tid]
        if len(rows) != steps * len(line.names) or not _same(columns, nested, where, line, steps):
            return CHANGED
        if not _same_kernels(launched, where, line, steps):
            return CHANGED
        ids = np.array([columns.inputs[text] for text in line.inputs], dtype=np.int64)
        inputs[rows] = np.tile(ids, steps)
    columns.ops.put("inputs", inputs)
    return BORROWED


def _checkable(lines: dict[str, Line]) -> bool:
    """Whether kernels tell another shape from this one."""
    return any(line.kernels for line in lines.values())


def _nested(columns: Columns) -> Nest:
    ops = columns.ops
    return nest(ops["thread"], ops["start"], ops["end"])


def _threads(columns: Columns) -> list[tuple[str, int]]:
    """The threads that have ops: as the system calls them, and as the columns do."""
    return [(str(columns.threads.values_seen[t][-1]), int(t)) for t in np.unique(columns.ops["thread"])]


def _offsets(nested: Nest, where: slice) -> Ints:
    parent = nested.parent[where]
    own = np.arange(where.start, where.stop)
    offsets: Ints = np.where(parent >= 0, own - parent, 0)
    return offsets


def _same(columns: Columns, nested: Nest, where: slice, line: Line, steps: int) -> bool:
    """Whether a thread's ops are the line's, in each step."""
    names = columns.names.values_seen
    ids = columns.ops["name"][nested.order[where]].reshape(steps, -1)
    if not (ids == ids[0]).all() or [names[i] for i in ids[0].tolist()] != line.names:
        return False
    offsets = _offsets(nested, where).reshape(steps, -1)
    return bool((offsets == np.array(line.parents, dtype=np.int64)).all())


@dataclass(frozen=True, slots=True)
class _Launched:
    """Device records by launch: position of the op that launched each, and a hash of what it is."""

    position: Ints
    what: list[int]


def _launched(columns: Columns, nested: Nest) -> _Launched:
    """In order of launching. Records launched before the window, or outside any op, tell nothing about ops."""
    device = columns.device
    if not len(device):
        return _Launched(np.empty(0, dtype=np.int64), [])
    launches = launches_of(columns)
    position = nested.at(launches.thread, launches.time)
    order = np.lexsort((np.arange(len(device)), device["start"], launches.time))
    order = order[(launches.row[order] >= 0) & (position[order] >= 0)]
    names = columns.names.values_seen
    told = zip(device["name"][order].tolist(), *(device[c][order].tolist() for c in _KERNEL_COLUMNS), strict=True)
    seen: dict[tuple[int, ...], int] = {}
    what = [seen.setdefault(key, _hash(names[key[0]], key[1:])) if key not in seen else seen[key] for key in told]
    return _Launched(position[order], what)


def _hash(name: str, figures: tuple[int, ...]) -> int:
    text = f"{name}\0{figures}".encode("utf-8", "replace")
    return int.from_bytes(blake2b(text, digest_size=6).digest(), "big")


def _kernels(launched: _Launched, where: slice, length: int) -> list[list[tuple[int, int]]]:
    """By step: which op of it launched what."""
    steps: list[list[tuple[int, int]]] = [[] for _ in range((where.stop - where.start) // length)]
    mine = np.flatnonzero((launched.position >= where.start) & (launched.position < where.stop))
    for at in mine.tolist():
        step, op = divmod(int(launched.position[at]) - where.start, length)
        steps[step].append((op, launched.what[at]))
    return steps


def _same_kernels(launched: _Launched, where: slice, line: Line, steps: int) -> bool:
    """Whether each step launched what the line has; the last may lack what the device had not done when it ended."""
    found = _kernels(launched, where, len(line.names))
    return (
        all(step == line.kernels for step in found[:-1])
        and found[-1] == line.kernels[: len(found[-1])]
        and (len(found[-1]) == len(line.kernels) or steps > 1)
    )


def _lines(columns: Columns, steps: int) -> dict[str, Line] | None:
    """Each thread's step; None where a thread's steps are not alike, or nothing was recorded of inputs."""
    if not len(columns.ops) or len(columns.ops) > MOST_OPS * steps or steps < 1 or _told_by_inputs(columns):
        return None
    nested, names, texts = _nested(columns), columns.names.values_seen, columns.inputs.values_seen
    launched = _launched(columns, nested)
    lines = {}
    for tid, thread in _threads(columns):
        where = nested.of_thread(thread)
        rows = nested.order[where]
        if len(rows) % steps:
            return None
        length = len(rows) // steps
        ids = columns.ops["name"][rows].reshape(steps, length)
        offsets = _offsets(nested, where).reshape(steps, length)
        inputs = _inputs(columns.ops["inputs"][rows].reshape(steps, length), texts)
        kernels = _kernels(launched, where, length)
        whole = kernels[0]
        alike = (ids == ids[0]).all() and (offsets == offsets[0]).all()
        if inputs is None or not alike or not all(each == whole for each in kernels[1:-1]):
            return None
        if kernels[-1] != whole[: len(kernels[-1])] or tid in lines:
            return None
        lines[tid] = Line([names[i] for i in ids[0].tolist()], offsets[0].tolist(), inputs, whole)
    return lines


def _told_by_inputs(columns: Columns) -> bool:
    """Whether only an op's inputs tell the size of a collective: that is read with the events, before any borrowing."""
    texts = columns.messages.told.values_seen
    told = [told_by(text, None) for text in texts]
    themselves = {one.collective for one in told if one.by_args}
    without = (told_by(b"\0".join((*text.split(b"\0")[:2], b"", b"")), None) for text in texts)
    return any(a != b and a.collective not in themselves for a, b in zip(told, without, strict=True))


def _inputs(ids: Ints, texts: list[bytes]) -> list[bytes] | None:
    """The inputs of each op of a step, without values that change from step to step; None where shapes change."""
    result = []
    for column in ids.T.tolist():
        parts = [texts[i].split(b"\0") if i >= 0 else [] for i in dict.fromkeys(column)]
        first = parts[0]
        if any(other[:_CONCRETE] != first[:_CONCRETE] or len(other) != len(first) for other in parts[1:]):
            return None
        whole = b"\0".join(first)
        result.append(whole if len(parts) == 1 else _without_values(whole))
    return result if any(text.strip(b"\0") for text in result) else None


def digest(packed: bytes) -> bytes:
    """The same for two windows whose step is the same, whatever values (of scalars) it had. Pure text work."""
    lines = _unpacked(packed)
    if lines is None:
        return b""
    told = [
        [tid, line.names, line.parents, [_shapes_of(text) for text in line.inputs], line.kernels]
        for tid, line in sorted(lines.items())
    ]
    return blake2b(json.dumps(told).encode(), digest_size=16).digest()


def _shapes_of(text: bytes) -> str:
    return b"\0".join(text.split(b"\0")[:_CONCRETE]).decode("latin-1")


def _packed(lines: dict[str, Line]) -> bytes:
    names: dict[str, int] = {}
    inputs: dict[bytes, int] = {}
    told: dict[str, Any] = {}
    for tid, line in lines.items():
        told[tid] = [
            [names.setdefault(name, len(names)) for name in line.names],
            line.parents,
            [inputs.setdefault(text, len(inputs)) for text in line.inputs],
            line.kernels,
        ]
    body = {"names": list(names), "inputs": [text.decode("latin-1") for text in inputs], "threads": told}
    text = json.dumps(body, separators=(",", ":")).encode()
    packed = zlib.compress(text, 1) if len(text) <= MOST_BYTES else b""
    return packed if len(packed) <= MOST_PACKED else b""


def _unpacked(packed: bytes) -> dict[str, Line] | None:
    """What ``_packed`` made; None for what it did not. A worker that had read a hostile trace may have made it."""
    try:
        stream = zlib.decompressobj()
        text = stream.decompress(packed, MOST_BYTES + 1)
        if len(text) > MOST_BYTES or not stream.eof:
            return None
        told = json.loads(text)
        inputs = [entry.encode("latin-1") for entry in told["inputs"]]
        names = told["names"]
        lines = {tid: _line(parts, names, inputs) for tid, parts in told["threads"].items()}
    except (zlib.error, ValueError, KeyError, IndexError, TypeError, AttributeError, RecursionError):
        return None
    return lines


def _line(parts: Any, names: list[Any], inputs: list[bytes]) -> Line:
    ops, parents, shapes, kernels = parts
    if not len(ops) == len(parents) == len(shapes) <= MOST_OPS or not ops:
        raise ValueError("lines of unequal length")
    if not all(type(n) is int and n >= 0 for n in (*ops, *parents, *shapes)):
        raise ValueError("not a number")
    return Line([names[n] for n in ops], parents, [inputs[n] for n in shapes], [(int(op), int(k)) for op, k in kernels])
