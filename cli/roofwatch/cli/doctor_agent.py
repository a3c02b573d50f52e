"""Checks of ``roofwatch doctor`` about the way of a record: the node's agent, its spool, the store that is asked."""

from __future__ import annotations

import shutil
import socket as sockets
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

from roofwatch.cli import doctor_node
from roofwatch.cli.doctor_node import Found
from roofwatch.cli.render.standing import RESIDUE
from roofwatch.cli.render.text import cut, plural
from roofwatch.model.errors import RoofwatchError, UsageError
from roofwatch.store.config import parse_address

LOW_DISK_BYTES = 1 << 30
SPOOL_WAITING = 1000  # windows: an hour and a half of eight processes at one a minute
WHY_LONGEST = 100  # columns of what an agent says of a store it does not reach

# Why windows were lost, in a few words; docs/agent.md says more.
LOST = {
    "trace_missing": "the job sent none",
    "trace_not_regular": "the job sent no file",
    "trace_empty": "an empty file",
    "trace_too_large": "above --trace-mb",
    "trace_sparse": "a file with holes",
    "trace_changed": "written to while it was read",
    "bad_window": "the hook's message makes no sense",
    "parse_queue_full": "traces came faster than they were read",
    "parse_memory": "reading met --worker-memory-mb",
    "parse_time": "reading met --worker-seconds",
    "parse_crash": "the reader died",
    "parse_error": "the trace could not be read",
    "parse_too_large": "the window is above its limit",
    "spool_bytes": "pushed out by newer ones, above --spool-mb",
    "spool_age": "waited longer than --spool-hours",
    "spool_error": "the disk would not take it",
    "store_rejected": "the store will not take it",
    "stopping": "the agent was stopped before it was read",
}


def agent(socket: str) -> Found:
    """The agent of this node."""
    report = _status(socket)
    if report is None:
        return "fail", f"none listens on {socket}", "start one: roofwatch agent"
    many = report["processes"]
    if report.get("of_user"):
        whose = "your process" if many == 1 else "your processes"
        return _with_residue(report, f"the system's, {many} of {whose} registered") or (
            "ok", f"the system's, {many} of {whose} registered", None,
        )  # fmt: skip
    windows = report["windows"]
    what = (
        f"{_processes(many)}, windows: {windows.get('recorded', 0)} recorded, {windows.get('stored', 0)} in the store, "
        f"up {report['uptime_s']:.0f} s"
    )
    lost = {reason: n for reason, n in report["drops"].items() if n}
    if lost:
        told = ", ".join(f"{n} {reason} ({LOST.get(reason, 'see its log')})" for reason, n in lost.items())
        advice = "the agent's log has a line for each, window_lost; limits can be set: roofwatch agent --help"
        return "warn", f"{what}; lost: {told}", advice
    if other := doctor_node.version(report, metadata.version("roofwatch")):
        return "warn", what, other
    return _with_residue(report, what) or ("ok", what, None)


def _with_residue(report: Mapping[str, Any], what: str) -> Found | None:
    """A warning where jobs take no windows because earlier ones left them slower."""
    alone = int(report.get("reasons", {}).get(RESIDUE, 0))
    if not alone:
        return None
    pids = [str(p["pid"]) for p in report.get("process_list", ()) if p.get("budget", {}).get("reason") == RESIDUE]
    who = f" (pid {', '.join(pids[:3])})" if pids else ""
    detail = f"{what}; {_processes(alone)}{who} left alone for an hour: steps stayed slower after windows"
    return "warn", detail, "it tries again by itself; where it comes back: docs/agent.md, residue"


def _processes(many: int) -> str:
    return f"{many} process" if many == 1 else f"{many} processes"


def spool(socket: str) -> Found:
    """What the agent keeps for the store, as it tells."""
    report = _status(socket)
    if report is None:
        return "warn", "unknown without an agent", "start one: roofwatch agent"
    if report.get("of_user"):
        return "ok", "told to the agent's user and root only", None
    kept, uplink = report["spool"], report["uplink"]
    free = shutil.disk_usage(Path(kept["path"]).parent).free
    wait = "waits" if kept["windows"] == 1 else "wait"
    what = f"{plural(kept['windows'], 'window')}, {kept['bytes'] / 1e6:.1f} MB {wait} in {kept['path']}"
    if free < LOW_DISK_BYTES:
        return "warn", f"{what}; the disk has {free / 1e9:.1f} GB left", "make room on that disk"
    if not uplink["connected"]:
        why, advice = _away(uplink)
        return "warn", f"{what}; {why}", advice
    if kept["windows"] > SPOOL_WAITING:
        return "warn", what, "the store is slower than the agents: look at its load"
    return "ok", what, None


def _away(uplink: Mapping[str, Any]) -> tuple[str, str]:
    """Why the agent has no connection, and what to do: of gRPC's words about one the last, which say it."""
    if not uplink["store"]:
        return "the agent has no store", "start it with --store HOST:PORT"
    error = uplink["last_error"] or "not connected"
    why = error.rpartition(": ")[2] if "connect" in error else error
    return f"the agent does not reach {uplink['store']}: {cut(why, WHY_LONGEST)}", "look at the store below"


def store(address: str, socket: str) -> Found:
    """The store that the reading commands ask, and whether the agent here sends to it."""
    from roofwatch.cli.asking import ask  # noqa: PLC0415
    from roofwatch.store.filter import Filter  # noqa: PLC0415

    try:
        answer = ask("nodes", Filter(), 1, store=address, db=None)
    except UsageError as error:
        return "fail", str(error).split(": give")[0], "give HOST:PORT with --store or ROOFWATCH_STORE"
    except RoofwatchError as error:
        return "fail", str(error).split(": start")[0], "start one: roofwatch store serve"
    what = f"{address} has {plural(answer['coverage']['windows'], 'window')}"
    other = (_status(socket) or {}).get("uplink", {}).get("store")
    if other and not same_store(other, address):
        advice = f"ask that one (--store {other}, or ROOFWATCH_STORE), or start the agent with --store {address}"
        return "warn", f"{what}; the agent here sends to another store, {other}", advice
    return "ok", what, None


def same_store(one: str, other: str) -> bool:
    """Whether two addresses are one: the same port, and names that mean a machine in common."""
    if one == other:
        return True
    try:
        (host, port), (host2, port2) = parse_address(one), parse_address(other)
        return port == port2 and bool(_machines(host) & _machines(host2))
    except (RoofwatchError, OSError, UnicodeError):  # a name that nobody knows
        return False


def _machines(host: str) -> set[str]:
    found = {str(info[4][0]) for info in sockets.getaddrinfo(host, None, type=sockets.SOCK_STREAM)}
    return {"127.0.0.1" if address == "::1" else address for address in found}


def _status(socket: str) -> dict[str, Any] | None:
    """What the agent says of itself; None where none listens."""
    from roofwatch.agent import status  # noqa: PLC0415  # --help must not pay for it

    try:
        return status.request(socket)
    except RoofwatchError:
        return None
