"""The roofline plot: every signature that has a place, under the roofs that its device has."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from roofwatch.cli.render import kernels, text
from roofwatch.cli.report import palette
from roofwatch.cli.report.specs import Row, Spec, scale_of, spec_of, tooltip

SLOPE = 10  # a memory roof is seen from a tenth of the ridge on
ALIKE = 0.01  # two ridges that differ by less are one: a ridge travels as a double
HEIGHT = 440
LABEL = 18  # pixels that a name needs above its line
SLOPE_LABEL = 0.45  # of a phone's plot: the width of a memory's name
FIELDS = (
    "kernel", "op", "phase", "shapes", "dtypes", "kind", "bound", "evidence", "calls", "mean", "time", "share",
    "FLOP/byte", "reached", "of its roof", "winnable",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Roof:
    """A memory's slope that ends under a compute unit's level; ``names`` of those that have the same level."""

    peak: float  # FLOP/s
    bandwidth: float  # bytes/s
    names: tuple[str, ...]

    @property
    def ridge(self) -> float:
        """FLOP per byte."""
        return self.peak / self.bandwidth

    @property
    def label(self) -> str:
        """As in "bf16, fp16 matrix 989 TFLOP/s"."""
        units: dict[str, list[str]] = defaultdict(list)
        for name in self.names:
            precision, _, unit = name.partition("/")
            units[unit].append(precision)
        told = " · ".join(f"{', '.join(precisions)} {unit}".strip() for unit, precisions in units.items())
        return f"{told} {text.rate(self.peak, 'FLOP/s')}"


def roofs_of(devices: Sequence[Row], rows: Sequence[Row]) -> list[Roof]:
    """The roofs of a device model: those that its rows are judged by, all of them where it is known of none."""
    levels: dict[tuple[float, float], list[str]] = defaultdict(list)
    for device in devices:
        bandwidth = device["peaks"]["bandwidth"]
        for name, peak in device["peaks"]["flops"].items():
            if bandwidth is not None:
                levels[peak["value"], bandwidth["value"]].append(name)
    found = [Roof(peak, bandwidth, tuple(dict.fromkeys(names))) for (peak, bandwidth), names in sorted(levels.items())]
    ridges = {row["ridge"] for row in rows if row["ridge"]}
    used = [roof for roof in found if any(math.isclose(roof.ridge, ridge, rel_tol=ALIKE) for ridge in ridges)]
    return used or found


Place = Callable[[str, str], Spec]  # the encoding of two fields on the plot's axes


def roofline(device: str, roofs: Sequence[Roof], rows: Sequence[Row], looks: Mapping[str, palette.Look]) -> Spec:
    """FLOP/s over FLOP per byte, both logarithmic; a dot's area is its time."""
    across, up = _domains(roofs, rows)
    x = _axis(across, "FLOP per byte", "datum.value < 1000 ? format(datum.value, '~g') : format(datum.value, '~s')")
    y = _axis(up, "FLOP/s", "format(datum.value, '~s')")

    def place(x_field: str, y_field: str) -> Spec:
        return {"x": {"field": x_field, **x}, "y": {"field": y_field, **y}}

    description = f"Roofline of {text.clean(device)}: {text.plural(len(rows), 'signature')}"
    layers = [_lines(roofs, across, up, place), _dots(rows, looks, place), *_labels(roofs, across, up, place)]
    return spec_of(description, HEIGHT, layer=layers, params=[{"name": "family", "value": None}])


def _axis(domain: Sequence[float], title: str, label: str) -> Spec:
    return {
        "type": "quantitative",
        "scale": {"type": "log", "domain": domain, "nice": False},
        "title": title,
        "axis": {"values": _decades(domain), "labelExpr": label},
    }


