"""What a trace tells of each call of a collective: in its arguments, or else in the name and shapes of its op.

PyTorch records a call as an op ``record_param_comms`` around the library's call, with arguments since 2.2; Kineto
copies them to the kernel. Sequence numbers are told since 2.12; before 2.4 they are among the concrete inputs. An op
of ``c10d`` lies around it, an annotation (``nccl:all_reduce``, with the inputs' shapes) inside it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
from msgspec import Raw, Struct

from roofwatch.collectors.kineto import calls
from roofwatch.collectors.kineto.events import DECODE_ERRORS, Complete
from roofwatch.collectors.kineto.tables import Interner, Table
from roofwatch.model.collectives import collective_of, collective_of_op
from roofwatch.model.kinds import communicates
from roofwatch.model.shapes import ITEM_BYTES, Tensor, call_of, dtype_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]

RECORD = "record_param_comms"
NOTHING = -1
MAX_MESSAGE = 1 << 50  # bytes; more than all memory of a machine is damage
MAX_RANKS = 1 << 31
_LONGEST_WORD = 64  # characters of a group's name
_LONGEST_SHAPES = 16_384  # characters; longer lists are hundreds of tensors in one call
_MANY_RANKS = 30  # torch writes no more of a group's ranks, so that a larger group is told by its first ones and size

# c10::ScalarType as torch writes it here, where it is not the C++ type's name.
_SCALARS = {
    "Byte": "uint8", "Char": "int8", "Short": "int16", "Int": "int32", "Long": "int64", "Half": "fp16", "Float": "fp32",
    "Double": "fp64", "BFloat16": "bf16", "Bool": "bool", "ComplexHalf": "complex32", "ComplexFloat": "complex64",
    "ComplexDouble": "complex128", "UInt16": "uint16", "UInt32": "uint32", "UInt64": "uint64",
    "Float8_e4m3fn": "fp8_e4m3", "Float8_e5m2": "fp8_e5m2", "Float8_e4m3fnuz": "fp8_e4m3fnuz",
    "Float8_e5m2fnuz": "fp8_e5m2fnuz", "Float8_e8m0fnu": "fp8_e8m0", "Float4_e2m1fn_x2": "fp4x2",
}  # fmt: skip


class _Args(Struct, gc=False):
    collective: Any = msgspec.field(name="Collective name", default=None)
    put_in: Any = msgspec.field(name="In msg nelems", default=None)
    got_out: Any = msgspec.field(name="Out msg nelems", default=None)
    size: Any = msgspec.field(name="Group size", default=None)
    dtype: Any = None
    group: Any = msgspec.field(name="Process Group Name", default=None)
    number: Any = msgspec.field(name="Process Group ID", default=None)
    description: Any = msgspec.field(name="Process Group Description", default=None)
    ranks: Any = msgspec.field(name="Process Group Ranks", default=None)
    split_in: Any = msgspec.field(name="In split size", default=None)
    split_out: Any = msgspec.field(name="Out split size", default=None)
    sequence: Any = msgspec.field(name="Seq", default=None)
    shapes: Raw = msgspec.field(name="Input Dims", default=Raw(b""))
    dtypes: Raw = msgspec.field(name="Input type", default=Raw(b""))
    concrete: Raw = msgspec.field(name="Concrete Inputs", default=Raw(b""))


@dataclass(frozen=True, slots=True)
class Group:
    """A process group: ``identity`` is the same text on all of its ranks and names its ranks, ``label`` does not."""

    identity: str | None = None
    label: str | None = None
    size: int | None = None


@dataclass(frozen=True, slots=True)
class Told:
    """What one source tells of a call; None where it does not."""

    collective: str | None = None
    group: Group = Group()
    dtype: str | None = None
    bytes: int | None = None
    uneven: bool = False  # ranks may move different sizes, another one each call
    by_args: bool = False


class Messages:
    """Calls of collectives as they stream by: ``table`` has thread, what (an id in ``told``) and sequence."""

    def __init__(self, names: Interner) -> None:
        self.table = Table("thread", "what", "sequence")
        self.told = Interner()  # a source's name, arguments, shapes and dtypes as text
        self._names = names
        self._calls = bytearray()  # by name id
        self._kernels = bytearray()

    def take_calls(self, events: Sequence[Complete], common: dict[str, Ints]) -> list[int]:
        """Takes what is a call of a collective among ops or annotations; which events these are."""
        rows = self._rows(self._calls, _is_call, common["name"])
        if rows:
            found = [self._one(events[row]) for row in rows]
            columns = {name: column[rows] for name, column in common.items()}
            self.table.add(**columns, what=_ints([w for w, _ in found]), sequence=_ints([s for _, s in found]))
        return rows

    def of_kernels(self, events: Sequence[Complete], name: Ints) -> tuple[Ints, Ints]:
        """What and sequence of kernels by their own arguments; NOTHING where there is none."""
        what = np.full(len(events), NOTHING, dtype=np.int64)
        sequence = what.copy()
        for row in self._rows(self._kernels, communicates, name):
            if b"Collective name" in bytes(events[row].args):
                what[row], sequence[row] = self._one(events[row])
        return what, sequence

    def is_kernel(self, name: Ints) -> NDArray[np.bool_]:
        """Whether each name id is that of a kernel which communicates."""
        found: NDArray[np.bool_] = self._flags(self._kernels, communicates)[name] != 0
        return found

    def _rows(self, flags: bytearray, test: calls.Test, name: Ints) -> list[int]:
        rows: list[int] = np.flatnonzero(self._flags(flags, test)[name]).tolist()
        return rows

    def _flags(self, flags: bytearray, test: calls.Test) -> NDArray[np.uint8]:
        flags.extend(bool(test(name)) for name in self._names.values_seen[len(flags) :])
        return np.frombuffer(bytes(flags), dtype=np.uint8)

    def _one(self, event: Complete) -> tuple[int, int]:
        try:
            args = msgspec.json.decode(event.args, type=_Args)
        except DECODE_ERRORS:  # counted where the event's other arguments were read
            args = _Args()
        sequence, size = _from_concrete(args) if event.name == RECORD else (None, None)
        told = [
            _text(args.collective), _count(args.put_in), _count(args.got_out), _size(args.size) or size,
            _text(args.dtype), _text(args.group) or _text(args.number), _text(args.description), ranks_of(args.ranks),
            _is_uneven(args.split_in) or _is_uneven(args.split_out),
        ]  # fmt: skip
        shapes = (args.shapes, args.dtypes) if len(bytes(args.shapes)) <= _LONGEST_SHAPES else (b"", b"")
        name = event.name[:_LONGEST_SHAPES].encode("utf-8", "replace")
        what = self.told[b"\0".join((name, msgspec.json.encode(told), *(bytes(text) for text in shapes)))]
        told_sequence = _count(args.sequence)
        sequence = sequence if told_sequence is None else told_sequence
        return what, NOTHING if sequence is None else sequence


def told_by(text: bytes, only: Group | None) -> Told:
    """What a text of ``Messages.told`` tells, shapes only where the arguments do not.

    ``only`` is the one process group there is, where that is so: then it is the group of every call that names none.
    """
    parts = text.split(b"\0")
    if len(parts) != 4:
        return Told()  # the text of all calls that came after too many different ones
    name = parts[0].decode("utf-8", "replace")
    word, put_in, got_out, size, scalar, group, description, ranks, uneven = msgspec.json.decode(parts[1])
    of = group_of(group, description, ranks, size)
    if of.identity is None and only is not None and size in (None, only.size):
        of = only
    collective = collective_of(word) if word is not None else collective_of_op(name)
    if word is None or put_in is None or got_out is None:
        return _by_shapes(
            name, collective, of, parts[2].decode("utf-8", "replace"), parts[3].decode("utf-8", "replace")
        )
    dtype = _SCALARS.get(scalar or "") or dtype_of(scalar or "")
    moved = None if dtype is None else max(put_in, got_out) * ITEM_BYTES[dtype]
    uneven = uneven or word == "all_to_allv"
    if collective == "barrier":
        dtype = moved = None  # it has no message
    return Told(collective, of, dtype, moved if moved is None or moved < MAX_MESSAGE else None, uneven, by_args=True)


def only_group(distributed: Any) -> Group | None:
    """The one process group there is, from the trace's ``distributedInfo``; None where there are several."""
    found = distributed.get("pg_config") if isinstance(distributed, dict) else None
    if not isinstance(found, list) or len(found) != 1 or not isinstance(found[0], dict):
        return None
    if distributed.get("pg_count", 1) != 1:
        return None
    of = found[0]
    name, description = _text(of.get("pg_name")), _text(of.get("pg_desc"))
    return group_of(name, description, ranks_of(of.get("ranks")), _size(of.get("pg_size")))


