"""What psycopg gives and takes where Roofwatch wants otherwise. Imported only where Postgres is used."""

from __future__ import annotations

from typing import Any

from psycopg.adapt import Loader
from psycopg.pq import Format


class WholeLoader(Loader):
    """Numerics: Postgres sums whole numbers into them. No column is one, so they are never money."""

    format = Format.TEXT

    def load(self, data: Any) -> int | float:
        """A whole number as such."""
        text = bytes(data)
        return int(text) if text.lstrip(b"-").isdigit() else float(text)


def register(connection: Any) -> None:
    """Make a connection give numbers and not decimals."""
    connection.adapters.register_loader("numeric", WholeLoader)
