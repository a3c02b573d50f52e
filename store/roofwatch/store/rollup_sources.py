"""What windows are made of for every sum over them: one row a window, device, cause or reason, and the same as sums.

Each figure has one expression over the tables of windows and one column in the tables of sums, and is added up or the
greatest taken: so that sums of windows, of sums, and of both together are the same thing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Double,
    Select,
    Table,
    and_,
    case,
    cast,
    func,
    literal,
    select,
)
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.functions import FunctionElement

from roofwatch.model.diagnosis_mistakes import EARLY_STEPS
from roofwatch.store.days import same_days
from roofwatch.store.postgres_sums import same_pieces
from roofwatch.store.rollup_schema import GREATEST, TIMES
from roofwatch.store.schema import (
    cause_sums,
    device_sums,
    devices,
    drop_sums,
    idle_causes,
    nodes,
    processes,
    rollups,
    window_devices,
    window_drops,
    window_sums,
    windows,
)

MOST_NS = 1 << 62  # more than any stored time
FLOPS_LOW = 1_000_000  # FLOPs are summed as millions and the rest: a day of one node is more than a number of 53 bits
Conditions = Sequence[ColumnElement[bool]]


class WholeNs(FunctionElement[int]):
    """Nanoseconds that are not negative in whole ones, halves up: model.answer.estimated. Every engine rounds alike."""

    inherit_cache = True
    name = "whole_ns"


@compiles(WholeNs)
def _floor(element: Any, compiler: Any, **more: Any) -> str:
    return f"floor({compiler.process(element.clauses, **more)} + 0.5)"


@compiles(WholeNs, "sqlite")
def _cast(element: Any, compiler: Any, **more: Any) -> str:
    return f"CAST({compiler.process(element.clauses, **more)} + 0.5 AS INTEGER)"  # not each SQLite has floor()


def weight() -> ColumnElement[float]:
    """How much time a device's sampled nanosecond stands for: represents ÷ span, 1 where unknown (model.answer)."""
    known = and_(windows.c.represents_ns > 0, window_devices.c.span_ns > 0)
    return case((known, cast(windows.c.represents_ns, Double) / cast(window_devices.c.span_ns, Double)), else_=1.0)


def estimated(column: ColumnElement[Any], factor: ColumnElement[float]) -> ColumnElement[int]:
    """What sampled nanoseconds stand for."""
    return WholeNs(column * factor)


def lost() -> ColumnElement[Any]:
    """Time a job lost to a window: in it and after it; null where it was not measured (model.Cost)."""
    return windows.c.lost_in_ns + func.coalesce(windows.c.lost_after_ns, 0)


def total(column: ColumnElement[Any]) -> ColumnElement[Any]:
    """A sum that does not overflow, as a float: of a fleet's weeks, or a job's nonsense."""
    return func.sum(cast(column, Double))


def _figures() -> Mapping[str, ColumnElement[Any]]:
    """Of a row of ``windows`` what ``window_sums`` holds."""
    w = windows.c
    known = func.coalesce(w.represents_ns, 0) > 0
    silent = and_(w.model_ns > 0, w.model_known_ns == 0)
    counts = and_(~silent, w.span_ns > 0)
    costed = and_(w.lost_in_ns.is_not(None), w.represents_ns > 0)
    unclear = 2 * w.classified_ns < w.classifiable_ns
    share = cast(w.est_span_ns, Double) / cast(w.span_ns, Double)
    early = and_(w.first_step.is_not(None), w.first_step < EARLY_STEPS)
    plain = (
        "device_records", "device_time_ns", "backlog_ns", "classifiable_ns", "classified_ns", "named_ns",
        "model_known_ns", "compared_ns", "disagreed_ns", "graph_ns", "graph_attributed_ns", "events_read", "steps",
        "layout_ns", "python_events", "waits", "wait_ns", "longest_wait_ns", "padding_batches", "padding_real_tokens",
        "padding_padded_tokens", "padding_real_squared", "padding_padded_squared",
    )  # fmt: skip
    return {
        **{name: w[name] for name in plain},
        "windows": literal(1),
        "model_flops_high": w.model_flops // FLOPS_LOW,
        "model_flops_low": w.model_flops % FLOPS_LOW,
        "layout_of_ns": case((w.layout_ns.is_not(None), w.classifiable_ns), else_=0),
        "host_device_time_ns": case((w.has_host_events, w.device_time_ns), else_=0),
        "linked_ns": case((w.has_host_events, w.linked_ns), else_=0),
        "sampled_ns": case((known, w.duration_ns), else_=0),
        "represented_ns": case((known, w.represents_ns), else_=0),
        "mfu_peak_ns": case((counts, WholeNs(w.model_peak_ns * share)), else_=0),
        "mfu_span_ns": case((counts, w.est_span_ns), else_=0),
        "mfu_model_ns": case((counts, w.model_ns), else_=0),
        "mfu_known_ns": case((counts, w.model_known_ns), else_=0),
        "mfu_left_out_ns": case((silent, w.model_ns), else_=0),
        "cost_windows": case((costed, 1), else_=0),
        "lost_ns": case((costed, lost())),
        "cost_represented_ns": case((costed, w.represents_ns)),
        "early_windows": case((early, 1), else_=0),
        "shapeless_windows": case((and_(unclear, w.has_host_events, ~w.shapes_recorded), 1), else_=0),
        "opless_windows": case((and_(unclear, ~w.has_host_events, ~w.shapes_recorded), 1), else_=0),
        "last_unix_ns": w.start_unix_ns + w.duration_ns,
    }


