"""Versions of the tables on ClickHouse: what makes them, what changes them, and who is refused."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping

from sqlalchemy import Connection

from roofwatch.model.errors import RoofwatchError
from roofwatch.store.clickhouse.tables import BY_UID, DURABLE, FINE, LAYOUTS, OWN, PACKED, Layout

VERSION = 4  # of the tables; a change of ``LAYOUTS`` takes a new one, and its statements in ``CHANGES``
VERSIONS = "roofwatch_versions"


def cluster_of(connection: Connection) -> str:
    """The name of the cluster that the URL gives, "" where it is one server."""
    return str(connection.get_execution_options().get("roofwatch_cluster", ""))


def stored(name: str, cluster: str) -> str:
    """The table that holds the rows of a name on each server."""
    layout = LAYOUTS.get(name) or OWN[name]
    return f"{name}_local" if cluster and layout.shard else name


def on(cluster: str) -> str:
    """What a statement about tables says of where it is to run."""
    return f" ON CLUSTER `{cluster}`" if cluster else ""


def _engine(layout: Layout, cluster: str) -> str:
    if not cluster:
        return f"{layout.engine}({', '.join(layout.arguments)})"
    # Every server has all rows of what is not spread; of the rest, the servers of one shard have the same.
    shard = "{shard}" if layout.shard else "all"
    path = f"'/clickhouse/tables/{shard}/{{database}}/{{table}}'"
    replica = "'{replica}'" if layout.shard else "'{shard}-{replica}'"
    return f"Replicated{layout.engine}({', '.join((path, replica, *layout.arguments))})"


def create(name: str, layout: Layout, cluster: str = "") -> Iterator[str]:
    """The statements that make a table."""
    lines = [f"`{column}` {kind}" for column, kind in layout.columns.items()]
    columns = ", ".join((*lines, *(f"INDEX {index} {of}" for index, of in layout.indexes.items())))
    made = stored(name, cluster)
    settings = {**layout.storage, **({} if cluster else layout.settings), **DURABLE}
    parts = [f"CREATE TABLE IF NOT EXISTS {made}{on(cluster)} ({columns}) ENGINE = {_engine(layout, cluster)}"]
    if layout.partition:
        parts.append(f"PARTITION BY {layout.partition}")
    parts.append(f"ORDER BY ({', '.join(layout.key)})")
    parts.append("SETTINGS " + _listed(settings))
    yield " ".join(parts)
    if made != name:
        yield (
            f"CREATE TABLE IF NOT EXISTS {name}{on(cluster)} AS {made} "
            f"ENGINE = Distributed('{cluster}', currentDatabase(), {made}, cityHash64({layout.shard}))"
        )


def _listed(settings: Mapping[str, int]) -> str:
    return ", ".join(f"{key} = {value}" for key, value in settings.items())


def statements(cluster: str = "") -> list[str]:
    """All that makes the tables of this version."""
    return [text for name, layout in {**LAYOUTS, **OWN}.items() for text in create(name, layout, cluster)]


def _second(cluster: str) -> Iterator[str]:
    """What windows were charged, and how processes stand with their agents."""
    share, whole = "Nullable(Float64) CODEC(ZSTD(1))", "Nullable(Int64) CODEC(ZSTD(1))"
    columns = {
        "interval_reason": "LowCardinality(Nullable(String)) CODEC(ZSTD(1))",
        **dict.fromkeys(("budget_share", "hard_stop_share", "spent_share"), share),
        **dict.fromkeys(("balance_ns", "charged_ns"), whole),
        "charge_measured": "Nullable(Bool) CODEC(ZSTD(1))",
        **dict.fromkeys(("interval_ns", "event_cap"), whole),
    }
    added = ", ".join(f"ADD COLUMN IF NOT EXISTS `{name}` {kind}" for name, kind in columns.items())
    for table in dict.fromkeys((stored("windows", cluster), "windows")):
        yield f"ALTER TABLE {table}{on(cluster)} {added}"
    errors = ", ".join(f"ADD COLUMN IF NOT EXISTS `ecc_{kind}` {whole}" for kind in ("corrected", "uncorrected"))
    for table in dict.fromkeys((stored("window_devices", cluster), "window_devices")):
        yield f"ALTER TABLE {table}{on(cluster)} {errors}"
    yield from create("process_states", LAYOUTS["process_states"], cluster)
    for table in (name for name in {**LAYOUTS, **OWN} if name != PACKED):  # which is of the fourth
        yield f"ALTER TABLE {stored(table, cluster)}{on(cluster)} MODIFY SETTING {_listed(DURABLE)}"


def _third(cluster: str) -> Iterator[str]:
    """Windows are found by uid; of those that are there, once the server comes to it."""
    table = f"ALTER TABLE {stored('windows', cluster)}{on(cluster)}"
    for name, of in BY_UID.items():
        yield f"{table} ADD INDEX IF NOT EXISTS {name} {of}"
        yield f"{table} MATERIALIZE INDEX {name}"


def _fourth(cluster: str) -> Iterator[str]:
    """Small sums are there as texts, too, of what is summed up from now on.

    And sums of kernels lie in smaller blocks; how many rows a mark stands for cannot be changed.
    """
    yield from create(PACKED, LAYOUTS[PACKED], cluster)
    yield f"ALTER TABLE {stored('kernel_sums', cluster)}{on(cluster)} MODIFY SETTING {_listed(FINE)}"


# From the tables of the version before to this one.
CHANGES: dict[int, Callable[[str], Iterator[str]]] = {2: _second, 3: _third, 4: _fourth}


def version(connection: Connection) -> int | None:
    """Which version's tables there are; None where there are none of ours."""
    if not connection.exec_driver_sql(f"EXISTS TABLE {VERSIONS}").scalar_one():
        return None
    found = connection.exec_driver_sql(f"SELECT max(version) FROM {VERSIONS}").scalar_one()  # noqa: S608 - our name
    return None if found is None else int(found)


def migrate(connection: Connection) -> None:
    """Make the tables, or bring them to this version; each statement may run twice, so a broken run is run again."""
    found = version(connection)
    if found == VERSION or (found or 0) > VERSION:
        return
    if found is None:
        others = connection.exec_driver_sql("SELECT name FROM system.tables WHERE database = currentDatabase()")
        if {name for (name,) in others} - {*LAYOUTS, *OWN, *(f"{name}_local" for name in LAYOUTS)}:
            return  # another program's database stays as it is
    wanted = statements(cluster_of(connection)) if found is None else [
        text for number in range(found + 1, VERSION + 1) for text in CHANGES[number](cluster_of(connection))
    ]  # fmt: skip
    for text in wanted:
        connection.exec_driver_sql(text)
    row = f"({VERSION}, {time.time_ns()})"
    text = f"INSERT INTO {VERSIONS} (version, applied_unix_ns) VALUES {row}"  # noqa: S608 - our numbers
    connection.exec_driver_sql(text)


def check(connection: Connection, name: str) -> None:
    """Refuse tables that are not this version's.

    Raises:
        RoofwatchError: they are not.
    """
    found = version(connection)
    if found == VERSION:
        return
    if found is None:
        raise RoofwatchError(f"{name} is not a Roofwatch database: check the URL")
    if found > VERSION:
        raise RoofwatchError(
            f"{name} was written by a newer version of Roofwatch (tables {found}, this one knows {VERSION}): "
            "upgrade Roofwatch"
        )
    raise RoofwatchError(
        f"{name} has the older tables {found}: 'roofwatch store serve' of this version brings them to {VERSION}"
    )
