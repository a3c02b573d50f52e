"""``nodes``, ``processes`` and ``windows``: one line a thing."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from roofwatch.cli.render import moments, standing, text
from roofwatch.cli.render.table import Column, table

Row = Mapping[str, Any]
Cells = Callable[[Row, int], list[str]]  # of a row, at a time (Unix ns)

NODES = (
    Column("node", floor=12),
    Column("device", floor=16),
    Column("seen", right=True),
    Column("processes", right=True),
    Column("windows", right=True),
    Column("busy", right=True),
    Column("MFU", right=True),
    Column("device time", right=True, drop=1),
    Column("dropped", right=True),
)
PROCESSES = (
    Column("node", floor=8, drop=2),
    Column("pid", right=True),
    Column("model", floor=10),
    Column("rank", right=True),
    Column("device", floor=14, drop=1),
    Column("seen", right=True),
    Column("windows", right=True),
    Column("steps", right=True),
    Column("busy", right=True),
    Column("MFU", right=True, drop=3),
    Column("cost", right=True),
    standing.SPENT,
    standing.EVERY,
    standing.WHY,
)
WINDOWS = (
    Column("start"),
    Column("node", floor=8, drop=2),
    Column("pid", right=True),
    Column("model", floor=8, drop=3),
    Column("steps", right=True),
    Column("length", right=True),
    Column("records", right=True),
    Column("busy", right=True),
    Column("MFU", right=True, drop=2),
    Column("linked", right=True),
    Column("judged", right=True),
    Column("lost", right=True),
    Column("close", drop=1),
    standing.SPENT,
    standing.EVERY,
    standing.WHY,
)
WIDE = 1 << 20  # columns: nothing is cut


def nodes(answer: Mapping[str, Any], room: int, now_ns: int) -> str:
    """One line a node, most device time first."""
    return _lines(NODES, answer["rows"], _node, room, now_ns)


def processes(answer: Mapping[str, Any], room: int, now_ns: int, *, wide: bool = False) -> str:
    """One line a process, the last seen first; ``cost`` is the share of its time that windows took.

    ``wide``: with place, budget and what was not taken, in lines as long as they are.
    """
    told = _nearly(answer["rows"], "lost_share", room)
    for note in (standing.left_alone(answer["rows"]), standing.unable(answer["rows"])):
        told += "\n".join(["", *textwrap.wrap(text.clean(note), room)]) + "\n" if note else ""
    if not wide:
        return _lines(PROCESSES, answer["rows"], _process, room, now_ns) + told
    columns = (*PROCESSES, *standing.BUDGET, *standing.PROCESS_PLACE, *standing.SKIPPED)
    return _lines(columns, answer["rows"], _wide_process, WIDE, now_ns) + told


def windows(answer: Mapping[str, Any], room: int, now_ns: int, *, wide: bool = False) -> str:
    """One line a window, the latest first; ``lost`` is the time that it cost the job.

    ``wide``: with what it was charged, the budget, and its name, in lines as long as they are.
    """
    starts = moments.shown([row["start_unix_ns"] for row in answer["rows"]], now_ns)
    columns = (*WINDOWS, *standing.WINDOW_CHARGE, *standing.BUDGET, *standing.WINDOW_NAME) if wide else WINDOWS
    cells = [
        [start, *_window(row), *([*standing.charged(row), *standing.budget(row), row["uid"]] if wide else [])]
        for start, row in zip(starts, answer["rows"], strict=True)
    ]
    drawn = table(columns, cells, WIDE if wide else room)
    return "\n".join(drawn) + "\n" + _nearly(answer["rows"], "lost_ns", room) if cells else ""


def _nearly(rows: Sequence[Row], key: str, room: int) -> str:
    """What "≈ 0" stands for, where it stands; of single windows with what that is here."""
    hidden = [row for row in rows if row[key] is not None and (row[key] < 0 or _noise(row))]
    if not hidden:
        return ""
    most = 2 * max(row.get("lost_noise_ns") or 0 for row in hidden)
    here = f", here up to {text.duration(most)}" if most and key == "lost_ns" else ""
    said = f"{text.NEARLY} 0: below zero, or within twice what windows of the process vary by for nothing{here}"
    lines = textwrap.wrap(f"{said} (JSON: lost_ns, lost_noise_ns)", room, break_on_hyphens=False)
    return "\n".join(["", *lines]) + "\n"


def _lines(columns: Sequence[Column], rows: Sequence[Row], cells: Cells, room: int, now_ns: int) -> str:
    if not rows:
        return ""
    return "\n".join(table(columns, [cells(row, now_ns) for row in rows], room)) + "\n"


def _node(row: Row, now_ns: int) -> list[str]:
    return [
        text.clean(row["node"]),
        _devices(row),
        ago(row["last_seen_unix_ns"], now_ns),
        text.count(row["processes"]),
        text.count(row["windows"]),
        text.percent(row["busy_share"]),
        text.mfu(row["mfu"], row["mfu_known_share"]),
        text.duration(row["device_time_ns"]),
        text.count(sum(row["agent_drops"].values())),
    ]


def _wide_process(row: Row, now_ns: int) -> list[str]:
    return [*_process(row, now_ns), *standing.budget(row), *standing.place(row), *standing.skipped(row)]


def _process(row: Row, now_ns: int) -> list[str]:
    seen_ns = max(row["last_window_unix_ns"] or 0, row.get("told_unix_ns") or 0) or None
    rank = text.UNKNOWN if row["rank"] is None else f"{row['rank']}/{row['world_size'] or '?'}"
    return [
        text.clean(row["node"]),
        str(row["pid"]),
        text.clean(row["model"] or text.UNKNOWN),
        rank,
        _devices(row),
        text.UNKNOWN if seen_ns is None else ago(seen_ns, now_ns),
        text.count(row["windows"]),
        text.count(row["steps"]),
        text.percent(row["busy_share"]),
        text.mfu(row["mfu"], row["mfu_known_share"]),
        f"{text.NEARLY} 0 %" if row["lost_share"] is not None and _noise(row) else text.lost_share(row["lost_share"]),
        *standing.spent(row),
    ]


def _window(row: Row) -> list[str]:
    return [
        text.clean(row["node"]),
        str(row["pid"]),
        text.clean(row["model"] or text.UNKNOWN),
        text.count(row["steps"]),
        text.duration(row["duration_ns"]),
        text.count(row["device_records"]),
        text.percent(row["busy_ns"] / row["span_ns"] if row["span_ns"] else None),
        text.mfu(row["mfu"], row["mfu_known_share"]),
        text.percent(row["linked_share"]),
        text.percent(row["classified_share"]),
        f"{text.NEARLY} 0" if _noise(row) else text.lost_time(row["lost_ns"]),
        row["close_path"] or text.UNKNOWN,
        *standing.spent(row),
    ]


def _noise(row: Row) -> bool:
    """Whether the time lost is less than what it varies by for nothing: within two deviations."""
    noise = row.get("lost_noise_ns")  # a store of an earlier version tells none
    return noise is not None and row["lost_ns"] is not None and row["lost_ns"] < 2 * noise


def _devices(row: Row) -> str:
    """How many of what: "8 × NVIDIA H100", "? ×" where nobody knows; one that its trace does not name is told so."""
    if row["device"] is None and not row["devices"]:
        return text.UNKNOWN  # it took no window that would tell
    names = [name or "unnamed device" for name in (row["device"] or "").split(", ")]
    many = "?" if row["devices"] is None else text.count(row["devices"])
    return f"{many} × {text.clean(', '.join(names))}"


def ago(unix_ns: int, now_ns: int) -> str:
    """How long ago, in the largest whole unit: "5 s", "3 min", "2 h", "12 d"; nothing lies in the future."""
    seconds = max(0, (now_ns - unix_ns) // 10**9)
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds // size} {unit}"
    return f"{seconds} s"


def checks(answer: Mapping[str, Any], room: int) -> str:
    """The doctor's lines; advice stands under what it is for. Nothing is cut: a path is wanted whole."""
    del room
    lines = []
    for row in answer["rows"]:
        lines.append(f"{row['status']:<4}  {row['check']:<11}  {text.clean(row['detail'])}")
        if row["advice"]:
            lines.append(f"{'':<19}→ {text.clean(row['advice'])}")
    return "\n".join(lines) + "\n"


