"""A batch of segments into the tables, so that a reader never sees a window without what it is made of.

All of it may be done again: dimensions are the same rows, and each table of windows takes a batch once, by its token.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field, replace
from typing import Any, cast

import numpy as np
from sqlalchemy import Connection, Engine, select

from roofwatch.model.answer import weight_of
from roofwatch.store import schema
from roofwatch.store.blocks import FACT
from roofwatch.store.clickhouse.sink import Sink, insert, insert_blocks
from roofwatch.store.clickhouse.spreads import sparse
from roofwatch.store.dimensions import Dimensions, sane_until
from roofwatch.store.histograms import Histograms
from roofwatch.store.identity import agent_id, node_id
from roofwatch.store.load import Hello, Loader
from roofwatch.store.rows import WINDOW_NAMES, window_row
from roofwatch.store.unpack import Unpacked, UnpackedWindow

Numbered = Sequence[tuple[int, UnpackedWindow]]
DIMENSIONS = ("nodes", "devices", "texts", "signatures", "device_sets", "processes", "roofs", "agents", "segments",
              "agent_drops", "process_states")  # fmt: skip
BLOCK_ROWS = 8_000  # kernels made columns of at once: what fits a processor's cache
PART_ROWS = 40_000  # kernels of one insert, or a few more: while the server takes one, the next is made
KERNELS, OTHERS = 2, 3  # inserts on their way at once: the server works on kernels, and for others waits for its disk
PARTS = ("window_drops", "window_devices", "idle_causes", "collectives", "graphs")


@dataclass(frozen=True, slots=True)
class Batch:
    """What is inserted together. ``late`` are numbers of windows whose kernels go to sums alone."""

    token: str
    work: Sequence[tuple[Unpacked | Hello, int]]  # with when it was received (Unix ns)
    parts: Sequence[Numbered]  # the windows; by ``parts_of``, for each part's kernels are an insert
    late: frozenset[int] = frozenset()

    @property
    def windows(self) -> Numbered:
        """All of them."""
        return [one for part in self.parts for one in part]


def parts_of(
    work: Sequence[Unpacked | Hello], numbers: Sequence[Sequence[int]], part_rows: int = PART_ROWS
) -> list[Numbered]:
    """The windows of segments with their numbers, but for those that were there before, in parts.

    What part a window is in follows from the segments alone: so a repeated batch has the same windows in each insert.
    """
    found: list[list[tuple[int, UnpackedWindow]]] = []
    rows = part_rows
    for one, own in zip(work, numbers, strict=True):
        if not isinstance(one, Unpacked):
            continue
        if rows >= part_rows:
            found.append([])
            rows = 0
        rows += one.rows
        found[-1] += [(number, w) for number, w in zip(own, one.windows, strict=True) if number]
    return list(found)


def _threads(count: int, name: str) -> Callable[[], ThreadPoolExecutor]:
    return lambda: ThreadPoolExecutor(count, f"roofwatch-{name}")


@dataclass(slots=True)
class Tables:
    """Remembers which dimensions are written."""

    dimensions: Dimensions = field(default_factory=Dimensions)
    version: int = 0  # of labels: newer ones replace older ones
    kernels: ThreadPoolExecutor = field(default_factory=_threads(KERNELS, "kernels"))
    beside: ThreadPoolExecutor = field(default_factory=_threads(OTHERS, "others"))

    def write_before(self, connection: Connection, batch: Batch) -> None:
        """All but the windows, an insert beside the other.

        In any order: no row counts before its window is there (``gather``, ``sums``), and windows come last.
        """
        running = [
            self.kernels.submit(_kernels, connection.engine, kept, f"{batch.token}-kernel_facts{part or ''}")
            for part, windows in enumerate(batch.parts)
            if (kept := [(number, w) for number, w in windows if number not in batch.late and w.rows])
        ]
        try:
            self._others(connection, batch, running)
            for one in running:
                one.result()
        except BaseException:
            self.dimensions.rollback()
            raise
        finally:
            wait(running)
        self.dimensions.commit()

    def _others(self, connection: Connection, batch: Batch, running: list[Future[None]]) -> None:
        """Write what is new of dimensions, and what windows are made of beside kernels."""
        sink = Sink()
        self._collect(sink, batch)
        kept = [(number, w) for number, w in batch.windows if number not in batch.late and w.rows]
        counts = {"window_id": [number for number, _ in kept], "rows": [w.rows for _, w in kept]}
        told = [(table, sink.columns(table), "") for table in DIMENSIONS if table in sink.flat]
        told += [(table, sink.columns(table), f"{batch.token}-{table}") for table in PARTS if table in sink.flat]
        for table, columns, token in (*told, ("kernel_blocks", counts, f"{batch.token}-kernel_blocks")):
            running.append(self.beside.submit(_insert, connection.engine, table, columns, token))
        self._labels(connection, sink)

    def write_windows(self, connection: Connection, batch: Batch) -> None:
        """The windows: from here on they are seen."""
        rows = [(number, *window_row(bytes.fromhex(w.window.uid), w)) for number, w in batch.windows]
        columns = dict(zip(("id", *WINDOW_NAMES), map(list, zip(*rows, strict=True)), strict=True)) if rows else {}
        insert(connection, "windows", columns, f"{batch.token}-windows")

    def _collect(self, sink: Sink, batch: Batch) -> None:
        into = cast(Connection, sink)
        loader = Loader(now_ns=lambda: 0, dimensions=self.dimensions)
        for work, received in batch.work:
            if isinstance(work, Hello):
                self.dimensions.node(into, work.node)
                identity = agent_id(work.agent, work.boot)
                row = (identity, work.agent, work.boot, work.version, node_id(work.node), received)
                sink.add(schema.agents, ("id", "name", "boot", "version", "node_id", "seen_unix_ns"), row)
                continue
            agent = agent_id(work.agent, work.boot)
            if work.drops:  # only of these the time is asked for: repetitions are known to the journal
                numbered = (agent, work.sequence, work.crc32, len(work.windows), received)
                sink.add(schema.segments, ("agent_id", "sequence", "crc32", "windows", "received_unix_ns"), numbered)
            for reason, count in work.drops.items():
                names = ("agent_id", "sequence", "reason", "count")
                sink.add(schema.agent_drops, names, (agent, work.sequence, reason, count))
        self.dimensions.write(into, [_believed(w, at) for w, at in batch.work if isinstance(w, Unpacked)])
        loader._window_parts(into, batch.windows)  # noqa: SLF001 - the rows of every engine are made in one place

    def _labels(self, connection: Connection, sink: Sink) -> None:
        """All labels of owners that are new or changed; what they no longer have is marked as gone."""
        owners = [i for name in ("nodes", "processes") if name in sink.flat for i in sink.columns(name)["id"]]
        if not owners:
            return
        told = sink.columns("labels") if "labels" in sink.flat else {"owner_id": [], "key": [], "value": []}
        rows = list(zip(told["owner_id"], told["key"], told["value"], strict=True))
        now = {row[:2] for row in rows}
        t = schema.labels.c
        for low in range(0, len(owners), 1000):
            query = select(t.owner_id, t.key).where(t.owner_id.in_(owners[low : low + 1000]))
            rows += [(owner, key, None) for owner, key in connection.execute(query) if (owner, key) not in now]
        if not rows:
            return
        columns: dict[str, Any] = {
            "owner_id": [row[0] for row in rows],
            "key": [row[1] for row in rows],
            "value": [row[2] or "" for row in rows],
            "version": [self.version] * len(rows),
            "deleted": [int(row[2] is None) for row in rows],
        }
        insert(connection, "labels", columns)


def _insert(engine: Engine, table: str, columns: dict[str, Any], token: str) -> None:
    with engine.connect() as connection:
        insert(connection, table, columns, token)


def _kernels(engine: Engine, of: Numbered, token: str) -> None:
    with engine.connect() as connection:
        insert_blocks(connection, "kernel_facts", blocks(of), token)


def blocks(of: Numbered) -> Iterator[dict[str, Any]]:
    """The kernels of windows as columns of ``kernel_facts``, in that table's own order: it is not sought again."""
    ordered = sorted(of, key=lambda one: (one[1].process_id, one[1].window.start_unix_ns, one[0]))
    some: list[tuple[int, UnpackedWindow]] = []
    rows = 0
    for one in ordered:
        some.append(one)
        rows += one[1].rows
        if rows >= BLOCK_ROWS:
            yield facts(some)
            some, rows = [], 0
    if some:
        yield facts(some)


