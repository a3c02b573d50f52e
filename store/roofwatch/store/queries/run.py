"""One entry for all questions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from sqlalchemy import Connection

from roofwatch.model import answer
from roofwatch.model.errors import UsageError
from roofwatch.store.database import Database
from roofwatch.store.filter import Filter
from roofwatch.store.queries import diagnose, kernels, lists, peers, timeline, window_list
from roofwatch.store.queries.coverage import coverage

# Each gives the answer's parts besides ``query`` and ``coverage``; ``rows`` is one of them.
QUERIES: Mapping[str, Callable[[Connection, Filter, int], dict[str, Any]]] = {
    "nodes": lists.nodes,
    "processes": lists.processes,
    "windows": window_list.windows,
    "top": kernels.top,
    "roofline": kernels.roofline,
    "peers": peers.peers,
    "timeline": timeline.timeline_by("device"),
    "timeline_window": timeline.timeline_by("window"),
    "timeline_process": timeline.timeline_by("process"),
    "timeline_node": timeline.timeline_by("node"),
    "diagnose": diagnose.diagnose,
}


class Queries:
    """Answers from one database; may be used by several threads."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def run(self, query: str, scope: Filter, limit: int = 0) -> dict[str, Any]:
        """Answer a query by name; ``limit`` 0 gives all rows.

        Raises:
            UsageError: there is no such query, or the filter says nothing that could be meant.
            RoofwatchError: the database failed.
        """
        function = QUERIES.get(query)
        if function is None:
            raise UsageError(f"there is no query '{query}': this store knows {', '.join(QUERIES)}")
        with self._database.read() as connection:
            parts = function(connection, scope, limit)
            seen = coverage(connection, scope)
        rows = parts.pop("rows")
        asked = {"name": query, **scope.as_json(), "limit": limit}
        return answer.answer(asked, seen, rows, **parts)
