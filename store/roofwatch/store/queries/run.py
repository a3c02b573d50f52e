"""One entry for all questions."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

from roofwatch.model import answer
from roofwatch.model.errors import RoofwatchError, UsageError
from roofwatch.store.database import READ_S, Database
from roofwatch.store.filter import Asked, Filter
from roofwatch.store.queries.coverage import coverage
from roofwatch.store.queries.memo import one_answer
from roofwatch.store.queries.plan import stretches
from roofwatch.store.queries.uncollected import uncollected

AGAIN_S = 1.0  # after a connection broke: a server that restarts takes about so long

# By name module and function, imported when asked: a command line needs one of them, and all take a fifth of a second.
# Each gives the answer's parts besides ``query`` and ``coverage``; ``rows`` is one of them.
QUERIES: Mapping[str, str] = {
    "nodes": "lists.nodes",
    "processes": "process_list.processes",
    "windows": "window_list.windows",
    "top": "kernels.top",
    "roofline": "kernels.roofline",
    "peers": "peers.peers",
    "ranks": "ranks.ranks",
    "timeline": "timeline.by_device",
    "timeline_window": "timeline.by_window",
    "timeline_process": "timeline.by_process",
    "timeline_node": "timeline.by_node",
    "diagnose": "diagnose.diagnose",
    "padding": "padding.padding",
    "report": "report.page",
}


# Two sides, or options of their own: each also takes the second side and the options.
ASKED: Mapping[str, str] = {
    "compare": "compare.compare",
    "regressions": "regressions.regressions",
    "window": "one_window.window",
    "whatif": "whatif.whatif",
    "top_by": "grouped.top_by",
    "records": "records.records",
}

# Of these the rows are of single windows: sums of hours tell what is covered, and nothing of the rows.
BY_WINDOW = frozenset({"windows", "timeline_window", "peers", "ranks", "padding", "regressions", "window", "records"})


def _function(path: str) -> Callable[..., dict[str, Any]]:
    module, _, name = path.partition(".")
    found: Callable[..., dict[str, Any]] = getattr(import_module(f"roofwatch.store.queries.{module}"), name)
    return found


def load() -> None:
    """Import every query: a server should not make its first callers wait."""
    for path in (*QUERIES.values(), *ASKED.values()):
        _function(path)


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
        within_s: float = READ_S,
    ) -> dict[str, Any]:
        """Answer a query by name; ``limit`` 0 gives all rows, ``other`` is the second side of what compares two.

        ``within_s`` is how long the database may take for it. Once more where a connection broke: reading twice hurts
        nobody.

        Raises:
            UsageError: there is no such query, or the filter or the options say nothing that could be meant.
            UnreachableError: the database's server does not answer.
            RoofwatchError: the database failed.
        """
        asked = Asked(scope, limit, other, options or {})
        if query not in QUERIES and query not in ASKED:
            raise UsageError(f"there is no query '{query}': this store knows {', '.join((*QUERIES, *ASKED))}")
        until_s = time.monotonic() + within_s
        try:
            return self._answer(query, asked, until_s)
        except RoofwatchError as error:
            if error.__cause__ is None or not self._database.lost(error.__cause__):
                raise
            time.sleep(AGAIN_S)
            return self._answer(query, asked, until_s)

    def _answer(self, query: str, asked: Asked, until_s: float) -> dict[str, Any]:
        self._database.gate.wait(until_s - time.monotonic())
        scope = asked.scope
        left_s = max(0.0, until_s - time.monotonic())
        with uncollected(), self._database.read(left_s) as connection, one_answer():
            if query in ASKED:
                parts = _function(ASKED[query])(connection, asked)
            else:
                parts = _function(QUERIES[query])(connection, scope, asked.limit)
            with stretches(parts.pop("stretch_s", 0)):
                # a query may be of less than was asked
                seen = coverage(connection, parts.pop("scope", scope), by_window=query in BY_WINDOW)
            if asked.other is not None:
                other = coverage(connection, asked.other, by_window=query in BY_WINDOW)
                parts["coverage_other"] = other.as_json()
        rows = parts.pop("rows")
        return answer.answer({"name": query, **asked.as_json()}, seen, rows, **parts)
