"""Whether SIGHUP says that settings changed, or that the terminal is gone in which a program was started."""

from __future__ import annotations

import os
from contextlib import suppress


def _there() -> bool:
    """Whether this process has a terminal that controls it."""
    with suppress(OSError):
        os.close(os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY | os.O_CLOEXEC))
        return True
    return False


class Terminal:
    """The terminal at the start, if there was one."""

    def __init__(self) -> None:
        self._had = _there()

    def gone(self) -> bool:
        """Whether it was there and has been closed."""
        return self._had and not _there()
