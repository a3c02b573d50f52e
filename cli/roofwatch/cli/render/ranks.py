"""``ranks``: who is late, since when and why; then a step of each rank side by side."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from roofwatch.cli.render import moments, ranks_why, text
from roofwatch.cli.render.bars import words
from roofwatch.cli.render.diagnosis import wrapped
from roofwatch.cli.render.table import Column, table
from roofwatch.model.ranks_report import MEANS, STEPS

Row = Mapping[str, Any]

SMALL = 0.01  # of a step: idle time of less needs no table
RANKS_NAMED = 12
RANKS = (
    Column("rank", right=True),
    Column("node", floor=8, drop=3),
    Column("device", floor=10, drop=4),
    Column("step", right=True),
    Column("compute", right=True),
    Column("comm.", right=True),
    Column("moving", right=True),
    Column("waiting", right=True),
    Column("copies", right=True, drop=1),
    Column("idle", right=True),
    Column("clock", right=True, drop=2),
    Column("late", right=True),
)
ALWAYS = frozenset({"rank", "step", "compute", "comm.", "moving", "waiting", "idle", "late"})


def report(answer: Row, title: Sequence[str], room: int, now_ns: int, source: Sequence[str] = ()) -> str:
    """The verdict in words, the tables, and what to know about them; ``source`` are the next command's words for it."""
    job, basis, rows = answer["job"], answer["basis"], answer["rows"]
    if job is None:
        return "\n".join(text.joined([text.clean(part) for part in title], room)) + "\n"
    parts = dict.fromkeys([*_head(answer), *title[1:]])  # what was asked for may be what the job is called
    lines = text.joined([text.clean(part) for part in parts], room)
    lines += ["", *_verdict(answer, room, now_ns, source)]
    if rows:
        told = "mean of one second" if basis["unit"] == "second" else "mean of one step"
        lines += ["", *wrapped(f"The ranks side by side ({told}, over {_over(basis)}):", room), *_ranks(rows, room)]
        lines += _idle(rows, room)
    lines += [line for note in _notes(answer) for line in ["", *wrapped(note, room)]]
    return "\n".join(lines) + "\n"


def _head(answer: Row) -> list[str]:
    job, rows = answer["job"], answer["rows"]
    devices = list(dict.fromkeys(row["device"] for row in rows if row["device"]))
    parts = [job["job"] or "job without an id", job["model"], job["node"]]
    parts += [f"{job['ranks']} of {text.plural(job['world_size'], 'rank')}"]
    return [part for part in (*parts, devices[0] if len(devices) == 1 else None) if part]


def _over(basis: Row) -> str:
    windows = text.plural(basis["windows"], "window")
    if basis["compared"] == MEANS or not basis["moments"]:
        return f"{windows} of different steps"
    same = "the same steps" if basis["compared"] == STEPS else "the same time"
    few = f" of {text.count(basis['moments'])}" if basis["figured"] < basis["moments"] else ""
    return f"{windows} of {same}, {text.count(basis['figured'])}{few} times"


def _verdict(answer: Row, room: int, now_ns: int, source: Sequence[str]) -> list[str]:
    basis, late = answer["basis"], answer["straggler"]
    if basis["compared"] is None:
        return wrapped("There is nothing to compare: windows of two ranks at least are needed.", room)
    if late is None:
        return wrapped(_nobody(answer), room)
    where = f"rank {late['rank']} on {text.clean(late['node'])} (pid {late['pid']})"
    by = f"{text.duration(late['late_ns'])} a {basis['unit']} late, {text.percent(late['late_share'])} of it"
    lines = wrapped(f"Straggler: {where}, {by}, {_when(late, now_ns)}.", room)
    lines += ranks_why.told(late, basis["unit"], room)
    others = [str(rank) for rank in answer["late"][1:]]
    if others:
        lines += wrapped(f"Late as well: {text.plural(len(others), 'rank')}: {_named(answer['late'][1:])}.", room)
    command = shlex.join(["roofwatch", "diagnose", "--process", late["process"], *source])
    return [*lines, *wrapped(f"→ run: {text.clean(command)}", room)]


def _nobody(answer: Row) -> str:
    basis, last = answer["basis"], answer["basis"]["last"]
    said = "Whether a rank is a straggler cannot be said yet" if basis["undecided"] else "No rank is a straggler"
    if last is None:
        return f"{said}."
    noise = basis["noise_share"]
    around = "" if noise is None else f", and windows differ by {text.percent(noise)} for no reason"
    behind = max(last["late_share"], 0.0)
    return (
        f"{said}: the last one, rank {last['rank']}, is {text.percent(behind)} of a {basis['unit']} behind the others; "
        f"a run of windows with {text.percent(basis['looked_for_share'])} or more is looked for{around}."
        + (" Take more windows, or a longer time with --since." if basis["undecided"] else "")
    )


