"""The trace of a window: memory of ours that no path names, on its way to the agent as a descriptor."""

import itertools
import os
import tempfile
import time
from typing import Any, Callable, Dict, Optional

from . import protocol
from .descriptors import Mark, lifted

_PREFIX = "roofwatch-window-"
_STALE_S = 600.0  # no save takes so long
_LOOK_AT_MOST = 10_000  # entries of the temporary folder

_swept = False


class Taken:
    """A finished window: its descriptor, owned by this object, and what the agent is told about it."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self.message: Dict[str, Any] = {}
        self._mark = Mark(fd)

    def size(self) -> int:
        """Bytes of the trace. Raises OSError where the job has closed the descriptor."""
        if not self._mark.holds(self.fd):
            raise OSError("the job has closed the trace")
        return os.fstat(self.fd).st_size

    def close(self) -> None:
        """Give the memory back."""
        if self.fd >= 0 and self._mark.holds(self.fd):
            os.close(self.fd)
        self.fd = -1


def message(
    request: Any, window: Any, steps_seen: int, cost: Dict[str, Any], sums: Optional[Dict[str, Any]]
) -> Dict[str, Any]:
    """The ``window`` message without its size."""
    at = window.at
    return {
        "type": protocol.WINDOW,
        "request": request,
        "format": protocol.KINETO_JSON,
        "start_unix_ns": window.start_unix_ns,
        "duration_ns": at.cut - at.opened,
        "steps": at.cut_step - at.opened_step if window.whole else None,
        "first_step": at.opened_step if window.by_steps else None,
        "shapes": window.shapes,
        "cost": cost,
        "padding": sums,
        "steps_seen": steps_seen,
        "active_ns": window.active_ns,
    }


def save_private(save: Callable[[str], None]) -> int:
    """Run ``save(path)`` so that what it writes lands in anonymous memory; the descriptor. Raises OSError.

    Kineto writes ``path + ".tmp"`` and renames it. So that name is a link to the memory, in a folder of ours: even of
    a process that is killed meanwhile nothing stays but a folder, until another process takes its first window.
    """
    _sweep()
    fd = lifted(os.memfd_create("roofwatch"))  # both close-on-exec
    try:
        folder = tempfile.mkdtemp(prefix=_PREFIX)
        try:
            os.symlink("/proc/self/fd/%d" % fd, os.path.join(folder, "window.tmp"))
            save(os.path.join(folder, "window"))
        finally:
            _remove(folder)
        if os.fstat(fd).st_size == 0:
            raise OSError("the profiler wrote nothing")
        os.lseek(fd, 0, os.SEEK_SET)
    except BaseException:
        os.close(fd)
        raise
    return fd


def _sweep() -> None:
    """Once a process: remove the folders of this user's processes that were killed while they saved."""
    global _swept
    if _swept:
        return
    _swept = True
    try:
        with os.scandir(tempfile.gettempdir()) as entries:
            for entry in itertools.islice(entries, _LOOK_AT_MOST):
                if not entry.name.startswith(_PREFIX):
                    continue
                told = entry.stat(follow_symlinks=False)
                if told.st_uid == os.getuid() and time.time() - told.st_mtime > _STALE_S:
                    _remove(entry.path)
    except OSError:
        pass


def _remove(folder: str) -> None:
    for name in ("window.tmp", "window"):
        try:
            os.unlink(os.path.join(folder, name))
        except OSError:
            pass
    try:
        os.rmdir(folder)
    except OSError:
        pass
