"""Lines of a log: for people or as JSON, one line an event whatever is in it, and no storms."""

from __future__ import annotations

import errno
import json
import os
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TextIO

LEVELS = ("debug", "info", "warning", "error")
FORMATS = ("text", "json")
PERIOD_S = 60.0
MAX_EVENTS = 256  # events come from the code, so this is never reached unless a name is built from input
MAX_VALUE = 300  # characters of one value


class Thinner:
    """Lets an event write a few lines in a period; the rest are counted and told with the next line."""

    def __init__(self, burst: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._burst, self._clock = burst, clock
        self._recent: dict[str, tuple[float, int]] = {}  # event → start of its period, lines asked for in it

    def admit(self, event: str) -> int | None:
        """None: leave this line out. Else how many were left out before it."""
        now = self._clock()
        since, asked = self._recent.get(event, (now, 0))
        suppressed = 0
        if now - since >= PERIOD_S:
            suppressed, since, asked = max(0, asked - self._burst), now, 0
        if len(self._recent) < MAX_EVENTS or event in self._recent:
            self._recent[event] = (since, asked + 1)
        return suppressed if asked < self._burst else None


def short(value: object, most: int = MAX_VALUE) -> str:
    """A value as a text that does not fill a log."""
    text = str(value)
    return text if len(text) <= most else text[:most] + "…"


def stamp() -> str:
    """The time now."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def line(level: str, event: str, fields: Mapping[str, object], form: str) -> str:
    """One line: ``time level=… event=… key=value``, or an object of the same keys. What is None is left out."""
    told = {key: value for key, value in fields.items() if value is not None}
    if form == "json":
        plain = {k: v if isinstance(v, bool | int | float) else short(v) for k, v in told.items()}
        return json.dumps({"time": stamp(), "level": level, "event": event} | plain)
    return " ".join([stamp(), f"level={level}", f"event={event}", *(f"{k}={_shown(v)}" for k, v in told.items())])


def _shown(value: object) -> str:
    text = short(value)
    # Values may come from a job: quoting keeps a line one line and a field one field.
    return (
        text if text and text.isascii() and text.isprintable() and not set(text) & {" ", '"', "="} else json.dumps(text)
    )


def let_go(stream: TextIO, error: BaseException | None) -> None:
    """After a write failed: of a terminal or a pipe that is gone for good.

    What is buffered would fail the program's end (exit code 120), and so would each line that is still to come.
    """
    if not isinstance(error, OSError) or error.errno not in {errno.EIO, errno.EPIPE}:
        return
    with suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        try:
            os.dup2(nowhere, stream.fileno())
        finally:
            os.close(nowhere)
