"""Ops that move or fill and do no arithmetic: copies, casts, fills, concatenation, gathers, scatters, embeddings."""

from __future__ import annotations

import math
import re

from roofwatch.model.formulas.base import Formula, Work, dense, is_float, words
from roofwatch.model.shapes import ITEM_BYTES, TEMPLATE_TYPES, Call, Tensor, dtype_of


def copy(call: Call) -> Work | None:
    """copy_(self, src): reads src, writes self, each at its dtype; a broadcast src is read at its own size."""
    target, source = call.tensor(0), call.tensor(1)
    return None if target is None or source is None else Work(0, target.bytes + source.bytes)


def clone(call: Call) -> Work | None:
    """clone, contiguous and other ops that write a dense copy of their input at the same dtype."""
    x = call.tensor(0)
    return None if x is None else Work(0, x.bytes + dense(x.shape, x.dtype))


def fill(call: Call) -> Work | None:
    """fill_, zero_, random and range fills: the first tensor is written."""
    tensors = call.tensors
    return None if not tensors else Work(0, tensors[0].bytes)


def arange(call: Call) -> Work | None:
    """Arange (start, end, step, out): the output comes before it is resized, so the numbers give the count."""
    out = call.tensors[-1] if call.tensors else None
    numbers = [v for i in range(3) if isinstance(v := call.value(i), int | float)]
    if out is None or len(numbers) != 3 or not numbers[2]:
        return None
    return Work(0, max(0, math.ceil((numbers[1] - numbers[0]) / numbers[2])) * out.item)


_LIST_MARKERS = ("CatArrayBatchedCopy", "Functor<", "TensorListMetadata")
_TEMPLATE_ARGUMENT = re.compile(r"(?:^|[<, ])(" + "|".join(map(re.escape, TEMPLATE_TYPES)) + r")(?=[,>])")


def dtype_of_kernel(kernel: str) -> str | None:
    """Dtype of a list's tensors: lists do not record dtypes, but their kernels' template arguments do."""
    for marker in _LIST_MARKERS:
        found = _TEMPLATE_ARGUMENT.search(kernel.partition(marker)[2])
        if found is not None:
            return dtype_of(found[1])
    return None


def item_of_kernel(kernel: str) -> int | None:
    """Bytes of a list's elements, by the kernel's template arguments (``OpaqueType<2u>`` tells only that)."""
    size = kernel.partition("OpaqueType<")[2].partition(">")[0].rstrip("u")
    if size in {"1", "2", "4", "8", "16"}:
        return int(size)
    dtype = dtype_of_kernel(kernel)
    return None if dtype is None else ITEM_BYTES[dtype]


def cat(call: Call) -> Work | None:
    """Cat and stack: every part is read and written once."""
    shapes = call[0].shapes
    item = item_of_kernel(call.kernel)
    spare = call.tensors
    if item is None and spare:
        item = spare[-1].item
    if shapes is None or item is None:
        return None
    return Work(0, 2 * item * sum(math.prod(s) for s in shapes))


def _rows(index: Tensor, rows: int, width: int, item: int) -> int:
    """Index read; of the table at most every row once (small tables stay in cache); a row written for each entry."""
    return index.bytes + (min(index.distinct, rows) + index.numel) * width * item


def embedding(call: Call) -> Work | None:
    """Embedding (weight, index): a row read and a row written for each entry of the index."""
    weight, index = call.tensor(0), call.tensor(1)
    if weight is None or index is None or not weight.shape:
        return None
    return Work(0, _rows(index, weight.shape[0], math.prod(weight.shape[1:]), weight.item))


def embedding_bag(call: Call) -> Work | None:
    """_embedding_bag(weight, index, offsets, scale_grad_by_freq, mode, sparse, weights?, include_last_offset, …).

    As ``embedding``, but a row is written for each bag; an addition (or a comparison) for each element looked up.
    """
    weight, index, offsets = (call.tensor(i) for i in range(3))
    last = call.flag(7)
    if weight is None or index is None or offsets is None or len(weight.shape) != 2 or last is None:
        return None
    rows, width = weight.shape
    bags = max(0, offsets.numel - last)
    given = call.tensor(6)
    moved = index.bytes + offsets.bytes + (min(index.distinct, rows) + bags) * width * weight.item
    return Work(index.numel * width * (2 if given else 1), moved + (given.bytes if given else 0))


def index_select(call: Call) -> Work | None:
    """index_select (x, dim, index): the selected slices are read and written."""
    x, index, dim = call.tensor(0), call.tensor(2), call.integer(1)
    if x is None or index is None or dim is None or not x.shape or not -len(x.shape) <= dim < len(x.shape):
        return None
    width = x.numel // max(1, x.shape[dim])
    read = min(min(index.distinct, x.shape[dim]) * width, x.distinct)  # an expanded one is smaller than it looks
    return Work(0, index.bytes + (read + index.numel * width) * x.item)


def gather(call: Call) -> Work | None:
    """Gather (x, dim, index): an element written for each entry of the index, read at most once each."""
    x, index = call.tensor(0), call.tensor(2)
    if x is None or index is None:
        return None
    return Work(0, index.bytes + (min(index.numel, x.distinct) + index.numel) * x.item)


def scatter(call: Call) -> Work | None:
    """scatter, scatter_add, index_add, index_copy (self, dim, index, src): src read, as much of self read and written.

    An entry for each element of src under an index of rows, else for each element of the index (src may be larger).
    Of self at most every element once. Only additions read it; counted as read and write for both, which the cache
    line granularity demands.
    """
    x, index, source = call.tensor(0), call.tensor(2), call.tensor(3)
    if x is None or index is None:
        return None
    entries = source.numel if source is not None and "index" in call.op else index.numel
    flops = entries if "add" in call.op and is_float(x.dtype) else 0
    read = 0 if source is None else min(source.distinct, entries) * source.item
    return Work(flops, index.bytes + read + 2 * min(entries, x.numel) * x.item)


