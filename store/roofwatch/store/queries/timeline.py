"""``timeline``: where the devices' time went, by device, window, process or node."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from sqlalchemy import CTE, ColumnElement, Connection, and_, case, func, select

from roofwatch.model.record import Cause
from roofwatch.model.timeline import Startup, TimelineSum, row
from roofwatch.store.filter import Filter
from roofwatch.store.queries.scope import devices_of, windows_of
from roofwatch.store.schema import idle_causes, nodes, processes, window_devices, windows

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
    """The timelines of groups; ``only`` these windows, where it is not None."""
    scope = devices_of(f)
    keys = [scope.c[name] for name in by]
    inside = () if only is None else (scope.c.window_id.in_(only),)
    found: Groups = defaultdict(TimelineSum)
    for *group, span, est_span, busy, est_busy, copy, est_copy, comm, est_comm in connection.execute(
        _busy(scope, keys).where(*inside)
    ):
        figures = found[tuple(group)]
        figures.sampled.add(int(span), int(busy), int(copy), int(comm))
        figures.estimated.add(float(est_span), float(est_busy), float(est_copy), float(est_comm))
    for line in connection.execute(_causes(scope, keys, inside)):
        cause, total, est, count, longest, example, *own = line[len(keys) :]
        figures = found[tuple(line[: len(keys)])]
        figures.cause(Cause(cause)).add(int(total), float(est), int(count), int(longest), example, _startup(*own))
    return dict(found)


def _startup(total: int, est: float, count: int, longest: int, example: str | None) -> Startup | None:
    return Startup(int(total), float(est), int(count), int(longest), example) if count else None


def _busy(scope: CTE, keys: Sequence[ColumnElement[Any]]) -> Any:
    d = window_devices.c
    columns = (d.span_ns, d.busy_ns, d.exposed_copy_ns, d.exposed_communication_ns)
    both = [figure for column in columns for figure in (func.sum(column), func.sum(column * scope.c.weight))]
    query = (
        select(*keys, *both)
        .select_from(scope)
        .join(window_devices, and_(d.window_id == scope.c.window_id, d.position == scope.c.position))
    )
    # Without windows a sum over nothing would be a row of nulls.
    return query.group_by(*keys) if keys else query.having(func.count() > 0)


def _causes(scope: CTE, keys: Sequence[ColumnElement[Any]], inside: Sequence[ColumnElement[bool]]) -> Any:
    """Sums by cause, with the example of the longest stretch of each."""
    c = idle_causes.c
    by = [*keys, c.cause]
    steady = func.coalesce(c.steady_longest_ns, c.longest_ns)
    order = (c.window_id, c.position)
    place = func.row_number().over(partition_by=by, order_by=(c.longest_ns.desc(), *order))
    steady_place = func.row_number().over(partition_by=by, order_by=(steady.desc(), *order))
    ranked = (
        select(
            *(key.label(f"key{i}") for i, key in enumerate(keys)),
            c.cause,
            c.total_ns,
            (c.total_ns * scope.c.weight).label("est_ns"),
            c.count,
            c.longest_ns,
            c.example,
            place.label("place"),
            c.startup_ns,
            (c.startup_ns * scope.c.weight).label("startup_est_ns"),
            c.startup_count,
            steady.label("steady_longest_ns"),
            case((c.steady_longest_ns.is_(None), c.example), else_=c.steady_example).label("steady_example"),
            steady_place.label("steady_place"),
        )
        .select_from(scope)
        .join(idle_causes, and_(c.window_id == scope.c.window_id, c.position == scope.c.position))
        .where(*inside)
        .subquery()
    )
    r = ranked.c
    groups = [*(r[f"key{i}"] for i in range(len(keys))), r.cause]
    first = func.max(r.example).filter(r.place == 1)
    steady_first = func.max(r.steady_example).filter(r.steady_place == 1)
    of_all = (func.sum(r.total_ns), func.sum(r.est_ns), func.sum(r["count"]), func.max(r.longest_ns), first)
    begun = (func.sum(r.startup_ns), func.sum(r.startup_est_ns), func.sum(r.startup_count))
    return select(*groups, *of_all, *begun, func.max(r.steady_longest_ns), steady_first).group_by(*groups)


Places = dict[Group, dict[str, Any]]


def _windows(connection: Connection, f: Filter, limit: int) -> tuple[Places, list[int] | None]:
    """The latest windows."""
    w, p = windows.c, processes.c
    query = windows_of(
        f, w.id, w.uid, w.start_unix_ns, w.first_step, w.steps, nodes.c.host, p.id.label("process"), p.pid, p.model
    ).order_by(w.start_unix_ns.desc(), w.id.desc())
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
    p = processes.c
    query = windows_of(
        f, p.id, p.pid, p.model, nodes.c.host, func.count().label("windows"), func.sum(windows.c.steps).label("steps")
    ).group_by(p.id, p.pid, p.model, nodes.c.host)
    models = _models(connection, f, "process_id")
    return {
        (line.id,): {
            "node": line.host,
            "process": f"{line.id:016x}",
            "pid": line.pid,
            "model": line.model,
            "windows": line.windows,
            "steps": None if line.steps is None else int(line.steps),
            "device": models.get(line.id),
        }
        for line in connection.execute(query)
    }, None


def _nodes(connection: Connection, f: Filter, limit: int) -> tuple[Places, None]:
    del limit
    query = windows_of(f, nodes.c.host, func.count().label("windows")).group_by(nodes.c.host)
    models = _models(connection, f, "host")
    return {
        (line.host,): {"node": line.host, "windows": line.windows, "device": models.get(line.host)}
        for line in connection.execute(query)
    }, None


def _devices(connection: Connection, f: Filter, limit: int) -> tuple[Places, None]:
    del limit
    scope = devices_of(f)
    keys = [scope.c[name] for name in _BY["device"]]
    query = select(*keys, func.count(scope.c.window_id.distinct())).group_by(*keys)
    return {
        tuple(group): {"node": group[0], "device": group[2], "index": group[4], "windows": count}
        for *group, count in connection.execute(query)
    }, None


_PLACES: Mapping[str, Callable[[Connection, Filter, int], tuple[Places, list[int] | None]]] = {
    "device": _devices,
    "window": _windows,
    "process": _processes,
    "node": _nodes,
}


def _models(connection: Connection, f: Filter, owner: str) -> dict[Any, str]:
    """Device models of each owner, comma between."""
    scope = devices_of(f)
    found: dict[Any, list[str]] = defaultdict(list)
    for key, model in connection.execute(select(scope.c[owner], scope.c.model).distinct().order_by(scope.c.model)):
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
