"""Plots as Vega-Lite specifications: pure functions of an answer. Texts in them are for people and ready to show."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from roofwatch.cli.render import text
from roofwatch.cli.render.bars import words
from roofwatch.cli.report import palette
from roofwatch.cli.report.zone import Zone
from roofwatch.model.timeline import BUSY_PARTS, PARTS

Spec = dict[str, Any]
Row = Mapping[str, Any]

SCHEMA = "https://vega.github.io/schema/vega-lite/v6.json"  # a name, never fetched
NUMBERED = 0.035  # of a bar: a narrower part has no room for its number
BAR = 54  # pixels of a bar with its name above and the numbers below it
FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'DejaVu Sans', sans-serif"
COMPUTE = "compute"
MS = 1_000_000  # ns
# Of time axes: 24 hours a day, days before months.
HOURS: Spec = {
    "year": "%Y", "quarter": "%b %Y", "month": "%b %Y", "week": "%d %b", "date": "%d %b", "day": "%d %b",
    "hours": "%H:%M", "minutes": "%H:%M", "seconds": "%H:%M:%S", "milliseconds": "%S.%L",
}  # fmt: skip
OUTLINED: Spec = {"stroke": "var(--outline)", "strokeWidth": 0.6, "aria": False}

CONFIG: Spec = {
    "background": None,
    "font": FONT,
    "view": {"stroke": "var(--rule)"},
    "axis": {
        "labelColor": "var(--ink)", "titleColor": "var(--soft)", "titleFontWeight": "normal", "labelFontSize": 12,
        "titleFontSize": 12, "gridColor": "var(--grid)", "domainColor": "var(--rule)", "tickColor": "var(--rule)",
    },
    "text": {"color": "var(--ink)", "fontSize": 12, "font": FONT},
}  # fmt: skip


def spec_of(description: str, height: Any, **more: Any) -> Spec:
    """A plot as wide as its place in the page, in the page's colours."""
    return {
        "$schema": SCHEMA,
        "description": description,
        "width": "container",
        "height": height,
        "config": CONFIG,
        **more,
    }


def tooltip(*names: str) -> list[Spec]:
    """What hovering shows: fields of a row, whose names are their titles."""
    return [{"field": name, "type": "nominal", "title": name} for name in names]


def where(parts: Sequence[Row], devices: Sequence[tuple[str, Row]], looks: Mapping[str, palette.Look]) -> Spec:
    """The span as bars: of all devices with busy time by kind, and of each device.

    ``devices``: names with rows of ``timeline``. The numbers below a bar are those of ``parts`` in the page's table.
    """
    numbers = {part["part"]: number for number, part in enumerate(parts, 1)}
    busy = {part["part"]: looks.get(part["part"], palette.REST).colour for part in parts if part["group"] == "busy"}
    others = {part["part"]: palette.fill_of(part["part"]) for part in parts if part["group"] != "busy"}
    values = _bar("all devices" if devices else "all", [(p["part"], p["share"]) for p in parts], numbers)
    for name, row in devices:
        shares = [(part, row[f"{part}_share"] or 0.0) for part in PARTS]
        order = sorted(shares, key=lambda one: numbers.get(one[0], 0 if one[0] in BUSY_PARTS else len(PARTS)))
        values += _bar(name, order, numbers)
    y = {"field": "bar", "type": "nominal", "sort": None, "axis": None}
    x = {"type": "quantitative", "scale": {"domain": [0, 100], "nice": False}, "title": "% of the devices' time"}
    bars: Spec = {
        "mark": {"type": "bar", "height": 18, **OUTLINED},
        "encoding": {
            "y": y,
            "x": {"field": "from", **x},
            "x2": {"field": "to"},
            "fill": scale_of("key", {**busy, **others, COMPUTE: "var(--bar)"}),
            "tooltip": tooltip("part", "share", "of"),
        },
    }
    layers = [bars, _beside("number", "center", 16, y, {"field": "middle", **x})]
    if devices:
        layers.append(_beside("name", "left", -16, y, {"datum": 0, **x}))
    height = (BAR if devices else BAR - 12) * (1 + len(devices))
    return spec_of("Where the time went: bars of the whole span", height, data={"values": values}, layer=layers)


