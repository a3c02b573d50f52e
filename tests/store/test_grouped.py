"""``top --by``: figures worked out by hand, and sums held against windows."""

from __future__ import annotations

import dataclasses
import json
import os
import random
from typing import Any

import pytest
from rollup_builders import BEGIN_NS, DAY_NS, DAYS, HOUR_NS, processes, scope, window
from sqlalchemy import delete, update
from store_builders import COPY, CPU, GEMM, H100, MI300, NORM, process_of, segment_of, stat, window_of

from roofwatch.model.errors import UsageError
from roofwatch.model.grouping import BY, GROUP_KEYS
from roofwatch.model.record import Bound, Evidence, Peak, Peaks, Window
from roofwatch.store import rollup
from roofwatch.store.database import Database
from roofwatch.store.filter import Filter
from roofwatch.store.ingest import Writer
from roofwatch.store.queries import Queries
from roofwatch.store.queries.plan import raw_only
from roofwatch.store.schema import kernel_blocks, rollups
from roofwatch.store.unpack import Unpacker

TEN_MINUTES = 600 * 10**9
EVERY = (0, TEN_MINUTES, HOUR_NS, 5 * HOUR_NS, DAY_NS)
SEEDS = int(os.environ.get("ROOFWATCH_ROLLUP_SEEDS", "1"))
OTHER_GEMM = dataclasses.replace(GEMM, shapes="[[16,512],[512,512]]", flops=8_388_608)
VIEW = dataclasses.replace(NORM, kernel="aten::view", op="aten::view")


def stored(db: Database, writer: Writer, windows: list[Window], first: int = 1) -> Queries:
    """Store the windows and ask."""
    assert writer.submit(Unpacker().unpack(segment_of(windows, first))).result(30).reason == ""
    return Queries(db)


def swept(db: Database) -> None:
    """Sum up all that is over."""
    with db.write() as connection:
        while rollup.sweep(connection, BEGIN_NS + (DAYS + 1) * DAY_NS):
            pass


def asked(queries: Queries, by: str, every_ns: int = 0, f: Filter | None = None, limit: int = 0) -> dict[str, Any]:
    """An answer as JSON carries it."""
    options = {"by": by} | ({"every_ns": every_ns} if every_ns else {})
    found: dict[str, Any] = json.loads(json.dumps(queries.run("top_by", f or Filter(), limit, options=options)))
    return found


def test_a_kernel_of_two_signatures(db: Database, writer: Writer) -> None:
    """Sums, roof and what can be won by hand; signatures of one kernel, and the copy beside them.

    First window, weight 1: GEMM 4 calls of 1000 ns, roof 500 → f = 0.5; a copy of 1000 ns without a roof.
    Second, weight 10: the other GEMM 1 call of 600 ns, roof 900 → f = 1.5, est 6000; and 1 call of 400 ns of the
    same, whose verdict is by name: f is of both, 2 × 900 ÷ 1000 = 1.8, est 10,000.
    Kernel: est 14,000 of 15,000; attainable 4000 × 0.5 + 10,000 × 1.8 = 20,000 → 10/7; what is above its roof wins
    nothing back from the other: winnable 2000. Memory: 6000 of 14,000; by name 4000 of 14,000.
    """
    queries = stored(db, writer, [
        window_of("a", [
            stat(GEMM, [1000] * 4, roof_ns=500.0, bound=Bound.COMPUTE),
            stat(COPY, [1000], bound=Bound.COPY, evidence=Evidence.DEFINITION),
        ]),
        window_of("b", [
            stat(OTHER_GEMM, [600], roof_ns=900.0, bound=Bound.MEMORY),
            stat(OTHER_GEMM, [400], roof_ns=900.0, bound=Bound.COMPUTE, evidence=Evidence.NAME),
        ], span_ns=1_000_000, represents_ns=10_000_000),
    ])  # fmt: skip
    gemm, copy = asked(queries, "kernel")["rows"]
    assert tuple(gemm) == GROUP_KEYS
    assert gemm["kernel"] == GEMM.kernel
    assert copy["kernel"] == COPY.kernel
    assert {gemm[key] for key in ("op", "module", "node", "index", "uuid", "process", "start_unix_ns")} == {None}
    assert (gemm["kind"], gemm["device"], gemm["signatures"]) == ("matmul", H100.model, 2)
    assert (gemm["calls"], gemm["total_ns"], gemm["est_ns"], gemm["mean_ns"]) == (6, 5000, 14_000, 5000 / 6)
    assert gemm["share"] == pytest.approx(14 / 15)
    assert copy["share"] == pytest.approx(1 / 15)
    assert (gemm["min_ns"], gemm["max_ns"]) == (400, 1000)
    assert gemm["roof_fraction"] == pytest.approx(10 / 7)
    assert gemm["roofed_share"] == 1.0
    assert gemm["winnable_ns"] == 2000
    assert gemm["bounds"] == pytest.approx({"compute": 8 / 14, "memory": 6 / 14})
    assert gemm["bound"] == "compute"
    assert gemm["evidences"] == pytest.approx({"shapes": 10 / 14, "name": 4 / 14})
    assert gemm["evidence"] == "shapes"
    assert gemm["kinds"] == {"matmul": 1.0}
    assert gemm["phases"] == {"forward": 1.0}
    assert (copy["roof_fraction"], copy["roofed_share"], copy["winnable_ns"]) == (None, 0.0, None)


