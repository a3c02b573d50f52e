"""What real windows of real jobs say of busy and idle, against what the jobs measured of themselves."""

from __future__ import annotations

import ast
import os
import signal
import sqlite3
import subprocess
import sys

import pytest

from roofwatch.hook.launch import environment
from roofwatch.model.answer_rows import sums_of
from roofwatch.model.record import Cause
from roofwatch.proto import codec
from roofwatch.proto.v1 import roofwatch_pb2 as pb

# Both print what they measured of themselves when they are told to end.
COMMON = """
import os, signal, time, torch
from roofwatch.hook import attach
torch.set_num_threads(1)
told, parent = [], os.getppid()
signal.signal(signal.SIGTERM, lambda *_: told.append(1))
def over():
    return told or os.getppid() != parent  # a test run that is killed leaves no job behind
clock = time.perf_counter
"""
# Right after the step boundary 50 ms without an op, as when a loader is waited for; then products for 25 ms. Each is
# timed by itself: on a busy machine the process also loses its processor between them.
STARVED = (
    COMMON
    + """
layer = torch.nn.Linear(8, 8)
optimizer = torch.optim.SGD(layer.parameters(), 0.01)
x, out = torch.randn(640, 640), torch.empty(640, 640)
def step():
    begun_unix_ns, busy = time.time_ns(), 0.0
    time.sleep(0.05)
    while busy < 0.025:
        at = clock()
        torch.mm(x, x, out=out)
        busy += clock() - at
    layer(x[:8, :8]).sum().backward()
    optimizer.step()
    return begun_unix_ns, busy
step()
attach(model="starved")
steps = []
while not over():
    steps.append(step())
print(steps)
"""
)
SPARSE = (
    COMMON
    + """
attach(model="sparse")
x = torch.randn(400, 400)
busy, begun = 0.0, clock()
while not over():
    time.sleep(0.3)
    at = clock()
    torch.mm(x, x)
    busy += clock() - at
print(busy / (clock() - begun))
"""
)


def windows_of(agents, wait, program: str, count: int):
    """At least so many windows of a job, what it printed of itself, and what the agent lost meanwhile."""
    agent = agents("--interval", "0.5", program=None)
    env = environment(dict(os.environ), socket=str(agent.socket))
    with subprocess.Popen([sys.executable, "-c", program], env=env, stdout=subprocess.PIPE, text=True) as job:
        wait(lambda: agent.status()["windows"].get("sealed", 0) >= count, f"{count} windows", 60)
        job.send_signal(signal.SIGTERM)
        own = ast.literal_eval(job.communicate(timeout=20)[0])
    drops = agent.status()["drops"]
    assert agent.stop() == 0
    database = sqlite3.connect(agent.state / "spool.db")
    blobs = [blob for (blob,) in database.execute("SELECT envelope FROM segment ORDER BY row")]
    database.close()
    segments = [codec.unseal(pb.SegmentEnvelope.FromString(blob)) for blob in blobs]
    return [window for segment in segments for window in codec.windows(segment)], own, drops


def estimated(windows) -> float:
    """The share of the represented time in which ops ran, as an answer over a time range estimates it."""
    known = [window for window in windows if window.represents_ns]
    return sum(s.est_ns for w in known for s in sums_of(w)) / sum(w.represents_ns for w in known)


def test_a_job_that_waits_for_its_input_is_not_busy_meanwhile(agents, wait):
    """25 of 75 ms a step, a third: windows of whole steps say what the job measured of just these steps.

    The first 50 ms of each have no op at all: two steps without the first gap would be 50 of 100 ms busy, one half.
    """
    windows, steps, drops = windows_of(agents, wait, STARVED, 6)

    assert drops == {}
    whole = [w for w in windows if w.steps and w.represents_ns]
    assert len(whole) >= 3
    shares = []
    for window in whole:
        (device,) = window.devices
        end = window.start_unix_ns + window.duration_ns
        own = [busy for begun, busy in steps if window.start_unix_ns <= begun < end]
        assert len(own) == window.steps
        shares.append(sum(own) * 1e9 / window.duration_ns)
        assert device.busy_ns / device.span_ns == pytest.approx(shares[-1], abs=0.06)
        assert device.span_ns == pytest.approx(window.duration_ns, abs=5_000_000)
        assert device.idle_ns >= window.steps * 49_000_000
        assert [(c.cause, c.total_ns) for c in device.causes] == [(Cause.HOST, device.idle_ns)]
        assert sum(s.step_calls for s in window.kernels) == sum(s.calls for s in window.kernels) > 0
        assert window.ledger.dropped == {}
    represented = [w.represents_ns for w in whole]
    own = sum(s * r for s, r in zip(shares, represented, strict=True)) / sum(represented)
    assert estimated(whole) == pytest.approx(own, abs=0.06)


def test_a_server_with_little_to_do_is_idle(agents, wait):
    """One op of about a millisecond every 0.3 s: windows of 200 ms, mostly idle, those without any op too."""
    windows, own, drops = windows_of(agents, wait, SPARSE, 10)

    assert drops == {}
    assert own < 0.1
    longer = [w for w in windows if w.duration_ns >= 190_000_000]
    assert len(longer) >= 6
    assert sum(w.busy_ns for w in windows) / sum(w.span_ns for w in windows) < 0.15
    assert estimated(windows) < 0.15
    for window in windows:
        (device,) = window.devices
        assert device.device.vendor == "cpu"
        assert device.device.model
        assert device.span_ns >= window.duration_ns
        assert sum(c.total_ns for c in device.causes) == device.idle_ns
        assert window.ledger.dropped == {}
