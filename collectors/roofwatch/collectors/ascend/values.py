"""What the cells of Ascend's kernel tables say: shapes, lists, numbers, absent values; and a row's texts as a ``What``.

The same texts stand in ``kernel_details.csv``, in ``op_summary`` files and in the databases' STRING_IDS.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType

from roofwatch.collectors.ascend.columns import kernel_by_name
from roofwatch.collectors.ascend.common import Message, What
from roofwatch.model.shapes import compact

LONGEST_TEXT = 16_384  # characters of shapes or of a list; only lists of thousands of tensors are longer
MAX_BLOCKS = 1 << 31
MAX_ID = 1 << 62
ABSENT_IDS = frozenset({65_534, 65_535, 4_294_967_295, (1 << 64) - 1})  # instead of an id or an enum's value
COMMUNICATION = "COMMUNICATION"  # the core of a collective
COMMUNICATION_CORES = frozenset({"HCCL", COMMUNICATION})  # the older word, the newer one
_NOTHING = frozenset({"", "N/A", "NA", "NULL", "null", "None", "UNDEFINED"})
_COMMUNICATION = re.compile(r"hcom_|hccl_?(?=[a-z])", re.IGNORECASE)
# Kernels that change the layout or the type of what another one needs.
_RELAYOUT = re.compile(r"(?:TransData|Transpose|Cast|TensorMove|(?:Strided)?Slice|ViewCopy|AsStrided|Pad|BroadcastTo)")
# Calls that do nothing but move or cast what they are given.
_MOVING = re.compile(
    r"aclnn(?:Inplace)?(?:Cast|Copy|Contiguous|Cat|Concat|Stack|Permute|Transpose|Slice|StridedSlice|Narrow|Split|Chunk|"
    r"Pad|ConstantPad|ReflectionPad|ReplicationPad|Repeat|Expand|Tile|Roll|Flip|Unfold|Im2Col|Col2Im|AsStrided|View|"
    r"Reshape|TransMatmulWeight|TransData|NpuFormatCast|TransConvolutionWeight)",
    re.IGNORECASE,
)
_LARGEST = 1 << 48  # of one dimension; more is damage
_MAX_RANK = 25


@lru_cache(maxsize=16_384)
def word(cell: str) -> str | None:
    """A cell's text without blanks and the quotes around it; None where it stands for nothing."""
    text = cell.strip(" \t\r\n\"'")
    return None if text in _NOTHING else text


@lru_cache(maxsize=16_384)
def shapes(cell: str) -> str | None:
    """Shapes as JSON, a place each: ``"32,3;;64"`` → ``[[32,3],[],[64]]``; None where not told or damaged.

    A scalar and an absent tensor look alike: both have no dimensions.
    """
    text = word(cell)
    if text is None:
        text = "" if '"' in cell else None  # one scalar stands in quotes, nothing stands without
    if text is None or len(text) > LONGEST_TEXT:
        return None
    found = [_extents(part) for part in text.split(";")]
    return None if any(one is None for one in found) else compact([one or [] for one in found])


def _extents(part: str) -> list[int] | None:
    """The dimensions of ``32,3,224,224``; None where they are none."""
    if not part.strip():
        return []
    words = [word.strip() for word in part.split(",")]
    if len(words) > _MAX_RANK or not all(word.isascii() and word.isdigit() and len(word) < 16 for word in words):
        return None
    extents = [int(word) for word in words]
    return extents if max(extents) < _LARGEST else None


@lru_cache(maxsize=16_384)
def names(cell: str) -> str | None:
    """Dtypes or formats as JSON, as the source names them: ``DT_BF16;INT64`` → ``["DT_BF16","INT64"]``."""
    text = word(cell)
    if text is None or len(text) > LONGEST_TEXT:
        return None
    return compact([word.strip(" \"'") for word in text.split(";")])


@lru_cache(maxsize=16_384)
def outputs(shape_cell: str, dtype_cell: str, format_cell: str) -> str | None:
    """Outputs as JSON ``[shapes, dtypes, formats]``; None where their shapes are not told."""
    found = shapes(shape_cell)
    return found and f"[{found},{names(dtype_cell) or '[]'},{names(format_cell) or '[]'}]"


@lru_cache(maxsize=16_384)
def blocks(cell: str) -> int | None:
    """A number of blocks; None where there is none, as of every collective, which says 0."""
    text = word(cell) or ""
    text = text.removesuffix(".0")
    if not text.isascii() or not text.isdigit() or len(text) > 18:
        return None
    return int(text) if 0 < int(text) < MAX_BLOCKS and int(text) not in ABSENT_IDS else None


@lru_cache(maxsize=16_384)
def kernel_type(cell: str) -> str | None:
    """What sort of kernel it is; None where the table does not tell: "0" is how some versions write that."""
    text = word(cell)
    return None if text is None or text.isdigit() else text


@lru_cache(maxsize=16_384)
def collective_word(name: str) -> str:
    """The library's word for a collective from the name of a call: ``hcom_allReduce__586_0_1`` → ``hcom_allReduce_``.

    What follows it names the group, the call's number in it, and the iteration.
    """
    word, separator, _ = name.partition("__")
    return f"{word}_" if separator else name


def is_communication(name: str, core: str | None) -> bool:
    """Whether a row is a collective: by its core, where that is not told by its name."""
    return core in COMMUNICATION_CORES or (core is None and _COMMUNICATION.match(name) is not None)


@lru_cache(maxsize=16_384)
def is_inserted(name: str) -> bool:
    """Whether another operator needed the kernel, by its name: a relayout inside a product or a convolution's call.

    The framework names what it puts before an operator ``trans_…``; the operator library names the call first
    ("aclnnMatmul_TransData_TransData"). Where the call itself is to move or to cast, somebody wanted just that.
    """
    if name.startswith("trans_"):
        return True
    call, _, kernel = name.partition("_")
    moves = _RELAYOUT.match(kernel.rpartition("_")[2]) is not None
    return moves and name.startswith("aclnn") and _MOVING.match(call) is None


def flag(cell: str) -> bool | None:
    """YES or NO; None where not told."""
    return {"YES": True, "NO": False}.get(cell.strip(' \t"').upper())


def what_of(
    name: str,
    type_: str,
    core: str,
    inputs: tuple[str, str, str] = ("", "", ""),
    outs: tuple[str, str, str] = ("", "", ""),
    messages: Mapping[str, Message] = MappingProxyType({}),
    hf32: str = "",
) -> What:
    """What the cells of a row say; ``inputs`` and ``outs`` are shapes, dtypes and formats. "" is a missing cell.

    ``messages``: what collectives move, by their names.
    """
    told, sort, place = word(name) or "", kernel_type(type_), word(core)
    if is_communication(told, place):
        call = sort or collective_word(told)
        return What(call, type=call, core=COMMUNICATION, message=messages.get(told, Message(call)))
    kernel = sort or kernel_by_name(told)
    return What(
        kernel, type=sort or (kernel if kernel != told else None), core=place,
        shapes=shapes(inputs[0]), dtypes=names(inputs[1]), formats=names(inputs[2]), outputs=outputs(*outs),
        hf32=flag(hf32), inserted=is_inserted(told),
    )  # fmt: skip
