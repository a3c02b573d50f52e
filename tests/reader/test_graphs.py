"""Graph launches: which records are of which graph, and what op each is by nodes, by capture and by log."""

from __future__ import annotations

import json
import tracemalloc
from pathlib import Path

from graph_traces import ADD, GEMM, GEMM_INPUTS, LAYER, NORM, capture, launch, ops, run, window

from roofwatch.collectors import registry
from roofwatch.model.record import Bound, Evidence, Graph, Phase

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


def test_one_launch_of_very_many_kernels_costs_little_memory(tmp_path: Path) -> None:
    """200,000 kernels of one launch, each after a gap: below 300 bytes each; with every column in full it is 430."""
    count = 200_000
    kernel = (
        '{"ph":"X","cat":"kernel","name":"gemm","pid":0,"tid":7,"ts":%d,"dur":1,"args":{"stream":7,"correlation":1}}'
    )
    call = '{"ph":"X","cat":"cuda_runtime","name":"cudaGraphLaunch","pid":1,"tid":1,"ts":1,"dur":5,'
    call += '"args":{"correlation":1}}'
    path = tmp_path / "trace.json"
    events = [call, *(kernel % (10 + 2 * i) for i in range(count))]
    path.write_text('{"traceEvents":[' + ",\n".join(events) + "]}")
    del events
    tracemalloc.start()
    try:
        profile = registry.read_path(path).profile
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert [(graph.records, graph.total_ns) for graph in profile.graphs] == [(count, count * 1000)]
    assert peak < 300 * count
