"""Opening: migrations make the schema; what cannot be used is told in one sentence."""

from __future__ import annotations

import sqlite3
import threading
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from postgres_server import Postgres
from sqlalchemy import Boolean, Connection, LargeBinary, MetaData, String, Table, create_engine, select

from roofwatch.model.errors import RoofwatchError, UnreachableError, UsageError
from roofwatch.store import config, database, schema
from roofwatch.store.blocks import FACT, unpack
from roofwatch.store.migrations import upgrade


def tables(file: Path) -> dict[str, tuple[object, ...]]:
    """What a database is made of, as SQLite itself tells it: columns, keys, indexes, and tables without row ids."""
    found: dict[str, tuple[object, ...]] = {}
    with closing(sqlite3.connect(file)) as connection:
        for _, name, kind, _, without_rowid, strict in connection.execute("PRAGMA table_list"):
            if kind == "table" and name not in {"sqlite_schema", "sqlite_temp_schema", "alembic_version"}:
                columns = connection.execute(f"PRAGMA table_info({name})").fetchall()
                indexes = [
                    (index[1:], connection.execute(f"PRAGMA index_info({index[1]})").fetchall())
                    for index in connection.execute(f"PRAGMA index_list({name})").fetchall()
                ]
                found[name] = (without_rowid, strict, columns, sorted(indexes))
    return found


# That index is Postgres's alone, and compared there.
@pytest.mark.filterwarnings("ignore:autogenerate skipping metadata-specified expression-based index 'devices_model'")
def test_migrated_schema_is_the_fresh_one(tmp_path: Path) -> None:
    """All migrations in order give what ``schema.py`` says, to SQLite and to Alembic."""
    database.open(str(tmp_path / "migrated.db")).close()
    fresh = create_engine(f"sqlite:///{tmp_path / 'fresh.db'}")
    schema.metadata.create_all(fresh)
    fresh.dispose()

    expected = tables(tmp_path / "fresh.db")
    assert set(expected) == set(schema.metadata.tables)
    assert expected["idle_causes"][0] == 1  # WITHOUT ROWID, as SQLite sees it
    assert tables(tmp_path / "migrated.db") == expected

    engine = create_engine(f"sqlite:///{tmp_path / 'migrated.db'}")
    with engine.connect() as connection:
        own = {"compare_type": True, "compare_server_default": True}
        context = MigrationContext.configure(connection, opts={**own, **upgrade.COMPARING})
        assert compare_metadata(context, schema.metadata) == []
    engine.dispose()


def test_revision_is_the_newest_migration() -> None:
    """The constant that spares an import of Alembic is kept in step."""
    assert ScriptDirectory.from_config(upgrade._config()).get_current_head() == schema.REVISION


def test_settings_of_a_connection(tmp_path: Path) -> None:
    """Write-ahead log, and FULL (2): what was acknowledged survives a power cut."""
    opened = database.open(str(tmp_path / "store.db"))
    with opened.read() as connection:
        assert connection.exec_driver_sql("PRAGMA journal_mode").scalar() == "wal"
        assert connection.exec_driver_sql("PRAGMA synchronous").scalar() == 2
    opened.close()


