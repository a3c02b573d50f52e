"""What is in the database already, so that it is not written again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Table

MAX_KNOWN = 250_000  # rows of a dimension in each of its two generations: some tens of MB


@dataclass(slots=True)
class Known:
    """Rows of dimensions that are in the database already, by table and id, with their content or what tells it.

    What nobody asks for while so many others come is forgotten: processes come and go for as long as a store runs.
    """

    rows: dict[str, dict[Any, Any]] = field(default_factory=dict)
    older: dict[str, dict[Any, Any]] = field(default_factory=dict)  # of the generation before
    staged: dict[str, dict[Any, Any]] = field(default_factory=dict)

    def fresh(self, table: Table, key: Any, content: Any = None) -> bool:
        """Whether a row is new or changed; if so it is taken as known once the transaction is committed."""
        return bool(self.news(table, {key: content}))

    def news(self, table: Table, rows: Mapping[Any, Any]) -> dict[Any, Any]:
        """Of many rows those that are new or changed; they are taken as known once the transaction is committed."""
        known, staged = self.rows.setdefault(table.name, {}), self.staged.setdefault(table.name, {})
        found = {key: row for key, row in rows.items() if staged.get(key, known.get(key, self)) != row}
        if found and (older := self.older.get(table.name)):
            asked = {key for key, row in found.items() if key not in staged and older.get(key, self) == row}
            asked.difference_update(known)  # what is there with another content is newer
            for key in asked:
                known[key] = found.pop(key)
        staged.update(found)
        return found

    def commit(self) -> None:
        """The transaction was committed."""
        for name, staged in self.staged.items():
            rows = self.rows[name]
            rows.update(staged)
            if len(rows) > MAX_KNOWN:
                self.older[name], self.rows[name] = rows, {}
        self.staged = {}

    def rollback(self) -> None:
        """The transaction was not committed."""
        self.staged = {}
