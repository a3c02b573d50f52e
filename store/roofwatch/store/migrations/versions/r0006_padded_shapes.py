"""The shapes of a window's padded batches, and what of their lengths is not exact or not known."""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add them; of windows that are there already nothing is known."""
    op.add_column("windows", sa.Column("padding_shapes", sa.String(), nullable=True))
    for name in ("padding_coarsened", "padding_unread"):
        op.add_column("windows", sa.Column(name, sa.BigInteger(), nullable=True))
