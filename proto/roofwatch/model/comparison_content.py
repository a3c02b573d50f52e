"""What a signature alone says of the piece of work that it belongs to: found once, and remembered. Pure functions.

A store is asked for the same signatures again and again, and to read their shapes takes longer than to match them: so
what depends on nothing but a signature, the vendor and what the timeline calls it is kept, for so many signatures.
"""

from __future__ import annotations

import json
import math
import re
import threading
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any, cast

from roofwatch.model.comparison_ops import FAMILIES, PRODUCTS, WITH_ADDEND, canonical, unattributed
from roofwatch.model.interned import Interned, interned
from roofwatch.model.kinds import Kind, kind_of_op
from roofwatch.model.record import Bound, Phase, Signature, Vendor

COMPUTE, COPY, COMMUNICATION = "compute", "copy", "communication"  # as the timeline tells them apart
MODEL_KINDS = frozenset({Kind.MATMUL, Kind.GROUPED_MATMUL, Kind.CONV, Kind.ATTENTION})
MOST = 16_000  # signatures remembered: about 30 MB
# Whose op asked for it itself; what another op needed (a TransData, a Transpose, a Cast) is the layout tax.
_ASKED_FOR = frozenset({Kind.LAYOUT, Kind.CAST, Kind.COPY_FILL})
_TRAINING = frozenset({Phase.BACKWARD, Phase.OPTIMIZER})
_TAX = ("transdata", "transpose", "cast")
_COPIED = re.compile(r"(memset)|(?:Memcpy |copy)\W*([HDP])(?:to|2)([HDP])(?![a-z])", re.IGNORECASE)
_SORTS = dict.fromkeys(Bound, COMPUTE) | {Bound.COPY: COPY, Bound.COMMUNICATION: COMMUNICATION}
MATMUL_OPERANDS = 2
MOST_ELEMENTS = 1 << 62  # of a tensor: more is damage, of which numbers become so long that Python writes none of them
PLACED = 3  # dimensions of an operand of which is known what the first ones are

Operand = tuple[tuple[int, ...], str]
Key = tuple[str, str | None, bool, bool, tuple[object, ...]]  # sort, op, layout tax, optimizer, work


@dataclass(frozen=True, slots=True)
class Content:
    """What is known of a signature as a part of one side; ``key``: pieces with the same are one.

    ``of_piece`` stands for the key, ``of_work`` for op and work: one object where those are equal.
    """

    signature: Signature
    vendor: Vendor | None
    sort: str
    phases: bool
    key: Key
    of_piece: Interned
    of_work: Interned
    name: str | None
    counted: tuple[int, int, str | None, str | None] | None  # FLOPs and bytes of a call, precision, unit
    modelled: bool  # of ``MODEL_KINDS``
    shapeless: bool  # computes on what is not known
    training: bool
    precision: str | None  # of the matrix unit
    weights: frozenset[object]
    alone: tuple[Any, ...]  # the last fields, from ``flops`` on, of the piece that it is by itself


_lock = threading.Lock()
# By vendor and whether phases are told, and then by the signature's place in memory, which no other takes: it is kept.
_known: dict[tuple[Vendor | None, bool], dict[int, Content]] = {}


def contents_of(
    signatures: Sequence[Signature], bounds: Sequence[Bound], vendor: Vendor | None, *, phases: bool
) -> list[Content]:
    """What is known of signatures with their bounds; ``phases``: an optimizer's op is no other's."""
    known = _known.get((vendor, phases), {})  # if another thread forgets it meanwhile, it is still right
    found = list(map(known.get, map(id, signatures)))
    for i, (content, bound) in enumerate(zip(found, bounds, strict=True)):
        if content is None or content.sort is not _SORTS[bound]:
            found[i] = _remembered(_content(signatures[i], vendor, _SORTS[bound], phases=phases))
    return cast("list[Content]", found)


def _remembered(found: Content) -> Content:
    with _lock:
        if sum(map(len, _known.values())) >= MOST:
            _known.clear()
        _known.setdefault((found.vendor, found.phases), {})[id(found.signature)] = found
    return found


def _content(signature: Signature, vendor: Vendor | None, sort: str, *, phases: bool) -> Content:
    key = _key(signature, vendor, sort, phases=phases)
    op, work = key[1], key[4]
    name, operands = _name(signature, vendor, sort), operands_of(signature)
    counted, training = _counted(signature), signature.phase in _TRAINING or (op is not None and "backward" in op)
    extents = frozenset((math.prod(shape), shape[-1]) for shape, _ in operands if math.prod(shape) > 1)
    if sort == COMMUNICATION:
        counts: tuple[int | None, ...] = None, None, signature.bytes
    else:
        counts = (None, None, None) if counted is None else (counted[0], signature.flops_max, counted[1])
    shapes = _shapes(signature)
    precision = signature.precision if counted is not None and signature.unit == "matrix" else None
    weights = _weights(signature.kind, work, shapes)
    alone = (
        *counts, key, *key, str(work), signature.kind, signature.shapes, signature.dtypes, (name,) if name else (),
        (signature.kernel,), precision, training, extents, max((elements for elements, _ in extents), default=0),
        _output(work, operands), _first(shapes), weights,
        None if op is None else interned(key[:4]),
        None if op is None else interned((sort, FAMILIES.get(op, op), *key[2:4])),
    )  # fmt: skip
    same, task = interned(key), interned((op, work))
    computes = sort == COMPUTE
    return Content(
        signature, vendor, sort, phases, key, same, task, name, counted,
        computes and signature.kind in MODEL_KINDS, computes and signature.shapes is None, training, precision, weights,
        alone,
    )  # fmt: skip