DEVICES = (
    Column("device", floor=20),
    Column("bandwidth", right=True),
    Column("fp32", right=True),
    Column("bf16", right=True),
    Column("fp16", right=True, drop=1),
    Column("tf32", right=True, drop=2),
    Column("ridge", right=True),
    Column("source"),
)


def devices(answer: Mapping[str, Any], room: int) -> str:
    """Peaks in FLOP/s (fp32: vector unit; the others: matrix unit) and the ridge of the matrix unit's fastest kind."""
    lines = table(DEVICES, [_device(row) for row in answer["rows"]], room)
    return "\n".join([*lines, "", "bandwidth in bytes/s, peaks in FLOP/s: fp32 vector, the others matrix unit"]) + "\n"


def _device(row: Row) -> list[str]:
    flops, bandwidth = row["peaks"]["flops"], row["peaks"]["bandwidth"]

    def peak(name: str) -> float | None:
        return flops[name]["value"] if name in flops else None

    half = peak("bf16/matrix") or peak("fp16/matrix") or peak("fp32/matrix")
    beta = bandwidth["value"] if bandwidth else None
    sources = {entry["source"] for entry in [*flops.values(), *([bandwidth] if bandwidth else [])]}
    name = text.clean(row["model"] or "unnamed device")
    return [
        f"{text.plural(row['units'], 'thread')} of {name}" if row["vendor"] == "cpu" else name,
        text.rate(beta, ""),
        text.rate(peak("fp32/vector"), ""),
        text.rate(peak("bf16/matrix"), ""),
        text.rate(peak("fp16/matrix"), ""),
        text.rate(peak("tf32/matrix"), ""),
        text.plain(half / beta if half and beta else None),
        ("+".join(sorted(sources)) or text.UNKNOWN) + (" ?" if row["uncertain"] else ""),
    ]