def index_put(call: Call) -> Work | None:
    """index_put_(self, indices, values, accumulate): values read, as many elements of self read and written.

    The indices' shapes are not recorded; they are an eighth to a half of the traffic of narrow rows and are left out.
    A single value may stand for any number of elements: unknown.
    """
    x, values = call.tensor(0), call.tensor(2)
    if x is None or values is None or values.numel == 1:
        return None
    return Work(0, values.bytes + 2 * min(values.numel, x.numel) * x.item)


def embedding_backward(call: Call) -> Work | None:
    """embedding_dense_backward(grad, index, num_weights, …): grad and index read, the table's gradient written."""
    grad, index, rows = call.tensor(0), call.tensor(1), call.integer(2)
    if grad is None or index is None or rows is None or not grad.shape:
        return None
    return Work(grad.numel, grad.bytes + index.bytes + rows * grad.shape[-1] * grad.item)


def _upsample(flops: int) -> Formula:
    """upsample_*(x, output_size, …): x read, output written; ``flops`` an output element."""

    def count(call: Call) -> Work | None:
        x, size = call.tensor(0), call.integers(1)
        if x is None or size is None or len(x.shape) != len(size) + 2:
            return None
        out = (*x.shape[:2], *size)
        return Work(flops * math.prod(out) if is_float(x.dtype) else 0, x.bytes + dense(out, x.dtype))

    return Formula("upsample", count, concrete=True)


def pad(call: Call) -> Work | None:
    """constant_pad_nd and reflection/replication pads (x, pad): x read, the larger output written."""
    x, widths = call.tensor(0), call.integers(1)
    if x is None or widths is None or len(widths) % 2 or len(widths) > 2 * len(x.shape):
        return None
    shape = list(x.shape)
    for i in range(len(widths) // 2):
        shape[-1 - i] += widths[2 * i] + widths[2 * i + 1]
    return None if min(shape, default=0) < 0 else Work(0, x.bytes + dense(shape, x.dtype))


def foreach_copy(call: Call) -> Work | None:
    """_foreach_copy_ (targets, sources): both lists once, at the item size in the kernel's name."""
    shapes, item = call[0].shapes, item_of_kernel(call.kernel)
    return None if shapes is None or item is None else Work(0, 2 * item * sum(math.prod(s) for s in shapes))


def cache_write(call: Call) -> Work | None:
    """reshape_and_cache(key, value, …): new keys and values read and written into the cache at its item size."""
    key, value, cache = call.tensor(0), call.tensor(1), call.tensor(2)
    if key is None or value is None or cache is None:
        return None
    return Work(0, key.bytes + value.bytes + (key.numel + value.numel) * cache.item)


COPY = Formula("copy", copy)
CLONE = Formula("clone", clone)
FILL = Formula("fill", fill)
CAT = Formula("cat", cat)
SCATTER = Formula("scatter", scatter)
EMBEDDING_BAG = Formula("embedding_bag", embedding_bag, concrete=True)

_FILLS = words("fill_ zero_ normal_ uniform_ random_ bernoulli_ exponential_ eye_ one_ log_normal_ cauchy_ geometric_")
# FLOPs an output: a linear step is a·(1 - t) + b·t, 3; bilinear takes 3 steps, trilinear 7, bicubic 5 sums of 4
_UPSAMPLE = {
    "upsample_nearest1d": 0, "upsample_nearest2d": 0, "upsample_nearest3d": 0, "_upsample_nearest_exact2d": 0,
    "upsample_linear1d": 3, "upsample_bilinear2d": 9, "upsample_trilinear3d": 21, "upsample_bicubic2d": 35,
}  # fmt: skip

TABLE: dict[str, Formula] = {
    "aten::copy_": COPY,
    "aten::_foreach_copy_": Formula("foreach_copy", foreach_copy),
    **{f"aten::{name}": CLONE for name in ("clone", "contiguous", "tril", "triu", "flip", "roll")},
    **{f"aten::{name}": FILL for name in _FILLS},
    "aten::arange": Formula("arange", arange, concrete=True),
    "aten::cat": CAT,
    "aten::_cat": CAT,
    "aten::stack": CAT,
    "aten::embedding": Formula("embedding", embedding),
    "aten::_embedding_bag": EMBEDDING_BAG,
    "aten::_embedding_bag_forward_only": EMBEDDING_BAG,
    "aten::embedding_dense_backward": Formula("embedding_backward", embedding_backward, concrete=True),
    "aten::index_select": Formula("index_select", index_select, concrete=True),
    "aten::gather": Formula("gather", gather),
    "aten::scatter": SCATTER,
    "aten::scatter_": SCATTER,
    "aten::scatter_add": SCATTER,
    "aten::scatter_add_": SCATTER,
    "aten::index_add_": SCATTER,
    "aten::index_copy_": SCATTER,
    "aten::_index_put_impl_": Formula("index_put", index_put),
    "aten::constant_pad_nd": Formula("pad", pad, concrete=True),
    "aten::reflection_pad2d": Formula("pad", pad, concrete=True),
    "aten::replication_pad2d": Formula("pad", pad, concrete=True),
    **{f"aten::{name}": _upsample(flops) for name, flops in _UPSAMPLE.items()},
}
