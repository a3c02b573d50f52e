"""Under which node a window is stored: of its trace that node's agents may speak, and no others."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, Mapping
from concurrent.futures import ThreadPoolExecutor

from roofwatch.store import schema
from roofwatch.store.database import Database
from roofwatch.store.filter import Filter
from roofwatch.store.queries.scope import IN_LIST, windows_of

WITHIN_S = 10.0  # for the database to answer


class Whose:
    """Asks the database on a thread of its own."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="roofwatch-whose")

    async def nodes(self, windows: Collection[bytes]) -> Mapping[bytes, str]:
        """The node of each window that is stored.

        Raises:
            RoofwatchError: the database does not answer.
        """
        if not windows:
            return {}
        until_s = time.monotonic() + WITHIN_S
        return await asyncio.get_running_loop().run_in_executor(self._pool, self._nodes, list(set(windows)), until_s)

    def _nodes(self, windows: list[bytes], until_s: float) -> dict[bytes, str]:
        w, found = schema.windows.c, {}
        self._database.gate.wait(until_s - time.monotonic())
        with self._database.read(max(0.0, until_s - time.monotonic())) as connection:
            for begin in range(0, len(windows), IN_LIST):
                some = windows[begin : begin + IN_LIST]
                query = windows_of(Filter(), w.uid, schema.nodes.c.host).where(w.uid.in_(some))
                found.update({bytes(uid): str(host) for uid, host in connection.execute(query)})
        return found
