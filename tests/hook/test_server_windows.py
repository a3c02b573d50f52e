"""Windows of processes without steps: begun by requests, never amid a model load or a checkpoint. A real server."""

from __future__ import annotations

import os
import subprocess
import time
from typing import Any

import pytest
from hook_jobs import Jobs
from little_agent import Connection, LittleAgent, events

from roofwatch.hook.activity import Activity, Look, active_ns, busy, holds_work
from roofwatch.hook.stages import named, stage

# Does on a thread what a line on its standard input says, until the next line; attaches itself, so that it is seen.
SERVER = """
import io, sys, threading, time, torch
torch.set_num_threads(1)
from roofwatch.hook import attach
attach(model="server")
model = torch.nn.Sequential(*[torch.nn.Linear(256, 256) for _ in range(8)])
state, x = {str(n): torch.rand(512, 512) for n in range(8)}, torch.rand(16, 256)
kept = io.BytesIO()
torch.save(state, kept)
asked = ["idle"]
def answer():
    with torch.inference_mode():
        return model(x)
def save():
    torch.save(state, io.BytesIO())
def load():
    for _ in range(20):
        kept.seek(0)
        again = torch.load(kept)
    assert all(torch.equal(again[name], value) for name, value in state.items())
work = {"idle": lambda: time.sleep(0.01), "answer": answer, "save": save, "load": load}
def serve():
    while asked[0] != "":
        work[asked[0]]()
worker = threading.Thread(target=serve)
worker.start()
for line in sys.stdin:
    asked[0] = line.strip()
    print(asked[0], flush=True)
asked[0] = ""
worker.join()
print("done", *[thread.name for thread in threading.enumerate()])
"""

# It computes on threads beside the main one, which only this path records; what the plain one says: test_windows.py.
NATIVE = {"ROOFWATCH_HOOK_CLOSE": "native"}


class Server:
    """The job, told what to do."""

    def __init__(self, jobs: Jobs, agent: LittleAgent, program: str = SERVER) -> None:
        self.jobs = jobs
        self.job: subprocess.Popen[str] = jobs.start(program, agent.path, **NATIVE)
        self.connection: Connection = agent.accept()

    def does(self, what: str) -> None:
        """From now on, and for a moment already."""
        assert self.job.stdin is not None
        assert self.job.stdout is not None
        self.job.stdin.write(what + "\n")
        self.job.stdin.flush()
        assert self.job.stdout.readline().strip() == what
        time.sleep(0.05)

    def takes(self, **request: Any) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        """A window, and its ops."""
        answer, trace = self.connection.take(**{"duration_ms": 60, "timeout_ms": 400, **request})
        return answer, [event for event in events(trace) if event["cat"] == "cpu_op"] if trace else []


@pytest.fixture
def server(jobs: Jobs, agent: LittleAgent) -> Server:
    """One that waits for requests."""
    return Server(jobs, agent)


def test_windows_of_a_server(server: Server) -> None:
    """Idle, at work, idle again; loading, saving; saving in the middle of a window; and nothing of it shows."""
    time.sleep(0.5)  # its imports are over
    assert server.takes()[0].get("reason") == "idle"

    number = server.connection.ask(duration_ms=60, timeout_ms=10_000)
    time.sleep(0.3)  # the window waits for the request
    begun = time.time_ns()
    server.does("answer")
    window, _ = server.connection.receive(20)
    assert (window["type"], window["request"]) == ("window", number)
    assert window["start_unix_ns"] > begun
    assert window["active_ns"] is None  # the first

    window, ops = server.takes()
    assert len(ops) >= 16  # at least one request
    assert window["steps"] is None
    for what, reason in (("save", "checkpoint"), ("load", "model_load")):
        server.does(what)
        refusals = [server.takes()[0] for _ in range(5)]
        assert reason in [refusal.get("reason") for refusal in refusals]  # between two there may be a moment
        assert False in [refusal.get("opened") for refusal in refusals]
    server.does("answer")
    while server.takes(timeout_ms=5000)[0].get("reason") == "model_load":
        pass  # the last load is not over yet
    number = server.connection.ask(duration_ms=3000, max_ms=5000)
    time.sleep(0.3)
    server.does("save")
    answer, _ = server.connection.receive(20)
    assert (answer.get("reason"), answer.get("opened")) == ("checkpoint", True)
    server.does("answer")
    assert server.takes(timeout_ms=5000)[0]["type"] == "window"  # nothing is left of the one before
    server.does("idle")
    time.sleep(0.1)
    assert server.takes()[0].get("reason") == "idle"
    ended = server.jobs.end(server.job)
    assert (ended.code, ended.err) == (0, "")
    assert ended.out.split() == ["done", "MainThread"]


