"""The reader on real traces, against a slow computation that shares nothing with it.

The slow one loads the whole document, keeps times as decimals, and looks through all ops of a thread for each launch.
"""

from __future__ import annotations

import gzip
import json
import re
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from roofwatch.collectors.base import Grid, RawProfile
from roofwatch.collectors.registry import read
from roofwatch.model.formulas.table import formula_of

NAMES = """
a100_alexnet_cuda_sync a100_cudagraph_triton_nccl_shapes a100_event_sync_multistream a100_nccl_args_relative_ts
a100_triton_user_kernel b200_eager cpu_only h100_Falconsai_nsfw_image_detection h100_Qwen_Qwen1.5-0.5B-Chat
h100_facebook_timesformer-base-finetuned-k400 h100_gaunernst_bert-small-uncased mi210_gpu_only_no_cpu_ops
mi250_minitoy_rocm62 mi300_Qwen1.5-0.5B mi300_inductor_triton_min mi300_normalization_fwdbwd mi300_sglang_decode
mi300_vllm_decode_fullgraph mi300_vllm_graph_capture mi300_xdit_sd35_triton2076 oldest_format_Kernel_Runtime
rtx2080ti_linear_int_ts sampled_ws128_rank0 sampled_ws128_rank1 v100_ddp_profmem_noshapes_int
v100_resnet_ns_absolute_ts
""".split()  # noqa: SIM905 - a line each would be 26 lines
DEVICE = {"kernel", "Kernel", "gpu_memcpy", "gpu_memset", "Memcpy", "Memset"}
CALLS = {"cuda_runtime", "cuda_driver", "Runtime"}
# From shared/traces' own table: device records of some files, and what older notes on these files say of the backlog.
KNOWN_RECORDS = {
    "a100_alexnet_cuda_sync": 79 + 16 + 3,
    "a100_nccl_args_relative_ts": 2700 + 960 + 114,
    "v100_ddp_profmem_noshapes_int": 19370 + 2040 + 880,
    "rtx2080ti_linear_int_ts": 8716 + 1640,
    "mi210_gpu_only_no_cpu_ops": 562,
}
KNOWN_BACKLOG = {"h100_Qwen_Qwen1.5-0.5B-Chat": 0.30, "a100_cudagraph_triton_nccl_shapes": 0.13}


def ns(microseconds: Decimal) -> int:
    """Nanoseconds, exactly."""
    value = microseconds * 1000
    assert value == int(value)
    return int(value)


@dataclass
class Slow:
    """What the slow computation says of one trace."""

    records: int = 0
    total: int = 0
    linked: int = 0
    backlog: int = 0
    in_steps: int = 0
    unfinished: int = 0
    in_graph: bool = False  # the record at hand is of a graph launch, which has no op of its own
    by_op: Counter[str | None] = field(default_factory=Counter)
    by_shapes: Counter[str | None] = field(default_factory=Counter)
    by_phase: Counter[str] = field(default_factory=Counter)
    forward: dict[Any, set[str]] = field(default_factory=lambda: defaultdict(set))  # (number, name) → its inputs
    by_device: dict[int, list[tuple[int, int]]] = field(default_factory=lambda: defaultdict(list))
    hull: list[tuple[int, int]] = field(default_factory=list)


class Ops:
    """The ops of one thread."""

    def __init__(self, ops: list[dict[str, Any]]) -> None:
        self.ops = ops
        self.start = np.array([ns(op["ts"]) for op in ops], dtype=np.int64)
        self.end = np.array([ns(op["ts"] + op["dur"]) for op in ops], dtype=np.int64)

    def around(self, time: int) -> list[dict[str, Any]]:
        """All ops running at a time, the last begun first; of those begun together the shortest."""
        found = np.flatnonzero((self.start <= time) & (time <= self.end))
        order = sorted(found.tolist(), key=lambda i: (self.start[i], -self.end[i], i), reverse=True)
        return [self.ops[i] for i in order]

    def counts_alone(self, op: dict[str, Any]) -> bool:
        """Whether no other op begun while it ran, with inputs, has a formula."""
        start, end = ns(op["ts"]), ns(op["ts"] + op["dur"])
        inside = [self.ops[i] for i in np.flatnonzero((self.start >= start) & (self.start <= end)).tolist()]
        return not any(counted(o) and o is not op and o["args"].get("Input Dims") for o in inside)


