"""Colours, marks and patterns: what a kind or a cause looks like, in light and in dark.

Nothing is told by colour alone: kinds also have a shape, causes a pattern, and parts of a bar a number. The hues are
those of Okabe and Ito (2008), which people with any common colour vision deficiency tell apart; on white, where the
light ones among them do not stand out, marks have a dark outline.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from roofwatch.cli.report.html import Html, el, joined
from roofwatch.model.record import Cause

BLUE, ORANGE, GREEN, PURPLE = "#0072b2", "#e69f00", "#009e73", "#cc79a7"
SKY, VERMILION, YELLOW, GREY = "#56b4e9", "#d55e00", "#f0e442", "#707070"

LIGHT: Mapping[str, str] = {
    "bg": "#ffffff", "panel": "#f5f7f9", "ink": "#1a1f24", "soft": "#505a64", "rule": "#d4dae0", "grid": "#e6eaee",
    "link": "#0b5cad", "outline": "#39424b", "roof": "#1a1f24", "bar": "#bcd4ea",
}  # fmt: skip
DARK: Mapping[str, str] = {
    "bg": "#12161a", "panel": "#1b2127", "ink": "#e8ecf0", "soft": "#a9b4bf", "rule": "#3a444e", "grid": "#2a323a",
    "link": "#7db8f5", "outline": "#12161a", "roof": "#e8ecf0", "bar": "#5f87ad",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Look:
    """How one family of kinds is drawn."""

    colour: str
    shape: str  # a name that Vega knows
    path: str  # the same for a legend, in a box of 16 × 16


LOOKS: Sequence[Look] = (
    Look(BLUE, "circle", "M8 2a6 6 0 1 0 .01 0z"),
    Look(VERMILION, "square", "M3 3h10v10H3z"),
    Look(SKY, "triangle-up", "M8 2l6 11H2z"),
    Look(GREEN, "diamond", "M8 1l5 7-5 7-5-7z"),
    Look(ORANGE, "cross", "M6 2h4v4h4v4h-4v4H6v-4H2V6h4z"),
    Look(PURPLE, "triangle-down", "M8 14L2 3h12z"),
    Look(YELLOW, "triangle-right", "M3 2l11 6-11 6z"),
)
REST = Look(GREY, "triangle-left", "M13 2L2 8l11 6z")
OTHER = "other kinds"
# These look the same in every report; the others take what is free.
_FIXED = {"matmul": 0, "attention": 1, "elementwise": 2, "norm": 3}


def families(kinds: Iterable[str]) -> dict[str, Look]:
    """The looks of kinds, those with most time given first; from the eighth on they share one."""
    shown = list(kinds)[: len(LOOKS)]
    free = [i for i in range(len(LOOKS)) if i not in {_FIXED[kind] for kind in shown if kind in _FIXED}]
    return {kind: LOOKS[_FIXED[kind] if kind in _FIXED else free.pop(0)] for kind in shown}


@dataclass(frozen=True, slots=True)
class Pattern:
    """How time that is no kernel's is drawn: a colour with lines or dots over it, in a tile of 8 × 8."""

    colour: str
    drawing: str


_SLASH, _BACKSLASH = "M-2 2L2-2M0 8L8 0M6 10L10 6", "M-2 6L2 10M0 0L8 8M6-2L10 2"
_DOTS = "M2 2h.01M6 6h.01"
PATTERNS: Mapping[str, Pattern] = {
    "exposed_copy": Pattern(PURPLE, ""),
    "exposed_communication": Pattern(GREEN, ""),
    str(Cause.LAUNCH_BOUND): Pattern(VERMILION, _SLASH),
    str(Cause.INPUT): Pattern(ORANGE, _BACKSLASH),
    str(Cause.SYNC): Pattern(SKY, "M0 4H8"),
    str(Cause.HOST): Pattern(BLUE, _SLASH + _BACKSLASH),
    str(Cause.COPY): Pattern(PURPLE, "M4 0V8"),
    str(Cause.COMMUNICATION): Pattern(GREEN, "M4 0V8M0 4H8"),
    str(Cause.LAUNCH_GAP): Pattern(YELLOW, _DOTS),
    str(Cause.UNKNOWN): Pattern(GREY, _DOTS + "M2 6h.01M6 2h.01"),
}


def fill_of(part: str) -> str:
    """What a part of a bar is filled with."""
    return f"url(#p-{part})"


def patterns() -> Html:
    """The tiles that fills name, in a drawing that takes no room."""
    tiles = [
        el("pattern", _tile(pattern), id=f"p-{part}", patternUnits="userSpaceOnUse", width=8, height=8)
        for part, pattern in PATTERNS.items()
    ]
    return el("svg", el("defs", *tiles), width=0, height=0, aria_hidden="true", class_="tiles")


def _tile(pattern: Pattern) -> Html:
    lines = el("path", d=pattern.drawing, class_="hatch") if pattern.drawing else Html()
    return joined(el("rect", width=8, height=8, fill=pattern.colour), lines)


def mark(look: Look) -> Html:
    """A family's mark for a legend."""
    return _chip(el("path", d=look.path, fill=look.colour, stroke="var(--outline)"))


def chip(fill: str) -> Html:
    """A filled box for a legend."""
    return _chip(el("rect", x=1, y=1, width=14, height=14, fill=fill, stroke="var(--outline)"))


def _chip(drawn: Html) -> Html:
    return el("svg", drawn, class_="chip", width=16, height=16, viewBox="0 0 16 16", aria_hidden="true")


def variables() -> str:
    """The colours as CSS: light, dark where the reader's system is dark, light again on paper."""
    light, dark = (";".join(f"--{name}:{value}" for name, value in colours.items()) for colours in (LIGHT, DARK))
    return (
        f":root{{color-scheme:light dark;{light}}}\n"
        f"@media (prefers-color-scheme:dark){{:root{{{dark}}}}}\n"
        f"@media print{{:root{{color-scheme:light;{light}}}}}\n"
    )
