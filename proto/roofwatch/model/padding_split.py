"""Which kernels work on padding: those whose work grows with the tokens of a batch, and those of its attention scores.

Read from the shapes of a kernel and of the padded batches (B sequences, padded to L) that were seen beside it:

- *quadratic*: a tensor with L twice ((…, L, L): scores, their softmax, masks), a batched product that has such an
  operand or output, and attention over queries and keys of whole batches;
- *linear*: any other kernel with a tensor of the batch: a dimension B·L, or L beside B (also B·heads × L × width);
- *packed*: attention that is told where sequences begin or how long they are: no padding is in it;
- *other*: kernels without such a tensor (weights, optimizers), communication, copies;
- *unknown*: no shapes were recorded, or they are those of tiles.

L - 1 counts as L: a loss over the next tokens has one less.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from enum import StrEnum
from functools import lru_cache
from typing import Any

from roofwatch.model import operands
from roofwatch.model.kinds import Kind
from roofwatch.model.record import Bound, Phase, Signature
from roofwatch.model.shapes import MAX_TEXT, Call, Tensor

Dims = Sequence[int]


class Scaling(StrEnum):
    """How a kernel's work grows with the padded length."""

    LINEAR = "linear"
    QUADRATIC = "quadratic"
    PACKED = "packed"
    OTHER = "other"
    UNKNOWN = "unknown"


# Where an op takes the beginnings of packed sequences (one integer more than there are); its other forms have none.
_BEGINNINGS = {
    "aten::_flash_attention_forward": 3, "aten::_flash_attention_backward": 6, "aten::_efficient_attention_forward": 4,
    "aten::_efficient_attention_backward": 6, "aten::_cudnn_attention_forward": 4,
    "aten::_cudnn_attention_backward": 9, "aten::_scaled_dot_product_flash_attention_backward": 6,
    "aten::_scaled_dot_product_cudnn_attention_backward": 9, "xformers_flash::flash_fwd": 3,
    "xformers_flash::flash_bwd": 6, "xformers_flash3::flash_fwd": 3, "xformers_flash3::flash_bwd": 6,
    "xformers::efficient_attention_forward_cutlass": 4, "xformers::efficient_attention_backward_cutlass": 5,
    "_vllm_fa3_C::fwd": 7, "flash_attn_3::fwd": 7, "sgl_kernel::fwd": 7,
}  # fmt: skip
_PACKED_NAMES = re.compile(
    r"varlen|var_len|cu_?seq_?len|unpad(?:ded|_input)|_nested_|nested_tensor|jagged|block_?diagonal", re.IGNORECASE
)
_STATISTIC = 8  # Ascend: values of a row's maximum or sum
_NO_WORK = {Bound.COMMUNICATION, Bound.COPY}
_NO_TOKENS = {Kind.COMM, Kind.OPTIMIZER, Kind.EVENT}


class Batches:
    """The padded batches that were seen: (B, L) each."""

    def __init__(self, shapes: Iterable[tuple[int, int]]) -> None:
        self.lengths: dict[int, set[int]] = {}
        self.tokens: set[int] = set()
        for rows, longest in shapes:
            for length in (longest, longest - 1):
                if length > 1:
                    self.lengths.setdefault(length, set()).add(rows)
                    self.tokens.add(rows * length)

    def hold(self, dims: Dims) -> bool:
        """Whether a tensor is of a batch: B·L, or L beside B, or (B·heads, L, width)."""
        if not self.tokens.isdisjoint(dims):
            return True
        return any(
            rows == 1 or rows in (*dims[:at], *dims[at + 1 :]) or (at > 0 and len(dims) > 2 and dims[0] % rows == 0)
            for at, length in enumerate(dims)
            for rows in self.lengths.get(length, ())
        )

    def square(self, dims: Dims, *, softmax: bool = False) -> bool:
        """Whether a tensor holds scores: (B or 1, heads, L, L), (B·heads, L, L); (B, L, L) only of a softmax.

        Of three dimensions the last may be a width that happens to be L.
        """
        if len(dims) < 3 or dims[-1] != dims[-2] or dims[-1] not in self.lengths:
            return False
        rows = self.lengths[dims[-1]]
        if len(dims) > 3:
            return dims[0] == 1 or dims[0] in rows
        return any(dims[0] % r == 0 and (dims[0] != r or softmax) for r in rows if r)


