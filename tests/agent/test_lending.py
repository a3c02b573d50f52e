"""Windows without shapes between those with them: when, and what they borrow. A real job, agent and parse worker."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from roofwatch.agent import link
from roofwatch.agent.lending import Lending
from roofwatch.collectors.base import BORROWED, CHANGED, WindowContext
from roofwatch.hook.launch import environment
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


JOB = """
import time, torch
torch.set_num_threads(1)
torch.manual_seed(0)
model = torch.nn.Sequential(*[torch.nn.Linear(64, 64) for _ in range(6)])
optimizer = torch.optim.AdamW(model.parameters())
x = torch.randn(32, 64)
while True:
    optimizer.zero_grad()
    model(x).square().mean().backward()
    optimizer.step()
    time.sleep(0.003)
"""


@pytest.mark.timeout(300)
def test_a_job_whose_budget_is_short(agents: Callable[..., Any], wait: Callable[..., Any]) -> None:
    """Windows without shapes come, and say of each op what those with shapes say, as borrowed."""
    short = {"ROOFWATCH_AGENT_BUDGET": "20", "ROOFWATCH_AGENT_HARD_STOP": "100"}
    flags = ("--interval", "0.5", "--max-events", "1000000", "--light-windows", "2")
    agent = agents(*flags, program=None, env=short)
    job = subprocess.Popen([sys.executable, "-c", JOB], env=environment(os.environ, socket=str(agent.socket)))
    try:
        wait(lambda: agent.status()["shapes"].get(BORROWED, 0) >= 2, "two windows have borrowed", within=150)
    finally:
        job.kill()
        job.wait()
        agent.stop()
    windows = [window for segment in agent.segments() for window in codec.windows(segment)]
    full = [w for w in windows if w.shapes_recorded and w.steps]
    light = [w for w in windows if not w.shapes_recorded and any(s.signature.shapes for s in w.kernels)]
    assert len(full) >= 2
    assert len(light) >= 2
    known = {s.signature.id for w in full for s in w.kernels}
    for window in light:
        assert not any(s.evidence is Evidence.SHAPES for s in window.kernels)
        assert {s.signature.id for s in window.kernels} <= known
