"""Finds the reader for a file by what is in it, never by its name."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from roofwatch.collectors import kineto
from roofwatch.collectors.ascend import db
from roofwatch.collectors.ascend.db_file import is_database
from roofwatch.collectors.base import Limits, RawProfile
from roofwatch.collectors.graphs import NOTHING, Captured, Known
from roofwatch.model.errors import RoofwatchError

if TYPE_CHECKING:
    from roofwatch.collectors.kineto.source import Progress

Readable = BinaryIO | int | str | os.PathLike[str]  # an open file, a descriptor, or a path


def read(
    file: Readable,
    limits: Limits | None = None,
    progress: Progress | None = None,
    *,
    bounds: tuple[int, int] | None = None,
    known: Known = NOTHING,
) -> RawProfile:
    """Reads one capture, of whatever source it is.

    ``bounds`` are begin and end of the window in Unix nanoseconds, as known to who took it: they are the device's
    span, though nothing was recorded at its edges or anywhere in it. Without them the span is what was recorded.

    ``known`` is what was recorded while the graphs were captured that it replays.

    A descriptor or an open file is read from its beginning where it can be rewound, and stays open.

    Raises:
        RoofwatchError: it cannot be opened, is of no known kind, or holds nothing to account for.
    """
    limits = limits or Limits()
    if not isinstance(file, int | str | os.PathLike):
        return _read(file, limits, progress, _name(file), bounds, known)
    name = "the trace" if isinstance(file, int) else os.fspath(file)
    try:
        with open(file, "rb", closefd=not isinstance(file, int)) as opened:
            return _read(opened, limits, progress, name, bounds, known)
    except OSError as error:
        raise RoofwatchError(f"{name} cannot be opened: {error.strerror or error}.") from error


def _read(
    file: BinaryIO,
    limits: Limits,
    progress: Progress | None,
    name: str,
    bounds: tuple[int, int] | None,
    known: Known,
) -> RawProfile:
    _rewind(file)
    if is_database(file):
        return db.read(file, limits, progress, name, bounds, path=_path(file))
    return kineto.read(file, limits, progress, name, bounds, known)


def read_captures(path: str | os.PathLike[str], progress: Progress | None = None) -> list[Captured]:
    """The graph captures in a profile, of whatever source it is.

    Raises:
        RoofwatchError: it cannot be read, or no graph was captured in it.
    """
    name = os.fspath(path)
    try:
        with Path(path).open("rb") as opened:
            return kineto.read_captures(opened, Limits(), progress, name)
    except OSError as error:
        raise RoofwatchError(f"{name} cannot be opened: {error.strerror or error}.") from error


def _rewind(file: BinaryIO) -> None:
    """A descriptor that was passed over a socket shares its position with the process that wrote the file."""
    try:
        if file.seekable():
            file.seek(0)
    except OSError:
        pass  # a pipe that claims to be seekable is read from where it stands


def _path(file: BinaryIO) -> str | None:
    """Where an open file lies, if that is how it was opened: whoever hands over a descriptor names no path."""
    name = getattr(file, "name", None)
    if not isinstance(name, str):
        return None
    try:
        return name if os.path.samestat(Path(name).stat(), os.fstat(file.fileno())) else None
    except OSError:
        return None


def _name(file: BinaryIO) -> str:
    name = getattr(file, "name", None)
    return name if isinstance(name, str) else "the trace"