def _when(late: Row, now_ns: int) -> str:
    if late["since_unix_ns"] is None:
        return "since when is not known, as the ranks' windows share no steps"
    if late["few"]:
        return f"seen in {text.plural(late['windows'], 'window')} only: take more to be sure"
    begun, ended = moments.shown([late["since_unix_ns"], late["until_unix_ns"]], now_ns)
    step = "" if late["since_step"] is None else f" (step {text.count(late['since_step'])})"
    since = f"since {begun}{step}" + (", in all that was seen" if late["from_the_first"] else "")
    return since if late["until_unix_ns"] is None else f"from {begun}{step} until {ended}"


def _ranks(rows: Sequence[Row], room: int) -> list[str]:
    cells = [_cells(row) for row in rows]
    kept = [
        i for i, column in enumerate(RANKS) if column.header in ALWAYS or _tells(column.header, [c[i] for c in cells])
    ]
    return table([RANKS[i] for i in kept], [[line[i] for i in kept] for line in cells], room)


def _tells(header: str, cells: Sequence[str]) -> bool:
    """Whether a column says anything that the head does not."""
    distinct = set(cells)
    return len(distinct) > 1 if header in ("node", "device") else not distinct <= {text.UNKNOWN, "0 s"}


def _cells(row: Row) -> list[str]:
    return [
        str(row["rank"]),
        text.clean(row["node"]),
        text.clean(row["device"] or text.UNKNOWN),
        *(text.duration(row[f"{name}_ns"]) for name in ("step", "compute", "communication", "moving", "waiting")),
        text.duration(row["exposed_copy_ns"]),
        text.duration(row["idle_ns"]),
        ranks_why.clock(row["clock_hz"]) + ("!" if row["throttle"] else ""),
        _late(row),
    ]


def _late(row: Row) -> str:
    share = row["late_share"]
    if share is None:
        return text.UNKNOWN
    return f"{text.percent(share) if share > 0 else '0 %'}{' ←' if row['late'] else ''}"


def _idle(rows: Sequence[Row], room: int) -> list[str]:
    """Idle time by cause, where it is worth a table."""
    causes = {
        cause: max(row["causes"].get(cause, 0) / row["step_ns"] for row in rows)
        for row in rows
        for cause in row["causes"]
    }
    shown = sorted((cause for cause, share in causes.items() if share >= SMALL), key=lambda cause: -causes[cause])
    if not shown:
        return []
    columns = [Column("rank", right=True), *(Column(words(cause), right=True, drop=i) for i, cause in enumerate(shown))]
    cells = [[str(row["rank"]), *(text.duration(row["causes"].get(cause, 0)) for cause in shown)] for row in rows]
    return ["", "Idle without communication, by cause:", *table(columns, cells, room)]


def _named(ranks: Sequence[int]) -> str:
    return ", ".join(map(str, ranks[:RANKS_NAMED])) + (", …" if len(ranks) > RANKS_NAMED else "")


def _notes(answer: Row) -> list[str]:
    """What to know before believing it."""
    job, basis = answer["job"], answer["basis"]
    notes = []
    if job["missing_count"]:
        missing = f"{_named(job['missing'])}"
        notes.append(f"Not seen: {text.plural(job['missing_count'], 'rank')} of {job['world_size']} ({missing}).")
    if basis["compared"] == MEANS:
        notes.append(
            "The ranks' windows share no steps, so means over different steps were compared: who waited for whom is "
            "not known, nor since when."
        )
    elif len(basis["circles"]) > 1:
        apart = " and ".join(f"{{{_named(circle)}}}" for circle in basis["circles"][:3])
        notes.append(f"Ranks {apart} share no steps: between them only means were compared.")
    if any(row["moving_ns"] is None for row in answer["rows"]) and basis["compared"] not in (None, MEANS):
        notes.append(
            "Moving and waiting are not told apart where collectives name no group, or no other rank was seen in them."
        )
    if any(row["throttle"] for row in answer["rows"]):
        notes.append("! after a clock: something held it down in some of the windows.")
    if basis["windows_left_out"] or basis["windows_ambiguous"]:
        count = basis["windows_left_out"] + basis["windows_ambiguous"]
        notes.append(f"Left out: {text.plural(count, 'window')} (too many, or two processes of one rank at one time).")
    return notes