def counted(op: dict[str, Any]) -> bool:
    """Whether there is a formula for the work of an op."""
    formula = formula_of(op["name"])
    return formula is not None and formula.name != "view"


def slow(path: Path) -> Slow:
    """Reads a whole trace the plain way."""
    document = json.loads(gzip.decompress(path.read_bytes()), parse_float=Decimal, parse_int=Decimal)
    events = [e for e in document["traceEvents"] if e.get("ph") == "X"]
    threads = defaultdict(list)
    for event in events:
        if event.get("cat") == "cpu_op":
            threads[event["pid"], event["tid"]].append(event)
    ops = {thread: Ops(found) for thread, found in threads.items()}
    steps = [e for e in events if e.get("cat") == "user_annotation" and re.match(r"ProfilerStep#\d+$", e["name"])]
    optimizer = [
        e for e in events if e.get("cat") == "user_annotation" and re.match(r"Optimizer\.(step|zero)", e["name"])
    ]
    calls = {e["args"]["correlation"]: e for e in events if e.get("cat") in CALLS}
    result = Slow()
    for event in events:
        args = event.get("args", {})
        if event.get("cat") == "cpu_op" and "Sequence number" in args and args.get("Input Dims"):
            name = event["name"].split("::")[-1].replace("_", "").lower()
            result.forward[args["Sequence number"], name].add(plain(args["Input Dims"]))
    launches = [e for e in calls.values() if re.search("Launch|Memcpy|Memset", e["name"])]
    records = [e for e in events if e.get("cat") in DEVICE]
    seen = {e["args"]["correlation"] for e in records}
    captured = [
        (begin["tid"], begin["ts"], end["ts"])
        for begin, end in zip(
            (e for e in calls.values() if "BeginCapture" in e["name"]),
            (e for e in calls.values() if "EndCapture" in e["name"]),
            strict=True,
        )
    ]
    for e in launches:
        while_captured = any(e["tid"] == tid and begin <= e["ts"] <= end for tid, begin, end in captured)
        result.unfinished += e["args"]["correlation"] not in seen and not while_captured
    shared = Counter(e["args"]["correlation"] for e in records if e["cat"] == "kernel")
    spans = steps or [e for e in events if e.get("cat") == "cpu_op"]
    result.hull = [(min(ns(e["ts"]) for e in spans), max(ns(e["ts"] + e["dur"]) for e in spans))] if spans else []
    own = [e["ts"] + e["dur"] for e in events if e.get("cat") == "Trace" and e["name"].startswith("PyTorch Profiler (")]
    if steps and own:  # a step that goes on after the recording ends with it
        until = max(own + [e["ts"] + e["dur"] for e in [*records, *calls.values()]])
        result.hull = [(result.hull[0][0], min(result.hull[0][1], ns(until)))]
    for record in records:
        call = calls.get(record["args"]["correlation"])
        result.in_graph = "GraphLaunch" in call["name"] if call else shared[record["args"]["correlation"]] > 1
        add(result, record, call, ops, (steps, optimizer))
        if launches and record["args"]["correlation"] not in calls:
            result.backlog += ns(record["dur"])
    return result


