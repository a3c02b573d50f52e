"""What is in the database already, so that it is not written again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Table

MAX_KNOWN = 500_000  # rows of a dimension remembered: about 100 MB


@dataclass(slots=True)
class Known:
    """Rows of dimensions that are in the database already, by table and id, with their content."""

    rows: dict[str, dict[Any, Any]] = field(default_factory=dict)
    staged: dict[str, dict[Any, Any]] = field(default_factory=dict)

    def fresh(self, table: Table, key: Any, content: Any = None) -> bool:
        """Whether a row is new or changed; if so it is taken as known once the transaction is committed."""
        for rows in (self.staged, self.rows):
            found = rows.get(table.name, {}).get(key, self)
            if found is not self:
                if found == content:
                    return False
                break
        self.staged.setdefault(table.name, {})[key] = content
        return True

    def news(self, table: Table, rows: Mapping[Any, Any]) -> dict[Any, Any]:
        """Of many rows those that are new or changed, as fresh() says one by one."""
        known, staged = self.rows.get(table.name, {}), self.staged.setdefault(table.name, {})
        found = {key: row for key, row in rows.items() if staged.get(key, known.get(key, self)) != row}
        staged.update(found)
        return found

    def commit(self) -> None:
        """The transaction was committed."""
        for name, staged in self.staged.items():
            rows = self.rows.setdefault(name, {})
            if len(rows) > MAX_KNOWN:
                rows.clear()
            rows.update(staged)
        self.staged = {}

    def rollback(self) -> None:
        """The transaction was not committed."""
        self.staged = {}
