"""What a batch system says of a job, as labels of its processes: a file a job, `KEY=VALUE` a line, by its prolog.

Only files that root or the agent's own user wrote are believed: what a job says of itself comes with its hello.
"""

from __future__ import annotations

import os
import re
import stat
from contextlib import suppress
from pathlib import Path

KEYS = ("user", "account", "partition", "qos", "name", "cluster")
SIZE_MOST = 4096
VALUE_MOST = 256
_JOB = re.compile(r"slurm:([0-9]{1,20})(?:\..*)?\Z")


def labels(folder: str, job: str | None, user: str | None) -> dict[str, str]:
    """Labels ``slurm.KEY`` of a job such as ``slurm:7.0``; {} without a file, or of another user."""
    known = _JOB.match(job or "")
    if not folder or known is None:
        return {}
    with suppress(OSError, UnicodeDecodeError):
        found = _parsed(_read(Path(folder) / known.group(1)))
        return found if found.get("slurm.user", user) == user else {}
    return {}


def _read(path: Path) -> str:
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(fd, "rb") as file:
        info = os.fstat(fd)
        if not stat.S_ISREG(info.st_mode) or info.st_uid not in (0, os.geteuid()) or info.st_mode & 0o022:
            return ""
        return file.read(SIZE_MOST).decode()


def _parsed(text: str) -> dict[str, str]:
    pairs = (line.partition("=") for line in text.splitlines())
    return {
        f"slurm.{key}": value.strip()[:VALUE_MOST] for key, equals, value in pairs if equals and key in KEYS and value
    }