def _counted(signature: Signature) -> tuple[int, int, str | None, str | None] | None:
    if signature.flops is None or signature.bytes is None:
        return None
    return signature.flops, signature.bytes, signature.precision, signature.unit


def _key(signature: Signature, vendor: Vendor | None, sort: str, *, phases: bool) -> Key:
    """Sort, op, whether it is layout tax, whether an optimizer's, work: pieces with the same are one."""
    if sort == COPY:
        return COPY, None, False, False, ("copy", _direction(signature.kernel))
    if sort == COMMUNICATION:
        told = json.loads(signature.arguments) if signature.arguments else {}
        name = told.get("collective") if isinstance(told, dict) else None
        if not name:
            return COMMUNICATION, None, False, False, ("kernel", signature.kernel)
        message = signature.bytes, _plain(told.get("dtype")), _plain(told.get("group_size"))
        return COMMUNICATION, str(name), False, False, ("message", *message)
    op = _op(signature, vendor)
    tax = _is_tax(signature, vendor)
    optimizer = signature.kind is Kind.OPTIMIZER or (phases and signature.phase is Phase.OPTIMIZER)
    return COMPUTE, op, tax, optimizer and not tax, _work(signature, op, vendor)


def _plain(value: Any) -> Hashable:
    """A text or a number as it is; what else JSON can be is damage, and no part of a key."""
    return value if value is None or isinstance(value, str | int | float) else str(value)


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
    return op if len([shape for shape, _ in operands_of(signature) if shape]) <= MATMUL_OPERANDS else WITH_ADDEND[op]


def _is_tax(signature: Signature, vendor: Vendor | None) -> bool:
    """Whether an Ascend kernel only puts an operand into the format, order or dtype that another op's kernel takes."""
    if vendor is not Vendor.ASCEND or not signature.kernel.lower().startswith(_TAX):
        return False
    if signature.kernel.lower().startswith("transdata"):
        return True
    return signature.op is not None and kind_of_op(signature.op) not in {*_ASKED_FOR, None}


def operands_of(signature: Signature) -> tuple[Operand, ...]:
    """Shapes with their dtypes, lists of tensors taken apart; nothing where they were not recorded or are damaged."""
    return _parsed(signature.shapes, signature.dtypes)


def _parsed(shapes_text: str | None, dtypes_text: str | None) -> tuple[Operand, ...]:
    """Shapes with their dtypes, lists of tensors taken apart; nothing where they were not recorded or are damaged."""
    try:
        shapes = json.loads(shapes_text) if shapes_text else []
        dtypes = json.loads(dtypes_text) if dtypes_text else []
        found = [(i, shape) for i, one in enumerate(shapes) for shape in _flat(one)]
        told = [str(dtype) for dtype in dtypes] + [""] * len(shapes)
    except (ValueError, TypeError, RecursionError):
        return ()
    if any(abs(math.prod(shape)) > MOST_ELEMENTS for _, shape in found):
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
    operands = operands_of(signature)
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


def _name(signature: Signature, vendor: Vendor | None, sort: str) -> str | None:
    """What its users call it: the op, on Ascend the kernel's type, which says what of an op it does."""
    if vendor is Vendor.ASCEND and sort != COMMUNICATION:
        return signature.kernel
    return None if signature.op is None or unattributed(signature.op) else signature.op


def _output(work: tuple[object, ...], operands: Sequence[Operand]) -> int | None:
    """The elements of a product's result: M · N · batch."""
    if work[0] != "product":
        return None
    batch = next((math.prod(shape[:-2]) for shape, _ in operands if len(shape) > MATMUL_OPERANDS), 1)
    return int(str(work[1])) * int(str(work[2])) * batch


def _shapes(signature: Signature) -> list[Any]:
    """The operands as recorded, nothing where they were not or are damaged."""
    try:
        shapes = json.loads(signature.shapes) if signature.shapes else None
    except (ValueError, RecursionError):
        return []
    return shapes if isinstance(shapes, list) else []


def _first(shapes: Sequence[Any]) -> tuple[int, ...] | None:
    """The first operand's extents, where they have three dimensions or more: of matrices nobody knows what they are."""
    first = next(iter(shapes), None)
    if not isinstance(first, list) or len(first) < PLACED or not all(isinstance(n, int) for n in first):
        return None
    return tuple(first)


def _weights(kind: Kind, work: tuple[object, ...], shapes: Sequence[Any]) -> frozenset[object]:
    """Any two of a product's three sizes, one pair of which are its weight's; a convolution's filter."""
    if work[0] == "product":
        m, n, inner = (int(str(size)) for size in work[1:4])
        return frozenset(((min(a, b), max(a, b)) for a, b in ((m, n), (m, inner), (n, inner))))
    if kind is not Kind.CONV or len(shapes) < MATMUL_OPERANDS or not isinstance(shapes[1], list):
        return frozenset()
    return frozenset({str(shapes[1])})
