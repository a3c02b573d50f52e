"""Graphs and collectives of a window, FLOPs as a range, what MFU needs, and the step a window began at."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

KEY = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def _number(name: str, *, null: bool = False) -> "sa.Column[int]":
    return sa.Column(name, sa.BigInteger(), nullable=null)


def upgrade() -> None:
    """Add them; windows that are there already keep what they did not know as unknown, or as sums of nothing."""
    op.add_column("signatures", _number("flops_max", null=True))
    op.add_column("windows", _number("first_step", null=True))
    for name in ("model_ns", "model_known_ns", "model_flops", "model_peak_ns"):
        op.add_column("windows", sa.Column(name, sa.BigInteger(), nullable=False, server_default="0"))
    op.create_table(
        "collectives",
        sa.Column("window_id", KEY, autoincrement=False, nullable=False),
        sa.Column("position", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("device", sa.SmallInteger(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("group_name", sa.String(), nullable=False),
        _number("group_size", null=True),
        _number("sequence", null=True),
        _number("start_unix_ns"),
        _number("duration_ns"),
        _number("bytes", null=True),
        sa.PrimaryKeyConstraint("window_id", "position"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "graphs",
        sa.Column("window_id", KEY, autoincrement=False, nullable=False),
        sa.Column("position", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("device", sa.SmallInteger(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        _number("launches"),
        _number("records"),
        _number("total_ns"),
        _number("attributed_ns"),
        sa.Column("source", sa.String(), nullable=True),
        sa.Column("confidence", sa.Double(), nullable=True),
        sa.PrimaryKeyConstraint("window_id", "position"),
        sqlite_with_rowid=False,
    )
