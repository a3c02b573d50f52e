"""The lengths of a window's sequences; clock, power and temperature of its devices."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add them; of windows that are there already nothing is known."""
    op.add_column("windows", sa.Column("padding_lengths", sa.String(), nullable=True))
    for name in ("clock_hz", "clock_max_hz", "power_w", "power_limit_w", "temperature_c"):
        op.add_column("window_devices", sa.Column(name, sa.Double(), nullable=True))
    op.add_column("window_devices", sa.Column("throttle", sa.String(), nullable=True))
