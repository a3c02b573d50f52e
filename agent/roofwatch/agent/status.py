"""What an agent says about itself to a local tool: asked and answered on its own socket, once a connection."""

from __future__ import annotations

import socket
import struct
from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any

from roofwatch.agent.counters import Counters
from roofwatch.agent.registry import STATUS, Member
from roofwatch.agent.spool import Spool
from roofwatch.hook import protocol
from roofwatch.model.errors import UnreachableError

PROCESSES_MOST = 64  # listed; the answer must fit one message. The count tells of the rest.
MODEL_SHOWN = 48


def report(
    *,
    version: str,
    uptime_s: float,
    members: Iterable[tuple[Member, Mapping[str, Any]]],
    counters: Counters,
    spool: Spool,
    parsing: Mapping[str, int],
    uplink: Mapping[str, Any],
    settings: Mapping[str, Any],
) -> dict[str, Any]:
    """The answer's keys; ``members`` are told with what their windows cost. As ``docs/hook-protocol.md`` lists them."""
    listed = list(members)
    return {
        "version": version,
        "uptime_s": round(uptime_s, 1),
        "processes": len(listed),
        "process_list": [_process(member, budget) for member, budget in listed[:PROCESSES_MOST]],
        "windows": dict(counters.windows),
        "refusals": dict(counters.refusals),
        "asked": dict(counters.asked),
        "reasons": dict(Counter(str(budget["reason"]) for _, budget in listed)),
        "held": dict(counters.held),
        "drops": dict(counters.drops),
        "shapes": dict(counters.shapes),
        "connections": dict(counters.connections),
        "workers": {**counters.workers, **parsing},
        "spool": {"path": str(spool.path), "segments": spool.segments, "windows": spool.windows, "bytes": spool.bytes},
        "captures": dict(counters.captures),
        "traces": dict(counters.traces),
        "uplink": {**counters.uplink, **uplink},
        "settings": dict(settings),
    }


def _process(member: Member, budget: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "pid": member.process.pid,
        "user": member.process.user,
        "model": (member.process.model or "")[:MODEL_SHOWN] or None,
        "rank": member.process.rank,
        "close_path": member.hello.close_path,
        "budget": dict(budget),
    }


def of_user(report: Mapping[str, Any]) -> dict[str, Any]:
    """The answer to a user whose agent it is not: its own processes, and nothing of what others do."""
    shown = ("version", "uptime_s", "processes", "process_list", "reasons", "settings")
    return {**{key: value if key in shown else {} for key, value in report.items()}, "of_user": True}


def request(path: str, timeout_s: float = 5.0) -> dict[str, Any]:
    """Ask the agent that listens on ``path``.

    Raises:
        UnreachableError: nobody listens there, or it does not answer as an agent does.
    """
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    channel = protocol.job_side(sock)
    try:
        # Where many connect at once the system lets us wait for room; a socket of Python's with a timeout would not.
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", int(timeout_s), 0))
        sock.connect(path)
        sock.settimeout(timeout_s)
        with suppress(BrokenPipeError):  # an agent that turns us away has told why before it hung up
            channel.send({"type": STATUS})
        while True:
            for message, _ in channel.receive():
                if message["type"] == STATUS:
                    return {key: value for key, value in message.items() if key != "type"}
                if message["type"] == protocol.REJECTED:
                    raise UnreachableError(f"the agent on {path} turned us away: {message.get('reason')}")
    except (OSError, protocol.ProtocolError, protocol.Closed) as error:
        why = getattr(error, "strerror", None) or str(error) or "it closed the connection"
        raise UnreachableError(f"no agent answers on {path} ({why}); start one with `roofwatch agent`") from error
    finally:
        channel.close()
