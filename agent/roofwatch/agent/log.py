"""One line an event on stderr: time, level, event, key=value. A repeating event is thinned, and says by how much."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from typing import TextIO

BURST = 5  # lines an event may write…
PERIOD_S = 60.0  # …in this time; the rest are counted and told with the next line
MAX_EVENTS = 256  # event names come from the code, so this is never reached unless a name is built from input
MAX_VALUE = 300  # characters of one value


def _shown(value: object) -> str:
    text = str(value)
    if len(text) > MAX_VALUE:
        text = text[:MAX_VALUE] + "…"
    # Values may come from a job: quoting keeps a line one line and a field one field.
    return (
        text if text and text.isascii() and text.isprintable() and not set(text) & {" ", '"', "="} else json.dumps(text)
    )


class Log:
    """Writes events; never raises, never blocks for long, never floods."""

    def __init__(self, stream: TextIO | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self._stream = stream if stream is not None else sys.stderr
        self._clock = clock
        self._recent: dict[str, tuple[float, int]] = {}  # event → start of its period, lines asked for in it

    def info(self, event: str, **fields: object) -> None:
        """Something that is as it should be."""
        self._write("info", event, fields)

    def warning(self, event: str, **fields: object) -> None:
        """Something that was lost, refused or given up."""
        self._write("warning", event, fields)

    def _write(self, level: str, event: str, fields: dict[str, object]) -> None:
        now = self._clock()
        since, asked = self._recent.get(event, (now, 0))
        suppressed = 0
        if now - since >= PERIOD_S:
            suppressed, since, asked = max(0, asked - BURST), now, 0
        if len(self._recent) < MAX_EVENTS or event in self._recent:
            self._recent[event] = (since, asked + 1)
        if asked >= BURST:
            return
        if suppressed:
            fields = {**fields, "suppressed": suppressed}
        stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        line = " ".join(
            [
                stamp,
                f"level={level}",
                f"event={event}",
                *(f"{k}={_shown(v)}" for k, v in fields.items() if v is not None),
            ]
        )
        try:
            self._stream.write(line + "\n")
            self._stream.flush()
        except (OSError, ValueError):
            return  # nobody reads; the counters still tell
