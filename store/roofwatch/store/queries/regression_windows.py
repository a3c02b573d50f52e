"""The windows of a side of ``regressions``: a bounded sample, spread evenly over processes and time; their kernels."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
import numpy.typing as npt
from sqlalchemy import Connection, and_, func, select

from roofwatch.model.record import Signature
from roofwatch.store.blocks import FACT
from roofwatch.store.days import came
from roofwatch.store.filter import Filter
from roofwatch.store.gather import each_window
from roofwatch.store.queries.described import described
from roofwatch.store.queries.scope import IN_LIST, conditions, device_matches, windows_of
from roofwatch.store.schema import devices, kernel_blocks, nodes, processes, window_devices, windows

Ints = npt.NDArray[np.int64]

WINDOWS_MOST = 400  # of a side and device model: more make an interval no narrower that anybody cares for
ROWS_MOST = 2_000_000  # kernels of windows in memory at once: 128 MB
_STATE = ("clock_hz", "power_w", "power_limit_w", "temperature_c")
WANTED = ("device", "signature_id", "bound", "calls", "total_ns", "step_calls", "step_ns")  # of the fact


@dataclass(slots=True)
class Unit:
    """One window on the devices of one model: what gives one value a kernel."""

    window_id: int
    start_unix_ns: int
    process_id: int
    host: str
    rank: int | None
    job: str | None
    run: str | None  # name of the model that runs
    device: str  # device model
    vendor: str
    steps: int | None
    base_step_ns: int | None
    span_ns: int = 0  # of all its devices, as is…
    positions: list[int] = field(default_factory=list)
    identities: list[Hashable] = field(default_factory=list)
    state: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    throttle: set[str] | None = None  # what held the clock down; None: not read

    def mean(self, name: str) -> float | None:
        """The mean of what was read of its devices; None: nothing was."""
        read = self.state.get(name)
        return sum(read) / len(read) if read else None


@dataclass(frozen=True, slots=True)
class Side:
    """The sampled windows of one side, and how many windows each device model has in all."""

    units: list[Unit]
    of_windows: dict[str, int]


def signatures_of(connection: Connection, ids: Sequence[int]) -> dict[int, Signature]:
    """What some signatures are."""
    parts = (described(connection, set(ids[low : low + IN_LIST])) for low in range(0, len(ids), IN_LIST))
    return {identity: signature for part in parts for identity, signature in part.items()}


@dataclass(frozen=True, slots=True)
class Stats:
    """Kernels of windows, one a row."""

    window_id: Ints
    device: Ints  # position in the window
    signature_id: Ints
    bound: Ints
    calls: Ints
    total_ns: Ints
    step_calls: Ints
    step_ns: Ints

    def only(self, rows: npt.NDArray[np.bool_]) -> Stats:
        """Some of the rows."""
        return Stats(*(getattr(self, f.name)[rows] for f in fields(self)))


def read_side(connection: Connection, f: Filter, skip_start_ns: int, most: int = WINDOWS_MOST) -> Side:
    """A sample of at most ``most`` windows of each device model.

    ``skip_start_ns`` leaves out the windows that a process took so soon after its start (after its first window, where
    its start is not known).
    """
    numbered = _numbered(f, skip_start_ns).c
    w, p, wd, d = windows.c, processes.c, window_devices.c, devices.c
    place, whole = numbered.place * most, numbered.whole
    query = (
        select(
            w.id, w.start_unix_ns, w.process_id, nodes.c.host, p.rank, p.job, p.model.label("run"),
            d.model.label("device"), d.vendor, w.steps, w.base_step_ns, wd.position, wd.span_ns, d.uuid, d.ordinal,
            *(wd[name] for name in _STATE), wd.throttle, whole.label("whole"),
        )
        .select_from(numbered.place.table)
        .join(windows, w.id == numbered.window_id)
        .join(processes, p.id == w.process_id)
        .join(nodes, nodes.c.id == p.node_id)
        .join(window_devices, wd.window_id == w.id)
        .join(devices, and_(d.id == wd.device_id, d.model == numbered.device))
        .where(place // whole > (place - most) // whole)  # every whole ÷ most-th
        .order_by(d.model, w.process_id, w.start_unix_ns, came(w.id), wd.position)
    )  # fmt: skip
    units: dict[tuple[int, str], Unit] = {}
    counts: dict[str, int] = {}
    for row in connection.execute(query):
        unit = units.get((row.id, row.device))
        if unit is None:
            counts[row.device] = int(row.whole)
            unit = units[row.id, row.device] = Unit(
                row.id, row.start_unix_ns, row.process_id, row.host, row.rank, row.job, row.run, row.device,
                row.vendor, row.steps, row.base_step_ns,
            )  # fmt: skip
        _add_device(unit, row)
    return Side(list(units.values()), counts)


def _numbered(f: Filter, skip_start_ns: int) -> Any:
    """The filter's windows, numbered by process and time among those of their device model."""
    w, d = windows.c, devices.c
    pairs = windows_of(f, w.id.label("window_id"), w.process_id, w.start_unix_ns, d.model.label("device")).distinct()
    pairs = pairs.join(window_devices, window_devices.c.window_id == w.id)
    pairs = pairs.join(devices, d.id == window_devices.c.device_id).where(*device_matches(f))
    if skip_start_ns:
        own = windows.alias("own")
        first = select(func.min(own.c.start_unix_ns)).where(own.c.process_id == w.process_id).scalar_subquery()
        pairs = pairs.where(w.start_unix_ns - func.coalesce(processes.c.start_unix_ns, first) >= skip_start_ns)
    c = pairs.cte("pairs").c
    order = (c.process_id, c.start_unix_ns, came(c.window_id))
    place = func.row_number().over(partition_by=c.device, order_by=order).label("place")
    return select(c.window_id, c.device, place, func.count().over(partition_by=c.device).label("whole")).cte("numbered")


