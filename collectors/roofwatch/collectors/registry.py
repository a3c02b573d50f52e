"""Finds the reader for a file by what is in it, never by its name."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, cast

from roofwatch.collectors import kineto
from roofwatch.collectors.ascend.sniff import HEAD_BYTES, SQLITE, Sort, is_table, plain, sort_of
from roofwatch.collectors.base import Found, Limits, RawProfile
from roofwatch.collectors.graphs import NOTHING, Captured, Known
from roofwatch.model.errors import RoofwatchError

if TYPE_CHECKING:
    from roofwatch.collectors.kineto.lending import Wanted
    from roofwatch.collectors.kineto.source import Progress

Readable = BinaryIO | int | str | os.PathLike[str]  # an open file, a descriptor, or a path


def read(
    file: Readable,
    limits: Limits | None = None,
    progress: Progress | None = None,
    *,
    bounds: tuple[int, int] | None = None,
    known: Known = NOTHING,
    wanted: Wanted | None = None,
) -> RawProfile:
    """Reads one capture, of whatever source it is.

    ``bounds`` are begin and end of the window in Unix nanoseconds, as known to who took it: they are the device's
    span, though nothing was recorded at its edges or anywhere in it. Without them the span is what was recorded.

    ``known`` is what was recorded while the graphs were captured that it replays, ``wanted`` which shapes a window of
    whole steps lends to others, or borrows (of Kineto's traces alone).

    A descriptor or an open file is read from its beginning where it can be rewound, and stays open.

    Raises:
        RoofwatchError: it cannot be opened, is of no known kind, or holds nothing to account for.
    """
    limits = limits or Limits()
    if not isinstance(file, int | str | os.PathLike):
        return _read(file, limits, progress, _name(file), bounds, known, wanted)
    name = "the trace" if isinstance(file, int) else os.fspath(file)
    try:
        with open(file, "rb", closefd=not isinstance(file, int)) as opened:
            return _read(opened, limits, progress, name, bounds, known, wanted)
    except OSError as error:
        raise RoofwatchError(f"{name} cannot be opened: {error.strerror or error}.") from error


def read_path(
    path: str | os.PathLike[str],
    limits: Limits | None = None,
    progress: Progress | None = None,
    *,
    known: Known = NOTHING,
) -> Found:
    """Reads the capture at a path: a file as ``read`` does, or a folder of an Ascend profiler.

    Raises:
        RoofwatchError: as ``read``; in a folder there is no capture, or there are several.
    """
    if Path(path).is_dir():
        from roofwatch.collectors.ascend import reader  # noqa: PLC0415 - 60 ms that other traces need not pay

        try:
            return reader.read_folder(Path(path), limits or Limits(), progress)
        except RoofwatchError as error:
            raise _of_traces(Path(path)) or error from error
    return Found(read(path, limits, progress, known=known), (Path(path),))


def _of_traces(folder: Path) -> RoofwatchError | None:
    """What to do with a folder into which torch.profiler wrote its traces; None where it holds none."""
    found = sorted(path.name for path in folder.iterdir() if ".pt.trace.json" in path.name)
    if not found:
        return None
    return RoofwatchError(f"{folder} is a folder of torch.profiler's traces: give one of them, such as {found[0]}.")


def _read(
    file: BinaryIO,
    limits: Limits,
    progress: Progress | None,
    name: str,
    bounds: tuple[int, int] | None,
    known: Known,
    wanted: Wanted | None = None,
) -> RawProfile:
    """The source is told by how the file begins."""
    _rewind(file)
    head, whole = _begun(file)
    sort = sort_of(head)
    if plain(head).startswith(SQLITE) and sort is not Sort.DATABASE:
        raise RoofwatchError(f"{name} is a compressed database: decompress it first.")
    if sort is None and not is_table(head):
        try:
            return kineto.read(whole, limits, progress, name, bounds, known, wanted)
        except kineto.TraceViewError:  # its beginning did not show it
            if whole is not file:
                raise
            _rewind(file)
    from roofwatch.collectors.ascend import db, reader  # noqa: PLC0415 - 60 ms that other traces need not pay

    if sort is Sort.DATABASE:
        if whole is not file:
            raise RoofwatchError(f"{name} is a database, which cannot be read from a pipe: give the file.")
        return db.read(file, limits, progress, name, bounds, path=_path(file))
    if sort in (Sort.TABLE, Sort.SUMMARY) or is_table(head):
        return reader.read_table(whole, limits, progress, name, bounds)
    return reader.read_trace_view(whole, limits, progress, name, bounds)


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


def _begun(file: BinaryIO) -> tuple[bytes, BinaryIO]:
    """The beginning of a file, and the file from its beginning: of a pipe, the two joined again."""
    head = b""
    try:
        while len(head) < HEAD_BYTES and (part := file.read(HEAD_BYTES - len(head))):
            head += part
        if file.seekable():
            file.seek(0)
            return head, file
    except OSError:
        pass
    return head, cast("BinaryIO", _Joined(head, file))


class _Joined:
    """What was read of a pipe, and the rest of it."""

    def __init__(self, head: bytes, rest: BinaryIO) -> None:
        self._head = head
        self._rest = rest

    def read(self, size: int) -> bytes:
        """At most ``size`` bytes, none at the end."""
        part, self._head = self._head[:size], self._head[size:]
        return part or self._rest.read(size)


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
