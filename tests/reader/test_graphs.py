"""Graph launches: which records are of which graph, and what op each is by nodes, by capture and by log."""

from __future__ import annotations

import gzip
import json
import time
from collections import Counter
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from roofwatch.collectors import pipeline
from roofwatch.collectors.base import RawProfile, WindowContext
from roofwatch.collectors.graph_logs import known_of
from roofwatch.collectors.graphs import Captured, CapturedCall, Known, Replays
from roofwatch.collectors.registry import read, read_captures
from roofwatch.model.errors import RoofwatchError
from roofwatch.model.record import Bound, Evidence, Graph, Node, Phase, Process, Trigger, Window

GEMM, ADD, NORM = "ampere_bf16_gemm_128x64", "vectorized_elementwise_kernel<CUDAFunctor_add>", "layer_norm_kernel"
GEMM_INPUTS = [[64, 32], [32, 16]]


def launch(trace: Any, correlation: int, at: float, *kernels: str, tid: Any = 101, **args: Any) -> None:
    """A graph launch at ``at`` and its kernels, 10 µs each, one after the other."""
    trace.call("cudaGraphLaunch", at, 5, correlation, tid=tid)
    run(trace, correlation, at + 20, *kernels, **args)


def run(trace: Any, correlation: int, at: float, *kernels: str, nodes: tuple[int, ...] = (), **args: Any) -> None:
    """The kernels of a launch that was before the window."""
    for i, kernel in enumerate(kernels):
        more = {"graph node id": nodes[i]} if nodes else {}
        trace.kernel(kernel, at + 12 * i, 10, correlation, **args, **more)


def capture(trace: Any, at: float, *launches: tuple[str, str | None, Any], tid: Any = 101, first: int = 900) -> None:
    """A capture: (op, kernel, shapes) one after the other, 10 µs each; a kernel of None is not told, as on CUDA."""
    trace.call("hipStreamBeginCapture", at, 1, first, tid=tid)
    for i, (op, kernel, shapes) in enumerate(launches):
        begun = at + 10 * (i + 1)
        trace.op(op, begun, 8, tid=tid, shapes=shapes)
        more = {} if kernel is None else {"kernel": kernel}
        trace.call("hipLaunchKernel", begun + 2, 2, first + 1 + i, tid=tid, **more)
    trace.call("hipStreamEndCapture", at + 10 * (len(launches) + 1), 1, first + 500, tid=tid)


LAYER = (("aten::mm", GEMM, GEMM_INPUTS), ("aten::add", ADD, [[64, 16], [64, 16]]), ("aten::layer_norm", NORM, [[64]]))


def ops(profile: RawProfile) -> dict[str, str | None]:
    """Op by kernel."""
    return {g.kernel: g.op for g in profile.groups}


def window(profile: RawProfile) -> Window:
    """A profile judged."""
    return pipeline.window_of(profile, WindowContext("0" * 32, Process(Node("n"), 1), Trigger.IMPORTED))


# -- which graph -------------------------------------------------------------------------------------------------------


def test_without_a_capture_nothing_is_attributed(trace, read_trace) -> None:
    """Two launches of one graph and one of another: two graphs, each with its own line, and no op is made up."""
    trace.op("CompiledFunction", 0, 1000, shapes=GEMM_INPUTS)
    launch(trace, 1, 10, GEMM, ADD)
    launch(trace, 2, 110, GEMM, ADD)
    launch(trace, 3, 210, NORM)

    profile = read_trace(trace)
    assert profile.graphs == [
        Graph(0, "graph 1", 2, 4, 40_000),
        Graph(0, "graph 2", 1, 1, 10_000),
    ]
    assert {(g.kernel, g.op, g.shapes, g.graph) for g in profile.groups} == {
        (GEMM, "graph 1, unattributed", None, 0),
        (ADD, "graph 1, unattributed", None, 0),
        (NORM, "graph 2, unattributed", None, 1),
    }


def test_ids_tell_graphs_apart_that_run_the_same(trace, read_trace) -> None:
    """Two graphs of the same kernel have ids 7 and 9."""
    launch(trace, 1, 10, GEMM, **{"graph id": 7})
    launch(trace, 2, 110, GEMM, **{"graph id": 9})
    assert [g.name for g in read_trace(trace).graphs] == ["graph 7", "graph 9"]


