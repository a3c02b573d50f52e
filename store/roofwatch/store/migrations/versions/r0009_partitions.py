"""On Postgres a partition for each day's windows and what they are made of; segments that are forgotten are told."""

from datetime import UTC, datetime, timedelta

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None

TABLES = {
    "kernel_blocks": "window_id",
    "collectives": "window_id",
    "graphs": "window_id",
    "window_devices": "window_id",
    "window_drops": "window_id",
    "idle_causes": "window_id",
    "windows": "id",  # the last: what the others are renumbered by
}
DAY_NS = 86_400 * 10**9
BITS = 40  # a number is the day above a serial number of so many bits
MOST_DAYS = 64
KEYS = {
    "collectives": "window_id, position",
    "graphs": "window_id, position",
    "idle_causes": "window_id, position, cause",
    "kernel_blocks": "window_id",
    "window_devices": "window_id, position",
    "window_drops": "window_id, reason",
    "windows": "id",
}


def upgrade() -> None:
    """Add the column; on Postgres copy windows and their parts into partitioned tables, under new numbers."""
    op.add_column("agents", sa.Column("forgotten", sa.BigInteger(), nullable=False, server_default="-1"))
    connection = op.get_bind()
    if connection.dialect.name != "postgresql":
        return
    days = connection.scalars(
        sa.text(
            "SELECT DISTINCT start_unix_ns / :day FROM windows WHERE trigger <> 'imported' "
            "AND start_unix_ns >= :day ORDER BY 1 DESC LIMIT :most"
        ),
        {"day": DAY_NS, "most": MOST_DAYS},
    ).all()
    connection.execute(sa.text("ALTER SEQUENCE windows_id_seq OWNED BY NONE"))
    renumbered = (
        "CREATE TEMPORARY TABLE renumbered ON COMMIT DROP AS SELECT id, id + CASE WHEN trigger <> 'imported' "  # noqa: S608 - numbers
        f"AND start_unix_ns / {DAY_NS} = ANY(:days) THEN (start_unix_ns / {DAY_NS}) << {BITS} ELSE 0 END AS number "
        "FROM windows"
    )
    connection.execute(sa.text(renumbered), {"days": list(days)})
    connection.execute(sa.text("ALTER TABLE renumbered ADD PRIMARY KEY (id)"))
    connection.execute(sa.text("ANALYZE renumbered"))
    for table, key in TABLES.items():
        _partition(connection, table, key, sorted(days))
    connection.execute(sa.text("DROP TABLE renumbered"))


def _partition(connection: sa.Connection, table: str, key: str, days: "list[int]") -> None:
    def run(statement: str) -> None:
        connection.execute(sa.text(statement))

    old = f"{table}_0008"
    run(f"ALTER TABLE {table} RENAME TO {old}")
    run(f"ALTER TABLE {old} DROP CONSTRAINT {table}_pkey")
    for index in ("windows_process_start", "windows_start") if table == "windows" else ():
        run(f"DROP INDEX {index}")
    run(f"CREATE TABLE {table} (LIKE {old} INCLUDING DEFAULTS INCLUDING STORAGE) PARTITION BY RANGE ({key})")
    run(f"ALTER TABLE {table} ADD PRIMARY KEY ({KEYS[table]})")
    if table == "windows":
        run(f"ALTER TABLE {table} ALTER COLUMN id DROP DEFAULT")
        run("CREATE INDEX windows_process_start ON windows (process_id, start_unix_ns)")
        run("CREATE INDEX windows_start ON windows (start_unix_ns)")
        run("CREATE INDEX windows_start_brin ON windows USING brin (start_unix_ns) WITH (pages_per_range = 16)")
    bounds = [(f"{table}_shared", "MINVALUE", f"{1 << BITS}")]
    for day in days:
        name = (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(days=day)).strftime("%Y%m%d")
        bounds.append((f"{table}_{name}", f"{day << BITS}", f"{day + 1 << BITS}"))
    for name, low, high in bounds:
        run(f"CREATE TABLE {name} PARTITION OF {table} FOR VALUES FROM ({low}) TO ({high})")
        if table == "windows":
            run(f"CREATE UNIQUE INDEX {name}_uid ON {name} (uid)")
    columns = connection.scalars(
        sa.text(
            "SELECT quote_ident(attname) FROM pg_attribute WHERE attrelid = cast(:name AS regclass) "
            "AND attnum > 0 AND NOT attisdropped ORDER BY attnum"
        ),
        {"name": table},
    ).all()
    others = [name for name in columns if name != key]
    told = ", ".join(f"o.{name}" for name in others)
    connection.execute(
        sa.text(
            f"INSERT INTO {table} ({key}, {', '.join(others)}) SELECT r.number, {told} "  # noqa: S608 - our own names
            f"FROM {old} o JOIN renumbered r ON r.id = o.{key}"
        )
    )
    run(f"DROP TABLE {old}")
