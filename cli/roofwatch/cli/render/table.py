"""Tables in a fixed number of columns: first the least important columns go, then the flexible ones are cut."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from roofwatch.cli.render.text import cut, cut_apart, width

DEFAULT_COLUMNS = 80


@dataclass(frozen=True, slots=True)
class Column:
    """How one column is set.

    ``floor`` is the least width of a flexible column (None: it is never cut). Columns with the highest ``drop`` go
    first when the room is short; 0 stays always. ``apart``: texts that only differ after the cut are cut inside.
    """

    header: str
    right: bool = False
    floor: int | None = None
    drop: int = 0
    apart: bool = False


def terminal_columns() -> int:
    """Columns to draw in: the terminal's where it is wider than 80, 80 otherwise and where there is no terminal."""
    if not sys.stdout.isatty():
        return DEFAULT_COLUMNS
    return max(DEFAULT_COLUMNS, shutil.get_terminal_size((DEFAULT_COLUMNS, 24)).columns)


def table(columns: Sequence[Column], rows: Sequence[Sequence[str]], room: int) -> list[str]:
    """The header and the rows as lines of at most ``room`` columns."""
    cells = [[column.header for column in columns], *rows]
    natural = [max(width(line[i]) for line in cells) for i in range(len(columns))]
    gap = 2 if sum(natural) + 2 * (len(columns) - 1) <= room else 1
    kept = _kept(columns, natural, room, gap)
    widths = _widths(columns, natural, kept, room, gap)
    fitted = {i: _fitted(columns[i], [line[i] for line in cells], widths[i]) for i in kept}
    return [(" " * gap).join(fitted[i][n] for i in kept).rstrip() for n in range(len(cells))]


def _kept(columns: Sequence[Column], natural: Sequence[int], room: int, gap: int) -> list[int]:
    """Positions of the columns that fit."""
    kept = list(range(len(columns)))

    def least(i: int) -> int:
        floor = columns[i].floor
        return natural[i] if floor is None else min(natural[i], floor)

    while sum(least(i) for i in kept) + gap * (len(kept) - 1) > room:
        expendable = max(kept, key=lambda i: columns[i].drop)
        if columns[expendable].drop == 0:
            break
        kept.remove(expendable)
    return kept


def _widths(
    columns: Sequence[Column], natural: Sequence[int], kept: Sequence[int], room: int, gap: int
) -> dict[int, int]:
    """Widths that use the room: the widest flexible column gives way first, down to its floor."""
    widths = {i: natural[i] for i in kept}
    excess = sum(widths.values()) + gap * (len(kept) - 1) - room
    while excess > 0:
        flexible = [i for i in kept if (floor := columns[i].floor) is not None and widths[i] > floor]
        if not flexible:
            break
        widths[max(flexible, key=lambda i: widths[i])] -= 1
        excess -= 1
    return widths


def _fitted(column: Column, texts: Sequence[str], columns: int) -> list[str]:
    """One column's texts, each exactly that wide."""
    short = cut_apart(texts, columns) if column.apart else [cut(text, columns) for text in texts]
    pads = [" " * (columns - width(text)) for text in short]
    return [pad + text if column.right else text + pad for text, pad in zip(short, pads, strict=True)]
