"""Matrix products and convolutions on the cube unit: 2·M·N·K by logical sizes, bytes as stored.

Which operand is transposed is an attribute that no table tells; inputs and output together do: of the ways to read them
as M·K, K·N → M·N at least one fits, and all that fit have the same FLOPs. A matrix in FRACTAL_NZ is known up to its
padding; where the other operands are plain, theirs are the sizes.

A convolution does 2 · N · Πout · |filter| FLOPs, each gradient as many. A filter in FRACTAL_Z holds its channels padded
to tiles: where no TransData kernel tells the plain one, the FLOPs lie between the least channels that need as many
tiles and all that fit (``flops_max``), e.g. 24 tiles of 8: 185 … 192.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from roofwatch.model.formulas.ascend.operands import KernelCall, Operand, Shape, moved, total
from roofwatch.model.formulas.base import Work

_TILE = 16
_PACKED = 8  # 4-bit weights in an int32, as weight-only products take them


def product(call: KernelCall) -> Work | None:
    """MatMul, BatchMatMul and their quantised forms: (a, b, bias or scales …) → out."""
    a, b, out, size = call.input(0), call.input(1), call.output(0), moved(call)
    if a is None or b is None or out is None or size is None:
        return None
    tiled = any(call.logical(operand) is None for operand in (a, b, out))
    sizes = [_sizes(call, operand) for operand in (a, b, out)]
    found = gemm(sizes[0], sizes[1], sizes[2], tiled=tiled)
    if found is None and b.dtype == "int32":
        found = gemm(sizes[0], (*sizes[1][:-1], b.shape[-1] * _PACKED), sizes[2], tiled=tiled)
    return None if found is None else Work(found, size)


def _sizes(call: KernelCall, operand: Operand) -> Shape:
    return call.logical(operand) or operand.matrix


def gemm(a: Shape, b: Shape, out: Shape, *, tiled: bool = False) -> int | None:
    """2·M·N·K of (batched) matrices in any orientation; None where no way to read them fits.

    ``tiled``: one of them may be padded to whole tiles.
    """
    if min(len(a), len(b), len(out)) < 2 or not math.prod(out[:-2]):
        return None
    if not _batched(a[:-2], out[:-2]) or not _batched(b[:-2], out[:-2]):
        return None
    for rows, inner in (a[-2:], a[:-3:-1]):
        for other, columns in (b[-2:], b[:-3:-1]):
            sides = ((rows, out[-2]), (columns, out[-1]), (inner, other))
            if all(one == two or (tiled and _padded(one, two)) for one, two in sides):
                return 2 * math.prod(out[:-2]) * math.prod(min(side) for side in sides)
    return None


def _padded(one: int, two: int) -> bool:
    """Whether one of two sizes is the other, padded to whole tiles."""
    return min(one, two) > 0 and -(-min(one, two) // _TILE) * _TILE == max(one, two)


def _batched(lead: Shape, out: Shape) -> bool:
    """Whether leading dimensions are the output's, broadcast, or none."""
    aligned = zip(reversed(lead), reversed(out), strict=False)
    return len(lead) <= len(out) and all(n in (1, m) for n, m in aligned)


def transposed_batch(call: KernelCall) -> Work | None:
    """TransposeBatchMatMul: batch and rows may change places in inputs and output; b is (B, K, N)."""
    a, b, out, size = call.input(0), call.input(1), call.output(0), moved(call)
    if a is None or b is None or out is None or size is None or len(b.matrix) != 3:
        return None
    batch, inner, columns = b.matrix
    rows = a.stored // max(1, batch * inner)
    fits = a.stored == batch * inner * rows and out.stored == batch * rows * columns
    return Work(2 * batch * rows * inner * columns, size) if fits else None


def grouped(call: KernelCall) -> Work | None:
    """GroupedMatmul and its fused forms: rows of x in groups, each with a weight of its own.

    2·M·N·K whatever the groups; of the weights no more are read than there are rows. A gradient of the weights has an
    output for each group: (K, M) or (M, K) and (M, N) → (E, K, N).
    """
    xs = [o for o in call.inputs if o.shape]
    out, rest = call.output(0), total(o for o in call.outputs)
    if len(xs) < 2 or out is None or rest is None:
        return None
    first, *others = xs
    if len(out.shape) == 3 and len(first.shape) == 2 and len(others[0].shape) == 2:
        return _of_weights(call, first, others[0], out)
    weights = [o for o in others if len(o.matrix) >= 2 and o.dtype not in ("int64", "bool")]
    found = _rows_of(first, weights, out)
    given = total((first, *others))
    if found is None or given is None:
        return None
    rows, columns, inner, used = found
    stored = sum(w.bytes for w in used)
    groups = sum(math.prod(w.matrix[:-2]) for w in used)
    read = stored * min(groups, rows) // max(1, groups)
    return Work(2 * rows * columns * inner, given - stored + read + rest)


