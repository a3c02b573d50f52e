"""Namespaces of our own: every process, socket, mount and piece of shared memory seen inside is the soak's."""

from __future__ import annotations

import ctypes
import fcntl
import os
import shutil
import socket
import struct
import subprocess
import sys
from pathlib import Path

INSIDE = "ROOFWATCH_SOAK_INSIDE"
PLAIN = "ROOFWATCH_SOAK_PLAIN"  # to try what is done where namespaces are forbidden
UNSHARE = (
    "unshare", "--mount", "--propagation", "private", "--pid", "--fork", "--kill-child", "--mount-proc", "--net",
    "--ipc",
)  # fmt: skip
SIOCGIFFLAGS, SIOCSIFFLAGS, IFF_UP = 0x8913, 0x8914, 1
SUBREAPER = 36  # prctl: who loses its parent becomes ours, so that nobody gets away


def enter() -> bool:
    """Go on in namespaces of our own, where root may make them; else False, and the caller goes on as it is."""
    if os.environ.get(INSIDE):
        _arrange()
        return True
    if os.environ.get(PLAIN) or os.geteuid() != 0 or shutil.which("unshare") is None:
        return _outside()
    if subprocess.run([*UNSHARE, "true"], capture_output=True, check=False).returncode:
        return _outside()
    os.environ[INSIDE] = "1"
    return os.execvp("unshare", [*UNSHARE, sys.executable, *sys.argv])  # noqa: S606 - the same program again


def _outside() -> bool:
    ctypes.CDLL(None).prctl(SUBREAPER, 1, 0, 0, 0)
    return False


def _arrange() -> None:
    """Loopback up, and shared memory that nobody else uses."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        request = struct.pack("16sh14x", b"lo", 0)
        flags = struct.unpack("16sh14x", fcntl.ioctl(probe, SIOCGIFFLAGS, request))[1]
        fcntl.ioctl(probe, SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", flags | IFF_UP))
    mount(Path("/dev/shm"), "256m")  # noqa: S108 - the place itself
    _outside()


def mount(folder: Path, size: str, owner: int = 0) -> None:
    """A small file system."""
    options = f"size={size},mode=1777,uid={owner},gid={owner}"
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)], check=True)
