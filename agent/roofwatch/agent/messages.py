"""What a job says, checked: every text is cut and made encodable, every number fits its column, the rest is unknown.

A job is trusted with statements about itself only, and with none that could harm the agent.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from roofwatch.hook import protocol
from roofwatch.model.record import Cost, Device, Padding, Vendor

MAX_TEXT = 256
MAX_ENTRIES = 64  # labels, versions, devices
INT32 = (1 << 31) - 1
INT64 = (1 << 63) - 1
_COST_NEEDED = ("open_ns", "quiesce_ns", "close_ns", "save_ns", "free_ns")
_COST_LENGTHS, _COST_LOST = ("base_step_ns", "longest_step_ns"), ("lost_in_ns", "lost_after_ns")
MOST_LENGTHS, MOST_SHAPES = 8192, 256  # as a store takes them
MOST_EXTENT = (1 << 32) - 1  # of a length, of sequences in a batch, of batches alike
MOST_COUNT = (1 << 50) - 1  # also of ns: a segment with more is refused, and has windows of other jobs
MOST_SUM = (1 << 62) - 1
_PADDING = ("batches", "real_tokens", "padded_tokens", "real_squared", "padded_squared")


class BadMessage(Exception):  # noqa: N818 - a statement about a message, not an error of ours
    """A message lacks what it must have."""


@dataclass(frozen=True, slots=True)
class Hello:
    """A registration. Unknown is None."""

    protocol: int
    pid: int | None
    model: str | None
    job: str | None
    container: str | None
    rank: int | None
    local_rank: int | None
    world_size: int | None
    labels: Mapping[str, str]
    versions: Mapping[str, str]
    devices: tuple[Device, ...]
    close_path: str | None


@dataclass(frozen=True, slots=True)
class WindowMessage:
    """A window a job has taken; its descriptor travels beside it."""

    request: int
    format: str
    start_unix_ns: int
    duration_ns: int
    steps: int | None
    size: int
    shapes: bool
    cost: Cost | None
    padding: Padding | None
    steps_seen: int | None
    first_step: int | None = None
    replays: Any = None  # as it came: the parse worker reads it
    after_steps: int | None = None  # that cost.lost_after_ns is of; None of a hook that does not tell
    active_ns: int | None = None  # of a window by time: how long the process was at work since the one before


def text(value: Any) -> str | None:
    """A short, encodable text, None for anything else and for nothing."""
    if not isinstance(value, str) or not value:
        return None
    return value[:MAX_TEXT].encode("utf-8", "replace").decode("utf-8").replace("\0", "") or None


def integer(value: Any, least: int = 0, most: int = INT64) -> int | None:
    """An integer in range, None for anything else; ``true`` is not a number."""
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        return None
    return value


def texts(value: Any) -> dict[str, str]:
    """Text → text; entries that are not are left out."""
    if not isinstance(value, dict):
        return {}
    entries = {}
    for key, entry in list(value.items())[:MAX_ENTRIES]:
        name, shown = text(key), text(entry if isinstance(entry, str) else str(entry) if _plain(entry) else None)
        if name and shown:
            entries[name] = shown
    return entries


def _plain(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < INT64


def _device(value: Any) -> Device | None:
    if not isinstance(value, dict):
        return None
    try:
        vendor = Vendor(str(value.get("vendor")))
    except ValueError:
        return None
    return Device(
        vendor=vendor,
        model=text(value.get("model")) or "",
        uuid=text(value.get("uuid")),
        index=integer(value.get("index"), most=INT32),
        memory_bytes=integer(value.get("memory_bytes")),
        units=integer(value.get("units"), most=INT32),
        driver=text(value.get("driver")),
        vector_units=integer(value.get("vector_units"), most=INT32),
        physical=integer(value.get("physical"), most=INT32),
    )


def hello_of(message: Mapping[str, Any]) -> Hello:
    """A registration from a ``hello``.

    Raises:
        BadMessage: no protocol number.
    """
    spoken = integer(message.get("protocol"), most=INT32)
    if spoken is None:
        raise BadMessage("hello without a protocol number")
    listed = message.get("devices")
    devices = [_device(entry) for entry in listed[:MAX_ENTRIES]] if isinstance(listed, list) else []
    path = message.get("close_path")
    return Hello(
        protocol=spoken,
        pid=integer(message.get("pid"), least=1, most=INT32),
        model=text(message.get("model")),
        job=text(message.get("job")),
        container=text(message.get("container")),
        rank=integer(message.get("rank"), most=INT32),
        local_rank=integer(message.get("local_rank"), most=INT32),
        world_size=integer(message.get("world_size"), most=INT32),
        labels=texts(message.get("labels")),
        versions=texts(message.get("versions")),
        devices=tuple(device for device in devices if device is not None),
        close_path=path if path in protocol.CLOSE_PATHS else None,
    )


def cost_of(message: Mapping[str, Any]) -> tuple[Cost | None, int | None]:
    """What a ``window`` message says that it cost, and how many steps after it tell; whatever else it lacks."""
    given = message.get("cost")
    return _cost(given), integer(given.get("after_steps"), most=INT32) if isinstance(given, dict) else None


def window_of(message: Mapping[str, Any]) -> WindowMessage:
    """A window from a ``window`` message.

    Raises:
        BadMessage: a field that every window has is missing or out of range.
    """
    needed = {name: integer(message.get(name)) for name in ("request", "start_unix_ns", "duration_ns", "size")}
    missing = [name for name, value in needed.items() if value is None]
    if missing:
        raise BadMessage(f"window without a usable {missing[0]}")
    cost, after_steps = cost_of(message)
    return WindowMessage(
        request=needed["request"] or 0,
        format=text(message.get("format")) or "",
        start_unix_ns=needed["start_unix_ns"] or 0,
        duration_ns=needed["duration_ns"] or 0,
        size=needed["size"] or 0,
        steps=integer(message.get("steps"), most=INT32),
        shapes=message.get("shapes") is True,
        cost=cost,
        padding=_padding(message.get("padding")),
        steps_seen=integer(message.get("steps_seen")),
        first_step=integer(message.get("first_step"), most=MOST_COUNT),
        replays=message.get("replays"),
        after_steps=after_steps,
        active_ns=integer(message.get("active_ns"), least=1, most=MOST_COUNT),
    )


def _cost(value: Any) -> Cost | None:
    if not isinstance(value, dict) or value.get("close_path") not in protocol.CLOSE_PATHS:
        return None
    needed = [integer(value.get(name), most=MOST_COUNT) for name in _COST_NEEDED]
    if any(entry is None for entry in needed):
        return None
    base, longest = (integer(value.get(name), most=MOST_COUNT) for name in _COST_LENGTHS)
    lost_in, lost_after = (integer(value.get(name), least=-MOST_COUNT, most=MOST_COUNT) for name in _COST_LOST)
    open_ns, quiesce, close, save, free = (entry or 0 for entry in needed)
    path, analysis = str(value["close_path"]), integer(value.get("parse_cpu_ns"), most=MOST_COUNT // 2)
    return Cost(path, open_ns, quiesce, close, save, free, base, longest, lost_in, lost_after, analysis)


def _padding(value: Any) -> Padding | None:
    """Sums, lengths and shapes; lengths or shapes that cannot be are left out as a whole, they have no parts."""
    if not isinstance(value, dict):
        return None
    sums = [entry for name in _PADDING if (entry := integer(value.get(name), most=MOST_SUM)) is not None]
    if len(sums) < len(_PADDING):
        return None
    batches, real, padded, real_squared, padded_squared = sums
    lengths = tuple((length, count) for length, count in _rows(value.get("lengths"), 2, MOST_LENGTHS))
    shapes = tuple((rows, length, count) for rows, length, count in _rows(value.get("shapes"), 3, MOST_SHAPES))
    coarsened, unread = (integer(value.get(name), most=MOST_COUNT) or 0 for name in ("coarsened", "unread"))
    return Padding(batches, real, padded, real_squared, padded_squared, lengths, shapes, coarsened, unread)


def _rows(value: Any, width: int, most: int) -> list[list[int]]:
    """Rows of integers, ascending by all but the last, which counts; [] where they are not that."""
    if not isinstance(value, list) or len(value) > most:
        return []
    found: list[list[int]] = []
    for row in value:
        if not isinstance(row, list) or len(row) != width:
            return []
        numbers = [number for entry in row if (number := integer(entry, most=MOST_EXTENT)) is not None]
        if len(numbers) < width or not numbers[-1] or (found and found[-1][:-1] >= numbers[:-1]):
            return []
        found.append(numbers)
    return found