def add(result: Slow, record: dict[str, Any], call: dict[str, Any] | None, ops: dict[Any, Ops], ranges: Any) -> None:
    """Accounts for one device record."""
    duration, start = ns(record["dur"]), ns(record["ts"])
    result.records += 1
    result.total += duration
    result.by_device[int(record["args"].get("device", record["pid"]))].append((start, start + duration))
    if call is None:
        result.by_op["graph" if result.in_graph else None] += duration
        result.by_shapes[None] += duration
        result.by_phase["none"] += duration
        return
    thread = call["pid"], call["tid"]
    time = ns(call["ts"])
    steps, optimizer = ranges
    result.in_steps += any(ns(s["ts"]) <= time <= ns(s["ts"] + s["dur"]) for s in steps)
    around = ops[thread].around(time) if thread in ops else []
    shaped = [op for op in around if op["args"].get("Input Dims")]
    result.linked += duration if around else 0
    if shaped and not counted(shaped[0]) and not re.match("c10d::|record_param_comms", shaped[0]["name"]):
        around_it = [op for op in shaped if counted(op)][:1]
        shaped = around_it if around_it and ops[thread].counts_alone(around_it[0]) else shaped
    chosen = (shaped or around or [None])[0]
    result.by_op["graph" if result.in_graph else chosen and chosen["name"]] += duration
    result.by_shapes[shapes_of(result, shaped[0]) if shaped and not result.in_graph else None] += duration
    backward = any("evaluate_function" in op["name"] or re.search(r"Backward\d*$", op["name"]) for op in around)
    in_optimizer = any(
        (s["pid"], s["tid"]) == thread and ns(s["ts"]) <= time <= ns(s["ts"] + s["dur"]) for s in optimizer
    )
    phase = "optimizer" if in_optimizer else "backward" if backward else "forward"
    result.by_phase[phase if ops else "none"] += duration


def shapes_of(result: Slow, op: dict[str, Any]) -> str:
    """An op's shapes; of a node of autograd the forward op's of the same number and name, where that is one."""
    node = re.match(r"(\w+?)Backward\d*$", op["name"])
    name = node[1].replace("_", "").lower() if node else ""
    forward = result.forward.get((op["args"].get("Sequence number"), name), set())
    return next(iter(forward)) if len(forward) == 1 else plain(op["args"]["Input Dims"])


def plain(value: Any) -> str:
    """JSON text without blanks, whatever the writer's layout."""
    return json.dumps(value, separators=(",", ":"), default=int)


@pytest.fixture(scope="module", params=NAMES)
def both(request: pytest.FixtureRequest, traces: Path) -> tuple[str, RawProfile, Slow]:
    """A trace read by the reader and the slow way."""
    path = traces / "kineto" / f"{request.param}.json.gz"
    return request.param, read(path), slow(path)


def test_agrees_with_slow_reading(both: tuple[str, RawProfile, Slow]) -> None:
    """Records, device time, links, backlog, steps, ops, shapes and phases are the same to the nanosecond."""
    name, profile, expected = both
    if name == "cpu_only":
        assert expected.records == 0  # its ops are the records, see test_cpu_only_window
        return
    groups = profile.groups

    def total(key: Any) -> Counter[Any]:
        sums: Counter[Any] = Counter()
        for group in groups:
            sums[key(group)] += group.total_ns
        return sums

    assert profile.problem is None
    assert sum(g.calls for g in groups) == expected.records == KNOWN_RECORDS.get(name, expected.records)
    assert sum(g.total_ns for g in groups) == expected.total
    assert sum(g.total_ns for g in groups if g.linked) == expected.linked
    assert sum(g.total_ns for g in groups if g.backlog) == expected.backlog
    assert sum(g.step_calls for g in groups) == expected.in_steps
    assert profile.dropped.get("unfinished", 0) == expected.unfinished
    assert total(lambda g: g.op if g.graph is None else "graph") == +expected.by_op
    assert all(g.op == f"{profile.graphs[g.graph].name}, unattributed" for g in groups if g.graph is not None)
    assert total(lambda g: g.phase.value) == +expected.by_phase
    assert total(lambda g: g.shapes and plain(json.loads(g.shapes))) == +expected.by_shapes
    if name in KNOWN_BACKLOG:
        assert expected.backlog / expected.total == pytest.approx(KNOWN_BACKLOG[name], abs=0.01)


def test_histograms_and_extremes_cover_every_record(both: tuple[str, RawProfile, Slow]) -> None:
    """Each group's histogram counts its calls, and its total lies between calls times the least and the most."""
    _, profile, _ = both

    for group in profile.groups:
        assert group.histogram.total == group.calls
        assert group.min_ns * group.calls <= group.total_ns <= group.max_ns * group.calls


