"""Columns of a trace → a record for each event of a device; of a window without devices, for each op."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from roofwatch.collectors.base import RawDevice
from roofwatch.collectors.kineto import collectives
from roofwatch.collectors.kineto.columns import Columns
from roofwatch.collectors.kineto.grids import Grids
from roofwatch.collectors.kineto.groups import CPU_OP, Records
from roofwatch.collectors.kineto.link import Host, Launches
from roofwatch.collectors.kineto.outline import Outline, device_of
from roofwatch.collectors.kineto.selftime import self_times
from roofwatch.collectors.kineto.tables import UNKNOWN, Table, small
from roofwatch.collectors.kineto.timeline import with_cpu_timeline

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]

MAX_DEVICES = 256  # many more than a node has; what a damaged trace names beyond them is one unknown device
MAX_INDEX = 1 << 20
_DAY_NS = 86_400 * 10**9


def drop_zero_times(device: Table) -> int:
    """Leaves out device records at time 0 on a clock that is far from it: their true time was lost by the writer."""
    if not len(device):
        return 0
    lost = device["start"] <= 0
    if not lost.any() or np.median(device["start"]) < _DAY_NS:
        return 0
    device.keep(~lost)
    return int(lost.sum())


def device_records(
    columns: Columns, host: Host, launches: Launches, grids: Grids, outline: Outline
) -> tuple[list[RawDevice], Records, collectives.Found]:
    """The devices, a record for each of their events, and which of these are collectives."""
    device = columns.device
    places = host.places(launches.thread, launches.time)
    call_names = [columns.names.values_seen[i] for i in np.unique(columns.host["name"]).tolist()]
    indexes, position = _devices(device["device"])
    found = collectives.of_device(columns, position, launches, outline.only_group)
    shaped = places.shaped >= 0
    inputs = np.where(shaped, columns.ops["inputs"][places.call], UNKNOWN) if len(columns.ops) else places.shaped
    inputs = small(host.with_shapes(inputs))
    op = np.where(shaped, columns.ops["name"][places.shaped], UNKNOWN) if len(columns.ops) else places.shaped
    records = Records(
        device=position,
        name=device["name"],
        category=device["sort"],
        op_row=small(places.shaped),
        op=small(op),
        inputs=inputs,
        phase=small(places.phase),
        module=small(places.module),
        message=small(found.grouped),
        told_apart=small(np.where((inputs < 0) | launches.backlog, grids.which, UNKNOWN)),
        backlog=launches.backlog,
        linked=places.op >= 0,
        in_step=places.in_step,
        duration=device["end"] - device["start"],
        blocks=grids.blocks,
        grid=grids.which,
        bytes=device["bytes"],
    )
    return [device_of(outline, index, call_names) for index in indexes.tolist()], records, found


def _devices(index: Ints) -> tuple[Ints, Ints]:
    """The devices' indexes, and for each record the position of its own among them."""
    index = np.where((index >= 0) & (index < MAX_INDEX), index, UNKNOWN)
    found, counts = np.unique(index, return_counts=True)
    if len(found) > MAX_DEVICES:
        kept = found[np.argsort(-counts, kind="stable")[:MAX_DEVICES]]
        index = np.where(np.isin(index, kept), index, UNKNOWN)
    found, position = np.unique(index, return_inverse=True)
    return found, position.astype(np.int64)


def cpu_records(columns: Columns, host: Host) -> tuple[list[RawDevice], Records]:
    """A record for each op of a window without a device, with its self time."""
    ops, order = columns.ops, host.ops.order
    places = host.own_places()
    unknown = np.full(len(order), UNKNOWN, dtype=np.int64)
    records = Records(
        device=np.zeros(len(order), dtype=np.int64),
        name=ops["name"][order],
        category=np.full(len(order), CPU_OP, dtype=np.int64),
        op=ops["name"][order],
        op_row=order,
        inputs=host.with_shapes(ops["inputs"][order]),
        phase=places.phase,
        module=places.module,
        message=unknown,
        told_apart=unknown,
        backlog=np.zeros(len(order), dtype=np.bool_),
        linked=np.ones(len(order), dtype=np.bool_),
        in_step=places.in_step,
        duration=self_times(host.ops),
        blocks=unknown,
        grid=unknown,
        bytes=unknown,
    )
    device = RawDevice(vendor="cpu", name="")
    with_cpu_timeline(device, columns, host)
    return [device], records
