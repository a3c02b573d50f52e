"""A whole ``*_ascend_pt`` or PROF folder → which files of it are one capture.

Files are told by what is in them; only helpers (``profiler_info_0.json`` and its like) by their names. Links are not
followed, and the walk is bounded: a folder may hold anything. ``analyse.done`` says nothing: it is written also when
every parser failed, so what counts is whether there are rows.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from roofwatch.collectors.ascend.sniff import HEAD_BYTES, Sort, sort_of
from roofwatch.model.errors import RoofwatchError

MAX_DEPTH = 6  # *_ascend_pt / PROF_… / device_0 / summary / …
MAX_ENTRIES = 50_000  # of all folders; raw data of a long capture are some thousand files
MAX_LOOKED_AT = 5_000  # files that are opened
# Raw data, and what the vendor's own parsers leave behind: no tables that are meant to be read.
_SKIPPED = frozenset({"FRAMEWORK", "logs", "log", "sqlite", "data", "mindstudio_profiler_log", "analyze"})
# Folders inside one capture.
_INSIDE = re.compile(r"ASCEND_PROFILER_OUTPUT|mindstudio_profiler_output|summary|timeline|host|device_\d{1,6}")
HELPERS = re.compile(
    r"profiler_info(?:_\d{1,9})?\.json|profiler_metadata\.json|communication\.json|info\.json(?:\.\d{1,6})?"
)
_SLICE = re.compile(r"_slice_(\d{1,9})_?")


@dataclass(slots=True)
class Capture:
    """The files of one capture, by sort; each list with the best first."""

    root: Path
    databases: list[Path] = field(default_factory=list)
    tables: list[Path] = field(default_factory=list)  # kernel_details.csv
    summaries: list[Path] = field(default_factory=list)  # op_summary, in order where it was sliced
    views: list[Path] = field(default_factory=list)
    helpers: list[Path] = field(default_factory=list)

    @property
    def sources(self) -> list[Path]:
        """All that may hold device records."""
        return [*self.databases, *self.tables, *self.summaries, *self.views]


def capture_in(folder: Path) -> Capture:
    """The one capture in a folder.

    Raises:
        RoofwatchError: there is none, there are several, or the folder cannot be read.
    """
    found: dict[Path, Capture] = {}
    for path, sort in _sources(folder):
        root = _root_of(path, folder)
        _put(found.setdefault(root, Capture(root)), path, sort)
    captures = [one for root, one in sorted(found.items()) if one.sources]
    captures = _joined(captures)
    if not captures:
        raise RoofwatchError(_nothing(folder))
    if len(captures) > 1:
        names = ", ".join(str(one.root.relative_to(folder)) for one in captures[:4])
        more = ", …" if len(captures) > 4 else ""
        raise RoofwatchError(f"{folder} holds {len(captures)} captures ({names}{more}): give one of them.")
    capture = captures[0]
    around = [one for root, one in found.items() if root in capture.root.parents or capture.root in root.parents]
    capture.helpers = sorted({path for one in [*around, capture] for path in one.helpers})
    return _in_order(capture)


def open_inside(path: Path) -> BinaryIO:
    """Opens a file of a folder: a regular one, and no link.

    Raises:
        OSError: it is none, or cannot be opened.
    """
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise OSError(f"{path} is no regular file")
    return os.fdopen(fd, "rb")


def _sources(folder: Path) -> Iterator[tuple[Path, Sort]]:
    """The files of a folder that are something, with what they are."""
    looked_at = 0
    for path in _files(folder):
        if HELPERS.fullmatch(path.name):
            yield path, Sort.HELPER
            continue
        looked_at += 1
        if looked_at > MAX_LOOKED_AT:
            return
        with suppress(OSError), open_inside(path) as file:
            sort = sort_of(file.read(HEAD_BYTES))
            if sort is not None:
                yield path, sort


def _files(folder: Path) -> Iterator[Path]:
    """Regular files, the outer ones first, by name."""
    level, entries = [folder], 0
    for _ in range(MAX_DEPTH):
        deeper: list[Path] = []
        for one in level:
            try:
                with os.scandir(one) as listed:
                    inside = sorted(listed, key=lambda entry: entry.name)
            except OSError as error:
                if one is folder:
                    raise RoofwatchError(f"{folder} cannot be read: {error.strerror or error}.") from error
                continue
            for entry in inside:
                entries += 1
                if entries > MAX_ENTRIES:
                    return
                if entry.is_file(follow_symlinks=False):
                    yield Path(entry.path)
                elif entry.is_dir(follow_symlinks=False) and entry.name not in _SKIPPED:
                    deeper.append(Path(entry.path))
        level = deeper


def _root_of(path: Path, folder: Path) -> Path:
    """The folder of the capture that a file belongs to, not above the one that was given."""
    root = path.parent
    while root != folder and _INSIDE.fullmatch(root.name):
        root = root.parent
    return root


def _joined(captures: list[Capture]) -> list[Capture]:
    """Captures inside another one (a PROF folder in an *_ascend_pt one) are parts of it."""
    kept: list[Capture] = []
    for capture in captures:  # by path: the outer ones first
        outer = next((one for one in kept if one.root in capture.root.parents), None)
        if outer is None:
            kept.append(capture)
            continue
        for name in ("databases", "tables", "summaries", "views", "helpers"):
            getattr(outer, name).extend(getattr(capture, name))
    return kept


def _put(capture: Capture, path: Path, sort: Sort) -> None:
    lists = {
        Sort.DATABASE: capture.databases, Sort.TABLE: capture.tables, Sort.SUMMARY: capture.summaries,
        Sort.VIEW: capture.views, Sort.HELPER: capture.helpers,
    }  # fmt: skip
    lists[sort].append(path)


def _in_order(capture: Capture) -> Capture:
    """The best first: the outer ones, which are the product of the whole analysis, of these the larger."""
    for paths in (capture.databases, capture.tables, capture.views):
        paths.sort(key=lambda path: (len(path.parts), -_size(path), path.name))
    capture.summaries = _slices(capture.summaries)
    return capture


def _slices(paths: list[Path]) -> list[Path]:
    """The files of one ``op_summary`` table: the latest export, its slices in order."""
    if not paths:
        return []
    exports: dict[tuple[Path, str], list[tuple[int, Path]]] = {}
    for path in paths:
        found = _SLICE.search(path.name)
        name = path.name if found is None else path.name.replace(found[0], "_")
        exports.setdefault((path.parent, name), []).append((int(found[1]) if found else 0, path))
    latest = max(exports, key=lambda key: (key[1], str(key[0])))
    return [path for _, path in sorted(exports[latest])]


def _size(path: Path) -> int:
    try:
        return path.lstat().st_size
    except OSError:
        return 0


def _nothing(folder: Path) -> str:
    return (
        f"{folder} holds neither a database nor a table of kernels nor a trace view: if it is raw profiling data, have "
        "them made where CANN is installed (torch_npu.profiler.profiler.analyse), and look at what that prints."
    )
