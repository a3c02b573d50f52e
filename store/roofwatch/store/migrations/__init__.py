"""Alembic migrations; ``upgrade.run`` applies them."""
