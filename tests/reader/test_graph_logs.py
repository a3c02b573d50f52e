"""Graph launches told by the log of a live capture, within bounds, and on real traces."""

from __future__ import annotations

import gzip
import json
import time
from collections import Counter
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from graph_traces import ADD, GEMM, GEMM_INPUTS, NORM, launch, ops

from roofwatch.collectors.base import RawProfile
from roofwatch.collectors.graph_logs import known_of
from roofwatch.collectors.graphs import Captured, CapturedCall, Known, Replays
from roofwatch.collectors.registry import read, read_captures
from roofwatch.model.errors import RoofwatchError
from roofwatch.model.record import Graph

# -- (c) by log --------------------------------------------------------------------------------------------------------


def log(*calls: tuple[str, Any], kernels: dict[int, str] | None = None, key: str = "k1") -> Captured:
    """A hook's log of (op, shapes); ``kernels``: those launched by name, by position."""
    told = tuple(
        CapturedCall(op, json.dumps(shapes), json.dumps(["float"] * len(shapes)), None, None) for op, shapes in calls
    )
    names = tuple((kernels or {}).get(i) for i in range(len(calls)))
    return Captured("log", told, tuple(range(len(calls))), names, key=key)


BLOCK = (
    ("aten::t", [[16, 32]]),
    ("aten::mm", GEMM_INPUTS),
    ("aten::view", [[64, 16]]),
    ("aten::add", [[64, 16], [64, 16]]),
    ("aten::native_layer_norm", [[64, 16]]),
)


def test_a_log_of_ops(trace, read_bytes) -> None:
    """Views launch nothing; product, sum and norm find their kernels, and the product its second stage."""
    launch(trace, 1, 100, GEMM, "splitKreduce_kernel", ADD, NORM)
    profile = read_with(trace, read_bytes, Known((log(*BLOCK),)))
    assert ops(profile) == {
        GEMM: "aten::mm",
        "splitKreduce_kernel": "aten::mm",
        ADD: "aten::add",
        NORM: "aten::native_layer_norm",
    }
    assert profile.graphs == [Graph(0, "graph 1", 1, 4, 40_000, 40_000, "log", 1.0)]


def test_kernels_launched_by_name(trace, read_bytes) -> None:
    """A Triton kernel in the log is its own op; one that is not in it stays unattributed, and costs confidence."""
    launch(trace, 1, 100, "triton_poi_fused_add_0", GEMM, "triton_poi_fused_mul_1")
    known = Known((log(("triton_poi_fused_add_0", [[64, 32]]), BLOCK[1], kernels={0: "triton_poi_fused_add_0"}),))
    profile = read_with(trace, read_bytes, known)
    assert ops(profile) == {
        "triton_poi_fused_add_0": "triton_poi_fused_add_0",
        GEMM: "aten::mm",
        "triton_poi_fused_mul_1": "graph 1, unattributed",
    }
    assert profile.graphs[0].attributed_ns == 20_000
    assert profile.graphs[0].confidence == pytest.approx(2 / 3)


def test_what_is_ambiguous_stays_open(trace, read_bytes) -> None:
    """One product ran where the log has two of different shapes: which one it was is not told."""
    launch(trace, 1, 100, GEMM, ADD, NORM, ADD)
    two = log(("aten::mm", [[1, 2], [2, 3]]), ("aten::mm", [[4, 5], [5, 6]]), *BLOCK[3:], ("aten::add", [[7], [7]]))
    profile = read_with(trace, read_bytes, Known((two,)))
    assert ops(profile)[GEMM] == "graph 1, unattributed"
    assert ops(profile)[NORM] == "aten::native_layer_norm"


def test_replays_tell_which_log(trace, read_bytes) -> None:
    """Two graphs of the same kernels at two batch sizes: the hook saw which one each launch was."""
    launch(trace, 1, 100, GEMM, ADD, NORM)
    launch(trace, 2, 200, GEMM, ADD, NORM)
    launch(trace, 3, 300, GEMM, ADD, NORM)
    small = log(*((op, [[1, *s[1:]] for s in shapes]) for op, shapes in BLOCK), key="small")
    replays = Replays(
        graphs=((12, "small"), (3, "k1")), threads={101: ((95_000, 0), (195_000, 1), (295_000, 0))}
    )  # fmt: skip
    profile = read_with(trace, read_bytes, Known((log(*BLOCK), small), replays))
    assert [(g.name, g.launches, g.source, g.confidence) for g in profile.graphs] == [
        ("graph 12", 2, "log", 1.0),
        ("graph 3", 1, "log", 1.0),
    ]
    shapes = {(g.graph, g.calls): json.loads(g.shapes or "") for g in profile.groups if g.kernel == GEMM}
    assert shapes == {(0, 2): [[1, 32], [1, 16]], (1, 1): GEMM_INPUTS}


