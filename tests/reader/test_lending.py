"""Shapes borrowed from another window: the same groups and verdicts as with shapes of one's own, or nothing at all."""

from __future__ import annotations

import copy
import gzip
import io
import json
import zlib
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from roofwatch.collectors import registry
from roofwatch.collectors.base import BORROWED, CHANGED, RawGroup, RawProfile, WindowContext
from roofwatch.collectors.kineto.lending import Wanted, digest
from roofwatch.collectors.pipeline import window_of
from roofwatch.model.record import Evidence, Node, Process, Trigger, Window

Trace = dict[str, Any]
INPUTS = ("Input Dims", "Input type", "Input Strides", "Concrete Inputs")
REAL = (
    "h100_gaunernst_bert-small-uncased",
    "mi300_normalization_fwdbwd",
    "h100_Falconsai_nsfw_image_detection",
    "mi300_inductor_triton_min",
)


def read(trace: Trace, wanted: Wanted | None = None) -> RawProfile:
    """The profile of a trace."""
    return registry.read(io.BytesIO(json.dumps(trace).encode()), wanted=wanted)


def light(trace: Trace) -> Trace:
    """The trace as it is without ``record_shapes``."""
    stripped = copy.deepcopy(trace)
    for event in stripped["traceEvents"]:
        for name in INPUTS:
            event.get("args", {}).pop(name, None)
    return stripped


def key(group: RawGroup) -> str:
    """All of a group."""
    return repr(group)


def verdicts(raw: RawProfile) -> tuple[Window, Counter[tuple[Any, ...]]]:
    """The window, and what it says of each signature but for the evidence."""
    process = Process(Node("here", "boot"), 1, 1)
    window = window_of(raw, WindowContext("0" * 32, process, Trigger.PERIODIC))
    return window, Counter((s.signature.id, s.bound, s.roof_ns, s.calls, s.total_ns) for s in window.kernels)


@pytest.mark.parametrize("name", REAL)
def test_a_real_window_without_shapes_is_judged_as_with_them(traces: Path, name: str) -> None:
    """The same groups, signatures, bounds and roofs; what rested on shapes now rests on borrowed ones."""
    trace = json.loads(gzip.decompress((traces / "kineto" / f"{name}.json.gz").read_bytes()))
    full = read(trace, Wanted(1, lend=True))
    borrowed = read(light(trace), Wanted(1, lent=full.lent))
    assert full.shapes_recorded
    assert (borrowed.borrowed, borrowed.shapes_recorded) == (BORROWED, False)
    assert sorted(map(key, borrowed.groups)) == sorted(map(key, full.groups))
    (one, said), (other, again) = verdicts(full), verdicts(borrowed)
    assert again == said
    assert other.ledger.classified_ns == one.ledger.classified_ns > 0
    own, others = (Counter(str(s.evidence) for s in w.kernels) for w in (one, other))
    assert others[Evidence.SHAPES] == 0
    assert others[Evidence.BORROWED] == own[Evidence.SHAPES] + own[Evidence.BORROWED] > 0
    assert others[Evidence.NAME] == own[Evidence.NAME]


