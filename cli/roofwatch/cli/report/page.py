"""The whole page: one text, with the plots' script inside, that needs nothing from anywhere."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources

from roofwatch.cli.render import text
from roofwatch.cli.report import judged, ledger, overview, palette
from roofwatch.cli.report.html import Html, data, el, joined
from roofwatch.cli.report.section import Row, Section
from roofwatch.cli.report.tables import facts
from roofwatch.cli.report.zone import Zone

NAMES_SHOWN = 6  # of nodes, models, versions


@dataclass(frozen=True, slots=True)
class About:
    """What a page says of itself: what was asked for, when and by which version it was made, what looks further."""

    title: Sequence[str]
    generated_unix_ns: int
    version: str
    zone: Zone
    command: str = ""
    notes: Sequence[str] = ()  # what is to be known of how it was recorded and read


def page(answer: Row, about: About, more: Sequence[Section], library: str) -> str:
    """The file's text. ``more``: sections that were asked for beside the usual ones; ``library`` draws the plots."""
    looks = palette.families([one["kind"] for one in answer["kinds"]])
    sections = [
        *(section for section in more if section.first),
        overview.where(answer, looks),
        overview.moments(answer, about.zone),
        *(section for section in more if not section.first),
        judged.roofline(answer, looks),
        judged.kernels(answer, looks),
        ledger.ledger(answer, about.zone),
        ledger.devices(answer),
        ledger.cost(answer),
    ]
    found = [section for section in sections if section is not None]
    own = _resource("page.js")
    body = joined(
        el("a", "Skip to the figures", href="#main", class_="skip"),
        palette.patterns(),
        _header(answer, about, found),
        el(
            "main",
            overview.lead(answer),
            *(
                el("p", el("a", section.title, href=f"#{section.name}"), ": ", section.lead, class_="lead")
                for section in more
                if section.lead
            ),
            *(el("p", note, class_="note") for note in about.notes),
            overview.key_figures(answer),
            *(one.html() for one in found),
            id="main",
        ),
        _footer(about),
        *(data(f"spec-{place}", spec) for section in found for place, spec in section.plots.items()),
        Html(f"<script>{library}</script><script>{own}</script>"),
    )
    head = joined(
        el("meta", charset="utf-8"),
        # Whatever a name in a trace tries: only these two scripts run, and nothing is fetched.
        el("meta", http_equiv="Content-Security-Policy", content=_policy(library, own)),
        el("meta", name="viewport", content="width=device-width, initial-scale=1"),
        el("meta", name="color-scheme", content="light dark"),
        el("meta", name="referrer", content="no-referrer"),
        el("title", f"Roofwatch: {', '.join(about.title)}"),
        Html(f"<style>{palette.variables()}{_resource('style.css')}</style>"),
    )
    return f'<!doctype html>\n<html lang="en"><head>{head}</head><body>{body}</body></html>\n'


def _policy(*scripts: str) -> str:
    hashes = " ".join(f"'sha256-{base64.b64encode(hashlib.sha256(one.encode()).digest()).decode()}'" for one in scripts)
    return f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"


def _resource(name: str) -> str:
    return resources.files("roofwatch.cli.report").joinpath(name).read_text(encoding="utf-8")


def _header(answer: Row, about: About, sections: Sequence[Section]) -> Html:
    subject, coverage = answer["subject"], answer["coverage"]
    windows = text.plural(coverage["windows"], "window")
    pairs = [
        ("time", about.zone.range(subject["first_unix_ns"], subject["last_unix_ns"])),
        ("windows", f"{windows} of {text.plural(subject['processes'], 'process')}".replace("processs", "processes")),
        ("nodes", _some(subject["nodes"])),
        ("models", _some(subject["models"])),
        ("jobs", _some(subject["jobs"])),
        ("devices", _some(list(dict.fromkeys(one["model"] for one in answer["devices"])))),
        ("versions", _some([f"{name} {', '.join(found)}" for name, found in subject["versions"].items()], 12)),
    ]
    return el(
        "header",
        el("p", "Roofwatch report", class_="soft kind"),
        el("h1", " · ".join(about.title)),
        facts([pair for pair in pairs if pair[1]]),
        el(
            "nav",
            el("ul", *(el("li", el("a", section.title, href=f"#{section.name}")) for section in sections)),
            aria_label="Sections",
        ),
    )


def _some(names: Sequence[str], most: int = NAMES_SHOWN) -> str:
    shown = ", ".join(text.cut_middle(name or "unnamed", 60) for name in names[:most])
    return f"{shown} and {len(names) - most} more" if len(names) > most else shown


def _footer(about: About) -> Html:
    moment = f"{about.zone.local(about.generated_unix_ns):%Y-%m-%d %H:%M} ({about.zone.name})"
    made = f"Made {moment} by Roofwatch {about.version}."
    then = joined("What helps: ", el("code", about.command)) if about.command else None
    return el("footer", el("p", made), el("p", then) if then else None)
