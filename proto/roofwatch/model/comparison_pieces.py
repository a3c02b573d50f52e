"""Pieces of work: what one side did, so that the other side's can be laid beside it.

A piece is an op on inputs, with all kernels that it launched (a product with its split-K reduction is one piece); on
Ascend, where kernels tell their own inputs, a kernel's type on its inputs; a collective by its message; copies by where
from and where to. Pure functions.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import lru_cache
from typing import Any

from roofwatch.model.answer_rows import StatSum
from roofwatch.model.comparison_ops import PRODUCTS, WITH_ADDEND, canonical, unattributed
from roofwatch.model.kinds import Kind, kind_of_op
from roofwatch.model.record import Bound, Phase, Signature, Vendor

COMPUTE, COPY, COMMUNICATION = "compute", "copy", "communication"  # as the timeline tells them apart
# Whose op asked for it itself; what another op needed (a TransData, a Transpose, a Cast) is the layout tax.
_ASKED_FOR = frozenset({Kind.LAYOUT, Kind.CAST, Kind.COPY_FILL})
_TRAINING = frozenset({Phase.BACKWARD, Phase.OPTIMIZER})
_TAX = ("transdata", "transpose", "cast")
_COPIED = re.compile(r"(memset)|(?:Memcpy |copy)\W*([HDP])(?:to|2)([HDP])(?![a-z])", re.IGNORECASE)
MATMUL_OPERANDS = 2
MOST_LEADS = 0.5  # of a piece's time: where less of it is counted, what is counted is not its work

Call = tuple[Fraction, int, int, str | None, str | None]  # calls, FLOPs and bytes of a call, precision, unit


@dataclass(frozen=True, slots=True)
class Piece:
    """One side's time on one piece of work. ``ns``, ``roof_ns`` and ``calls`` are sums over all of the side's units.

    ``work`` is what makes two pieces the same; ``flops`` and ``bytes`` are of a call, None where unknown;
    ``counted`` holds what a roof is computed from.
    """

    sort: str  # compute | copy | communication
    op: str | None
    work: tuple[object, ...]
    kind: Kind
    tax: bool
    optimizer: bool
    ns: int
    calls: Fraction
    flops: int | None = None
    flops_max: int | None = None
    bytes: int | None = None
    roof_ns: float | None = None
    shapes: str | None = None
    dtypes: str | None = None
    names: tuple[str, ...] = ()  # of the op, as recorded
    kernels: tuple[str, ...] = ()  # most time first
    counted: tuple[Call, ...] = ()
    precision: str | None = None
    training: bool = False
    extents: frozenset[tuple[int, int]] = frozenset()  # elements and innermost dimension of each operand
    output: int | None = None  # elements of a product's result

    def part(self, share: Fraction) -> Piece:
        """So much of it; with ``less`` it adds up to the whole."""
        return replace(
            self,
            ns=int(self.ns * share),
            calls=self.calls * share,
            roof_ns=None if self.roof_ns is None else self.roof_ns * float(share),
            counted=tuple((c[0] * share, *c[1:]) for c in self.counted),
        )

    def less(self, part: Piece) -> Piece:
        """What is left of it without a part."""
        rest = self.part(1 - part.calls / self.calls)
        return replace(rest, ns=self.ns - part.ns)


@dataclass(slots=True)
class _Gathered:
    signature: Signature  # of the largest sum
    kind: Kind
    sums: list[StatSum] = field(default_factory=list)


def pieces_of(sums: Iterable[StatSum], *, stepping: bool, phases: bool) -> list[Piece]:
    """The pieces of a side; those without any time are left out.

    ``stepping``: only what was launched inside steps. ``phases``: an optimizer's op is no other's.
    """
    gathered: dict[tuple[object, ...], _Gathered] = {}
    for s in sums:
        if not (s.step_ns if stepping else s.total_ns):
            continue
        key = _key(s, phases=phases)
        held = gathered.setdefault(key, _Gathered(s.signature, s.signature.kind))
        held.sums.append(s)
    return [_piece(key, held.sums, stepping=stepping) for key, held in gathered.items()]


def _key(s: StatSum, *, phases: bool) -> tuple[object, ...]:
    """Sort, op, whether it is layout tax, whether an optimizer's, work: pieces with the same are one."""
    signature = s.signature
    if s.bound is Bound.COPY:
        return COPY, None, False, False, ("copy", _direction(signature.kernel))
    if s.bound is Bound.COMMUNICATION:
        told = json.loads(signature.arguments) if signature.arguments else {}
        name = told.get("collective") if isinstance(told, dict) else None
        if not name:
            return COMMUNICATION, None, False, False, ("kernel", signature.kernel)
        message = ("message", signature.bytes, told.get("dtype"), told.get("group_size"))
        return COMMUNICATION, name, False, False, message
    op = _op(signature, s.vendor)
    tax = _is_tax(signature, s.vendor)
    optimizer = signature.kind is Kind.OPTIMIZER or (phases and signature.phase is Phase.OPTIMIZER)
    return COMPUTE, op, tax, optimizer and not tax, _work(signature, op, s.vendor)


