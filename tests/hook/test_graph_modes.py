"""Where our dispatch mode lies while a capture is heard: the job's modes are its own, whatever becomes of a capture.

A CPU has no graphs: a class with the names of torch's stands in. Modes, ops and threads are real.
"""

from __future__ import annotations

import gc
import json
import sys
import threading
import types
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes, _get_current_dispatch_mode_stack
from torch.utils.flop_counter import FlopCounterMode

from roofwatch.hook import oplog
from roofwatch.hook.capture import Capture, Captures
from roofwatch.hook.npu_guard import install


class Own(TorchDispatchMode):  # type: ignore[misc]  # torch's own has no types
    """A mode of the job's: it counts what it sees."""

    seen = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.seen += 1
        return func(*args, **(kwargs or {}))


class Job:
    """A job whose graphs are of a class that is watched."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, begin: Callable[[Any], None] = lambda _: None) -> None:
        self.Graph: Any = type("Graph", (), {"capture_begin": begin, "capture_end": lambda _: None})
        monkeypatch.setattr(torch.cuda, "CUDAGraph", self.Graph)
        self.captures = Captures(torch, self._begins)

    def _begins(self, capture: Capture) -> None:
        self.captures.begun(capture)

    def ops(self, graph: Any) -> list[str]:
        """The ops of a captured graph."""
        key = graph._roofwatch_graph[1]
        if key is None:
            return []
        log = json.loads(self.captures.graphs.logs[key])
        return [log["calls"][i][0].partition("::")[2] for i in log["order"]]


@pytest.fixture
def job(monkeypatch: pytest.MonkeyPatch) -> Iterator[Job]:
    """A job without gradients; it leaves no capture and no mode."""
    one = Job(monkeypatch)
    with torch.no_grad():
        yield one
    assert _get_current_dispatch_mode_stack() == []
    assert one.captures.count == 0


def stack() -> list[Any]:
    """The modes on this thread that are not ours."""
    return [mode for mode in _get_current_dispatch_mode_stack() if type(mode).__name__ != "RoofwatchOps"]


def ended_elsewhere(graph: Any) -> None:
    """End a capture on another thread."""
    thread = threading.Thread(target=graph.capture_end)
    thread.start()
    thread.join()


# -- the job's modes ---------------------------------------------------------------------------------------------------


def test_a_mode_left_inside_a_capture(job: Job) -> None:
    """Entered before the begin, left before the end: it is off, and sees nothing more."""
    graph, own, x = job.Graph(), Own(), torch.ones(2)
    own.__enter__()
    graph.capture_begin()
    x + 1
    own.__exit__(None, None, None)
    assert stack() == []
    x * 2
    graph.capture_end()
    assert own.seen == 1
    assert job.ops(graph) == ["add", "mul"]


def test_a_mode_left_after_a_capture(job: Job) -> None:
    """Entered inside, left after the end: at the end ours is off from under it."""
    graph, own, x = job.Graph(), Own(), torch.ones(2)
    graph.capture_begin()
    own.__enter__()
    x + 1
    graph.capture_end()
    assert _get_current_dispatch_mode_stack() == [own]
    x * 2
    own.__exit__(None, None, None)
    assert own.seen == 2
    assert job.ops(graph) == ["add"]


@pytest.mark.parametrize("at", range(7))
@pytest.mark.parametrize("length", range(1, 7))
def test_any_order_of_modes(job: Job, at: int, length: int) -> None:
    """Two modes entered and left in the order of a stack, begin and end anywhere between: each step as without us."""
    a, b, x = Own(), Own(), torch.ones(2)
    steps: list[Callable[[], Any]] = [
        a.__enter__,
        lambda: x + 1,
        b.__enter__,
        lambda: x + 1,
        lambda: b.__exit__(None, None, None),
        lambda: a.__exit__(None, None, None),
    ]

    def run(graph: Any) -> list[Any]:
        a.seen = b.seen = 0
        told: list[Any] = []
        for i in range(len(steps) + 1):
            if graph is not None and i == at:
                graph.capture_begin()
            if graph is not None and i == min(at + length, len(steps)):
                graph.capture_end()
            if i < len(steps):
                steps[i]()
                told.append((a.seen, b.seen, ["ab"[mode is b] for mode in stack()]))
        return told

    assert run(job.Graph() if at < len(steps) else None) == run(None)
    assert run(None)[-3] == (2, 1, ["a", "b"])


def test_flop_counter_across_a_begin(job: Job) -> None:
    """Torch's own counter, left inside a capture, counts what ran inside it and is off."""
    graph, x = job.Graph(), torch.ones(8, 8)
    with FlopCounterMode(display=False) as counter:
        x @ x
        graph.capture_begin()
        x @ x
    x @ x
    graph.capture_end()
    assert counter.get_total_flops() == 2 * 2 * 8**3
    assert job.ops(graph) == ["mm", "mm"]


