"""The tables of ClickHouse: versions, what is refused, and the statements for a cluster, read by its own parser."""

from __future__ import annotations

import asyncio
import hashlib
import time

import pytest
from clickhouse_connect.driver.binding import finalize_query
from clickhouse_server import ClickHouse
from clickhouse_windows import many_windows
from sqlalchemy import event

from roofwatch.model.errors import RoofwatchError, UnreachableError, UsageError
from roofwatch.store import database, schema
from roofwatch.store.clickhouse import ddl, engine, native, upkeep
from roofwatch.store.clickhouse.tables import LAYOUTS, OWN
from roofwatch.store.whose import Whose

# A change of the tables is a new version, with the statements that bring the old ones there (ddl.CHANGES).
PINNED = {1: "6a9596f154ae3913", 2: "ec423f5ded03516f", 3: "f6ebe20c60d7d4cf", 4: "bea5453f2f1ef2b7"}


def test_tables_of_a_version_never_change() -> None:
    """What version 1 made stays what version 1 made."""
    text = "\n".join((*ddl.statements(), *ddl.statements("c")))
    assert hashlib.blake2b(text.encode(), digest_size=8).hexdigest() == PINNED[ddl.VERSION]
    assert set(ddl.CHANGES) == set(range(2, ddl.VERSION + 1))


def test_every_column_of_the_schema_is_there(clickhouse: ClickHouse) -> None:
    """What a query may name on one engine it may name on all; kernels are rows here, and only those are otherwise."""
    name = clickhouse.create()
    database.open(clickhouse.url(name)).close()
    database.open(clickhouse.url(name)).close()  # a second time nothing is to be done
    told = clickhouse.run(f"SELECT table, name, type FROM system.columns WHERE database = '{name}'")  # noqa: S608
    there = {(table, column): kind for table, column, kind in told}
    for table in schema.metadata.tables.values():
        if table.name not in LAYOUTS:
            assert table.name == "kernel_hours"  # for dashboards in SQL, which can group kernel_sums here
            continue
        for column in table.columns:
            blob = table.name in {"kernel_blocks", "kernel_sums"} and column.name in {
                "facts",
                "sums",
                "histograms",
                "rows",
            }
            if blob and not (table.name == "kernel_blocks" and column.name == "rows"):
                continue
            kind = there[table.name, column.name]
            assert ("Nullable" in kind) == bool(column.nullable), (table.name, column.name)


@pytest.mark.parametrize("name", sorted(LAYOUTS))
def test_statements_for_a_cluster(clickhouse: ClickHouse, name: str) -> None:
    """Each is read by ClickHouse's own parser as what it is meant to be; no cluster runs here."""
    texts = list(ddl.create(name, LAYOUTS[name], "fleet"))
    for text in texts:
        assert "ON CLUSTER `fleet`" in text
        read = "\n".join(line[0] for line in clickhouse.run(f"EXPLAIN AST {text}"))
        assert read.startswith(("CreateQuery", "TableIdentifier")), read[:200]
        engine = "Distributed" if "_local ENGINE = Distributed" in text else f"Replicated{LAYOUTS[name].engine}"
        assert f"Function {engine}" in read
    assert len(texts) == (2 if LAYOUTS[name].shard else 1)


def test_what_changes_tables_of_a_cluster(clickhouse: ClickHouse) -> None:
    """Tables of its own, what brings older ones here, and what drops old days: for each server's own tables."""
    own = [text for name, layout in OWN.items() for text in ddl.create(name, layout, "fleet")]
    changes = [text for change in ddl.CHANGES.values() for text in change("fleet")]
    partitions = [upkeep.dropping(name, "fleet", "20454") for name in ("windows", "kernel_facts")]
    rows = [upkeep.deleting("rollups", "fleet", "grain = 3600"), upkeep.deleting("process_states", "fleet", "1")]
    for text in (*own, *changes, *partitions, *rows):
        assert " ON CLUSTER `fleet`" in text
        read = "\n".join(line[0] for line in clickhouse.run(f"EXPLAIN AST {text}"))
        assert read.startswith(("CreateQuery", "AlterQuery", "DeleteQuery")), read[:200]
        assert ("Function Replicated" in read) == text.startswith("CREATE TABLE") or "Function Distributed" in read
    assert [text.split()[2] for text in partitions] == ["windows_local", "kernel_facts_local"]


def test_what_is_not_ours_is_refused(clickhouse: ClickHouse) -> None:
    """A newer version's tables, another program's, none at all, no such database, no server, no driver of that name."""
    newer, foreign, empty = clickhouse.create(), clickhouse.create(), clickhouse.create()
    database.open(clickhouse.url(newer)).close()
    clickhouse.run("INSERT INTO roofwatch_versions (version, applied_unix_ns) VALUES (9000, 1)", newer)
    clickhouse.run("CREATE TABLE cats (name String) ENGINE = MergeTree ORDER BY name", foreign)
    for name, said, migrate in (
        (newer, rf"a newer version of Roofwatch \(tables 9000, this one knows {ddl.VERSION}\): upgrade", True),
        (foreign, "is not a Roofwatch database: check the URL", True),
        (empty, "is not a Roofwatch database: check the URL", False),
        ("nowhere", "failed: .*nowhere", True),
    ):
        with pytest.raises(RoofwatchError, match=said) as told:
            database.open(clickhouse.url(name), migrate=migrate)
        assert len(str(told.value).splitlines()) == 1
    assert clickhouse.run(f"SELECT name FROM system.tables WHERE database = '{foreign}'") == [["cats"]]  # noqa: S608
    with pytest.raises(UnreachableError, match="no ClickHouse answers") as away:
        database.open("clickhousedb://u:hidden@127.0.0.1:1/d")
    assert "hidden" not in str(away.value)
    for url in ("clickhousedb+native://u@h:1/d", "clickhousedb://u@h:1", "clickhousedb:///d"):
        with pytest.raises(UsageError):
            database.open(url)
    own = database.open(clickhouse.url(_made(clickhouse)))
    with pytest.raises(RoofwatchError, match="is written by its store"):
        own.write()
    own.close()


