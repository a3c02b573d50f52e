"""Postgres sorts texts by their bytes, as the other engines do, whatever language its database is of."""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None

TEXTS = {
    "agent_drops": ("reason",),
    "agents": ("name", "boot", "version"),
    "cause_sums": ("cause", "example", "steady_example"),
    "collectives": ("name", "group_name"),
    "devices": ("vendor", "model", "uuid", "driver", "peaks"),
    "drop_sums": ("reason",),
    "graphs": ("name", "source"),
    "idle_causes": ("cause", "example", "steady_example"),
    "labels": ("key", "value"),
    "nodes": ("host", "boot_id"),
    "processes": ("owner", "job", "container", "model", "versions"),
    "signatures": ("kind", "phase", "shapes", "dtypes", "arguments", "formula", "precision", "unit"),
    "texts": ("value",),
    "window_devices": ("throttle",),
    "window_drops": ("reason",),
    "windows": ("trigger", "collector", "close_path", "padding_lengths", "padding_shapes"),
}


def upgrade() -> None:
    """Change the columns' collation; nothing is to be done on SQLite."""
    if op.get_bind().dialect.name != "postgresql":
        return
    for table, names in TEXTS.items():
        for name in names:
            op.alter_column(table, name, type_=sa.String(collation="C"))
