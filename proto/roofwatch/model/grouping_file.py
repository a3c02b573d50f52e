"""``analyze --by``: the kernels of one window merged as ``top --by`` merges those of a store."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Any, NamedTuple

from roofwatch.model.answer import ratio
from roofwatch.model.answer_rows import StatSum, leading, sums_of
from roofwatch.model.errors import UsageError
from roofwatch.model.grouping import GroupSum, Place, row
from roofwatch.model.histogram import Histogram
from roofwatch.model.record import Bound, Device, Vendor, Window

BY = ("kernel", "op", "kind", "module", "device")  # a file is of one node


class _Group(NamedTuple):
    """What is one group; groups of equal time are in this order."""

    model: str
    name: str
    uuid: str
    number: int


def rows(window: Window, by: str, limit: int = 0) -> list[dict[str, Any]]:
    """Groups by estimated time, the largest first (``grouping.GROUP_KEYS``); ``limit`` 0 gives all.

    Raises:
        UsageError: ``by`` is none of ``BY``.
    """
    if by not in BY:
        raise UsageError(f"there is no file by {by!r}: give one of {', '.join(BY)}")
    groups: dict[_Group, list[StatSum]] = defaultdict(list)
    for stat, one in zip(window.kernels, sums_of(window), strict=True):
        groups[_group(window.devices[stat.device].device, one, by)].append(one)
    whole = sum(one.est_ns for parts in groups.values() for one in parts)
    ranked = sorted(groups.items(), key=lambda item: (-sum(one.est_ns for one in item[1]), item[0]))
    return [row(_place(group, by), _summed(parts), whole) for group, parts in (ranked[:limit] if limit else ranked)]


def _group(device: Device, one: StatSum, by: str) -> _Group:
    if by != "device":
        return _Group(device.model, str(getattr(one.signature, by) or ""), "", -1)
    if device.vendor is Vendor.CPU and not device.uuid:  # its threads are no devices
        return _Group(device.model, "", "", -1)
    return _Group(device.model, "", device.uuid or "", -1 if device.index is None else device.index)


def _place(group: _Group, by: str) -> Place:
    name = {by: group.name or None} if by in ("kernel", "op", "module") else {}
    return Place(**name, uuid=group.uuid or None, index=None if group.number < 0 else group.number)


def _summed(parts: Sequence[StatSum]) -> GroupSum:
    by_signature: dict[int, list[StatSum]] = defaultdict(list)
    for one in parts:
        by_signature[one.signature.id].append(one)
    roofed = [(est, fraction) for est, fraction in map(_roofed, by_signature.values()) if fraction is not None]
    return GroupSum(
        device=parts[0].device,
        signatures=len(by_signature),
        calls=sum(one.calls for one in parts),
        total_ns=sum(one.total_ns for one in parts),
        est_ns=sum(one.est_ns for one in parts),
        min_ns=min(one.min_ns for one in parts),
        max_ns=max(one.max_ns for one in parts),
        roofed_ns=sum(est for est, _ in roofed),
        attainable_ns=sum(est * fraction for est, fraction in roofed),
        winnable_ns=sum(est * max(0.0, 1.0 - fraction) for est, fraction in roofed),
        bounds=_added((one.bound, one.est_ns) for one in parts),
        evidences=_added((one.evidence, one.est_ns) for one in parts),
        kinds=_added((one.signature.kind, one.est_ns) for one in parts),
        phases=_added((one.signature.phase, one.est_ns) for one in parts),
        histogram=Histogram.merged(one.histogram for one in parts if one.histogram is not None),
    )


def _roofed(parts: Sequence[StatSum]) -> tuple[float, float | None]:
    """Estimated time of a row of ``top`` as far as it has a roof, and its roof fraction; None also of host work."""
    known = [one for one in parts if one.roof_total_ns is not None]
    est = sum(one.est_ns for one in known)
    if leading(parts).bound is Bound.HOST:
        return est, None
    return est, ratio(sum(one.roof_total_ns or 0.0 for one in known), sum(one.total_ns for one in known))


def _added(parts: Iterable[tuple[StrEnum, float]]) -> Mapping[StrEnum, float]:
    found: dict[StrEnum, float] = defaultdict(float)
    for name, est_ns in parts:
        found[name] += est_ns
    return found
