"""The first schema."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

KEY = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """Create every table."""
    op.create_table(
        "agent_drops",
        sa.Column("agent_id", KEY, autoincrement=False, nullable=False),
        sa.Column("sequence", KEY, autoincrement=False, nullable=False),
        sa.Column("reason", sa.String(), nullable=False),
        sa.Column("count", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("agent_id", "sequence", "reason"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "agents",
        sa.Column("id", KEY, autoincrement=False, nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("boot", sa.String(), nullable=False),
        sa.Column("version", sa.String(), nullable=False),
        sa.Column("node_id", sa.BigInteger(), nullable=False),
        sa.Column("seen_unix_ns", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_table(
        "devices",
        sa.Column("id", KEY, autoincrement=False, nullable=False),
        sa.Column("vendor", sa.String(), nullable=False),
        sa.Column("model", sa.String(), nullable=False),
        sa.Column("uuid", sa.String(), nullable=True),
        sa.Column("ordinal", sa.BigInteger(), nullable=True),
        sa.Column("memory_bytes", sa.BigInteger(), nullable=True),
        sa.Column("units", sa.BigInteger(), nullable=True),
        sa.Column("driver", sa.String(), nullable=True),
        sa.Column("inferred", sa.Boolean(), nullable=False),
        sa.Column("peaks_id", sa.BigInteger(), nullable=False),
        sa.Column("peaks", sa.String(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_table(
        "idle_causes",
        sa.Column("window_id", KEY, autoincrement=False, nullable=False),
        sa.Column("position", sa.SmallInteger(), autoincrement=False, nullable=False),
        sa.Column("cause", sa.String(), nullable=False),
        sa.Column("total_ns", sa.BigInteger(), nullable=False),
        sa.Column("count", sa.BigInteger(), nullable=False),
        sa.Column("longest_ns", sa.BigInteger(), nullable=False),
        sa.Column("example", sa.String(), nullable=True),
        sa.PrimaryKeyConstraint("window_id", "position", "cause"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "kernel_stats",
        sa.Column("window_id", KEY, nullable=False),
        sa.Column("signature_id", KEY, nullable=False),
        sa.Column("total_ns", sa.BigInteger(), nullable=False),
        sa.Column("min_ns", sa.BigInteger(), nullable=False),
        sa.Column("max_ns", sa.BigInteger(), nullable=False),
        sa.Column("step_ns", sa.BigInteger(), nullable=False),
        sa.Column("calls", sa.BigInteger(), nullable=False),
        sa.Column("step_calls", sa.BigInteger(), nullable=False),
        sa.Column("device", sa.SmallInteger(), nullable=False),
        sa.Column("evidence", sa.SmallInteger(), nullable=False),
        sa.Column("bound", sa.SmallInteger(), nullable=False),
        sa.Column("histogram", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("window_id", "device", "signature_id", "evidence"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "labels",
        sa.Column("owner_id", KEY, autoincrement=False, nullable=False),
        sa.Column("key", sa.String(), nullable=False),
        sa.Column("value", sa.String(), nullable=False),
        sa.PrimaryKeyConstraint("owner_id", "key"),
        sqlite_with_rowid=False,
    )
    op.create_index("labels_key_value", "labels", ["key", "value"], unique=False)
    op.create_table(
        "nodes",
        sa.Column("id", KEY, autoincrement=False, nullable=False),
        sa.Column("host", sa.String(), nullable=False),
        sa.Column("boot_id", sa.String(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_table(
        "processes",
        sa.Column("id", KEY, autoincrement=False, nullable=False),
        sa.Column("node_id", sa.BigInteger(), nullable=False),
        sa.Column("pid", sa.BigInteger(), nullable=False),
        sa.Column("start_unix_ns", sa.BigInteger(), nullable=True),
        sa.Column("owner", sa.String(), nullable=True),
        sa.Column("job", sa.String(), nullable=True),
        sa.Column("container", sa.String(), nullable=True),
        sa.Column("rank", sa.BigInteger(), nullable=True),
        sa.Column("local_rank", sa.BigInteger(), nullable=True),
        sa.Column("world_size", sa.BigInteger(), nullable=True),
        sa.Column("model", sa.String(), nullable=True),
        sa.Column("versions", sa.String(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("processes_node", "processes", ["node_id"], unique=False)
    op.create_table(
        "roofs",
        sa.Column("signature_id", KEY, autoincrement=False, nullable=False),
        sa.Column("peaks_id", KEY, autoincrement=False, nullable=False),
        sa.Column("roof_ns", sa.Double(), nullable=True),
        sa.Column("ridge", sa.Double(), nullable=True),
        sa.PrimaryKeyConstraint("signature_id", "peaks_id"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "segments",
        sa.Column("agent_id", KEY, autoincrement=False, nullable=False),
        sa.Column("sequence", KEY, autoincrement=False, nullable=False),
        sa.Column("crc32", sa.BigInteger(), nullable=False),
        sa.Column("windows", sa.BigInteger(), nullable=False),
        sa.Column("received_unix_ns", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("agent_id", "sequence"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "signatures",
        sa.Column("id", KEY, autoincrement=False, nullable=False),
        sa.Column("kernel_id", sa.BigInteger(), nullable=False),
        sa.Column("op_id", sa.BigInteger(), nullable=True),
        sa.Column("module_id", sa.BigInteger(), nullable=True),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("phase", sa.String(), nullable=False),
        sa.Column("shapes", sa.String(), nullable=True),
        sa.Column("dtypes", sa.String(), nullable=True),
        sa.Column("arguments", sa.String(), nullable=True),
        sa.Column("formula", sa.String(), nullable=True),
        sa.Column("precision", sa.String(), nullable=True),
        sa.Column("unit", sa.String(), nullable=True),
        sa.Column("flops", sa.BigInteger(), nullable=True),
        sa.Column("bytes", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("signatures_kernel", "signatures", ["kernel_id"], unique=False)
    op.create_table(
        "texts",
        sa.Column("id", KEY, autoincrement=False, nullable=False),
        sa.Column("value", sa.String(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_table(
        "window_devices",
        sa.Column("window_id", KEY, autoincrement=False, nullable=False),
        sa.Column("position", sa.SmallInteger(), autoincrement=False, nullable=False),
        sa.Column("device_id", sa.BigInteger(), nullable=False),
        sa.Column("span_ns", sa.BigInteger(), nullable=False),
        sa.Column("busy_ns", sa.BigInteger(), nullable=False),
        sa.Column("exposed_copy_ns", sa.BigInteger(), nullable=False),
        sa.Column("exposed_communication_ns", sa.BigInteger(), nullable=False),
        sa.Column("memory_used_bytes", sa.BigInteger(), nullable=True),
        sa.Column("memory_peak_bytes", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("window_id", "position"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "window_drops",
        sa.Column("window_id", KEY, autoincrement=False, nullable=False),
        sa.Column("reason", sa.String(), nullable=False),
        sa.Column("count", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("window_id", "reason"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "windows",
        sa.Column("id", KEY, nullable=False),
        sa.Column("uid", sa.LargeBinary(length=16), nullable=False),
        sa.Column("process_id", sa.BigInteger(), nullable=False),
        sa.Column("start_unix_ns", sa.BigInteger(), nullable=False),
        sa.Column("duration_ns", sa.BigInteger(), nullable=False),
        sa.Column("steps", sa.BigInteger(), nullable=True),
        sa.Column("represents_ns", sa.BigInteger(), nullable=True),
        sa.Column("trigger", sa.String(), nullable=False),
        sa.Column("collector", sa.String(), nullable=False),
        sa.Column("shapes_recorded", sa.Boolean(), nullable=False),
        sa.Column("events_read", sa.BigInteger(), nullable=False),
        sa.Column("device_records", sa.BigInteger(), nullable=False),
        sa.Column("device_time_ns", sa.BigInteger(), nullable=False),
        sa.Column("has_host_events", sa.Boolean(), nullable=False),
        sa.Column("linked_ns", sa.BigInteger(), nullable=False),
        sa.Column("backlog_ns", sa.BigInteger(), nullable=False),
        sa.Column("classifiable_ns", sa.BigInteger(), nullable=False),
        sa.Column("classified_ns", sa.BigInteger(), nullable=False),
        sa.Column("named_ns", sa.BigInteger(), nullable=False),
        sa.Column("close_path", sa.String(), nullable=True),
        sa.Column("open_ns", sa.BigInteger(), nullable=True),
        sa.Column("quiesce_ns", sa.BigInteger(), nullable=True),
        sa.Column("close_ns", sa.BigInteger(), nullable=True),
        sa.Column("save_ns", sa.BigInteger(), nullable=True),
        sa.Column("free_ns", sa.BigInteger(), nullable=True),
        sa.Column("base_step_ns", sa.BigInteger(), nullable=True),
        sa.Column("longest_step_ns", sa.BigInteger(), nullable=True),
        sa.Column("lost_in_ns", sa.BigInteger(), nullable=True),
        sa.Column("lost_after_ns", sa.BigInteger(), nullable=True),
        sa.Column("parse_cpu_ns", sa.BigInteger(), nullable=True),
        sa.Column("padding_batches", sa.BigInteger(), nullable=True),
        sa.Column("padding_real_tokens", sa.BigInteger(), nullable=True),
        sa.Column("padding_padded_tokens", sa.BigInteger(), nullable=True),
        sa.Column("padding_real_squared", sa.BigInteger(), nullable=True),
        sa.Column("padding_padded_squared", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("uid"),
    )
    op.create_index("windows_process_start", "windows", ["process_id", "start_unix_ns"], unique=False)
    op.create_index("windows_start", "windows", ["start_unix_ns"], unique=False)
