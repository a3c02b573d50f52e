"""The page's text: nothing in it is markup that was not meant to be, and its colours can be read."""

from __future__ import annotations

import itertools
import json
import math
import re
from collections.abc import Callable, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from roofwatch.cli.report import html, library, palette, roofs, zone
from roofwatch.model.errors import RoofwatchError
from roofwatch.model.kinds import Kind
from roofwatch.model.record import Cause
from roofwatch.model.timeline import BUSY_PARTS

HOSTILE = "</script><script>alert(1)</script>\"'&<img src=x onerror=alert(1)>\u202e\x00\ud800 ünïcode 你好"


def test_text_is_never_markup() -> None:
    """Quotes, tags and characters that no page may hold come out as text; what is markup stays."""
    told = html.el("p", HOSTILE, html.el("b", "bold"), title=HOSTILE)

    assert "<script" not in told
    assert "<img" not in told
    assert told.count("<") == 4  # p, b and their ends
    assert "\x00" not in told
    assert "\u202e" not in told
    assert "ünïcode 你好" in told
    told.encode()  # no lone surrogate is left


def test_data_cannot_leave_its_element() -> None:
    """JSON in a page reads as it was, and holds nothing that ends a script or opens a comment."""
    told = html.data("spec-x", {"kernel": HOSTILE, "comment": "<!-- -->"})

    inside = told.removeprefix('<script type="application/json" id="spec-x">').removesuffix("</script>")
    assert "<" not in inside
    assert ">" not in inside
    assert json.loads(inside) == {"kernel": HOSTILE, "comment": "<!-- -->"}


def test_attributes() -> None:
    """None and False are left out, True has no value, names are as HTML writes them."""
    told = html.el("td", "1", class_="num", data_v=1.5, hidden=True, id=None, open=False)

    assert told == '<td class="num" data-v="1.5" hidden>1</td>'


def test_figures_keep_their_units() -> None:
    """A line never ends between a number and its unit; elsewhere it may."""
    assert html.escaped("35 % of 12.4 ms, 3 windows") == "35\u00a0% of 12.4\u00a0ms, 3 windows"


def test_every_cause_has_a_pattern_of_its_own() -> None:
    """Causes and exposed parts differ in more than colour."""
    parts = [*BUSY_PARTS[1:], *map(str, Cause)]

    assert set(palette.PATTERNS) == set(parts)
    idle = [palette.PATTERNS[str(cause)].drawing for cause in Cause]
    assert len(set(idle)) == len(idle)
    assert all(idle)


def test_kinds_that_share_no_look() -> None:
    """The seven kinds with most time differ in colour and shape, whichever they are; the others share one."""
    kinds = [str(kind) for kind in Kind]
    for shown in (kinds, list(reversed(kinds)), ["norm", "matmul", "conv", "loss", "rope", "cast", "attention", "moe"]):
        looks = palette.families(shown)

        assert list(looks) == shown[: len(palette.LOOKS)]
        assert len({look.colour for look in looks.values()}) == len(looks)
        assert len({look.shape for look in looks.values()}) == len(looks)
        assert palette.REST.shape not in {look.shape for look in looks.values()}


def luminance(colour: str) -> float:
    """Relative luminance of "#rrggbb": WCAG 2.2, "relative luminance"."""
    red, green, blue = (linear(channel) for channel in channels(colour))
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def channels(colour: str) -> list[float]:
    """The channels of "#rrggbb", 0 to 1."""
    return [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]


def linear(channel: float) -> float:
    """From sRGB to light."""
    return channel / 12.92 if channel <= 0.04045 else float(((channel + 0.055) / 1.055) ** 2.4)


def contrast(one: str, other: str) -> float:
    """WCAG 2.2, "contrast ratio"."""
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("colours", [palette.LIGHT, palette.DARK], ids=["light", "dark"])
def test_contrast(colours: Mapping[str, str]) -> None:
    """Text has 4.5 against what it may stand on; marks 3, by their colour or by their outline."""
    for ink, ground in itertools.product(("ink", "soft", "link"), ("bg", "panel")):
        assert contrast(colours[ink], colours[ground]) >= 4.5, (ink, ground)
    hues = [*(look.colour for look in (*palette.LOOKS, palette.REST)), colours["bar"], colours["roof"]]
    for hue in hues:
        assert max(contrast(hue, colours["bg"]), contrast(colours["outline"], colours["bg"])) >= 3, hue