def _direction(kernel: str) -> str:
    found = _COPIED.search(kernel[:200])
    if found is None:
        return kernel
    return "memset" if found[1] else f"{found[2]}to{found[3]}".lower()


def _op(signature: Signature, vendor: Vendor | None) -> str | None:
    op = canonical(signature.op, signature.kernel, vendor, signature.formula)
    if vendor is not Vendor.ASCEND or op not in {"mm", "bmm"}:
        return op
    if signature.shapes is None:  # one type with a bias or without: the op tells
        launched = canonical(signature.op, signature.kernel, None)
        return launched if launched in PRODUCTS else op
    return op if len([shape for shape, _ in _operands(signature) if shape]) <= MATMUL_OPERANDS else WITH_ADDEND[op]


def _is_tax(signature: Signature, vendor: Vendor | None) -> bool:
    """Whether an Ascend kernel only puts an operand into the format, order or dtype that another op's kernel takes."""
    if vendor is not Vendor.ASCEND or not signature.kernel.lower().startswith(_TAX):
        return False
    if signature.kernel.lower().startswith("transdata"):
        return True
    return signature.op is not None and kind_of_op(signature.op) not in {*_ASKED_FOR, None}


Operand = tuple[tuple[int, ...], str]


def _operands(signature: Signature) -> tuple[Operand, ...]:
    return _parsed(signature.shapes, signature.dtypes)


@lru_cache(maxsize=4096)
def _parsed(shapes_text: str | None, dtypes_text: str | None) -> tuple[Operand, ...]:
    """Shapes with their dtypes, lists of tensors taken apart; nothing where they were not recorded or are damaged."""
    try:
        shapes = json.loads(shapes_text) if shapes_text else []
        dtypes = json.loads(dtypes_text) if dtypes_text else []
        found = [(i, shape) for i, one in enumerate(shapes) for shape in _flat(one)]
        told = [str(dtype) for dtype in dtypes] + [""] * len(shapes)
    except (ValueError, TypeError, RecursionError):
        return ()
    return tuple((tuple(shape), told[i]) for i, shape in found)


def _flat(value: Any) -> list[list[int]]:
    if not isinstance(value, list):
        return []
    if all(isinstance(n, int) for n in value):
        return [value]
    return [shape for one in value for shape in _flat(one)]


def _work(signature: Signature, op: str | None, vendor: Vendor | None) -> tuple[object, ...]:
    """What is worked on: a product by its sizes, anything else by its operands, without shapes by the kernel.

    Scalars are left out, and Ascend's vectors of axes: one library passes them as operands, another does not.
    """
    operands = _operands(signature)
    if signature.shapes is None or op is None:
        return "kernel", signature.kernel
    if op in PRODUCTS and (found := _product(signature, operands, vendor)):
        return found
    kept = [
        (shape, dtype)
        for shape, dtype in operands
        if math.prod(shape) > 1 and not (vendor is Vendor.ASCEND and len(shape) == 1 and dtype in {"int32", "int64"})
    ]
    return ("shapes", tuple(kept) or operands)


