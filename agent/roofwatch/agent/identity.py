"""Who a process is and where: from the kernel (/proc, peer credentials), not from what the process says."""

from __future__ import annotations

import os
import pwd
import socket
import struct
import time
from collections.abc import Mapping
from pathlib import Path

from roofwatch.model.record import Node

PROC = Path("/proc")
_UCRED = struct.Struct("3i")  # pid, uid, gid


def peer_of(sock: socket.socket) -> tuple[int, int]:
    """Pid and uid of the process that connected; pid 0 where it lives in a pid namespace we cannot see."""
    pid, uid, _ = _UCRED.unpack(sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size))
    return pid, uid


def node_of(name: str, labels: Mapping[str, str], proc: Path = PROC) -> Node:
    """This machine since its last boot; no name: its host name; boot id "" where the kernel does not tell."""
    try:
        boot_id = (proc / "sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        boot_id = ""
    return Node(host=name or socket.gethostname(), boot_id=boot_id, labels=dict(labels))


def boot_time_s(proc: Path = PROC) -> int | None:
    """Unix time of the boot in whole seconds, None where unknown.

    The kernel derives it from the wall clock, so it moves when that is set: read it once and keep it.
    """
    try:
        lines = (proc / "stat").read_text().splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) for line in lines if line.startswith("btime ")), None)


def start_unix_ns(pid: int, boot_s: int | None, proc: Path = PROC) -> int | None:
    """When a process started, to a clock tick (10 ms): field 22 of its stat, after a name that may hold anything."""
    if boot_s is None or pid <= 0:
        return None
    try:
        text = (proc / str(pid) / "stat").read_bytes()
        ticks = int(text.rpartition(b")")[2].split()[19])
    except (OSError, ValueError, IndexError):
        return None
    return boot_s * 1_000_000_000 + ticks * 1_000_000_000 // os.sysconf("SC_CLK_TCK")


class Users:
    """Names of users, looked up once each: the lookup may go to a directory server."""

    MAX = 1024

    def __init__(self) -> None:
        self._names: dict[int, str] = {}

    def name(self, uid: int) -> str:
        """The user's name, the number as text where there is none."""
        if uid not in self._names:
            if len(self._names) >= self.MAX:
                return str(uid)
            try:
                self._names[uid] = pwd.getpwuid(uid).pw_name
            except KeyError:
                self._names[uid] = str(uid)
        return self._names[uid]


def now_unix_ns() -> int:
    """Unix time."""
    return time.time_ns()
