"""The last sections: what the answer rests on, the devices' peaks, and what the profiling cost."""

from __future__ import annotations

from collections.abc import Sequence

from roofwatch.cli.render import text
from roofwatch.cli.render.kernels import DROPPED
from roofwatch.cli.report.html import Html, el, joined
from roofwatch.cli.report.section import Row, Section, paragraphs
from roofwatch.cli.report.tables import Cell, Column, count, duration, facts, percent, table
from roofwatch.cli.report.zone import Zone

DEVICES_MOST = 12


def ledger(answer: Row, zone: Zone) -> Section:
    """What was read, linked, classified and dropped."""
    body = joined(
        paragraphs(
            "A figure is as good as what it rests on. Compute time is device time less communication, copies, and what "
            "was launched before a window and is seen in it nowhere else.",
            *_left_out(answer["coverage"], zone),
        ),
        el(
            "div",
            facts([pair for pair in [*_read(answer), *_judged(answer["coverage"])] if pair[1]]),
            el("div", _verdicts(answer["verdicts"]), _dropped(answer["coverage"]["dropped"])),
            class_="columns",
        ),
    )
    return Section("ledger", "What this rests on", body)


def _read(answer: Row) -> list[tuple[str, str]]:
    coverage, own = answer["coverage"], answer["ledger"]
    return [
        ("windows", _windows(coverage)),
        ("events read", text.count(own["events_read"])),
        ("device records", f"{text.count(coverage['device_records'])}, {text.duration(coverage['device_time_ns'])}"),
        ("seen of the time", _sampled(coverage)),
        ("linked to an op", _of(coverage["linked_share"], "device time")),
        ("launched before its window", _of(coverage["backlog_share"], "device time")),
    ]


def _windows(coverage: Row) -> str:
    """How many, and whether of each or of sums over an hour or a day."""
    sums = [f"{text.count(n)} as {name} sums" for name, n in coverage["sources"].items() if name != "raw"]
    count = text.count(coverage["windows"])
    return f"{count}, {', '.join(sums)}" if sums else count


def _left_out(coverage: Row, zone: Zone) -> list[str]:
    """Times of which too little is kept for a part of an hour or a day."""
    return [
        f"Left out: {zone.range(cut['since_unix_ns'], cut['until_unix_ns'])}. Of that time only sums are kept, and the "
        "selection cuts them."
        for cut in coverage["left_out"]
    ]


def _judged(coverage: Row) -> list[tuple[str, str]]:
    """What does not apply is left out, what applies and is unknown is told as such."""
    graph, known = coverage["graph_share"], coverage["mfu_known_share"]
    tied = f"{_of(graph, 'device time')}; {_of(coverage['graph_attributed_share'], 'it')} tied to ops"
    mfu = text.mfu(coverage["mfu"], known)
    mfu += "" if known is None else f"; FLOPs known of {text.percent_fine(known)} of the model's kernels"
    layout = f"{text.duration(coverage['layout_ns'])}, {_of(coverage['layout_share'], 'compute time')}"
    differ = _of(coverage["disagree_share"], "the time that both judged")
    return [
        ("launched by graphs", tied if graph else ""),
        ("classified", _of(coverage["classified_share"], "compute time")),
        ("by name only", _of(coverage["named_share"], "compute time")),
        ("MFU", mfu),
        ("pipes and shapes differ", differ if coverage["disagree_share"] is not None else ""),
        ("layout tax", layout if coverage["layout_share"] is not None else ""),
    ]


def _of(share: float | None, whole: str) -> str:
    return f"{text.percent_fine(share)} of {whole}"


def _sampled(coverage: Row) -> str:
    share = coverage["sampled_share"]
    return "" if share is None else f"{text.percent_fine(share)}; estimates stand for the rest"


def _verdicts(verdicts: Sequence[Row]) -> Html | None:
    if not verdicts:
        return None
    rows = [
        [Cell(one["bound"], one["bound"]), Cell(one["evidence"]), duration(one["est_ns"]), percent(one["share"])]
        for one in verdicts
    ]
    columns = (Column("bound"), Column("evidence"), Column("time", right=True), Column("share", right=True))
    return table("Device time by verdict, and what the verdict rests on", columns, rows)


def _dropped(dropped: Row) -> Html:
    if not dropped:
        return el("p", "Nothing was dropped.")
    rows = [[Cell(DROPPED.get(reason, reason.replace("_", " "))), count(n)] for reason, n in dropped.items()]
    return table("Dropped on the way, by reason", (Column("reason"), Column("count", right=True)), rows)


def devices(answer: Row) -> Section | None:
    """The ceilings that roofs are drawn from, with the source of each."""
    shown = answer["devices"][:DEVICES_MOST]
    if not shown:
        return None
    rows = [
        [
            Cell(device["model"] or "unnamed device"),
            count(device["units"]),
            Cell(text.size(device["memory_bytes"]), device["memory_bytes"]),
            Cell(_bandwidth(device["peaks"]["bandwidth"])),
            Cell(_peaks(device["peaks"]["flops"])),
        ]
        for device in shown
    ]
    figures = (Column("units", right=True), Column("memory", right=True))
    columns = (Column("device"), *figures, Column("bandwidth"), Column("peaks"))
    more = len(answer["devices"]) - len(shown)
    body = joined(
        table("Devices, with the peaks that verdicts rest on", columns, rows),
        el("p", f"and {text.count(more)} more") if more else None,
    )
    return Section("devices", "Devices", body)


def _bandwidth(peak: Row | None) -> str:
    return "unknown" if peak is None else f"{text.rate(peak['value'], 'B/s')} ({peak['source']})"


def _peaks(flops: Row) -> Html | str:
    """Units of equal peak on one line."""
    alike: dict[tuple[float, str], list[str]] = {}
    for name, peak in flops.items():
        alike.setdefault((peak["value"], peak["source"]), []).append(name.replace("/", " "))
    if not alike:
        return "unknown: verdicts need them ('roofwatch devices calibrate' measures a CPU)"
    lines = [
        el("div", f"{text.rate(value, 'FLOP/s')} {', '.join(names)} ({source})")
        for (value, source), names in sorted(alike.items(), key=lambda item: -item[0][0])
    ]
    return joined(*lines)


def cost(answer: Row) -> Section:
    """What taking windows cost the jobs."""
    told = answer["cost"]
    title = "What the profiling cost"
    if not told or text.cost(told) == text.UNKNOWN:
        return Section(
            "cost",
            title,
            paragraphs(
                "Not known: it is measured on jobs with optimizer steps, by their steps beside and without a window. "
                "A file tells nothing of it."
            ),
        )
    unknown = text.plural(told["of_windows"] - told["windows"], "further window")
    return Section(
        "cost",
        title,
        paragraphs(
            f"{text.cost(told)} of the jobs' time: {text.lost_time(told['lost_ns'])} lost of "
            f"{text.duration(told['represented_ns'])}, over {text.plural(told['windows'], 'window')}.",
            f"Of {unknown} it is not known: first windows, and jobs without optimizer steps."
            if told["of_windows"] > told["windows"]
            else "",
        ),
    )