def test_a_mode_left_on_by_an_op(job: Job) -> None:
    """A custom op that enters a mode and leaves it on: ours, which torch puts back on top of it, sinks below it."""
    own, x, graph = Own(), torch.ones(2), job.Graph()

    @torch.library.custom_op("roofwatch_test::enters", mutates_args=())  # type: ignore[untyped-decorator]
    def enters(x: torch.Tensor) -> torch.Tensor:
        own.__enter__()
        return x.clone()

    graph.capture_begin()
    enters(x)
    assert _get_current_dispatch_mode_stack()[-1] is own
    own.__exit__(None, None, None)
    assert stack() == []
    graph.capture_end()


def test_modes_lifted_around_an_end(job: Job) -> None:
    """Torch lifts all modes, the capture ends meanwhile, torch puts them back: the next op takes ours off."""
    graph, own, x = job.Graph(), Own(), torch.ones(2)
    graph.capture_begin()
    with own:
        with _disable_current_modes():
            graph.capture_end()
        assert stack() == [own]
        x + 1
        assert _get_current_dispatch_mode_stack() == [own]


def test_where_something_is_traced_nothing_is_heard(job: Job) -> None:
    """Under torch's own modes of tracing the stack is left alone."""
    graph = job.Graph()
    with FakeTensorMode() as fake:
        before = _get_current_dispatch_mode_stack()
        graph.capture_begin()
        assert _get_current_dispatch_mode_stack() == before == [fake]
        torch.ones(2) + 1
        graph.capture_end()
    assert job.ops(graph) == []


# -- captures that do not end as they should ---------------------------------------------------------------------------


def test_captures_inside_each_other(job: Job) -> None:
    """Whose an op is cannot be told: the outer log ends at the inner begin, the inner has none."""
    a, b, x = job.Graph(), job.Graph(), torch.ones(2)
    a.capture_begin()
    x + 1
    b.capture_begin()
    assert job.captures.count == 2
    x * 2
    a.capture_end()
    assert job.captures.count == 1
    b.capture_end()
    assert (job.ops(a), job.ops(b)) == (["add"], [])


def test_begun_twice(job: Job) -> None:
    """As many ends as begins, of one graph; an end too many counts nothing down."""
    graph, other, x = job.Graph(), job.Graph(), torch.ones(2)
    other.capture_begin()
    for _ in range(2):
        graph.capture_begin()
    x + 1
    counts = []
    for _ in range(3):
        graph.capture_end()
        counts.append(job.captures.count)
    assert counts == [2, 1, 1]
    other.capture_end()


@pytest.mark.parametrize("fails", [False, True])
def test_an_end_on_another_thread(job: Job, fails: bool) -> None:
    """What ended elsewhere is heard no more, and is off with the thread's next op, also one that fails."""
    graph, x, y = job.Graph(), torch.ones(2, 3), torch.ones(2, 3)
    graph.capture_begin()
    x + 1
    ended_elsewhere(graph)
    assert job.captures.count == 0
    if fails:
        with pytest.raises(RuntimeError, match="shapes cannot be multiplied") as held:
            x @ y
        assert held.tb is not None  # its traceback holds our frame
    else:
        x + y
    assert _get_current_dispatch_mode_stack() == []
    assert job.ops(graph) == ["add"]


def test_ended_elsewhere_under_a_mode_of_the_job(job: Job) -> None:
    """Off with the next op, and the job's mode stays as it is."""
    graph, x = job.Graph(), torch.ones(2)
    with Own() as own:
        graph.capture_begin()
        ended_elsewhere(graph)
        x + 1
        assert _get_current_dispatch_mode_stack() == [own]
        x + 1
    assert own.seen == 2


