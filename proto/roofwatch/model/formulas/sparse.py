"""fbgemm's ops over jagged tensors (recommender models): lengths, indices, embeddings in pooled rows.

They move and count, without arithmetic; bytes are what their shapes tell, a lower bound. How many rows of an embedding
table are read depends on the indices and each table's width, which a trace does not hold: look-ups are unknown.
"""

from __future__ import annotations

import re

from roofwatch.model.formulas.base import Formula, Work, dense, total_bytes
from roofwatch.model.shapes import Call

_FLAGS = re.compile(r"kernel2<(true|false), (true|false), (true|false)")


def bounds_check(call: Call) -> Work | None:
    """bounds_check_indices(rows of each table, indices, offsets, …): all read; written only where out of bounds."""
    rows, indices, offsets = (call.tensor(i) for i in range(3))
    return None if rows is None or indices is None else Work(0, total_bytes((rows, indices, offsets)))


def bucket_counts(call: Call) -> Work | None:
    """block_bucketize_sparse_features(lengths, indices, …), counting: offsets and indices read, new lengths written.

    There are as many new lengths as old ones for each rank, at least as many.
    """
    lengths, indices = call.tensor(0), call.tensor(1)
    return None if lengths is None or indices is None else Work(0, indices.bytes + 2 * lengths.bytes)


def bucket_moves(call: Call) -> Work | None:
    """block_bucketize_sparse_features, placing: old and new offsets read, every index read and written.

    The kernel's flags tell what else each index has: the place it came from, a weight, a position.
    """
    lengths, indices, weights = call.tensor(0), call.tensor(1), call.tensor(6)
    flags = _FLAGS.search(call.kernel)
    if lengths is None or indices is None or flags is None:
        return None
    from_where, weighted, positions = (flag == "true" for flag in flags.groups())
    moved = 2 * lengths.bytes + (2 + from_where + positions) * indices.bytes
    return Work(0, moved + (2 * weights.bytes if weighted and weights is not None else 0))


def bucket_scans(call: Call) -> Work | None:
    """Its two running sums, of the old lengths and of the new ones (at least as many): read and written."""
    lengths = call.tensor(0)
    return None if lengths is None else Work(0, 4 * lengths.bytes)


def permuted_lengths(call: Call) -> Work | None:
    """permute_2D_sparse_data(permute (P), lengths (T, B), indices, …): P rows of lengths read and written."""
    permute, lengths = call.tensor(0), call.tensor(1)
    if permute is None or lengths is None or len(lengths.shape) != 2:
        return None
    rows, batch = lengths.shape
    return Work(0, permute.bytes + (min(permute.numel, rows) + permute.numel) * batch * lengths.item)


def permuted_scans(call: Call) -> Work | None:
    """Its two running sums, of the old lengths and of the permuted ones: read and written."""
    permute, lengths = call.tensor(0), call.tensor(1)
    if permute is None or lengths is None or len(lengths.shape) != 2:
        return None
    return Work(0, 2 * (lengths.numel + permute.numel * lengths.shape[1]) * lengths.item)


def running_sum(call: Call) -> Work | None:
    """asynchronous_complete_cumsum(x) and its kind: x read, as many sums written (one more where complete)."""
    x = call.tensor(0)
    return None if x is None else Work(0, x.bytes + (x.numel + ("complete" in call.op)) * x.item)


def permuted_rows(call: Call) -> Work | None:
    """permute_pooled_embs(x (B, D), …): the columns in another order: read and written."""
    x = call.tensor(0)
    return None if x is None else Work(0, x.bytes + dense(x.shape, x.dtype))


def to_8_bits(call: Call) -> Work | None:
    """FloatToHFP8Quantized(x): a byte an element; a clamp (2), a product and a rounding."""
    x = call.tensor(0)
    return None if x is None else Work(4 * x.numel, x.bytes + x.numel)


def rows_to_8_bits(call: Call) -> Work | None:
    """FloatToFP8RowwiseQuantized(x (R, C)): a byte an element and two fp32 a row; the largest (1) and a product."""
    x = call.tensor(0)
    if x is None or len(x.shape) != 2:
        return None
    rows, columns = x.shape
    return Work(2 * x.numel, x.bytes + rows * (-(-columns // 4) * 4 + 8))


def from_8_bits(call: Call) -> Work | None:
    """HFP8QuantizedToFloat(x): an fp32 for each byte; one product."""
    x = call.tensor(0)
    return None if x is None else Work(x.numel, x.bytes + dense(x.shape, "fp32"))


BUCKET_COUNTS = Formula("bucketize", bucket_counts)
BUCKET_MOVES = Formula("bucketize", bucket_moves)
BUCKET_SCANS = Formula("bucketize", bucket_scans)
PERMUTED_LENGTHS = Formula("permute_jagged", permuted_lengths)
PERMUTED_SCANS = Formula("permute_jagged", permuted_scans)
RUNNING_SUM = Formula("scan", running_sum)
PERMUTED_ROWS = Formula("permute_rows", permuted_rows)

TABLE: dict[str, Formula] = {
    "fbgemm::bounds_check_indices": Formula("bounds_check", bounds_check),
    "fbgemm::FloatToHFP8Quantized": Formula("quantize", to_8_bits),
    "fbgemm::FloatToFP8RowwiseQuantized": Formula("quantize", rows_to_8_bits),
    "fbgemm::HFP8QuantizedToFloat": Formula("dequantize", from_8_bits),
}
