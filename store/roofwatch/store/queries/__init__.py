"""Questions to the database, answered as the objects of ``docs/answers.md``."""

from roofwatch.store.queries.run import Queries, load

__all__ = ["Queries", "load"]