FIGURES = _figures()
_OF_DEVICE = (devices.c.id.label("device_id"), devices.c.vendor, devices.c.model, devices.c.uuid, devices.c.ordinal,
              devices.c.peaks_id)  # fmt: skip


def _owners(*columns: Any) -> Select[Any]:
    return select(windows.c.process_id, nodes.c.host, *columns)


def _of_windows(query: Select[Any], where: Conditions) -> Select[Any]:
    return (
        query.join(processes, processes.c.id == windows.c.process_id)
        .join(nodes, nodes.c.id == processes.c.node_id)
        .where(*where)
    )


def window_rows(where: Conditions, names: Sequence[str] = tuple(FIGURES)) -> Select[Any]:
    """A row a window: some of ``FIGURES``. The conditions are of windows, processes and nodes."""
    named = [FIGURES[name].label(name) for name in names]
    query = _owners(literal(0).label("grain"), windows.c.devices_id, *named).select_from(windows)
    return _of_windows(query, where)


def drop_rows(where: Conditions) -> Select[Any]:
    """A row a window and reason."""
    d = window_drops.c
    query = _owners(windows.c.devices_id, d.reason, d["count"]).select_from(windows)
    return _of_windows(query.join(window_drops, d.window_id == windows.c.id), [*where, *same_days(where, d.window_id)])


def device_rows(where: Conditions) -> Select[Any]:
    """A row a window and device; ``windows`` is 1 once a window, also where it has the device twice."""
    d = window_devices.c
    times = [x for name in TIMES for x in (d[name], estimated(d[name], weight()).label(f"est_{name}"))]
    again = window_devices.alias("again")
    twice = select(again.c.position).where(
        again.c.window_id == d.window_id, again.c.device_id == d.device_id, again.c.position < d.position
    )
    once = case((and_(d.position > 0, twice.exists()), 0), else_=1).label("windows")
    query = _owners(*_OF_DEVICE, once, *times).select_from(windows)
    query = query.join(window_devices, d.window_id == windows.c.id).join(devices, devices.c.id == d.device_id)
    return _of_windows(query, [*where, *same_days(where, d.window_id)])


def cause_rows(where: Conditions) -> Select[Any]:
    """A row a window, device and cause."""
    c, d = idle_causes.c, window_devices.c
    steady = case((c.steady_longest_ns.is_(None), c.example), else_=c.steady_example)
    query = _owners(
        *_OF_DEVICE, c.cause, c.total_ns, estimated(c.total_ns, weight()).label("est_ns"), c["count"], c.longest_ns,
        c.example, c.startup_ns, estimated(c.startup_ns, weight()).label("startup_est_ns"), c.startup_count,
        func.coalesce(c.steady_longest_ns, c.longest_ns).label("steady_longest_ns"), steady.label("steady_example"),
    ).select_from(windows)  # fmt: skip
    query = (
        query.join(window_devices, d.window_id == windows.c.id)
        .join(devices, devices.c.id == d.device_id)
        .join(idle_causes, and_(c.window_id == d.window_id, c.position == d.position))
    )
    return _of_windows(query, [*where, *same_days(where, d.window_id, c.window_id)])


def _of_pieces(table: Table, query: Select[Any], where: Conditions) -> Select[Any]:
    t, r = table.c, rollups.c
    return (
        query.select_from(table)
        .join(rollups, and_(r.grain == t.grain, r.bucket_unix_ns == t.bucket_unix_ns, r.process_id == t.process_id))
        .join(processes, processes.c.id == t.process_id)
        .join(nodes, nodes.c.id == processes.c.node_id)
        .where(*where, *same_pieces(where, t))
    )