# Viénot, Brettel, Mollon 1999: linear RGB as protanopes and deuteranopes see it.
BLIND = {
    "protan": ((0.11238, 0.88762, 0.0), (0.11238, 0.88762, 0.0), (0.00401, -0.00401, 1.0)),
    "deutan": ((0.29275, 0.70725, 0.0), (0.29275, 0.70725, 0.0), (-0.02234, 0.02234, 1.0)),
}


def lab(colour: str, sees: str) -> list[float]:
    """CIE L*a*b* (D65) of a colour as somebody with a colour vision deficiency sees it."""
    rgb = [linear(channel) for channel in channels(colour)]
    seen = [max(0.0, sum(factor * value for factor, value in zip(row, rgb, strict=True))) for row in BLIND[sees]]
    to_xyz = ((0.4124, 0.3576, 0.1805), (0.2126, 0.7152, 0.0722), (0.0193, 0.1192, 0.9505))
    xyz = [
        sum(f * v for f, v in zip(row, seen, strict=True)) / w
        for row, w in zip(to_xyz, (0.9505, 1, 1.089), strict=True)
    ]
    x, y, z = (v ** (1 / 3) if v > 0.008856 else 7.787 * v + 16 / 116 for v in xyz)
    return [116 * y - 16, 500 * (x - y), 200 * (y - z)]


@pytest.mark.parametrize("sees", BLIND)
def test_colours_differ_to_everybody(sees: str) -> None:
    """Any two hues are 10 apart in L*a*b* (2 is just noticeable) for who cannot tell red from green."""
    hues = [look.colour for look in (*palette.LOOKS, palette.REST)]

    for one, other in itertools.combinations(hues, 2):
        assert math.dist(lab(one, sees), lab(other, sees)) > 10, (one, other)


def device_of(**peaks: float) -> dict[str, Any]:
    """A device with 1 TB/s and peaks by precision."""
    flops = {name.replace("_", "/"): {"value": value, "source": "datasheet"} for name, value in peaks.items()}
    return {"peaks": {"flops": flops, "bandwidth": {"value": 1e12, "source": "datasheet"}}}


def test_roofs_are_those_that_rows_are_judged_by() -> None:
    """Ridges name them; levels that are alike have one line; without a known ridge all are shown."""
    device = device_of(bf16_matrix=1e14, fp16_matrix=1e14, fp32_vector=1e13, int8_matrix=2e14)

    used = roofs.roofs_of([device], [{"ridge": 100.0}, {"ridge": None}])
    every = roofs.roofs_of([device], [{"ridge": None}])

    assert [roof.label for roof in used] == ["bf16, fp16 matrix 100 TFLOP/s"]
    assert [roof.peak for roof in every] == [1e13, 1e14, 2e14]
    assert roofs.roofs_of([{"peaks": {"flops": {}, "bandwidth": None}}], []) == []


ROW = {
    "kernel": "k", "op": None, "phase": "none", "shapes": None, "dtypes": None, "kind": "matmul",
    "bound": "compute", "formula_bound": None, "evidence": "shapes", "calls": 1, "mean_ns": 1e6, "est_ns": 5,
    "share": 0.5, "flops": 10**9, "intensity": 20.0, "ridge": 100.0, "roof_fraction": 0.05, "winnable_ns": 4,
    "l2_assisted": None,
}  # fmt: skip


