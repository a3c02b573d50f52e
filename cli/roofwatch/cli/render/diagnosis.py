"""``diagnose``: the verdict, then the four parts of the funnel, then what to beware of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from string import Formatter
from typing import Any

from roofwatch.cli.render import ascend, commands, gaps, kernels, measured, text
from roofwatch.cli.render.bars import bar, words
from roofwatch.cli.render.table import Column, table
from roofwatch.model.diagnosis import KERNELS
from roofwatch.model.diagnosis_report import MOSTLY
from roofwatch.model.record import Bound
from roofwatch.model.timeline import BUSY_PARTS

Answer = Mapping[str, Any]
Row = Mapping[str, Any]

SMALL = 0.01  # of the span: what is in the way for less needs no fix
FIXES_FROM = 0.05  # of the span: below it a cause is told without its fixes
ONE_STRETCH = 0.9  # of a cause: then it is one stretch
INDENT = "   "
_UNITS = frozenset({"%", "ns", "µs", "ms", "s", "min", "h", "d"})

COLUMNS = (
    Column("#", right=True),
    Column("kernel", floor=16, apart=True),
    Column("op", floor=12, drop=1),
    Column("shapes", floor=12, drop=3),
    Column("calls", right=True, drop=4),
    Column("time", right=True, drop=2),
    Column("bound"),
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
        begun = _begun(answer["startup"], room)
        return "\n".join([*lines, *(["", *begun[:-1]] if begun else [])]) + "\n"
    lines += ["", *_begun(answer["startup"], room), *first(answer["verdict"], room)]
    lines += ["", "1  Where the time went", *_where(answer, room)]
    lines += ["", "2  Kernels worth touching, by what reaching the roof would win back", *_kernels(answer, room)]
    lines += ["", "3  What helps", *_helps(answer["rows"], room)] if answer["rows"] else []
    deeper = commands.listed(answer, FIXES_FROM, room)
    number = 4 if answer["rows"] else 3
    lines += ["", f"{number}  Look deeper (CMD: the job's command)", *deeper] if deeper else []
    warned = [line for warning in answer["warnings"] for line in _warning(warning, room)]
    lines += ["", "Beware", *warned] if warned else []
    return "\n".join(lines) + "\n"


def _begun(startup: Row | None, room: int) -> list[str]:
    """What start-up took, where it is worth a word: all that follows is of the time without it."""
    if startup is None or (startup["share"] or 0.0) < SMALL:
        return []
    took = f"{text.percent_fine(startup['share'])} of the span, {text.duration(startup['total_ns'])}"
    said = (
        f"Start-up: {took}: loading code, making contexts, capturing graphs, waiting for a first kernel. "
        "It does not come back: record after the warm-up. What follows is about the rest."
    )
    lines = wrapped(said, room)
    if startup["example"]:
        lines += [f"{INDENT}{line}" for line in gaps.told(startup["example"], room - len(INDENT))]
    return [*lines, ""]


def first(verdict: Row, room: int) -> list[str]:
    """What to work on first, and what that is weighed against, in lines of ``room`` columns."""
    cause, share = verdict["first_cause"], text.percent(verdict["share"])
    begun = (verdict["startup_share"] or 0.0) >= SMALL
    time = "the rest" if begun else "the time"
    system, own = text.percent(verdict["system_share"]), text.percent(verdict["kernels_share"])
    unknown = verdict["unknown_roof_share"] or 0.0
    if verdict["winnable_share"] is None:
        won, rest = "what reaching their roof would win is not known", ""
    else:
        won = f"reaching their roof would win {text.percent(verdict['winnable_share'])}"
        rest = f", and of {text.percent(unknown)} the roof is unknown" if unknown >= SMALL else ""
    if verdict["stop_kernels"]:
        said = f"Do not tune kernels yet: they take {own}, what is in their way {system}."
    elif cause == KERNELS and verdict["winnable_share"] is None:
        said = f"Of them {won}; what is in their way takes {system}."
    elif cause == KERNELS:
        said = f"Of {'it' if begun else 'the whole time'} {won}{rest}; what is in their way takes {system}."
    else:
        said = f"Kernels take {own}, but {won}{rest}; what is in their way takes {system}."
    return wrapped(f"First: {words(cause)}, {share} of {time}. {said}", room)


def _where(answer: Answer, room: int) -> list[str]:
    time, overhead = answer["steady"], answer["verdict"]["op_overhead_share"] or 0.0
    told = overhead >= SMALL
    busy = [f"{'kernels' if told else 'compute'} {text.percent(time['compute_share'] - (overhead if told else 0.0))}"]
    busy += [f"dispatch of ops {text.percent(overhead)}"] if told else []
    for part in BUSY_PARTS[1:]:
        busy += [f"{words(part)} {text.percent(time[f'{part}_share'])}"] if time[f"{part}_ns"] else []
    lines = text.joined([*busy, f"idle {text.percent(_idle(time))}"], room - len(INDENT))
    tax = ascend.layout_tax(answer["coverage"], room - len(INDENT))
    lines = [INDENT + line for line in [*lines, bar(time, room - len(INDENT)), *tax]]
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
        parts += _stretches(cause)
    if cause["exposed_ns"]:
        parts.append(f"{text.duration(cause['exposed_ns'])} of it exposed work")
    lines = [INDENT + line for line in text.joined(parts, room - len(INDENT))]
    if cause["example"]:
        lines += [f"{INDENT}  {line}" for line in gaps.told(cause["example"], room - len(INDENT) - 2)]
    if cause.get("peers"):
        lines += wrapped(f"{INDENT}  {_peers(cause['peers'])}", room)
    if cause["share"] >= FIXES_FROM:
        lines += [line for fix in cause["fixes"] for line in _bullet(fix, room)]
    return lines


def _stretches(cause: Row) -> list[str]:
    """How often and how long at most; where one stretch is nearly all of it, the number of the others says nothing."""
    longest, count = text.duration(cause["longest_ns"]), cause["count"]
    if count == 1 or cause["longest_ns"] >= ONE_STRETCH * cause["idle_ns"]:
        return [f"one stretch of {longest}" + (f", and {text.count(count - 1)} tiny" if count > 1 else "")]
    return [f"{text.count(count)} times", f"longest {longest}"]


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
    elif answer["verdict"]["winnable_share"] is None and answer["unjudged"]["rows_count"]:
        lines.append(f"{INDENT}none: of no kernel it is known where its roof is")
        lines += [f"{INDENT}{line}" for line in measured.lines(answer, room - len(INDENT))]
    else:
        lines.append(f"{INDENT}none: no kernel is known to fall short of its roof")
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
    bound = ascend.both_bounds(row)
    said = f"#{row['rank']} {kind}: {bound}, at {text.percent(row['roof_fraction'])} of its roof{precision}"
    if kernels.partly(row):
        said += f", as far as that is known: of {text.percent(row['roofed_share'])} of its time"
    if (row.get("slow_share") or 0.0) > MOSTLY and row["winnable_share"] >= SMALL:
        said += ", most of it in a few slow calls (see Beware)"
    return said


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


def _glued(sentence: str) -> list[str]:
    """The words of a sentence; a figure and its unit are one."""
    found: list[str] = []
    for word in sentence.split():
        if found and word.rstrip(".,:;)") in _UNITS and found[-1][-1:].isdigit():
            found[-1] += f" {word}"
        else:
            found.append(word)
    return found


def wrapped(sentence: str, room: int) -> list[str]:
    """A sentence in lines of at most ``room`` columns, broken at spaces; a longer word is cut."""
    indent = sentence[: len(sentence) - len(sentence.lstrip(" "))]
    lines = [indent]
    for word in _glued(sentence):
        short = text.cut(word, room - len(indent))
        if lines[-1] != indent and text.width(lines[-1]) + 1 + text.width(short) > room:
            lines.append(indent)
        lines[-1] += short if lines[-1] == indent else f" {short}"
    return lines