def test_captures_that_never_end(job: Job) -> None:
    """Dropped graphs count no more, and their modes are off."""
    for _ in range(50):
        graph = job.Graph()
        graph.capture_begin()
        torch.ones(2) + 1
        assert job.captures.count == 1
        del graph
        assert job.captures.count == 0
    assert _get_current_dispatch_mode_stack() == []


def test_a_capture_freed_by_the_garbage_collector(job: Job) -> None:
    """The same where a graph is part of a cycle."""
    graph = job.Graph()
    graph.capture_begin()
    graph.itself = graph
    del graph
    gc.collect()
    assert (job.captures.count, _get_current_dispatch_mode_stack()) == (0, [])


def test_a_begin_that_raises_after_torchs(job: Job) -> None:
    """A class with a begin of its own is not heard; the capture that it began runs on the device until it is ended."""

    class Checked(job.Graph):  # type: ignore[name-defined,misc]
        def capture_begin(self) -> None:
            super().capture_begin()
            raise RuntimeError("not now")

    ended, dropped = Checked(), Checked()
    for graph in (ended, dropped):
        with pytest.raises(RuntimeError, match="not now"):
            graph.capture_begin()
    assert _get_current_dispatch_mode_stack() == []
    assert job.captures.count == 2
    ended.capture_end()
    assert job.captures.count == 1
    del graph, dropped
    gc.collect()
    assert job.captures.count == 0


def test_a_begin_that_torch_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing has begun: nothing is counted, nothing is heard."""

    def refuse(_: Any) -> None:
        raise RuntimeError("no")

    job = Job(monkeypatch, refuse)
    with torch.no_grad(), pytest.raises(RuntimeError, match="no"):
        job.Graph().capture_begin()
    assert (job.captures.count, _get_current_dispatch_mode_stack()) == (0, [])


def test_a_log_that_is_full_comes_off(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    """At its limit the mode has nothing more to do: the capture goes on without it."""
    monkeypatch.setattr(oplog, "MOST_OPS", 3)
    graph, x = job.Graph(), torch.ones(2)
    graph.capture_begin()
    for _ in range(3):
        x + 1
    assert _get_current_dispatch_mode_stack() == []
    graph.capture_end()
    assert job.ops(graph) == ["add"] * 3


def test_threads_capture_at_the_same_time(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each log has its own thread's ops and launches; afterwards the launcher is the job's again."""

    class JITFunction:
        __name__ = "kernel"

        def run(self, *_: Any, **__: Any) -> None:
            pass

    module = types.ModuleType("triton.runtime.jit")
    module.JITFunction = JITFunction  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "triton.runtime.jit", module)
    before, here, there = JITFunction.__dict__["run"], job.Graph(), job.Graph()
    turns = threading.Barrier(2, timeout=30)

    def other() -> None:
        with torch.no_grad():
            there.capture_begin()
            turns.wait()
            torch.ones(2).mul(2)
            turns.wait()
            turns.wait()
            JITFunction().run()
            there.capture_end()

    thread = threading.Thread(target=other)
    here.capture_begin()
    thread.start()
    turns.wait()
    JITFunction().run()
    turns.wait()
    here.capture_end()
    turns.wait()
    thread.join()
    assert (job.ops(here), job.ops(there)) == ([""], ["ones", "mul", ""])  # a launch has no name space
    assert JITFunction.__dict__["run"] is before


def test_npu_graphs_are_counted_likewise(job: Job) -> None:
    """The vendor's class: counted from begin to end or till it is freed, once, and not heard."""

    class NPUGraph(job.Graph):  # type: ignore[name-defined,misc]
        def capture_begin(self) -> None:
            pass

        def capture_end(self) -> None:
            pass

    interface = type("_ProfInterface", (), {"init_trace": lambda _: None, "finalize_trace": lambda _: None})
    vendor: Any = types.SimpleNamespace(interface=interface, graph=NPUGraph, walk=None)
    path = types.SimpleNamespace(quiet=types.SimpleNamespace(inside=lambda: False))
    install(vendor, types.SimpleNamespace(captures=job.captures), path)
    graph, dropped = NPUGraph(), NPUGraph()
    graph.capture_begin()
    dropped.capture_begin()
    assert (job.captures.count, _get_current_dispatch_mode_stack()) == (2, [])
    del dropped
    gc.collect()
    assert job.captures.count == 1
    graph.capture_end()
