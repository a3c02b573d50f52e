"""One trace file as one window: what ``analyze`` and ``import`` share."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from roofwatch.collectors import pipeline, registry
from roofwatch.collectors.base import WindowContext
from roofwatch.model.devices import calibration_file
from roofwatch.model.errors import RoofwatchError
from roofwatch.model.record import Node, Process, Trigger, Window

BLOCK = 1 << 20
PROGRESS_FROM_BYTES = 32 << 20  # about a second of reading; less needs no word


@dataclass(frozen=True, slots=True)
class Origin:
    """What the user says about a file beside what is in it."""

    node: str = "imported"
    model: str | None = None
    labels: Mapping[str, str] | None = None


def window_of(path: Path, origin: Origin) -> tuple[Window, str | None]:
    """The window in a file, and one sentence about what of it could not be read.

    The window's uid is the hash of the file's bytes, so that a file that is imported twice counts once.

    Raises:
        RoofwatchError: nothing in it can be read; says what is wrong and where.
    """
    try:
        with path.open("rb") as file:
            uid = hashlib.file_digest(file, "sha256").hexdigest()[:32]
            file.seek(0)
            profile = registry.read(file, progress=_progress(path))
    except OSError as error:
        raise RoofwatchError(f"{path} cannot be read: {error.strerror or error}.") from error
    process = Process(
        Node(origin.node, boot_id=f"file:{uid}"),  # nobody knows which boot: two files never share a process
        pid=profile.pid or 0,
        start_unix_ns=None,
        rank=profile.rank,
        world_size=profile.world_size,
        model=origin.model,
        labels={"file": path.name, **(origin.labels or {})},
    )
    context = WindowContext(uid, process, Trigger.IMPORTED, peaks_files=(str(calibration_file()),))
    return pipeline.window_of(profile, context), profile.problem


def _progress(path: Path) -> Callable[[int, int | None], None] | None:
    """A line on stderr that says how far reading is, where a person watches and the file is large."""
    if not sys.stderr.isatty() or path.stat().st_size < PROGRESS_FROM_BYTES:
        return None
    shown = -1

    def tell(read: int, size: int | None) -> None:
        nonlocal shown
        percent = read * 100 // size if size else 0
        if percent != shown:
            shown = percent
            sys.stderr.write(f"\rreading {path.name}: {percent} %" if percent < 100 else "\r\x1b[K")
            sys.stderr.flush()

    return tell
