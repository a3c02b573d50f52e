"""The first line of a CSV table → which column is what, whatever version wrote it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from roofwatch.collectors.ascend.columns import OCCUPIED, PIPES
from roofwatch.collectors.ascend.csv_cells import row_of

MAX_COLUMNS = 512  # real tables have up to fifty
LONGEST_HEAD = 1 << 16  # bytes

# What a column is for → its names over the versions, in the order in which they are believed. ``Block Dim`` became
# ``Block Num``; where both stand, the older name has come to mean something else (the threads of a block).
_NAMES = {
    "step": ("Step Id",),
    "device": ("Device_id", "Device Id"),
    "stream": ("Stream ID",),
    "task": ("Task ID",),
    "name": ("Name", "Op Name"),
    "type": ("Type", "OP Type"),
    "core": ("Accelerator Core", "Task Type"),
    "start": ("Start Time(us)", "Task Start Time(us)"),
    "duration": ("Duration(us)", "Task Duration(us)"),
    "blocks": ("Block Num", "Block Dim"),
    "hf32": ("HF32 Eligible",),
    "input_shapes": ("Input Shapes",),
    "input_dtypes": ("Input Data Types",),
    "input_formats": ("Input Formats",),
    "output_shapes": ("Output Shapes",),
    "output_dtypes": ("Output Data Types",),
    "output_formats": ("Output Formats",),
    "cube_time": ("aicore_time(us)",),
    "cube_cycles": ("aic_total_cycles", "total_cycles"),
    "vector_time": ("aiv_time(us)",),
    "vector_cycles": ("aiv_total_cycles",),
}
REQUIRED = ("name", "start", "duration")
# Other tables of the same folders, by columns that only they have, and what to give instead.
_OTHERS = (
    ("Total Time(us)", "statistics of op types without the times of kernels"),
    ("Host Self Duration(us)", "the operators of the host without the times of kernels"),
    ("Communication(Not Overlapped)", "the times of steps without kernels"),
    ("API Name", "statistics of API calls without kernels"),
    ("task_start(us)", "tasks without the sorts and shapes of kernels"),
)


@dataclass(frozen=True, slots=True)
class Head:
    """A table's columns: how many, and at which place what is."""

    count: int
    places: Mapping[str, int]  # of ``_NAMES``, those that the table has
    pipes: Mapping[str, int]  # field of ``base.Pipes`` → column


def head_of(line: bytes) -> Head | str:
    """The columns that a table's first line names, or why they are none that can be read.

    A name that stands twice counts where it stands first: versions that wrote two wrote the same in both.
    """
    if len(line) > LONGEST_HEAD:
        return f"its first line has more than {LONGEST_HEAD >> 10} KiB"
    names = row_of(line)
    if len(names) > MAX_COLUMNS:
        return f"it has {len(names)} columns"
    at: dict[str, int] = {}
    for place, name in enumerate(names):
        at.setdefault(_plain(name), place)
    places: dict[str, int] = {}
    for what, choices in _NAMES.items():
        found = [at[_plain(name)] for name in choices if _plain(name) in at]
        if found:
            places[what] = found[0]
    missing = [what for what in REQUIRED if what not in places]
    if missing:
        return _why_not(at, missing)
    pipes: dict[str, int] = {}
    for name, pipe in {**PIPES, OCCUPIED: "occupied_ns"}.items():
        if _plain(name) in at:
            pipes.setdefault(pipe, at[_plain(name)])
    return Head(len(names), places, pipes)


def is_head(line: bytes) -> bool:
    """Whether a line names the columns of a kernel table."""
    return isinstance(head_of(line), Head)


def _why_not(at: dict[str, int], missing: Sequence[str]) -> str:
    for name, what in _OTHERS:
        if _plain(name) in at:
            return f"it has {what}: give kernel_details.csv, or the folder that it is in"
    names = ", ".join(" or ".join(repr(name) for name in _NAMES[what]) for what in missing)
    return f"it has no column {names}"


def _plain(name: str) -> str:
    """A column's name without what differs among versions: case, blanks and underscores."""
    return re.sub(r"[\s_]+", "", name).lower()