def _dots(rows: Sequence[Row], looks: Mapping[str, palette.Look], place: Place) -> Spec:
    """Those with most time first, so that no other hides below one."""
    names = [*dict.fromkeys(row["kind"] for row in rows if row["kind"] in looks), palette.OTHER]
    shown = [looks.get(name, palette.REST) for name in names]
    standing_out = {"test": "family == null || datum.family == family", "value": 0.85}
    area = {"domain": [0, max((row["est_ns"] for row in rows), default=1)], "range": [30, 1200], "zero": True}
    return {
        "data": {"values": [_dot(row, looks) for row in sorted(rows, key=lambda row: -row["est_ns"])]},
        "mark": {"type": "point", "filled": True, "stroke": "var(--outline)", "strokeWidth": 0.6, "aria": False},
        "encoding": {
            **place("intensity", "flops_s"),
            "size": {"field": "ns", "type": "quantitative", "legend": None, "scale": area},
            "fill": scale_of("family", dict(zip(names, (look.colour for look in shown), strict=True))),
            "shape": scale_of("family", dict(zip(names, (look.shape for look in shown), strict=True))),
            "opacity": {"condition": standing_out, "value": 0.12},
            "tooltip": tooltip(*FIELDS),
        },
    }


def _lines(roofs: Sequence[Roof], across: Sequence[float], up: Sequence[float], place: Place) -> Spec:
    """Each roof's slope and level."""
    values = []
    for number, roof in enumerate(roofs):
        begin = max(across[0], up[0] / roof.bandwidth)
        ends = [begin, min(roof.ridge, across[1]), *([across[1]] if roof.ridge < across[1] else [])]
        for at, end in enumerate(ends):
            values.append({"roof": number, "at": at, "x": end, "y": min(roof.peak, end * roof.bandwidth)})
    return {
        "data": {"values": values},
        "mark": {"type": "line", "stroke": "var(--roof)", "strokeWidth": 1.6, "aria": False, "clip": True},
        "encoding": {**place("x", "y"), "detail": {"field": "roof"}, "order": {"field": "at"}},
    }


def _labels(roofs: Sequence[Roof], across: Sequence[float], up: Sequence[float], place: Place) -> list[Spec]:
    """The names of levels and slopes, readable over dots too, none over another: beside a level above or below it."""
    above_line: list[Spec] = []
    below_line: list[Spec] = []
    boxes: list[_Box] = []
    for roof in sorted(roofs, key=lambda roof: -roof.peak):
        told = {"x": across[1], "y": roof.peak, "label": roof.label}
        y = _pixels(roof.peak, up)
        at_top = _Box(0.0, 1.0, y - LABEL, y)
        if any(at_top.meets(other) for other in boxes):
            below_line.append(told)
            boxes.append(_Box(0.0, 1.0, y, y + LABEL))
        else:
            above_line.append(told)
            boxes.append(at_top)
    slopes = []
    for bandwidth in sorted({roof.bandwidth for roof in roofs}):
        begin, end = max(across[0], up[0] / bandwidth), max(roof.ridge for roof in roofs if roof.bandwidth == bandwidth)
        x, box = _on_slope(bandwidth, begin, end, (across, up), boxes)
        boxes.append(box)
        slopes.append({"x": x, "y": x * bandwidth, "label": f"memory {text.rate(bandwidth, 'B/s')}"})
    halo = {"stroke": "var(--bg)", "strokeWidth": 4, "strokeJoin": "round", "opacity": 0.85}
    sets = (
        (above_line, {"baseline": "bottom", "dx": -4, "dy": -3}),
        (below_line, {"baseline": "top", "dx": -4, "dy": 4}),
        (slopes, {"baseline": "bottom", "dx": -8, "dy": -3}),
    )
    return [
        {
            "data": {"values": values},
            "mark": {"type": "text", "align": "right", "aria": False, **beside, **style},
            "encoding": {**place("x", "y"), "text": {"field": "label"}},
        }
        for values, beside in sets
        for style in (halo, {})
        if values
    ]


@dataclass(frozen=True, slots=True)
class _Box:
    """Where a text stands: shares of the width, pixels from the top. A level's may be as wide as a phone's plot."""

    left: float
    right: float
    top: float
    bottom: float

    def meets(self, other: _Box) -> bool:
        return (
            self.left < other.right and other.left < self.right and self.top < other.bottom and other.top < self.bottom
        )