def _beside(field: str, align: str, dy: int, y: Spec, x: Spec) -> Spec:
    """Texts above or below bars."""
    return {
        "transform": [{"filter": f"datum.{field} != ''"}],
        "mark": {"type": "text", "dy": dy, "align": align, "fontSize": 10 if align == "center" else 12, "aria": False},
        "encoding": {"y": y, "x": x, "text": {"field": field}},
    }


def _bar(name: str, shares: Iterable[tuple[str, float]], numbers: Mapping[str, int]) -> list[Spec]:
    values: list[Spec] = []
    at = 0.0
    for part, share in shares:
        if share <= 0:
            continue
        to = at + share * 100
        value = {
            "bar": name, "key": part, "part": said(part), "share": text.percent_fine(share), "of": name,
            "from": at, "to": to, "middle": (at + to) / 2, "name": "" if values else name,
            "number": str(numbers.get(part, "")) if share >= NUMBERED else "",
        }  # fmt: skip
        values.append(value)
        at = to
    return values


@dataclass(frozen=True, slots=True)
class Span:
    """One part of one side's time."""

    side: str
    part: str
    fill: str
    ns: float


def sides(spans: Sequence[Span]) -> Spec:
    """Two times as bars on one scale."""
    values, ends = [], dict.fromkeys((span.side for span in spans), 0.0)
    scale, unit = (MS, "ms") if sum(span.ns for span in spans) < 4e9 else (1000 * MS, "s")
    for span in spans:
        if span.ns <= 0:
            continue
        at = ends[span.side]
        ends[span.side] = to = at + span.ns / scale
        value = {"side": span.side, "part": span.part, "time": text.duration(span.ns), "from": at, "to": to}
        values.append({**value, "name": span.side if at == 0 else ""})
    y = {"field": "side", "type": "nominal", "sort": None, "axis": None}
    x = {"type": "quantitative", "title": unit, "scale": {"nice": False}, "axis": {"tickCount": 10}}
    bars: Spec = {
        "mark": {"type": "bar", "height": 18, **OUTLINED},
        "encoding": {
            "y": y,
            "x": {"field": "from", **x},
            "x2": {"field": "to"},
            "fill": scale_of("part", {span.part: span.fill for span in spans}),
            "tooltip": tooltip("side", "part", "time"),
        },
    }
    names = _beside("name", "left", -16, y, {"datum": 0, **x})
    return spec_of("Both times by part", (BAR - 8) * 2, data={"values": values}, layer=[bars, names])


def said(part: str) -> str:
    """A part's name in a page: of idle time with the word, as a copy may also be work."""
    if part in palette.PATTERNS and part not in BUSY_PARTS:
        return f"idle: {words(part)}"
    return words(part)


def scale_of(field: str, fills: Mapping[str, str]) -> Spec:
    """A field whose values have colours or shapes of their own; the legend is the page's."""
    return {
        "field": field,
        "type": "nominal",
        "scale": {"domain": list(fills), "range": list(fills.values())},
        "legend": None,
    }


def moments(told: Row, parts: Sequence[str], zone: Zone) -> Spec:
    """Idle and exposed time by part, a bar a stretch of time; ``parts`` from the bottom up."""
    size = told["bucket_ns"]
    values = []
    for row in told["rows"]:
        start = row["start_unix_ns"]
        base = {
            "start": zone.ms(start),
            "end": zone.ms(start + size),
            "from": f"{zone.local(start):%Y-%m-%d %H:%M:%S}",
            "windows": text.count(row["windows"]),
        }
        at = 0.0
        for part in parts:
            share = row[f"{part}_share"] or 0.0
            if share > 0:
                to = at + share * 100
                values.append(
                    {**base, "key": part, "part": said(part), "share": text.percent_fine(share), "low": at, "high": to}
                )
                at = to
    x = {
        "type": "temporal", "scale": {"type": "utc", "nice": False}, "title": f"time ({zone.name})",
        "axis": {"labelOverlap": True, "grid": False, "format": HOURS},
    }  # fmt: skip
    fills = {part: palette.fill_of(part) for part in parts}
    return spec_of(
        "Idle and exposed time by cause over time",
        260,
        data={"values": values},
        mark={"type": "bar", **OUTLINED},
        encoding={
            "x": {"field": "start", **x},
            "x2": {"field": "end"},
            "y": {"field": "low", "type": "quantitative", "title": "% of the devices' time"},
            "y2": {"field": "high"},
            "fill": scale_of("key", fills),
            "tooltip": tooltip("part", "share", "from", "windows"),
        },
    )
