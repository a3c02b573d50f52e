"""What a change would do: the step before and after, the rows that change most, and what is taken for granted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from roofwatch.cli.render import kernels, measured, text
from roofwatch.cli.render.diagnosis import wrapped
from roofwatch.cli.render.table import Column, table
from roofwatch.model.whatif import Certainty, Fate

Answer = Mapping[str, Any]
Row = Mapping[str, Any]

INDENT = "   "
SMALL = 0.005  # of the device time: less is not worth a word
COLUMNS = (
    Column("#", right=True),
    Column("kernel", floor=16, apart=True),
    Column("op", floor=12, drop=1),
    Column("shapes", floor=12, drop=3),
    Column("share", right=True),
    Column("time", right=True),
    Column("then", right=True),
    Column("saved", right=True, drop=2),
    Column("bound"),
)
KEPT = {
    Fate.SAME: "of the same roof as before",
    Fate.LATENCY: "latency bound",
    Fate.COMMUNICATION: "communication",
    Fate.COPY: "copies",
    Fate.HOST: "without work of their own",
    Fate.UNKNOWN: "of unknown roof",
}


def report(answer: Answer, title: Sequence[str], room: int) -> str:
    """The whole answer in ``room`` columns."""
    windows = answer["coverage"]["windows"]
    lines = text.joined([text.clean(part) for part in (*title, text.plural(windows, "window")) if part], room)
    if not answer["rows"]:
        return "\n".join(lines) + "\n"
    lines += ["", *wrapped(f"What if: {_change(answer['change'])}", room), *_prediction(answer["prediction"], room)]
    changed = [row for row in answer["rows"] if row["saved_ns"]]
    told = answer["prediction"]["certainty"] == Certainty.TOLD
    none = "No kernel takes another time." if told else "No kernel is known to take another time."
    lines += ["", *(_rows(changed, room) if changed else [none])]
    lines += ["", *_touched(answer, room), *measured.lines(answer, room)]
    assumed = [line for sentence in answer["assumptions"] for line in _bullet(sentence, room)]
    return "\n".join([*lines, "", "Taken for granted", *assumed]) + "\n"


def _change(change: Row) -> str:
    parts = [f"{what} in {change[key]}" for key, what in (("weights", "weights"), ("kv", "keys and values"))
             if change[key]]  # fmt: skip
    parts += [f"the ceilings of {change['device']}"] if change["device"] else []
    factors = (("peak_compute", "peak compute"), ("bandwidth", "bandwidth"))
    parts += [f"{text.plain(change[key])} × the {what}" for key, what in factors if change[key] != 1.0]
    return ", ".join(parts)


def _prediction(told: Row, room: int) -> list[str]:
    """Of the span, a step of it where there are steps; and of the kernels alone. First what the answer is worth."""
    certainty, open_share = told["certainty"], text.percent(told["open_share"])
    if certainty == Certainty.CANNOT_SAY:
        lines = wrapped(f"Cannot say: what {open_share} of the device time would take is not known", room)
        before, after = told["roofed_ns"], told["roofed_new_ns"]
        if before:
            share = 1.0 - after / before
            rest = f"Kernels of known roof: {text.duration(before)}, then {text.duration(after)} ({_less(share)})"
            lines += wrapped(rest, room)
        return lines
    name = "Span for each step" if told["step_ns"] else "Span"
    bound = {Certainty.AT_LEAST: "at least ", Certainty.ABOUT: "about "}.get(certainty, "")
    before, after = (
        (told["step_ns"], told["step_new_ns"]) if told["step_ns"] else (told["span_ns"], told["span_new_ns"])
    )
    lines = _change_line(name, before, after, told["speedup"], bound, room) if before else []
    lines += _change_line("Kernels", told["kernels_ns"], told["kernels_new_ns"], told["kernels_speedup"], bound, room)
    if bound:
        lines += wrapped(f"{bound.strip().capitalize()}: {open_share} of the device time may change, too", room)
    return lines


def _change_line(
    name: str, before: float, after: float | None, speedup: float | None, bound: str, room: int
) -> list[str]:
    share = 1.0 - after / before if before and after is not None else None
    how = f"{_less(share)}{_faster(speedup)}"
    bound = "" if how.startswith("no change") and bound == "about " else bound
    return wrapped(f"{name}: {text.duration(before)}, then {text.duration(after)} ({bound}{how})", room)


def _less(share: float | None) -> str:
    if share is None:
        return text.UNKNOWN
    if abs(share) < SMALL / 10:
        return "no change"
    return f"{text.percent(share)} less" if share > 0 else f"{text.percent(-share)} more"


def _faster(speedup: float | None) -> str:
    return "" if speedup is None or abs(speedup - 1.0) < SMALL / 10 else f", {text.significant(speedup)} × as fast"


def _rows(rows: Sequence[Row], room: int) -> list[str]:
    cells = [_cells(i, row) for i, row in enumerate(rows, 1)]
    return table(*kernels.named_once(COLUMNS, cells, rows), room)


def _cells(number: int, row: Row) -> list[str]:
    bound = row["bound"] if row["bound"] == row["new_bound"] else f"{row['bound']} → {row['new_bound']}"
    saved = row["saved_ns"]
    return [
        str(number),
        text.kernel(row["kernel"]),
        text.UNKNOWN if row["op"] is None else text.clean(row["op"]),
        text.shapes(row["shapes"]),
        text.percent(row["share"]),
        text.duration(row["est_ns"]),
        text.duration(row["new_ns"]),
        text.duration(saved) if saved >= 0 else f"-{text.duration(-saved)}",
        bound,
    ]


def _touched(answer: Answer, room: int) -> list[str]:
    told = answer["touched"]
    parts = [f"{text.percent(told[f'{fate}_share'])} {words}" for fate, words in KEPT.items()
             if (told[f"{fate}_share"] or 0.0) >= SMALL]  # fmt: skip
    changed = f"Touched: {text.percent(told['changed_share'])} of the device time"
    lines = text.joined([changed], room)
    lines += wrapped(f"As long as before: {', '.join(parts)}", room) if parts else []
    if (told["weights_unknown_share"] or 0.0) >= SMALL:
        lines += wrapped(f"Products without known weights: {text.percent(told['weights_unknown_share'])}", room)
    return lines


def _bullet(sentence: str, room: int) -> list[str]:
    first, *rest = wrapped(text.clean(sentence), room - len(INDENT) - 2)
    return [f"{INDENT}- {first}", *(f"{INDENT}  {line}" for line in rest)]