def test_a_dot_lies_where_it_reached() -> None:
    """A call of 1e9 FLOP in 1 ms reaches 1 TFLOP/s; with area as time, the largest comes first."""
    spec = roofs.roofline("d", [], [ROW, {**ROW, "kernel": "larger", "est_ns": 9}], palette.families(["matmul"]))

    dots = next(layer for layer in spec["layer"] if layer["mark"]["type"] == "point")["data"]["values"]
    assert [(dot["kernel"], dot["intensity"], dot["flops_s"], dot["ns"]) for dot in dots] == [
        ("larger", 20.0, pytest.approx(1e12), 9), ("k", 20.0, pytest.approx(1e12), 5)
    ]  # fmt: skip
    assert (dots[0]["reached"], dots[0]["of its roof"], dots[0]["FLOP/byte"]) == ("1.00 TFLOP/s", "5.0 %", "20.0")


def test_times_are_the_reporters() -> None:
    """A page tells its zone, leaves seconds out where they say nothing, and a moment is no range."""
    there = zone.Zone(timedelta(hours=5, minutes=30))
    hour = 3600 * 10**9

    assert there.range(0, hour) == "1970-01-01 05:30 to 1970-01-01 06:30 (UTC+05:30)"
    assert there.range(10**9, 3 * 10**9) == "1970-01-01 05:30:01 to 1970-01-01 05:30:03 (UTC+05:30)"
    assert zone.Zone(timedelta()).range(0, 1) == "1970-01-01 00:00:00 (UTC)"
    assert zone.Zone(timedelta(hours=-3)).name == "UTC-03:00"
    assert there.range(None, None) == ""
    assert there.moment(0, 30 * 10**9) == "1970-01-01 05:30:00"
    assert there.moment(0, hour) == "1970-01-01 05:30"


def test_the_kept_script_is_what_was_put_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put together once; what was damaged since is put together again, and not put into a page."""
    made: list[str] = []
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(library, "_bundled", lambda: made.append("x") or "vegaEmbed = 1;")

    first, again = library.script(), library.script()
    (kept,) = (tmp_path / "roofwatch").iterdir()
    kept.write_text(kept.read_text().replace("1", "2"))
    repaired = library.script()

    assert (first, again, repaired) == ("vegaEmbed = 1;",) * 3
    assert len(made) == 2


def test_without_its_library_one_sentence_tells_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the extra was not installed."""

    def missing(name: str) -> str:
        raise library.PackageNotFoundError(name)

    monkeypatch.setattr(library, "version", missing)

    with pytest.raises(RoofwatchError, match=re.escape("pip install 'roofwatch[report]'")):
        library.script()


def test_headings_and_anchors(scene_answer: dict[str, Any], make_page: Callable[..., Path]) -> None:
    """One h1, no level left out, and every link of the page leads somewhere in it."""
    text = make_page(scene_answer).read_text(encoding="utf-8")

    levels = [int(level) for level in re.findall(r"<h([1-6])", text.partition("<main")[0] + text.partition("<main")[2])]
    assert levels.count(1) == 1
    assert all(after - before <= 1 for before, after in itertools.pairwise(levels))
    anchors = set(re.findall(r'href="#([^"]+)"', text))
    assert anchors
    assert anchors <= set(re.findall(r'id="([^"]+)"', text))


def test_a_slopes_name_gives_way_to_a_levels() -> None:
    """A level exactly where the memory's name stands alone: then that ends elsewhere, a name's height away."""
    row = {**ROW, "intensity": 0.01, "flops": 1, "mean_ns": 1000.0}  # far to the lower left: the axes stay as they are

    def heights(*peaks: float) -> tuple[dict[str, float], float]:
        spec = roofs.roofline("x", [roofs.Roof(peak, 1e12, (f"p{peak:g}/matrix",)) for peak in peaks], [row], {})
        shown = [layer for layer in spec["layer"] if layer["mark"]["type"] == "text"]
        low, high = shown[0]["encoding"]["y"]["scale"]["domain"]
        named = {value["label"]: value["y"] for layer in shown for value in layer["data"]["values"]}
        return named, roofs.HEIGHT / math.log10(high / low)

    alone, _ = heights(1e15)
    crossing = alone["memory 1.00 TB/s"]
    named, per_decade = heights(1e15, crossing)
    assert abs(math.log10(named["memory 1.00 TB/s"] / crossing)) * per_decade >= 18