def test_timeline_adds_up(both: tuple[str, RawProfile, Slow]) -> None:
    """Span and busy are those of a walk over the sorted records, and the causes add up to idle exactly."""
    _, profile, expected = both

    for device in profile.devices:
        assert sum(cause.total_ns for cause in device.causes) == device.span_ns - device.busy_ns
        assert all(0 < c.longest_ns <= c.total_ns and c.count > 0 for c in device.causes)
        if device.vendor == "cpu":
            continue
        assert device.index is not None
        spans = sorted(expected.by_device[device.index])
        reach, busy = spans[0][0], 0
        for start, end in spans:
            busy += max(0, end - max(start, reach))
            reach = max(reach, end)
        edges = [*spans, *expected.hull]
        assert device.busy_ns == busy
        assert device.span_ns == max(end for _, end in edges) - min(start for start, _ in edges)


def test_cpu_only_window(traces: Path) -> None:
    """Four all-reduce ops of 1.2, 0.8, 1.0 and 0.9 µs or so, as the file gives them, none inside another."""
    path = traces / "kineto" / "cpu_only.json.gz"
    document = json.loads(gzip.decompress(path.read_bytes()), parse_float=Decimal)
    ops = [e for e in document["traceEvents"] if e.get("cat") == "cpu_op"]

    profile = read(path)

    assert [d.vendor for d in profile.devices] == ["cpu"]
    assert sum(g.calls for g in profile.groups) == len(ops) == 4
    assert sum(g.total_ns for g in profile.groups) == sum(ns(op["dur"]) for op in ops)
    assert profile.world_size == int(document["distributedInfo"]["world_size"])
    assert profile.start_unix_ns // 10**9 == pytest.approx(1719853884, abs=10**7)


def test_devices_as_described(traces: Path) -> None:
    """Names, units and memory come from deviceProperties, the vendor also where the name is empty."""
    h100 = read(traces / "kineto" / "h100_Qwen_Qwen1.5-0.5B-Chat.json.gz").devices
    unnamed = read(traces / "kineto" / "mi300_vllm_decode_fullgraph.json.gz").devices
    bare = read(traces / "kineto" / "oldest_format_Kernel_Runtime.json.gz").devices

    assert [(d.vendor, d.name, d.index, d.units, d.memory_bytes) for d in h100] == [
        ("nvidia", "NVIDIA H100 80GB HBM3", 0, 132, 85018279936)
    ]
    assert [(d.vendor, d.name, d.index, d.units) for d in unnamed] == [("amd", "", 2, 304)]
    assert [(d.vendor, d.name, d.units, d.memory_bytes) for d in bare] == [("nvidia", "", None, None)]


def test_work_item_grids_become_blocks(traces: Path) -> None:
    """``hipExtModuleLaunchKernel`` writes its grid in work items: [65536, 1, 1] in blocks of 256 are 256 blocks."""
    path = traces / "kineto" / "mi210_gpu_only_no_cpu_ops.json.gz"
    events = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
    grids = [e["args"]["grid"] for e in events if e["name"] == "SubTensorOpWithScalar1d" and e["cat"] == "kernel"]
    assert [65536, 1, 1] in grids

    groups = read(path).groups

    blocks = {x // 256 for x, _, _ in grids}
    assert {g.blocks for g in groups if g.kernel == "SubTensorOpWithScalar1d"} == blocks
    assert {g.grid for g in groups if g.kernel == "SubTensorOpWithScalar1d"} == {Grid(n, 256) for n in blocks}


def test_modules_of_a_model(traces: Path) -> None:
    """Kernels of the language model are told by the path of classes to the innermost module, without numbers."""
    groups = read(traces / "kineto" / "h100_Qwen_Qwen1.5-0.5B-Chat.json.gz").groups

    modules = {g.module for g in groups}
    layer = "Qwen2Model.Qwen2DecoderLayer"
    assert {f"{layer}.Qwen2MLP.Linear", f"{layer}.Qwen2RMSNorm", f"{layer}.Qwen2Attention"} <= modules
    assert len(modules) <= 12
    assert not any(m and re.search(r"_\d+$", m) for m in modules)
