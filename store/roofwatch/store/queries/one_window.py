"""``export``: the records of one window, as it holds them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import Connection, select

from roofwatch.model.errors import UsageError
from roofwatch.store import schema
from roofwatch.store.filter import Asked, Filter
from roofwatch.store.queries import kernels
from roofwatch.store.queries.scope import devices_of, windows_of

UID_BYTES = 16
FEWEST_DIGITS = 4  # of a uid: fewer are no name
SIGNATURE = (
    "kernel", "kind", "op", "phase", "module", "shapes", "dtypes", "arguments", "formula", "precision", "unit", "flops",
    "bytes", "flops_max",
)  # fmt: skip
SUMS = ("device", "calls", "total_ns", "min_ns", "max_ns", "bound", "evidence")


def window(connection: Connection, asked: Asked) -> dict[str, Any]:
    """The window whose uid begins with the option ``uid``: what it is, its devices, its collectives; a row a record.

    Raises:
        UsageError: there is none, or there are several.
    """
    found = _named(connection, asked.options)
    scope = Filter(found["start_unix_ns"], found["start_unix_ns"] + 1, process=found["process"])
    number = found.pop("id")
    parts = kernels.parts_of(connection, scope, [schema.windows.c.id == number])  # another may begin at its very moment
    sums = kernels.sums_of(connection, scope, parts, list(parts), histograms=False)
    return {
        "scope": scope,  # what the answer's coverage is of
        "window": found,
        "devices": _devices(connection, scope, number),
        "collectives": _collectives(connection, number),
        "rows": [
            {name: getattr(one.signature, name) for name in SIGNATURE} | {name: getattr(one, name) for name in SUMS}
            for group in sums.values()
            for one in group
        ],
    }


def _named(connection: Connection, options: Mapping[str, Any]) -> dict[str, Any]:
    prefix = str(options.get("uid", "")).lower()
    if not FEWEST_DIGITS <= len(prefix) <= 2 * UID_BYTES or set(prefix) - set("0123456789abcdef"):
        raise UsageError(f"'{prefix}' is no window: give the first digits of its uid, {FEWEST_DIGITS} or more")
    low, high = (bytes.fromhex(prefix.ljust(2 * UID_BYTES, filler)) for filler in "0f")
    w, p = schema.windows.c, schema.processes.c
    columns = (w.id, w.uid, w.start_unix_ns, w.duration_ns, w.collector, p.id.label("process"), p.pid, p.rank)
    named = w.uid == low if low == high else w.uid.between(low, high)  # a whole uid has an index on every engine
    query = windows_of(Filter(), *columns, schema.nodes.c.host).where(named).limit(2)
    rows = connection.execute(query).mappings().all()
    if not rows:
        raise UsageError(
            f"there is no window '{prefix}': 'roofwatch windows --since all --format json' tells their uids"
        )
    if len(rows) > 1:
        raise UsageError(f"'{prefix}' begins the uid of several windows: give more of its digits")
    found = dict(rows[0])
    return {**found, "uid": found["uid"].hex(), "process": f"{found['process']:016x}", "node": found.pop("host")}


def _devices(connection: Connection, scope: Filter, number: int) -> list[dict[str, Any]]:
    """Its devices by position; the index is the device's own number."""
    c = devices_of(scope).c
    query = (
        select(c.position, c.vendor, c.model, c.ordinal.label("index"))
        .where(c.window_id == number)
        .order_by(c.position)
    )
    return [dict(row) for row in connection.execute(query).mappings()]


def _collectives(connection: Connection, number: int) -> list[dict[str, Any]]:
    c = schema.collectives.c
    query = select(
        c.device, c.name, c.group_name.label("group"), c.group_size, c.start_unix_ns, c.duration_ns, c.bytes
    ).where(c.window_id == number)
    return [dict(row) for row in connection.execute(query.order_by(c.position)).mappings()]
