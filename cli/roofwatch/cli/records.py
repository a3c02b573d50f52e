"""Kernel records from a store, page by page, written as CSV, JSON lines or Parquet."""

from __future__ import annotations

import csv
import io
import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, BinaryIO

from roofwatch.cli.asking import ask
from roofwatch.model.errors import RoofwatchError, UsageError
from roofwatch.model.extras import install
from roofwatch.model.records import KEYS, TEXTS, values
from roofwatch.store.filter import Filter

Page = Mapping[str, Any]
STDOUT = Path("-")


@dataclass(slots=True)
class Done:
    """What was written, and of how many windows the kernels are kept no longer."""

    windows: int = 0
    records: int = 0
    size: int | None = None
    without_kernels: int = 0

    def count(self, pages: Iterator[Page]) -> Iterator[Page]:
        """The pages, counted as they pass."""
        for page in pages:
            self.windows += len(page["windows"])
            self.records += len(page["rows"])
            self.without_kernels += page["without_kernels"]
            yield page


def export(asked: Filter, form: str, out: Path, *, store: str | None, db: str | None) -> Done:
    """Write the records of a filter's windows; nothing is written where there are none.

    Raises:
        UsageError: the format cannot be written there.
        RoofwatchError: the store could not answer, or the file cannot be written.
    """
    write = _writer(form, out)
    done = Done()
    pages = done.count(_pages(asked, store, db))
    first = next(pages)
    if not first["rows"] and first["next"] is None:
        return done
    with _file(out) as file:
        write(_all(first, pages), file)
    if out != STDOUT and out.is_file():
        done.size = out.stat().st_size
    return done


def _all(first: Page, rest: Iterator[Page]) -> Iterator[Page]:
    yield first
    yield from rest


def _pages(asked: Filter, store: str | None, db: str | None) -> Iterator[Page]:
    """Until there are no more; the windows that were there when the first was asked."""
    options: dict[str, Any] = {}
    while True:
        page = ask("records", asked, 0, store=store, db=db, options=options)
        yield page
        if page["next"] is None:
            return
        options = {"after": page["next"], "upto": page["upto"]}


def _writer(form: str, out: Path) -> Callable[[Iterator[Page], BinaryIO], None]:
    if form == "csv":
        return _csv
    if form == "json":
        return _json
    if out == STDOUT:
        raise UsageError("Parquet is no text for a terminal or a pipe: name a file with -o.")
    try:
        from roofwatch.cli import records_parquet  # noqa: PLC0415  # 0.1 s, and not always installed
    except ImportError:
        raise RoofwatchError(f"Parquet needs pyarrow: {install('parquet')}, or export with --format csv.") from None
    return records_parquet.write


def _csv(pages: Iterator[Page], file: BinaryIO) -> None:
    text = io.StringIO()  # of a page; a wrapper around the file would close it where a reader goes away
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(KEYS)
    labels, counts = KEYS.index("labels"), KEYS.index("histogram_counts")
    for page in pages:
        for row in values(page):
            cells = list(row)
            for at in (labels, counts):
                cells[at] = json.dumps(cells[at], separators=(",", ":"))
            writer.writerow(cells)
        file.write(text.getvalue().encode())
        text.seek(0)
        text.truncate()


def _json(pages: Iterator[Page], file: BinaryIO) -> None:
    """One object a line."""
    encode = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode
    for page in pages:
        read = cache(json.loads)  # the same few texts over and over
        for row in values(page):
            told = dict(zip(KEYS, row, strict=True))
            told |= {name: read(told[name]) for name in TEXTS if told[name] is not None}
            file.write(f"{encode(told)}\n".encode())


@contextmanager
def _file(out: Path) -> Iterator[BinaryIO]:
    """Where to write: beside, and then in place of what may be there, so that no reader meets half a file."""
    if out == STDOUT:
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    try:
        if out.exists() and not out.is_file():  # /dev/null, a pipe
            with out.open("wb") as file:
                yield file
            return
        descriptor, name = tempfile.mkstemp(dir=out.parent, prefix=f".{out.name}-")
        try:
            with os.fdopen(descriptor, "wb") as file:
                yield file
            Path(name).chmod(0o644)
            Path(name).replace(out)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise RoofwatchError(f"{out} cannot be written: {error.strerror or error}.") from error
