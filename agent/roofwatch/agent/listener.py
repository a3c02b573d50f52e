"""The socket: one agent a path, nothing stale in the way, nobody else's folder."""

from __future__ import annotations

import errno
import fcntl
import os
import socket
import stat
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from roofwatch.model.errors import RoofwatchError

BACKLOG = 512
MAX_PATH = 107  # bytes of sockaddr_un.sun_path, less the closing zero


class ListenError(RoofwatchError):
    """The agent cannot listen."""


def lock_file(path: Path) -> int | None:
    """An exclusive lock that ends with this process; the descriptor, or None where another process holds it."""
    while True:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(fd)
            return None
        with suppress(OSError):
            if os.fstat(fd).st_ino == path.stat().st_ino:
                return fd
        os.close(fd)  # its last holder removed the file after we opened it: lock the new one


@dataclass(slots=True)
class Listener:
    """A bound, listening, non-blocking socket and the lock that makes it the only one."""

    sock: socket.socket
    path: Path
    lock: int

    def close(self) -> None:
        """Stop listening and leave no file behind."""
        for path in (self.path, _lock_of(self.path)):
            with suppress(OSError):
                path.unlink()
        self.sock.close()
        os.close(self.lock)


def _lock_of(path: Path) -> Path:
    return path.with_name(path.name + ".lock")


def listen(where: str, *, system: bool) -> Listener:
    """Bind the socket: folder 0700 and socket 0600, or 0755 and 0666 with ``system``.

    Raises:
        ListenError: another agent is there, or the path cannot be used.
    """
    path = Path(where).absolute()
    if len(os.fsencode(path)) > MAX_PATH:
        raise ListenError(
            f"cannot listen on {path}: the path is longer than {MAX_PATH} bytes; choose another with --socket"
        )
    try:
        _folder(path.parent, system=system)
        lock = lock_file(_lock_of(path))
    except OSError as error:
        raise _cannot(path, error) from error
    if lock is None:
        raise ListenError(f"another agent already listens on {path}; stop it, or choose another socket with --socket")
    try:
        _clear(path)
        return Listener(_bind(path, system=system), path, lock)
    except OSError as error:
        os.close(lock)
        raise _cannot(path, error) from error
    except ListenError:
        os.close(lock)
        raise


def _cannot(path: Path, error: OSError) -> ListenError:
    why = os.strerror(error.errno) if error.errno else str(error)
    return ListenError(f"cannot listen on {path}: {why}; choose another socket with --socket")


def _folder(folder: Path, *, system: bool) -> None:
    folder.mkdir(parents=True, exist_ok=True, mode=0o755 if system else 0o700)
    info = folder.stat()
    others_write = info.st_mode & 0o022 and not info.st_mode & stat.S_ISVTX
    if info.st_uid not in (os.getuid(), 0) or others_write:
        # Whoever owns the folder could put another socket in our place and pass jobs a false agent.
        raise ListenError(
            f"the folder {folder} can be changed by other users; make it private, or choose another with --socket"
        )


def _clear(path: Path) -> None:
    """Remove a socket nobody listens on; the lock is ours, so nobody can begin to."""
    try:
        info = path.lstat()
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(info.st_mode):
        raise ListenError(f"{path} exists and is not a socket; remove it, or choose another with --socket")
    with socket.socket(socket.AF_UNIX) as probe:
        probe.setblocking(False)
        if probe.connect_ex(str(path)) in (0, errno.EAGAIN):
            raise ListenError(
                f"another program already listens on {path}; stop it, or choose another socket with --socket"
            )
    path.unlink()


def _bind(path: Path, *, system: bool) -> socket.socket:
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    before = os.umask(0o177)  # private from the first moment; opened up below where any user may register
    try:
        sock.bind(str(path))
        if system:
            path.chmod(0o666)
        sock.listen(BACKLOG)
        sock.setblocking(False)
    except OSError:
        sock.close()
        raise
    finally:
        os.umask(before)
    return sock
