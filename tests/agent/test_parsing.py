"""Parse workers: whatever a trace does to its reader, the daemon gets a verdict and lives on."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from roofwatch.agent import counters, link, parsing, worker
from roofwatch.agent.config import Config
from roofwatch.collectors.base import WindowContext
from roofwatch.model.record import Node, Process, Trigger
from roofwatch.proto import codec
from roofwatch.proto.v1 import roofwatch_pb2 as pb

STAND_IN = (sys.executable, "-P", str(Path(__file__).parent / "programs" / "stand_in_worker.py"))
CONTEXT = WindowContext("0" * 32, Process(Node("host"), 1), Trigger.PERIODIC)


def job_for(content: bytes, fd: int | None = None, *, announced: int | None = None, most: int = 1000, cpu: int = 60):
    """A job for a trace with this content."""
    if fd is None:
        fd = os.memfd_create("trace")
        os.write(fd, content)
    return parsing.Job(
        link.Task("kineto-json", len(content) if announced is None else announced, CONTEXT, most, cpu), fd, None
    )


class Parsed:
    """A parser and the verdicts it gave."""

    def __init__(self, command=STAND_IN, **settings) -> None:
        self.counters = counters.Counters()
        self.answers: list[link.Answer] = []
        self.more = asyncio.Event()
        self.parser = parsing.Parser(Config(**settings), self.counters, self.done, command)

    def done(self, _, answer) -> None:
        self.answers.append(answer)
        self.more.set()

    async def verdicts(self, *jobs: parsing.Job, within: float = 30) -> list[str]:
        """Submit, wait for as many verdicts, give their reasons."""
        wanted = len(self.answers) + len(jobs)
        for job in jobs:
            self.parser.submit(job)
        async with asyncio.timeout(within):
            while len(self.answers) < wanted:
                self.more.clear()
                await self.more.wait()
        return [answer.reason for answer in self.answers[wanted - len(jobs) :]]


def test_every_way_to_end_has_its_reason_and_the_next_trace_is_read(run_loop):
    """Segfault, silent exit, error, fault, out of memory; after each a good trace is read; lost workers are counted."""

    async def main():
        parsed = Parsed(worker_memory_mb=300)
        for verb, reason in (
            (b"crash", counters.PARSE_CRASH),
            (b"leave", counters.PARSE_CRASH),
            (b"fault", counters.PARSE_CRASH),
            (b"sentence", counters.PARSE_ERROR),
            (b"memory", counters.PARSE_MEMORY),
        ):
            assert await parsed.verdicts(job_for(verb), job_for(b"ok 77")) == [reason, ""], verb
            assert parsed.answers[-1].events == 77
        details = [answer.detail for answer in parsed.answers]
        assert "the trace is broken at byte 7" in details
        assert "ZeroDivisionError: a fault of the reader" in details
        # crash, leave and memory end a worker; fault and sentence do not
        assert parsed.counters.workers == {"started": 4, "lost": 2}
        await parsed.parser.stop(1)

    run_loop(main)


def test_a_fault_of_ours_over_one_trace_keeps_no_other_waiting(run_loop):
    """Who is told of the first fails; the second, which waits behind it, is read, and the parser can stop."""

    class Failing(Parsed):
        def done(self, job, answer) -> None:
            super().done(job, answer)
            if len(self.answers) == 1:
                raise ZeroDivisionError

    async def main():
        told = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context["exception"]))
        parsed = Failing()
        assert await parsed.verdicts(job_for(b"ok 1"), job_for(b"ok 2")) == ["", ""]
        await parsed.parser.stop(5)
        assert [type(error) for error in told] == [ZeroDivisionError]

    run_loop(main)


def test_cpu_time_and_wall_time_are_limited(run_loop, monkeypatch):
    """A reader that spins is ended by its CPU limit (1 s), one that sleeps by the wall time; both are parse_time."""
    monkeypatch.setattr(parsing, "WALL_SLACK_S", 2.0)

    async def main():
        hasty, patient = Parsed(worker_seconds=1), Parsed(worker_seconds=30)
        began = time.monotonic()
        spun = asyncio.create_task(patient.verdicts(job_for(b"spin", cpu=1)))
        assert await hasty.verdicts(job_for(b"hang")) == [counters.PARSE_TIME]
        assert 3.5 < time.monotonic() - began < 8  # 2 × 1 s + 2 s
        assert await spun == [counters.PARSE_TIME]
        for parsed in (hasty, patient):
            assert await parsed.verdicts(job_for(b"ok 5")) == [""]
            await parsed.parser.stop(1)

    run_loop(main)


def test_the_cpu_limit_is_for_each_trace_not_for_the_worker(run_loop):
    """Four traces of 0.6 s of CPU each, 2.4 s in all, pass in one worker: the limit is 1 s and what rounding adds."""
    busy = (
        "import sys, time\nsys.path.insert(0, sys.argv.pop(1))\nimport stand_in_worker as stand_in\n"
        "def read(fd, form, context):\n    end = time.process_time() + 0.6\n    while time.process_time() < end: pass\n"
        "    return stand_in.window(1, context)\nstand_in.worker.main(sys.argv[1:], read)\n"
    )

    async def main():
        parsed = Parsed((sys.executable, "-c", busy, str(Path(__file__).parent / "programs")))
        assert await parsed.verdicts(*(job_for(b"x", cpu=1) for _ in range(4))) == ["", "", "", ""]
        assert parsed.counters.workers == {"started": 1}
        await parsed.parser.stop(1)

    run_loop(main)


def test_the_answer_is_a_segment_of_the_one_window(run_loop):
    """The worker's segment decodes to the stand-in's window: 5 calls, 1 ms, the uid it was given."""

    async def main():
        parsed = Parsed()
        assert await parsed.verdicts(job_for(b"ok 9")) == [""]
        (window,) = codec.windows(pb.Segment.FromString(parsed.answers[0].segment))
        assert (window.uid, window.kernels[0].calls, window.kernels[0].total_ns) == ("0" * 32, 5, 1_000_000)
        await parsed.parser.stop(1)

    run_loop(main)


def test_hostile_descriptors_are_refused_without_reading(run_loop, tmp_path):
    """A pipe, a device, a folder, a socket, a hole, an empty file, a wrong size, too much: each has its reason."""
    reading, writing = os.pipe()
    hole = os.open(tmp_path / "hole", os.O_RDWR | os.O_CREAT)
    os.truncate(hole, 500)
    named = tmp_path / "fifo"
    os.mkfifo(named)

    async def main():
        parsed = Parsed()
        bad = counters.TRACE_NOT_REGULAR
        cases = [
            (job_for(b"", reading), bad),
            (job_for(b"", os.open("/dev/zero", os.O_RDONLY)), bad),
            (job_for(b"", os.open(tmp_path, os.O_RDONLY)), bad),
            (job_for(b"", os.open(named, os.O_RDONLY | os.O_NONBLOCK)), bad),
            (job_for(b"", hole, announced=500), counters.TRACE_SPARSE),
            (job_for(b""), counters.TRACE_EMPTY),
            (job_for(b"ok 1", announced=3), counters.TRACE_CHANGED),
            (job_for(b"ok 1" + b" " * 1000), counters.TRACE_TOO_LARGE),
        ]
        reasons = await parsed.verdicts(*(job for job, _ in cases))
        assert reasons == [reason for _, reason in cases]
        assert parsed.counters.workers == {"started": 1}  # none of them cost a worker
        await parsed.parser.stop(1)

    run_loop(main)
    os.close(writing)


@pytest.mark.parametrize("change", ["grow", "cut", "rewrite"])
def test_a_trace_that_changes_while_it_is_read_is_refused(run_loop, tmp_path, change):
    """The job writes to the file during the 0.6 s that the reader takes."""
    path = tmp_path / "trace"
    path.write_bytes(b"slow 100")

    async def main():
        parsed = Parsed()
        verdict = asyncio.create_task(parsed.verdicts(job_for(b"slow 100", os.open(path, os.O_RDONLY))))
        await asyncio.sleep(0.5)
        if change == "grow":
            with path.open("ab") as out:
                out.write(b" more")
        elif change == "cut":
            os.truncate(path, 2)
        while change == "rewrite" and not verdict.done():  # on a busy machine the worker begins late
            with path.open("r+b") as out:
                out.write(b"slow 999")
            await asyncio.sleep(0.05)
        assert await verdict == [counters.TRACE_CHANGED]
        await parsed.parser.stop(1)

    run_loop(main)


def test_the_queue_is_bounded(run_loop):
    """One trace is read, sixteen wait, the rest are dropped at once; none of their descriptors stays open."""

    async def main():
        parsed = Parsed()
        reasons = await parsed.verdicts(job_for(b"slow"), *(job_for(b"ok") for _ in range(20)))
        assert reasons == [counters.PARSE_QUEUE_FULL] * 4 + [""] * 17
        await parsed.parser.stop(1)

    run_loop(main)


def test_stopping_finishes_what_it_can_and_kills_the_rest(run_loop):
    """A reader that hangs is killed at the deadline, what waits behind it is counted as stopping, nothing is left."""

    async def main():
        parsed = Parsed()
        assert await parsed.verdicts(job_for(b"ok 2")) == [""]  # its worker has started, which may take a while
        parsed.parser.submit(job_for(b"ok 3"))
        parsed.parser.submit(job_for(b"hang"))
        parsed.parser.submit(job_for(b"ok 4"))
        await parsed.parser.stop(2.0)
        assert sorted(a.reason for a in parsed.answers[1:]) == ["", counters.STOPPING, counters.STOPPING]
        assert parsed.parser.workers == 0
        assert await parsed.verdicts(job_for(b"ok 1")) == [counters.STOPPING]

    run_loop(main)


def test_an_idle_worker_ends_and_a_killed_one_is_replaced(run_loop, eventually, monkeypatch):
    """Hung up after the idle time; a worker that is killed while idle costs no trace."""
    monkeypatch.setattr(parsing, "IDLE_S", 0.3)

    async def main():
        parsed = Parsed()
        assert await parsed.verdicts(job_for(b"ok")) == [""]
        await eventually(lambda: not parsed.parser.workers)
        monkeypatch.setattr(parsing, "IDLE_S", 30)
        assert await parsed.verdicts(job_for(b"ok")) == [""]
        parsed.parser._worker.process.kill()
        await asyncio.sleep(0.3)
        assert await parsed.verdicts(job_for(b"ok")) == [""]
        assert parsed.counters.workers["started"] == 3
        await parsed.parser.stop(1)

    run_loop(main)


def test_a_worker_that_talks_nonsense_is_ended(run_loop):
    """More bytes than an answer may have, and an answer that is none: parse_too_large, and the worker is gone."""
    program = (
        "import socket,sys,time\ns=socket.socket(fileno=int(sys.argv[1]))\ns.recv(1)\ns.sendall(%s)\ntime.sleep(60)"
    )

    async def main():
        for nonsense in ("b'\\xff' * 100", "(7).to_bytes(4,'big') + bytes(4) + b'not json'"):
            parsed = Parsed((sys.executable, "-c", program % nonsense))
            assert await parsed.verdicts(job_for(b"ok")) == [counters.PARSE_TOO_LARGE]
            await parsed.parser.stop(1)

    run_loop(main)


def test_a_worker_takes_its_limits():
    """Memory, core, file size, descriptors and nice value, as the kernel reports them from inside."""
    program = (
        "import os, resource\nfrom roofwatch.agent import worker\nworker.confine(300 << 20)\n"
        "limits = ('AS', 'CORE', 'FSIZE', 'NOFILE')\n"
        "print(*(resource.getrlimit(getattr(resource, 'RLIMIT_' + name))[0] for name in limits))\n"
        "print(os.getpriority(os.PRIO_PROCESS, 0))"
    )
    told = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split()

    assert told == [str(300 << 20), "0", "0", str(worker.DESCRIPTORS), str(min(19, os.nice(0) + worker.NICE))]