@pytest.mark.parametrize("name", REAL)
def test_one_kernel_that_differs_and_nothing_is_borrowed(traces: Path, name: str) -> None:
    """Two kernels changed for each other, another grid, an op more, another name: each is another sequence."""
    trace = json.loads(gzip.decompress((traces / "kineto" / f"{name}.json.gz").read_bytes()))
    lent = read(trace, Wanted(1, lend=True)).lent
    plain = read(light(trace))

    def changed(change: Callable[[list[Trace], list[Trace]], None]) -> RawProfile:
        other = light(trace)
        kernels = [e for e in other["traceEvents"] if e.get("cat") == "kernel" and "correlation" in e["args"]]
        ops = [e for e in other["traceEvents"] if e.get("cat") == "cpu_op"]
        kernels.sort(key=lambda e: float(e["ts"]))
        change(kernels, ops)
        return read(other, Wanted(1, lent=lent))

    def swapped(kernels: list[Trace], _: list[Trace]) -> None:
        launched = [e for e in kernels if e["name"] != kernels[len(kernels) // 2]["name"]]
        one, two = kernels[len(kernels) // 2], launched[len(launched) // 2]
        one["name"], two["name"] = two["name"], one["name"]

    def another_grid(kernels: list[Trace], _: list[Trace]) -> None:
        kernels[len(kernels) // 2]["args"]["grid"] = [7, 7, 7]

    def another_op(_: list[Trace], ops: list[Trace]) -> None:
        ops[len(ops) // 2]["name"] = "aten::other"

    def one_less(_: list[Trace], ops: list[Trace]) -> None:
        ops[len(ops) // 2]["cat"] = "nothing"

    for change in (swapped, another_grid, another_op, one_less):
        found = changed(change)
        assert found.borrowed == CHANGED, change.__name__
        assert all(group.shapes is None for group in found.groups)
    assert not any(group.shapes for group in plain.groups)


def op(name: str, start: float, length: float, dims: list[list[int]], value: str = "", tid: int = 7) -> Trace:
    """A CPU op as Kineto writes it."""
    args = {
        "Input Dims": dims, "Input type": ["float"] * len(dims), "Input Strides": dims,
        "Concrete Inputs": [value] * len(dims),
    }  # fmt: skip
    return {"ph": "X", "cat": "cpu_op", "name": name, "pid": 1, "tid": tid, "ts": start, "dur": length, "args": args}


def launch(number: int, start: float, name: str) -> list[Trace]:
    """A kernel and the call that launched it."""
    call = {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 1, "tid": 7, "ts": start, "dur": 2}
    args = {"correlation": number, "device": 0, "stream": 7, "grid": [1, 1, 1], "block": [128, 1, 1]}
    kernel = {"ph": "X", "cat": "kernel", "name": name, "pid": 0, "tid": 7, "ts": start + 3, "dur": 5, "args": args}
    return [{**call, "args": {"correlation": number}}, kernel]


def steps(*rows: int, value: str = "", device: bool = True) -> Trace:
    """Steps of an mm of so many rows inside a linear, and an add, at 100 µs each; a kernel each on a device."""
    events = []
    for n, size in enumerate(rows):
        events += [
            op("aten::linear", 100 * n, 60, [[size, 8], [8, 8]]),
            op("aten::mm", 100 * n + 10, 40, [[size, 8], [8, 8]]),
            op("aten::add_", 100 * n + 70, 20, [[size, 8], [1]], value and f"{value}{n}"),
        ]
        if device:
            events += launch(2 * n + 1, 100 * n + 12, "gemm") + launch(2 * n + 2, 100 * n + 72, "add")
    return {"traceEvents": events}


def test_steps_alike_lend_one_step() -> None:
    """Two steps lend what five borrow. Values that change from step to step are not lent; with shapes, nothing is."""
    lent = read(steps(4, 4, value="0."), Wanted(2, lend=True)).lent
    found = read(light(steps(4, 4, 4, 4, 4)), Wanted(5, lent=lent))
    assert found.borrowed == BORROWED
    shapes = {group.kernel: (group.shapes, group.concrete, group.calls) for group in found.groups}
    assert shapes["gemm"] == ("[[4, 8], [8, 8]]", '["", ""]', 5)
    assert shapes["add"] == ("[[4, 8], [1]]", None, 5)
    assert read(steps(4, 5), Wanted(2, lend=True)).lent == b""
    assert read(light(steps(4, 4)), Wanted(2, lend=True)).lent == b""  # none were recorded
    assert read(steps(4, 4, 4), Wanted(2, lend=True)).lent == b""  # not so many steps
    assert read(light(steps(4, 4, 4)), Wanted(2, lent=lent)).borrowed == CHANGED


def test_values_that_differ_from_window_to_window_are_not_lent() -> None:
    """One step each, so that none of them can see it alone; both have the same step all the same."""
    first = read(steps(4, value="0."), Wanted(1, lend=True)).lent
    second = read(steps(4, value="1."), Wanted(1, lend=True, lent=first)).lent
    third = read(steps(4, value="1."), Wanted(1, lend=True, lent=second)).lent
    alike = read(steps(4, value="0."), Wanted(1, lend=True, lent=first)).lent
    assert digest(first) == digest(second) == digest(third) == digest(alike) != b""
    for lent, value in ((alike, '["0.0", "0.0"]'), (second, None), (third, None)):
        found = read(light(steps(4)), Wanted(1, lent=lent))
        told = {group.kernel: (group.shapes, group.concrete) for group in found.groups}
        assert told == {"gemm": ("[[4, 8], [8, 8]]", '["", ""]'), "add": ("[[4, 8], [1]]", value)}


def test_a_window_without_kernels_lends_nothing() -> None:
    """Ops of a CPU have the same names whatever the batch size: nothing there would tell 512 rows from 8."""
    eight = steps(8, 8, device=False)
    assert read(eight).shapes_recorded
    assert read(eight, Wanted(2, lend=True)).lent == b""
    packed = {"names": ["aten::linear", "aten::mm", "aten::add_"], "inputs": ["[[8, 8]]\0\0\0"]}
    lent = zlib.compress(json.dumps({**packed, "threads": {"7": [[0, 1, 2], [0, 1, 0], [0, 0, 0], []]}}).encode())
    found = read(light(steps(512, 512, device=False)), Wanted(2, lent=lent))
    assert found.borrowed == CHANGED
    assert not any(group.shapes for group in found.groups)


def test_windows_agree_where_their_steps_do() -> None:
    """However many steps they have and whatever scalars; not where a shape, an order or a thread differs."""
    lent = {n: read(steps(*([4] * n), value="0."), Wanted(n, lend=True)).lent for n in (2, 3)}
    assert digest(lent[2]) == digest(lent[3]) != b""
    assert digest(read(steps(4), Wanted(1, lend=True)).lent) == digest(lent[2])
    other = read(steps(5, 5), Wanted(2, lend=True)).lent
    assert digest(other) not in (digest(lent[2]), b"")
    elsewhere = light(steps(4, 4))
    for event in elsewhere["traceEvents"]:
        event["tid"] = 8
    assert read(elsewhere, Wanted(2, lent=lent[2])).borrowed == CHANGED


def test_nesting_is_part_of_the_sequence() -> None:
    """The same names in the same order, the mm beside the linear instead of in it."""
    lent = read(steps(4, 4), Wanted(2, lend=True)).lent
    flat = light(steps(4, 4))
    for event in flat["traceEvents"]:
        if event["name"] == "aten::linear":
            event["dur"] = 5
    assert read(flat, Wanted(2, lent=lent)).borrowed == CHANGED


@pytest.mark.parametrize(
    "text",
    [
        b"", b"x", zlib.compress(b"[]"), zlib.compress(b'{"names":[],"inputs":[],"threads":{"7":[[0],[0],[0],[]]}}'),
        zlib.compress(b'{"names":["a"],"inputs":["b"],"threads":{"7":[[0],[0],[-1],[]]}}'),
        zlib.compress(b'{"names":["a"],"inputs":["b"],"threads":{"7":[[0],[0],[0],[[1]]]}}'),
        zlib.compress(b'{"names":["a"],"inputs":[3],"threads":{}}'), zlib.compress(b" " * (9 << 20)),
        zlib.compress(b"[" * 100_000),
    ],
)  # fmt: skip
def test_what_no_window_lent_is_not_believed(text: bytes) -> None:
    """Whatever a worker that had read a hostile trace may have answered."""
    assert digest(text) == b""
    assert read(light(steps(4)), Wanted(1, lent=text or b"\0")).borrowed == CHANGED
