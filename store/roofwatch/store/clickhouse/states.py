"""Which hours and days of processes there are and how each stands, read once an answer as plain columns.

What this engine takes for a statement is mostly the analysis of it: so the pieces are read in one, and counted, chosen
and told apart by numpy.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from sqlalchemy import Connection, Select, select

from roofwatch.store.blocks import Ints
from roofwatch.store.clickhouse.chosen import tables_of
from roofwatch.store.clickhouse.reading import kept, text_of
from roofwatch.store.rollup_schema import DAY_S, HOUR_S
from roofwatch.store.rollup_sources import Conditions
from roofwatch.store.schema import nodes, processes

MOST = 20_000  # pieces that are read one by one; of more the engine counts them, and seeks those that are meant
NAMES = ("grain", "bucket_unix_ns", "process_id", "stale", "finer", "build")
_READ = f"SELECT {', '.join(NAMES)} FROM rollups WHERE "  # noqa: S608 - our own words


@dataclass(frozen=True, slots=True)
class States:
    """Pieces, a column each of ``NAMES``. ``owned``: not those of all processes."""

    columns: dict[str, Ints]
    owned: bool

    def __len__(self) -> int:
        return len(self.columns["grain"])

    def where(self, wanted: Any) -> States:
        """Some of them."""
        return States({name: column[wanted] for name, column in self.columns.items()}, self.owned)

    def told(self) -> bytes:
        """What tells the sums of these from those of any other builds."""
        return hashlib.blake2b(b"".join(self.columns[name].tobytes() for name in NAMES), digest_size=16).digest()

    def processes(self) -> list[int]:
        """Whose they are."""
        found: list[int] = np.unique(self.columns["process_id"]).tolist()
        return found

    def counted(self) -> Iterable[tuple[int, int, int, int, int]]:
        """Of each grain and bucket how many there are, how many are stale, and have what they are made of."""
        grain, bucket, _, stale, finer, _ = (self.columns[name] for name in NAMES)
        order = np.lexsort((bucket, grain))
        grain, bucket = grain[order], bucket[order]
        begins = np.flatnonzero((np.diff(grain, prepend=-1) != 0) | (np.diff(bucket, prepend=-1) != 0))
        if not len(begins):
            return ()
        counts = np.diff(np.append(begins, len(order)))
        flags = (np.add.reduceat(flag[order], begins) for flag in (stale, finer))
        columns = (grain[begins], bucket[begins], counts, *flags)
        return zip(*(column.tolist() for column in columns), strict=True)

    def condition(self) -> str:
        """That a row of sums is of these, where all of their owners in a bucket are meant."""
        grain, bucket = self.columns["grain"], self.columns["bucket_unix_ns"]
        parts = [
            f"(grain = {one} AND bucket_unix_ns IN ({_listed(np.unique(bucket[grain == one]))}))"
            for one in np.unique(grain).tolist()
        ]
        found = parts[0] if len(parts) == 1 else f"({' OR '.join(parts)})"
        return f"{found} AND process_id IN ({_listed(self.processes())})" if self.owned else found

    def counting(self) -> str | None:
        """That a row of kernels is of these, and of builds that count; None where a bucket has several.

        Where it has but one no other row of it has one of these. Of pieces that have nothing finer any counts
        (``chosen``).
        """
        finer = self.columns["finer"] != 0
        rebuilt, added = self.where(finer), self.where(~finer)
        grain, bucket, build = (rebuilt.columns[name] for name in ("grain", "bucket_unix_ns", "build"))
        told = set(zip(grain.tolist(), bucket.tolist(), build.tolist(), strict=True))
        buckets = {one[:2] for one in told}
        gone = set(zip(added.columns["grain"].tolist(), added.columns["bucket_unix_ns"].tolist(), strict=True))
        if len(buckets) < len(told) or buckets & gone:
            return None
        parts = [f"({added.condition()})"] if len(added) else []
        if len(rebuilt):
            parts.append(f"({rebuilt.condition()} AND build IN ({_listed(sorted({one[2] for one in told}))}))")
        return f"({' OR '.join(parts)})"


def _listed(numbers: Iterable[int]) -> str:
    return ",".join(map(str, numbers))


def states(connection: Connection, owners: Conditions, since_ns: int | None, until_ns: int | None) -> States | None:
    """The pieces of some owners (conditions of processes and nodes) that begin in a time; None where there are many.

    Without what says nothing: each condition is analysed, and kept apart from the others' marks.
    """
    where = [f"grain IN ({HOUR_S}, {DAY_S})"]
    where += [] if since_ns is None else [f"bucket_unix_ns >= {since_ns}"]
    where += [] if until_ns is None else [f"bucket_unix_ns < {until_ns}"]
    where += [f"process_id IN ({text_of(connection, _processes(owners))})"] if owners else []
    columns = kept(connection, f"{_READ}{' AND '.join(where)} LIMIT {MOST + 1}", NAMES)
    if len(columns["grain"]) > MOST:
        return None
    return States({name: column.astype(np.int64) for name, column in columns.items()}, bool(owners))


def _processes(owners: Conditions) -> Select[Any]:
    """Those that are meant; joined with nodes where a condition speaks of both, which takes a quarter longer."""
    p, of = processes.c, [(one, tables_of(one)) for one in owners]
    if not all(tables in ({processes.name}, {nodes.name}) for _, tables in of):
        return select(p.id).join(nodes, nodes.c.id == p.node_id).where(*owners)
    query = select(p.id).where(*(one for one, tables in of if tables == {processes.name}))
    hosts = [one for one, tables in of if tables == {nodes.name}]
    return query.where(p.node_id.in_(select(nodes.c.id).where(*hosts))) if hosts else query
