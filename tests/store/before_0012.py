"""Sums on Postgres as they were before schema 0012: tables without partitions."""

from __future__ import annotations

from sqlalchemy import Connection

KEYS = {
    "kernel_sums": "grain, bucket_unix_ns, process_id, device_id",
    "window_sums": "grain, bucket_unix_ns, process_id, devices_id",
    "drop_sums": "grain, bucket_unix_ns, process_id, devices_id, reason",
    "device_sums": "grain, bucket_unix_ns, process_id, device_id",
    "cause_sums": "grain, bucket_unix_ns, process_id, device_id, cause",
    "kernel_hours": "bucket_unix_ns, node_id, signature_id, peaks_id, bound",
}
VIEWS = ("windows", "devices", "device_hours", "idle_hours", "kernel_hours", "kernels", "bounds")


def without_partitions(connection: Connection) -> None:
    """Take a database back to schema 0011; nothing to do on SQLite but to say so."""
    for view in VIEWS:
        connection.exec_driver_sql(f"DROP VIEW dashboard_{view}")
    connection.exec_driver_sql("UPDATE alembic_version SET version_num = '0011'")
    if connection.dialect.name != "postgresql":
        return
    connection.exec_driver_sql("DROP INDEX devices_model")
    connection.exec_driver_sql("DROP INDEX kernel_hours_signature")
    for table, key in KEYS.items():
        for statement in (
            f"CREATE TABLE plain (LIKE {table} INCLUDING DEFAULTS INCLUDING STORAGE)",
            f"INSERT INTO plain SELECT * FROM {table}",  # noqa: S608 - our own names
            f"DROP TABLE {table}",
            f"ALTER TABLE plain RENAME TO {table}",
            f"ALTER TABLE {table} ADD PRIMARY KEY ({key})",
        ):
            connection.exec_driver_sql(statement)
    connection.exec_driver_sql("CREATE INDEX kernel_hours_signature ON kernel_hours (signature_id, bucket_unix_ns)")
