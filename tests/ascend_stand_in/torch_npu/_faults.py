"""What shall go wrong, and a log of what has happened."""

import os
import threading
import time


def wanted() -> frozenset[str]:
    """The faults that the test has asked for."""
    return frozenset(os.environ.get("ASCEND_STAND_IN", "").split(","))


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