def _by_shapes(name: str, collective: str | None, group: Group, shapes: str, dtypes: str) -> Told:
    call = call_of(name, shapes, dtypes) if collective is not None else None
    tensors = call.tensors if call is not None else ()
    if not tensors:
        return Told(collective, group)
    moved = _of_op(tensors) if "::" in name else _of_annotation(tensors, collective, group.size)
    dtype = tensors[0].dtype
    return Told(collective, group, dtype, moved if moved is None or moved < MAX_MESSAGE else None)


def _of_op(tensors: Sequence[Tensor]) -> int:
    """The message of an op on one tensor each: output and input come first, in either order."""
    return max(tensor.numel * tensor.item for tensor in tensors[:2])


def _of_annotation(tensors: Sequence[Tensor], collective: str | None, size: int | None) -> int | None:
    """The message by the inputs alone, where they tell it: a gathered one is each rank's input."""
    put_in = sum(tensor.numel * tensor.item for tensor in tensors)
    if collective in ("all_gather", "gather"):
        return None if size is None else put_in * size
    return None if collective in ("all_to_all", "scatter") else put_in


def group_of(name: str | None, description: str | None, ranks: Sequence[int] | None, size: int | None) -> Group:
    """A process group.

    Its identity has its ranks: torch gives groups of different ranks one name where each rank is in one of them.
    """
    parts = (name, f"({_ranks_text(ranks, size)})" if ranks else None)
    label = name if description in (None, "", "undefined") else description
    return Group(" ".join(part for part in parts if part) or None, label or None, size)


