"""On Postgres sums of hours have a partition a day, sums of days one a month."""

from datetime import UTC, datetime, timedelta

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None

PIECE = "grain, bucket_unix_ns, process_id"
KEYS = {
    "kernel_sums": f"{PIECE}, device_id",
    "window_sums": f"{PIECE}, devices_id",
    "drop_sums": f"{PIECE}, devices_id, reason",
    "device_sums": f"{PIECE}, device_id",
    "cause_sums": f"{PIECE}, device_id, cause",
    "kernel_hours": "bucket_unix_ns, node_id, signature_id, peaks_id, bound",
}
DAY_NS = 86_400 * 10**9
HOUR_S, DAY_S = 3600, 86_400
MOST = 64  # days, and months: the newest; what is older goes to the default partition
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def upgrade() -> None:
    """Copy the sums into partitioned tables."""
    connection = op.get_bind()
    if connection.dialect.name != "postgresql":
        return
    spans = [*_spans(connection, HOUR_S), *_spans(connection, DAY_S)]
    connection.execute(sa.text("CREATE INDEX devices_model ON devices (lower(model))"))
    for table in KEYS:
        _partition(connection, table, spans)
    # What the index is there for is how many devices are of a model, which the planner knows after this alone.
    for table in ("devices", *KEYS):
        connection.execute(sa.text(f"ANALYZE {table}"))


def _spans(connection: sa.Connection, grain: int) -> "list[tuple[int, str, int, int]]":
    """(grain, end of the names, first day, first day after it) of the sums that are there."""
    days = connection.scalars(
        sa.text("SELECT DISTINCT bucket_unix_ns / :day FROM rollups WHERE grain = :grain AND bucket_unix_ns >= :day"),
        {"day": DAY_NS, "grain": grain},
    ).all()
    found = set()
    for day in days:
        date = EPOCH + timedelta(days=day)
        if grain == HOUR_S:
            found.add((grain, date.strftime("%Y%m%d"), day, day + 1))
            continue
        first = date.replace(day=1)
        after = (first + timedelta(days=31)).replace(day=1)
        found.add((grain, date.strftime("%Y%m"), (first - EPOCH).days, (after - EPOCH).days))
    return sorted(found)[-MOST:]


def _partition(connection: sa.Connection, table: str, spans: "list[tuple[int, str, int, int]]") -> None:
    def run(statement: str) -> None:
        connection.execute(sa.text(statement))

    old, by_time = f"{table}_0011", table == "kernel_hours"
    run(f"ALTER TABLE {table} RENAME TO {old}")
    run(f"ALTER TABLE {old} DROP CONSTRAINT {table}_pkey")
    if by_time:
        run("DROP INDEX kernel_hours_signature")
    by = "RANGE (bucket_unix_ns)" if by_time else "LIST (grain)"
    run(f"CREATE TABLE {table} (LIKE {old} INCLUDING DEFAULTS INCLUDING STORAGE) PARTITION BY {by}")
    run(f"ALTER TABLE {table} ADD PRIMARY KEY ({KEYS[table]})")
    if by_time:
        run("CREATE INDEX kernel_hours_signature ON kernel_hours (signature_id, bucket_unix_ns)")
    for grain, name in ((HOUR_S, "hourly"), *(() if by_time else ((DAY_S, "daily"),))):
        parent = table if by_time else f"{table}_{name}"
        if not by_time:
            by = "PARTITION BY RANGE (bucket_unix_ns)"
            run(f"CREATE TABLE {parent} PARTITION OF {table} FOR VALUES IN ({grain}) {by}")
        run(f"CREATE TABLE {parent}_shared PARTITION OF {parent} DEFAULT")
        for of, suffix, low, high in spans:
            if of == grain:
                bounds = f"FROM ({low * DAY_NS}) TO ({high * DAY_NS})"
                run(f"CREATE TABLE {parent}_{suffix} PARTITION OF {parent} FOR VALUES {bounds}")
    run(f"INSERT INTO {table} SELECT * FROM {old}")  # noqa: S608 - our own names
    run(f"DROP TABLE {old}")
