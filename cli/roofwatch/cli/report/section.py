"""A section of the page: its heading, what stands under it, and the plots that its script draws there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from roofwatch.cli.report import palette
from roofwatch.cli.report.html import Child, Html, el, joined

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Section:
    """``name`` is its anchor; ``plots`` are specifications by the id of their place.

    ``lead``: what stands of it at the top of the page; ``first``: it is what the page was asked for.
    """

    name: str
    title: str
    body: Html
    plots: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    lead: str = ""
    first: bool = False

    def html(self) -> Html:
        """The section with its heading."""
        return el("section", el("h2", self.title, id=self.name), self.body, aria_labelledby=self.name)


def figure(place: str, label: str, *below: Child) -> Html:
    """The place of a plot, which is one picture to a screen reader: its label says what is in it."""
    return el("figure", el("div", id=place, class_="plot", role="img", aria_label=label), *below)


def caption(text: str) -> Html:
    """What a plot shows and how to read it."""
    return el("figcaption", text)


def legend(entries: Sequence[tuple[Html, str]]) -> Html:
    """Marks with their names."""
    return el("ul", *(el("li", mark, el("span", name)) for mark, name in entries), class_="legend")


def pressable(plot: str, families: Sequence[tuple[str, palette.Look]], label: str) -> Html:
    """A legend whose entries make their family stand out in a plot."""
    buttons = [
        el(
            "li",
            el(
                "button",
                palette.mark(look),
                el("span", name.replace("_", " ")),
                type="button",
                aria_pressed="false",
                data_family=name,
            ),
        )
        for name, look in families
    ]
    return el("ul", *buttons, class_="legend", data_plot=plot, aria_label=label)


def paragraphs(*sentences: str) -> Html:
    """Each a paragraph."""
    return joined(*(el("p", sentence) for sentence in sentences if sentence))
