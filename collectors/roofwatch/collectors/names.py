"""Verdicts by a kernel's name and launch grid, for records without shapes. Only where they all but prove the bound.

- Kinds that do a few operations an element are memory bound on every device (their intensity is far below any ridge),
  if long and wide enough not to be latency bound: at least 10 µs and a block for each unit.
- aten's elementwise kernels handle a fixed number of elements a thread, so name and grid bound the bytes on both sides:
  even a short one is memory bound if the least of them reach 0.3 of the roof, latency if the most do not.
- The gradient of a convolution's input is compute bound, if long enough: the first layer, whose few channels make a
  convolution memory bound, has none. (Not so where filters of 1 × 1 have few channels; Ascend's own names only.)
- A plain GEMM's tile and grid bound its output's sides. It is compute bound if the intensity of a long K exceeds the
  ridge, and K is that long if the kernel reaches 0.3 of its roof.

Everything else stays unknown, because without FLOPs and bytes its roof fraction is unknown.
"""

from __future__ import annotations

import math
import re

from roofwatch.collectors.base import Grid
from roofwatch.model.kinds import Kind
from roofwatch.model.record import Bound, Evidence, Peaks
from roofwatch.model.roofline import LATENCY_FRACTION, LATENCY_NS, UNKNOWN, Verdict, ridge_of

_MEMORY_KINDS = frozenset(
    {
        Kind.ELEMENTWISE, Kind.ACTIVATION, Kind.CAST, Kind.COPY_FILL, Kind.LAYOUT, Kind.OPTIMIZER, Kind.NORM,
        Kind.SOFTMAX, Kind.REDUCTION, Kind.ROPE, Kind.GATHER_SCATTER, Kind.RANDOM, Kind.POOLING,
    }
)  # fmt: skip
_INPUT_GRADIENT = re.compile(r"Conv[23]DBackpropInput")
# Gathering kernels whose threads walk lists one after the other: bound by neither ceiling.
_SEQUENTIAL = re.compile(r"bucketize|bounds_check|find_long_segments|compute_grad_weight")


def judge_by_name(
    kind: Kind,
    kernel: str,
    mean_ns: float,
    peaks: Peaks,
    *,
    blocks: int | None = None,
    units: int | None = None,
    grid: Grid | None = None,
) -> Verdict:
    """Memory, latency or compute by name (evidence ``name``), else unknown."""
    narrow = blocks is not None and units is not None and blocks < units
    if grid is not None and (moved := elementwise_bytes(kernel, grid)) is not None and peaks.bandwidth is not None:
        least, most = (n / peaks.bandwidth.value * 1e9 / max(mean_ns, 1) for n in moved)
        if most < LATENCY_FRACTION and (narrow or mean_ns < LATENCY_NS):
            return Verdict(Bound.LATENCY, Evidence.NAME)
        if least >= LATENCY_FRACTION:
            return Verdict(Bound.MEMORY, Evidence.NAME)
    if mean_ns < LATENCY_NS or narrow:
        return UNKNOWN
    if _INPUT_GRADIENT.match(kernel):
        return Verdict(Bound.COMPUTE, Evidence.NAME)
    if kind in _MEMORY_KINDS:
        return UNKNOWN if _SEQUENTIAL.search(kernel) else Verdict(Bound.MEMORY, Evidence.NAME)
    return _gemm(kernel, mean_ns, peaks, grid) if kind in (Kind.MATMUL, Kind.CONV) else UNKNOWN


# -- aten's elementwise kernels ----------------------------------------------------------------------------------------

_LONGEST = 2048  # characters of a name that are looked at
_ATEN = re.compile(r"native::(?:vectorized|unrolled)_elementwise_kernel<")
_ATEN_STRIDED = re.compile(
    r"native::elementwise_kernel(?:_manual_unroll)?<(?:\(int\))?(\d{1,4}), ?(?:\(int\))?(\d{1,2})"
)
_ARRAYS = re.compile(r"[aA]rray<char ?\*, ?(?:\(\w+(?: \w+)?\))?(\d)")
_ARITY = (
    (re.compile(r"BinaryFunctor|CUDAFunctor_add|TernaryFunctor"), 3),
    (re.compile(r"UnaryFunctor|copy_kernel"), 2),
)
_ITEMS = (
    (re.compile(r"complex<double>"), 16),
    (re.compile(r"\bdouble\b|\blong\b|complex<float>"), 8),
    (re.compile(r"\bfloat\b|\bint\b"), 4),
    (re.compile(r"BFloat16|Half|\bshort\b"), 2),
    (re.compile(r"\bbool\b|\bchar\b(?! ?\*)|Float8"), 1),
)
_CONVERTS = re.compile(r"copy_kernel|WithCast")  # names one of its two types
_WIDEST = 8  # bytes of a type that is no complex one
_CUDA_THREADS = 128
_A_THREAD = 4  # elements a thread handles on CUDA in types of 4 bytes and more
_A_THREAD_MOST = 16  # of types of a byte in newer versions, and more than any other


