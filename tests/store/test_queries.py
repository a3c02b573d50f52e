"""Answers, against values worked out by hand."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest
from store_builders import COPY, GEMM, H100, MI300, NORM, SQLITE_ALONE, process_of, segment_of, stat, uid_of, window_of

from roofwatch.model import answer
from roofwatch.model.answer_rows import ROW_KEYS, rows, sums_of
from roofwatch.model.errors import UsageError
from roofwatch.model.record import Bound, Cause, Cost, DeviceWindow, Evidence, IdleCause, Window
from roofwatch.store.database import Database
from roofwatch.store.filter import Filter
from roofwatch.store.ingest import Writer
from roofwatch.store.queries import Queries
from roofwatch.store.unpack import Unpacker

SECOND = 1_000_000_000
START = 2_000_000_000 * SECOND


def answers(db: Database, writer: Writer, *windows: Window) -> Queries:
    """Store the windows and ask."""
    assert writer.submit(Unpacker().unpack(segment_of(list(windows), 1))).result(30).reason == ""
    return Queries(db)


def column(found: dict[str, Any], key: str) -> list[Any]:
    """One key of all rows."""
    return [row[key] for row in found["rows"]]


def test_unequal_rates_rank_by_estimated_time(db: Database, writer: Writer) -> None:
    """A process sampled rarely outranks one sampled often, when its kernels take more of the real time.

    Slow: one window of 1 ms stands for 60 s and holds 100 µs of GEMM → 100 µs × 60 s / 1 ms = 6 s.
    Fast: ten windows of 1 ms stand for 1 s each and hold 500 µs of NORM → 10 × 500 µs × 1 s / 1 ms = 5 s.
    Sampled, NORM has 5 ms and GEMM 0.1 ms: fifty times more, and yet less. Seen: 11 ms of 70 s.
    """
    slow = window_of("slow", [stat(GEMM, [100_000])], process=process_of(pid=1), represents_ns=60 * SECOND)
    fast = [
        window_of(f"fast{i}", [stat(NORM, [250_000, 250_000])], process=process_of(pid=2), represents_ns=SECOND)
        for i in range(10)
    ]
    found = answers(db, writer, slow, *fast).run("top", Filter())
    assert column(found, "kernel") == [GEMM.kernel, NORM.kernel]
    assert column(found, "est_ns") == [6 * SECOND, 5 * SECOND]
    assert column(found, "total_ns") == [100_000, 5_000_000]
    assert column(found, "share") == pytest.approx([6 / 11, 5 / 11])
    assert found["coverage"]["sampled_share"] == pytest.approx(11e-3 / 70)


def test_a_row_is_sums_over_windows(db: Database, writer: Writer) -> None:
    """Two windows of one kernel, one with twice the weight, the bound of the larger part.

    Durations 1000, 3000 (memory) and 6000 (compute): mean 10000/3; roof 600 a call → 1800/10000 = 0.18.
    est: 4000 × (2 ms / 1 ms) + 6000 × (1 ms / 1 ms) = 14000. Median: the 2nd of 3 is 3000, p95 the 3rd, 6000, each
    within half a bucket (2 %).
    """
    first = stat(GEMM, [1000, 3000], bound=Bound.MEMORY, roof_ns=600.0, ridge=295.2)
    second = stat(GEMM, [6000], bound=Bound.COMPUTE, evidence=Evidence.BORROWED, roof_ns=600.0, ridge=295.2)
    found = answers(
        db, writer, window_of("a", [first], represents_ns=2_000_000), window_of("b", [second], represents_ns=1_000_000)
    ).run("top", Filter())
    (row,) = found["rows"]
    assert list(row) == list(ROW_KEYS)
    assert row["p50_ns"] == pytest.approx(3000, rel=0.02)
    assert row["p95_ns"] == pytest.approx(6000, rel=0.02)
    assert row["roof_fraction"] == pytest.approx(0.18)
    assert row["mean_ns"] == pytest.approx(10_000 / 3)
    assert row["intensity"] == pytest.approx(4_194_304 / 540_672)
    exact = ("calls", "total_ns", "est_ns", "share", "min_ns", "max_ns", "flops", "bytes", "bound", "evidence", "ridge")
    assert [row[key] for key in exact] == [
        3, 10_000, 14_000, 1.0, 1000, 6000, 4_194_304, 540_672, "compute", "borrowed", 295.2,
    ]  # fmt: skip
    texts = ("kernel", "kind", "op", "phase", "module", "shapes", "dtypes", "device")
    assert [row[key] for key in texts] == [
        "nvjet_tst_128x256", "matmul", "aten::addmm", "forward", None, [[8, 512], [512, 512]], ["bf16", "bf16"],
        "NVIDIA H100 80GB HBM3",
    ]  # fmt: skip


def test_store_and_file_answer_alike(db: Database, writer: Writer) -> None:
    """One window through the store gives the rows and the coverage that ``analyze`` gives from the window itself."""
    kernels = [
        stat(GEMM, [1000, 3000], roof_ns=600.0, ridge=295.2),
        stat(NORM, [7, 9, 11], bound=Bound.UNKNOWN, evidence=Evidence.NONE),
        stat(COPY, [50] * 40, bound=Bound.COPY, evidence=Evidence.DEFINITION),
    ]
    window = window_of("a", kernels, represents_ns=9_000_000, dropped={"unfinished": 2})
    found = answers(db, writer, window).run("top", Filter())
    coverage = answer.CoverageSum()
    coverage.add(window)
    assert found["rows"] == rows(sums_of(window))
    assert found["coverage"] == coverage.as_json()


def test_models_of_devices_are_never_merged(db: Database, writer: Writer) -> None:
    """One signature on two device models is two rows; on two devices of one model it is one."""
    twin = dataclasses.replace(H100, uuid="GPU-9", index=1)
    windows = [
        window_of(device.uuid or "", [stat(GEMM, [length])], device=device)
        for device, length in ((H100, 1000), (twin, 2000), (MI300, 500))
    ]
    found = answers(db, writer, *windows).run("top", Filter())
    assert [(row["device"], row["total_ns"], row["calls"]) for row in found["rows"]] == [
        ("NVIDIA H100 80GB HBM3", 3000, 2),
        ("AMD Instinct MI300X", 500, 1),
    ]


def test_window_on_two_devices_weighs_each_by_its_span(db: Database, writer: Writer) -> None:
    """A window of 10 µs that represents 100 µs; device 0 spans 10 µs (×10), device 1 spans 5 µs (×20).

    GEMM 1 µs on device 0 → 10 µs, NORM 1 µs on device 1 → 20 µs; busy 30, span 200, so idle 170 µs.
    """
    window = dataclasses.replace(
        window_of("a", [stat(GEMM, [1000]), stat(NORM, [1000], device=1)], represents_ns=100_000, span_ns=10_000),
        devices=(DeviceWindow(H100, 10_000, 1000), DeviceWindow(MI300, 5000, 1000)),
    )
    queries = answers(db, writer, window)
    found = queries.run("top", Filter())
    assert [(row["kernel"], row["est_ns"]) for row in found["rows"]] == [(NORM.kernel, 20_000), (GEMM.kernel, 10_000)]
    assert (found["summary"]["est_busy_ns"], found["summary"]["est_idle_ns"]) == (30_000, 170_000)
    assert (found["summary"]["busy_ns"], found["summary"]["idle_ns"]) == (2000, 13_000)
    only = queries.run("top", Filter(device="mi300"))
    assert column(only, "kernel") == [NORM.kernel]
    assert column(only, "share") == [1.0]
    assert only["coverage"]["span_ns"] == 5000


def test_unknown_weight_is_one(db: Database, writer: Writer) -> None:
    """A window that represents no known time counts as what it is; a device without a span too."""
    unspanned = dataclasses.replace(
        window_of("b", [stat(NORM, [70])], represents_ns=SECOND), devices=(DeviceWindow(H100, 0, 0),)
    )
    found = answers(db, writer, window_of("a", [stat(GEMM, [90])]), unspanned).run("top", Filter())
    assert column(found, "est_ns") == [90, 70]


def test_limit_leaves_shares_of_all(db: Database, writer: Writer) -> None:
    """The two largest of three; their shares are still of all device time: 60 and 30 of 100."""
    window = window_of("a", [stat(GEMM, [30]), stat(NORM, [60]), stat(COPY, [10])])
    found = answers(db, writer, window).run("top", Filter(), 2)
    assert column(found, "kernel") == [NORM.kernel, GEMM.kernel]
    assert column(found, "share") == pytest.approx([0.6, 0.3])
    assert found["query"]["limit"] == 2


def test_more_signatures_than_one_statement_names(db: Database, writer: Writer) -> None:
    """900 kernels, all asked for: each once, with its own name and histogram."""
    kernels = [stat(dataclasses.replace(NORM, kernel=f"k{i}"), [1000 + i]) for i in range(900)]
    found = answers(db, writer, window_of("a", kernels, span_ns=10_000_000)).run("top", Filter())
    assert column(found, "kernel") == [f"k{i}" for i in reversed(range(900))]
    assert column(found, "p50_ns") == column(found, "max_ns")


def test_causes_and_cost(db: Database, writer: Writer) -> None:
    """Idle causes add up over windows, weighted; the cost counts only windows where cost and weight are known.

    Weights 10 and 1: input 300 × 10 + 100 × 1 = 3100, sync 200 × 10 = 2000. Lost: 50 + 20 of 10,000 + 1000 ns; the
    window with a cost but no weight and the one without a cost stay out.
    """
    cause = IdleCause
    windows = [
        window_of(
            "a", [stat(NORM, [500])], span_ns=1000, represents_ns=10_000,
            causes=(cause(Cause.INPUT, 300, 2, 200, "in next"), cause(Cause.SYNC, 200, 1, 200)),
            cost=Cost("plain", 1, 2, 3, 4, 5, lost_in_ns=60, lost_after_ns=-10),
        ),
        window_of(
            "b", [stat(NORM, [900])], span_ns=1000, represents_ns=1000,
            causes=(cause(Cause.INPUT, 100, 1, 100, "shorter"),), cost=Cost("plain", 1, 2, 3, 4, 5, lost_in_ns=20),
        ),
        window_of("c", [stat(NORM, [1])], cost=Cost("plain", 1, 2, 3, 4, 5, lost_in_ns=1000)),
        window_of("d", [stat(NORM, [1])], represents_ns=1000, cost=Cost("plain", 1, 2, 3, 4, 5)),
    ]  # fmt: skip
    found = answers(db, writer, *windows).run("top", Filter())
    assert found["summary"]["causes"] == {
        "input": {"total_ns": 400, "est_ns": 3100, "count": 3, "longest_ns": 200, "example": "in next"},
        "sync": {"total_ns": 200, "est_ns": 2000, "count": 1, "longest_ns": 200, "example": None},
    }
    assert found["cost"] == {
        "windows": 2, "of_windows": 4, "lost_ns": 70, "represented_ns": 11_000, "share": pytest.approx(70 / 11_000),
        "steps": None, "noise_ns": None,
    }  # fmt: skip


def test_top_names_the_device_models(db: Database, writer: Writer) -> None:
    """Both, also where only the first row is asked for; of a filter that takes one, one."""
    windows = [window_of("a", [stat(NORM, [500])]), window_of("b", [stat(NORM, [900])], device=MI300)]
    found = answers(db, writer, *windows)
    assert found.run("top", Filter(), 1)["device_models"] == [MI300.model, H100.model]
    assert found.run("top", Filter(device="mi300"))["device_models"] == [MI300.model]


def test_empty_database(db: Database) -> None:
    """No windows: no rows, unknown shares are null, and every answer is JSON."""
    for query in ("nodes", "processes", "windows", "top", "roofline"):
        found = json.loads(json.dumps(Queries(db).run(query, Filter()), allow_nan=False))
        assert found["rows"] == []
        assert found["coverage"]["windows"] == 0
        assert found["coverage"]["linked_share"] is None
        assert found["schema_version"] == 1
    assert Queries(db).run("top", Filter())["cost"] == {
        "windows": 0, "of_windows": 0, "lost_ns": None, "represented_ns": None, "share": None,
        "steps": None, "noise_ns": None,
    }  # fmt: skip


FILTERED = [
    (Filter(), "abcd"),
    (Filter(since_unix_ns=START + SECOND), "bcd"),
    (Filter(until_unix_ns=START + SECOND), "a"),  # until is not included
    (Filter(since_unix_ns=START + SECOND, until_unix_ns=START + 2 * SECOND), "b"),
    (Filter(node="gpu-07"), "ab"),
    (Filter(node="gpu"), ""),
    (Filter(process="42"), "bc"),
    (Filter(process=f"{process_of('gpu-08', 42).id:016x}"), "c"),
    (Filter(model="llama"), "b"),
    (Filter(device="h100"), "abd"),
    (Filter(device="100_"), ""),  # no wildcard
    (Filter(device="mi300"), "c"),
    (Filter(vendor="amd"), "c"),
    (Filter(vendor="nvidia"), "abd"),
    (Filter(vendor="nvidia", device="mi300"), ""),
    (Filter(job="slurm:7"), "a"),
    (Filter(job="slurm"), ""),
    (Filter(labels={"git": "abc"}), "bd"),
    (Filter(labels={"rack": "r1"}), "d"),  # a label of the node
    (Filter(labels={"git": "abc", "rack": "r1"}), "d"),
    (Filter(labels={"git": "r1"}), ""),
    (Filter(node="gpu-07", device="mi300"), ""),
]


@pytest.mark.parametrize(("scope", "expected"), FILTERED)
def test_filters(db: Database, writer: Writer, scope: Filter, expected: str) -> None:
    """Each filter keeps the windows it names, in the list of windows, in the coverage and in the kernels alike."""
    racked = process_of("gpu-09", 50, labels={"git": "abc"})
    racked = dataclasses.replace(racked, node=dataclasses.replace(racked.node, labels={"rack": "r1"}))
    in_job = dataclasses.replace(process_of(pid=41), job="slurm:7")
    windows = [
        window_of("a", [stat(GEMM, [1])], process=in_job),
        window_of("b", [stat(GEMM, [2])], process=process_of(pid=42, model="llama", labels={"git": "abc"})),
        window_of("c", [stat(GEMM, [4])], process=process_of("gpu-08", 42), device=MI300),
        window_of("d", [stat(GEMM, [8])], process=racked),
    ]
    windows = [dataclasses.replace(w, start_unix_ns=START + i * SECOND) for i, w in enumerate(windows)]
    queries = answers(db, writer, *windows)
    found = queries.run("windows", scope)
    assert sorted(column(found, "uid")) == sorted(uid_of(name) for name in expected)
    assert found["coverage"]["windows"] == len(expected)
    total = sum(column(queries.run("top", scope), "total_ns"))
    assert total == sum({"a": 1, "b": 2, "c": 4, "d": 8}[name] for name in expected)
    assert found["query"]["labels"] == scope.labels


@pytest.mark.parametrize("process", ["", "x", "12x", "0123456789abcdeg", "²", "1" * 17, "-5"])
def test_process_filter_that_means_nothing(db: Database, process: str) -> None:
    """Neither a pid nor an id: a usage error, not an empty answer."""
    with pytest.raises(UsageError, match="is no process: give a pid"):
        Queries(db).run("top", Filter(process=process))


def test_unknown_query(db: Database) -> None:
    """A query that this store does not have names those it has."""
    with pytest.raises(UsageError, match="no query 'flop': this store knows nodes, processes, windows, top, roofline"):
        Queries(db).run("flop", Filter())


def test_roofline_places_what_has_an_intensity(db: Database, writer: Writer) -> None:
    """Kernels without FLOPs have no place on the plot, but keep their part of the whole; peaks come along once."""
    twin = dataclasses.replace(H100, uuid="GPU-9", index=1)
    found = answers(
        db,
        writer,
        window_of("a", [stat(GEMM, [300]), stat(COPY, [700])]),
        window_of("b", [stat(GEMM, [1000])], device=twin),
    ).run("roofline", Filter())
    assert column(found, "kernel") == [GEMM.kernel]
    assert column(found, "share") == [pytest.approx(0.65)]
    assert found["devices"] == [{**answer.device_json(H100), "uuid": None, "index": None}]


def test_filter_survives_the_wire() -> None:
    """A filter as a message and back; what does not limit stays None."""
    full = Filter(1, 2, "n", "p", "m", "d", {"k": "v"}, "nvidia", "slurm:1")
    assert Filter.from_message(full.message()) == full
    assert Filter.from_message(Filter().message()) == Filter()


@SQLITE_ALONE
def test_queries_use_the_keys(db: Database, writer: Writer) -> None:
    """No query scans the fact: kernels are reached by their window."""
    answers(db, writer, window_of("a", [stat(GEMM, [1])]))
    plans = []
    with db.engine.connect() as connection:
        raw = connection.connection.driver_connection
        assert raw is not None
        raw.set_trace_callback(plans.append)
    Queries(db).run("top", Filter(node="gpu-07"))
    asked = [statement for statement in plans if "kernel_blocks" in statement]
    assert len(asked) == 2  # sums, and histograms of what is shown
    with db.read() as connection:
        for statement in asked:
            plan = " ".join(str(row[3]) for row in connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}"))
            assert "SEARCH kernel_blocks USING INTEGER PRIMARY KEY (rowid=?)" in plan
            assert "SCAN kernel_blocks" not in plan