def facts(of: Numbered) -> dict[str, Any]:
    """The kernels of windows as columns of ``kernel_facts``."""
    kernels = [w.kernels.facts(w.place, narrow=True) for _, w in of]
    counts = [len(one) for one in kernels]
    matrix = np.concatenate([one.columns for one in kernels], axis=1)
    device = matrix[FACT.index("device")]
    # Of every (window, position) its device and weight, one window after the other.
    sizes = [len(w.devices) for _, w in of]
    own = np.repeat(np.cumsum(sizes) - sizes, counts) + device
    ids = np.fromiter((i for _, w in of for i in w.devices), np.int64)
    weights = np.fromiter((weight_of(w.window, d) for _, w in of for d in w.window.devices), np.float64)

    def repeated(values: list[int]) -> Any:
        return np.repeat(np.array(values, np.int64), counts)

    buckets, told = sparse(Histograms.joined([one.histograms for one in kernels]))
    return {
        "process_id": repeated([w.process_id for _, w in of]),
        "start_unix_ns": repeated([w.window.start_unix_ns for _, w in of]),
        "window_id": repeated([number for number, _ in of]),
        "place": np.concatenate([np.arange(count) for count in counts]),
        "device_id": ids[own],
        "weight": weights[own],
        "steps": repeated([w.window.steps or 0 for _, w in of]),
        **{name: matrix[i] for i, name in enumerate(FACT)},
        "histogram_buckets": buckets,
        "histogram_counts": told,
    }


def _believed(work: Unpacked, received_unix_ns: int) -> Unpacked:
    """With states of a clock that was ahead told as of now: the engine keeps the newest, and would for as long."""
    sane = sane_until(received_unix_ns)
    if all(state.unix_ns <= sane for _, state in work.states):
        return work
    return replace(work, states=[(i, replace(s, unix_ns=min(s.unix_ns, received_unix_ns))) for i, s in work.states])
