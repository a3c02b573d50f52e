"""What a hook told of graphs, as untrusted JSON, made into what a reader can use.

``{"replays": …, "logs": […]}``: the value of ``replays`` of a ``window`` message, and logs as a ``graph_logs`` message
has them (``docs/hook-protocol.md``). Whatever is not as it should be is left out.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from roofwatch.collectors.graphs import LOG, NOTHING, Captured, CapturedCall, Known, Replays
from roofwatch.model.record import Phase

MAX_BYTES = 8 << 20
MAX_LOGS = 4096
MAX_CALLS = 20_000
MAX_ELEMENTS = 20_000  # of a log
MAX_REPLAYS = 8192
MAX_NAME = 512
MAX_TEXT = 1 << 16
_LIMIT = 1 << 62


def known_of(text: bytes) -> Known:
    """What is known of graphs; nothing where the text is not JSON of that form."""
    if not text or len(text) > MAX_BYTES:
        return NOTHING
    try:
        told = json.loads(text)
    except (ValueError, RecursionError):
        return NOTHING
    if not isinstance(told, dict):
        return NOTHING
    logs = told.get("logs")
    found = [_captured(log) for log in logs[:MAX_LOGS]] if isinstance(logs, list) else []
    return Known(tuple(log for log in found if log is not None), _replays(told.get("replays")))


def _captured(log: Any) -> Captured | None:
    if not isinstance(log, dict) or not isinstance(log.get("key"), str):
        return None
    calls, order = log.get("calls"), log.get("order")
    if not isinstance(calls, list) or not isinstance(order, list) or len(calls) > MAX_CALLS:
        return None
    told = [_call(call) for call in calls]
    kept = [i for i in order[:MAX_ELEMENTS] if _whole(i, len(told)) and told[i] is not None]
    numbers: dict[int, int] = {}
    for i in kept:
        numbers.setdefault(i, len(numbers))
    used = [entry for i in numbers if (entry := told[i]) is not None]
    return Captured(
        source=LOG,
        calls=tuple(call for call, _ in used),
        order=tuple(numbers[i] for i in kept),
        kernels=tuple(used[numbers[i]][1] for i in kept),
        key=log["key"][:64],
    )


def _call(call: Any) -> tuple[CapturedCall, str | None] | None:
    """A call and the kernel it launched by name, from [op, sizes, dtypes, strides, values, kernel, backward]."""
    if not isinstance(call, list) or len(call) < 7 or not isinstance(call[0], str) or not call[0]:
        return None
    texts = [_text(value) for value in call[1:5]]
    kernel = call[5][:MAX_NAME] if isinstance(call[5], str) and call[5] else None
    phase = Phase.BACKWARD if call[6] == 1 else None
    return CapturedCall(call[0][:MAX_NAME], texts[0], texts[1], texts[2], texts[3], phase), kernel


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and 0 < len(value) <= MAX_TEXT and "\0" not in value else None


def _whole(value: Any, below: int) -> bool:
    return type(value) is int and 0 <= value < below


def _replays(told: Any) -> Replays | None:
    if not isinstance(told, Mapping) or not isinstance(told.get("graphs"), list):
        return None
    graphs: list[tuple[int, str | None]] = []
    for entry in told["graphs"][:MAX_LOGS]:
        if not isinstance(entry, list) or len(entry) != 2 or not _whole(entry[0], _LIMIT):
            return None
        graphs.append((entry[0], entry[1][:64] if isinstance(entry[1], str) else None))
    threads = told.get("threads")
    lines = [_line(entry, len(graphs)) for entry in threads[:MAX_REPLAYS]] if isinstance(threads, list) else []
    return Replays(tuple(graphs), dict(line for line in lines if line is not None))


def _line(entry: Any, graphs: int) -> tuple[int, tuple[tuple[int, int], ...]] | None:
    """A thread and its replays, from [thread, [nanoseconds, graph, nanoseconds, graph, …]]."""
    if not isinstance(entry, list) or len(entry) != 2 or not _whole(entry[0], _LIMIT) or not isinstance(entry[1], list):
        return None
    flat = entry[1][: 2 * MAX_REPLAYS]
    pairs = list(zip(flat[::2], flat[1::2], strict=False))
    if not all(_whole(at, _LIMIT) and _whole(graph, graphs) for at, graph in pairs):
        return None
    return entry[0], tuple(pairs)