def _pixels(flops_s: float, up: Sequence[float]) -> float:
    """From the plot's top."""
    return math.log(up[1] / flops_s) / math.log(up[1] / up[0]) * HEIGHT


# How far up a slope its name may end, the best first: above the line, two thirds up, nothing is usually in its way.
_PLACES = (0.67, 0.6, 0.75, 0.5, 0.42, 0.85, 0.33, 0.25)


def _on_slope(
    bandwidth: float, begin: float, end: float, axes: tuple[Sequence[float], Sequence[float]], boxes: Sequence[_Box]
) -> tuple[float, _Box]:
    """FLOP per byte where a slope's name ends, at the first place that no other name has."""
    across, up = axes
    found = []
    for share in _PLACES:
        x = begin * (end / begin) ** share
        y = _pixels(x * bandwidth, up)
        right = math.log(x / across[0]) / math.log(across[1] / across[0])
        found.append((x, _Box(max(0.0, right - SLOPE_LABEL), right, y - LABEL - 2, y)))
    return next((one for one in found if not any(one[1].meets(box) for box in boxes)), found[0])


def _domains(roofs: Sequence[Roof], rows: Sequence[Row]) -> tuple[list[float], list[float]]:
    """Axes that hold all dots, and of each roof its ridge, a decade of slope and some of its level."""
    ridges = [roof.ridge for roof in roofs]
    across = [row["intensity"] for row in rows] + [ridge * far for ridge in ridges for far in (1 / SLOPE, 10**0.6)]
    up = [reached(row) for row in rows] + [roof.peak * far for roof in roofs for far in (1 / SLOPE, 1.6)]
    return _around(across), _around(up)


def _around(values: Sequence[float]) -> list[float]:
    low, high = min(values, default=1.0), max(values, default=1.0)
    return [low / 1.6, max(high * 1.6, low * 10)]


def _decades(domain: Sequence[float]) -> list[float]:
    low, high = math.ceil(math.log10(domain[0])), math.floor(math.log10(domain[1]))
    return [10.0**decade for decade in range(low, high + 1)]


def reached(row: Row) -> float:
    """FLOP/s of the mean call."""
    return float(row["flops"] / row["mean_ns"] * 1e9)


def _dot(row: Row, looks: Mapping[str, palette.Look]) -> dict[str, Any]:
    return {
        "intensity": row["intensity"],
        "flops_s": reached(row),
        "ns": row["est_ns"],
        "family": row["kind"] if row["kind"] in looks else palette.OTHER,
        **told(row),
    }


def told(row: Row) -> dict[str, str]:
    """A row in words, as hovering shows it."""
    return {
        "kernel": text.kernel(row["kernel"]),
        "op": text.clean(row["op"] or text.UNKNOWN),
        "phase": text.UNKNOWN if row["phase"] == "none" else row["phase"],
        "shapes": text.shapes(row["shapes"]),
        "dtypes": dtypes(row["dtypes"]),
        "kind": row["kind"].replace("_", " "),
        "bound": bound(row),
        "evidence": row["evidence"],
        "calls": text.count(row["calls"]),
        "mean": text.duration(row["mean_ns"]),
        "time": text.duration(row["est_ns"]),
        "share": text.percent(row["share"]),
        "FLOP/byte": text.plain(row["intensity"]),
        "reached": text.rate(reached(row), "FLOP/s") if row["flops"] and row["mean_ns"] else text.UNKNOWN,
        "of its roof": kernels.roof(row),
        "winnable": text.duration(kernels.winnable_ns(row)),
    }


def bound(row: Row) -> str:
    """The verdict; with the formula's where the measured one differs."""
    if row["formula_bound"] in {None, row["bound"]}:
        return str(row["bound"])
    return f"{row['bound']} (pipes), {row['formula_bound']} (sizes)"


def dtypes(found: Sequence[Any] | None) -> str:
    """The distinct element types, in order."""
    if not found:
        return text.UNKNOWN
    flat = [one for each in found for one in (each if isinstance(each, list) else [each])]
    return text.clean(", ".join(dict.fromkeys(str(one) for one in flat if one))) or text.UNKNOWN
