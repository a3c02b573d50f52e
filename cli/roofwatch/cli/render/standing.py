"""How processes stand and where: what windows may cost and did, interval and reason, pod, container, job."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from roofwatch.cli.render import text
from roofwatch.cli.render.table import Column

Row = Mapping[str, Any]

RESIDUE, UNSUPPORTED = "residue", "unsupported"  # as the agent calls them
NAMED = 3  # processes in a note
SHORT_ID = 12  # digits of a container's or window's id, as container runtimes show them
PROCESS_PLACE = (
    Column("user"),
    Column("own pid", right=True),
    Column("job"),
    Column("pod"),
    Column("container"),
)
BUDGET = (
    Column("budget", right=True),
    Column("balance", right=True),
    Column("cap", right=True),
)
SKIPPED = (Column("not taken"),)
WINDOW_CHARGE = (Column("charged", right=True),)
WINDOW_NAME = (Column("window"),)
SPENT = Column("spent", right=True, drop=4)
EVERY = Column("every", right=True, drop=5)
WHY = Column("why", drop=6)


def spent(row: Row) -> list[str]:
    """What windows cost its job, the interval, and why it is that; a store or agent of earlier versions tells none."""
    every = row.get("interval_ns")
    return [
        text.lost_share(row.get("spent_share")),
        text.duration(every),
        text.clean(row.get("interval_reason") or text.UNKNOWN),
    ]


def left_alone(rows: Sequence[Row]) -> str | None:
    """A sentence about processes that take no windows for an hour since earlier ones left them slower."""
    who = _who(rows, RESIDUE)
    return (
        who and f"{who}: left alone for an hour (residue), since steps stayed slower after windows; then tried again."
    )


def unable(rows: Sequence[Row]) -> str | None:
    """A sentence about processes of which the hook cannot take windows."""
    who = _who(rows, UNSUPPORTED)
    return who and f"{who}: its torch gives no windows as it runs (unsupported): 'roofwatch doctor' says what it can."


def _who(rows: Sequence[Row], reason: str) -> str | None:
    """The processes whose interval is what it is for a reason."""
    pids = [str(row["pid"]) for row in rows if row.get("interval_reason") == reason]
    more = f" and {len(pids) - NAMED} more" if len(pids) > NAMED else ""
    return f"pid {', '.join(pids[:NAMED])}{more}" if pids else None


def budget(row: Row) -> list[str]:
    """What windows may cost, what is left of it, and how many events one may hold."""
    balance = row.get("balance_ns")
    left = text.duration(balance) if balance is None or balance >= 0 else f"-{text.duration(-balance)}"
    return [text.percent_fine(row.get("budget_share")), left, text.count(row.get("event_cap"))]


def place(row: Row) -> list[str]:
    """Whose it is, the pid that it has for itself, its job, pod and container."""
    labels = row["labels"]
    pod = "/".join(name for name in (row.get("namespace"), row.get("pod")) if name)
    cells = (row["user"], labels.get("process.vpid"), row["job"], pod, (row["container"] or "")[:SHORT_ID])
    return [text.clean(cell or text.UNKNOWN) for cell in cells]


def skipped(row: Row) -> list[str]:
    """Windows that were not taken: the most frequent reasons first."""
    counts = row.get("skipped")
    if counts is None:
        return [text.UNKNOWN]
    listed = sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))
    return [text.clean(", ".join(f"{reason} {text.count(many)}" for reason, many in listed) or "0")]


def charged(row: Row) -> list[str]:
    """What a window was charged; "about" where it is an estimate."""
    shown = text.lost_time(row.get("charged_ns"))
    return [f"about {shown}" if row.get("charge_measured") is False and shown != text.UNKNOWN else shown]
