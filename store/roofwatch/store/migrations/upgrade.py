"""Bring a database to the newest revision, inside the caller's transaction."""

from __future__ import annotations

from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory
from sqlalchemy import Connection


def _config() -> Config:
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent))
    config.set_main_option("path_separator", "os")
    return config


def known() -> set[str]:
    """The revisions this version can start from."""
    return {script.revision for script in ScriptDirectory.from_config(_config()).walk_revisions()}


def run(connection: Connection, revision: str = "head") -> None:
    """Upgrade over the given connection; the caller commits."""
    config = _config()
    config.attributes["connection"] = connection
    command.upgrade(config, revision)
