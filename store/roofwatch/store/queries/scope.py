"""Which windows a filter means, and how much each of their devices stands for."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from sqlalchemy import CTE, ColumnElement, false, func, or_, select

from roofwatch.model.errors import UsageError
from roofwatch.store.days import in_days, same_days
from roofwatch.store.filter import Filter
from roofwatch.store.rollup_sources import weight
from roofwatch.store.schema import device_sets, devices, labels, nodes, processes, window_devices, windows

IN_LIST = 400  # values named in one statement
# What a process or its node has as a column of its own, by OpenTelemetry's name: a label to whoever asks for it.
_COLUMNS = {"container.id": processes.c.container, "host.name": nodes.c.host, "process.owner": processes.c.owner}


def conditions(f: Filter) -> list[ColumnElement[bool]]:
    """What windows, joined with their process and node, must fulfil."""
    found = began(f.since_unix_ns, f.until_unix_ns)
    return [*found, *owners(f), *device_sets_of(f, windows.c.devices_id)]


def began(since: int | None, until: int | None) -> list[ColumnElement[bool]]:
    """That a window began in a time, and in which partitions such windows are."""
    found = times(windows.c.start_unix_ns, since, until)
    return [*found, in_days(windows.c.id, since, until)] if found else found


def times(column: ColumnElement[int], since: int | None, until: int | None) -> list[ColumnElement[bool]]:
    """That a time lies between: since ≤ column < until, without limit where None."""
    found: list[ColumnElement[bool]] = []
    if since is not None:
        found.append(column >= since)
    if until is not None:
        found.append(column < until)
    return found


def owners(f: Filter) -> list[ColumnElement[bool]]:
    """What processes, joined with their nodes, must fulfil."""
    found: list[ColumnElement[bool]] = []
    if f.node is not None:
        found.append(nodes.c.host == f.node)
    if f.model is not None:
        found.append(processes.c.model == f.model)
    if f.job is not None:
        found.append(_job(f.job))
    if f.process is not None:
        found.append(_process(f.process))
    for key, value in f.labels.items():
        marked = select(labels.c.owner_id).where(labels.c.key == key, labels.c.value == value)
        own = [_COLUMNS[key] == value] if key in _COLUMNS else []
        found.append(or_(processes.c.id.in_(marked), processes.c.node_id.in_(marked), *own))
    return found


def _job(text: str) -> ColumnElement[bool]:
    """A job as it is told; of a batch system's job all its steps: ``slurm:7`` means ``slurm:7.0``, too."""
    if text.startswith("slurm:") and "." not in text:
        return or_(processes.c.job == text, processes.c.job.startswith(f"{text}.", autoescape=True))
    return processes.c.job == text


def device_sets_of(f: Filter, column: ColumnElement[int]) -> list[ColumnElement[bool]]:
    """That a window's set of devices holds one that matches."""
    wanted = device_matches(f)
    if not wanted:
        return []
    sets = select(device_sets.c.id).join(devices, devices.c.id == device_sets.c.device_id).where(*wanted)
    return [column.in_(sets)]


def _process(text: str) -> ColumnElement[bool]:
    """A pid is decimal; an id is 16 hex digits."""
    try:
        if len(text) == 16:
            identity = int(text, 16)
            return processes.c.id == identity if 0 <= identity < 1 << 63 else false()
        if text.isascii() and text.isdigit() and len(text) < 16:
            return processes.c.pid == int(text)
    except ValueError:
        pass
    raise UsageError(f"'{text}' is no process: give a pid, or the 16 hex digits that 'roofwatch processes' shows")


def device_matches(f: Filter) -> list[ColumnElement[bool]]:
    """What devices must fulfil: the vendor, and a text in their model, in any case."""
    found: list[ColumnElement[bool]] = []
    if f.device is not None:
        found.append(func.lower(devices.c.model).contains(f.device.lower(), autoescape=True))
    if f.vendor is not None:
        found.append(devices.c.vendor == f.vendor)
    return found


def windows_of(f: Filter, *columns: Any) -> Any:
    """Select columns of the filter's windows, their processes and nodes."""
    return (
        select(*columns)
        .select_from(windows)
        .join(processes, processes.c.id == windows.c.process_id)
        .join(nodes, nodes.c.id == processes.c.node_id)
        .where(*conditions(f))
    )


def among(query: Any, column: Any, wanted: Collection[int]) -> Any:
    """Limit a query to rows whose column is wanted; leaves it as it is when too many are wanted to name them."""
    return query.where(column.in_(wanted)) if len(wanted) <= IN_LIST else query


def devices_of(f: Filter) -> CTE:
    """The filter's (window, device) pairs with their weight; computed once, before the kernels are looked up."""
    pairs = (
        windows_of(
            f,
            windows.c.id.label("window_id"),
            windows.c.process_id,
            nodes.c.host,
            window_devices.c.position,
            window_devices.c.span_ns,
            window_devices.c.busy_ns,
            devices.c.id.label("device_id"),
            devices.c.vendor,
            devices.c.model,
            devices.c.uuid,
            devices.c.ordinal,
            devices.c.peaks_id,
            weight().label("weight"),
        )
        .join(window_devices, window_devices.c.window_id == windows.c.id)
        .join(devices, devices.c.id == window_devices.c.device_id)
    )
    pairs = pairs.where(*device_matches(f), *same_days(conditions(f), window_devices.c.window_id))
    # Computed first and by itself; flattened into the query, SQLite would rather scan all kernels ever stored.
    found: CTE = pairs.cte("scope").prefix_with("MATERIALIZED", dialect="sqlite")
    return found.prefix_with("MATERIALIZED", dialect="postgresql")
