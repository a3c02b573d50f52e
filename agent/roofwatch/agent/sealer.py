"""Gathers the windows that finish together into one segment, and tells the drops with it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Sequence

from roofwatch.agent.counters import Counters
from roofwatch.agent.spool import Spool
from roofwatch.model.record import ProcessState, Window
from roofwatch.proto import codec

GATHER_S = 2.0  # a dictionary is shared by the windows of a segment; a crash loses at most this much
MOST_WINDOWS = 64
MOST_BYTES = 8 << 20  # as the worker encoded them; the codec's own limit is eight times that


class Sealer:
    """Runs in the event loop's thread."""

    def __init__(
        self, spool: Spool, counters: Counters, sealed: Callable[[], None], in_flight: Callable[[], Collection[int]]
    ) -> None:
        self._spool = spool
        self._counters = counters
        self._sealed = sealed
        self._in_flight = in_flight
        self._windows: list[Window] = []
        self._bytes = 0
        self._timer: asyncio.TimerHandle | None = None
        self.states: Callable[[Collection[int]], Sequence[ProcessState]] = lambda _: ()  # of processes, by their ids

    def add(self, window: Window, size: int) -> None:
        """Take a finished window of about ``size`` encoded bytes; it is on disk within two seconds."""
        self._windows.append(window)
        self._bytes += size
        if len(self._windows) >= MOST_WINDOWS or self._bytes >= MOST_BYTES:
            self.flush()
        elif self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(GATHER_S, self.flush)

    def flush(self) -> None:
        """Seal now what is there: windows, drops that no window has told yet, how processes stand."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        drops = self._counters.take_unreported()
        states = self.states({w.process.id for w in self._windows})
        if not self._windows and not drops and not states:
            return
        windows, self._windows, self._bytes = self._windows, [], 0
        message = codec.segment(windows, drops, states)
        if self._spool.append(lambda *number: codec.seal(message, *number), self._in_flight(), drops):
            self._counters.windows["sealed"] += len(windows)
            self._sealed()
        else:
            self._counters.unreported.update(drops)  # what that segment would have told is still to be told
