"""The windows that a replay varies: of a folder of traces, or drawn."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from roofwatch.cli.files import Origin, window_of
from roofwatch.cli.fleet import synthetic
from roofwatch.cli.render.text import plural
from roofwatch.model.errors import RoofwatchError, UsageError
from roofwatch.model.record import Window

MOST = 16  # traces read; more would be variants of the same
DRAWN = 4
MOST_BYTES = 128 << 20  # of one trace


def drawn(seed: int) -> list[Window]:
    """Windows of a few training jobs."""
    return synthetic.windows(DRAWN, seed)


def of_folder(folder: Path, say: Callable[[str], object]) -> list[Window]:
    """The windows of the traces in a folder and below, the first MOST that can be read.

    Raises:
        UsageError: there is no such folder, or no trace in it.
    """
    if not folder.is_dir():
        raise UsageError(f"{folder} is no folder: give a folder of traces, or --synthetic.")
    found: list[Window] = []
    left_out: list[str] = []
    for path in sorted(folder.rglob("*")):
        if len(found) == MOST:
            say(f"the first {MOST} traces of {folder} are used\n")
            break
        if not path.is_file() or path.stat().st_size > MOST_BYTES or ".json" not in path.suffixes:
            continue
        try:
            window, _ = window_of(path, Origin())
        except RoofwatchError as error:
            left_out.append(str(error))
            continue
        if window.kernels and len(window.kernels) <= 20_000:
            found.append(window)
    if left_out:
        say(f"{plural(len(left_out), 'file')} left out, the last: {left_out[-1]}\n")
    if not found:
        raise UsageError(f"no trace in {folder} can be read: give another folder, or --synthetic.")
    return found
