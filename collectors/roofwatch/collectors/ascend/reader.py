"""Ascend's tables, views and folders: from open files or a path to a raw profile."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from roofwatch.collectors.ascend import db
from roofwatch.collectors.ascend.csv_table import Reader, Table
from roofwatch.collectors.ascend.facts import facts_of
from roofwatch.collectors.ascend.folder import Capture, capture_in, open_inside
from roofwatch.collectors.ascend.text_profile import Facts, messages_of, profile_of
from roofwatch.collectors.ascend.trace_view import View, read_view
from roofwatch.collectors.ascend.values import COMMUNICATION
from roofwatch.collectors.base import Found
from roofwatch.collectors.kineto.reader import no_garbage_collection
from roofwatch.collectors.kineto.source import Source
from roofwatch.model.errors import RoofwatchError

if TYPE_CHECKING:
    from roofwatch.collectors.base import Limits, RawProfile
    from roofwatch.collectors.kineto.source import Progress

Bounds = tuple[int, int] | None
_FACTS = Facts()


def read_table(
    file: BinaryIO, limits: Limits, progress: Progress | None, name: str, bounds: Bounds = None
) -> RawProfile:
    """Reads ``kernel_details.csv`` or ``op_summary_*.csv``.

    Raises:
        RoofwatchError: it is no such table, or holds no record.
    """
    with no_garbage_collection():
        reader = Reader(limits)
        reader.read(Source(file, name, limits, progress))
        return profile_of(name, limits, reader.table(), None, _FACTS, bounds)


def read_trace_view(
    file: BinaryIO, limits: Limits, progress: Progress | None, name: str, bounds: Bounds = None
) -> RawProfile:
    """Reads ``trace_view.json`` alone: kernels without shapes and cores, their ops, and where the device waited.

    Raises:
        RoofwatchError: it is no list of events, or holds no record.
    """
    with no_garbage_collection():
        view = read_view(Source(file, name, limits, progress), limits)
        return profile_of(name, limits, None, view, _FACTS, bounds)


def read_folder(folder: Path, limits: Limits, progress: Progress | None = None) -> Found:
    """Reads a capture from the best of its sources that has records: database, kernel table, summary, trace view.

    A table is read with the trace view beside it, which tells the host's side. A database that does not know that side
    gives way to the two.

    Raises:
        RoofwatchError: there is no capture, there are several, or nothing in it can be read.
    """
    capture = capture_in(folder)
    facts = facts_of(capture.root, capture.helpers)
    best: Found | None = None
    failures: list[str] = []
    for attempt, detailed in _attempts(capture, facts, limits, progress):
        if best is not None and _worth(best)[0] and (not detailed or _worth(best)[1] or not capture.views):
            break
        try:
            found = attempt()
        except (RoofwatchError, OSError) as error:
            failures.append(str(error).rstrip("."))
            continue
        if best is None or _worth(found) > _worth(best):
            best = found
    if best is None:
        raise RoofwatchError(f"{folder} holds nothing that can be read: {'; '.join(failures[:3])}.")
    return replace(best, profile=_with(best.profile, facts, failures))


def _worth(found: Found) -> tuple[bool, bool]:
    """Whether a source has kernels (``analysis.db`` has collectives alone), and whether it knows the host's side."""
    kernels = any(group.core != COMMUNICATION for group in found.profile.groups)
    return kernels, found.profile.has_host_events


def _attempts(
    capture: Capture, facts: Facts, limits: Limits, progress: Progress | None
) -> list[tuple[Callable[[], Found], bool]]:
    """Ways to read a capture, the best first, and whether they tell shapes and cores of kernels."""
    views = capture.views[:1]
    tables = [[path] for path in capture.tables] + ([capture.summaries] if capture.summaries else [])
    return [
        *((partial(_of_database, path, limits, progress), True) for path in capture.databases),
        *((partial(_of_text, paths, views, facts, limits, progress), True) for paths in tables),
        *((partial(_of_text, [], [path], facts, limits, progress), False) for path in capture.views),
    ]


def _of_database(path: Path, limits: Limits, progress: Progress | None) -> Found:
    with open_inside(path) as file:
        return Found(db.read(file, limits, progress, str(path), path=str(path)), (path,))


def _of_text(
    tables: Sequence[Path], views: Sequence[Path], facts: Facts, limits: Limits, progress: Progress | None
) -> Found:
    files = (*tables, *views)
    with no_garbage_collection():
        view, failure = _view_of(views, limits, needed=not tables)
        facts = replace(facts, messages=facts.messages if view is None else messages_of(view, facts.messages))
        table = _table_of(tables, facts, limits, progress) if tables else None
        if table is not None and failure is not None:
            table.problems.append(failure)
        profile = profile_of(str(files[0]), limits, table, view, facts)
    return Found(profile, tuple(tables) or tuple(views))


def _view_of(views: Sequence[Path], limits: Limits, *, needed: bool) -> tuple[View | None, str | None]:
    """The trace view, and why there is none where it is not needed but there."""
    try:
        for path in views:
            with open_inside(path) as file:
                return read_view(Source(file, str(path), limits), limits), None
    except (RoofwatchError, OSError) as error:
        if needed:
            raise
        return None, str(error).rstrip(".")
    return None, None


def _table_of(paths: Sequence[Path], facts: Facts, limits: Limits, progress: Progress | None) -> Table:
    reader = Reader(limits, facts.messages)
    for path in paths:
        with open_inside(path) as file:
            reader.read(Source(file, str(path), limits, progress))
    return reader.table()


def _with(profile: RawProfile, facts: Facts, failures: Sequence[str]) -> RawProfile:
    """What a source does not tell, from the helpers beside it; and what could not be read before it."""
    devices = [
        replace(device, units=device.units or facts.cores, clock_hz=device.clock_hz or facts.clock_hz)
        for device in profile.devices
    ]
    collectives = [
        replace(one, group=facts.groups[one.group][0], group_size=one.group_size or facts.groups[one.group][1])
        if one.group in facts.groups
        else one
        for one in profile.collectives
    ]
    problems = [*failures, *([profile.problem.rstrip(".")] if profile.problem else [])]
    return replace(
        profile,
        devices=devices,
        collectives=collectives,
        rank=facts.rank if profile.rank is None else profile.rank,
        world_size=facts.world_size if profile.world_size is None else profile.world_size,
        pid=facts.pid if profile.pid is None else profile.pid,
        problem=f"{'; '.join(problems)}." if problems else None,
    )


__all__ = ["read_folder", "read_table", "read_trace_view"]
