"""One line an event on stderr: time, level, event, key=value, or JSON. A repeating event is thinned, and says so.

What somebody asked of the agent is written each time, at every level: it is for who asks later who did what.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import TextIO

from roofwatch.proto.lines import LEVELS, Thinner, let_go, line

BURST = 5  # lines an event may write in a minute; the rest are counted and told with the next line


class Log:
    """Writes events; never raises, never blocks for long, never floods. ``form`` and ``level`` may change."""

    def __init__(
        self,
        stream: TextIO | None = None,
        clock: Callable[[], float] = time.monotonic,
        form: str = "text",
        level: str = "info",
    ) -> None:
        self._stream = stream if stream is not None else sys.stderr
        self._thinner = Thinner(BURST, clock)
        self.form, self.level = form, level

    def info(self, event: str, **fields: object) -> None:
        """Something that is as it should be."""
        self._write("info", event, fields)

    def warning(self, event: str, **fields: object) -> None:
        """Something that was lost, refused or given up."""
        self._write("warning", event, fields)

    def audit(self, event: str, **fields: object) -> None:
        """What somebody asked for. Never thinned, and whatever the level."""
        self._put("info", event, {**fields, "audit": True})

    def _write(self, level: str, event: str, fields: dict[str, object]) -> None:
        if LEVELS.index(level) < LEVELS.index(self.level):
            return
        suppressed = self._thinner.admit(event)
        if suppressed is None:
            return
        if suppressed:
            fields = {**fields, "suppressed": suppressed}
        self._put(level, event, fields)

    def _put(self, level: str, event: str, fields: dict[str, object]) -> None:
        try:
            self._stream.write(line(level, event, fields, self.form) + "\n")
            self._stream.flush()
        except (OSError, ValueError) as error:  # nobody reads; the counters still tell
            let_go(self._stream, error)