def test_launched_before_the_window(trace, read_trace) -> None:
    """Records of an unseen launch share a correlation; the end of a graph seen later is of that graph."""
    run(trace, 1, 0, ADD, NORM)
    trace.kernel("alone", 30, 10, 2)
    launch(trace, 3, 110, GEMM, ADD, NORM)

    profile = read_trace(trace)
    assert profile.graphs == [Graph(0, "graph 1", 2, 5, 50_000)]
    assert {(g.kernel, g.backlog, g.graph) for g in profile.groups if g.backlog} == {
        (ADD, True, 0), (NORM, True, 0), ("alone", True, None)
    }  # fmt: skip


def test_cut_off_at_the_end(trace, read_trace) -> None:
    """The last launch ran the first two of three kernels when the recorder was closed."""
    launch(trace, 1, 0, GEMM, ADD, NORM)
    launch(trace, 2, 100, GEMM, ADD)
    assert read_trace(trace).graphs == [Graph(0, "graph 1", 2, 5, 50_000)]


def test_streams_change_the_order_but_not_the_graph(trace, read_trace) -> None:
    """The same kernels in another order are one graph."""
    launch(trace, 1, 0, GEMM, ADD, NORM)
    launch(trace, 2, 100, GEMM, NORM, ADD)
    assert read_trace(trace).graphs == [Graph(0, "graph 1", 2, 6, 60_000)]


# -- (b) by capture ----------------------------------------------------------------------------------------------------


def test_a_capture_in_the_same_trace(trace, read_trace) -> None:
    """Every kernel gets its op, shapes and phase; the captured launches themselves are no lost work."""
    capture(trace, 0, *LAYER)
    for i in range(3):
        launch(trace, 1 + i, 100 + 100 * i, GEMM, ADD, NORM)

    profile = read_trace(trace)
    assert profile.graphs == [Graph(0, "graph 1", 3, 9, 90_000, 90_000, "capture", 1.0)]
    assert ops(profile) == {GEMM: "aten::mm", ADD: "aten::add", NORM: "aten::layer_norm"}
    (product,) = (g for g in profile.groups if g.kernel == GEMM)
    assert (json.loads(product.shapes or ""), product.linked, product.phase) == (GEMM_INPUTS, True, Phase.FORWARD)
    assert (product.calls, product.op_calls) == (3, 3)
    assert profile.dropped == {}


def test_attributed_kernels_are_judged_by_formulas(trace, read_trace) -> None:
    """[64,32] by [32,16]: 2·64·32·16 = 65,536 FLOPs in (64·32 + 32·16 + 64·16)·4 = 14,336 bytes; borrowed."""
    trace.fields["deviceProperties"] = [{"id": 0, "name": "NVIDIA A100-SXM4-80GB", "numSms": 108}]
    capture(trace, 0, *LAYER)
    launch(trace, 1, 100, GEMM, ADD, NORM)

    (stat,) = (s for s in window(read_trace(trace)).kernels if s.signature.kernel == GEMM)
    assert (stat.signature.op, stat.signature.flops, stat.signature.bytes) == ("aten::mm", 65_536, 14_336)
    assert (stat.evidence, stat.bound) == (Evidence.BORROWED, Bound.MEMORY)  # 4.6 FLOP a byte, the ridge is at 9.6


def test_backlog_of_a_captured_graph_keeps_its_own_verdict(trace, read_trace) -> None:
    """A record launched before the window, whose graph is known, is judged by its own shapes."""
    trace.fields["deviceProperties"] = [{"id": 0, "name": "NVIDIA A100-SXM4-80GB", "numSms": 108}]
    run(trace, 800, 0, GEMM, ADD, NORM)
    capture(trace, 50, *LAYER)
    launch(trace, 1, 200, GEMM, ADD, NORM)
    result = window(read_trace(trace))
    assert result.graphs[0].attributed_ns == 60_000
    assert {s.evidence for s in result.kernels if s.signature.kernel == GEMM} == {Evidence.BORROWED}
    assert result.ledger.backlog_ns == 30_000


def test_one_op_that_launches_two_kernels(trace, read_trace) -> None:
    """Both kernels are one call of the op: three replays are three calls, with a fill before each product."""
    trace.call("hipStreamBeginCapture", 0, 1, 900)
    trace.op("aten::mm", 10, 30, shapes=GEMM_INPUTS)
    trace.call("hipMemsetAsync", 12, 1, 901).call("hipLaunchKernel", 20, 2, 902, kernel=GEMM)
    trace.call("hipStreamEndCapture", 50, 1, 903)
    for i in range(3):
        trace.call("hipGraphLaunch", 100 * (i + 1), 5, i + 1).kernel("fill", 100 * (i + 1) + 20, 2, i + 1)
        trace.kernel(GEMM, 100 * (i + 1) + 30, 10, i + 1)

    groups = {g.kernel: (g.op, g.calls, g.op_calls) for g in read_trace(trace).groups}
    assert groups == {"fill": ("aten::mm", 3, 3), GEMM: ("aten::mm", 3, 3)}