def _product(signature: Signature, operands: Sequence[Operand], vendor: Vendor | None) -> tuple[object, ...] | None:
    """M, N (in either order) and K · batch from FLOPs and operands' elements: whichever of them is transposed.

    With a = batch·M·K, b = batch·K·N and f = batch·M·N·K: K·batch = a·b/f, M = a/(K·batch), N = b/(K·batch).
    None where they do not fit, as of tiles with padding.
    """
    matrices = [(shape, dtype) for shape, dtype in operands if len(shape) >= MATMUL_OPERANDS]
    if len(matrices) > MATMUL_OPERANDS:
        matrices = matrices[:MATMUL_OPERANDS] if vendor is Vendor.ASCEND else matrices[-MATMUL_OPERANDS:]
    if len(matrices) < MATMUL_OPERANDS:
        return None
    (left, dtype), (right, _) = matrices
    a, b, f = math.prod(left), math.prod(right), (signature.flops or 0) // 2
    if vendor is not Vendor.ASCEND and left[-1] == right[-2]:  # helpers of a product tell no FLOPs, but its shapes
        f = a * right[-1]
    inner = a * b // f if f and a * b % f == 0 else 0
    if not inner or a % inner or b % inner:
        return None
    return ("product", *sorted((a // inner, b // inner)), inner, dtype)


def _piece(key: tuple[object, ...], sums: Sequence[StatSum], *, stepping: bool) -> Piece:
    sort, op, tax, optimizer, work = key
    weighed = [(s.step_ns if stepping else s.total_ns, s) for s in sums]
    if len(weighed) > 1:  # an id is a hash, and not for nothing
        weighed.sort(key=lambda p: (-p[0], p[1].signature.id))
    ns = sum(n for n, _ in weighed)
    counted = [(_calls(s, stepping=stepping), n, s) for n, s in weighed if _is_counted(s)]
    covered = sum(n for _, n, _ in counted) >= MOST_LEADS * ns
    led = counted if covered else []
    calls = _op_calls(led) or max(_calls(s, stepping=stepping) for _, s in weighed)
    lead = weighed[0][1].signature
    return Piece(
        sort=str(sort), op=None if op is None else str(op), work=work if isinstance(work, tuple) else (),
        kind=lead.kind,
        tax=bool(tax), optimizer=bool(optimizer), ns=ns, calls=calls, **_counts(led, calls, lead, str(sort)),
        roof_ns=_roof(led),
        shapes=lead.shapes, dtypes=lead.dtypes,
        names=tuple(dict.fromkeys(name for _, s in weighed if (name := _name(s)))),
        kernels=tuple(dict.fromkeys(s.signature.kernel for _, s in weighed)),
        counted=tuple(
            (n, s.signature.flops or 0, s.signature.bytes or 0, s.signature.precision, s.signature.unit)
            for n, _, s in led
        ),
        precision=next((s.signature.precision for _, _, s in led if s.signature.unit == "matrix"), None),
        training=any(s.signature.phase in _TRAINING for _, s in weighed) or (op is not None and "backward" in str(op)),
        extents=frozenset((math.prod(shape), shape[-1]) for shape, _ in _operands(lead) if math.prod(shape) > 1),
        output=_output(work, lead),
    )  # fmt: skip


def _name(s: StatSum) -> str | None:
    """What its users call it: the op, on Ascend the kernel's type, which says what of an op it does."""
    if s.vendor is Vendor.ASCEND and s.bound is not Bound.COMMUNICATION:
        return s.signature.kernel
    return None if s.signature.op is None or unattributed(s.signature.op) else s.signature.op


def _is_counted(s: StatSum) -> bool:
    return s.signature.flops is not None and s.signature.bytes is not None


def _calls(s: StatSum, *, stepping: bool) -> Fraction:
    return Fraction(s.step_calls if stepping else s.calls)


def _op_calls(led: Sequence[tuple[Fraction, int, StatSum]]) -> Fraction | None:
    """How often the op was called: kernels of one formula stand for each other, those of several ran together.

    On a CPU wrappers that do no work of their own (conv2d around mkldnn_convolution) are records, too.
    """
    if len(led) == 1:
        return led[0][0]
    by_formula: dict[str | None, Fraction] = {}
    working = [one for one in led if one[2].signature.flops or one[2].signature.bytes]
    for calls, _, s in working or led:
        by_formula[s.signature.formula] = by_formula.get(s.signature.formula, Fraction(0)) + calls
    return max(by_formula.values(), default=None)


def _counts(
    led: Sequence[tuple[Fraction, int, StatSum]], calls: Fraction, lead: Signature, sort: str
) -> dict[str, int | None]:
    """FLOPs and bytes of one call of the op."""
    if sort == COMMUNICATION:
        return {"flops": None, "flops_max": None, "bytes": lead.bytes}
    if not led or not calls:
        return {"flops": None, "flops_max": None, "bytes": None}

    if len(led) == 1 and led[0][0] == calls:
        one = led[0][2].signature
        return {"flops": one.flops or 0, "flops_max": one.flops_max, "bytes": one.bytes or 0}

    def a_call(figures: Iterable[Fraction]) -> int:
        return round(sum(figures, Fraction(0)) / calls)

    ranged = any(s.signature.flops_max is not None for _, _, s in led)
    return {
        "flops": a_call(n * (s.signature.flops or 0) for n, _, s in led),
        "flops_max": a_call(n * (s.signature.flops_max or s.signature.flops or 0) for n, _, s in led)
        if ranged
        else None,
        "bytes": a_call(n * (s.signature.bytes or 0) for n, _, s in led),
    }


def _roof(led: Sequence[tuple[Fraction, int, StatSum]]) -> float | None:
    """Roof time of the piece; None where that of any kernel that does its work is unknown."""
    if not led or any(s.roof_total_ns is None for _, _, s in led):
        return None
    return math.fsum((s.roof_total_ns or 0.0) * float(n) / s.calls for n, _, s in led if s.calls)


def _output(work: object, lead: Signature) -> int | None:
    """The elements of a product's result: M · N · batch."""
    if not isinstance(work, tuple) or not work or work[0] != "product":
        return None
    batch = next((math.prod(shape[:-2]) for shape, _ in _operands(lead) if len(shape) > MATMUL_OPERANDS), 1)
    return int(work[1] * work[2] * batch)
