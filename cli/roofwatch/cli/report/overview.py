"""The first sections: the figures that matter, where the time went, and when."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from roofwatch.cli.render import diagnosis, gaps, text
from roofwatch.cli.render.bars import words
from roofwatch.cli.report import palette, specs
from roofwatch.cli.report.html import Html, el, joined
from roofwatch.cli.report.section import Row, Section, caption, figure, legend, paragraphs
from roofwatch.cli.report.tables import Cell, Column, count, duration, percent, table
from roofwatch.cli.report.zone import Zone
from roofwatch.model.timeline import BUSY_PARTS

SAID_LEAST = 0.0005  # of the span: less is no part of the time chart
WHERE = "Where the time went"
EXAMPLE = 160  # columns of what was seen in a stretch
WIDE = 100_000  # columns: a sentence that is not broken here, but by the browser
GROUPS = {"busy": "Busy, by kind of kernel", "exposed": "Busy, with no compute beside it", "idle": "Idle, by cause"}


def key_figures(answer: Row) -> Html:
    """What a reader should take away, as tiles."""
    coverage, verdict, cost = answer["coverage"], answer["verdict"], answer["cost"]
    summary = answer["summary"]
    idle = _share(summary, "idle")
    winnable = verdict["winnable_share"]
    unknown = verdict["unknown_roof_share"] or 0.0
    tiles = [
        ("busy", text.percent(None if idle is None else 1.0 - idle), f"idle {text.percent(idle)} of the devices' time"),
        (
            "winnable in kernels",
            text.percent(winnable),
            "of the time, if each reached its roof"
            + (f"; of {text.percent(unknown)} the roof is unknown" if unknown >= diagnosis.SMALL else ""),
        ),
        (
            "classified",
            text.percent_fine(coverage["classified_share"]),
            f"of compute time{_by_name(coverage)}" if coverage["classified_share"] is not None else "no compute time",
        ),
        ("MFU", text.mfu(coverage["mfu"], coverage["mfu_known_share"]), "model FLOPs, as a share of the peak"),
        ("profiling cost", text.cost(cost), _cost_of(cost)),
    ]
    return el(
        "ul",
        *(
            el("li", el("span", name, class_="name"), el("b", figure), el("span", below))
            for name, figure, below in tiles
        ),
        class_="key",
    )


def _share(summary: Row, part: str) -> float | None:
    span = summary["est_span_ns"]
    busy = sum(summary[f"{one}_share"] or 0.0 for one in BUSY_PARTS)
    return None if not span else 1.0 - busy if part == "idle" else busy


def _by_name(coverage: Row) -> str:
    return f", and {text.percent_fine(coverage['named_share'])} by name" if coverage["named_share"] else ""


def _cost_of(cost: Row | None) -> str:
    if not cost or text.cost(cost) == text.UNKNOWN:
        return "not known: a file, or jobs without optimizer steps"
    return f"of the jobs' time, known of {text.count(cost['windows'])} of {text.plural(cost['of_windows'], 'window')}"


def lead(answer: Row) -> Html:
    """The verdict in words, as ``diagnose`` says it."""
    if answer["verdict"]["first_cause"] is None:
        return el("p", "No device time was seen.", class_="lead")
    return el("p", " ".join(diagnosis.first(answer["verdict"], WIDE)), class_="lead")


def where(answer: Row, looks: Mapping[str, palette.Look]) -> Section:
    """The span as bars, and their parts as a table that is the legend, too."""
    parts = _shown(answer["where"], looks)
    if not parts:
        return Section("where", WHERE, paragraphs("No time was seen."))
    devices = _named(answer["by_device"])
    label = "Bars of the devices' time. " + "; ".join(
        f"{specs.said(part['part'])} {text.percent(part['share'])}" for part in parts
    )
    below = caption(
        "The whole span is 100 %; the numbers are those of the table. Plain: busy, by kind of kernel, or with no "
        "compute beside it. Hatched: idle, by cause."
        + (" The devices that wait most come first; their kernels are one part." if devices else "")
    )
    body = joined(figure("plot-where", label, below), _parts(parts, looks))
    return Section("where", WHERE, body, {"plot-where": specs.where(parts, devices, looks)})


def _shown(parts: Sequence[Row], looks: Mapping[str, palette.Look]) -> list[Row]:
    """The parts, those kinds that share a look as one."""
    others = [part for part in parts if part["group"] == "busy" and part["part"] not in looks]
    if len(others) < 2:
        return list(parts)
    sums = {key: sum(part[key] for part in others) for key in ("share", "est_ns")}
    busy = [part for part in parts if part["group"] == "busy" and part["part"] in looks]
    rest = [part for part in parts if part["group"] != "busy"]
    return [*busy, {**others[0], **sums, "part": palette.OTHER}, *rest]


def _named(rows: Sequence[Row]) -> list[tuple[str, Row]]:
    """Devices as bars, by node, model and index where these differ; none of one, whose bar would be the same again."""
    if len(rows) < 2:
        return []
    several = {key: len({row[key] for row in rows}) > 1 for key in ("node", "device", "index")}
    found: dict[str, Row] = {}
    for row in rows:
        index = None if row["index"] is None or not several["index"] else f"device {row['index']}"
        told = [row["node"] if several["node"] else None, row["device"] if several["device"] else None, index]
        name = text.clean(" · ".join(word for word in told if word)) or "device"
        again = sum(other == name or other.startswith(f"{name} #") for other in found)
        found[f"{name} #{again + 1}" if again else name] = row
    return list(found.items())


PARTS_COLUMNS = (
    Column("#", right=True), Column("part"), Column("share", right=True), Column("time", right=True),
    Column("times", right=True), Column("longest", right=True), Column("seen in the longest"),
)  # fmt: skip


def _parts(parts: Sequence[Row], looks: Mapping[str, palette.Look]) -> Html:
    rows: list[list[Cell]] = []
    groups = []
    before = None
    for number, part in enumerate(parts, 1):
        if part["group"] != before:
            before = part["group"]
            groups.append(len(rows))
            own = [one for one in parts if one["group"] == before]
            shares, times = (sum(one[key] for one in own) for key in ("share", "est_ns"))
            rows.append([Cell(""), Cell(GROUPS[before]), percent(shares), duration(times), *[Cell("")] * 3])
        rows.append(_part(number, part, looks))
    return table("The parts of the devices' time", PARTS_COLUMNS, rows, head=1, groups=groups)


def _part(number: int, part: Row, looks: Mapping[str, palette.Look]) -> list[Cell]:
    busy = part["group"] == "busy"
    fill = looks.get(part["part"], palette.REST).colour if busy else palette.fill_of(part["part"])
    example = " ".join(gaps.told(part["example"], EXAMPLE)) if part["example"] else ""
    return [
        Cell(str(number), number),
        Cell(joined(palette.chip(fill), " ", words(part["part"])), part["part"]),
        percent(part["share"]),
        duration(part["est_ns"]),
        Cell("") if part["count"] is None else count(part["count"]),
        Cell("") if part["longest_ns"] is None else duration(part["longest_ns"]),
        Cell(el("div", example, class_="example") if example else ""),
    ]


def moments(answer: Row, zone: Zone) -> Section | None:
    """Idle time by cause over the time of day; nothing of one moment."""
    told = answer["moments"]
    rows = told["rows"]
    if len(rows) < 2:
        return None
    waited = [part["part"] for part in answer["where"] if part["group"] != "busy"]
    parts = [part for part in waited if any((row[f"{part}_share"] or 0.0) >= SAID_LEAST for row in rows)]
    size, worst, timeless = _length(told["bucket_ns"]), max(rows, key=_idle), told["windows_without_time"]
    moment = f"{zone.moment(worst['start_unix_ns'], told['bucket_ns'])}, of {text.plural(worst['windows'], 'window')}"
    said = f"Most idle: {text.percent(_idle(worst))} in the {size} from {moment}."
    note = f" {text.plural(timeless, 'window')} of unknown time left out." if timeless else ""
    body = joined(
        figure(
            "plot-moments",
            f"Bars of {size}: idle and exposed time by cause. {said}",
            legend([(palette.chip(palette.fill_of(part)), specs.said(part)) for part in parts]),
            caption(f"A bar is {size}; a gap has no windows. {said}{note}"),
        ),
        el("details", el("summary", "The figures as a table"), _moments_table(rows, told["bucket_ns"], parts, zone)),
    )
    return Section("moments", "When the devices waited", body, {"plot-moments": specs.moments(told, parts, zone)})


def _length(ns: int) -> str:
    """A round length of time: "15 min", "7 d"."""
    return text.duration(ns).replace(".00", "").replace(".0", "")


def _idle(row: Row) -> float:
    return 1.0 - sum(row[f"{part}_share"] or 0.0 for part in BUSY_PARTS) if row["est_span_ns"] else 0.0


def _moments_table(rows: Sequence[Row], length_ns: int, parts: Sequence[str], zone: Zone) -> Html:
    columns = (
        Column("from"), Column("windows", right=True), Column("idle", right=True),
        *(Column(specs.said(part), right=True) for part in parts),
    )  # fmt: skip
    lines = [
        [
            Cell(zone.moment(row["start_unix_ns"], length_ns), row["start_unix_ns"]),
            count(row["windows"]),
            percent(_idle(row)),
            *(percent(row[f"{part}_share"]) for part in parts),
        ]
        for row in rows
    ]
    return table(f"Idle and exposed time, {zone.name}", columns, lines)
