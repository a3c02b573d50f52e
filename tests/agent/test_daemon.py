"""The whole agent: windows from arrival to spool, trouble in between, starts, stops, and what it leaves behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil

from roofwatch.agent import sealer
from roofwatch.proto import codec


def test_a_window_comes_to_the_spool_as_the_job_and_the_kernel_told_it(agents, job, wait):
    """Process, trigger, steps and cost of one window; the next is asked with shapes and represents the time between."""
    agent = agents("--interval", "0.5", "--labels", "rack=7")
    client = job(agent.socket, model="llama", rank=1, labels={"git": "abc"})
    first = client.receive()
    assert (first["steps"], first["max_ms"], first["shapes"], first["trigger"]) == (1, 50, False, "periodic")
    cost = {"close_path": "native", "open_ns": 1, "quiesce_ns": 2, "close_ns": 3, "save_ns": 4, "free_ns": 5}
    began = time.time_ns()
    client.answer(first, start_unix_ns=began, cost=cost)
    second = client.receive()
    assert second["shapes"]
    client.answer(second, start_unix_ns=began + 700_000_000)
    wait(lambda: agent.status()["windows"].get("recorded") == 2, "two windows read")
    assert agent.stop() == 0

    windows = [window for segment in agent.segments() for window in codec.windows(segment)]
    process = windows[0].process
    assert (process.pid, process.model, process.rank) == (os.getpid(), "llama", 1)
    assert (dict(process.labels), dict(process.node.labels)) == ({"git": "abc"}, {"rack": "7"})
    assert process.node.boot_id == Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    assert abs(process.start_unix_ns / 1e9 - psutil.Process().create_time()) < 0.02
    assert (windows[0].steps, windows[0].cost.free_ns, windows[0].cost.close_path) == (1, 5, "native")
    assert windows[0].cost.parse_cpu_ns is not None
    assert [w.represents_ns for w in windows] == [None, 700_000_000]
    assert windows[0].uid != windows[1].uid


def test_windows_that_finish_together_share_a_segment_with_the_drops(agents, job, wait):
    """Three windows within two seconds, one of them lost in parsing: one segment, two windows, one drop."""
    agent = agents("--interval", "0.5", env={"GATHER_S": str(sealer.GATHER_S)})
    client = job(agent.socket)
    client.answer(client.receive())
    client.answer(client.receive(), trace=b"sentence")
    client.answer(client.receive())
    wait(lambda: agent.status()["spool"]["segments"], "a segment")
    assert agent.stop() == 0

    (segment,) = agent.segments()
    assert len(segment.windows) == 2
    assert dict(segment.agent_drops) == {"parse_error": 1}


def test_every_lost_window_has_a_reason_and_the_agent_lives_on(agents, job, wait):
    """No descriptor, a pipe, a crash of the worker, wrong fields, wrong times: counted each; a good one is kept."""
    agent = agents("--interval", "0.5")
    client = job(agent.socket)
    pid = agent.process.pid
    request = client.receive()
    client.channel.send(
        {"type": "window", "request": request["request"], "start_unix_ns": time.time_ns(), "duration_ns": 1, "size": 9}
    )
    reading, writing = os.pipe()
    client.answer(client.receive(), fd=reading)
    client.answer(client.receive(), trace=b"crash")
    client.answer(client.receive(), size=-5)
    client.answer(client.receive(), start_unix_ns=12345)
    client.answer(client.receive(), duration_ns=2**62)
    client.answer(client.receive(), duration_ns=0)
    good = client.receive()
    client.answer({**good, "request": good["request"] + 1})  # not what was asked
    client.answer(good)
    wait(lambda: agent.status()["windows"].get("recorded") == 1, "the good window")
    os.close(writing)

    told = agent.status()
    assert told["drops"] == {"trace_missing": 1, "trace_not_regular": 1, "parse_crash": 1, "bad_window": 4}
    assert told["refusals"] == {"late": 1}
    assert agent.process.pid == pid
    assert "internal_error" not in agent.log.read_text()


def test_refusals_are_counted_by_reason(agents, job, wait):
    """The hook's word where it is one of the protocol's, else error."""
    agent = agents("--interval", "0.5")
    client = job(agent.socket)
    for reason in ("own_profiler", "busy", "nonsense\n"):
        request = client.receive()
        client.channel.send({"type": "refused", "request": request["request"], "reason": reason, "detail": "x"})

    wait(lambda: agent.status()["refusals"] == {"own_profiler": 1, "busy": 1, "error": 1}, "three refusals")


def test_a_second_agent_is_one_sentence_and_the_first_is_not_disturbed(agents, job, short):
    """The same socket with another state folder, and the other way round: exit 1, one line, no traceback."""
    agent = agents("--interval", "3600")
    client = job(agent.socket)
    for more, told in (
        (("--state", str(short / "other")), f"another agent already listens on {agent.socket}; stop it, or"),
        (("--socket", str(short / "other.sock")), f"another agent uses the state folder {agent.state}; stop it, or"),
    ):
        second = agents(*more, ready=False)
        assert second.process.wait(10) == 1
        (line,) = second.log.read_text().splitlines()
        assert line.startswith(told)

    assert not client.closed(within=0.3)
    assert agent.status()["processes"] == 1


def test_plain_text_to_another_machine_and_bad_settings_are_usage_errors(agents):
    """Exit 2 and one sentence, before anything is opened."""
    for more, told in ((("--store", "store.example:7700"), "--insecure"), (("--interval", "soon"), "must be a number")):
        agent = agents(*more, ready=False)
        assert agent.process.wait(10) == 2
        assert told in agent.log.read_text()
        assert len(agent.log.read_text().splitlines()) == 1
        assert not agent.state.exists()


def test_a_stopped_agent_leaves_nothing_behind(agents, job, wait):
    """In the middle of a parse: exit 0 within the deadline, no child, no socket, no lock of it; jobs are hung up on."""
    agent = agents("--interval", "0.5")
    client = job(agent.socket)
    client.answer(client.receive(), trace=b"hang")
    wait(lambda: agent.status()["workers"]["alive"] == 1, "a worker")
    (child,) = psutil.Process(agent.process.pid).children()
    threads = psutil.Process(agent.process.pid).num_threads()
    began = time.monotonic()

    assert agent.stop() == 0

    assert threads == 1
    assert time.monotonic() - began < 5.5
    assert not child.is_running()
    assert list(agent.socket.parent.iterdir()) == []
    assert client.closed()
    assert [dict(segment.agent_drops) for segment in agent.segments()] == [{"stopping": 1}]


def test_a_killed_agent_takes_its_worker_along_and_the_next_one_starts(agents, job, wait):
    """SIGKILL during a parse: the worker ends, the stale socket is replaced, the spool goes on."""
    agent = agents("--interval", "0.5")
    client = job(agent.socket)
    client.answer(client.receive())
    wait(lambda: agent.status()["windows"].get("sealed") == 1, "a window sealed")
    client.answer(client.receive(), trace=b"hang")
    wait(lambda: agent.status()["workers"]["backlog"] == 1, "a parse")
    time.sleep(0.3)
    (child,) = psutil.Process(agent.process.pid).children()
    agent.kill()
    wait(lambda: not child.is_running() or child.status() == psutil.STATUS_ZOMBIE, "the worker ends", 3)
    assert client.closed()
    assert agent.socket.exists()

    agent = agents("--interval", "0.5")
    client = job(agent.socket)
    client.answer(client.receive())
    wait(lambda: agent.status()["windows"].get("sealed") == 1, "a window sealed")
    assert agent.status()["spool"]["windows"] == 2
    assert agent.stop() == 0
    processes = {w.process.id for segment in agent.segments() for w in codec.windows(segment)}
    assert len(processes) == 1  # the job is the same process to both agents


def test_a_second_signal_ends_at_once(agents, job, wait):
    """The first waits for a parse, the second does not."""
    agent = agents("--interval", "0.5")
    client = job(agent.socket)
    client.answer(client.receive(), trace=b"hang")
    wait(lambda: agent.status()["workers"]["alive"] == 1, "a worker")
    agent.process.send_signal(signal.SIGINT)
    time.sleep(0.3)
    began = time.monotonic()

    agent.process.send_signal(signal.SIGINT)

    assert agent.process.wait(5) == 1
    assert time.monotonic() - began < 1


def test_the_agent_never_imports_torch_and_its_daemon_neither_numpy_nor_grpc(agents, job, wait):
    """After a window, and without a store: none of their libraries is mapped into the daemon."""
    agent = agents("--interval", "0.5")
    client = job(agent.socket)
    client.answer(client.receive())
    wait(lambda: agent.status()["windows"].get("sealed") == 1, "a window sealed")

    mapped = Path(f"/proc/{agent.process.pid}/maps").read_text()

    assert not [name for name in ("torch", "numpy", "grpc", "msgspec") if f"/{name}/" in mapped]


def test_nothing_reaches_stdout(agents, job):
    """Data has stdout; an agent has none."""
    agent = agents("--interval", "3600")
    job(agent.socket)
    agent.stop()

    assert agent.process.stdout.read() == b""


def test_the_module_runs_the_same_agent():
    """``python -m roofwatch.agent --help`` ends with 0 and names itself."""
    out = subprocess.run(
        [sys.executable, "-m", "roofwatch.agent", "--help"], capture_output=True, text=True, check=True
    ).stdout

    assert out.startswith("usage: python -m roofwatch.agent")
