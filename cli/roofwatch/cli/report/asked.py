"""The sections that are there only where there is something to tell, or somebody asked: padding and two sides."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from roofwatch.cli.render import comparison, comparison_warnings, padding, regression_verdict, regressions, text
from roofwatch.cli.render.table import Column as Printed
from roofwatch.cli.report import palette, specs
from roofwatch.cli.report.html import Html, el, joined
from roofwatch.cli.report.section import Row, Section, caption, figure, paragraphs
from roofwatch.cli.report.tables import Cell, Column, table

WIDE = 100_000  # columns: sentences that the browser breaks
SIDES_PLOT = "plot-sides"
LEADING = 2  # sentences of a comparison at the top of the page: both times, and what the hardware explains


@dataclass(frozen=True, slots=True)
class Asked:
    """Answers of other queries, None where they were not asked; with the words that chose each side."""

    padding: Row | None = None
    comparison: Row | None = None
    regressions: Row | None = None
    shared: Sequence[str] = ()
    words: Mapping[str, Sequence[str]] = field(default_factory=dict)  # left, right, before, after

    def sections(self) -> list[Section]:
        """What there is to tell."""
        found = []
        if self.padding is not None and self.padding["utilisation"]["linear"] is not None:
            found.append(_padding(self.padding))
        if self.comparison is not None:
            found.append(_comparison(self.comparison, self.words))
        if self.regressions is not None:
            found.append(_regressions(self.regressions, self.shared, self.words))
        return found


def _padding(answer: Row) -> Section:
    """How much of the batches is padding, and what would save it."""
    columns, cells = padding.schemes(answer)
    body = joined(
        paragraphs(*padding.said(answer)),
        _printed("Ways to batch, and what they would save of the device time", columns, cells),
        _listed(padding.cautions(answer)),
    )
    return Section("padding", "Padding", body, lead=padding.recommended(answer))


def _comparison(answer: Row, words: Mapping[str, Sequence[str]]) -> Section:
    """The same work on two sides, and what explains the difference."""
    summary = answer["summary"]
    further = summary["further"]
    times = f"left {text.duration(further['left_ns'])}, right {text.duration(further['right_ns'])}"
    body = joined(
        _sides([("left", words["left"], summary["left"]), ("right", words["right"], summary["right"])]),
        paragraphs(*comparison.said(answer)),
        figure(
            SIDES_PLOT,
            f"Bars of {comparison.unit(summary)} on both sides, by part; the table below has the figures.",
            caption(f"{comparison.unit(summary).capitalize()} on both sides. Plain: busy; hatched: idle, by cause."),
        ),
        _parts(summary),
        _printed(
            "Pieces of work, matched; ratio = right ÷ left, exp.: by the hardware alone, gap = ratio ÷ exp.",
            comparison.COLUMNS,
            comparison.row_cells(answer["rows"]),
            head=1,
        ),
        el("p", f"{text.plural(further['rows'], 'further row')}: {times}.") if further["rows"] else None,
        _listed([comparison_warnings.warned(warning) for warning in answer["warnings"]]),
    )
    plots = {SIDES_PLOT: specs.sides(_bars(summary))}
    lead = " ".join(comparison.said(answer)[:LEADING])
    return Section("comparison", "The two sides compared", body, plots, lead=lead, first=True)


def _sides(sides: Sequence[tuple[str, Sequence[str], Row]]) -> Html:
    rows = []
    for name, chosen, side in sides:
        models = ", ".join(side["models"])
        windows = text.count(side["windows"])
        cells = (name, " ".join(chosen), models or text.UNKNOWN, side["device"] or text.UNKNOWN, windows)
        rows.append([*(Cell(text.clean(cell)) for cell in cells), Cell(text.count(side["steps"]))])
    columns = (
        Column("side"), Column("chosen by"), Column("model"), Column("device"), Column("windows", right=True),
        Column("steps", right=True),
    )  # fmt: skip
    return table("What is compared", columns, rows)


# The parts of a time that are drawn, and as what.
FILLS: Mapping[str, str] = {
    "kernels": "var(--bar)",
    "unknown_roof": palette.GREY,
    "unmatched": palette.BLUE,
    "layout": palette.YELLOW,
    "communication": palette.fill_of("exposed_communication"),
    "copies": palette.fill_of("exposed_copy"),
}


def _bars(summary: Row) -> list[specs.Span]:
    """Both times by part; what runs side by side is counted twice in the parts, and is no part itself."""
    found = []
    for part in summary["parts"]:
        name = part["part"]
        fill = FILLS.get(name) or palette.fill_of(name.removeprefix(comparison.IDLE))
        if name == "overlap":
            continue
        told = comparison.PARTS.get(name) or f"idle: {name.removeprefix(comparison.IDLE).replace('_', ' ')}"
        found += [specs.Span(side, told, fill, part[f"{side}_ns"]) for side in ("left", "right")]
    return found


def _parts(summary: Row) -> Html:
    fills = {span.part: span.fill for span in _bars(summary)}
    rows = []
    for name, *figures in comparison.part_rows(summary):
        mark = joined(palette.chip(fills[name]), " ") if name in fills else None
        inner = el("span", name.strip(), class_="inner") if name.startswith(" ") else name
        rows.append([Cell(joined(mark, inner)), *(Cell(one) for one in figures)])
    columns = [Column(column.header, column.right) for column in comparison.PART_COLUMNS]
    return table(f"What {comparison.unit(summary)} is made of", columns, rows, groups=[len(rows) - 1])


def _regressions(answer: Row, shared: Sequence[str], words: Mapping[str, Sequence[str]]) -> Section:
    """What became slower."""
    head = regressions.Head(shared, words["before"], words["after"])
    told = regressions.rows_told(answer)
    body = joined(
        paragraphs(*regressions.sides(answer, head, WIDE)),
        el("p", regression_verdict.found(answer), class_="lead"),
        paragraphs(*(regressions.step_line(step) for step in answer["steps"])),
        paragraphs(*(line for device in answer["devices"] for line in regressions.device_line(device, WIDE))),
        _changed(told) if told else None,
        _listed(regressions.notes(answer, told)),
    )
    return Section("regressions", "What became slower", body, lead=regressions.found(answer), first=True)


def _changed(rows: Sequence[Row]) -> Html:
    """Under a kernel's name what tells it from another of that name: its op where that is called otherwise, shapes."""
    headers = [column.header for column in regressions.COLUMNS]
    at, op = headers.index("kernel"), headers.index("op")
    lines = []
    for row in rows:
        cells: list[str] = regressions.cells(row)
        under = [row["op"] if row["op"] != row["kernel"] else None, text.shapes(row["shapes"]).replace("·", " · ")]
        soft = ", ".join(text.clean(word) for word in under if word and word != text.UNKNOWN)
        name = text.cut_middle(cells[at], 200)
        cells[at] = el("div", name, el("div", soft, class_="soft") if soft else None, class_="name")
        lines.append([cell for place, cell in enumerate(cells) if place != op])
    columns = [column for column in regressions.COLUMNS if column.header != "op"]
    return _printed("Kernels that changed", columns, lines, head=columns.index(regressions.COLUMNS[at]))


def _printed(title: str, columns: Sequence[Printed], cells: Sequence[Sequence[str]], head: int = 0) -> Html:
    """A table that a terminal would show, too; names that it would cut are whole here."""
    shown = [Column(column.header, column.right) for column in columns]
    lines = [[Cell(cell if column.right else _whole(cell)) for cell, column in zip(row, columns, strict=True)]
             for row in cells]  # fmt: skip
    return table(title, shown, lines, head=head)


def _whole(cell: str) -> Html | str:
    if isinstance(cell, Html):
        return cell
    return el("div", text.cut_middle(cell, 200), class_="name") if len(cell) > 24 else cell


def _listed(sentences: Sequence[str]) -> Html | None:
    return el("ul", *(el("li", sentence) for sentence in sentences), class_="cautions") if sentences else None