def test_a_server_that_is_too_old_is_refused(clickhouse: ClickHouse, monkeypatch: pytest.MonkeyPatch) -> None:
    """This one, were it needed a year later: the sentence names both, and nothing is made in the database."""
    name, version = clickhouse.create(), clickhouse.run("SELECT version()")[0][0]
    needed = int(version.split(".")[0]) + 1
    monkeypatch.setattr(engine, "OLDEST", (needed, 3))
    with pytest.raises(RoofwatchError, match="is ClickHouse") as told:
        database.open(clickhouse.url(name))
    assert str(told.value).endswith(f"is ClickHouse {version}: Roofwatch needs {needed}.3 or later")
    assert clickhouse.run(f"SELECT name FROM system.tables WHERE database = '{name}'") == []  # noqa: S608


def test_tables_of_the_first_version_are_brought_here(clickhouse: ClickHouse) -> None:
    """What they hold stays, and of what came later nothing is known; a run that broke half-way is run again."""
    name = _made(clickhouse)
    later = ("interval_reason", "budget_share", "hard_stop_share", "spent_share", "balance_ns", "charged_ns",
             "charge_measured", "interval_ns", "event_cap")  # fmt: skip
    for text in (
        "ALTER TABLE windows " + ", ".join(f"DROP COLUMN {column}" for column in later),
        "DROP TABLE process_states",
        "ALTER TABLE windows DROP INDEX windows_uid",
        "ALTER TABLE kernel_sums RESET SETTING min_compress_block_size",
        "TRUNCATE TABLE roofwatch_versions",
        "INSERT INTO roofwatch_versions (version, applied_unix_ns) VALUES (1, 1)",
        "INSERT INTO windows (id, uid, process_id, start_unix_ns, trigger) VALUES (5, '0123456789abcdef', 7, 9, 'p')",
        "ALTER TABLE windows ADD COLUMN IF NOT EXISTS `interval_reason` LowCardinality(Nullable(String))",
    ):
        clickhouse.run(text, name)
    with pytest.raises(RoofwatchError, match=r"older tables 1: .* brings them to 4"):
        database.open(clickhouse.url(name), migrate=False)
    database.open(clickhouse.url(name)).close()
    told = clickhouse.run(f"SELECT id, process_id, {', '.join(f'{c} IS NULL' for c in later)} FROM windows", name)  # noqa: S608
    assert [[str(value) for value in row] for row in told] == [["5", "7", *["1"] * len(later)]]
    assert [str(row[0]) for row in clickhouse.run("SELECT count() FROM process_states", name)] == ["0"]
    assert "min_compress_block_size = 16384" in str(clickhouse.run("SHOW CREATE TABLE kernel_sums", name))
    database.open(clickhouse.url(name), migrate=False).close()


@pytest.mark.parametrize("migrated", [False, True])
def test_a_window_is_found_by_its_uid_without_reading_the_others(clickhouse: ClickHouse, migrated: bool) -> None:
    """Whose a window is is asked of tables of a month; also of windows that were there before the index."""
    name = _made(clickhouse)
    if migrated:
        clickhouse.run("ALTER TABLE windows DROP INDEX windows_uid", name)
        clickhouse.run("INSERT INTO roofwatch_versions (version, applied_unix_ns) VALUES (2, 1)", name)
        clickhouse.run("DELETE FROM roofwatch_versions WHERE version > 2", name)
    many_windows(clickhouse, name, 200_000)
    db = database.open(clickhouse.url(name))
    deadline = time.monotonic() + 20
    while clickhouse.run(f"SELECT 1 FROM system.mutations WHERE database = '{name}' AND NOT is_done"):  # noqa: S608
        assert time.monotonic() < deadline
        time.sleep(0.02)
    asked: list[str] = []
    event.listen(db.engine, "before_cursor_execute", lambda *args: asked.append(str(finalize_query(args[2], args[3]))))
    uid = hashlib.md5(b"123456").digest()  # noqa: S324 - as any hash would do
    assert asyncio.run(Whose(db).nodes([uid, bytes(16)])) == {uid: "gpu-1"}
    found = "SELECT explain FROM (EXPLAIN indexes = 1 {}) WHERE explain LIKE '%Granules: %/%'"
    read = [line[0].split("Granules: ")[1] for line in clickhouse.run(found.format(asked[-1]), name)]
    assert "1/25" in read  # of 8,192 rows each
    db.close()


def _made(clickhouse: ClickHouse) -> str:
    name = clickhouse.create()
    database.open(clickhouse.url(name)).close()
    return name


def test_damaged_answers_are_told() -> None:
    """Bytes that end too soon, and types that no question here gives."""
    good = native.encode({"a": ("Int64", [1, 2])})
    assert native.decode(good, ["a"])["a"].tolist() == [1, 2]
    for bad in (good[:-1], good[:5], native.encode({"a": ("FixedString(1)", [b"x"])})):
        with pytest.raises(RoofwatchError, match="the answer of ClickHouse cannot be read"):
            native.decode(bad, ["a"])
