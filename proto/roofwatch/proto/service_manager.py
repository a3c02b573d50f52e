"""Tells systemd how a service is (sd_notify(3)): ready, alive, stopping. Without systemd nothing happens."""

from __future__ import annotations

import os
import socket
import time
from contextlib import suppress

READY, ALIVE, STOPPING = "READY=1", "WATCHDOG=1", "STOPPING=1"


def notify(*states: str) -> None:
    """Send states to the socket in ``NOTIFY_SOCKET``; a service runs on where nobody takes them."""
    where = os.environ.get("NOTIFY_SOCKET", "")
    if not where.startswith(("/", "@")):
        return
    address = "\0" + where[1:] if where.startswith("@") else where
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sock, suppress(OSError):
        sock.setblocking(False)
        sock.sendto("\n".join(states).encode(), address)


def reloading() -> tuple[str, str]:
    """That settings are being read again, as ``Type=notify-reload`` wants it; READY says that it is done."""
    return "RELOADING=1", f"MONOTONIC_USEC={time.monotonic_ns() // 1000}"


def status(text: str) -> str:
    """The line that ``systemctl status`` shows."""
    return f"STATUS={' '.join(text.split())}"
