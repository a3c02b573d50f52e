"""Names that any store takes: no NUL, not endless, of characters. What is changed is counted as ``changed_name``."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from roofwatch.collectors.base import RawDevice, RawGroup, RawProfile

LONGEST = 16_384  # characters, as in a segment
UNNAMED = "(unnamed)"


def storable(raw: RawProfile) -> RawProfile:
    """The profile itself where all of its names are fine, as they nearly always are; else a copy."""
    changed = 0
    groups = list(raw.groups)
    for i, group in enumerate(groups):
        if not (_fine(group.kernel) and _fine(group.op) and _fine(group.module)):
            groups[i] = _renamed(group)
            changed += group.calls
    devices = [_device(d) for d in raw.devices]
    collectives = [
        c if _fine(c.name) and _fine(c.group) else replace(c, name=name(c.name), group=name(c.group))
        for c in raw.collectives
    ]
    changed += sum(a is not b for a, b in zip(devices, raw.devices, strict=True))
    changed += sum(a is not b for a, b in zip(collectives, raw.collectives, strict=True))
    if not changed:
        return raw
    dropped = Counter(raw.dropped)
    dropped["changed_name"] += changed
    return replace(raw, groups=groups, devices=devices, collectives=collectives, dropped=dropped)


def _device(device: RawDevice) -> RawDevice:
    """Its name, and the examples of why it waited, which name kernels and ops."""
    if _fine(device.name) and all(_fine(c.example) and _fine(c.steady_example) for c in device.causes):
        return device
    causes = tuple(
        replace(c, example=_maybe(c.example), steady_example=_maybe(c.steady_example)) for c in device.causes
    )
    return replace(device, name=name(device.name), causes=causes)


def _maybe(text: str | None) -> str | None:
    return None if text is None else name(text)


def name(text: str) -> str:
    """A text as a store takes it."""
    kept = text[:LONGEST].replace("\0", "\N{REPLACEMENT CHARACTER}")
    return kept.encode("utf-8", "replace").decode("utf-8")


def _fine(text: str | None) -> bool:
    if text is None:
        return True
    if "\0" in text or len(text) > LONGEST:
        return False
    return text.isascii() or not any("\ud800" <= c <= "\udfff" for c in text)


def _renamed(group: RawGroup) -> RawGroup:
    op, module = _maybe(group.op), _maybe(group.module)
    return replace(group, kernel=name(group.kernel) or UNNAMED, op=op, module=module)
