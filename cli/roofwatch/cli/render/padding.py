"""What padding takes: lengths and utilisation, device time by how it scales, a table of schemes, what to do."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from roofwatch.cli.render import text
from roofwatch.cli.render.diagnosis import wrapped
from roofwatch.cli.render.table import Column, table
from roofwatch.model.padding_report import ALREADY, BUCKET, FREE, STAY
from roofwatch.model.padding_schemes import BUCKETS, PADDING_FREE
from roofwatch.model.padding_split import Scaling

Answer = Mapping[str, Any]
Row = Mapping[str, Any]

INDENT = "   "
WIDE = 100_000  # columns: sentences that a page breaks
MUCH = 0.1  # of what a prediction rests on: then it is said what is taken for granted about it
UNTIMED = (Column("batches"), Column("tokens used", right=True), Column("attention used", right=True))
TIMED = (
    *UNTIMED,
    Column("saved split", right=True),
    Column("saved sorted", right=True),
    Column("device-h a day", right=True, drop=1),
)


def report(answer: Answer, title: Sequence[str], room: int) -> str:
    """The whole answer in ``room`` columns."""
    lines = text.joined([text.clean(part) for part in (*title, *_windows(answer)) if part], room)
    if answer["utilisation"]["linear"] is None:
        return "\n".join(lines) + "\n"
    lines += ["", *_lengths(answer, room), *_split(answer["split"], room)]
    lines += ["", *_schemes(answer, room)]
    lines += ["", *_recommended(answer, room)]
    assumed = [line for sentence in _assumed(answer) for line in _bullet(sentence, room)]
    lines += ["", "Taken for granted", *assumed] if assumed else []
    beware = [line for sentence in _beware(answer) for line in _bullet(sentence, room)]
    lines += ["", "Beware", *beware] if beware else []
    return "\n".join(lines) + "\n"


def _windows(answer: Answer) -> list[str]:
    whole, told = answer["coverage"]["windows"], answer["lengths"]["windows"]
    if not whole or "processes" not in answer:
        return []
    parts = [text.plural(whole, "window") + ("" if told == whole else f", {text.count(told)} with lengths")]
    count = answer["processes"]
    return [*parts, "1 process" if count == 1 else f"{text.count(count)} processes"] if count else parts


def _lengths(answer: Answer, room: int) -> list[str]:
    found, used = answer["lengths"], answer["utilisation"]
    batch = "1 batch" if found["batches"] == 1 else f"{text.count(found['batches'])} batches"
    parts = [f"Lengths: {text.plural(found['sequences'], 'sequence')} in {batch}"]
    if found["shortest"] is not None:
        parts += [f"{text.count(found['shortest'])} to {text.count(found['longest'])} tokens"]
        parts += [f"median {text.count(found['p50'])}", f"95 % up to {text.count(found['p95'])}"]
        parts += [f"padded to {_whole(found['padded_length'])}"]
    percent = text.percent_fine
    words = f"Used: {percent(used['linear'])} of the tokens, {percent(used['quadratic'])} of their squares (attention)"
    return [*text.joined(parts, room), *text.joined([words], room)]


def _whole(value: float | None) -> str:
    """A length; of several an average, marked."""
    if value is None:
        return text.UNKNOWN
    near = round(value)
    return text.count(near) if abs(value - near) < 1e-6 * value else f"{text.count(near)} on average"


def _split(split: Row | None, room: int) -> list[str]:
    if split is None:
        return []
    shares = [(how, split[f"{how}_share"]) for how in Scaling if split[f"{how}_share"]]
    return text.joined(["Device time: " + " · ".join(f"{how} {text.percent(share)}" for how, share in shares)], room)


def _timed(answer: Answer) -> bool:
    return any(row["saved_share"] is not None for row in answer["rows"])


def schemes(answer: Answer) -> tuple[list[Column], list[list[str]]]:
    """The ways to batch as columns and cells."""
    timed = _timed(answer)
    columns = [c for c in (TIMED if timed else UNTIMED) if c.drop == 0 or answer["device_hours_per_day"] is not None]
    return columns, [_cells(row, len(columns)) for row in answer["rows"]]


def _schemes(answer: Answer, room: int) -> list[str]:
    return table(*schemes(answer), room)


def said(answer: Answer) -> list[str]:
    """Lengths, device time and what is recommended, in sentences."""
    return [*_lengths(answer, WIDE), *_split(answer["split"], WIDE), *_recommended(answer, WIDE)]


def recommended(answer: Answer) -> str:
    """What to do, and why."""
    return " ".join(_recommended(answer, WIDE)[:2])


def cautions(answer: Answer) -> list[str]:
    """What the predictions take for granted, and what to beware of."""
    return [text.clean(sentence) for sentence in (*_assumed(answer), *_beware(answer))]


def _cells(row: Row, count: int) -> list[str]:
    used = [text.percent_fine(row["linear_utilisation"]), text.percent_fine(row["quadratic_utilisation"])]
    hours = [row[f"{how}saved_device_hours_per_day"] for how in ("", "sorted_")]
    best = max((value for value in hours if value is not None), default=None)
    base = row["scheme"] not in {BUCKETS, PADDING_FREE}
    saved = ["" if base else text.percent(row["saved_share"])]
    saved += [text.percent(row["sorted_saved_share"]) if row["scheme"] == BUCKETS else ""]
    saved += ["" if base else text.plain(best) if best is None or best >= 0 else f"-{text.plain(-best)}"]
    return [_name(row), *used, *saved][:count]


def _name(row: Row) -> str:
    if row["scheme"] == BUCKETS:
        return text.plural(row["buckets"], "bucket")
    return "padding-free" if row["scheme"] == PADDING_FREE else "as they are"


def _recommended(answer: Answer, room: int) -> list[str]:
    told = answer["recommendation"]
    names = {STAY: "stay as it is", FREE: "padding-free", ALREADY: "nothing, it is padding-free already"}
    do = told["do"]
    said = f"Recommended: {_buckets(told) if do == BUCKET else names[do]}."
    lines = [*wrapped(said, room), *wrapped(told["reason"], room)]
    if told["demands"]:
        lines += ["It asks for:", *(line for one in told["demands"] for line in _bullet(one, room))]
    return lines


def _buckets(told: Row) -> str:
    if told["buckets"] is None:
        return "buckets"
    how = {"split": ", each batch split", "sorted": ", batches sorted into them"}[told["how"]]
    up_to = ", ".join(text.count(bound) for bound in told["boundaries"])
    return f"{text.plural(told['buckets'], 'bucket')} up to {up_to} tokens{how}"


def _assumed(answer: Answer) -> Iterator[str]:
    if not _timed(answer):
        return
    yield (
        "each kernel keeps the share of its roof that it reaches now; weights are read once a batch, however small it "
        "is, and what is latency bound takes as long as before"
    )
    yield "device time only: more and smaller batches also mean more launches and, in training, another order"
    if answer["device_hours_per_day"] is not None:
        period, rate = text.duration(answer["period_ns"]), text.significant(answer["device_hours_per_day"])
        yield f"a day like the {period} in which jobs were seen to run: {rate} device-hours a day in all"
    split = answer["split"]
    for name, means in (("unroofed", "of unknown roof: it shrinks with its work"), ("latency", "latency bound")):
        if (split[f"{name}_share"] or 0.0) >= MUCH:
            yield f"{text.percent(split[f'{name}_share'])} of linear and quadratic is {means}"


def _beware(answer: Answer) -> Iterator[str]:
    lengths, split = answer["lengths"], answer["split"]
    if split is not None and not split["fits"] and answer["recommendation"]["do"] != ALREADY:
        yield "few kernels have the shapes of these batches, so no savings of device time are told"
    if split is not None and (split["packed_attention_share"] or 0.0) > 0:
        share = text.percent(split["packed_attention_share"])
        yield f"{share} of the time in attention works on packed sequences already: there is no padding in it"
    if split is not None and (split["unknown_share"] or 0.0) >= MUCH:
        yield f"{text.percent(split['unknown_share'])} of the device time has no shapes: savings count none of it"
    if lengths["unread"]:
        yield f"the lengths of {text.plural(lengths['unread'], 'more batch')} could not be read".replace(
            "batchs", "batches"
        )
    if lengths["coarsened"]:
        yield f"{text.plural(lengths['coarsened'], 'length')} rounded up, since there are too many different ones"
    if answer.get("windows_left_out"):
        earliest = text.plural(answer["windows_left_out"], "earliest window")
        yield f"too many lengths: those of the {earliest} are left out"
    if answer.get("processes_left_out"):
        yield f"{text.count(answer['processes_left_out'])} more processes told lengths: narrow the selection"
    if answer.get("processes_without_lengths"):
        yield f"{text.count(answer['processes_without_lengths'])} of the selected processes told none and are left out"


def _bullet(sentence: str, room: int) -> list[str]:
    first, *rest = wrapped(text.clean(sentence), room - len(INDENT) - 2)
    return [f"{INDENT}- {first}", *(f"{INDENT}  {line}" for line in rest)]
