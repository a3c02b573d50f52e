"""``regressions``: the two sides, how the devices ran, what became slower, and what else changed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from roofwatch.cli.render import text
from roofwatch.cli.render.diagnosis import wrapped
from roofwatch.cli.render.kernels import named_once
from roofwatch.cli.render.regression_changes import between, change, limit, signed, values
from roofwatch.cli.render.regression_verdict import found as found  # noqa: PLC0414 - the report draws it, too
from roofwatch.cli.render.regression_verdict import too_few
from roofwatch.cli.render.table import Column, table
from roofwatch.model.regression import Verdict

Answer = Mapping[str, Any]
Row = Mapping[str, Any]
State = dict[tuple[str, ...], tuple[str, str]]  # what a row is of → its verdict, and a line that tells it

UNCLEAR_FROM = 0.01  # of device time: an unclear kernel of less is counted only…
UNCLEAR_MOST = 5  # …as are further ones
_STILL = frozenset({Verdict.SAME, Verdict.UNCLEAR})
_TIMES = {"wall": "on the wall", "wall_profiled": "on the wall, inside windows", "device": "on the device"}
_BLOCKS = {"device": "each device compared with itself", "rank": "each rank compared with itself", "none": ""}
COLUMNS = (
    Column("verdict"),
    Column("kernel", floor=14, apart=True),
    Column("op", floor=10, drop=1),
    Column("before", right=True),
    Column("after", right=True),
    Column("change", right=True),
    Column("between", right=True),
    Column("of time", right=True, drop=2),
)


@dataclass(frozen=True, slots=True)
class Head:
    """What was asked: the shared filter in words, the texts that choose each side, whether all rows are wanted."""

    shared: Sequence[str]
    before: Sequence[str]
    after: Sequence[str]
    everything: bool = False


def report(answer: Answer, head: Head, room: int) -> str:
    """The whole report in ``room`` columns."""
    lines = text.joined([text.clean(part) for part in head.shared], room)
    lines += sides(answer, head, room)
    if not answer["devices"]:
        return "\n".join(lines) + "\n"
    lines += ["", *wrapped(found(answer), room)]
    lines += [line for step in answer["steps"] for line in wrapped(step_line(step), room)]
    lines += ["", *(line for device in answer["devices"] for line in device_line(device, room))]
    told = rows_told(answer, everything=head.everything)
    if told:
        lines += ["", *table(*named_once(COLUMNS, [cells(row) for row in told], told), room)]
    lines += [line for note in notes(answer, told) for line in ["", *wrapped(note, room)]]
    return "\n".join(lines) + "\n"


def sides(answer: Answer, head: Head, room: int) -> list[str]:
    """What the two sides are: how they were chosen, windows, processes, nodes."""
    lines = []
    for name, chosen in (("before", head.before), ("after", head.after)):
        side = answer["sides"][name]
        used = "" if side["windows"] == side["windows_used"] else (
            f", {text.count(side['windows_used'])} used ({_left_out(side['left_out'])})"
        )  # fmt: skip
        parts = [text.clean(" ".join(chosen)), text.plural(side["windows"], "window") + used]
        if side["windows"]:
            nodes = side["nodes"]
            where = nodes[0] if len(nodes) == 1 else text.plural(len(nodes), "node")
            processes = "1 process" if side["processes"] == 1 else f"{text.count(side['processes'])} processes"
            parts.append(f"{processes} on {text.clean(where)}")
        first, *rest = text.joined(parts, room - 8)
        lines += [f"{name:<8}{first}", *(f"{'':<8}{line}" for line in rest)]
    return lines


def _left_out(counts: Row) -> str:
    """Why windows were not used."""
    words = {
        "without_kernels": "without kernels",
        "other_device": "on a device that the other side has none of",
        "not_sampled": "beyond the sample",
    }
    return ", ".join(f"{text.count(counts[name])} {said}" for name, said in words.items() if counts[name])


def step_line(step: Row) -> str:
    """One time of whole steps, in a sentence."""
    before, after = text.duration(step["before_ns"]), text.duration(step["after_ns"])
    said = f"Step {_TIMES[step['time']]}: {before} before, {after} after"
    if step["ratio_low"] is None or step["ratio_high"] is None:
        return f"{said}."
    said += f", {signed(step['ratio'])} ({between(step['ratio_low'], step['ratio_high'])})"
    words = {"slower": ": slower", "faster": ": faster", "clock": ": a lower clock explains it"}
    return f"{said}{words.get(step['verdict'], '')}."


def device_line(device: Row, room: int) -> list[str]:
    """How the devices ran, and how they were compared."""
    clock = device["clock"]
    parts = [text.clean(device["device"])]
    if clock is None:
        parts.append("clock not read")
    else:
        lower = ": lower" if clock["ratio_high"] < 1 else ": higher" if clock["ratio_low"] > 1 else ""
        parts.append(f"clock {clock['before_hz'] / 1e6:,.0f} → {clock['after_hz'] / 1e6:,.0f} MHz{lower}")
    parts.append(_both("power cap", device["power_limit_w"], " W"))
    parts.append(_throttle(device["throttle"]))
    blocks = _BLOCKS[device["blocks"]]
    parts += [f"{blocks} ({device['blocks_count']})"] if blocks and device["blocks_count"] > 1 else []
    return text.joined(parts, room)


def _both(name: str, values: Row | None, unit: str) -> str:
    if values is None:
        return f"{name} not read"
    before, after = (text.UNKNOWN if v is None else f"{v:,.0f}" for v in (values["before"], values["after"]))
    return f"{name} {before}{unit}" if before == after else f"{name} {before} → {after}{unit}"


def _throttle(throttle: Row | None) -> str:
    if throttle is None:
        return "throttling not read"
    told = []
    for side in ("before", "after"):
        reasons = throttle[side]
        if reasons is None:
            told.append(f"{side} not read")
        else:
            told += [f"{text.clean(reason)} {side} {text.percent(share)}" for reason, share in reasons.items()]
    return f"throttled: {', '.join(told)}" if told else "not throttled"


def rows_told(answer: Answer, *, everything: bool = False) -> list[Row]:
    """The rows that a table shows: all that changed, and of those that nobody can tell what seems slower or is large;
    or ``everything``.
    """  # noqa: D205 - one thought
    if everything:
        return list(answer["rows"])
    told = [row for row in answer["rows"] if row["verdict"] not in _STILL]
    return told + [row for row in answer["rows"] if _doubtful(row)][:UNCLEAR_MOST]


def _doubtful(row: Row) -> bool:
    share: float = max(row["share_before"], row["share_after"])
    return row["verdict"] == Verdict.UNCLEAR and share >= UNCLEAR_FROM


def cells(row: Row) -> list[str]:
    """A row of the table, by COLUMNS."""
    before, after = values(row)
    return [
        row["verdict"].replace("_", " "),
        text.kernel(row["kernel"]),
        text.UNKNOWN if row["op"] is None else text.clean(row["op"]),
        before,
        after,
        *change(row),
        text.percent(max(row["share_before"], row["share_after"])),
    ]


def notes(answer: Answer, told: Sequence[Row]) -> list[str]:
    """What to beware of, and what the table of the rows ``told`` leaves out."""
    found = [text.clean(warning["text"][:1].upper() + warning["text"][1:]) for warning in answer["warnings"]]
    counts = answer["verdict"]["verdicts"]
    if replaced := [row for row in told if row["kernels_before"] and row["kernels_after"]
                    and row["kernels_before"] != row["kernels_after"]]:  # fmt: skip
        names = [f"{_names(row['kernels_before'])} → {_names(row['kernels_after'])}" for row in replaced[:5]]
        found.append(f"Other kernels for the same work: {'; '.join(names)}.")
    unclear = counts.get(Verdict.UNCLEAR, 0) - sum(row["verdict"] == Verdict.UNCLEAR for row in told)
    if unclear > 0:
        found.append(
            f"{text.plural(unclear, 'further kernel')} unclear: a slowdown that matters could hide in the noise "
            "(--limit 0 shows all)."
        )
    hidden = sum(n for v, n in counts.items() if v not in _STILL) - sum(row["verdict"] not in _STILL for row in told)
    if hidden > 0:
        found.append(f"{text.plural(hidden, 'row')} more: --limit 0 shows all.")
    rest = [(d["rest"]["signatures"], d["rest"]["share_after"]) for d in answer["devices"]]
    if count := sum(n for n, _ in rest):
        least = limit(answer["query"]["least_share"])
        share = text.percent(max(share for _, share in rest))
        found.append(
            f"Not tested: {text.plural(count, 'kernel')} below {least} of device time each, {share} together "
            "(--least-share 0 tests all)."
        )
    return found


def _names(kernels: Sequence[str]) -> str:
    return ", ".join(text.cut_middle(text.kernel(name), 30) for name in kernels[:3]) + (
        ", …" if len(kernels) > 3 else ""
    )


def state(answer: Answer) -> State:
    """What --watch compares: every verdict that is not "same" or "unclear", and whether there are enough windows."""
    known: State = {}
    for row in answer["rows"]:
        if row["verdict"] in _STILL:
            continue
        of = (row["device"], row["op"] or "", row["phase"], row["module"] or "", str(row["shapes"]), str(row["dtypes"]))
        before, after = values(row)
        grown, ends = change(row)
        name = text.cut_middle(text.kernel(row["kernel"]), 40)
        line = f"{name}  {before} → {after}  {grown} ({ends})"
        known[(*of, *row["kernels_before"], *row["kernels_after"])] = (row["verdict"], line)
    for step in answer["steps"]:
        if step["finding"] or step["verdict"] == Verdict.CLOCK:
            known["step", step["device"], step["time"]] = (step["verdict"], step_line(step))
    if answer["devices"] and not answer["verdict"]["complete"]:
        known["complete",] = ("incomplete", too_few(answer))
    return known


def changes(before: State, after: State, now_ns: int) -> str:
    """What changed between two states, one line each."""
    at = f"{datetime.fromtimestamp(now_ns / 1e9).astimezone():%H:%M:%S}"
    lines = []
    for key in sorted({*before, *after}):
        was, now = before.get(key), after.get(key)
        if now is not None and (was is None or was[0] != now[0]):
            lines.append(f"{at}  {now[0].replace('_', ' ')}: {now[1]}")
        elif now is None and was is not None:
            lines.append(f"{at}  no longer {was[0].replace('_', ' ')}: {was[1]}")
    return "".join(f"{line}\n" for line in lines)
