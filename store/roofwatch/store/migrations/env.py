"""Run by Alembic: migrate over the connection that ``upgrade.run`` hands in."""

from alembic import context

from roofwatch.store.migrations.upgrade import COMPARING
from roofwatch.store.schema import metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    **COMPARING,
    transactional_ddl=True,  # SQLite too can roll a table back
)
context.run_migrations()