def elementwise_bytes(kernel: str, grid: Grid) -> tuple[int, int] | None:
    """The least and most bytes that an elementwise kernel of aten's moves; None for other kernels.

    Of the last block one element is certain. The least is 0 where the name does not tell types and arrays.
    """
    name = kernel[:_LONGEST]
    strided = _ATEN_STRIDED.search(name)
    if grid.threads is None or (strided is None and _ATEN.search(name) is None):
        return None
    items = [size for pattern, size in _ITEMS if pattern.search(name.partition(">(")[0])]
    if _CONVERTS.search(name):
        items.append(_WIDEST)
    arrays = _ARRAYS.search(name)
    count = int(arrays[1]) if arrays else next((n for pattern, n in _ARITY if pattern.search(name)), None)
    if strided is not None:
        exact = a_block = int(strided[1]) * int(strided[2])
    else:
        exact = grid.threads * _A_THREAD if grid.threads == _CUDA_THREADS and items and min(items) >= 4 else 0
        a_block = exact or grid.threads * _A_THREAD_MOST
    most = grid.blocks * a_block * (count or 5) * max(items, default=_WIDEST)
    # of several types one may be a scalar's, a lambda hides them all, and a strided input may be a broadcast one
    certain = exact if len(set(items)) == 1 and arrays else 0
    full = 1 if strided else count or 1
    return ((grid.blocks - 1) * certain + bool(certain)) * full * min(items, default=1), most


# -- products ----------------------------------------------------------------------------------------------------------

_TILES = (
    re.compile(r"tilesize(\d+)x(\d+)"),  # xmma
    re.compile(r"_MT(\d+)x(\d+)x\d+"),  # Tensile
    re.compile(r"nvjet_\w+?_(\d+)x(\d+)_"),
    re.compile(r"[sdh]gemm_(\d+)x(\d+)"),  # cuBLAS SIMT kernels
    re.compile(r"[sh]cudnn_(?:winograd_)?(\d+)x(\d+)"),
    re.compile(r"(?:gemm|cudnn|fprop|dgrad|wgrad)_(?:[a-z]+[a-z0-9]*_)*(\d+)x(\d+)_"),  # cutlass, tensor cores
)
_PRECISIONS = (
    (re.compile(r"e4m3|e5m2|_F8|nvjet_(?:sm\d+_)?qq"), ("fp8", "matrix"), 1),
    (re.compile(r"tf32|s1688gemm_\d"), ("tf32", "matrix"), 4),
    (re.compile(r"bf16|_BBS_|_B_BS_|nvjet_(?:sm\d+_)?t[a-z]{2}_"), ("bf16", "matrix"), 2),
    (re.compile(r"f16|_HHS_|_H_HS_|h884|nvjet_(?:sm\d+_)?h[a-z]{2}_"), ("fp16", "matrix"), 2),
    (re.compile(r"(?<![a-z])dgemm|d884"), ("fp64", "matrix"), 8),
    (re.compile(r"sgemm|scudnn"), ("fp32", "vector"), 4),
    (re.compile(r"_SB_.*_MI\d"), ("fp32", "matrix"), 4),
)
_ONE_BY_ONE = re.compile(r"(?:maxwell|volta|turing|ampere)_sgemm_")  # a block for each tile, x and y their numbers
_PERSISTENT = re.compile(r"nvjet|sm(?:90|1\d\d)_|cutlass3x|_MT\d+x|stream_?k|segment_k")  # as many blocks as units
_SWIZZLES = (1, 2, 4, 8)  # of the others x may be so many times the tiles in one direction, y so many times fewer


def tile_of(kernel: str) -> tuple[int, int] | None:
    """Rows and columns of a GEMM kernel's output tile, where its name tells them."""
    match = next((m for pattern in _TILES if (m := pattern.search(kernel))), None)
    return None if match is None else (int(match[1]), int(match[2]))


def outputs_of(kernel: str, tile: tuple[int, int], grid: Grid | None) -> list[tuple[int, int]] | None:
    """The least sides that a product's output has, for each way to read its grid; None where its grid tells nothing.

    In each direction all tiles but the last are full.
    """
    if grid is None or grid.x is None or grid.y is None or _PERSISTENT.search(kernel):
        return None
    if _ONE_BY_ONE.search(kernel):
        numbers = [(grid.x - 1, grid.y - 1)]
    else:
        numbers = [(grid.x // s - 1, (grid.y - 1) * s) for s in _SWIZZLES if grid.x % s == 0]
        numbers += [(b, a) for a, b in numbers]
    return [(max(a, 1) * tile[0], max(b, 1) * tile[1]) for a, b in numbers]


def _gemm(kernel: str, mean_ns: float, peaks: Peaks, grid: Grid | None) -> Verdict:
    tile = tile_of(kernel)
    found = next(((key, item) for pattern, key, item in _PRECISIONS if pattern.search(kernel)), None)
    if tile is None or found is None or not all(tile):
        return UNKNOWN
    key, item = found
    ridge, peak = ridge_of(peaks, *key), peaks.flops.get(key)
    if ridge is None or peak is None:
        return UNKNOWN
    outputs = outputs_of(kernel, tile, grid)
    inner = max(_turning_point(rows, columns, item, ridge) for rows, columns in outputs or [tile])
    if math.isinf(inner):
        return UNKNOWN
    if outputs is not None and grid is not None:
        needed_ns = 2 * grid.blocks * tile[0] * tile[1] * inner / peak.value * 1e9
        if needed_ns > LATENCY_FRACTION * mean_ns:
            return UNKNOWN
    return Verdict(Bound.COMPUTE, Evidence.NAME, None, ridge)


def _turning_point(rows: int, columns: int, item: int, ridge: float) -> float:
    """The K from which a product with such an output is compute bound: 2·M·N·K ≥ ridge · (M·K + K·N + M·N)·item."""
    gain = 2 * rows * columns - ridge * (rows + columns) * item
    return ridge * rows * columns * item / gain if gain > 0 else math.inf