def test_a_replay_at_the_edge_that_only_one_side_saw(trace, read_bytes) -> None:
    """The hook saw four replays, the trace the last three: the pace tells which they are."""
    for i, kernel in enumerate((GEMM, ADD, NORM)):
        launch(trace, i + 1, 100 + 70 * i + 40 * (i == 2), kernel)
    replays = Replays(
        graphs=((1, None), (2, None), (3, None), (4, None)),
        threads={101: ((10_000, 0), (60_000, 1), (130_000, 2), (240_000, 3))},
    )
    profile = read_with(trace, read_bytes, Known((), replays))
    assert [(g.name, g.total_ns) for g in profile.graphs] == [
        ("graph 2", 10_000),
        ("graph 3", 10_000),
        ("graph 4", 10_000),
    ]


def test_a_long_log_of_many_layers(trace, read_bytes) -> None:
    """40 layers of 4 ops, the shapes of each layer its own: every kernel finds its layer."""
    layers = [
        (("aten::mm", [[64, n], [n, 16]]), ("aten::add", [[n], [n]]), ("aten::silu", [[n]]), ("aten::_softmax", [[n]]))
        for n in range(1, 41)
    ]
    ran = (GEMM, ADD, "silu_kernel", "softmax_warp_forward")
    launch(trace, 1, 100, *(ran * 40))
    profile = read_with(trace, read_bytes, Known((log(*(call for layer in layers for call in layer)),)))
    assert profile.graphs[0].confidence == 1.0
    products = sorted(json.loads(g.shapes or "") for g in profile.groups if g.kernel == GEMM)
    assert products == [[[64, n], [n, 16]] for n in range(1, 41)]


HOSTILE = [
    b"", b"nonsense", b"[]", b"{}", b'{"logs":5,"replays":[]}',
    b'{"logs":[{"key":"a","calls":[[1]],"order":[0,9,-1,true]}]}',
    b'{"logs":[{"key":"a","calls":[["op",1,2,3,4,5,6]],"order":[0,0,"x"]}]}',
    b'{"replays":{"graphs":[[1,2]],"threads":[[1,[0,7]]]}}', b'{"replays":{"graphs":[[true,null]]}}', b"[" * 100_000,
]  # fmt: skip


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_words_of_a_hook(trace, read_bytes, text: bytes) -> None:
    """Whatever a job writes about its graphs, the trace is read, and nothing is attributed to what is none."""
    launch(trace, 1, 100, GEMM, ADD)
    profile = read_with(trace, read_bytes, known_of(text))
    assert sum(g.total_ns for g in profile.groups) == 20_000
    assert profile.graphs[0].attributed_ns == 0


def read_with(trace: Any, read_bytes: Any, known: Known) -> RawProfile:
    """Reads a trace with what is known of its graphs."""
    return read_bytes(trace.text(), known=known)


# -- bounds ------------------------------------------------------------------------------------------------------------


def test_many_graphs_are_one_line_beyond_a_limit(trace, read_trace) -> None:
    """300 graphs: 256 stand alone, the 44 with least time are together, and no nanosecond is lost."""
    for i in range(300):
        trace.call("cudaGraphLaunch", 100 * i, 1, i + 1).kernel(f"k{i}", 100 * i + 10, 1 + i * 0.1, i + 1)
    profile = read_trace(trace)
    assert len(profile.graphs) == 257
    assert (profile.graphs[-1].name, profile.graphs[-1].launches) == ("other graphs", 44)
    assert sum(g.total_ns for g in profile.graphs) == sum(1000 + 100 * i for i in range(300))


@pytest.mark.parametrize("names", [40, 19_000], ids=["few kernels", "all different"])
def test_the_longest_sequences_take_seconds(trace, read_bytes, names: int) -> None:
    """19,000 kernels of one launch against a log of 20,000 ops: bounded work, whatever comes of it."""
    kinds = (GEMM, ADD, NORM, "silu_kernel")
    ran = [f"{kinds[i % 4]}_{i % names}" for i in range(19_000)]
    trace.call("cudaGraphLaunch", 0, 1, 1)
    for i, kernel in enumerate(ran):
        trace.kernel(kernel, 10 + i, 1, 1)
    made = ("aten::mm", "aten::add", "aten::layer_norm", "aten::silu")
    ops_ = tuple((made[i % 4], [[i % names]]) for i in range(20_000))
    text, known = trace.text(), Known((log(*ops_),))
    began = time.process_time()
    profile = read_bytes(text, known=known)
    assert time.process_time() - began < 20
    assert sum(g.total_ns for g in profile.groups) == 19_000_000
    assert profile.graphs[0].records == 19_000