def test_many_open_a_new_database_at_once(tmp_path: Path) -> None:
    """Eight threads create the same database; each finds it whole."""
    found: list[str | None] = []

    def start() -> None:
        opened = database.open(str(tmp_path / "store.db"))
        with opened.read() as connection:
            found.append(database.revision(connection))
        opened.close()

    threads = [threading.Thread(target=start) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [schema.REVISION] * 8


@pytest.mark.parametrize("migrate", [True, False])
def test_newer_database_is_refused(tmp_path: Path, migrate: bool) -> None:
    """A schema this version does not know is left alone, and the sentence says what to do."""
    file = tmp_path / "store.db"
    database.open(str(file)).close()
    with closing(sqlite3.connect(file)) as connection, connection:
        connection.execute("UPDATE alembic_version SET version_num = '9000'")
    with pytest.raises(
        RoofwatchError, match=r"newer version of Roofwatch \(schema 9000, .*\): upgrade Roofwatch"
    ) as told:
        database.open(str(file), migrate=migrate)
    assert told.value.exit_code == 1
    with closing(sqlite3.connect(file)) as connection:
        assert connection.execute("SELECT version_num FROM alembic_version").fetchall() == [("9000",)]


def test_reading_does_not_create(tmp_path: Path) -> None:
    """A database that is not there is unreachable, and is still not there afterwards."""
    with pytest.raises(UnreachableError, match=r"there is no database at .*none\.db"):
        database.open(str(tmp_path / "none.db"), migrate=False)
    assert list(tmp_path.iterdir()) == []


def test_foreign_files(tmp_path: Path) -> None:
    """A text file is no database; another program's database is not ours, and stays without our tables."""
    (tmp_path / "text.db").write_text("hello, this is plain text and certainly no database\n" * 40)
    with pytest.raises(RoofwatchError, match=r"file is not a database: check the URL"):
        database.open(str(tmp_path / "text.db"))
    foreign = tmp_path / "foreign.db"
    with closing(sqlite3.connect(foreign)) as connection, connection:
        connection.execute("CREATE TABLE cats (name)")
    with pytest.raises(RoofwatchError, match="is not a Roofwatch database"):
        database.open(str(foreign), migrate=False)
    with pytest.raises(RoofwatchError, match="is not a Roofwatch database"):
        database.open(str(foreign))
    assert set(tables(foreign)) == {"cats"}
    with closing(sqlite3.connect(foreign)) as connection:
        assert connection.execute("PRAGMA journal_mode").fetchall() == [("delete",)]


def test_folder_that_cannot_be_written() -> None:
    """/proc lets not even root create a file: one sentence names the place."""
    with pytest.raises(RoofwatchError, match=r"cannot use /proc/roofwatch for the database .*: No such file"):
        database.open("/proc/roofwatch/store.db")
    with pytest.raises(RoofwatchError, match="unable to open database file: make its folder writable"):
        database.open("/proc/store.db")


@pytest.mark.parametrize("url", ["sqlite://", "sqlite:///:memory:", "mysql://x/y", "postgresql+psycopg2://x/y", "://"])
def test_urls_that_are_none(url: str) -> None:
    """What is no URL of an engine, a driver and a file that there is is a usage error, exit 2."""
    with pytest.raises(UsageError) as told:
        database.open(url)
    assert told.value.exit_code == 2


def test_failed_write_leaves_nothing(tmp_path: Path) -> None:
    """An exception in a write block rolls back."""
    opened = database.open(str(tmp_path / "store.db"))

    def fail() -> None:
        with opened.write() as connection:
            connection.execute(schema.nodes.insert().values(id=1, host="a", boot_id="b"))
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    with opened.read() as connection:
        assert connection.execute(schema.nodes.select()).all() == []
    opened.close()


def test_default_is_in_the_state_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """$XDG_STATE_HOME, and without it the user's own; the folder is made, for the user only."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert config.default_url() == f"sqlite:///{tmp_path}/roofwatch/store.db"
    database.open().close()
    assert (tmp_path / "roofwatch").stat().st_mode & 0o777 == 0o700
    monkeypatch.delenv("XDG_STATE_HOME")
    monkeypatch.setenv("HOME", "/home/someone")
    assert config.default_url() == "sqlite:////home/someone/.local/state/roofwatch/store.db"


@pytest.mark.parametrize("text", ["", "host", "host:", ":1", "host:x", "host:65536", "host:-1", "host:²"])
def test_addresses_that_are_none(text: str) -> None:
    """An address without host or port, or with a port that is none, is a usage error."""
    with pytest.raises(UsageError, match="is not an address"):
        config.parse_address(text)


def test_addresses() -> None:
    """IPv4, IPv6 in brackets, names; and which of them stay on this machine."""
    assert config.parse_address("[::1]:80") == ("::1", 80)
    assert config.format_address("::1", 80) == "[::1]:80"
    assert config.parse_address("store.example:7431") == ("store.example", 7431)
    hosts = ("127.0.0.1", "127.9.9.9", "::1", "localhost", "0.0.0.0", "::", "10.0.0.1", "localhost.example")  # noqa: S104
    assert [config.is_loopback(host) for host in hosts] == [True] * 4 + [False] * 4


def one_row(connection: Connection, name: str) -> None:
    """A row of ones, no bytes and a letter, whatever the columns are."""
    table = Table(name, MetaData(), autoload_with=connection)
    by_kind: dict[type[Any], Any] = {LargeBinary: b"\0", String: "t", Boolean: True}
    values = {c.name: next((v for kind, v in by_kind.items() if isinstance(c.type, kind)), 1) for c in table.c}
    connection.execute(table.insert().values(values))


@pytest.mark.parametrize("engine_name", ["sqlite", "postgresql"])
@pytest.mark.parametrize("revision", ["0001", "0002", "0003", "0004", "0005", "0006"])
def test_a_database_of_an_earlier_version_keeps_what_it_holds(
    tmp_path: Path, revision: str, engine_name: str, request: pytest.FixtureRequest
) -> None:
    """A window written under an older schema is there after the upgrade: its new sums are empty, the rest unknown."""
    url = str(tmp_path / "store.db")
    if engine_name == "postgresql":
        server: Postgres = request.getfixturevalue("postgres")
        url = server.url(server.create())
    engine = database._engine(database._parse(url), create=True)
    with engine.begin() as connection:
        upgrade.run(connection, revision)
        for table in ("windows", "kernel_stats", "idle_causes"):
            one_row(connection, table)
    engine.dispose()
    opened = database.open(url)
    with opened.read() as connection:
        w = schema.windows.c
        row = connection.execute(select(w.device_time_ns, w.first_step, w.model_ns, w.model_peak_ns)).one()
        assert tuple(row) == ((1, None, 0, 0) if revision == "0001" else (1, 1, 1, 1))
        row = connection.execute(select(w.device_time_ns, w.compared_ns, w.disagreed_ns, w.layout_ns)).one()
        twice = revision >= "0003"  # measured twice, and the layout tax, came with it
        assert tuple(row) == ((1, 1, 1, 1) if twice else (1, 0, 0, None))
        waits = 1 if revision >= "0004" else None  # and with it start-up
        told = connection.execute(select(w.python_events, w.waits, w.wait_ns, w.longest_wait_ns)).one()
        assert tuple(told) == (waits, waits, waits, waits)
        facts = dict(zip(FACT, unpack(connection.scalar(select(schema.kernel_blocks.c.facts)), len(FACT)), strict=True))
        assert (facts["total_ns"].tolist(), facts["formula_bound"].tolist()) == ([1], [1 if twice else -1])
        r = schema.rollups.c
        pieces = connection.execute(select(r.grain, r.bucket_unix_ns, r.process_id, r.stale, r.finer))
        assert sorted(map(tuple, pieces)) == [(3600, 0, 1, True, True), (86_400, 0, 1, True, True)]
        c = schema.idle_causes.c
        row = connection.execute(select(c.total_ns, c.startup_ns, c.startup_count, c.steady_longest_ns)).one()
        assert tuple(row) == ((1, 1, 1, 1) if waits else (1, 0, 0, None))
    opened.close()


@pytest.mark.parametrize("engine_name", ["sqlite", "postgresql"])
@pytest.mark.parametrize("revision", ["0007", "0008", "0009", "0010"])
def test_what_came_before_budgets_keeps_what_it_holds(
    tmp_path: Path, revision: str, engine_name: str, request: pytest.FixtureRequest
) -> None:
    """A window and its process are there after the upgrade; what it was charged, and how they stand, is unknown."""
    url = str(tmp_path / "store.db")
    if engine_name == "postgresql":
        server: Postgres = request.getfixturevalue("postgres")
        url = server.url(server.create())
    engine = database._engine(database._parse(url), create=True)
    with engine.begin() as connection:
        upgrade.run(connection, revision)
        for table in ("windows", "processes", "labels"):
            one_row(connection, table)
    engine.dispose()
    opened = database.open(url)
    with opened.read() as connection:
        w = schema.windows.c
        names = ("charged_ns", "charge_measured", "budget_share", "hard_stop_share", "spent_share", "balance_ns",
                 "interval_ns", "interval_reason", "event_cap")  # fmt: skip
        row = connection.execute(select(w.device_time_ns, w.lost_in_ns, *(w[name] for name in names))).one()
        assert tuple(row) == (1, 1, *[None] * len(names))
        p = schema.processes.c
        assert tuple(connection.execute(select(p.pid, p.job, p.container)).one()) == (1, "t", "t")
        assert connection.execute(select(schema.process_states)).all() == []
        assert connection.execute(select(schema.labels.c.value)).scalar_one() == "t"
    opened.close()