def _rows_of(x: Operand, weights: Sequence[Operand], out: Operand) -> tuple[int, int, int, list[Operand]] | None:
    """Rows, columns and inner size, and the weights that have these; a gated output is half as wide."""
    if len(x.shape) < 2:
        return None
    rows, inner = math.prod(x.shape[:-1]), x.shape[-1]
    width = out.shape[-1]
    for columns in (width, 2 * width):
        fitting = [w for w in weights if sorted(w.matrix[-2:]) == sorted((inner, columns))]
        if fitting:
            return rows, columns, inner, fitting
    return None


def _of_weights(call: KernelCall, a: Operand, b: Operand, out: Operand) -> Work | None:
    size = moved(call)
    _, inner, columns = out.shape
    for rows, one in (a.shape, a.shape[::-1]):
        if one == inner and b.shape == (rows, columns) and size is not None:
            return Work(2 * rows * inner * columns, size)
    return None


# -- convolutions ------------------------------------------------------------------------------------------------------


def convolution(call: KernelCall) -> Work | None:
    """Conv2D, Conv3D and their like: (x, filter, bias?, …) → y."""
    return _conv(call, call.input(1), call.output(0), call.input(0))


def transposed_convolution(call: KernelCall) -> Work | None:
    """Conv2DTranspose: (size, x, filter) or (x, filter) → y; as many FLOPs for each input element."""
    given = [o for o in call.inputs if len(o.shape) >= 4]
    return None if len(given) < 2 else _conv(call, given[1], given[0], call.output(0))


def convolution_input(call: KernelCall) -> Work | None:
    """Conv2DBackpropInput: (size of x, filter, dy) → dx."""
    given = [o for o in call.inputs if len(o.shape) >= 4]
    return None if len(given) < 2 else _conv(call, given[0], given[1], call.output(0))


def convolution_filter(call: KernelCall) -> Work | None:
    """Conv2DBackpropFilter: (x, size of the filter, dy) → dw."""
    given = [o for o in call.inputs if len(o.shape) >= 4]
    return None if len(given) < 2 else _conv(call, call.output(0), given[1], given[0])


def _conv(call: KernelCall, weight: Operand | None, dense: Operand | None, other: Operand | None) -> Work | None:
    """``dense``: the side whose elements each are a dot product over the filter; ``other``: the opposite one."""
    size = moved(call)
    if weight is None or dense is None or other is None or size is None:
        return None
    places = _places(dense)
    if places is None:
        return None
    plain = call.logical(weight)
    if plain is not None:
        return Work(2 * places * math.prod(plain), size)
    outs, ins = _channels(call, dense), _channels(call, other)
    if outs is None or ins is None or not weight.stored or not weight.format.startswith("FRACTAL_Z"):
        return None
    most = 2 * places * weight.stored
    tiled = math.prod(weight.shape[-3:-1])  # output channels of the filter, padded
    return Work(most * outs[0] * ins[0] // (max(outs[1], tiled) * ins[1]), size, most)


def _places(image: Operand) -> int | None:
    """Batch times space of an image: all but its channels."""
    shape, layout = image.shape, image.format
    if layout == "NC1HWC0" and len(shape) == 5:
        return math.prod((shape[0], *shape[2:4]))
    if layout == "NDC1HWC0" and len(shape) == 6:
        return math.prod((*shape[:2], *shape[3:5]))
    if layout in ("NHWC", "NDHWC"):
        return math.prod(shape[:-1])
    if layout in ("NCHW", "NCDHW", "ND", "NCL") and len(shape) >= 3:
        return shape[0] * math.prod(shape[2:])
    return None


def _channels(call: KernelCall, image: Operand) -> tuple[int, int] | None:
    """The least and the most channels of an image, equal where they are known."""
    plain = call.logical(image)
    if plain is not None and image.format not in ("NHWC", "NDHWC"):
        return (plain[1], _whole(image) or plain[1])
    most = _whole(image)
    return None if most is None else (most - image.shape[-1] + 1, most)


def _whole(image: Operand) -> int | None:
    at = {"NC1HWC0": 1, "NDC1HWC0": 2}.get(image.format)
    if at is None or len(image.shape) != at + 4:
        return None
    return image.shape[at] * image.shape[-1]
