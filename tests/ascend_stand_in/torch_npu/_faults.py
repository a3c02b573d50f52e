"""What shall go wrong, and a log of what has happened."""

import os
import threading
import time


def wanted() -> frozenset[str]:
    """The faults that the test has asked for: from the start, or by now."""
    told = os.environ.get("ASCEND_STAND_IN", "")
    now = os.environ.get("ASCEND_STAND_IN_NOW")
    if now and os.path.exists(now):  # noqa: PTH110 - as above
        with open(now, encoding="utf-8") as file:  # noqa: PTH123
            told += f",{file.read().strip()}"
    return frozenset(told.split(","))


def fail(name: str) -> None:
    """Raise as a vendor's library does, if this fault is wanted."""
    if name in wanted():
        raise RuntimeError(f"[ERROR] ERR00100 stand-in: {name}")


def happened(what: str) -> None:
    """One line in the log: the time, the process, the thread, and what."""
    path = os.environ.get("ASCEND_STAND_IN_LOG")
    if path:
        with open(path, "a", encoding="utf-8") as log:  # noqa: PTH123 - one append a line
            log.write(f"{time.time_ns()} {os.getpid()} {threading.get_native_id()} {what}\n")
