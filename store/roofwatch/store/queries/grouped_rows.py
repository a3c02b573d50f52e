"""``top --by``: rows of kernels with what they are merged by: their name, their node or device, and their time."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from sqlalchemy import Connection, func, or_, select

from roofwatch.model.grouping import Place
from roofwatch.model.kinds import Kind
from roofwatch.model.record import Phase, Vendor
from roofwatch.store.blocks import Ints
from roofwatch.store.filter import Filter
from roofwatch.store.gather import ROWS, Devices, OfDevice
from roofwatch.store.queries.gathered import gathered
from roofwatch.store.queries.scope import IN_LIST, among, owners
from roofwatch.store.rollup_sources import Conditions
from roofwatch.store.schema import devices, nodes, processes, signatures, texts
from roofwatch.store.sums import COLUMN, Sums

Floats = npt.NDArray[np.float64]
OWNED = ("node", "device")  # what is merged by whose it is, not by its name
_TEXTS = {"kernel": signatures.c.kernel_id, "op": signatures.c.op_id, "module": signatures.c.module_id}


class Owner(NamedTuple):
    """A node or device; empty where it is not told apart, so that owners can be sorted."""

    host: str = ""
    uuid: str = ""
    ordinal: int = -1
    process: int = 0


class Group(NamedTuple):
    """What is one group; of all the time."""

    model: str
    name: str
    owner: Owner

    def place(self, by: str) -> Place:
        """As a row tells it."""
        name = {by: self.name or None} if by in _TEXTS else {}
        host, uuid, ordinal, process = self.owner
        told = f"{process:016x}" if process else None
        return Place(**name, node=host or None, uuid=uuid or None, index=None if ordinal < 0 else ordinal, process=told)


class Known(NamedTuple):
    """A signature's name, kind and phase."""

    name: str
    kind: Kind
    phase: Phase


@dataclass(frozen=True, slots=True)
class Laid:
    """Rows of kernels; of each its group, when its stretch of time began, and whose roofs it has."""

    sums: Sums
    groups: list[Group]
    group: Ints
    start: Ints
    peaks: Ints

    def __len__(self) -> int:
        return len(self.sums)

    @property
    def signature(self) -> Ints:
        """Ids of the rows' signatures."""
        return self.column("signature_id")

    @property
    def est(self) -> Floats:
        """What the rows' sampled time stands for."""
        found: Floats = self.column("est_ns").astype(np.float64)
        return found

    def column(self, name: str) -> Ints:
        """A column of ``blocks.SUM``."""
        found: Ints = self.sums.columns[COLUMN[name]]
        return found

    def where(self, kept: npt.NDArray[np.bool_]) -> Laid:
        """Some of the rows."""
        return Laid(self.sums.where(kept), self.groups, self.group[kept], self.start[kept], self.peaks[kept])


@dataclass(slots=True)
class _Owned(Devices):
    """Devices of one owner, model and set of peaks in one stretch of time are one."""

    by: str = ""
    size_ns: int = 0
    hosts: Mapping[int, str] = field(default_factory=dict)
    told: Mapping[int, tuple[str | None, int | None]] = field(default_factory=dict)  # uuid, index

    def key(self, device: OfDevice) -> Hashable:
        """What is one device here."""
        return (self.start(device), self.owner(device), device.model, device.vendor, device.peaks_id)

    def start(self, device: OfDevice) -> int:
        """When the stretch began; 0 where the time is unknown, or all is one."""
        at = device.at_unix_ns
        return at - at % self.size_ns if self.size_ns and at > 0 else 0

    def owner(self, device: OfDevice) -> Owner:
        """Whose it is: a device is its uuid; without one, a CPU is its host's, another its process's."""
        if self.by not in OWNED:
            return Owner()
        host = self.hosts[device.process_id]
        uuid, index = self.told[device.id]
        if self.by == "node" or (device.vendor == Vendor.CPU and not uuid):
            return Owner(host)
        number = -1 if index is None else index
        return Owner(host, uuid, number) if uuid else Owner(host, "", number, device.process_id)