# -- real traces -------------------------------------------------------------------------------------------------------


def slow_graph(path: Path) -> tuple[list[dict[str, Any]], int]:
    """The records of the one graph launch of a trace by start, and all device time in nanoseconds, the plain way."""
    events = json.loads(gzip.decompress(path.read_bytes()), parse_float=Decimal)["traceEvents"]
    device = [e for e in events if e.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset")]
    (call,) = (e for e in events if "GraphLaunch" in e["name"] and e.get("cat") == "cuda_runtime")
    own = [e for e in device if e["args"]["correlation"] == call["args"]["correlation"]]
    return sorted(own, key=lambda e: e["ts"]), sum(int(e["dur"] * 1000) for e in device)


def slow_capture(path: Path) -> list[tuple[str, str]]:
    """(kernel, innermost op with shapes) of every captured launch, the plain way."""
    events = json.loads(gzip.decompress(path.read_bytes()), parse_float=Decimal)["traceEvents"]
    calls = sorted((e for e in events if e.get("cat") == "cuda_runtime"), key=lambda e: e["ts"])
    begin, end = (next(e for e in calls if f"Stream{what}Capture" in e["name"]) for what in ("Begin", "End"))
    around = [e for e in events if e.get("cat") == "cpu_op" and e["tid"] == begin["tid"] and "Input Dims" in e["args"]]
    result = []
    for e in calls:
        if begin["ts"] < e["ts"] < end["ts"] and "kernel" in e["args"]:
            ops_ = [o for o in around if o["ts"] <= e["ts"] <= o["ts"] + o["dur"]]
            result.append((e["args"]["kernel"], max(ops_, key=lambda o: o["ts"])["name"]))
    return result


def test_the_capture_of_a_real_decode_graph(traces: Path) -> None:
    """VLLM on MI300X: all 421 records are attributed, each to the op that a slow reading of the capture finds."""
    folder = traces / "kineto"
    records, whole = slow_graph(folder / "mi300_vllm_decode_fullgraph.json.gz")
    captured = slow_capture(folder / "mi300_vllm_graph_capture.json.gz")
    assert (len(records), len(captured)) == (421, 421)
    assert [e["name"] for e in records] == [kernel for kernel, _ in captured]  # what makes it a fair check
    expected: Counter[tuple[str, str]] = Counter()
    for e, (_, op) in zip(records, captured, strict=True):
        expected[e["name"], op] += int(e["dur"] * 1000)

    known = Known(tuple(read_captures(folder / "mi300_vllm_graph_capture.json.gz")))
    profile = read(folder / "mi300_vllm_decode_fullgraph.json.gz", known=known)
    found: Counter[tuple[str, str]] = Counter()
    for g in profile.groups:
        if g.graph is not None:
            found[g.kernel, str(g.op)] += g.total_ns
    assert found == expected
    total = sum(expected.values())
    assert profile.graphs == [Graph(0, "graph 1", 1, 421, total, total, "capture", 1.0)]
    assert total / whole == pytest.approx(0.969, abs=0.001)
    products = {g.op for g in profile.groups if g.kernel.startswith("Cijk_") and g.graph is not None}
    assert products == {"aten::addmm"}


def test_a_real_decode_graph_without_a_capture(traces: Path) -> None:
    """SGLang on MI300X: one launch of 544 kernels stays one graph, unattributed, whatever capture is offered."""
    folder = traces / "kineto"
    records, _ = slow_graph(folder / "mi300_sglang_decode.json.gz")
    assert len(records) == 544
    foreign = Known(tuple(read_captures(folder / "mi300_vllm_graph_capture.json.gz")))
    for known in (Known(), foreign):
        profile = read(folder / "mi300_sglang_decode.json.gz", known=known)
        (graph,) = profile.graphs
        assert (graph.records, graph.attributed_ns, graph.source) == (544, 0, None)
        assert graph.total_ns == sum(int(e["dur"] * 1000) for e in records)
        assert {g.op for g in profile.groups if g.graph is not None} == {"graph 1, unattributed"}


def test_no_capture_in_a_file(traces: Path) -> None:
    """A trace without a capture, given as one, is told so."""
    with pytest.raises(RoofwatchError, match="holds no graph capture"):
        read_captures(traces / "kineto" / "mi300_sglang_decode.json.gz")
