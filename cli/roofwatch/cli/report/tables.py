"""Tables of a page: on a phone each row stands by itself, and they sort where that helps."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from roofwatch.cli.render import text
from roofwatch.cli.report.html import Child, Html, el, joined


@dataclass(frozen=True, slots=True)
class Column:
    """A column by its header; ``right``: figures."""

    header: str
    right: bool = False


@dataclass(frozen=True, slots=True)
class Cell:
    """What is shown, and what it is sorted by: a number, a text, None for unknown, which comes last."""

    shown: Child
    value: float | str | None = None


def table(
    caption: str,
    columns: Sequence[Column],
    rows: Sequence[Sequence[Cell]],
    *,
    head: int = 0,
    sortable: bool = False,
    groups: Collection[int] = (),
) -> Html:
    """A table with its caption; ``head`` is the column that names a row, ``groups`` are rows that sum up others."""
    headers = [_header(column, sortable) for column in columns]
    lines = [
        el("tr", *_cells(row, columns, head), class_="group" if at in groups else None) for at, row in enumerate(rows)
    ]
    inside = joined(el("caption", el("span", caption)), el("thead", el("tr", *headers)), el("tbody", *lines))
    shown = el("table", inside, class_="sortable" if sortable else None)
    return el("div", shown, class_="scroll", tabindex=0, role="region", aria_label=caption)


def _header(column: Column, sortable: bool) -> Html:
    name = el("button", column.header, type="button") if sortable else column.header
    return el("th", name, scope="col", class_="num" if column.right else None)


def _cells(row: Sequence[Cell], columns: Sequence[Column], head: int) -> Iterator[Html]:
    for at, (cell, column) in enumerate(zip(row, columns, strict=True)):
        yield _cell(cell, column, names=at == head)


def _cell(cell: Cell, column: Column, *, names: bool) -> Html:
    unknown = cell.value is None
    value = None if unknown else f"{cell.value:.12g}" if isinstance(cell.value, int | float) else cell.value
    class_ = "num" if column.right else None
    if names:
        return el("th", cell.shown, scope="row", class_=class_, data_v=value)
    return el("td", cell.shown, class_=class_, data_v=value, data_h=column.header)  # a phone shows it beside the cell


def meter(share: float | None, shown: str) -> Html:
    """A figure over a bar as long as its share."""
    if share is None:
        return el("span", shown)
    width = f"{max(0.0, min(1.0, share)) * 100:.1f}%"
    return joined(el("span", shown), el("span", el("span", style=f"width:{width}"), class_="meter", aria_hidden="true"))


def facts(pairs: Sequence[tuple[str, Child]]) -> Html:
    """Names with what they are, as a list."""
    return el("dl", *(joined(el("dt", name), el("dd", told or text.UNKNOWN)) for name, told in pairs), class_="facts")


def duration(ns: float | None) -> Cell:
    """A time to sort by."""
    return Cell(text.duration(ns), ns)


def percent(share: float | None) -> Cell:
    """A share to sort by."""
    return Cell(text.percent(share), share)


def count(value: int | None) -> Cell:
    """A count to sort by."""
    return Cell(text.count(value), value)
