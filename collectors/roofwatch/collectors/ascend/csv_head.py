"""The first line of a CSV table → which column is what, whatever version wrote it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from roofwatch.collectors.ascend.columns import AMOUNTS, CYCLES, OCCUPIED, PIPES, RATES
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
_OF_A_TYPE = re.compile(r"_(?:fp16|int8|fp32|int32|misc)_ratio")
# Every metric of a core that the vendor's sets have, without blanks and underscores; of most nothing is asked.
_METRIC = re.compile(
    r"ai[cv](?:ore)?(?:(?:total)?time(?:\(us\))?|totalcycles"
    r"|(?:mac|vec|scalar|mte[123]|fixpipe)(?:exe)?(?:ratio|time(?:\(us\))?|instructions)"
    r"|icachemissrate|(?:mac|vec)(?:fp16|fp32|int8|int32|int16|misc)ratio|(?:cube|vector|vec)fops|cubeutilization\(%\)"
    r"|(?:l0[abc]|l1|l2|ub|mainmem)(?:read|write)bw(?:cube|scalar|vector)?(?:\(gb/s\))?|vec(?:bankgroup|bank|resc)cfltratio"
    r"|(?:write|r[01]read)cache(?:hit|missallocate)"
    r"|(?:(?:read|write)mainmemory|gmtol1|l1togm|l0ctol1|l0ctogm|gmtoub|ubtogm)datas(?:\(kb\))?)"
)
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
    pipes: Mapping[str, tuple[int, ...]]  # field of ``base.Pipes`` → columns of ratios that add up
    traffic: tuple[tuple[int, int | None], ...] = ()  # columns of traffic with memory, and of the cycles they are over
    strange: int = 0  # columns of metrics that nothing here knows

    @property
    def cycles(self) -> int | None:
        """The column of the cube cores' cycles, where nothing better tells how many of them were taken."""
        return None if "occupied_ns" in self.pipes else self.places.get("cube_cycles")


def head_of(line: bytes) -> Head | str:
    """The columns that a table's first line names, or why they are none that can be read.

    A name that stands twice counts where it stands first: versions that wrote two wrote the same in both.
    """
    if b"\r" in line.rstrip(b"\r\n"):
        return "its lines end in a carriage return alone: save it with Unix line ends"
    if len(line) > LONGEST_HEAD:
        return f"its first line has more than {LONGEST_HEAD >> 10} KiB"
    names = row_of(line)
    if len(names) == 1 and "Duration(us)" in names[0]:
        return "commas do not separate its columns: save it so that they do"
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
    return Head(len(names), places, _pipes(at), _traffic(at), sum(is_strange(name) for name in at))


def is_head(line: bytes) -> bool:
    """Whether a line names the columns of a kernel table."""
    return isinstance(head_of(line), Head)


def _why_not(at: dict[str, int], missing: Sequence[str]) -> str:
    for name, what in _OTHERS:
        if _plain(name) in at:
            return f"it has {what}: give kernel_details.csv, or the folder that it is in"
    names = ", ".join(" or ".join(repr(name) for name in _NAMES[what]) for what in missing)
    return f"it has no column {names}"


def _pipes(at: Mapping[str, int]) -> dict[str, tuple[int, ...]]:
    """Field → its columns. A ratio of the whole pipe goes before those of its types, which are parts of it."""
    whole: dict[str, tuple[int, ...]] = {}
    parts: dict[str, tuple[int, ...]] = {}
    for name, pipe in {**PIPES, OCCUPIED: "occupied_ns"}.items():
        if _plain(name) not in at:
            continue
        if is_of_a_type(name):
            parts[pipe] = (*parts.get(pipe, ()), at[_plain(name)])
        else:
            whole.setdefault(pipe, (at[_plain(name)],))
    return {**parts, **whole}


def _traffic(at: Mapping[str, int]) -> tuple[tuple[int, int | None], ...]:
    """Amounts where there are any, else rates with the cycles that they are over."""
    amounts = [at[_plain(f"{name}(KB)")] for name in sorted(AMOUNTS) if _plain(f"{name}(KB)") in at]
    if amounts:
        return tuple((column, None) for column in amounts)
    found = []
    for name, side in RATES.items():
        cycles = next((at[_plain(one)] for one in CYCLES[side] if _plain(one) in at), None)
        if _plain(f"{name}(GB/s)") in at and cycles is not None:
            found.append((at[_plain(f"{name}(GB/s)")], cycles))
    return tuple(found)


def is_of_a_type(name: str) -> bool:
    """Whether a metric is of the instructions of one type alone, a part of its pipe's."""
    return _OF_A_TYPE.search(name) is not None


def is_strange(name: str) -> bool:
    """Whether a column's name looks like a core's metric, and is none that any version is known to write."""
    plain = _plain(name)
    return plain.startswith(("aic", "aiv")) and not _METRIC.fullmatch(plain)


def _plain(name: str) -> str:
    """A column's name without what differs among versions: case, blanks and underscores."""
    return re.sub(r"[\s_]+", "", name).lower()
