"""Where torch_npu writes a window: folders of ours, bounded in bytes, each gone when its window is.

A folder is locked by whoever works in it; a folder that nobody locks belongs to a job that was killed, and is removed
by the next window on this node.
"""

import fcntl
import os
import re
import shutil
import stat
import tempfile
import time
from typing import Iterator, Optional

from . import protocol
from .descriptors import Mark, lifted
from .request import Refused

MIB = 1 << 20
QUOTA_MIB = 4096  # of all jobs of one user on a node
SHARES = 8  # one window may have this part of it
RESERVE = 256 * MIB  # that must stay free on the disk beside a window
ORPHAN_S = 60.0  # a folder younger than this may not be locked yet
_ALLOWED = re.compile(r"[A-Za-z0-9_./~-]+")  # older torch_npu refuse other characters, newer ones warn on stderr


def quota() -> int:
    """Bytes that all windows in flight may have: ``ROOFWATCH_NPU_QUOTA_MB``."""
    try:
        return max(1, int(os.environ.get("ROOFWATCH_NPU_QUOTA_MB") or QUOTA_MIB)) * MIB
    except ValueError:
        return QUOTA_MIB * MIB


def window_most() -> int:
    """Bytes that one window may have, its raw data and the analysis of it."""
    return quota() // SHARES


def base() -> str:
    """The folder that holds the windows of this user, made where it is missing. Raises Refused."""
    parent = os.path.realpath(os.environ.get("ROOFWATCH_NPU_DIR") or tempfile.gettempdir())
    path = os.path.join(parent, "roofwatch-npu-%d" % os.geteuid())
    if not _ALLOWED.fullmatch(path):
        raise Refused(protocol.DISK, "characters of the folder")
    try:
        try:
            os.mkdir(path, 0o700)
        except FileExistsError:
            pass
        status = os.lstat(path)
    except OSError as error:
        raise Refused(protocol.DISK, error.strerror or "no folder") from error
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid() or status.st_mode & 0o077:
        raise Refused(protocol.DISK, "the folder is not ours alone")
    return path


def room() -> None:
    """Remove what killed jobs have left, and raise Refused where a window might not fit."""
    path = base()
    sweep(path)
    if size(path) + window_most() > quota():
        raise Refused(protocol.DISK, "quota")
    disk = os.statvfs(path)
    if disk.f_bavail * disk.f_frsize < window_most() + RESERVE:
        raise Refused(protocol.DISK, "free space")


def size(path: str) -> int:
    """Bytes on disk under a folder; links are not followed."""
    total = 0
    for parent, _, names in os.walk(path):
        for name in names:
            try:
                total += os.lstat(os.path.join(parent, name)).st_blocks * 512
            except OSError:  # gone meanwhile
                pass
    return total


def sweep(path: str) -> None:
    """Remove the windows that nobody works on."""
    for entry in _entries(path):
        try:
            if time.time() - os.lstat(entry).st_mtime < ORPHAN_S:
                continue
            fd = _open_folder(entry)
        except OSError:
            continue
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(entry, ignore_errors=True)
        except OSError:  # somebody's
            pass
        finally:
            os.close(fd)


def _entries(path: str) -> Iterator[str]:
    with os.scandir(path) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                yield entry.path


def _open_folder(path: str) -> int:
    return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)


class Folder:
    """The folder of one window, locked while this object has not let go of it."""

    def __init__(self) -> None:
        """Raises Refused or OSError."""
        self.path = tempfile.mkdtemp(prefix="%d_" % os.getpid(), dir=base())  # mode 0700
        self.lock = lifted(_open_folder(self.path))
        self._mark = Mark(self.lock)
        fcntl.flock(self.lock, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def profile(self) -> Optional[str]:
        """The one profile that torch_npu has begun in it, None where it has not."""
        found = [entry for entry in _entries(self.path) if entry.endswith("_ascend_pt")]
        return found[0] if len(found) == 1 else None

    def unlock(self) -> None:
        """Somebody else works in it from now on, or nobody."""
        if self._mark.holds(self.lock):
            os.close(self.lock)
        self.lock = -1

    def remove(self) -> None:
        """Delete it. Raises nothing."""
        shutil.rmtree(self.path, ignore_errors=True)
        self.unlock()


def incomplete(profile: str) -> str:
    """What a profile lacks that every complete one has, "" where it lacks nothing. Raises OSError.

    torch_npu swallows its own exceptions, so only what it wrote tells whether it did what it was asked.
    """
    names = os.listdir(profile)
    info = [name for name in names if name.startswith("profiler_info") and name.endswith(".json")]
    if not info:
        return "no profiler_info"
    with open(os.path.join(profile, info[0]), encoding="utf-8", errors="replace") as file:
        if '"end_info"' not in file.read(MIB):
            return "no end_info"
    raw = [name for name in names if name.startswith("PROF_")]
    if not any(part.startswith("device_") for name in raw for part in os.listdir(os.path.join(profile, name))):
        return "no device data"
    return ""
