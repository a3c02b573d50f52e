"""From an open file to a raw profile."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, BinaryIO

from roofwatch.collectors.graphs import NOTHING, Captured, Known
from roofwatch.collectors.kineto.columns import Columns
from roofwatch.collectors.kineto.document import Document
from roofwatch.collectors.kineto.graphs_captured import captured_in
from roofwatch.collectors.kineto.lending import Wanted
from roofwatch.collectors.kineto.link import host_side
from roofwatch.collectors.kineto.profile import profile_of
from roofwatch.collectors.kineto.source import Progress, Source
from roofwatch.model.errors import RoofwatchError

if TYPE_CHECKING:
    from roofwatch.collectors.base import Limits, RawProfile


def read(
    file: BinaryIO,
    limits: Limits,
    progress: Progress | None = None,
    name: str = "the trace",
    bounds: tuple[int, int] | None = None,
    known: Known = NOTHING,
    wanted: Wanted | None = None,
) -> RawProfile:
    """Reads a Kineto trace, plain or gzipped.

    Args:
        file: open for reading in binary, at its beginning.
        limits: how much is taken before the rest is counted as dropped.
        progress: called with the bytes of the file read so far and its size where known.
        name: what messages call the file.
        bounds: begin and end of the window in Unix nanoseconds, from who took it; a file does not tell them.
        known: of graphs that the trace replays.
        wanted: shapes to lend or to borrow, of a window of whole steps.

    Raises:
        RoofwatchError: there is nothing in it that could be accounted for; the message says what is wrong and where.
    """
    with no_garbage_collection():
        columns, document = _collect(Source(file, name, limits, progress), limits)
        return profile_of(columns, document, limits, name, bounds, known, wanted)


def read_captures(
    file: BinaryIO, limits: Limits, progress: Progress | None = None, name: str = "the trace"
) -> list[Captured]:
    """The graph captures in a Kineto trace.

    Raises:
        RoofwatchError: it cannot be read, or holds none.
    """
    with no_garbage_collection():
        columns, _ = _collect(Source(file, name, limits, progress), limits)
        found = captured_in(columns, host_side(columns))
    if not found:
        raise RoofwatchError(
            f"{name} holds no graph capture (no launch between a StreamBeginCapture and its end): give a profile that "
            "was running while the graphs were captured."
        )
    return found


@contextmanager
def no_garbage_collection() -> Iterator[None]:
    """Events are freed by their counts; a collector that walks millions of live objects doubles the time."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _collect(source: Source, limits: Limits) -> tuple[Columns, Document]:
    columns = Columns(limits.max_name)
    document = Document(source)
    for batch in document.batches():
        room = limits.max_events - columns.events
        if len(batch) > room:
            document.dropped["over_event_limit"] += len(batch) - room
            del batch[room:]
        columns.add(batch)
    columns.close()
    return columns, document
