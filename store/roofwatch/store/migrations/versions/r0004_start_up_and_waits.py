"""Start-up inside each idle cause; the host's waits and Python functions of a window."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add them; of windows that are there already no start-up is known, and no wait was measured."""
    for name in ("startup_ns", "startup_count"):
        op.add_column("idle_causes", sa.Column(name, sa.BigInteger(), nullable=False, server_default="0"))
    op.add_column("idle_causes", sa.Column("steady_longest_ns", sa.BigInteger(), nullable=True))
    op.add_column("idle_causes", sa.Column("steady_example", sa.String(), nullable=True))
    for name in ("python_events", "waits", "wait_ns", "longest_wait_ns"):
        op.add_column("windows", sa.Column(name, sa.BigInteger(), nullable=True))
