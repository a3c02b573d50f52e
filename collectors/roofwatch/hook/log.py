"""Where the hook says what went wrong: the file that ``ROOFWATCH_HOOK_LOG`` names, else nowhere."""

import os
import time
from typing import Set

_said: Set[str] = set()


def log(message: str, once: bool = False) -> None:
    """Append one line; with ``once`` the same message is written only the first time. Raises nothing."""
    path = os.environ.get("ROOFWATCH_HOOK_LOG")
    if not path or (once and message in _said):
        return
    _said.add(message)
    try:
        fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            line = "%.3f pid %d: %s\n" % (time.time(), os.getpid(), message)
            os.write(fd, line.encode("utf-8", "replace"))
        finally:
            os.close(fd)
    except OSError:
        pass


def failure(where: str, error: BaseException) -> None:
    """Note an exception that must not reach the job, once for each place and text."""
    log("%s: %s: %s" % (where, type(error).__name__, error), once=True)