def _ranks_text(ranks: Sequence[int], size: int | None) -> str:
    if len(ranks) > _MANY_RANKS or (size is not None and size > _MANY_RANKS):
        return f"{ranks[0]},{ranks[1]}… of {size or '?'}" if len(ranks) > 1 else f"{ranks[0]}… of {size or '?'}"
    step = ranks[1] - ranks[0] if len(ranks) > 2 else 0
    if step > 0 and all(b - a == step for a, b in pairwise(ranks)):
        return f"{ranks[0]}-{ranks[-1]}" + (f"/{step}" if step > 1 else "")
    return ",".join(str(rank) for rank in ranks)


def ranks_of(value: Any) -> list[int] | None:
    """The ranks of "[0, 1, …]"; the first ones where the writer cut the list."""
    if isinstance(value, str):
        words: Iterable[Any] = value[:4096].strip("[] ").split(",")
        value = [int(word) for word in words if word.strip().isascii() and word.strip().isdigit() and len(word) < 12]
    if not isinstance(value, list):
        return None
    found = [rank for rank in value[:4096] if type(rank) is int and 0 <= rank < MAX_RANKS]
    return found[: _MANY_RANKS + 1] or None


def _is_uneven(value: Any) -> bool:
    """Whether the parts for the ranks have different sizes; written as text, "[]" where they have not."""
    if not isinstance(value, str):
        return False
    return len({word.strip() for word in value[:4096].strip("[] ").split(",")} - {"", "..."}) > 1


def _from_concrete(args: _Args) -> tuple[int | None, int | None]:
    """Sequence number and group size from the concrete inputs of a record before torch 2.4.

    Its inputs are: tensors, sequence, group, rank, name, both splits; then the size comes last, since 2.1.
    """
    try:
        kinds = json.loads(bytes(args.dtypes) or b"[]")
        values = json.loads(bytes(args.concrete) or b"[]")
    except (ValueError, RecursionError):
        return None, None
    if not isinstance(kinds, list) or not isinstance(values, list) or len(values) != len(kinds):
        return None, None
    if len(kinds) not in (7, 8, 10) or kinds[1:2] != ["Scalar"]:
        return None, None
    return _count(values[1]), _size(values[-1]) if len(kinds) > 7 else None


def _is_call(name: str) -> bool:
    return name == RECORD or collective_of_op(name) is not None


def _text(value: Any) -> str | None:
    """A word as plain text: what a trace names may be anything."""
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 62:
        value = str(value)
    if not isinstance(value, str):
        return None
    return "".join(c if c.isprintable() else "?" for c in value[:_LONGEST_WORD]).encode("utf-8", "replace").decode()


def _count(value: Any) -> int | None:
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 19:
        value = int(value)
    return value if type(value) is int and 0 <= value < 1 << 62 else None


def _size(value: Any) -> int | None:
    """Of a group; 0 tells nothing."""
    size = _count(value)
    return size if size is not None and 0 < size < MAX_RANKS else None


def _ints(values: Sequence[int]) -> Ints:
    return np.array(values, dtype=np.int64)
