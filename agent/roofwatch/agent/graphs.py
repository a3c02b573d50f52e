"""What processes told of their graphs: op logs, kept while they are registered, handed on with windows that need them.

The daemon keeps a log as text and looks at nothing in it but its key: the parse worker reads it, under its limits.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from roofwatch.agent.registry import Member

PROCESS_BYTES = 8 << 20  # as much as a hook keeps
TOTAL_BYTES = 128 << 20  # of all processes; what comes later is not kept
MOST_LOGS = 4096  # of a process
_NOTE = "graph logs"


def _text(value: Any) -> str:
    """JSON text of what came as JSON; empty where it is nested as deep as it could be read."""
    try:
        return json.dumps(value, separators=(",", ":"))
    except (ValueError, RecursionError):
        return ""


class GraphLogs:
    """The logs of all members. Runs in the event loop's thread."""

    def __init__(self) -> None:
        self.bytes = 0

    def keep(self, member: Member, message: Mapping[str, Any]) -> int:
        """Keep the logs of a ``graph_logs`` message; how many were new."""
        logs = message.get("logs")
        own: dict[str, str] = member.notes.setdefault(_NOTE, {})
        held = sum(map(len, own.values()))
        new = 0
        for log in logs[:MOST_LOGS] if isinstance(logs, list) else ():
            key = log.get("key") if isinstance(log, dict) else None
            if not isinstance(key, str) or not 0 < len(key) <= 64 or key in own or len(own) >= MOST_LOGS:
                continue
            text = _text(log)
            if not text or held + len(text) > PROCESS_BYTES or self.bytes + len(text) > TOTAL_BYTES:
                continue
            own[key] = text
            held += len(text)
            self.bytes += len(text)
            new += 1
        return new

    def forget(self, member: Member) -> None:
        """A process is gone."""
        self.bytes -= sum(map(len, member.notes.pop(_NOTE, {}).values()))

    def beside(self, member: Member, replays: Any) -> bytes:
        """What a window's worker needs of graphs, as JSON; empty where the window replayed none."""
        if not isinstance(replays, dict) or not isinstance(replays.get("graphs"), list):
            return b""
        own: dict[str, str] = member.notes.get(_NOTE, {})
        keys = (entry[1] for entry in replays["graphs"] if isinstance(entry, list) and len(entry) == 2)
        named = dict.fromkeys(key for key in keys if isinstance(key, str) and key in own)
        told = _text(replays)
        if not told:
            return b""
        return f'{{"replays":{told},"logs":[{",".join(own[key] for key in named)}]}}'.encode("utf-8", "replace")
