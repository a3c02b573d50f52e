"""Postgres: what is refused in one sentence, several programs on one database, and a server that goes away."""

from __future__ import annotations

import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from postgres_server import PASSWORD, USER, Postgres
from sqlalchemy import Connection, func, select
from store_builders import GEMM, NORM, process_of, segment_of, stat, window_of

from roofwatch.model.errors import RoofwatchError, UnreachableError, UsageError
from roofwatch.proto.v1 import roofwatch_pb2 as pb
from roofwatch.store import database, postgres_engine, schema, views
from roofwatch.store.filter import Filter
from roofwatch.store.ingest import Writer
from roofwatch.store.migrations import upgrade
from roofwatch.store.queries import Queries
from roofwatch.store.unpack import Unpacked, Unpacker

HOUR_NS = 3600 * 10**9
COLUMNS = (
    "SELECT table_name, column_name, data_type, is_nullable, column_default, collation_name "
    "FROM information_schema.columns WHERE table_schema = 'public' AND table_name <> 'alembic_version' "
    "AND table_name !~ '_([0-9]{6}|[0-9]{8}|shared|hourly|daily)$' ORDER BY 1, 2"
)
INDEXES = (
    "SELECT tablename, indexdef FROM pg_indexes WHERE schemaname = 'public' AND tablename <> 'alembic_version' "
    "AND tablename !~ '_([0-9]{6}|[0-9]{8}|shared|hourly|daily)$'"
)
KEYS = (
    "SELECT relname, pg_get_partkeydef(oid) FROM pg_class WHERE relkind IN ('p', 'S') "
    "AND relnamespace = 'public'::regnamespace AND relname !~ '_(hourly|daily)$'"
)


def test_migrated_schema_is_the_fresh_one(postgres: Postgres, template: str) -> None:
    """All migrations in order give what ``schema.py`` says, to Postgres and to Alembic."""
    fresh = postgres.create()
    opened = database.open(postgres.url(template))
    engine = database._engine(database._parse(postgres.url(fresh)), create=True)
    schema.metadata.create_all(engine)
    with engine.begin() as connection:
        views.create(connection)
    engine.dispose()
    for statement in (COLUMNS, INDEXES, KEYS):
        told = sorted(postgres.run(statement, fresh))
        assert len(told) > 7
        assert sorted(postgres.run(statement, template)) == told
    with opened.engine.connect() as connection:
        assert compare_metadata(autogenerating(connection), schema.metadata) == []
    opened.close()


def autogenerating(connection: Connection) -> MigrationContext:
    """As the project's own Alembic compares."""
    own = {"compare_type": True, "compare_server_default": True}
    return MigrationContext.configure(connection, opts={**own, **upgrade.COMPARING})


def refused(url: str, *, migrate: bool = True) -> RoofwatchError:
    """What opening says: one line, without the password."""
    with pytest.raises(RoofwatchError) as told:
        database.open(url, migrate=migrate)
    assert len(str(told.value).splitlines()) == 1
    assert PASSWORD not in str(told.value)
    return told.value


@pytest.mark.parametrize("migrate", [True, False])
def test_nobody_answers(tmp_path: Path, postgres: Postgres, migrate: bool) -> None:
    """No socket, no port, no such host: unreachable, exit 3, and what to look at."""
    for url in (
        postgres.url("d").replace(str(postgres.folder), str(tmp_path)),
        f"postgresql://{USER}:{PASSWORD}@127.0.0.1:1/d",
        f"postgresql+psycopg://{USER}:{PASSWORD}@no-such-host.invalid/d",
    ):
        told = refused(url, migrate=migrate)
        assert isinstance(told, UnreachableError), told
        assert told.exit_code == 3


def test_who_may_not(postgres: Postgres, template: str) -> None:
    """A wrong password, none, no such user or database, and no right to make tables or to read."""
    wrong = refused(postgres.url(template).replace(PASSWORD, "not-it"))
    assert "password authentication failed" in str(wrong)
    assert "check user and password" in str(wrong)
    assert "not-it" not in str(wrong)
    assert not isinstance(wrong, UnreachableError)
    assert "give a password" in str(refused(postgres.url(template, password=None)))
    assert 'database "nowhere" does not exist: create it first' in str(refused(postgres.url("nowhere")))
    postgres.run("DROP ROLE IF EXISTS guest")
    postgres.run("CREATE ROLE guest LOGIN PASSWORD 'g'")
    guest = refused(postgres.url(postgres.create(), "guest", "g"))
    assert "permission denied for schema public" in str(guest)
    assert "roofwatch store serve" in str(guest)
    assert "permission denied for table" in str(refused(postgres.url(template, "guest", "g"), migrate=False))


