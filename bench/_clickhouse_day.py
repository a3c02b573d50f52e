"""A day of ten million kernels on ClickHouse, made by SQL of what was ingested. For ``bench/store_clickhouse.py``."""

# ruff: noqa: S608 - statements of our own numbers and names

from __future__ import annotations

import time

from _rows import say
from clickhouse_server import ClickHouse

from roofwatch.store.clickhouse import pieces, sums
from roofwatch.store.clickhouse.journal import open_file
from roofwatch.store.clickhouse.opening import ClickHouse as Opened
from roofwatch.store.config import default_journal
from roofwatch.store.days import DAY_NS, SERIAL_BITS


def multiplied(server: ClickHouse, name: str, copies: int) -> None:
    """A day of such windows: each once every so many minutes, with other times."""
    step = DAY_NS // copies
    moved = f"intDiv(start_unix_ns, {DAY_NS}) * {DAY_NS} + modulo(start_unix_ns, {step}) + n * {step}"
    number = f"bitShiftLeft(intDiv(start_unix_ns, {DAY_NS}), {SERIAL_BITS}) + 1000000 * (n + 1)"
    for table in ("windows", "window_devices", "kernel_blocks", "kernel_facts"):
        key = "id" if table == "windows" else "window_id"
        own = f"{number} + bitAnd({key}, {(1 << SERIAL_BITS) - 1}) AS {key}"
        noise = "(0.8 + 0.4 * rand() / 4294967296)"
        changes = {
            "windows": f"{own}, {moved} AS start_unix_ns, reinterpretAsFixedString(generateUUIDv4()) AS uid",
            "kernel_facts": f"{own}, {moved} AS start_unix_ns, toInt64(total_ns * {noise}) AS total_ns, "
            f"toInt64(min_ns * {noise}) AS min_ns, toInt64(max_ns * {noise}) AS max_ns, "
            f"arrayMap(b -> b + modulo(rand(1), 4), histogram_buckets) AS histogram_buckets",
        }.get(table)
        source = f"{table} CROSS JOIN (SELECT number AS n FROM numbers({copies})) AS c"
        if changes is None:  # no time of its own
            own = own.replace("start_unix_ns", "w.start")
            source += f" JOIN (SELECT id AS wid, start_unix_ns AS start FROM old_windows) AS w ON w.wid = {key}"
            changes = own
        statement = f"INSERT INTO {table} SELECT {table}.* REPLACE ({changes}) FROM old_{table} AS {source}"
        server.run(f"RENAME TABLE {table} TO old_{table}", name)
        server.run(f"CREATE TABLE {table} AS old_{table}", name)
        server.run(statement, name)


def two_models(server: ClickHouse, name: str) -> None:
    """Half of the devices are of another model: to be compared with the rest."""
    half = "SELECT id FROM devices FINAL ORDER BY id LIMIT (SELECT intDiv(count(), 2) FROM devices FINAL)"
    server.run(
        f"INSERT INTO devices SELECT * REPLACE ('NVIDIA H200' AS model) FROM devices FINAL WHERE id IN ({half})", name
    )


def summed_up(server: ClickHouse, opened: Opened, name: str) -> None:
    """The hours and the day, as a store does it."""
    journal = open_file(default_journal(opened.url))
    found = server.run(
        "SELECT DISTINCT intDiv(start_unix_ns, 3600000000000) * 3600000000000, process_id FROM windows", name
    )
    hours = {(3600, int(bucket), int(process)) for bucket, process in found}
    days = {(86_400, bucket // DAY_NS * DAY_NS, process) for _, bucket, process in hours}
    with journal.write() as kept:
        kept.exec_driver_sql("DELETE FROM pieces")
        kept.exec_driver_sql(
            "INSERT INTO pieces (grain, bucket_unix_ns, process_id, stale, finer) VALUES (?, ?, ?, 1, 1)",
            sorted(hours | days),
        )
        told, version = pieces.states(kept, sorted(hours | days)), journal.next(kept, "version")
    begin = time.perf_counter()
    with opened.engine.connect() as connection:
        pieces.publish(connection, told, version)
        while sums.sweep(connection, journal, 1 << 62):
            pass
    say(f"{len(hours):,} hours and {len(days)} days of processes summed up in {time.perf_counter() - begin:.1f} s")
    journal.close()


def fact_bytes(server: ClickHouse, name: str) -> tuple[float, int]:
    """Bytes on disk of a fact with its histogram and indexes, and how many facts there are."""
    [[each, rows]] = server.run(
        "SELECT sum(bytes_on_disk) / sum(rows), sum(rows) FROM system.parts WHERE active AND table = 'kernel_facts' "
        f"AND database = '{name}'"
    )
    return float(each), int(rows)
