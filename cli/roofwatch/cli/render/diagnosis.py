"""``diagnose``: the verdict, then the four parts of the funnel, then what to beware of."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from string import Formatter
from typing import Any

from roofwatch.cli.render import kernels, text
from roofwatch.cli.render.bars import bar, words
from roofwatch.cli.render.table import Column, table
from roofwatch.model.diagnosis import KERNELS
from roofwatch.model.record import Bound
from roofwatch.model.timeline import BUSY_PARTS

Answer = Mapping[str, Any]
Row = Mapping[str, Any]

SMALL = 0.01  # of the span: what is in the way for less needs no fix
FIXES_FROM = 0.05  # of the span: below it a cause is told without its fixes
KERNEL_COMMANDS = 3  # in the text; JSON has one for each row
INDENT = "   "

COLUMNS = (
    Column("#", right=True),
    Column("kernel", floor=16, apart=True),
    Column("op", floor=12, drop=1),
    Column("shapes", floor=12, drop=3),
    Column("calls", right=True, drop=4),
    Column("time", right=True, drop=2),
    Column("bound", floor=7),
    Column("roof", right=True),
    Column("winnable", right=True),
    Column("of all", right=True),
    Column("so far", right=True),
)
UNKNOWN_COLUMNS = (Column("kernel", floor=16, apart=True), Column("op", floor=12), Column("share", right=True))


def report(answer: Answer, title: Sequence[str], room: int) -> str:
    """The whole report in ``room`` columns; a command's line is broken where a shell lets it be."""
    coverage = answer["coverage"]
    parts = [*title, text.plural(coverage["windows"], "window"), *kernels.mfu(coverage)]
    lines = text.joined([text.clean(part) for part in parts if part], room)
    if answer["verdict"]["first_cause"] is None:
        return "\n".join(lines) + "\n"
    lines += ["", *_first(answer["verdict"], room)]
    lines += ["", "1  Where the time went", *_where(answer, room)]
    lines += ["", "2  Kernels worth touching, by what reaching the roof would win back", *_kernels(answer, room)]
    lines += ["", "3  What helps", *_helps(answer["rows"], room)] if answer["rows"] else []
    deeper = _commands(answer, room)
    lines += ["", "4  Look deeper (CMD: the job's command)", *deeper] if deeper else []
    warned = [line for warning in answer["warnings"] for line in _warning(warning, room)]
    lines += ["", "Beware", *warned] if warned else []
    return "\n".join(lines) + "\n"


def _first(verdict: Row, room: int) -> list[str]:
    first, share = verdict["first_cause"], text.percent(verdict["share"])
    system, own = text.percent(verdict["system_share"]), text.percent(verdict["kernels_share"])
    won = f"reaching their roof would win {text.percent(verdict['winnable_share'])}"
    unknown = verdict["unknown_roof_share"] or 0.0
    rest = f", and of {text.percent(unknown)} the roof is unknown" if unknown >= SMALL else ""
    if verdict["stop_kernels"]:
        said = f"Do not tune kernels yet: they take {own}, what is in their way {system}."
    elif first == KERNELS:
        said = f"Of the whole time {won}{rest}; what is in their way takes {system}."
    else:
        said = f"Kernels take {own}, but {won}{rest}."
    return wrapped(f"First: {words(first)}, {share} of the time. {said}", room)


def _where(answer: Answer, room: int) -> list[str]:
    time, overhead = answer["time"], answer["verdict"]["op_overhead_share"] or 0.0
    busy = [f"compute {text.percent(time['compute_share'])}"]
    for part in BUSY_PARTS[1:]:
        busy += [f"{words(part)} {text.percent(time[f'{part}_share'])}"] if time[f"{part}_ns"] else []
    busy += [f"of it dispatch of small ops {text.percent(overhead)}"] if overhead >= SMALL else []
    lines = text.joined([*busy, f"idle {text.percent(_idle(time))}"], room - len(INDENT))
    lines = [INDENT + line for line in [*lines, bar(time, room - len(INDENT))]]
    told = [cause for cause in answer["causes"] if cause["share"] >= SMALL]
    for cause in told:
        lines += _cause(cause, room)
    return lines


def _idle(time: Row) -> float:
    return 1.0 - sum(float(time[f"{part}_share"]) for part in BUSY_PARTS)


def _cause(cause: Row, room: int) -> list[str]:
    """A cause with its evidence, and what is usually done about it."""
    parts = [f"{words(cause['cause'])} {text.percent(cause['share'])}"]
    if cause["count"]:
        parts += [f"{text.count(cause['count'])} times", f"longest {text.duration(cause['longest_ns'])}"]
    if cause["exposed_ns"]:
        parts.append(f"{text.duration(cause['exposed_ns'])} of it exposed work")
    lines = [INDENT + line for line in text.joined(parts, room - len(INDENT))]
    if cause["example"]:
        lines.append(text.cut_middle(f"{INDENT}  {text.clean(cause['example'])}", room))
    if cause.get("peers"):
        lines += wrapped(f"{INDENT}  {_peers(cause['peers'])}", room)
    if cause["share"] >= FIXES_FROM:
        lines += [line for fix in cause["fixes"] for line in _bullet(fix, room)]
    return lines


def _peers(peers: Row) -> str:
    """How much of the time in collectives was waiting, and for whom."""
    seen = peers["moving_ns"] + peers["waiting_ns"]
    least = "at least " if peers["lower_bound"] else ""
    said = (
        f"of the time in collectives that other ranks were seen in, {least}{_share(peers['waiting_ns'], seen)} waited"
    )
    last = peers["last"]
    return said if last is None else f"{said}, most for rank {last['rank']} on {text.clean(last['node'])}"


def _share(part: float, whole: float) -> str:
    return text.percent(part / whole if whole else None)