def piece_rows(table: Table, where: Conditions, names: Sequence[str] = tuple(FIGURES)) -> Select[Any]:
    """The rows of a table of sums with the columns of what they sum; ``names`` as in ``window_rows``.

    The conditions are of rollups, processes and nodes.
    """
    t = table.c
    if table is window_sums:
        columns = [t.grain, t.devices_id, *(t[name] for name in names)]
    elif table is drop_sums:
        columns = [t.devices_id, t.reason, t["count"]]
    else:
        own = [column for column in t if not column.primary_key or column.name == "cause"]
        query = select(t.process_id, nodes.c.host, *_OF_DEVICE, *own)
        return _of_pieces(table, query, where).join(devices, devices.c.id == t.device_id)
    return _of_pieces(table, select(t.process_id, nodes.c.host, *columns), where)


def fresh_rows(table: Table, where: Conditions, *, owned: bool, of_device: bool) -> Select[Any]:
    """Rows of a table of sums none of which is stale, without whose they are.

    The conditions are of the table, of processes and nodes where ``owned``, of devices where ``of_device``.
    """
    t = table.c
    query = select(*plain_columns(table)).select_from(table)
    if owned:
        query = query.join(processes, processes.c.id == t.process_id).join(nodes, nodes.c.id == processes.c.node_id)
    if of_device:
        query = query.join(devices, devices.c.id == t.device_id)
    return query.where(*where)


def plain_columns(table: Table) -> list[ColumnElement[Any]]:
    """Of a table of sums the columns that do not tell whose they are."""
    told = {window_sums.name: "grain", drop_sums.name: "reason", cause_sums.name: "cause"}.get(table.name)
    return [column for column in table.c if not column.primary_key or column.name == told]


def aggregates(rows: Any, names: Sequence[str]) -> list[ColumnElement[Any]]:
    """The sum of each column of ``FIGURES``, as a float, or the greatest."""

    def one(name: str) -> ColumnElement[Any]:
        column = rows.c[name]
        return func.max(column) if name in GREATEST else total(column)

    return [one(name).label(name) for name in names]


class OfLongest(FunctionElement[str]):
    """The text of the row of a group with the greatest number, of several the first in the alphabet; as "" where null.

    One pass: how much is lacking to MOST_NS, in digits, then the text; of these texts the least.
    """

    inherit_cache = True
    name = "of_longest"

    def __init__(self, number: ColumnElement[Any], text: ColumnElement[Any]) -> None:
        super().__init__(MOST_NS - number, func.coalesce(text, ""))


_DIGITS = len(str(MOST_NS))


@compiles(OfLongest)
def _least(element: Any, compiler: Any, **more: Any) -> str:
    lacking, text = (compiler.process(clause, **more) for clause in element.clauses)
    return f"substr(min(lpad(CAST({lacking} AS TEXT), {_DIGITS}, '0') || {text}), {_DIGITS + 1})"


@compiles(OfLongest, "sqlite")
def _least_printed(element: Any, compiler: Any, **more: Any) -> str:
    lacking, text = (compiler.process(clause, **more) for clause in element.clauses)
    return f"substr(min(printf('%0{_DIGITS}d', {lacking}) || {text}), {_DIGITS + 1})"


@compiles(OfLongest, "clickhousedb")
def _arg_min(element: Any, compiler: Any, **more: Any) -> str:
    lacking, text = (compiler.process(clause, **more) for clause in element.clauses)
    return f"argMin({text}, ({lacking}, {text}))"


def causes_summed(rows: Any, by: Sequence[ColumnElement[Any]]) -> Select[Any]:
    """Sums by cause; the example is that of the longest stretch, of several as long the first in the alphabet."""
    r = rows.c
    keys = [*by, r.cause]
    return select(
        *keys,
        total(r.total_ns).label("total_ns"),
        total(r.est_ns).label("est_ns"),
        total(r["count"]).label("count"),
        func.max(r.longest_ns).label("longest_ns"),
        func.nullif(OfLongest(r.longest_ns, r.example), "").label("example"),
        total(r.startup_ns).label("startup_ns"),
        total(r.startup_est_ns).label("startup_est_ns"),
        total(r.startup_count).label("startup_count"),
        func.max(r.steady_longest_ns).label("steady_longest_ns"),
        func.nullif(OfLongest(r.steady_longest_ns, r.steady_example), "").label("steady_example"),
    ).group_by(*keys)


SOURCES = {
    window_sums.name: window_rows,
    drop_sums.name: drop_rows,
    device_sums.name: device_rows,
    cause_sums.name: cause_rows,
}
