"""One entry for all questions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from sqlalchemy import Connection

from roofwatch.model import answer
from roofwatch.model.errors import UsageError
from roofwatch.store.database import Database
from roofwatch.store.filter import Asked, Filter
from roofwatch.store.queries import (
    compare,
    diagnose,
    kernels,
    lists,
    one_window,
    padding,
    peers,
    ranks,
    report,
    timeline,
    whatif,
    window_list,
)
from roofwatch.store.queries.coverage import coverage

# Each gives the answer's parts besides ``query`` and ``coverage``; ``rows`` is one of them.
QUERIES: Mapping[str, Callable[[Connection, Filter, int], dict[str, Any]]] = {
    "nodes": lists.nodes,
    "processes": lists.processes,
    "windows": window_list.windows,
    "top": kernels.top,
    "roofline": kernels.roofline,
    "peers": peers.peers,
    "ranks": ranks.ranks,
    "timeline": timeline.timeline_by("device"),
    "timeline_window": timeline.timeline_by("window"),
    "timeline_process": timeline.timeline_by("process"),
    "timeline_node": timeline.timeline_by("node"),
    "diagnose": diagnose.diagnose,
    "padding": padding.padding,
    "report": report.page,
}


# Two sides, or options of their own: each also takes the second side and the options.
ASKED: Mapping[str, Callable[[Connection, Asked], dict[str, Any]]] = {
    "compare": compare.compare,
    "window": one_window.window,
    "whatif": whatif.whatif,
}


class Queries:
    """Answers from one database; may be used by several threads."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def run(
        self,
        query: str,
        scope: Filter,
        limit: int = 0,
        other: Filter | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> dict[str, Any]:
        """Answer a query by name; ``limit`` 0 gives all rows, ``other`` is the second side of what compares two.

        Raises:
            UsageError: there is no such query, or the filter or the options say nothing that could be meant.
            RoofwatchError: the database failed.
        """
        asked = Asked(scope, limit, other, options or {})
        if query not in QUERIES and query not in ASKED:
            raise UsageError(f"there is no query '{query}': this store knows {', '.join((*QUERIES, *ASKED))}")
        with self._database.read() as connection:
            parts = ASKED[query](connection, asked) if query in ASKED else QUERIES[query](connection, scope, limit)
            seen = coverage(connection, parts.pop("scope", scope))  # a query may be of less than was asked
            if other is not None:
                parts["coverage_other"] = coverage(connection, other).as_json()
        rows = parts.pop("rows")
        return answer.answer({"name": query, **asked.as_json()}, seen, rows, **parts)
