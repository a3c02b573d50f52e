"""More windows than a store writes in a test, by SQL."""

from __future__ import annotations

from clickhouse_server import ClickHouse


def many_windows(clickhouse: ClickHouse, name: str, count: int) -> None:
    """So many of one process, whose uids are the MD5 of their numbers."""
    clickhouse.run("INSERT INTO nodes (id, host, boot_id) VALUES (1, 'gpu-1', '')", name)
    clickhouse.run("INSERT INTO processes (id, node_id, pid, start_unix_ns, versions) VALUES (7, 1, 1, 1, '{}')", name)
    made = f"SELECT number, MD5(toString(number)), 7, number, 'schedule' FROM numbers({count})"  # noqa: S608 - a number
    clickhouse.run(f"INSERT INTO windows (id, uid, process_id, start_unix_ns, trigger) {made}", name)
