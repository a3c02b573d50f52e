"""Op logs of graphs on their way through the agent: kept with bounds, handed on with the windows that need them."""

from __future__ import annotations

import json
import os
import socket
import sqlite3
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from roofwatch.agent import graphs, link
from roofwatch.agent.graphs import GraphLogs
from roofwatch.collectors.base import WindowContext
from roofwatch.model.record import Evidence, Graph, Node, Process, Trigger
from roofwatch.proto import codec
from roofwatch.proto.v1 import roofwatch_pb2 as pb

LOG = {
    "key": "00ff",
    "calls": [
        ["aten::t", "[[16,32]]", '["float"]', "[[32,1]]", '[""]', None, 0],
        ["aten::mm", "[[64,32],[32,16]]", '["float","float"]', "[[32,1],[1,32]]", '["",""]', None, 0],
        ["aten::relu", "[[64,16]]", '["float"]', "[[16,1]]", '[""]', None, 0],
    ],
    "order": [0, 1, 2, 0, 1, 2],
    "cut": False,
}
REPLAYS = {"graphs": [[5, "00ff"]], "threads": [[9, [1_000_000, 0, 2_000_000, 0]]], "missed": 0}
FDS = Path("/proc/self/fd")
SEQUENCE = ("ampere_sgemm_128x64_tn", "vectorized_elementwise_kernel<relu>")


@dataclass
class Peer:
    """As much of a member as the logs need."""

    notes: dict[str, Any] = field(default_factory=dict)


def a_log(key: str, size: int = 10) -> dict[str, Any]:
    """A log of about so many characters."""
    return {"key": key, "calls": ["x" * size], "order": [], "cut": False}


def test_logs_are_kept_once_and_forgotten_with_their_process():
    """Of two messages with the same log one is new; the window that replays it gets it, another process does not."""
    logs, mine, other = GraphLogs(), Peer(), Peer()
    assert logs.keep(mine, {"logs": [LOG, a_log("b")]}) == 2
    assert logs.keep(mine, {"logs": [LOG]}) == 0
    assert json.loads(logs.beside(mine, REPLAYS)) == {"replays": REPLAYS, "logs": [LOG]}
    assert json.loads(logs.beside(other, REPLAYS)) == {"replays": REPLAYS, "logs": []}
    assert logs.beside(mine, None) == logs.beside(mine, {"graphs": 5}) == b""
    assert logs.bytes > 0
    logs.forget(mine)
    logs.forget(other)
    assert logs.bytes == 0


def test_nothing_a_process_sends_grows_without_end(monkeypatch):
    """The bound of a process, of all processes, and what is no log at all."""
    monkeypatch.setattr(graphs, "PROCESS_BYTES", 1000)
    monkeypatch.setattr(graphs, "TOTAL_BYTES", 1200)
    logs, one, two = GraphLogs(), Peer(), Peer()
    assert logs.keep(one, {"logs": [a_log(str(i), 300) for i in range(9)]}) == 2
    assert logs.keep(two, {"logs": [a_log(str(i), 300) for i in range(9)]}) == 1
    assert logs.bytes <= 1200
    for odd in (5, None, [5, {}, {"key": 7}, {"key": ""}, {"key": "x" * 65}]):
        assert logs.keep(Peer(), {"logs": odd}) == 0
    deep: Any = "x"
    for _ in range(100_000):
        deep = [deep]
    assert logs.keep(Peer(), {"logs": [{"key": "deep", "calls": deep}]}) == 0
    assert logs.beside(Peer(), {"graphs": [], "threads": deep}) == b""


def test_a_text_longer_than_any_socket_buffer_reaches_the_worker():
    """Eight megabytes beside a task arrive as they were, and leave no descriptor behind."""
    before = len(list(FDS.iterdir()))
    context = WindowContext("0" * 32, Process(Node("host"), 1), Trigger.PERIODIC)
    task = link.Task("kineto-json", 3, context, 1000, 60)
    ours, theirs = socket.socketpair()
    trace = os.memfd_create("trace")
    with ours, theirs:
        for beside in (b"x" * (8 << 20), b""):
            link.send_task(ours, task, trace, beside)
            received = link.receive_task(theirs)
            assert received is not None
            assert received[0].context.graphs == beside
            os.close(received[1])
    os.close(trace)
    assert len(list(FDS.iterdir())) == before


def trace_of(base_ns: int) -> bytes:
    """Two launches of a graph of four kernels, as a profiler on CUDA writes them; times from ``base_ns``."""
    events: list[dict[str, Any]] = []
    for i in range(2):
        call = {"correlation": i + 1}
        events.append({"ph": "X", "cat": "cuda_runtime", "name": "cudaGraphLaunch", "pid": 8, "tid": 9} | {
            "ts": 1000 * (i + 1), "dur": 5, "args": call})  # fmt: skip
        events += [
            {"ph": "X", "cat": "kernel", "name": kernel, "pid": 0, "tid": 7, "ts": 1000 * (i + 1) + 20 * n, "dur": 12}
            | {"args": call | {"device": 0, "stream": 7}}
            for n, kernel in enumerate(SEQUENCE * 2, 1)
        ]
    properties = [{"id": 0, "name": "NVIDIA A100-SXM4-80GB", "numSms": 108}]
    return json.dumps(
        {"baseTimeNanoseconds": base_ns, "deviceProperties": properties, "traceEvents": events}
    ).encode()  # fmt: skip


def test_replays_in_a_window_find_the_log_of_their_graph(agents, job, wait):
    """The real agent and the real worker: kernels of a graph have the ops and FLOPs that were told beforehand."""
    agent = agents("--interval", "0.5", program=None)
    process = job(agent.socket)
    process.channel.send({"type": "graph_logs", "logs": [LOG]})
    process.channel.send({"type": "graph_logs_of_a_later_version", "anything": 1})
    request = process.receive()
    start = time.time_ns()
    process.answer(request, trace_of(start), start_unix_ns=start, duration_ns=10_000_000, steps=None, replays=REPLAYS)
    wait(lambda: agent.status()["windows"].get("sealed"), "a window")
    assert agent.stop() == 0
    database = sqlite3.connect(agent.state / "spool.db")
    ((envelope,),) = database.execute("SELECT envelope FROM segment ORDER BY row").fetchall()
    database.close()
    (window,) = codec.windows(codec.unseal(pb.SegmentEnvelope.FromString(envelope)))

    assert window.graphs == (Graph(0, "graph 5", 2, 8, 96_000, 96_000, "log", 1.0),)
    found = {s.signature.kernel: s for s in window.kernels}
    product = found[SEQUENCE[0]]
    assert (product.signature.op, product.signature.flops, product.calls) == ("aten::mm", 2 * 64 * 32 * 16, 4)
    assert product.evidence is Evidence.BORROWED
    assert found[SEQUENCE[1]].signature.op == "aten::relu"
