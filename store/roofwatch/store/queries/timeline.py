"""``timeline``: where the devices' time went, by device, window, process or node."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, func, select

from roofwatch.model.record import Cause
from roofwatch.model.timeline import Startup, TimelineSum, row
from roofwatch.store.days import came
from roofwatch.store.filter import Filter
from roofwatch.store.queries.fresh import summed
from roofwatch.store.queries.memo import once
from roofwatch.store.queries.plan import plan
from roofwatch.store.queries.plan_rows import rows_of
from roofwatch.store.queries.scope import conditions, device_matches, devices_of, windows_of
from roofwatch.store.rollup_schema import TIMES
from roofwatch.store.rollup_sources import cause_rows, causes_summed, device_rows, total
from roofwatch.store.schema import cause_sums, device_sums, nodes, processes, window_sums, windows

Group = tuple[Any, ...]
Groups = dict[Group, TimelineSum]

# What makes a group, as columns of the scope: all of it is one group without any.
_BY: Mapping[str, tuple[str, ...]] = {
    "device": ("host", "vendor", "model", "uuid", "ordinal", "process_id"),
    "window": ("window_id",),
    "process": ("process_id",),
    "node": ("host",),
}


def timeline_by(by: str) -> Callable[[Connection, Filter, int], dict[str, Any]]:
    """The query that gives a row a device, window, process or node."""

    def query(connection: Connection, f: Filter, limit: int) -> dict[str, Any]:
        places, wanted = _PLACES[by](connection, f, limit)
        found = sums(connection, f, _BY[by], wanted)
        if by == "device":
            found, places = _merged(found, places)
        pairs = [(group, found[group]) for group in places if group in found]
        if by != "window":  # the windows come latest first; elsewhere those come first that wait most
            pairs.sort(key=lambda pair: -(pair[1].estimated.span_ns - pair[1].estimated.busy_ns))
        rows = [row(places[group], figures) for group, figures in pairs]
        summary = sums(connection, f, ()).get((), TimelineSum())
        return {"summary": summary.as_json(), "rows": rows[:limit] if limit else rows}

    return query


def sums(connection: Connection, f: Filter, by: Sequence[str], only: Sequence[int] | None = None) -> Groups:
    """The timelines of groups; ``only`` these windows, where it is not None. ``by`` are columns of ``_BY``."""
    if not by and only is None:
        return _laid(whole(connection, f), _causes_of_all(connection, f), 0)
    if "window_id" in by or only is not None:
        where = [*conditions(f), *device_matches(f), *(() if only is None else (windows.c.id.in_(only),))]
        times, causes = (source(where).add_columns(windows.c.id.label("window_id")).subquery()
                         for source in (device_rows, cause_rows))  # fmt: skip
    else:
        chosen = plan(connection, f)
        times, causes = rows_of(chosen, f, device_sums), rows_of(chosen, f, cause_sums)
    causes_of = connection.execute(causes_summed(causes, [causes.c[name] for name in by]))
    return _laid(_in_order(connection.execute(_busy(times, by)), len(by)), causes_of, len(by))


def _laid(times: Iterable[Any], causes: Iterable[Any], keys: int) -> Groups:
    """Rows of times and of causes as timelines, by their first columns."""
    found: Groups = defaultdict(TimelineSum)
    for *group, span, est_span, busy, est_busy, copy, est_copy, comm, est_comm in times:
        figures = found[tuple(group)]
        figures.sampled.add(int(span), int(busy), int(copy), int(comm))
        figures.estimated.add(float(est_span), float(est_busy), float(est_copy), float(est_comm))
    for line in _in_order(causes, keys + 1):
        cause, total_ns, est, count, longest, example, *own = line[keys:]
        figures = found[tuple(line[:keys])]
        figures.cause(Cause(cause)).add(int(total_ns), float(est), int(count), int(longest), example, _startup(*own))
    return dict(found)


def _in_order(rows: Iterable[Any], keys: int) -> list[Any]:
    """By their first columns, unknown first: which of two causes as long gives the example must not be an engine's."""
    return sorted(rows, key=lambda row: [(value is not None, value) for value in row[:keys]])


def whole(connection: Connection, f: Filter) -> Sequence[Any]:
    """Span, busy and exposed times of all devices, each sampled and estimated, as one row; no row without windows."""

    def find() -> Sequence[Any]:
        return summed(connection, plan(connection, f), f, device_sums, _busy_of_all)

    return once(connection, f, "whole", find)


def _busy_of_all(rows: Any) -> Any:
    return _busy(rows, ())


def _causes_of_all(connection: Connection, f: Filter) -> Sequence[Any]:
    def find() -> Sequence[Any]:
        return summed(connection, plan(connection, f), f, cause_sums, _by_cause)

    return once(connection, f, "causes", find)


def _by_cause(rows: Any) -> Any:
    return causes_summed(rows, ())


