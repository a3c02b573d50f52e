"""The top-level fields of a trace: which devices there are, what the clock's zero is, which rank it was."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from roofwatch.collectors.base import RawDevice
from roofwatch.collectors.kineto.events import DECODE_ERRORS
from roofwatch.collectors.kineto.messages import Group, only_group

_NVIDIA = re.compile(r"nvidia|tesla|geforce|quadro|rtx|\b[AHBVLT]\d{1,3}\b", re.IGNORECASE)
_AMD = re.compile(r"\bamd\b|radeon|instinct|\bmi\d{2,3}|\bgfx\d", re.IGNORECASE)
_AMD_FIELDS = ("hip_runtime_version", "hip_driver_version", "roctracer_version", "rocprofiler_version")
_NVIDIA_FIELDS = ("cupti_version", "cuda_runtime_version", "cuda_driver_version")
_AMD_CALL, _NVIDIA_CALL = re.compile(r"\Ahip[A-Z]"), re.compile(r"\Acu(?:da)?[A-Z]")


FIELDS = (
    "deviceProperties", "distributedInfo", "baseTimeNanoseconds", "record_shapes", *_AMD_FIELDS, *_NVIDIA_FIELDS,
)  # fmt: skip
MAX_FIELD_BYTES = 1 << 20  # as Python objects a text takes many times its size
# Far beyond any machine: what is more is made up, and counts as not told.
MAX_RANKS, MAX_UNITS, MAX_MEMORY, MAX_CLOCK_HZ, MAX_NAME = 1 << 30, 1 << 20, 1 << 50, 1e12, 256
_Top: Any = msgspec.defstruct("_Top", [(name, msgspec.Raw, msgspec.Raw()) for name in FIELDS])
_top = msgspec.json.Decoder(_Top)


@dataclass(frozen=True, slots=True)
class Outline:
    """What the top-level fields say; None where they do not."""

    base_ns: int | None
    rank: int | None
    world_size: int | None
    shapes_recorded: bool
    properties: tuple[Mapping[str, Any], ...]
    vendor: str  # by the versions of the runtime; "" where not told
    only_group: Group | None  # the one process group there is, where that is so


def outline_of(fields: Mapping[str, bytes]) -> Outline:
    """Reads the fields (key → JSON text); whatever has the wrong type counts as absent."""
    distributed = _value(fields, "distributedInfo")
    distributed = distributed if isinstance(distributed, dict) else {}
    properties = _value(fields, "deviceProperties")
    properties = properties if isinstance(properties, list) else []
    if any(name in fields for name in _AMD_FIELDS):
        vendor = "amd"
    elif any(name in fields for name in _NVIDIA_FIELDS):
        vendor = "nvidia"
    else:
        vendor = ""
    return Outline(
        base_ns=_count(_value(fields, "baseTimeNanoseconds")),
        rank=_count(distributed.get("rank"), MAX_RANKS),
        world_size=_count(distributed.get("world_size"), MAX_RANKS),
        shapes_recorded=bool(_value(fields, "record_shapes")),
        properties=tuple(entry for entry in properties if isinstance(entry, dict)),
        vendor=vendor,
        only_group=only_group(distributed),
    )


def top_fields(text: bytes) -> dict[str, bytes]:
    """The fields of ``FIELDS`` in the text of a JSON object, as JSON text; the others are skipped unread.

    Raises:
        one of ``DECODE_ERRORS``: the text is no JSON object.
    """
    top = _top.decode(text)
    values = ((name, getattr(top, name)) for name in FIELDS)
    return {name: bytes(value) for name, value in values if 0 < len(memoryview(value)) <= MAX_FIELD_BYTES}


def device_of(outline: Outline, index: int, call_names: Sequence[str]) -> RawDevice:
    """The device with a logical index, as far as the trace describes it.

    Its vendor is told by its name, else by the runtime's versions, else by the names of the runtime calls.
    """
    entry = _entry(outline.properties, index)
    name = entry.get("name")
    name = "".join(c if c.isprintable() else "?" for c in name[:MAX_NAME]) if isinstance(name, str) else ""
    clock = entry.get("clockRate")  # kHz, as the CUDA runtime gives it
    return RawDevice(
        vendor=_vendor_by_name(name) or outline.vendor or _vendor_by_calls(call_names),
        name=name,
        index=index if index >= 0 else None,
        units=_count(entry.get("numSms"), MAX_UNITS) or None,
        memory_bytes=_count(entry.get("totalGlobalMem"), MAX_MEMORY) or None,
        clock_hz=clock * 1e3 if isinstance(clock, int | float) and 0 < clock < MAX_CLOCK_HZ / 1e3 else None,
    )


def _entry(properties: Sequence[Mapping[str, Any]], index: int) -> Mapping[str, Any]:
    """The properties of a device: by id, or the only ones, or those that are the same for all devices."""
    for entry in properties:
        if entry.get("id") == index:
            return entry
    bare = [{key: value for key, value in entry.items() if key != "id"} for entry in properties]
    return bare[0] if bare and all(entry == bare[0] for entry in bare) else {}


def _vendor_by_name(name: str) -> str:
    if _AMD.search(name):
        return "amd"
    return "nvidia" if _NVIDIA.search(name) else ""


def _vendor_by_calls(names: Sequence[str]) -> str:
    if any(_AMD_CALL.match(name) for name in names):
        return "amd"
    return "nvidia" if any(_NVIDIA_CALL.match(name) for name in names) else ""


def _value(fields: Mapping[str, bytes], key: str) -> Any:
    try:
        return msgspec.json.decode(fields.get(key, b"null"))
    except DECODE_ERRORS:
        return None


def _count(value: Any, below: int = 1 << 63) -> int | None:
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 20:
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < below:
        return None
    return value
