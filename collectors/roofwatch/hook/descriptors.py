"""Descriptors of ours in somebody else's process.

A job may close every descriptor it does not know, and open its own files on the numbers that become free. So ours get
high numbers, which such loops rarely reach, and before each use it is made sure that the number still names our file.
"""

import fcntl
import os
import select
import socket
from typing import Any, Dict, List, Mapping, Optional, Tuple

from . import protocol

HIGH = 512  # above what jobs close by habit (256) and below the usual limit (1,024)


def lifted(fd: int) -> int:
    """The same file under a high number; ``fd`` itself where there is no room."""
    try:
        high = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, HIGH)
    except OSError:
        return fd
    os.close(fd)
    return high


class Mark:
    """Remembers which file a descriptor is."""

    def __init__(self, fd: int) -> None:
        self._file = _identity(fd)

    def holds(self, fd: int) -> bool:
        """Whether ``fd`` is still that file."""
        return self._file is not None and _identity(fd) == self._file


def _identity(fd: int) -> Optional[Tuple[int, int]]:
    try:
        status = os.fstat(fd)
    except OSError:
        return None
    return status.st_dev, status.st_ino


class JobChannel(protocol.Channel):
    """The hook's end of the conversation; a socket that is no longer ours is let go, never used and never closed."""

    def __init__(self, sock: socket.socket) -> None:
        super().__init__(sock, protocol.MAX_FROM_AGENT, protocol.MAX_FROM_JOB)
        self._mark = Mark(sock.fileno())

    def _check(self) -> None:
        if not self._mark.holds(self.sock.fileno()):
            self.sock.detach()
            raise protocol.Closed

    def send(self, message: Mapping[str, Any], fd: Optional[int] = None) -> None:
        """As ``Channel``; raises Closed where the job has closed the socket."""
        self._check()
        super().send(message, fd)

    def receive(self) -> List[Tuple[Dict[str, Any], Optional[int]]]:
        """As ``Channel``; raises Closed where the job has closed the socket."""
        self._check()
        return super().receive()

    def hung_up(self) -> bool:
        """Whether the other end has gone, or the job has closed ours. Reads nothing."""
        if not self._mark.holds(self.sock.fileno()):
            return True
        poll = select.poll()
        poll.register(self.sock, 0)  # a hang-up is always told
        return bool(poll.poll(0))

    def end(self) -> None:
        """Wake whoever waits in ``receive``. Raises OSError or Closed."""
        self._check()
        self.sock.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Close the socket if it is still ours."""
        if not self._mark.holds(self.sock.fileno()):
            self.sock.detach()
        super().close()
