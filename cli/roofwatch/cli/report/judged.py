"""The sections of kernels: all of them under the roof, and those with most time as a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from roofwatch.cli.render import text
from roofwatch.cli.render.kernels import OVER, WHY_OVER, winnable_ns
from roofwatch.cli.report import palette, roofs
from roofwatch.cli.report.html import Html, el, joined
from roofwatch.cli.report.section import Row, Section, caption, figure, paragraphs, pressable
from roofwatch.cli.report.tables import Cell, Column, count, duration, meter, table
from roofwatch.model.roofline import exceeded

PLOTS_MOST = 6  # device models, those with most time
UNKNOWN_PEAKS = "The device's peaks are unknown, so there is no roof."
HOW = (
    "A dot is a signature (kernel, op, shapes, dtypes): its area is its time, its height the FLOP/s of the mean call. "
    "The nearer to the line above it, the less there is to win. Press a kind to make it stand out."
)


def roofline(answer: Row, looks: Mapping[str, palette.Look]) -> Section:
    """A plot a device model, with what it leaves out."""
    found = answer["signatures"]
    by_device: dict[str, list[Row]] = {}
    for row in found["dots"]:
        by_device.setdefault(row["device"], []).append(row)
    shown = sorted(by_device.items(), key=lambda item: -sum(row["est_ns"] for row in item[1]))[:PLOTS_MOST]
    bodies: list[Html] = []
    plots = {}
    for number, (device, rows) in enumerate(shown):
        place = f"plot-roofline-{number}"
        own = [one for one in answer["devices"] if one["model"] == device]
        found_roofs = roofs.roofs_of(own, rows)
        plots[place] = roofs.roofline(device, found_roofs, rows, looks)
        bodies.append(joined(el("h3", device or "unnamed device"), _figure(place, device, found_roofs, rows, looks)))
    if shown:
        bodies.append(caption(HOW))
    return Section("roofline", "Under the roof", joined(_left_out(found, len(by_device)), *bodies), plots)


def _figure(
    place: str, device: str, found: Sequence[roofs.Roof], rows: Sequence[Row], looks: Mapping[str, palette.Look]
) -> Html:
    kinds = dict.fromkeys(row["kind"] for row in rows)
    families = [(kind, look) for kind, look in looks.items() if kind in kinds]
    families += [(palette.OTHER, palette.REST)] if any(kind not in looks for kind in kinds) else []
    roof = f"Roofs: {'; '.join(one.label for one in found)}." if found else UNKNOWN_PEAKS
    label = f"Roofline of {device}: {text.plural(len(rows), 'signature')}. {roof} The table of kernels has the figures."
    return figure(
        place,
        label,
        pressable(place, families, "Kinds of kernels: press one to make it stand out"),
        None if found else caption(UNKNOWN_PEAKS),
    )


def _left_out(found: Row, devices: int) -> Html:
    """How many signatures there are, and why some have no dot."""
    dots = len(found["dots"])
    if not found["count"]:
        return paragraphs("No kernel was seen.")
    if not dots:
        return paragraphs(
            f"None of {text.plural(found['count'], 'signature')} has a place in the plot: its FLOPs or bytes are "
            "unknown, or it does no arithmetic. The table below has their times."
        )
    said = (
        f"{text.count(dots)} of {text.plural(found['count'], 'signature')}, {text.percent_fine(found['placed_share'])} "
    )
    said += "of device time, have a place: FLOPs and bytes are known, and they do arithmetic."
    more = found["placed"] - dots
    return paragraphs(
        said,
        f"{text.count(more)} more, with least time, would not be told apart and are left out." if more else "",
        f"Of {devices} device models the {PLOTS_MOST} with most time are shown." if devices > PLOTS_MOST else "",
    )


COLUMNS = (
    Column("#", right=True), Column("kernel"), Column("time", right=True), Column("share", right=True),
    Column("winnable", right=True), Column("roof", right=True), Column("bound"), Column("kind"),
    Column("calls", right=True), Column("mean", right=True),
)  # fmt: skip


def kernels(answer: Row, looks: Mapping[str, palette.Look]) -> Section:
    """Kernels by time, with what reaching the roof would win; other orders by a press."""
    rows = answer["rows"]
    if not rows:
        return Section("kernels", "Top kernels", paragraphs("No kernel was seen."))
    several = len({row["device"] for row in rows}) > 1
    largest = max((winnable_ns(row) or 0.0 for row in rows), default=0.0)
    lines = [_line(rank, row, looks, largest, several) for rank, row in enumerate(rows, 1)]
    over = sum(exceeded(row["roof_fraction"]) and not row["l2_assisted"] for row in rows)
    rest = 1.0 - sum(row["share"] or 0.0 for row in rows)
    said = (
        f"Winnable: the time above the roof, time × (1 − roof). {_kinds(answer['kinds'])}",
        f"{OVER}: {text.plural(over, 'row')} above the roof: {WHY_OVER}." if over else "",
        f"Further rows: {text.percent_fine(rest)} of device time." if rest >= 0.0005 else "",
    )
    shown = table(
        f"{text.plural(len(rows), 'kernel')} with most time; press a header to sort, a name for more",
        COLUMNS, lines, head=1, sortable=True,
    )  # fmt: skip
    return Section("kernels", "Top kernels", joined(paragraphs(*said), shown))


def _kinds(kinds: Sequence[Row]) -> str:
    """Which kinds have most to win."""
    worth = sorted((one for one in kinds if one["winnable_ns"]), key=lambda one: -one["winnable_ns"])[:3]
    told = ", ".join(f"{one['kind'].replace('_', ' ')} {text.duration(one['winnable_ns'])}" for one in worth)
    return f"Most by kind, over all signatures: {told}." if told else ""


def _line(rank: int, row: Row, looks: Mapping[str, palette.Look], largest: float, several: bool) -> list[Cell]:
    won, told = winnable_ns(row), roofs.told(row)
    look = looks.get(row["kind"], palette.REST)
    kind = el("span", palette.mark(look), " ", told["kind"], class_="nowrap")
    return [
        Cell(str(rank), rank),
        Cell(_name(row, told, several), row["kernel"].lower()),
        duration(row["est_ns"]),
        Cell(meter(row["share"], told["share"]), row["share"]),
        Cell(meter(won / largest if won is not None and largest else None, told["winnable"]), won),
        Cell(told["of its roof"], None if told["of its roof"] == text.UNKNOWN else row["roof_fraction"]),
        Cell(_bound(row, told), told["bound"]),
        Cell(kind, told["kind"]),
        count(row["calls"]),
        duration(row["mean_ns"]),
    ]


def _bound(row: Row, told: Mapping[str, str]) -> Html:
    if row["evidence"] == "none":
        return el("span", told["bound"])
    evidence = {"borrowed": "borrowed shapes"}.get(row["evidence"], row["evidence"])
    return joined(told["bound"], el("div", f"by {evidence}", class_="soft nowrap"))


def _name(row: Row, told: Mapping[str, str], several: bool) -> Html:
    """The short name, with op and shapes; opened, all that is known of it."""
    short = text.cut_middle(told["kernel"], 80)
    op = "" if told["op"] in {text.UNKNOWN, told["kernel"]} else told["op"]
    shapes = told["shapes"].replace("·", " · ")  # where a line may end
    under = ", ".join(word for word in (op, told["phase"], shapes) if word and word != text.UNKNOWN)
    more = [
        ("name", row["kernel"]), ("module", row["module"]), ("dtypes", told["dtypes"]), ("device", row["device"]),
        ("p50, p95", f"{text.duration(row['p50_ns'])}, {text.duration(row['p95_ns'])}"),
        ("shortest, longest", f"{text.duration(row['min_ns'])}, {text.duration(row['max_ns'])}"),
        ("FLOP/byte, reached", f"{told['FLOP/byte']}, {told['reached']}"),
        ("a call", f"{text.rate(row['flops'], 'FLOP')}, {text.size(row['bytes'])}"),
    ]  # fmt: skip
    listed = [el("div", el("span", f"{name}: ", class_="soft"), told_) for name, told_ in more if told_]
    return el(
        "div",
        el("details", el("summary", short), el("div", *listed)),
        el("div", under, class_="soft") if under else None,
        el("div", row["device"], class_="soft") if several else None,
        class_="kernel",
    )
