"""Windows without shapes between those with them: when, and what they borrow. A real agent, real traces."""

from __future__ import annotations

import copy
import gzip
import json
import os
import re
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from roofwatch.agent import link
from roofwatch.agent.lending import Lending
from roofwatch.collectors.base import BORROWED, CHANGED, WindowContext
from roofwatch.model.record import Evidence, Node, Process, Trigger
from roofwatch.proto import codec

ONE, TWO = b"0" * 16 + b"one", b"1" * 16 + b"two"


def test_two_windows_must_agree_and_then_some_may_go_without() -> None:
    """And again after a step that differs, after shapes that change, and after one that could not borrow."""
    lending = Lending()
    lending.with_shapes(ONE, 1000)
    assert not lending.may_go_without(3)
    assert lending.lent == b""
    lending.with_shapes(ONE, 1000)
    assert lending.may_go_without(3)
    assert not lending.may_go_without(0)
    assert lending.lent == b"one"
    for _ in range(3):
        lending.without(BORROWED)
    assert not lending.may_go_without(3)  # one with shapes is due
    lending.with_shapes(TWO, 1000)
    assert not lending.may_go_without(3)  # other shapes than before
    lending.with_shapes(TWO, 1000)
    assert lending.lent == b"two"
    lending.without(CHANGED)
    assert lending.lent == b""
    lending.with_shapes(TWO, 1000)
    assert not lending.may_go_without(3)
    lending.with_shapes(b"", 1000)  # its steps were not alike
    lending.with_shapes(b"", 1000)
    assert not lending.may_go_without(3)
    lending.with_shapes(ONE, 5)  # no room
    assert lending.kept == b""


def test_texts_travel_beside_a_task_and_back_with_its_answer() -> None:
    """Each by a descriptor of its own, one without the other; an answer that says it lent more than it sent is none."""
    process = Process(Node("here", "boot"), 1, 1)
    task = link.Task("kineto-json", 1, WindowContext("u", process, Trigger.PERIODIC), 1, 1)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        for graphs, lent in ((b"", b""), (b"graphs", b""), (b"", b"l" * 300_000), (b"graphs", b"lent")):
            fd = os.memfd_create("trace")
            link.send_task(ours, task, fd, graphs, lent)
            os.close(fd)
            received = link.receive_task(theirs)
            assert received is not None
            assert (received[0].context.graphs, received[0].context.lent) == (graphs, lent)
            os.close(received[1])
        ours.setblocking(False)
        reader = link.AnswerReader()
        for lent in (b"", b"step"):
            link.send_answer(theirs, link.Answer(events=3, segment=b"segment", lent=lent, borrowed=BORROWED))
            answer = reader.read(ours)
            assert answer is not None
            assert (answer.segment, answer.lent, answer.borrowed) == (b"segment", lent, BORROWED)
        head = b'{"reason":"","detail":"","events":0,"last":false,"lent":9,"borrowed":""}'
        theirs.sendall(link._ANSWER.pack(len(head), 3) + head + b"abc")
        with pytest.raises(ValueError, match="lent"):
            reader.read(ours)


COST = {
    "close_path": "native", "open_ns": 0, "quiesce_ns": 0, "close_ns": 0, "save_ns": 0, "free_ns": 0,
    "base_step_ns": 10_000_000, "longest_step_ns": 200_000_000, "lost_in_ns": 200_000_000, "lost_after_ns": 0,
    "after_steps": 10,
}  # fmt: skip
INPUTS = ("Input Dims", "Input type", "Input Strides", "Concrete Inputs")


def test_a_job_whose_budget_is_short(
    agents: Callable[..., Any], job: Callable[..., Any], wait: Callable[..., Any], traces: Path
) -> None:
    """Windows without shapes are asked for, and say of each op what those with shapes say, as borrowed."""
    full = json.loads(gzip.decompress((traces / "kineto" / "h100_gaunernst_bert-small-uncased.json.gz").read_bytes()))
    light = copy.deepcopy(full)
    for event in light["traceEvents"]:
        for name in INPUTS:
            event.get("args", {}).pop(name, None)
    texts = {True: json.dumps(full).encode(), False: json.dumps(light).encode()}
    short = {"ROOFWATCH_AGENT_BUDGET": "20", "ROOFWATCH_AGENT_HARD_STOP": "100"}
    agent = agents("--interval", "0.5", "--light-windows", "2", program=None, env=short)
    hook = job(agent.socket, close_path="native")
    asked: list[bool] = []
    while asked.count(False) < 4:  # the first is without shapes, too: it is short and of an unknown process
        request = hook.receive(within=60)
        asked.append(bool(request["shapes"]))
        hook.answer(request, texts[asked[-1]], steps=1, duration_ns=900_000_000, cost=COST)
    wait(lambda: agent.status()["shapes"].get(BORROWED, 0) == 3, "three windows have borrowed", 60)
    hook.close()
    agent.stop()
    told = "".join("S" if shapes else "-" for shapes in asked)
    # Two that agree, then at most two without; a busy machine reads a window late, and then one more has shapes.
    assert re.fullmatch("-SS{1,3}-{1,2}(S{1,3}-{1,2})*", told), told
    windows = [window for segment in agent.segments() for window in codec.windows(segment)]
    own = [w for w in windows if w.shapes_recorded]
    borrowed = [w for w in windows if not w.shapes_recorded and any(s.signature.shapes for s in w.kernels)]
    assert len(own) == asked.count(True)
    assert len(borrowed) == 3
    known = {s.signature.id for w in own for s in w.kernels}
    for window in borrowed:
        assert any(s.evidence is Evidence.BORROWED for s in window.kernels)
        assert not any(s.evidence is Evidence.SHAPES for s in window.kernels)
        assert {s.signature.id for s in window.kernels} <= known