def test_the_right_one_of_several_captures(trace, read_trace) -> None:
    """Two graphs are captured; each replay finds its own."""
    capture(trace, 0, *LAYER, first=700)
    capture(trace, 100, ("aten::mm", "other_gemm", [[8, 8], [8, 8]]), ("aten::add", ADD, [[8, 8], [8, 8]]), first=800)
    launch(trace, 1, 300, "other_gemm", ADD)
    launch(trace, 2, 400, GEMM, ADD, NORM)

    profile = read_trace(trace)
    assert [(g.attributed_ns, g.confidence) for g in profile.graphs] == [(20_000, 1.0), (30_000, 1.0)]
    shapes = {(g.kernel, g.graph): json.loads(g.shapes or "null") for g in profile.groups}
    assert shapes[ADD, 0] == [[8, 8], [8, 8]]
    assert shapes[ADD, 1] == [[64, 16], [64, 16]]


def test_captures_that_fit_alike_tell_only_what_they_agree_on(trace, read_trace) -> None:
    """The same kernels at batch 64 and batch 1: the op is known, its inputs are not."""
    capture(trace, 0, *LAYER, first=700)
    capture(trace, 100, *((op, kernel, [[1, *s[1:]] for s in shapes]) for op, kernel, shapes in LAYER), first=800)
    launch(trace, 1, 300, GEMM, ADD, NORM)
    profile = read_trace(trace)
    assert {(g.op, g.shapes) for g in profile.groups} == {(op, None) for op, _, _ in LAYER}
    assert profile.graphs[0].attributed_ns == 30_000


def test_another_models_capture_is_no_source(trace, read_trace) -> None:
    """One add among nine other kernels fits by chance, and is not attributed."""
    capture(trace, 0, *LAYER)
    launch(trace, 1, 300, ADD, *(f"other {i}" for i in range(9)))
    profile = read_trace(trace)
    assert profile.graphs == [Graph(0, "graph 1", 1, 10, 100_000)]


def test_a_capture_without_kernel_names(trace, read_trace) -> None:
    """On CUDA a captured launch has no kernel name: order and kind tell."""
    capture(trace, 0, *((op, None, shapes) for op, _, shapes in LAYER))
    launch(trace, 1, 100, GEMM, ADD, NORM)
    profile = read_trace(trace)
    assert ops(profile) == {GEMM: "aten::mm", ADD: "aten::add", NORM: "aten::layer_norm"}
    assert profile.graphs[0].confidence == 1.0


def test_threads_that_capture_at_once(trace, read_trace) -> None:
    """Two threads capture in the same time; a launch that ran on the device meanwhile belongs to neither."""
    capture(trace, 0, *LAYER, tid=101, first=700)
    capture(trace, 5, ("aten::mm", "other_gemm", GEMM_INPUTS), tid=102, first=800)
    trace.call("hipLaunchKernel", 25, 1, 650, tid=103).kernel("meanwhile", 60, 10, 650)
    launch(trace, 1, 300, "other_gemm")
    launch(trace, 2, 400, GEMM, ADD, NORM)
    profile = read_trace(trace)
    assert [g.confidence for g in profile.graphs] == [1.0, 1.0]
    assert ops(profile)["other_gemm"] == "aten::mm"


# -- (a) by nodes ------------------------------------------------------------------------------------------------------


def test_node_ids_tell_whatever_the_order(trace, read_trace) -> None:
    """Nodes are numbered as captured: two launches whose streams ran them in another order, one of them cut off."""
    capture(trace, 0, *((op, None, shapes) for op, _, shapes in LAYER))
    launch(trace, 1, 100, NORM, GEMM, ADD, nodes=(13, 11, 12), **{"graph id": 4})
    launch(trace, 2, 200, ADD, NORM, GEMM, nodes=(12, 13, 11), **{"graph id": 4})
    launch(trace, 3, 300, NORM, ADD, nodes=(13, 12), **{"graph id": 4})

    profile = read_trace(trace)
    assert profile.graphs == [Graph(0, "graph 4", 3, 8, 80_000, 80_000, "nodes", 1.0)]
    assert ops(profile) == {GEMM: "aten::mm", ADD: "aten::add", NORM: "aten::layer_norm"}


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
