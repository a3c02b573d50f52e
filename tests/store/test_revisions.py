"""A store of any revision that there ever was is upgraded with what it holds: of those to come, too."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import fresh
import pytest
from sqlalchemy import Boolean, LargeBinary, MetaData, String, Table, create_engine, select
from sqlalchemy.schema import CreateTable
from store_builders import GEMM, segment_of, stat, window_of

from roofwatch.store import database, migrations, schema
from roofwatch.store.database import Database
from roofwatch.store.ingest import Writer
from roofwatch.store.migrations import upgrade
from roofwatch.store.unpack import Unpacker

SCRIPTS = (Path(migrations.__file__).parent / "versions").glob("r*.py")
OLDER = sorted(script.name[1:5] for script in SCRIPTS)[:-1]
KEPT = ("nodes", "processes", "labels", "devices", "signatures", "windows", "segments")  # in each of them


def filled(url: str, revision: str) -> None:
    """A database of that revision: a row of ones and of the letter t in each table that all revisions have."""
    by_kind: dict[type[Any], Any] = {LargeBinary: b"\1" * 16, String: "t", Boolean: True}
    engine = create_engine(url)
    with engine.begin() as connection:
        upgrade.run(connection, revision)
        for name in KEPT:
            table = Table(name, MetaData(), autoload_with=connection)
            row = {c.name: next((v for kind, v in by_kind.items() if isinstance(c.type, kind)), 1) for c in table.c}
            connection.execute(table.insert().values(row))
    engine.dispose()


def made(opened: Database) -> dict[str, str]:
    """The statement that makes each table, as it is there."""
    with opened.read() as connection:
        there = MetaData()
        there.reflect(connection)
        return {name: str(CreateTable(table)) for name, table in there.tables.items()}


@pytest.mark.parametrize("revision", OLDER)
def test_every_revision_is_upgraded_with_what_it_holds(tmp_path: Path, revision: str) -> None:
    """Each row is there, the tables are those of a new database, and the next window is stored beside the old one."""
    url = f"sqlite:///{tmp_path / 'store.db'}"
    filled(url, revision)
    opened, new = database.open(url), fresh.opened(tmp_path / "new.db")
    assert made(opened) == made(new)
    with opened.read() as connection:
        assert database.revision(connection) == schema.REVISION == f"{int(OLDER[-1]) + 1:04}"
        for name in KEPT:
            assert len(connection.execute(select(schema.metadata.tables[name])).all()) == 1, name
        assert connection.scalar(select(schema.windows.c.uid)) == b"\1" * 16
    writer = Writer(opened)
    writer.submit(Unpacker().unpack(segment_of([window_of("next", [stat(GEMM, [1000])])], 9))).result(30)
    writer.close()
    with opened.read() as connection:
        assert len(connection.execute(select(schema.windows.c.id)).all()) == 2
    for one in (opened, new):
        one.close()
