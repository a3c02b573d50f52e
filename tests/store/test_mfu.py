"""Model FLOPs utilisation, graphs and collectives, through the wire and the tables."""

from __future__ import annotations

import dataclasses

import pytest
from sqlalchemy import select
from store_builders import GEMM, H100, MI300, NORM, process_of, segment_of, stat, window_of

from roofwatch.model.answer import CoverageSum
from roofwatch.model.record import Collective, DeviceWindow, Graph, Window
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

    Together (0.5 · 10,000 + 0.2 · 1000) / 11,000 = 5200 / 11,000, of node, process and the whole answer alike, also of
    the windows as a file's. Known FLOPs: 800 of 800 ns and 600 of 800 ns. A third window has products without known
    FLOPs and is left out; in the windows' own list each has its own: 0.5, 0.2, null.
    """
    windows = [
        with_model(window_of("a", [stat(GEMM, [800])], span_ns=1000, represents_ns=10_000), 800, 800, 9, 500),
        with_model(window_of("b", [stat(GEMM, [800])], span_ns=1000, represents_ns=1000), 800, 600, 3, 200),
        with_model(window_of("c", [stat(GEMM, [800])], span_ns=1000, represents_ns=1000), 800, 0, 0, 0),
    ]
    store(writer, *windows)
    queries = Queries(db)
    for name in ("nodes", "processes"):
        found = queries.run(name, Filter())
        for told in (found["rows"][0], found["coverage"]):
            assert told["mfu"] == pytest.approx(5200 / 11_000)
            assert told["mfu_known_share"] == pytest.approx(1400 / 1600)
    found = queries.run("windows", Filter())
    assert {row["uid"]: (row["mfu"], row["mfu_known_share"]) for row in found["rows"]} == {
        windows[0].uid: (pytest.approx(0.5), 1.0),
        windows[1].uid: (pytest.approx(0.2), pytest.approx(0.75)),
        windows[2].uid: (None, 0.0),
    }
    assert found["coverage"]["model_flops"] == 12
    filed = CoverageSum()
    for window in windows:
        filed.add(window)
    assert filed.as_json() == found["coverage"]


def test_an_idle_window_has_an_mfu_of_nothing(db: Database, writer: Writer) -> None:
    """A window without any product says 0 beside one that says 0.5: (0.5 · 1000 + 0) / 2000; alone it says nothing."""
    busy = with_model(window_of("a", [stat(GEMM, [800])], span_ns=1000, represents_ns=1000), 800, 800, 9, 500)
    idle = window_of("b", [stat(NORM, [1])], span_ns=1000, represents_ns=1000)
    store(writer, busy, idle)
    found = Queries(db).run("nodes", Filter())
    assert found["rows"][0]["mfu"] == found["coverage"]["mfu"] == pytest.approx(0.25)
    filed = CoverageSum()
    filed.add(idle)
    assert (filed.as_json()["mfu"], filed.as_json()["mfu_known_share"]) == (None, None)


def test_the_mfu_of_a_node_is_that_of_an_answer_about_it(db: Database, writer: Writer) -> None:
    """Three nodes of unlike windows; the answer about one, by any query, has the MFU of its row: 0.5, 0.05, none."""
    store(
        writer,
        with_model(window_of("a", [stat(GEMM, [800])], process=process_of("x"), span_ns=1000), 800, 800, 9, 500),
        with_model(
            window_of("b", [stat(GEMM, [8])], process=process_of("y"), span_ns=1000, represents_ns=9000), 8, 8, 9, 0
        ),
        with_model(
            window_of("c", [stat(GEMM, [8])], process=process_of("y", 2), span_ns=1000, represents_ns=1000),
            8, 8, 9, 500,
        ),
        with_model(window_of("d", [stat(GEMM, [8])], process=process_of("z"), span_ns=1000), 8, 0, 0, 0),
    )  # fmt: skip
    queries = Queries(db)
    of_node = {row["node"]: row["mfu"] for row in queries.run("nodes", Filter())["rows"]}
    assert of_node == {"x": pytest.approx(0.5), "y": pytest.approx(0.05), "z": None}
    for node, value in of_node.items():
        for query in ("top", "diagnose", "timeline", "windows"):
            assert queries.run(query, Filter(node=node))["coverage"]["mfu"] == value


def test_mfu_is_of_whole_windows(db: Database, writer: Writer) -> None:
    """A window on two devices of 1000 ns each, at peak for 500 ns: 0.25, also of an answer about one of the devices."""
    window = dataclasses.replace(
        with_model(window_of("a", [stat(GEMM, [800]), stat(NORM, [9], device=1)], span_ns=1000), 800, 800, 9, 500),
        devices=(DeviceWindow(H100, 1000, 800), DeviceWindow(MI300, 1000, 9)),
    )
    store(writer, window)
    for query in ("nodes", "windows"):
        found = Queries(db).run(query, Filter(device="h100"))
        assert found["rows"][0]["mfu"] == found["coverage"]["mfu"] == pytest.approx(0.25)


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
