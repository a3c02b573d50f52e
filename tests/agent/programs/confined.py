"""Confines itself as a parse worker does, tries what a hostile trace would like to, and prints what became of it."""

from __future__ import annotations

import ctypes
import json
import os
import resource
import signal
import socket
import sys
import threading
import time
from pathlib import Path

from roofwatch.agent import sandbox

X86 = os.uname().machine == "x86_64"
secret, folder = Path(sys.argv[1]), Path(sys.argv[2])
mine, theirs = socket.socketpair()
taken = sandbox.confine()


def thread() -> None:
    """Start one, and wait for it."""
    done: list[int] = []
    worker = threading.Thread(target=done.append, args=(1,))
    worker.start()
    worker.join()
    assert done


def talk() -> None:
    """Over a socket from before."""
    mine.sendall(b"x")
    assert theirs.recv(1) == b"x"


def later_import() -> None:
    """Of C libraries too."""
    import sqlite3  # noqa: PLC0415
    import zoneinfo  # noqa: F401, PLC0415

    sqlite3.connect(":memory:").execute("SELECT 1").fetchone()


def raw(number: int, *arguments: int) -> None:
    """A system call that Python has no function for."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.syscall(number, *(*arguments, 0, 0, 0, 0, 0, 0)[:6]) < 0:
        raise OSError(ctypes.get_errno(), "")


TRIES = {
    "read a secret": secret.read_text,
    "list a folder": lambda: list(folder.iterdir()),
    "write a file": lambda: (folder / "new").write_text("x"),
    "change a file": lambda: secret.open("a").close(),
    "delete a file": secret.unlink,
    "make a folder": (folder / "sub").mkdir,
    "make a socket": lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM),
    "make a local socket": lambda: socket.socket(socket.AF_UNIX),
    "run a program": lambda: os.execv("/bin/true", ["true"]),  # noqa: S606 - it must not
    "fork": os.fork,
    "spawn": lambda: os.posix_spawn("/bin/true", ["true"], {}),
    "signal another": lambda: os.kill(os.getppid(), signal.SIGCONT),
    "signal a thread of another": lambda: raw(234 if X86 else 131, os.getppid(), os.getppid(), signal.SIGCONT),
    "limit another": lambda: resource.prlimit(os.getppid(), resource.RLIMIT_CORE, (0, 0)),
    "slow another": lambda: os.setpriority(os.PRIO_PROCESS, os.getppid(), 19),
    "limit itself": lambda: resource.setrlimit(resource.RLIMIT_CORE, (0, 0)),
    "trace another": lambda: raw(101 if X86 else 117),
    "hide in io_uring": lambda: raw(425),
    "make a thread": thread,
    "talk": talk,
    "import": later_import,
    "read its memory": lambda: Path("/proc/self/statm").read_text(),
    "tell the time": time.time,
}
told = {}
for name, attempt in TRIES.items():
    try:
        attempt()
        told[name] = "done"
    except OSError as error:
        told[name] = type(error).__name__
print(json.dumps({"taken": taken, "told": told}))
