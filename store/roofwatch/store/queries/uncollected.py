"""Python's collector of cycles, off while an answer is made.

An answer about a fleet makes ten thousand objects that live until it ends. Each seven hundred of them would have the
collector begin, some of these times look through all that the process holds, and find nothing: a tenth of the answer.
"""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

MOST_S = 1.0  # at a time, where answers overlap without end: what fails makes cycles, and they hold what it held


class _Pause:
    """Counts who wants it off. May be used by several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._wanted, self._since, self._was_on = 0, 0.0, False

    def begin(self) -> None:
        """Off, where it has not been for too long."""
        with self._lock:
            self._wanted += 1
            if self._wanted == 1:
                self._since, self._was_on = time.monotonic(), gc.isenabled()
                gc.disable()
            elif self._was_on and time.monotonic() - self._since > MOST_S:
                gc.enable()

    def end(self) -> None:
        """On with the last of them, where it was on before the first."""
        with self._lock:
            self._wanted -= 1
            if not self._wanted and self._was_on:
                gc.enable()


_pause = _Pause()


@contextmanager
def uncollected() -> Iterator[None]:
    """While the block runs."""
    _pause.begin()
    try:
        yield
    finally:
        _pause.end()
