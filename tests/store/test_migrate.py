"""``roofwatch store migrate``: a database is made or upgraded without being served, and a newer one is left alone."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner
from postgres_server import Postgres
from sqlalchemy import create_engine, text

from roofwatch.cli.commands.store import command
from roofwatch.model.errors import RoofwatchError
from roofwatch.store import database, schema
from roofwatch.store.migrations import upgrade


@pytest.fixture(params=["sqlite", "postgresql"])
def empty(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of a database with nothing in it."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'store.db'}"
    server: Postgres = request.getfixturevalue("postgres")
    return server.url(server.create())


def test_migrate_makes_upgrades_and_refuses(empty: str) -> None:
    """From schema 0001 to today's, again to no effect; a newer one is refused by it and by serve, in one sentence."""
    engine = create_engine(empty)
    with engine.begin() as connection:
        upgrade.run(connection, "0001")
    with pytest.raises(RoofwatchError, match=r"older schema 0001: 'roofwatch store migrate' brings it to"):
        database.open(empty, migrate=False)
    for _ in range(2):
        done = CliRunner().invoke(command, ["migrate", "--db", empty], catch_exceptions=False)
        assert (done.exit_code, done.output.rpartition(" has ")[2]) == (0, f"schema {schema.REVISION}\n")
        database.open(empty, migrate=False).close()
    with engine.begin() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '9000'"))
    engine.dispose()
    for name in ("migrate", "serve"):
        refused = CliRunner().invoke(command, [name, "--db", empty])
        assert isinstance(refused.exception, RoofwatchError), refused
        assert "newer version of Roofwatch (schema 9000" in str(refused.exception)
        assert len(str(refused.exception).splitlines()) == 1
