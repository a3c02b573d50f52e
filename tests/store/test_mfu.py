"""Model FLOPs utilisation, graphs and collectives, through the wire and the tables."""

from __future__ import annotations

import dataclasses

import pytest
from sqlalchemy import select
from store_builders import GEMM, NORM, process_of, segment_of, stat, window_of

from roofwatch.model.record import Collective, Graph, Window
from roofwatch.proto.v1 import roofwatch_pb2 as pb
from roofwatch.store import schema
from roofwatch.store.database import Database
from roofwatch.store.filter import Filter
from roofwatch.store.ingest import Writer
from roofwatch.store.queries import Queries
from roofwatch.store.unpack import Unpacker


def store(writer: Writer, *windows: Window) -> None:
    """Commit them."""
    outcome = writer.submit(Unpacker().unpack(segment_of(list(windows), 1))).result(30)
    assert (outcome.status, outcome.reason) == (pb.STORED, "")


def with_model(window: Window, model: int, known: int, flops: int, peak: int, **more: object) -> Window:
    """The window with these model sums in its ledger."""
    ledger = dataclasses.replace(
        window.ledger, model_ns=model, model_known_ns=known, model_flops=flops, model_peak_ns=peak
    )
    return dataclasses.replace(window, ledger=ledger, **more)  # type: ignore[arg-type]


def test_mfu_is_weighted_and_leaves_out_what_says_nothing(db: Database, writer: Writer) -> None:
    """Two windows of 1000 ns that stand for 10,000 and 1000 ns, at peak for 500 and 200 ns.

    Together (0.5 · 10,000 + 0.2 · 1000) / 11,000 = 5200 / 11,000. A third window has products without known FLOPs and
    is left out; in the windows' own list each has its own: 0.5, 0.2, null.
    """
    windows = [
        with_model(window_of("a", [stat(GEMM, [800])], span_ns=1000, represents_ns=10_000), 800, 800, 9, 500),
        with_model(window_of("b", [stat(GEMM, [800])], span_ns=1000, represents_ns=1000), 800, 800, 3, 200),
        with_model(window_of("c", [stat(GEMM, [800])], span_ns=1000, represents_ns=1000), 800, 0, 0, 0),
    ]
    store(writer, *windows)
    queries = Queries(db)
    for name in ("nodes", "processes"):
        (row,) = queries.run(name, Filter())["rows"]
        assert row["mfu"] == pytest.approx(5200 / 11_000)
    found = queries.run("windows", Filter())
    assert {row["uid"]: row["mfu"] for row in found["rows"]} == {
        windows[0].uid: pytest.approx(0.5), windows[1].uid: pytest.approx(0.2), windows[2].uid: None,
    }  # fmt: skip
    coverage = found["coverage"]
    assert coverage["model_flops"] == 12
    assert coverage["mfu"] == pytest.approx(700 / 3000)
    assert coverage["mfu_known_share"] == pytest.approx(1600 / 2400)


def test_an_idle_window_has_an_mfu_of_nothing(db: Database, writer: Writer) -> None:
    """A window without any product says 0 beside one that says 0.5: (0.5 · 1000 + 0) / 2000."""
    busy = with_model(window_of("a", [stat(GEMM, [800])], span_ns=1000, represents_ns=1000), 800, 800, 9, 500)
    idle = window_of("b", [stat(NORM, [1])], span_ns=1000, represents_ns=1000)
    store(writer, busy, idle)
    (row,) = Queries(db).run("nodes", Filter())["rows"]
    assert row["mfu"] == pytest.approx(0.25)


def test_graphs_and_collectives_are_stored(db: Database, writer: Writer) -> None:
    """Each field of both comes back; the coverage knows the graphs' shares: 600 of 1000 ns, 450 of these."""
    graphs = (
        Graph(0, "graph 7", 2, 40, 500, 400, "capture", 0.8),
        Graph(0, "graph 8", 1, 3, 100, 50),
    )
    collectives = (
        Collective(0, "all_reduce", "dp", 2_000_000_000_000_000_500, 70, 8, 12, 1 << 30),
        Collective(0, "barrier", "dp", 2_000_000_000_000_000_900, 5),
    )
    window = dataclasses.replace(
        window_of("a", [stat(NORM, [1000])], process=process_of()),
        graphs=graphs, collectives=collectives, first_step=77,
    )  # fmt: skip
    store(writer, window)
    coverage = Queries(db).run("top", Filter())["coverage"]
    assert (coverage["graph_share"], coverage["graph_attributed_share"]) == (pytest.approx(0.6), pytest.approx(0.75))
    with db.read() as connection:
        c, g = schema.collectives.c, schema.graphs.c
        rows = connection.execute(
            select(c.device, c.name, c.group_name, c.start_unix_ns, c.duration_ns, c.group_size, c.sequence, c.bytes)
            .order_by(c.position)
        )  # fmt: skip
        assert [Collective(*row) for row in rows] == list(collectives)
        rows = connection.execute(
            select(g.device, g.name, g.launches, g.records, g.total_ns, g.attributed_ns, g.source, g.confidence)
            .order_by(g.position)
        )  # fmt: skip
        assert [Graph(*row) for row in rows] == list(graphs)
        assert connection.scalar(select(schema.windows.c.first_step)) == 77
