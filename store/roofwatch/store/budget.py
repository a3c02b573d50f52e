"""How much may be in memory between the wire and the disk."""

from __future__ import annotations

import asyncio

BYTES = 256 << 20  # of decompressed segments
COUNT = 256


class Budget:
    """Bounds segments in flight, in number and in bytes. A stream that has to wait is not read, so its sender waits."""

    def __init__(self, limit_bytes: int = BYTES, limit_count: int = COUNT) -> None:
        self.limit_bytes, self._limit_count = limit_bytes, limit_count
        self.used_bytes = self.used_count = 0
        self._freed = asyncio.Event()

    async def take(self, size: int) -> int:
        """Wait until a segment fits; gives what has to be put back."""
        size = min(size, self.limit_bytes)
        while self.used_count >= self._limit_count or self.used_bytes + size > self.limit_bytes:
            self._freed.clear()
            await self._freed.wait()
        self.used_bytes += size
        self.used_count += 1
        return size

    def put_back(self, size: int) -> None:
        """The segment is gone."""
        self.used_bytes -= size
        self.used_count -= 1
        self._freed.set()
