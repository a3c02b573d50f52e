"""Sums over hours and days by numpy, of rows that are read as plain columns.

To add dozens of columns of a few rows up, the engine analyses longer than it works; a row of numbers is read at once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from sqlalchemy import Connection, Table

from roofwatch.store.blocks import Ints
from roofwatch.store.clickhouse import packed, reading
from roofwatch.store.clickhouse.devices import described, devices_meant, sets_meant
from roofwatch.store.clickhouse.reading import kept
from roofwatch.store.clickhouse.states import States
from roofwatch.store.rollup_schema import GREATEST, TIMES
from roofwatch.store.rollup_sources import FIGURES
from roofwatch.store.schema import cause_sums, device_sums, drop_sums, window_sums

MOST = 4096  # pieces whose rows are read; of more the engine adds them up
TOLD_MOST = 512  # of rows with texts, which are read one by one
_EACH = [f"{prefix}{name}" for name in TIMES for prefix in ("", "est_")]
_CAUSES = ("total_ns", "est_ns", "count", "longest_ns", "example", "startup_ns", "startup_est_ns", "startup_count",
           "steady_longest_ns", "steady_example")  # fmt: skip
_NAMES: Mapping[str, tuple[str, ...]] = {
    window_sums.name: ("grain", "devices_id", *FIGURES),
    drop_sums.name: ("devices_id", "reason", "count"),
    device_sums.name: ("device_id", "windows", *_EACH),
    cause_sums.name: ("device_id", "cause", *_CAUSES),
}
# Both have few rows, or none: one statement reads them, whose columns are those of causes, with an owner and a mark.
_BOTH = ("is_drop", "owner", "key", *_CAUSES)
_SHARED = {"device_id": "owner", "devices_id": "owner", "cause": "key", "reason": "key", "count": "count"}
_ROOFS = ("signature_id", "peaks_id", "roof_ns", "ridge")
_MIX = 0x1E3779B97F4A7C15  # odd, with ones and zeros all over
_TEXTS = {drop_sums.name, cause_sums.name}


@dataclass(frozen=True, slots=True)
class Matches:
    """Devices that are meant: those with a text in their model, in any case, and of a vendor; None: of any."""

    model: str | None
    vendor: str | None

    def __bool__(self) -> bool:
        return self.model is not None or self.vendor is not None


def summed(connection: Connection, table: Table, of: States, matches: Matches) -> Sequence[Any] | None:
    """What ``queries.fresh.summed`` gives of pieces, all of them fresh; None where the engine is to add them up."""
    columns = columns_of(connection, table, of, matches)
    return None if columns is None else _SUMMED[table.name](columns)


def ahead(connection: Connection, of: States) -> None:
    """Ask for the rows of all tables: an answer that begins with kernels comes to the rest while these are read."""
    if len(of) <= TOLD_MOST:
        packed.ahead(connection, of)
        return
    for table in (window_sums, device_sums, cause_sums):  # the longest first; with causes come drops
        if _are_few(table, of):
            reading.ahead(connection, *_statement(table, of), of.told())


def _are_few(table: Table, of: States) -> bool:
    return len(of) <= (TOLD_MOST if table.name in _TEXTS else MOST)


def _statement(table: Table, of: States) -> tuple[str, Sequence[str]]:
    """What reads a table's rows, and its columns. Keys are stored as numbers of a dictionary, which would come, too."""
    names, where = _NAMES[table.name], of.condition()
    if table.name not in _TEXTS:
        listed = ", ".join(f"`{name}`" for name in names)
        return f"SELECT {listed} FROM {table.name} WHERE {where}", names  # noqa: S608 - our own words
    none = ("NULL" if name.endswith("example") else "`count`" if name == "count" else "0" for name in _CAUSES)
    causes = f"0, device_id, CAST(cause AS String), {', '.join(f'`{name}`' for name in _CAUSES)}"
    drops = f"1, devices_id, CAST(reason AS String), {', '.join(none)}"
    return (
        f"SELECT {causes} FROM cause_sums WHERE {where} UNION ALL SELECT {drops} FROM drop_sums WHERE {where}",  # noqa: S608
        _BOTH,
    )


def _own(table: Table, columns: dict[str, Any]) -> dict[str, Any]:
    """Of the rows that one statement reads of two tables those of one, under its own names."""
    rows = columns["is_drop"] == (1 if table is drop_sums else 0)
    return {name: columns[_SHARED.get(name, name)][rows] for name in _NAMES[table.name]}


def columns_of(connection: Connection, table: Table, of: States, matches: Matches) -> dict[str, Any] | None:
    """The rows of pieces whose devices are meant; None where there are too many."""
    if not _are_few(table, of):
        return None
    names = _NAMES[table.name]
    columns = _packed(connection, table, of)
    if columns is None:
        columns = kept(connection, *_statement(table, of), of.told())
        columns = _own(table, columns) if table.name in _TEXTS else columns
    if not matches:
        return columns
    name, meant = ("devices_id", sets_meant) if "devices_id" in names else ("device_id", devices_meant)
    own = columns[name]
    wanted = meant(connection, np.unique(own).tolist(), matches.model, matches.vendor)
    rows = np.isin(own, np.fromiter(wanted, np.int64, len(wanted)))
    return {name: column[rows] for name, column in columns.items()}


