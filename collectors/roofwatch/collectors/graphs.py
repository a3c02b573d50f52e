"""Which op each kernel of a replayed graph belongs to, from what was recorded while the graph was captured. Pure.

A graph launch is one call: its kernels have no ops of their own. While it was captured, there were ops. Two records of
that may exist: a profile of the capture (every launch with the op around it, on ROCm with the kernel's name too), and
the hook's log of the ops themselves, without launches. Both are a sequence of elements, and the replay's kernels are
laid along it in order (``alignment``), by kernel name where the element has one, else by kind.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from roofwatch.collectors.alignment import FORBIDDEN, NONE, Assignment, Costs, assign
from roofwatch.model.formulas.views import VIEWS
from roofwatch.model.kinds import Kind, kind_of_kernel, kind_of_op
from roofwatch.model.record import Phase

CAPTURE, LOG = "capture", "log"  # where elements are from
MIN_CONFIDENCE = 0.5  # of less than half of a graph that fits, the fitting part is chance (every model has fills)
MIN_LIKENESS = 0.3  # of counts alone, before anything is laid along anything
TRIED = 4  # most alike sequences that are laid along one replay
MAX_PAIRS = 250_000  # of different kernels and different elements; a model has a few hundred of each
MAX_KERNELS = 20_000  # of a launch; a whole training step has a few thousand
CLEAR = 3  # margin from which a kernel is attributed: less is one weak preference among others

# Scores, in quarters of the penalty for leaving a kernel out.
_SAME, _NEAR, _CUSTOM, _WORD = 8, 4, 1, 4
_OUT, _OUT_TRITON, _AGAIN = -4, -1, -4
_SKIP, _SKIP_UNSURE = -6, -2

# Kinds that stand for each other in names: a cast runs as "unrolled_elementwise_kernel", a clone as a copy functor.
_POINTWISE = frozenset(
    {
        Kind.ELEMENTWISE, Kind.ACTIVATION, Kind.CAST, Kind.COPY_FILL, Kind.LAYOUT, Kind.RANDOM, Kind.ROPE,
        Kind.GATHER_SCATTER, Kind.OPTIMIZER,
    }
)  # fmt: skip
_REDUCING = frozenset({Kind.REDUCTION, Kind.NORM, Kind.SOFTMAX, Kind.LOSS, Kind.SORT_TOPK, Kind.POOLING})
_PRODUCTS = frozenset({Kind.MATMUL, Kind.GROUPED_MATMUL, Kind.CONV, Kind.ATTENTION, Kind.MOE})
_FAMILIES = (_POINTWISE, _REDUCING, _PRODUCTS)
_COMPOUND = frozenset({Kind.MOE, Kind.ATTENTION, Kind.SORT_TOPK, Kind.COMM_COMPUTE})  # of kernels of many kinds
# A further kernel of any op: a fill, a relayout, the second stage of a reduction.
_HELPERS = frozenset({Kind.COPY_FILL, Kind.LAYOUT, Kind.CAST, Kind.REDUCTION, Kind.ELEMENTWISE})
_UNSURE = frozenset({None, Kind.COPY_FILL, Kind.CAST, Kind.LAYOUT, Kind.OTHER})
_NO_SCORES = (np.empty((0, 0), dtype=np.int32),) * 2 + (np.empty(0, dtype=np.int32),) * 2
_TELLING = (Kind.MATMUL, Kind.CONV, Kind.ATTENTION, Kind.NORM, Kind.SOFTMAX, Kind.GROUPED_MATMUL, Kind.MOE)


@dataclass(frozen=True, slots=True)
class CapturedCall:
    """One call of an op while a graph was captured; texts as Kineto writes them."""

    op: str
    shapes: str | None = None
    dtypes: str | None = None
    strides: str | None = None
    concrete: str | None = None
    phase: Phase | None = None  # None: not told
    module: str | None = None


@dataclass(frozen=True, slots=True)
class Captured:
    """What was recorded while one graph was captured: elements in order, each a launch, or an op of a log."""

    source: str  # CAPTURE | LOG
    calls: tuple[CapturedCall, ...]
    order: tuple[int, ...]  # the call of each element; NONE where a launch was in no op
    kernels: tuple[str | None, ...]  # the kernel of each element, where told
    owner: tuple[int, ...] = ()  # the first element of the op that launched each; () where each has its own
    key: str | None = None  # of a log


@dataclass(frozen=True, slots=True)
class Replays:
    """What the hook saw of replays in a window."""

    graphs: tuple[tuple[int, str | None], ...]  # the number of each graph in its process, and its log's key
    threads: dict[int, tuple[tuple[int, int], ...]]  # thread id → nanoseconds from the opening, position in ``graphs``


@dataclass(frozen=True, slots=True)
class Known:
    """What is known of graphs beside the trace that replays them."""

    captured: tuple[Captured, ...] = ()
    replays: Replays | None = None


NOTHING = Known()


@dataclass(frozen=True, slots=True)
class Match:
    """Kernels of a replay tied to calls; NONE and None where a kernel could not be tied.

    ``owner`` tells calls of one op apart: kernels with one owner were launched by one call.
    """

    source: str
    confidence: float  # share of the kernels, and of the captured launches, that fit each other
    owner: tuple[int, ...]
    call: tuple[CapturedCall | None, ...]


@dataclass(frozen=True, slots=True)
class Shape:
    """Captures that launch the same: the same kernels from the same ops, whatever the inputs (batch sizes, say)."""

    captures: list[Captured]
    ops: tuple[str | None, ...]
    kept: tuple[int, ...]  # positions of the elements that may launch something
    names: Counter[str] | None  # of the kernels, where all are told
    kinds: Counter[Kind]  # of the ops

    @property
    def first(self) -> Captured:
        """One of them; they differ in inputs only."""
        return self.captures[0]


def prepare(captures: Iterable[Captured]) -> list[Shape]:
    """What ``match`` needs of captures, once for any number of replays."""
    shapes: dict[tuple[object, ...], Shape] = {}
    for captured in captures:
        ops = tuple(captured.calls[call].op if call >= 0 else None for call in captured.order)
        key = (captured.source, captured.kernels, ops)
        if key not in shapes:
            kept = tuple(i for i, op in enumerate(ops) if captured.source != LOG or op not in VIEWS)
            told = [captured.kernels[i] for i in kept]
            names = [name for name in told if name is not None]
            kinds = Counter(kind for i in kept if (kind := kind_of_op(ops[i] or "")) is not None)
            shapes[key] = Shape([], ops, kept, Counter(names) if len(names) == len(told) > 0 else None, kinds)
        shapes[key].captures.append(captured)
    return list(shapes.values())


def match(kernels: Sequence[str], shapes: Sequence[Shape]) -> Match | None:
    """The capture that a replay's kernels, in order, fit best; None where none fits well enough.

    Where several fit equally well, only what they agree on is told: the op without its inputs, if these differ.
    """
    if not kernels or len(kernels) > MAX_KERNELS:
        return None
    found = [(shape, *_lay(kernels, shape)) for shape in _alike(kernels, shapes)]
    best = max((confidence for *_, confidence in found), default=0.0)
    if best < MIN_CONFIDENCE:
        return None
    tied = [(shape, element) for shape, element, confidence in found if confidence == best]
    shape, element = tied[0]
    call = [_agreed([_calls_at(s, e[i]) for s, e in tied]) for i in range(len(kernels))]
    owner = shape.first.owner or range(len(shape.first.order))
    owned = (owner[at] if at >= 0 and told is not None else NONE for at, told in zip(element, call, strict=True))
    return Match(shape.first.source, best, tuple(owned), tuple(call))


def _alike(kernels: Sequence[str], shapes: Sequence[Shape]) -> list[Shape]:
    """The few shapes most like the replay, by counts alone."""
    names = Counter(kernels)
    kinds = Counter(kind_of_kernel(kernel) for kernel in kernels)
    rated = [(_likeness(names, kinds, len(kernels), shape), i) for i, shape in enumerate(shapes)]
    rated = sorted((-likeness, i) for likeness, i in rated if likeness >= MIN_LIKENESS)
    return [shapes[i] for _, i in rated[:TRIED]]


def _likeness(names: Counter[str], kinds: Counter[Kind], count: int, shape: Shape) -> float:
    if shape.names is not None:
        return (names & shape.names).total() / max(count, len(shape.kept))
    if shape.first.source != LOG:
        return min(count, len(shape.kept)) / max(count, len(shape.kept), 1)
    pairs = [(kinds[kind], shape.kinds[kind]) for kind in _TELLING]
    most = sum(max(pair) for pair in pairs)
    return sum(min(pair) for pair in pairs) / most if most else 1.0


def _lay(kernels: Sequence[str], shape: Shape) -> tuple[list[int], float]:
    """The element of each kernel, and the share that fits."""
    if shape.first.kernels == tuple(kernels):
        return list(range(len(kernels))), 1.0
    assignment = _assigned(kernels, shape)
    clear = (assignment.element >= 0) & (assignment.margin >= CLEAR)
    kept = np.array(shape.kept, dtype=np.int64)
    element = np.where(clear, kept[assignment.element] if len(kept) else NONE, NONE)
    used = np.unique(element[element >= 0])
    if shape.first.source == LOG:
        due = [i for i in shape.kept if kind_of_op(shape.ops[i] or "") not in _UNSURE]
        covered = len(np.intersect1d(used, due)) / len(due) if due else 1.0
    else:
        covered = len(used) / len(kept) if len(kept) else 0.0
    return element.tolist(), min(int(clear.sum()) / len(kernels), covered)


def _assigned(kernels: Sequence[str], shape: Shape) -> Assignment:
    captured = shape.first
    names: dict[str, int] = {}
    kernel_class = np.array([names.setdefault(name, len(names)) for name in kernels], dtype=np.int64)
    classes: dict[tuple[str | None, str | None], int] = {}
    element_class = np.array(
        [classes.setdefault((shape.ops[i], captured.kernels[i]), len(classes)) for i in shape.kept], dtype=np.int64
    )
    group = np.array([captured.order[i] for i in shape.kept], dtype=np.int64)
    if len(names) * len(classes) > MAX_PAIRS:
        return assign(kernel_class, element_class[:0], group, Costs(*_NO_SCORES))
    return assign(kernel_class, element_class, group, _costs(list(names), list(classes), captured.source == LOG))


def _costs(names: Sequence[str], classes: Sequence[tuple[str | None, str | None]], log: bool) -> Costs:
    kinds = [kind_of_kernel(name) for name in names]
    words = [name.lower() for name in names]
    first = np.empty((len(names), len(classes)), dtype=np.int32)
    again = np.full_like(first, FORBIDDEN)
    skip = np.empty(len(classes), dtype=np.int32)
    for column, (op, kernel) in enumerate(classes):
        kind = None if op is None else kind_of_op(op)
        word = "" if op is None else op.rpartition("::")[2].strip("_")
        skip[column] = _SKIP_UNSURE if log and kind in _UNSURE and kernel is None else _SKIP
        for row, name in enumerate(names):
            if kernel is not None:
                first[row, column] = _SAME + _WORD if kernel == name else FORBIDDEN
                continue
            score = _score(kind, kinds[row], name, op or "", log)
            hinted = len(word) > 2 and score > 0 and word in words[row]
            first[row, column] = score + (_WORD if hinted else 0)
            if log:
                again[row, column] = _again(score, kind, kinds[row])
    unmatched = np.array([_OUT_TRITON if log and n.startswith("triton_") else _OUT for n in names], dtype=np.int32)
    return Costs(first, again, unmatched, skip)


def _score(op: Kind | None, kernel: Kind, name: str, text: str, log: bool) -> int:
    """How well a kernel of one kind fits an op of another, where the op is known and its kernels are not."""
    if log and name.startswith("triton_") and text.startswith("aten::"):
        return FORBIDDEN  # compiled code launches these itself; torch's own ops do not
    if op is None or op is Kind.OTHER or kernel is Kind.OTHER:
        return _CUSTOM
    if op is kernel:
        return _SAME
    if any(op in family and kernel in family for family in _FAMILIES):
        return _NEAR
    if not log:
        return -_NEAR  # one launch is one kernel, whatever it is called
    return _CUSTOM if op in _COMPOUND else 0 if kernel in _HELPERS else FORBIDDEN


def _again(score: int, op: Kind | None, kernel: Kind) -> int:
    """The same for a further kernel of that op."""
    if op is None or op in _COMPOUND or score == FORBIDDEN:
        return score
    return max(score + _AGAIN, 0 if kernel in _HELPERS else FORBIDDEN)


def _calls_at(shape: Shape, element: int) -> list[CapturedCall | None]:
    if element < 0:
        return [None]
    called = [(captured, captured.order[element]) for captured in shape.captures]
    return [captured.calls[call] if call >= 0 else None for captured, call in called]


def _agreed(found: Sequence[Sequence[CapturedCall | None]]) -> CapturedCall | None:
    """What all captures that fit equally well say of one kernel."""
    calls = {call for calls in found for call in calls}
    first = next(iter(calls))
    if len(calls) == 1 or first is None:
        return first if len(calls) == 1 else None
    known = [call for call in calls if call is not None]
    if len(known) < len(calls) or any(call.op != first.op for call in known):
        return None
    phase = first.phase if all(call.phase is first.phase for call in known) else None
    return CapturedCall(first.op, phase=phase)