def test_percentiles_are_of_all_calls(db: Database, writer: Writer) -> None:
    """Not of windows' percentiles: 90 calls of 1000 ns in one window, 8 of 10,000 and 2 of 100,000 in another.

    p50 is the 50th of 100: 1000; p95 the 95th: 10,000; p99 the 99th: 100,000; each within the 2 % of a bucket.
    """
    queries = stored(db, writer, [
        window_of("many", [stat(GEMM, [1000] * 90)]),
        window_of("few", [stat(OTHER_GEMM, [10_000] * 8 + [100_000] * 2)], process=process_of(pid=2)),
    ])  # fmt: skip
    (row,) = asked(queries, "op")["rows"]
    assert row["op"] == GEMM.op
    assert [row["p50_ns"], row["p95_ns"], row["p99_ns"]] == pytest.approx([1000, 10_000, 100_000], rel=0.02)


def test_never_over_device_models(db: Database, writer: Writer) -> None:
    """Whatever they are merged by, two models are two rows, of which the nodes' are by node."""
    queries = stored(db, writer, [
        window_of("h", [stat(GEMM, [1000])], device=H100),
        window_of("m", [stat(GEMM, [3000])], device=MI300),
        window_of("other", [stat(GEMM, [500])], process=process_of("gpu-08")),
    ])  # fmt: skip
    for by in ("kernel", "op", "kind", "module"):
        rows = asked(queries, by)["rows"]
        assert [(row["device"], row["est_ns"]) for row in rows] == [(MI300.model, 3000), (H100.model, 1500)]
    assert asked(queries, "op", limit=1)["device_models"] == [MI300.model, H100.model]  # also what is not shown
    assert asked(queries, "op", HOUR_NS, Filter(device=H100.model))["device_models"] == [H100.model]
    rows = asked(queries, "node")["rows"]
    assert [(row["node"], row["device"], row["est_ns"]) for row in rows] == [
        ("gpu-07", MI300.model, 3000), ("gpu-07", H100.model, 1000), ("gpu-08", H100.model, 500),
    ]  # fmt: skip


def test_what_one_device_is(db: Database, writer: Writer) -> None:
    """Its uuid, whatever number each process gives it; a CPU is its host's, another without uuid its process's."""
    renumbered = dataclasses.replace(H100, index=5)
    nameless = dataclasses.replace(MI300, uuid=None)
    a, b = process_of(pid=1), process_of(pid=2)
    queries = stored(db, writer, [
        window_of("1", [stat(GEMM, [100])], process=a, device=renumbered),
        window_of("2", [stat(GEMM, [20])], process=b, device=H100),
        window_of("3", [stat(GEMM, [30])], process=a, device=CPU),
        window_of("4", [stat(GEMM, [31])], process=b, device=CPU),
        window_of("5", [stat(GEMM, [40])], process=a, device=nameless),
        window_of("6", [stat(GEMM, [9])], process=b, device=nameless),
    ])  # fmt: skip
    keys = ("est_ns", "device", "index", "uuid", "process")
    assert [tuple(row[key] for key in keys) for row in asked(queries, "device")["rows"]] == [
        (120, H100.model, 0, "GPU-1", None),
        (61, CPU.model, None, None, None),
        (40, MI300.model, 0, None, f"{a.id:016x}"),
        (9, MI300.model, 0, None, f"{b.id:016x}"),
    ]