def test_requests_too_small_to_be_told_from_waiting(jobs: Jobs, agent: LittleAgent) -> None:
    """One op four times a second: after a while without a window they are seen, all of them in a longer window.

    One that polls a hundred times a second and does nothing has none: what was tried of it is thrown away, and it is
    tried again later and later.
    """
    soon = """
import roofwatch.hook.activity
roofwatch.hook.activity.HUNGRY_S = 1.0
roofwatch.hook.activity.TRIAL_S = 1.5
attach(model="server")
"""
    tiny = '"idle": lambda: time.sleep(0.01), "tiny": lambda: (x.neg(), time.sleep(0.25)),'
    program = SERVER.replace('\nattach(model="server")\n', soon).replace('"idle": lambda: time.sleep(0.01),', tiny)
    server = Server(jobs, agent, program)
    time.sleep(0.5)  # its imports are over
    server.does("tiny")
    assert server.takes(timeout_ms=500)[0].get("reason") == "idle"
    for _ in range(2):
        window, ops = server.takes(timeout_ms=5000)
        assert window["type"] == "window"
        assert 1.5e9 <= window["duration_ns"] < 3e9
        assert 4 <= sum(op["name"] == "aten::neg" for op in ops) <= 12
    server.does("idle")
    answer = server.takes(timeout_ms=5000)[0]
    assert (answer.get("reason"), answer.get("detail"), answer.get("opened")) == ("idle", "no op", True)
    answer = server.takes(timeout_ms=1000)[0]  # two seconds now
    assert (answer.get("reason"), answer.get("opened")) == ("idle", False)
    server.does("answer")
    window, ops = server.takes(timeout_ms=5000, duration_ms=300)
    assert window["duration_ns"] < 1.4e9  # no trial
    assert len(ops) >= 16
    assert server.jobs.end(server.job).code == 0


def test_who_always_loads_gets_a_window_now_and_then(jobs: Jobs, agent: LittleAgent) -> None:
    """A job that reads its data with torch.load, and lets nobody look at its frames: windows come, if rarely."""
    always = """
import roofwatch.hook.window
roofwatch.hook.window.STAGED_MOST_S = 1.0
read = "def load():\\n    while asked[0] == 'load':\\n        model(x)"
exec(compile(read, "/x/vllm/model_executor/model_loader/weights.py", "exec"))
work = {"""
    server = Server(jobs, agent, SERVER.replace("\nwork = {", always))
    server.does("load")
    begun = time.monotonic()
    answers = []
    while not answers or (answers[-1]["type"] != "window" and time.monotonic() < begun + 30):
        answers.append(server.takes(timeout_ms=5000)[0])
    assert answers[-1]["type"] == "window"
    assert {answer["reason"] for answer in answers[:-1]} == {"model_load"}
    assert time.monotonic() - begun >= 1.0
    assert server.takes(timeout_ms=5000)[0].get("reason") == "model_load"  # and then for a while none
    assert server.jobs.end(server.job).code == 0

    forbid = """
import sys
def forbid(event, _):
    if event == "sys._current_frames":
        raise RuntimeError("not here")
sys.addaudithook(forbid)
"""
    server = Server(jobs, agent, forbid + SERVER)
    server.does("answer")
    assert server.takes(timeout_ms=5000)[0]["type"] == "window"
    assert server.jobs.end(server.job).code == 0


def test_a_window_stands_for_the_time_at_work(server: Server) -> None:
    """A server that waits for three seconds between two windows: the second does not stand for them."""
    server.does("answer")
    server.takes(timeout_ms=5000, duration_ms=300)
    cut = time.monotonic_ns()
    server.does("idle")
    time.sleep(3)
    server.does("answer")
    window, _ = server.takes(timeout_ms=5000, duration_ms=300)
    wall = time.monotonic_ns() - cut
    assert window["duration_ns"] <= window["active_ns"] < wall - 2e9


