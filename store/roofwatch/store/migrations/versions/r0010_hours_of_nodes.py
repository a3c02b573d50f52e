"""Sums of hours of nodes as plain rows, for dashboards in SQL; those of hours that are summed up already."""

from typing import Any

import numpy as np
import sqlalchemy as sa
from alembic import op

from roofwatch.store.blocks import unpack

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None

KEY = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
HOUR_S = 3600
# Of a block of sums: signature, bound, total, est, calls, min, max; 13 columns in all.
COLUMNS, SIGNATURE, BOUND, TOTAL, EST, CALLS, LOW, HIGH = 13, 0, 2, 4, 5, 7, 11, 12


def upgrade() -> None:
    """Make the table, and fill it hour by hour."""
    op.create_table(
        "kernel_hours",
        *(
            sa.Column(name, KEY, primary_key=True, autoincrement=False, nullable=False)
            for name in ("bucket_unix_ns", "node_id", "signature_id", "peaks_id")
        ),
        *(
            sa.Column(name, sa.BigInteger(), nullable=False)
            for name in ("calls", "total_ns", "est_ns", "min_ns", "max_ns")
        ),
        sa.Column("bound", sa.SmallInteger(), primary_key=True, autoincrement=False, nullable=False),
        sqlite_with_rowid=False,
    )
    connection = op.get_bind()
    if connection.dialect.name == "postgresql":
        op.create_index("kernel_hours_signature", "kernel_hours", ["signature_id", "bucket_unix_ns"])
    fresh = "FROM rollups r WHERE r.grain = :hour AND NOT r.stale"
    for bucket in connection.scalars(
        sa.text(f"SELECT DISTINCT r.bucket_unix_ns {fresh}"),
        {"hour": HOUR_S},
    ).all():
        blocks = connection.execute(
            sa.text(
                "SELECT p.node_id, d.peaks_id, k.sums FROM kernel_sums k JOIN rollups r ON r.grain = k.grain "
                "AND r.bucket_unix_ns = k.bucket_unix_ns AND r.process_id = k.process_id "
                "JOIN processes p ON p.id = k.process_id JOIN devices d ON d.id = k.device_id "
                "WHERE k.grain = :hour AND k.bucket_unix_ns = :bucket AND NOT r.stale"
            ),
            {"hour": HOUR_S, "bucket": bucket},
        ).all()
        rows = _rows(bucket, blocks)
        if rows:
            connection.execute(
                sa.text(
                    "INSERT INTO kernel_hours (bucket_unix_ns, node_id, peaks_id, signature_id, bound, calls, "
                    "total_ns, est_ns, min_ns, max_ns) VALUES (:t, :n, :p, :s, :b, :calls, :total, :est, :low, :high)"
                ),
                rows,
            )


def _rows(bucket: int, blocks: Any) -> list[dict[str, int]]:
    found: dict[tuple[int, int, int, int], np.ndarray[Any, np.dtype[np.int64]]] = {}
    for node, peaks, block in blocks:
        values = unpack(block, COLUMNS)
        for signature, bound, *figures in values[[SIGNATURE, BOUND, CALLS, TOTAL, EST, LOW, HIGH]].T.tolist():
            key, new = (node, peaks, signature, bound), np.array(figures, np.int64)
            old = found.setdefault(key, new)
            if old is not new:
                old[:3] += new[:3]
                old[3], old[4] = min(old[3], new[3]), max(old[4], new[4])
    names = ("calls", "total", "est", "low", "high")
    return [
        {"t": bucket, "n": n, "p": p, "s": s, "b": b, **dict(zip(names, figures.tolist(), strict=True))}
        for (n, p, s, b), figures in found.items()
    ]
