"""Verdicts by a kernel's name, for records without shapes. Only where the name makes the bound all but certain.

- Kinds that do a few operations an element are memory bound on every device (their intensity is far below any ridge).
- A plain GEMM is compute bound if one of its tiles alone has an intensity above the ridge: 2·m·n / ((m + n)·item) for a
  long K.
Both need a kernel long and wide enough not to be latency bound (at least 10 µs and a block for each unit); a shorter
one stays unknown, because without FLOPs and bytes its roof fraction is unknown.
"""

from __future__ import annotations

import re

from roofwatch.model.kinds import Kind
from roofwatch.model.record import Bound, Evidence, Peaks
from roofwatch.model.roofline import LATENCY_NS, UNKNOWN, Verdict, ridge_of

_MEMORY_KINDS = frozenset(
    {
        Kind.ELEMENTWISE, Kind.ACTIVATION, Kind.CAST, Kind.COPY_FILL, Kind.LAYOUT, Kind.OPTIMIZER, Kind.NORM,
        Kind.SOFTMAX, Kind.REDUCTION, Kind.ROPE, Kind.GATHER_SCATTER, Kind.RANDOM, Kind.POOLING,
    }
)  # fmt: skip

_TILES = (
    re.compile(r"tilesize(\d+)x(\d+)"),  # xmma
    re.compile(r"_MT(\d+)x(\d+)x\d+"),  # Tensile
    re.compile(r"nvjet_\w+?_(\d+)x(\d+)_"),
    re.compile(r"[sh]gemm_(\d+)x(\d+)"),  # cuBLAS SIMT kernels
    re.compile(r"gemm_(?:[a-z0-9]+_)*(\d+)x(\d+)_\d+x\d+"),  # cutlass
)
_PRECISIONS = (
    (re.compile(r"tf32|s1688gemm_\d"), ("tf32", "matrix"), 4),
    (re.compile(r"bf16|_BBS_|_B_BS_|nvjet_tst"), ("bf16", "matrix"), 2),
    (re.compile(r"f16|_HHS_|_H_HS_|h884|nvjet_hsh"), ("fp16", "matrix"), 2),
    (re.compile(r"sgemm"), ("fp32", "vector"), 4),
    (re.compile(r"_SB_.*_MI\d"), ("fp32", "matrix"), 4),
)


def tile_of(kernel: str) -> tuple[int, int] | None:
    """Rows and columns of a GEMM kernel's output tile, where its name tells them."""
    match = next((m for pattern in _TILES if (m := pattern.search(kernel))), None)
    return None if match is None else (int(match[1]), int(match[2]))


def judge_by_name(
    kind: Kind, kernel: str, mean_ns: float, peaks: Peaks, *, blocks: int | None = None, units: int | None = None
) -> Verdict:
    """Memory or compute by name (evidence ``name``), else unknown."""
    if mean_ns < LATENCY_NS or (blocks is not None and units is not None and blocks < units):
        return UNKNOWN
    if kind in _MEMORY_KINDS:
        return Verdict(Bound.MEMORY, Evidence.NAME)
    return _gemm(kernel, peaks) if kind in (Kind.MATMUL, Kind.CONV) else UNKNOWN


def _gemm(kernel: str, peaks: Peaks) -> Verdict:
    tile = tile_of(kernel)
    found = next(((key, item) for pattern, key, item in _PRECISIONS if pattern.search(kernel)), None)
    if tile is None or found is None or not all(tile):
        return UNKNOWN
    (precision, unit), item = found
    ridge = ridge_of(peaks, precision, unit)
    rows, columns = tile
    if ridge is None or 2 * rows * columns / ((rows + columns) * item) < ridge:
        return UNKNOWN
    return Verdict(Bound.COMPUTE, Evidence.NAME, None, ridge)
