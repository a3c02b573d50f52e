"""The formula's verdict beside a measured one, how often the two differ, and the layout tax."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add them; of windows that are there already nothing was measured twice, and no layout tax is known."""
    op.add_column("kernel_stats", sa.Column("formula_bound", sa.SmallInteger(), nullable=True))
    for name in ("compared_ns", "disagreed_ns"):
        op.add_column("windows", sa.Column(name, sa.BigInteger(), nullable=False, server_default="0"))
    op.add_column("windows", sa.Column("layout_ns", sa.BigInteger(), nullable=True))