def _startup(total: int, est: float, count: int, longest: int, example: str | None) -> Startup | None:
    return Startup(int(total), float(est), int(count), int(longest), example) if count else None


def _busy(rows: Any, by: Sequence[str]) -> Any:
    c = rows.c
    keys = [c[name] for name in by]
    both = [total(c[f"{prefix}{name}"]) for name in TIMES for prefix in ("", "est_")]
    query = select(*keys, *both)
    # Without windows a sum over nothing would be a row of nulls.
    return query.group_by(*keys) if keys else query.having(func.count() > 0)


Places = dict[Group, dict[str, Any]]


def _windows(connection: Connection, f: Filter, limit: int) -> tuple[Places, list[int] | None]:
    """The latest windows."""
    w, p = windows.c, processes.c
    query = windows_of(
        f, w.id, w.uid, w.start_unix_ns, w.first_step, w.steps, nodes.c.host, p.id.label("process"), p.pid, p.model
    ).order_by(w.start_unix_ns.desc(), came(w.id).desc())
    found = connection.execute(query.limit(limit) if limit else query).all()
    models = _models(connection, f, "window_id")
    places: Places = {
        (line.id,): {
            "node": line.host,
            "process": f"{line.process:016x}",
            "pid": line.pid,
            "model": line.model,
            "window": line.uid.hex(),
            "start_unix_ns": line.start_unix_ns or None,
            "first_step": line.first_step,
            "steps": line.steps,
            "windows": 1,
            "device": models.get(line.id),
        }
        for line in found
    }
    return places, [line.id for line in found] if limit else None


def _processes(connection: Connection, f: Filter, limit: int) -> tuple[Places, None]:
    del limit
    p, rows = processes.c, rows_of(plan(connection, f), f, window_sums, names=("windows", "steps"))
    query = (
        select(
            p.id, p.pid, p.model, rows.c.host, func.sum(rows.c.windows).label("windows"),
            total(rows.c.steps).label("steps"),
        )
        .join(rows, rows.c.process_id == p.id)
        .group_by(p.id, p.pid, p.model, rows.c.host)
    )  # fmt: skip
    models = _models(connection, f, "process_id")
    return {
        (line.id,): {
            "node": line.host,
            "process": f"{line.id:016x}",
            "pid": line.pid,
            "model": line.model,
            "windows": int(line.windows),
            "steps": None if line.steps is None else int(line.steps),
            "device": models.get(line.id),
        }
        for line in connection.execute(query)
    }, None


def _nodes(connection: Connection, f: Filter, limit: int) -> tuple[Places, None]:
    del limit
    rows = rows_of(plan(connection, f), f, window_sums, names=("windows",))
    query = select(rows.c.host, func.sum(rows.c.windows).label("windows")).group_by(rows.c.host)
    models = _models(connection, f, "host")
    return {
        (line.host,): {"node": line.host, "windows": int(line.windows), "device": models.get(line.host)}
        for line in connection.execute(query)
    }, None


def _devices(connection: Connection, f: Filter, limit: int) -> tuple[Places, None]:
    del limit
    rows = rows_of(plan(connection, f), f, device_sums)
    keys = [rows.c[name] for name in _BY["device"]]
    query = select(*keys, func.sum(rows.c.windows)).group_by(*keys)
    return {
        tuple(group): {"node": group[0], "device": group[2], "index": group[4], "windows": int(count)}
        for *group, count in connection.execute(query)
    }, None


_PLACES: Mapping[str, Callable[[Connection, Filter, int], tuple[Places, list[int] | None]]] = {
    "device": _devices,
    "window": _windows,
    "process": _processes,
    "node": _nodes,
}


def _models(connection: Connection, f: Filter, owner: str) -> dict[Any, str]:
    """Device models of each owner (a column of the scope), comma between."""
    rows: Any = devices_of(f) if owner == "window_id" else rows_of(plan(connection, f), f, device_sums)
    found: dict[Any, list[str]] = defaultdict(list)
    for key, model in connection.execute(select(rows.c[owner], rows.c.model).distinct().order_by(rows.c.model)):
        found[key].append(model)
    return {key: ", ".join(models) for key, models in found.items()}


def _merged(found: Groups, places: Places) -> tuple[Groups, Places]:
    """One group a device: it is its uuid; without one, a CPU is its host's, another its process's."""
    sums_, told = Groups(), Places()
    for group, figures in found.items():
        host, vendor, model, uuid, ordinal, process = group
        key = (host, model, uuid) if uuid else (host, model) if vendor == "cpu" else (host, model, ordinal, process)
        if key in sums_:
            sums_[key].merge(figures)
            told[key]["windows"] += places[group]["windows"]
        else:
            sums_[key], told[key] = figures, dict(places[group])
    return sums_, told


by_device, by_window, by_process, by_node = (timeline_by(by) for by in ("device", "window", "process", "node"))
