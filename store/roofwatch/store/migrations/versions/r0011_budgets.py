"""What each window was charged and how its job's account stood; how processes stand with their agents; ECC counts."""

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None

TEXT = sa.String().with_variant(sa.String(collation="C"), "postgresql")
KEY = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def _budget() -> "list[sa.Column[Any]]":
    kinds: dict[str, sa.types.TypeEngine[Any]] = {
        "interval_reason": TEXT,
        "budget_share": sa.Double(),
        "hard_stop_share": sa.Double(),
        "spent_share": sa.Double(),
        "balance_ns": sa.BigInteger(),
        "charged_ns": sa.BigInteger(),
        "charge_measured": sa.Boolean(),
        "interval_ns": sa.BigInteger(),
        "event_cap": sa.BigInteger(),
    }
    return [sa.Column(name, kind, nullable=True) for name, kind in kinds.items()]


def upgrade() -> None:
    """Add them; of windows and processes that are there already nothing is known."""
    for column in _budget():
        op.add_column("windows", column)
    for name in ("ecc_corrected", "ecc_uncorrected"):
        op.add_column("window_devices", sa.Column(name, sa.BigInteger(), nullable=True))
    op.create_table(
        "process_states",
        sa.Column("process_id", KEY, primary_key=True, autoincrement=False, nullable=False),
        sa.Column("seen_unix_ns", sa.BigInteger(), nullable=False),
        sa.Column("since_unix_ns", sa.BigInteger(), nullable=False),
        *_budget(),
        sa.Column("skipped", TEXT, nullable=False),
    )
