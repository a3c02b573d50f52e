"""Bring a database to the newest revision, inside the caller's transaction."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory
from sqlalchemy import Connection

from roofwatch.store import postgres_partitions, postgres_sums, views


def _config() -> Config:
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent))
    config.set_main_option("path_separator", "os")
    return config


def known() -> set[str]:
    """The revisions this version can start from."""
    return {script.revision for script in ScriptDirectory.from_config(_config()).walk_revisions()}


def ours(name: str | None, kind: str, _parents: object = None) -> bool:
    """Whether Alembic is to compare a thing of a database; partitions come and go, and are no tables of the schema."""
    return kind != "table" or not (postgres_partitions.is_partition(name) or postgres_sums.is_partition(name))


def compared(thing: Any, name: str | None, kind: str, _reflected: bool, _other: object) -> bool:
    """Whether Alembic is to compare two things: it takes no notice of what is there on one engine only."""
    only_postgres = name in {"windows_start_brin", "kernel_hours_signature", "devices_model"}
    return not only_postgres and not (kind == "unique_constraint" and thing.table.name == "windows")


COMPARING: dict[str, Any] = {"include_name": ours, "include_object": compared}


def run(connection: Connection, revision: str = "head") -> None:
    """Upgrade over the given connection; the caller commits."""
    config = _config()
    config.attributes["connection"] = connection
    views.drop(connection)
    command.upgrade(config, revision)
    if revision == "head":
        views.create(connection)
