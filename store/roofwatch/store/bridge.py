"""From threads to the event loop: what several futures became within a moment wakes the loop once.

Waking costs a system call and, worse, a change of threads: of a group of segments every one would cause it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from concurrent.futures import Future
from typing import Any, TypeVar

T = TypeVar("T")


class Bridge:
    """Of one event loop, on which it is asked."""

    def __init__(self) -> None:
        self._ended: deque[tuple[asyncio.Future[Any], Future[Any]]] = deque()
        self._woken = False

    async def result(self, future: Future[T]) -> T:
        """What a thread's future gives, or raises."""
        loop = asyncio.get_running_loop()
        mine: asyncio.Future[T] = loop.create_future()
        future.add_done_callback(lambda ended: self._tell(loop, mine, ended))
        return await mine

    def _tell(self, loop: asyncio.AbstractEventLoop, mine: asyncio.Future[Any], ended: Future[Any]) -> None:
        """On any thread."""
        if loop.is_closed():  # the store has stopped
            return
        self._ended.append((mine, ended))
        if not self._woken:
            self._woken = True
            loop.call_soon_threadsafe(self._deliver)

    def _deliver(self) -> None:
        self._woken = False  # before looking: what comes from now on wakes again
        while self._ended:
            mine, ended = self._ended.popleft()
            if mine.done():  # who waited has gone
                continue
            error = ended.exception()
            if error is not None:
                mine.set_exception(error)
            else:
                mine.set_result(ended.result())
