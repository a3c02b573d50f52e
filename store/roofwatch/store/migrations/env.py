"""Run by Alembic: migrate over the connection that ``upgrade.run`` hands in."""

from alembic import context

from roofwatch.store.schema import metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    transactional_ddl=True,  # SQLite too can roll a table back
)
context.run_migrations()
