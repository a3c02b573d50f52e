"""A process that copies one trace, compressed, to a file that the daemon opened, and tells its size and hash.

The descriptor of a trace is a job's: reading it may wait for ever, so the daemon never does. This reads bytes and looks
into nothing, under the limits of a parse worker but for the size of the one file that it writes.
"""

from __future__ import annotations

import ctypes
import hashlib
import json
import os
import resource
import signal
import sys
import zlib
from contextlib import suppress
from pathlib import Path

from roofwatch.agent import sandbox, trace
from roofwatch.agent.worker import DESCRIPTORS, NICE, PR_SET_PDEATHSIG

PIECE = 1 << 20
LEVEL = 1  # a trace shrinks to a tenth by this and to a twelfth by the slowest
GZIP = 31  # zlib's window bits for a gzip file
MEMORY = 256 << 20
TOO_LARGE = "too_large"


def copy(source: int, target: int, announced: int, most: int, room: int) -> tuple[str, int, str]:
    """Why not, or "", with the bytes written and their SHA-256; what is gzip already stays as it is.

    Raises:
        OSError: reading or writing failed.
    """
    try:
        checked = trace.checked(source, announced, most)
    except trace.TraceRefused as refusal:
        return refusal.reason, 0, ""
    digest, written = hashlib.sha256(), 0
    with trace.opened(source) as file:
        packer = None if file.peek(2)[:2] == b"\x1f\x8b" else zlib.compressobj(LEVEL, zlib.DEFLATED, GZIP)
        while True:
            piece = file.read(PIECE)
            packed = piece if packer is None else packer.compress(piece) if piece else packer.flush()
            written += len(packed)
            if written > room:
                return TOO_LARGE, 0, ""
            digest.update(packed)
            _write(target, packed)
            if not piece:
                break
    try:
        checked.unchanged()
    except trace.TraceRefused as refusal:
        return refusal.reason, 0, ""
    os.fsync(target)
    return "", written, digest.hexdigest()


def _write(target: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(target, view) :]


def confine(room: int, cpu_s: int) -> None:
    """As a parse worker, but it may write ``room`` bytes."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    os.nice(NICE)
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")
    limits = (
        (resource.RLIMIT_AS, MEMORY), (resource.RLIMIT_CORE, 0), (resource.RLIMIT_FSIZE, room + PIECE),
        (resource.RLIMIT_NOFILE, DESCRIPTORS), (resource.RLIMIT_CPU, cpu_s),
    )  # fmt: skip
    for kind, value in limits:
        resource.setrlimit(kind, (value, value))
    with suppress(OSError, RuntimeError):
        sandbox.confine()


def main(arguments: list[str]) -> None:
    """Entry of the process: descriptors of the trace and of the file, then its sizes and limits; answers on stdout."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    source, target, announced, most, room, cpu_s = map(int, arguments)
    confine(room, cpu_s)
    try:
        reason, size, digest = copy(source, target, announced, most, room)
    except OSError as error:
        reason, size, digest = f"disk: {error.strerror}", 0, ""
    except MemoryError:
        reason, size, digest = "memory", 0, ""
    sys.stdout.write(json.dumps({"reason": reason, "bytes": size, "sha256": digest}))


if __name__ == "__main__":
    main(sys.argv[1:])