def test_steps_beside_a_checkpoint(jobs: Jobs, agent: LittleAgent) -> None:
    """A training job that writes a checkpoint on another thread gets its windows before and after."""
    job = jobs.start(
        SERVER.replace(
            'asked = ["idle"]\n', 'asked = ["idle"]\noptimizer = torch.optim.SGD(model.parameters(), lr=0.01)\n'
        )
        .replace("    return_", "")
        .replace(
            "for line in sys.stdin:",
            """def train():
    while asked[0] != "":
        model(x).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
trainer = threading.Thread(target=train)
trainer.start()
for line in sys.stdin:""",
        )
        .replace("worker.join()", "worker.join()\ntrainer.join()"),
        agent.path,
        **NATIVE,
    )
    server = Server.__new__(Server)
    server.jobs, server.job, server.connection = jobs, job, agent.accept()
    server.does("idle")
    server.takes(timeout_ms=5000)  # perhaps before its first step
    window, ops = server.takes(timeout_ms=5000, max_ms=20_000)
    assert window["steps"] == 2
    assert ops
    server.does("save")
    refusals = [server.takes(timeout_ms=5000)[0].get("reason") for _ in range(5)]
    assert "checkpoint" in refusals
    server.does("idle")
    assert server.takes(timeout_ms=5000)[0]["type"] == "window"
    assert jobs.end(job).code == 0


def test_names_of_what_loads_and_saves() -> None:
    """By file and function; the files of others are not read into."""
    torch = "/venv/lib/python3.11/site-packages/torch"
    assert named(f"{torch}/serialization.py", "_save") == "checkpoint"
    assert named(f"{torch}/serialization.py", "load") == "model_load"
    assert named(f"{torch}/serialization.py", "__enter__") is None
    assert named(f"{torch}/nn/modules/module.py", "load_state_dict") == "model_load"
    assert named(f"{torch}/nn/modules/module.py", "_call_impl") is None
    assert named(f"{torch}/distributed/checkpoint/state_dict_saver.py", "async_save") == "checkpoint"
    assert named("/x/vllm/model_executor/model_loader/weight_utils.py", "anything") == "model_load"
    assert named("/home/me/train.py", "save") is None
    assert stage() is None


def test_time_at_work_by_hand() -> None:
    """CPU time between two windows, in the coin of the second one."""
    before, begun = Look(0, 0, 0), Look(10_000, 1_000, 0)
    assert active_ns(before, begun, Look(12_000, 2_000, 0)) == 2_000 + 2_000  # half a core in it: 1,000 are 2,000 ns
    assert active_ns(before, begun, Look(12_000, 1_200, 0)) == 2_000 + 10_000  # a tenth: never more than there was
    assert active_ns(before, begun, Look(12_000, 1_010, 0)) == 2_000 + 10_000  # nothing to go by
    assert not busy(before, Look(10_000_000, 499_999, 0))
    assert busy(before, Look(50_000_000, 500_000, 0))
    assert busy(before, Look(1_000, 0, 1), 9.0)  # a graph was launched
    assert not busy(before, Look(250_000_000, 2_499_999, 0), 5.0)  # a look that came late


def test_what_is_work_in_a_trace() -> None:
    """An op or a device's record, also across two pieces that are read; annotations and calls of the host are none."""
    fd = os.memfd_create("trace")
    os.write(fd, b'{"cat": "user_annotation"}, {"cat": "cuda_runtime"}' + b" " * ((1 << 20) - 60))
    assert not holds_work(fd)
    os.write(fd, b'"cat": "kernel"')
    assert holds_work(fd)
    os.close(fd)


def test_waiting_ends_when_it_is_over() -> None:
    """Of a process that does nothing: by time, or because it is told so."""
    activity, slept = Activity(lambda: 0), []
    assert not activity.awaited(0.1, lambda s: slept.append(s) or time.sleep(s) or True, lambda: False)
    assert slept
    assert not activity.awaited(60.0, lambda _: True, lambda: True)
