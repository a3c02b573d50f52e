"""The real parse worker on real and hostile traces, and the real hook in a real job."""

from __future__ import annotations

import asyncio
import gzip
import json
import os
import resource
import subprocess
import sys
import uuid

import pytest

from roofwatch.agent import counters, link, parsing
from roofwatch.agent.config import MIB, Config
from roofwatch.collectors.base import WindowContext
from roofwatch.hook.launch import environment
from roofwatch.model.record import Device, Node, Process, Trigger, Vendor
from roofwatch.proto import codec
from roofwatch.proto.v1 import roofwatch_pb2 as pb

DEVICE_CATEGORIES = {"kernel", "gpu_memcpy", "gpu_memset"}
START_CPU_S = 8  # a worker or two, and a trace of one event
TRAINING = """
import sys, time, torch
torch.set_num_threads(1)
model = torch.nn.Sequential(*[torch.nn.Linear(64, 64) for _ in range(4)])
optimizer = torch.optim.SGD(model.parameters(), 0.01)
print("begun", flush=True)
end = time.time() + float(sys.argv[1])
while time.time() < end:
    model(torch.randn(32, 64)).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
    time.sleep(0.002)
print("done")
"""


def read_all(run_loop, jobs, **settings):
    """The answers of the real worker, in order, and the agent's counters."""
    answers = []
    count = counters.Counters()

    async def main():
        parser = parsing.Parser(Config(**settings), count, lambda _, answer: answers.append(answer))
        for job in jobs:
            parser.submit(job)
            async with asyncio.timeout(60):
                while parser.backlog:  # noqa: ASYNC110 - one after the other, the queue is short
                    await asyncio.sleep(0.01)
        await parser.stop(1)

    run_loop(main)
    return answers, count


def job_of(path, uid=None, devices=()):
    """A task for a file."""
    process = Process(Node("host", "boot"), 7, 1_000_000_000)
    context = WindowContext(uid or uuid.uuid4().hex, process, Trigger.PERIODIC, devices)
    task = link.Task("kineto-json", path.stat().st_size, context, 64 * MIB, 60)
    return parsing.Job(task, os.open(path, os.O_RDONLY), None)


def test_a_real_trace_becomes_one_window(run_loop, traces):
    """An H100 trace: as many device records and as much device time as json.load finds, and the hook's uuid is kept."""
    path = traces / "kineto" / "h100_Qwen_Qwen1.5-0.5B-Chat.json.gz"
    with gzip.open(path) as opened:
        events = [e for e in json.load(opened)["traceEvents"] if e.get("cat") in DEVICE_CATEGORIES]
    registered = Device(Vendor.NVIDIA, "NVIDIA H100", uuid="GPU-7", index=0)

    (answer,), _ = read_all(run_loop, [job_of(path, "ab" * 16, (registered,))])

    (window,) = codec.windows(pb.Segment.FromString(answer.segment))
    assert (window.uid, window.process.pid) == ("ab" * 16, 7)
    assert window.ledger.device_records == len(events)
    assert window.ledger.device_time_ns == sum(round(e["dur"] * 1000) for e in events)
    assert [d.device.uuid for d in window.devices] == ["GPU-7"]
    assert sum(stat.calls for stat in window.kernels) == len(events)


def test_broken_traces_end_as_windows_or_sentences_in_one_worker(run_loop, traces):
    """All of kineto_broken: a window, or parse_error with a sentence, or trace_empty; the worker survives them all."""
    paths = sorted((traces / "kineto_broken").iterdir())
    assert len(paths) >= 20

    answers, count = read_all(run_loop, [job_of(path) for path in paths])

    assert len(answers) == len(paths)
    assert {answer.reason for answer in answers} <= {"", counters.PARSE_ERROR, counters.TRACE_EMPTY}
    assert all(answer.detail for answer in answers if answer.reason)
    assert all("Error:" not in answer.detail for answer in answers)
    assert count.workers == {"started": 1}


@pytest.mark.parametrize(
    ("filling", "repeated", "reasons"),
    [
        (b" ", 1 << 30, {counters.PARSE_ERROR, counters.PARSE_TIME}),  # nothing, for ever
        (b'{"ph":"X","cat":"cpu_op","name":"a","pid":1,"tid":1,"ts":1,"dur":1},', 150 << 20,
         {counters.PARSE_MEMORY, counters.PARSE_TIME}),
        (b"[", 64 << 20, {counters.PARSE_ERROR, counters.PARSE_TIME}),
    ],
    ids=["spaces", "events", "brackets"],
)  # fmt: skip
def test_a_compressed_bomb_ends_within_the_limits(run_loop, tmp_path, filling, repeated, reasons):
    """A megabyte that unpacks to far more: a verdict within 20 s of CPU and 500 MB, and the next trace is read."""
    bomb, good = tmp_path / "bomb", tmp_path / "good"
    block = filling * ((1 << 20) // len(filling))
    with gzip.open(bomb, "wb", compresslevel=1) as out:
        out.write(b'{"traceEvents":[')
        for _ in range(repeated >> 20):
            out.write(block)
    good.write_bytes(
        b'{"traceEvents":[{"ph":"X","cat":"cpu_op","name":"aten::mm","pid":1,"tid":1,"ts":1.0,"dur":2.5}]}'
    )
    jobs = [job_of(bomb), job_of(good)]
    jobs[0] = parsing.Job(
        link.Task("kineto-json", bomb.stat().st_size, jobs[0].task.context, 64 * MIB, 20), jobs[0].fd, None
    )

    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    answers, _ = read_all(run_loop, jobs)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)

    assert [answer.reason for answer in answers][1] == ""
    assert answers[0].reason in reasons
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime <= 20 + START_CPU_S
    # The OS has it of all children until now, and a child that is spawned begins with what its parent has.
    own = resource.getrusage(resource.RUSAGE_SELF)
    assert after.ru_maxrss <= max(before.ru_maxrss, own.ru_maxrss, 500 * 10**6 // 1024)


def test_a_real_job_is_seen_by_a_real_agent(agents, wait):
    """Training under the hook: windows with aten kernels in the spool, the job's output and exit code are its own."""
    agent = agents("--interval", "0.5", program=None)
    env = environment(dict(os.environ), model="mlp", labels={"git": "abc"}, socket=str(agent.socket))
    with subprocess.Popen(
        [sys.executable, "-c", TRAINING, "12"], env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as training:
        wait(lambda: agent.status()["windows"].get("sealed", 0) >= 2, "two windows", 40)
        training.terminate()
        training.wait(10)
    assert agent.status()["drops"] == {}
    assert agent.stop() == 0

    import sqlite3  # noqa: PLC0415 - beside its use

    database = sqlite3.connect(agent.state / "spool.db")
    blobs = [blob for (blob,) in database.execute("SELECT envelope FROM segment")]
    database.close()
    windows = [w for b in blobs for w in codec.windows(codec.unseal(pb.SegmentEnvelope.FromString(b)))]
    assert {w.process.pid for w in windows} == {training.pid}
    assert {(w.process.model, w.process.labels["git"]) for w in windows} == {("mlp", "abc")}
    assert not windows[0].shapes_recorded
    assert any(stat.signature.kernel == "aten::addmm" for w in windows for stat in w.kernels)
    assert all(w.cost is not None for w in windows)
