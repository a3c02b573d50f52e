"""The network between an agent and the store: it passes, is cut, stalls or is slow."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Coroutine
from typing import Any

PASS, CUT, STALL, SLOW = "pass", "cut", "stall", "slow"
CHUNK, SLOW_CHUNK, SLOW_S = 65_536, 2_048, 0.15  # 13 kB/s each way


class Network:
    """Proxies, all on one thread."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="network", daemon=True)
        self._thread.start()
        self.lines: list[Line] = []

    def line(self, target: int) -> Line:
        """A new way to a port of loopback."""
        made = Line(target)
        self.do(made.open())
        self.lines.append(made)
        return made

    def set(self, line: Line, mode: str) -> None:
        """From now on it is like that."""
        self.do(line.set(mode))

    def do(self, work: Coroutine[Any, Any, None]) -> None:
        """On the thread of the network."""
        asyncio.run_coroutine_threadsafe(work, self._loop).result(10)

    def close(self) -> None:
        """Close all, once."""
        if self._loop.is_closed():
            return
        for line in self.lines:
            self.do(line.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()


class Line:
    """A port, and what comes in there goes to the target."""

    def __init__(self, target: int) -> None:
        self.port = 0
        self._target = target
        self._mode = PASS
        self._passing = asyncio.Event()
        self._passing.set()
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self.bytes = 0

    async def open(self) -> None:
        """Listen."""
        self._server = await asyncio.start_server(self._accepted, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    async def set(self, mode: str) -> None:
        """Cut ends all connections; stall takes no byte any more, in either direction."""
        self._mode = mode
        if mode == STALL:
            self._passing.clear()
        else:
            self._passing.set()
        if mode == CUT:
            await self._hang_up()

    async def close(self) -> None:
        """Listen no more, hang up on all."""
        if self._server is not None:
            self._server.close()
        await self._hang_up()

    async def _hang_up(self) -> None:
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            await self._both(reader, writer)
        except (OSError, asyncio.CancelledError):
            return  # what hung up, hung up
        finally:
            self._tasks.discard(task)
            writer.transport.abort()

    async def _both(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._mode == CUT:
            return
        there, back = await asyncio.open_connection("127.0.0.1", self._target)
        ways = [asyncio.create_task(self._copy(reader, back)), asyncio.create_task(self._copy(there, writer))]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)
            back.transport.abort()

    async def _copy(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(SLOW_CHUNK if self._mode == SLOW else CHUNK):
                await self._passing.wait()
                if self._mode == SLOW:
                    await asyncio.sleep(SLOW_S)
                self.bytes += len(data)
                writer.write(data)
                await writer.drain()