def laid(
    connection: Connection,
    f: Filter,
    by: str,
    size_ns: int,
    known: dict[int, Known],
    wanted: Collection[int] | None = None,
    shown: Collection[Group] = (),
) -> Laid:
    """The kernels of a filter; of ``wanted`` signatures only, then with histograms. What signatures are goes to known.

    Of groups that are not among ``shown`` some may be missing, where that is not empty.

    Rows are in the order of what they are: so sums of floats are the same wherever rows come from.
    """
    places = _owned(connection, f, by, size_ns)
    places.whole = by in OWNED and wanted is not None and connection.dialect.name != ROWS
    only = _only(by, shown, either=connection.dialect.name != ROWS)
    sums, of = gathered(connection, f, histograms=wanted is not None, wanted=wanted, known=places, only=only)
    names, name = _names(connection, by, sums.columns[0], known)
    kinds: dict[tuple[str, Owner], int] = {}  # of devices, whatever the stretch of time: these are few
    kind = np.array([kinds.setdefault((d.model, places.owner(d)), len(kinds)) for d in of], np.int64)
    pairs, row_pair = np.unique(kind[sums.device] * max(1, len(names)) + name, return_inverse=True)
    told, each = [divmod(pair, max(1, len(names))) for pair in pairs.tolist()], list(kinds)
    of_pair = [Group(each[i][0], names[its], each[i][1]) for i, its in told]
    groups = sorted(set(of_pair))
    place = {group: i for i, group in enumerate(groups)}
    found = Laid(
        sums,
        groups,
        np.array([place[group] for group in of_pair], np.int64)[row_pair],
        np.array([places.start(device) for device in of], np.int64)[sums.device],
        np.array([device.peaks_id for device in of], np.int64)[sums.device],
    )
    return found if wanted is not None else _ordered(found)


def _names(connection: Connection, by: str, signature: Ints, known: dict[int, Known]) -> tuple[list[str], Ints]:
    """The names that rows are merged by, ascending, and of each row which."""
    if by in OWNED and known:
        return [""], np.zeros(len(signature), np.int64)
    ids, at = np.unique(signature, return_inverse=True)
    _learn(connection, by, set(ids.tolist()) - set(known), known)
    names = sorted({known[i].name for i in ids.tolist()})
    number = {name: i for i, name in enumerate(names)}
    found: Ints = np.array([number[known[i].name] for i in ids.tolist()], np.int64)[at]
    return names, found


def _only(by: str, shown: Collection[Group], *, either: bool) -> Conditions:
    """What nodes and devices of the shown groups fulfil; others may, too. ``either``: one condition may be of both."""
    if by not in OWNED or not shown or len(shown) > IN_LIST:
        return ()
    hosts = {group.owner.host for group in shown if by == "node" or not group.owner.uuid}
    uuids = {group.owner.uuid for group in shown if by == "device" and group.owner.uuid}
    named = [column.in_(names) for column, names in ((nodes.c.host, hosts), (devices.c.uuid, uuids)) if names]
    return [or_(*named)] if either or len(named) == 1 else ()


def _ordered(found: Laid) -> Laid:
    keys = [found.column(name) for name in ("formula_bound", "bound", "evidence")]
    order = np.lexsort((*keys, found.peaks, found.signature, found.start, found.group))
    sums = Sums(found.sums.columns[:, order], found.sums.device[order])
    return Laid(sums, found.groups, found.group[order], found.start[order], found.peaks[order])


def _owned(connection: Connection, f: Filter, by: str, size_ns: int) -> _Owned:
    if by not in OWNED:
        return _Owned(by=by, size_ns=size_ns)
    of = select(processes.c.id, nodes.c.host).join(nodes, nodes.c.id == processes.c.node_id).where(*owners(f))
    d = devices.c
    # A device may have another number in each process; the least is the same whoever was seen first.
    least = select(d.uuid, func.min(d.ordinal).label("ordinal")).group_by(d.uuid).subquery()
    number = func.coalesce(least.c.ordinal, d.ordinal)
    query = select(d.id, d.uuid, number).outerjoin(least, least.c.uuid == d.uuid)
    told = {identity: (uuid, index) for identity, uuid, index in connection.execute(query)}
    hosts = dict(map(tuple, connection.execute(of)))
    if by == "node":  # sums of nodes have a node's number in the place of a process's
        hosts |= dict(map(tuple, connection.execute(select(nodes.c.id, nodes.c.host))))
    return _Owned(by_process=True, by_node=by == "node", by=by, size_ns=size_ns, hosts=hosts, told=told)


def _learn(connection: Connection, by: str, wanted: set[int], known: dict[int, Known]) -> None:
    s = signatures.c
    query = select(s.id, texts.c.value if by in _TEXTS else s.kind, s.kind, s.phase)
    if by in _TEXTS:
        query = query.select_from(signatures).outerjoin(texts, texts.c.id == _TEXTS[by])
    for identity, name, kind, phase in connection.execute(among(query, s.id, wanted)):
        known[identity] = Known("" if by in OWNED else name or "", Kind(kind), Phase(phase))