def _kernels(answer: Answer, room: int) -> list[str]:
    lines = []
    if answer["rows"]:
        cells = [_cells(row) for row in answer["rows"]]
        lines += table(*kernels.named_once(COLUMNS, cells, answer["rows"]), room)
    else:
        lines.append(f"{INDENT}none: no kernel is known to be above its roof")
    unknown = answer["unjudged"]
    if unknown["rows_count"]:
        share = text.percent(unknown["share"])
        said = f"Cannot say: {text.plural(unknown['rows_count'], 'kernel')} of unknown roof, {share} of device time"
        cells = [
            [text.kernel(row["kernel"]), text.clean(row["op"] or text.UNKNOWN), text.percent(row["share"])]
            for row in unknown["rows"]
        ]
        shown = table(*kernels.named_once(UNKNOWN_COLUMNS, cells, unknown["rows"]), room)
        lines += ["", *wrapped(f"{said}; the largest:", room), *shown]
    return lines


def _cells(row: Row) -> list[str]:
    return [
        str(row["rank"]),
        text.kernel(row["kernel"]),
        text.UNKNOWN if row["op"] is None else text.clean(row["op"]),
        text.shapes(row["shapes"]),
        text.count(row["calls"]),
        text.duration(row["est_ns"]),
        row["bound"],
        _roof(row),
        text.duration(row["winnable_ns"]),
        text.percent(row["winnable_share"]),
        text.percent(row["cumulative_share"]),
    ]


def _roof(row: Row) -> str:
    """The roof fraction; a range where the inputs leave the FLOPs open."""
    high = row.get("roof_fraction_max")
    low = kernels.roof(row)
    return low if high is None else f"{low.removesuffix(' %')}–{text.percent(high)}"


def _helps(rows: Sequence[Row], room: int) -> list[str]:
    """The verdict of each kernel in words, and what helps it; said once for kernels that the same helps."""
    alike: dict[tuple[str, ...], list[Row]] = {}
    for row in rows:
        alike.setdefault(tuple(row["advice"]), []).append(row)
    lines = []
    for advice, group in alike.items():
        lines += [line for row in group for line in wrapped(f"{INDENT}{_judged(row)}", room)]
        lines += [line for one in advice for line in _bullet(one, room)]
    return lines


def _judged(row: Row) -> str:
    named = row["bound"] == Bound.COMPUTE and row["precision"] and row["unit"]
    precision = f" in {row['precision']} on the {row['unit']} unit" if named else ""
    kind = row["kind"].replace("_", " ")
    return (
        f"#{row['rank']} {kind}: {row['bound']} bound, at {text.percent(row['roof_fraction'])} of its roof{precision}"
    )


def _commands(answer: Answer, room: int) -> list[str]:
    """The commands with their names, each once; of a kernel of unknown roof where such kernels are much."""
    shown: dict[str, tuple[str, Row]] = {}
    for one in answer["commands"]:
        if one["what"] != "kernel":
            shown.setdefault(one["command"], (f"the {one['what']}", one))
        elif one["rank"] <= KERNEL_COMMANDS:
            shown.setdefault(one["command"], (f"#{one['rank']}", one))
    unknown = answer["unjudged"]
    if (unknown["span_share"] or 0.0) >= FIXES_FROM and unknown["rows"][0]["command"]:
        one = unknown["rows"][0]["command"]
        shown.setdefault(one["command"], ("the largest of unknown roof", one))
    return [line for name, one in shown.values() for line in (f"{INDENT}{name}:", *shell(one["arguments"], room))]


def shell(arguments: Sequence[str], room: int) -> list[str]:
    """A command quoted for a shell, broken between its arguments; an option keeps its value beside it."""
    indent = INDENT + "  "
    lines: list[str] = [indent]
    words_ = [shlex.quote(word) for word in arguments]
    groups: list[str] = []
    for word in words_:
        if groups and groups[-1].startswith("-") and " " not in groups[-1] and not word.startswith("-"):
            groups[-1] += f" {word}"
        else:
            groups.append(word)
    for group in groups:
        fits = text.width(lines[-1]) + text.width(group) + 3 <= room
        if lines[-1].strip() and not fits:
            lines[-1] += " \\"
            lines.append(f"{indent}  {group}")
        else:
            lines[-1] += (" " if lines[-1].strip() else "") + group
    return lines


def _warning(warning: Row, room: int) -> list[str]:
    """A mistake in words, its figures filled in."""
    names = [name for _, name, _, _ in Formatter().parse(warning["text"]) if name]
    figures = {name: _figure(name, warning[name]) for name in names}
    return _bullet(warning["text"].format(**figures), room, INDENT)


def _figure(name: str, value: Any) -> str:
    if name.endswith("_ns"):
        return text.duration(value)
    if name.endswith("share"):
        return text.percent(value)
    return text.cut_middle(text.kernel(value), 40) if isinstance(value, str) else text.count(value)


def _bullet(sentence: str, room: int, indent: str = f"{INDENT}  ") -> list[str]:
    first, *rest = wrapped(text.clean(sentence), room - len(indent) - 2)
    return [f"{indent}- {first}", *(f"{indent}  {line}" for line in rest)]


def wrapped(sentence: str, room: int) -> list[str]:
    """A sentence in lines of at most ``room`` columns, broken at spaces; a longer word is cut."""
    indent = sentence[: len(sentence) - len(sentence.lstrip(" "))]
    lines = [indent]
    for word in sentence.split():
        short = text.cut(word, room - len(indent))
        if lines[-1] != indent and text.width(lines[-1]) + 1 + text.width(short) > room:
            lines.append(indent)
        lines[-1] += short if lines[-1] == indent else f" {short}"
    return lines
