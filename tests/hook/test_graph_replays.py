"""Bounds of the logs of captures, replays of a window, and their way to the agent. What is real: see test_graphs.py."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from heard import STAND_IN, heard, names
from hook_jobs import TRAIN, UNTIL_STDIN_CLOSES, Jobs
from little_agent import LittleAgent, events, read_all
from torch._inductor import cudagraph_trees
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

from roofwatch.hook import graphs, oplog
from roofwatch.hook.graphs import Graphs


@pytest.fixture(autouse=True)
def nothing_left() -> Iterator[None]:
    """No test leaves a mode behind."""
    yield
    assert _get_current_dispatch_mode_stack() == []


# -- bounds ------------------------------------------------------------------------------------------------------------


def test_a_log_ends_at_its_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    """So many ops, so many bytes, no long list of tensors: then it is cut, and says so."""
    x = torch.ones(2)
    monkeypatch.setattr(oplog, "MOST_OPS", 30)
    with torch.no_grad():
        log = heard(lambda: [x + 1 for _ in range(50)])
        assert (len(log["order"]), log["cut"]) == (30, True)
        long = heard(lambda: torch._foreach_add([x] * 5000, 1.0))
    assert long["calls"] == [["aten::_foreach_add", None, None, None, None, None, 0]]
    monkeypatch.setattr(oplog, "MOST_OPS", 10**6)
    monkeypatch.setattr(oplog, "MOST_BYTES", 2000)
    with torch.no_grad():
        log = heard(lambda: [torch.ones(i + 1) + 1 for i in range(100)])
    assert log["cut"]
    assert len(json.dumps(log)) < 2500


class Graph:
    """A stand-in for a captured graph."""


def captured(of: Graphs, work: Callable[[], Any]) -> Graph:
    """A graph captured from this work."""
    graph = Graph()
    listener = of.begins()
    with torch.no_grad():
        work()
    of.ends(graph, listener)
    return graph


def test_all_logs_of_a_process_have_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Graphs alike share a log; what does not fit has none, and is still numbered."""
    monkeypatch.setattr(graphs, "MOST_LOG_BYTES", 400)
    of = Graphs(torch)
    with torch.no_grad():
        made = [captured(of, lambda n=n: torch.ones(n).add(1)) for n in (1, 1, 2, 3, 4, 5)]
    marks = [graph._roofwatch_graph for graph in made]
    assert [number for number, _ in marks] == [1, 2, 3, 4, 5, 6]
    assert marks[0][1] == marks[1][1]
    assert marks[-1][1] is None
    assert sum(map(len, of.logs.values())) <= 400


def test_replays_of_a_window_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is replayed before and after a window is not told; of too many the first, and how many more there were."""
    monkeypatch.setattr(graphs, "MOST_REPLAYS", 3)
    of = Graphs(torch)
    with torch.no_grad():
        one = captured(of, lambda: torch.ones(2).add(1))
    stranger = Graph()
    of.replayed(one)
    assert of.told() is None
    of.opened(0)
    for graph in (one, stranger, one, one, one):
        of.replayed(graph)
    of.cut()
    of.replayed(one)
    told = of.told()
    assert told is not None
    assert (told["graphs"], told["missed"]) == ([[1, one._roofwatch_graph[1]], [0, None]], 2)
    ((_, line),) = told["threads"]
    assert line[1::2] == [0, 1, 0]
    assert line[0::2] == sorted(line[0::2])


# -- on its way to the agent -------------------------------------------------------------------------------------------

DECODE = """
from roofwatch.hook import attach
attach()
model = torch.nn.Linear(8, 8)
pieces = []
with torch.no_grad():
    for rows in (1, 1, 2):
        piece, x = torch.cuda.CUDAGraph(), torch.ones(rows, 8)
        piece.capture_begin()
        model(x).relu()
        piece.capture_end()
        pieces.append(piece)
step()
print("stepping", flush=True)
while not over.is_set():
    step()
    pieces[0].replay()
    pieces[1].replay()
"""


def test_logs_come_before_the_window_that_replays_them(jobs: Jobs, agent: LittleAgent) -> None:
    """A job in steps: two of three graphs run in each; their log comes once a connection, the third's never."""
    job = jobs.start(STAND_IN + TRAIN + UNTIL_STDIN_CLOSES + DECODE, agent.path)
    connection = agent.accept()
    assert job.stdout is not None
    assert (
        job.stdout.readline() == "stepping\n"
    )  # before the first step a window is by time, in a capture there is none
    connection.ask(steps=3)
    logs, _ = connection.receive(60)
    assert logs["type"] == "graph_logs"
    (log,) = logs["logs"]
    assert names(log) == ["aten::t", "aten::addmm", "aten::relu"]
    window, fd = connection.receive(60)
    assert (window["type"], window["steps"]) == ("window", 3)
    assert events(read_all(fd))
    assert window["replays"]["graphs"] == [[1, log["key"]], [2, log["key"]]]
    ((thread, line),) = window["replays"]["threads"]
    assert thread == job.pid
    assert line[1::2] == [0, 1] * 3
    assert all(0 <= at <= window["duration_ns"] for at in line[0::2])

    answer, _ = connection.take(steps=1)
    assert answer["type"] == "window"  # and no log before it
    connection.close()
    again = agent.accept(60)
    again.ask(steps=1)
    assert again.receive(60)[0]["logs"][0]["key"] == log["key"]
    assert jobs.end(job).code == 0


def test_torchs_own_ways_to_capture() -> None:
    """torch.cuda.graph and make_graphed_callables go through the methods that the hook wraps.

    Read in torch's source, for without a device they cannot be run.
    """
    assert "self.cuda_graph.capture_begin(" in inspect.getsource(torch.cuda.graph.__enter__)
    assert "self.cuda_graph.capture_end()" in inspect.getsource(torch.cuda.graph.__exit__)
    assert "with torch.cuda.graph(" in inspect.getsource(torch.cuda.make_graphed_callables)
    source = inspect.getsource(cudagraph_trees)
    assert "torch.cuda.graph(" in source
    assert ".replay()" in source