def scaling(signature: Signature, bound: Bound, batches: Batches) -> Scaling:
    """How a kernel's work grows, by the rules above."""
    if packed(signature):
        return Scaling.PACKED
    if tokenless(signature, bound):
        return Scaling.OTHER
    shapes = _shapes(signature.shapes)
    if shapes is None:
        return Scaling.UNKNOWN
    found = _by_shapes(signature, shapes, batches)
    return Scaling.UNKNOWN if found is Scaling.OTHER and _tiled(signature) else found


def tokenless(signature: Signature, bound: Bound) -> bool:
    """Whether a kernel is of no batch, whatever its shapes: communication, copies, the optimizer."""
    return bound in _NO_WORK or signature.kind in _NO_TOKENS or signature.phase is Phase.OPTIMIZER


def _by_shapes(signature: Signature, shapes: Sequence[Dims], batches: Batches) -> Scaling:
    kind = signature.kind
    if any(batches.square(dims, softmax=kind is Kind.SOFTMAX) for dims in shapes):
        return Scaling.QUADRATIC
    if kind is Kind.MATMUL and _scores(shapes, batches):
        return Scaling.QUADRATIC
    held = [batches.hold(dims) for dims in shapes]
    if kind is Kind.ATTENTION and _whole(shapes, held):
        return Scaling.QUADRATIC
    return Scaling.LINEAR if any(held) else Scaling.OTHER


def _scores(shapes: Sequence[Dims], batches: Batches) -> bool:
    """Whether a batched product's output is (…, L, L): (…, L, d) · (…, d, L), both with leading dimensions."""
    large = [dims for dims in shapes if len(dims) > 2]
    if len(large) < 2:
        return False
    a, b = large[-2:]
    return a[-2] == b[-1] and a[-2] in batches.lengths and a[-1] == b[-2] and batches.hold(a)


def _whole(shapes: Sequence[Dims], held: Sequence[bool]) -> bool:
    """Whether queries and keys are both of whole batches; a step of decoding has one query a sequence."""
    large = [of_batch for dims, of_batch in zip(shapes, held, strict=True) if len(dims) > 2]
    return len(large) >= 2 and all(large[:2])


def square(signature: Signature, batches: Batches) -> bool:
    """Whether a quadratic kernel's bytes are scores too, and not only its FLOPs, as in fused attention."""
    return signature.kind is not Kind.ATTENTION or any(batches.square(d) for d in _shapes(signature.shapes) or ())


def packed(signature: Signature) -> bool:
    """Whether a kernel works on sequences packed without padding: by its name, or by what it is told of them."""
    name = f"{signature.op or ''} {signature.kernel}"
    if _PACKED_NAMES.search(name[:MAX_NAME]):
        return True
    if signature.kind is not Kind.ATTENTION:
        return False
    told = operands.call(signature)
    if told is None:
        return False
    place = _BEGINNINGS.get(signature.op or "")
    if place is not None:
        return _list_of_integers(told.tensor(place))
    return signature.op is None and _packed_on_ascend(signature, told)


MAX_NAME = 512  # characters that are looked at: names are untrusted


def _packed_on_ascend(signature: Signature, told: Call) -> bool:
    """The TND layout: statistics (T, N, 8) beside queries (T, N, D); or a list of lengths among the inputs."""
    if any(_list_of_integers(told.tensor(i)) for i in range(3, len(told.arguments))):
        return True
    query = told.tensor(0)
    outputs = operands.told(signature).get("outputs")
    sizes = outputs[0] if isinstance(outputs, list) and outputs and isinstance(outputs[0], list) else []
    inputs = [list(t.shape) for t in told.tensors[3:] if t.dtype == "fp32"]
    return query is not None and len(query.shape) == 3 and [*query.shape[:2], _STATISTIC] in (*sizes, *inputs)


def _list_of_integers(tensor: Tensor | None) -> bool:
    return tensor is not None and len(tensor.shape) == 1 and tensor.shape[0] > 1 and tensor.dtype in {"int32", "int64"}


def _tiled(signature: Signature) -> bool:
    return any(name.startswith("FRACTAL") or name == "NC1HWC0" for name in map(str, operands.formats(signature)))


@lru_cache(maxsize=8192)
def _shapes(text: str | None) -> tuple[tuple[int, ...], ...] | None:
    """All tensors' dimensions, lists of tensors flattened; scalars left out. None where nothing was recorded."""
    if text is None or len(text) > MAX_TEXT:
        return None
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return tuple(_flat(found)) if isinstance(found, list) else None


def _flat(value: list[Any]) -> Iterator[tuple[int, ...]]:
    if value and all(type(each) is int for each in value):
        yield tuple(value)
        return
    for each in value:
        if isinstance(each, list):
            yield from _flat(each)
