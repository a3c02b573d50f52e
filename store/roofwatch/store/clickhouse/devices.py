"""Devices and sets of them by id: what a content hash names never changes, so it is asked for once."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection
from typing import TypeVar

from sqlalchemy import Connection, select

from roofwatch.store.schema import device_sets, devices

Kind = tuple[str, str, int]  # vendor, model, set of peaks
Of = TypeVar("Of")
SEEN_MOST = 200_000
_AT_ONCE = 1000  # ids in one statement
seen: dict[int, Kind] = {}
_sets: dict[int, frozenset[int]] = {}


def described(connection: Connection, ids: Collection[int]) -> dict[int, Kind]:
    """Vendor, model and set of peaks of devices."""
    return _found(connection, seen, ids, _described)


def _described(connection: Connection, ids: list[int]) -> dict[int, Kind]:
    d = devices.c
    query = select(d.id, d.vendor, d.model, d.peaks_id).where(d.id.in_(ids))
    return {row[0]: (row[1], row[2], row[3]) for row in connection.execute(query)}


def members_of(connection: Connection, ids: Collection[int]) -> dict[int, frozenset[int]]:
    """The devices of sets."""
    return _found(connection, _sets, ids, _members)


def _members(connection: Connection, ids: list[int]) -> dict[int, frozenset[int]]:
    found: dict[int, set[int]] = defaultdict(set)
    for of, device in connection.execute(
        select(device_sets.c.id, device_sets.c.device_id).where(device_sets.c.id.in_(ids))
    ):
        found[of].add(device)
    return {of: frozenset(members) for of, members in found.items()}


def _found(
    connection: Connection, known: dict[int, Of], ids: Collection[int], look: Callable[..., dict[int, Of]]
) -> dict[int, Of]:
    found = {one: told for one in ids if (told := known.get(one)) is not None}
    lacking = [one for one in ids if one not in found]
    for low in range(0, len(lacking), _AT_ONCE):
        found.update(look(connection, lacking[low : low + _AT_ONCE]))
    if lacking:
        if len(known) > SEEN_MOST:
            known.clear()
        known.update((one, found[one]) for one in lacking if one in found)
    return found


def is_meant(kind: Kind, model: str | None, vendor: str | None) -> bool:
    """As ``queries.scope.device_matches``; the engine's lower() knows ASCII only."""
    if vendor is not None and kind[0] != vendor:
        return False
    return model is None or model.lower().encode() in kind[1].encode().lower()


def devices_meant(connection: Connection, ids: Collection[int], model: str | None, vendor: str | None) -> set[int]:
    """Those of some devices that are meant."""
    return {one for one, kind in described(connection, ids).items() if is_meant(kind, model, vendor)}


def sets_meant(connection: Connection, ids: Collection[int], model: str | None, vendor: str | None) -> set[int]:
    """Those of some sets of which a device is."""
    of = members_of(connection, ids)
    wanted = devices_meant(connection, frozenset().union(*of.values()), model, vendor)
    return {one for one, members in of.items() if members & wanted}