def test_no_roof_on_the_host(db: Database, writer: Writer) -> None:
    """A view has none to reach, as in ``top``: it is in the time, and not in the roof fraction."""
    kernels = [stat(VIEW, [900], roof_ns=9.0, bound=Bound.HOST), stat(NORM, [100], roof_ns=80.0, bound=Bound.MEMORY)]
    (row,) = asked(stored(db, writer, [window_of("w", kernels)]), "kind")["rows"]
    assert (row["est_ns"], row["bound"]) == (1000, "host")
    assert (row["roof_fraction"], row["roofed_share"], row["winnable_ns"]) == (pytest.approx(0.8), 0.1, 20)


def test_windows_before_a_device_was_measured_have_no_roof(db: Database, writer: Writer) -> None:
    """900 ns without one, 100 at 80 % of it: a tenth has a roof, 20 are winnable; ``top`` says the same of its row."""
    since = dataclasses.replace(CPU, peaks=Peaks(bandwidth=Peak(1e11, "measured")))
    queries = stored(db, writer, [
        window_of("before", [stat(NORM, [900], bound=Bound.UNKNOWN, evidence=Evidence.NONE)], device=CPU),
        window_of("after", [stat(NORM, [100], roof_ns=80.0, bound=Bound.MEMORY)], device=since),
    ])  # fmt: skip
    (row,) = asked(queries, "kernel")["rows"]
    figures = pytest.approx(0.8), pytest.approx(0.1), 20
    assert (row["roof_fraction"], row["roofed_share"], row["winnable_ns"]) == figures
    top = Queries(db).run("top", Filter())
    (row,) = top["rows"]
    assert (row["roof_fraction"], row["roofed_share"], row["winnable_ns"]) == figures
    assert (row["est_ns"], row["bound"], row["evidence"]) == (1000, "memory", "shapes")
    lacking = [{"model": CPU.model, "vendor": "cpu", "est_ns": 900, "share": 0.9, "measured_share": 0.1}]
    assert top["unmeasured"] == lacking
    told = Queries(db).run("diagnose", Filter())
    assert told["unmeasured"] == lacking
    assert [(w["mistake"], w["share"]) for w in told["warnings"]] == [("peaks_since", 0.9)]
    assert [(row["winnable_ns"], row["bound"]) for row in told["rows"]] == [(20, "memory")]


def test_stretches_are_aligned_to_utc(db: Database, writer: Writer) -> None:
    """A row a group and hour; shares are of the hour; windows of unknown time are a stretch without a beginning."""
    starts = [BEGIN_NS + HOUR_NS - 1, BEGIN_NS + HOUR_NS, BEGIN_NS + 2 * HOUR_NS - 1, 0]
    windows = [window_of(f"{i}", [stat(GEMM, [100 + i])], start_unix_ns=at) for i, at in enumerate(starts)]
    windows.append(window_of("copy", [stat(COPY, [300], bound=Bound.COPY)], start_unix_ns=BEGIN_NS + HOUR_NS + 5))
    found = asked(stored(db, writer, windows), "kernel", HOUR_NS)
    assert [(row["kernel"], row["start_unix_ns"], row["est_ns"]) for row in found["rows"]] == [
        (GEMM.kernel, None, 103),
        (GEMM.kernel, BEGIN_NS, 100),
        (GEMM.kernel, BEGIN_NS + HOUR_NS, 203),
        (COPY.kernel, BEGIN_NS + HOUR_NS, 300),
    ]
    assert [row["share"] for row in found["rows"]] == pytest.approx([1, 1, 203 / 503, 300 / 503])
    assert [(row["kernel"], row["est_ns"], row["share"]) for row in found["groups"]] == [
        (GEMM.kernel, 406, pytest.approx(406 / 706)), (COPY.kernel, 300, pytest.approx(300 / 706)),
    ]  # fmt: skip
    few = asked(Queries(db), "kernel", HOUR_NS, limit=1)
    assert [row["kernel"] for row in few["rows"]] == [GEMM.kernel] * 3
    assert len(few["groups"]) == 1