def test_databases_that_are_not_ours(postgres: Postgres, template: str) -> None:
    """Empty, another program's, of a newer version, not in UTF-8: each stays as it is."""
    empty, foreign, newer = postgres.create(), postgres.create(), postgres.create(template)
    assert "is not a Roofwatch database" in str(refused(postgres.url(empty), migrate=False))
    postgres.run("CREATE TABLE cats (name text)", foreign)
    assert "is not a Roofwatch database" in str(refused(postgres.url(foreign)))
    assert postgres.run("SELECT tablename FROM pg_tables WHERE schemaname = 'public'", foreign) == [("cats",)]
    postgres.run("UPDATE alembic_version SET version_num = '9000'", newer)
    assert "newer version of Roofwatch (schema 9000" in str(refused(postgres.url(newer)))
    postgres.run("DROP DATABASE IF EXISTS latin")
    postgres.run("CREATE DATABASE latin TEMPLATE template0 ENCODING LATIN1 LOCALE 'C'")
    assert "stores texts as LATIN1: create the database with ENCODING 'UTF8'" in str(refused(postgres.url("latin")))


def test_a_server_that_is_too_old_is_refused(postgres: Postgres, monkeypatch: pytest.MonkeyPatch) -> None:
    """This one, were it needed a version later: the sentence names both, and nothing is made in the database."""
    name, version = postgres.create(), int(postgres.run("SHOW server_version_num")[0][0]) // 10_000
    monkeypatch.setattr(postgres_engine, "OLDEST", version + 1)
    for migrate in (True, False):
        told = str(refused(postgres.url(name), migrate=migrate))
        assert told.endswith(f"is Postgres {version}: Roofwatch needs {version + 1} or later")
    assert postgres.run("SELECT count(*) FROM pg_tables WHERE schemaname = 'public'", name) == [(0,)]


def test_urls_that_hold_secrets() -> None:
    """A URL that is refused, or told, shows no password."""
    for url in ("postgresql+asyncpg://u:hidden@h/d", "postgresql+psycopg://u:hidden@h", "post gres://u:hidden@h/d"):
        with pytest.raises(UsageError) as told:
            database.open(url)
        assert "hidden" not in str(told.value)
    assert "hidden" not in str(refused("postgresql+psycopg://u@127.0.0.1:1/d?password=hidden"))


def test_many_open_a_new_database_at_once(postgres: Postgres) -> None:
    """Eight programs make the tables of one database; one does, and each finds them whole."""
    url = postgres.url(postgres.create())

    def start(_: int) -> str | None:
        opened = database.open(url)
        with opened.read() as connection:
            found = database.revision(connection)
        opened.close()
        return found

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(start, range(8))) == [schema.REVISION] * 8


def segment(number: int, hour: int = 0) -> Unpacked:
    """Three windows of 60 kernels' time in one hour."""
    begin = 1_800_000_000_000_000_000 // HOUR_NS * HOUR_NS + hour * HOUR_NS + number
    kernels = [stat(GEMM, [1000]), stat(NORM, [50, 60])]
    windows = [window_of(f"{number}-{k}", kernels, start_unix_ns=begin, process=process_of(pid=k)) for k in range(3)]
    return Unpacker().unpack(segment_of(windows, number))


def test_a_session_that_is_ended(postgres: Postgres, template: str) -> None:
    """An administrator ends every session, once surely within a transaction: each segment counts once."""
    name = postgres.create(template)
    opened = database.open(postgres.url(name))
    writer = Writer(opened)
    other = database.open(postgres.url(name))
    of_writer = f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}'"  # noqa: S608 - our own
    with other.write():
        first = writer.submit(segment(1))
        while not postgres.run(of_writer + " AND wait_event = 'advisory'"):
            time.sleep(0.01)
    assert first.result(30).status == pb.STORED
    other.close()
    draw = random.Random(1)

    def end() -> None:
        for _ in range(5):
            time.sleep(draw.uniform(0.05, 0.3))
            postgres.run(of_writer)

    ending = threading.Thread(target=end)
    ending.start()
    try:
        for i in range(2, 41):
            assert writer.submit(segment(i, i // 10)).result(60)
    finally:
        ending.join()
    writer.close()
    with opened.read() as connection:
        for table, rows in ((schema.windows, 120), (schema.segments, 40), (schema.kernel_blocks, 120)):
            assert connection.execute(select(func.count()).select_from(table)).scalar_one() == rows
    assert sum(row["total_ns"] for row in Queries(opened).run("top", Filter())["rows"]) == 120 * 1110
    opened.close()


def test_an_idle_session_that_was_ended(postgres: Postgres, template: str) -> None:
    """Who asks after the server was started anew is answered."""
    opened = database.open(postgres.url(postgres.create(template)))
    assert Queries(opened).run("top", Filter())["rows"] == []
    postgres.stop()
    postgres.start()
    assert Queries(opened).run("top", Filter())["rows"] == []
    opened.close()


def test_a_writer_that_holds_on(postgres: Postgres, template: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who waits too long for another writer is told so in one sentence, and readers do not wait."""
    monkeypatch.setitem(database.postgres_engine._SETTINGS, "lock_timeout", "300ms")
    url = postgres.url(postgres.create(template))
    first, second = database.open(url), database.open(url)
    with first.write():
        assert Queries(second).run("nodes", Filter())["rows"] == []
        with pytest.raises(RoofwatchError, match="another store or import writes for long; try again"):
            Writer(second).submit(segment(1)).result(30)
    for opened in (first, second):
        opened.close()