def _add_device(unit: Unit, row: Any) -> None:
    unit.span_ns += int(row.span_ns)
    unit.positions.append(row.position)
    unit.identities.append(row.uuid or (unit.host, row.ordinal))
    for name in _STATE:
        if (read := getattr(row, name)) is not None:
            unit.state[name].append(read)
    if row.throttle is not None:
        unit.throttle = (unit.throttle or set()) | {word for word in row.throttle.split(",") if word}


def shared(connection: Connection, before: Filter, after: Filter) -> int:
    """How many windows are on both sides."""
    query = windows_of(before, func.count()).where(*conditions(after))
    return int(connection.execute(query).scalar_one())


def affordable(connection: Connection, sides: Sequence[Sequence[Unit]]) -> list[Unit]:
    """The units of both sides; every n-th of them where the kernels of all would be more than ROWS_MOST."""
    ids = [unit.window_id for units in sides for unit in units]
    b = kernel_blocks.c
    rows = 0
    for low in range(0, len(ids), IN_LIST):
        query = select(func.coalesce(func.sum(b.rows), 0)).where(b.window_id.in_(ids[low : low + IN_LIST]))
        rows += int(connection.execute(query).scalar_one())
    every = max(1, -(-rows // ROWS_MOST))
    return [unit for units in sides for unit in units[::every]]


def read_stats(connection: Connection, ids: Sequence[int]) -> Stats:
    """The kernels of some windows; a window may have none, or only sums are kept of it."""
    wanted = [FACT.index(name) for name in WANTED]
    parts = [np.empty((1 + len(WANTED), 0), dtype=np.int64)]
    for low in range(0, len(ids), IN_LIST):
        for number, (facts, _) in each_window(connection, ids[low : low + IN_LIST]).items():
            parts.append(np.vstack((np.full(facts.shape[1], number), facts[wanted])))
    return Stats(*np.concatenate(parts, axis=1))