def _packed(connection: Connection, table: Table, of: States) -> dict[str, Any] | None:
    if len(of) > TOLD_MOST:
        return None
    columns = packed.columns_of(connection, of).get(table.name)
    return None if columns is None else {name: columns[name] for name in _NAMES[table.name]}


def models(connection: Connection, of: States, matches: Matches) -> Sequence[tuple[str, str, int]] | None:
    """Device models and vendors of pieces, ascending, with how often one of theirs was in a window; as ``summed``."""
    columns = columns_of(connection, device_sums, of, matches)
    if columns is None:
        return None
    kinds, found = described(connection, np.unique(columns["device_id"]).tolist()), Counter[tuple[str, str]]()
    for device, windows in zip(columns["device_id"].tolist(), columns["windows"].tolist(), strict=True):
        vendor, model, _ = kinds[device]
        found[model, vendor] += windows
    return [(*kind, windows) for kind, windows in sorted(found.items())]


def roofs_of(connection: Connection, wanted: Collection[int], named_most: int) -> list[Any]:
    """Columns: signature, set of peaks, roof time of a call, ridge; all there are where too many are wanted."""
    if not wanted:
        return [np.empty(0, np.int64)] * len(_ROOFS)
    columns = kept(connection, _of_roofs(wanted, named_most), _ROOFS)
    if not _is_one_of_each(columns):
        columns = kept(connection, _of_roofs(wanted, named_most, merged=True), _ROOFS)
    return [columns[name] for name in _ROOFS]


def roofs_ahead(connection: Connection, wanted: Collection[int], named_most: int) -> None:
    """Ask for them, while the answer goes on."""
    if wanted:
        reading.ahead(connection, _of_roofs(wanted, named_most), _ROOFS)


def _of_roofs(wanted: Collection[int], named_most: int, *, merged: bool = False) -> str:
    """``merged``: of rows with one key one, which takes twice as long, and all of them say the same but for once."""
    few, settings = len(wanted) <= named_most, [] if merged else ["final = 0"]
    where = f" PREWHERE signature_id IN ({','.join(map(str, sorted(wanted)))})" if few else ""
    settings += ["max_threads = 1"] if few else []
    given = f" SETTINGS {', '.join(settings)}" if settings else ""
    return f"SELECT {', '.join(_ROOFS)} FROM roofs{where}{given}"  # noqa: S608 - our own words


def _is_one_of_each(columns: Mapping[str, Any]) -> bool:
    """Whether rows with one key say the same: else which of them counts is the engine's to tell."""
    key = columns[_ROOFS[0]] * _MIX ^ columns[_ROOFS[1]]
    order = np.argsort(key)
    twice = np.flatnonzero(np.diff(key[order]) == 0)
    if not len(twice):
        return True
    a, b = order[twice], order[twice + 1]
    told = [np.ma.filled(columns[name], -1) for name in _ROOFS]  # what is known is not below 0
    return all((column[a] == column[b]).all() for column in told)


def _figures(columns: Mapping[str, Any]) -> list[Any]:
    grain, found = columns["grain"], []
    for one in np.unique(grain).tolist():
        rows = grain == one
        found.append((one, *(_figure(name, columns[name][rows]) for name in FIGURES)))
    return found


def _figure(name: str, column: Any) -> float | int | None:
    if np.ma.is_masked(column):
        column = column.compressed()
        if not len(column):
            return None
    return int(column.max()) if name in GREATEST else _total(column)


def _total(column: Any) -> float:
    """A sum that does not overflow, as ``rollup_sources.total``."""
    return float(column.sum(dtype=np.float64))


def _groups(keys: Any) -> list[tuple[str, Ints]]:
    """The rows of each text."""
    return [(key, np.flatnonzero(keys == key)) for key in sorted(set(keys.tolist()))]


def _drops(columns: Mapping[str, Any]) -> list[Any]:
    return [(reason, _total(columns["count"][rows])) for reason, rows in _groups(columns["reason"])]


def _times(columns: Mapping[str, Any]) -> list[Any]:
    if not len(columns["device_id"]):
        return []
    return [tuple(_total(columns[name]) for name in _EACH)]


def _causes(columns: Mapping[str, Any]) -> list[Any]:
    return [(cause, *_cause({name: columns[name][rows] for name in _CAUSES})) for cause, rows in
            _groups(columns["cause"])]  # fmt: skip


def _cause(columns: Mapping[str, Any]) -> list[Any]:
    return [
        _longest(columns[name.replace("example", "longest_ns")], columns[name])
        if name.endswith("example")
        else int(columns[name].max())
        if name.endswith("longest_ns")
        else _total(columns[name])
        for name in _CAUSES
    ]


def _longest(number: Ints, text: Any) -> str | None:
    """As ``rollup_sources.OfLongest``."""
    told = np.ma.filled(text[number == number.max()], "")
    return min(told.tolist()) or None


_SUMMED: Mapping[str, Callable[[Mapping[str, Any]], list[Any]]] = {
    window_sums.name: _figures,
    drop_sums.name: _drops,
    device_sums.name: _times,
    cause_sums.name: _causes,
}