@pytest.mark.parametrize("seed", range(SEEDS))
def test_sums_answer_as_windows_do(db: Database, writer: Writer, seed: int) -> None:
    """Random windows and filters: equal to the last digit, from the coarsest table exact for the stretch."""
    draw = random.Random(seed)
    of = processes(draw)
    windows = [window(draw, f"{seed}-{i}", draw.choice(of)) for i in range(70)]
    queries = stored(db, writer, windows[:50])
    swept(db)
    stored(db, writer, windows[50:], 51)
    for _ in range(12):
        f, by, limit = scope(draw), draw.choice(BY), draw.choice((0, 2))
        every = draw.choice(EVERY)
        found = asked(queries, by, every, f, limit)
        with raw_only():
            expected = asked(queries, by, every, f, limit)
        for one in (found, expected):
            assert sum(one["coverage"].pop("sources").values()) == one["coverage"]["windows"]
        for one in (found, expected):
            for name in ("source", "rows_source"):
                one["coverage"].pop(name)
        assert found == expected, (by, every, f)
        _add_up(found)
    swept(db)
    finest = {every: set(asked(queries, "kind", every)["coverage"]["sources"]) for every in EVERY}
    assert finest == {
        0: {"daily"},
        DAY_NS: {"daily"},
        5 * HOUR_NS: {"hourly"},
        HOUR_NS: {"hourly"},
        TEN_MINUTES: {"raw"},
    }


def _add_up(found: dict[str, Any]) -> None:
    """What stretches have is what their groups have."""
    keys = ("kernel", "op", "kind", "module", "node", "device", "index", "uuid", "process")
    for group in found.get("groups", ()):
        own = [row for row in found["rows"] if all(row[key] == group[key] for key in keys if key != "kind")]
        if found["query"]["by"] == "kind":
            own = [row for row in own if row["kind"] == group["kind"]]
        for name in ("calls", "total_ns", "est_ns"):
            assert sum(row[name] for row in own) == group[name]
        assert min(row["min_ns"] for row in own) == group["min_ns"]


def test_what_is_only_kept_in_longer_sums_is_told(db: Database, writer: Writer) -> None:
    """Of an hour whose kernels are gone ten minutes are not told, and said to be left out; the hour is exact."""
    window_ = window_of("w", [stat(GEMM, [100])], start_unix_ns=BEGIN_NS + 5)
    queries = stored(db, writer, [window_])
    swept(db)
    with db.write() as connection:
        connection.execute(delete(kernel_blocks))
        connection.execute(update(rollups).where(rollups.c.grain == 3600).values(finer=False))
    gone = asked(queries, "kernel", TEN_MINUTES)
    assert (gone["rows"], gone["groups"], gone["coverage"]["windows"]) == ([], [], 0)
    assert gone["coverage"]["left_out"] == [{"since_unix_ns": BEGIN_NS, "until_unix_ns": BEGIN_NS + HOUR_NS}]
    (row,) = asked(queries, "kernel", HOUR_NS)["rows"]
    assert (row["start_unix_ns"], row["est_ns"]) == (BEGIN_NS, 100)


NONE = [
    ({"by": "colour"}, "colour"),
    ({"by": ["kernel"]}, "kernel"),
    ({"every_ns": -1}, "-1"),
    ({"every_ns": 1.5}, "1.5"),
    ({"every_ns": True}, "True"),
    ({"every_ns": 10**9 + 1}, "whole seconds"),
    ({"every_ns": 1 << 70}, "whole seconds"),
    ({"every_ns": 10**9}, "7,201 stretches"),
]


def test_options_that_mean_nothing(db: Database, writer: Writer) -> None:
    """They are refused in a sentence; so is a row a second of two hours."""
    windows = [window_of(f"{at}", [stat(GEMM, [1])], start_unix_ns=BEGIN_NS + at * HOUR_NS) for at in (0, 2)]
    queries = stored(db, writer, windows)
    for options, word in NONE:
        with pytest.raises(UsageError, match=word):
            queries.run("top_by", Filter(), options=options)
