"""Windows of NPU jobs on a stand-in for torch_npu that behaves as the vendor's does: real processes and databases."""

from __future__ import annotations

import dataclasses
import os
import sqlite3
import sys
import time
from pathlib import Path

import pytest
from little_agent import Connection, LittleAgent
from npu_jobs import KERNELS, LOOP, SPEAKS, SPOKEN, TRAIN, Node

from roofwatch.hook import npu_guard, protocol
from roofwatch.model.record import Cost


def rows(folder: Path, database: bytes, sql: str) -> list[tuple]:
    """The answer of a database that came by descriptor."""
    path = folder / f"window{time.monotonic_ns()}.db"
    path.write_bytes(database)
    with sqlite3.connect(f"file:{path}?mode=ro", uri=True) as connection:
        return connection.execute(sql).fetchall()


def test_hello_says_which_npu(node: Node, agent: LittleAgent) -> None:
    """Chip, cores, memory, versions, index, and how windows are taken; the CPU beside it.

    What a killed job has left is removed by the next one's window: a folder that nobody locks and that is old; one that
    is young, or locked, stays.
    """
    base = node.scratch / f"roofwatch-npu-{os.geteuid()}"
    base.mkdir(mode=0o700)
    for name, age in (("old_orphan", 120), ("young", 10)):
        (base / name).mkdir()
        (base / name / "data").write_bytes(b"x" * 4096)
        os.utime(base / name, (time.time() - age,) * 2)
    job = node.start(SPEAKS, agent.path)
    connection = agent.accept()
    hello = connection.hello
    npu, cpu = hello["devices"]
    assert npu == {
        "vendor": "ascend",
        "model": "Ascend910B2",
        "uuid": None,
        "index": 3,
        "memory_bytes": 64 << 30,
        "units": 24,
        "vector_units": 48,
        "driver": None,
        "physical": None,
    }
    assert cpu["vendor"] == "cpu"
    assert (hello["accelerator"], hello["close_path"]) == ("npu", "npu")
    assert (hello["versions"]["torch_npu"], hello["versions"]["cann"]) == ("2.13.0", "8.3.RC1")
    assert connection.take(steps=2)[0]["type"] == protocol.WINDOW
    assert sorted(path.name for path in base.iterdir()) == ["turn", "young"]
    assert node.end(job) == SPOKEN


def test_windows_of_a_training_job(node: Node, agent: LittleAgent) -> None:
    """Two windows: a database each, of the window's time, by a descriptor without a name; what was asked was recorded.

    The job prints, and ends, as without the hook.
    """
    before = "for _ in range(10):\n    step()\nopen('stepped', 'w').close()\n"  # steps without a window: what one takes
    job = node.start(SPEAKS.replace(LOOP, before + LOOP), agent.path, ASCEND_STAND_IN_LIGHT="")
    connection = agent.accept()
    node.until((node.folder / "stepped").exists, "ten steps")
    asked = (("PipeUtilization", True), ("MemoryAccess", False))
    for metrics, shapes in asked:
        window, database = connection.take(steps=4, shapes=shapes, metrics=metrics)
        assert window["type"] == protocol.WINDOW, window
        assert (window["format"], window["metrics"], window["steps"]) == ("ascend-db", metrics, 4)
        assert (window["shapes"], window["size"]) == (shapes, len(database))
        assert window["analysis"]["rows"] == KERNELS
        assert rows(node.folder, database, "SELECT count(*) FROM COMPUTE_TASK_INFO") == [(KERNELS,)]
        ((first,),) = rows(node.folder, database, "SELECT min(CAST(startNs AS INTEGER)) FROM PYTORCH_API")
        assert abs(first - window["start_unix_ns"]) < 20e6  # the stand-in moved it to the begin of the recording
        assert set(window["cost"]) == {field.name for field in dataclasses.fields(Cost)} | {"after_steps"}
        cost = window["cost"]
        assert all(cost[key] > 0 for key in ("open_ns", "close_ns", "save_ns", "base_step_ns", "longest_step_ns"))
        assert cost["close_ns"] > 5e6  # the device was waited for
        assert cost["parse_cpu_ns"] == window["analysis"]["cpu_ns"] > 0.1e9  # importing torch alone takes that
        node.nothing_left(job.pid)
    assert [line[4:] for line in node.happened("start")] == [
        ["Level1", "ACL_AICORE_PIPE_UTILIZATION", "True"],
        ["Level1", "ACL_AICORE_MEMORY_ACCESS", "False"],
    ]
    assert {line[2] for line in node.happened("synchronize")} == {str(job.pid)}  # on the main thread, which steps
    assert len(node.happened("walk")) == 1  # through all of CANN, once for all windows
    for line in node.happened("analyse"):
        assert int(line[4]) >= 15  # niced
        assert "inject" not in line[6]  # no hook attaches there
        assert int(line[1]) != job.pid
    assert node.end(job) == SPOKEN
    assert len(agent.connections) == 1


def test_a_job_that_starts_its_device_late(node: Node, agent: LittleAgent) -> None:
    """Attached by its first line it is a CPU's process; asked for a window once it has an NPU it says hello again."""
    late = TRAIN.replace("torch.npu.set_device(3)", "from roofwatch.hook import attach\nattach(model='late')")
    late += "step()\nwhile not os.path.exists('go'):\n    time.sleep(0.02)\n"
    job = node.start(late + "torch.npu.set_device(5)\nprint(5, flush=True)\n" + LOOP, agent.path)
    first = agent.accept()
    assert first.hello["accelerator"] == "cpu"
    (node.folder / "go").touch()
    assert job.stdout is not None
    assert job.stdout.readline() == "5\n"
    first.ask()
    again = agent.accept()
    assert (again.hello["model"], again.hello["accelerator"]) == ("late", "npu")
    assert again.hello["devices"][0]["index"] == 5
    assert again.take(steps=2)[0]["format"] == "ascend-db"
    assert node.end(job).code == 0


SERVE = (
    TRAIN.replace("optimizer = ", "unused = ")
    + "with torch.no_grad():\n    while not over.is_set():\n        model(torch.ones(4, 16))\n"
)


def test_a_server_without_steps(node: Node, agent: LittleAgent) -> None:
    """Opened and closed by the main thread between two of its bytecodes; steps are null."""
    job = node.start("from roofwatch.hook import attach\nattach()\n" + SERVE, agent.path)
    connection = agent.accept()
    window, database = connection.take(duration_ms=60)
    assert (window["type"], window["steps"]) == (protocol.WINDOW, None), window
    assert 60e6 <= window["duration_ns"] < 1e9
    assert len(database) == window["size"]
    assert {line[2] for line in node.happened("synchronize")} == {str(job.pid)}
    assert node.end(job).code == 0
    node.nothing_left()


def test_an_older_torch_npu(node: Node, agent: LittleAgent) -> None:
    """Without the newer names: no version function, no export type in the analysis, no done marker, strict paths."""
    job = node.start(SPEAKS, agent.path, ASCEND_STAND_IN="old", RANK="0")
    connection = agent.accept()
    assert connection.hello["versions"]["torch_npu"] == "2.1.0"
    assert "cann" not in connection.hello["versions"]
    window, _ = connection.take(steps=2)
    assert window["analysis"]["rows"] == KERNELS
    assert node.end(job) == SPOKEN


# The job's own profile: its handler is made first, some windows go by, then it records; it says which folder it got.
OWN = (
    TRAIN
    + """
from torch_npu import profiler
def own():
    return profiler.profile(
        activities=[profiler.ProfilerActivity.CPU, profiler.ProfilerActivity.NPU],
        schedule=profiler.schedule(wait=0, warmup=1, active=1, repeat=1),
        on_trace_ready=lambda prof: print(prof.prof_if.prof_path, flush=True),
        experimental_config=profiler._ExperimentalConfig(profiler_level=profiler.ProfilerLevel.Level1),
    )
profiler.tensorboard_trace_handler("theirs", analyse_flag=False)
while not os.path.exists("go"):
    step()
with own() as prof:
    for n in range(60):
        step()
        if n in (20, 40):
            prof.step()
print("own", flush=True)
"""
    + LOOP
)


@pytest.mark.parametrize("when", ["before", "in"])
def test_the_jobs_own_profiler_comes_first(node: Node, agent: LittleAgent, when: str) -> None:
    """Its profile lies where its handler, made before ours, had put it, whole; ours is refused, and comes again after.

    ``before``: ours was taken before it starts. ``in``: ours is open when it starts.
    """
    job = node.start(OWN, agent.path)
    assert job.stdout is not None
    connection = agent.accept()
    if when == "before":
        assert connection.take(steps=2)[0]["type"] == protocol.WINDOW
        (node.folder / "go").touch()
        node.until(lambda: len(node.happened("init")) == 2, "the job's profile has begun")
        connection.ask(steps=2)
    else:
        connection.ask(steps=1000, max_ms=10_000)
        node.until(lambda: node.happened("start"), "our window is open")
        (node.folder / "go").touch()
    refusal, _ = connection.receive(30)
    assert (refusal["type"], refusal["reason"]) == (protocol.REFUSED, protocol.OWN_PROFILER)
    path = Path(job.stdout.readline().strip())
    assert path.parent == node.folder / "theirs"
    assert (path / "profiler_info.json").exists()
    assert job.stdout.readline() == "own\n"
    assert connection.take(steps=2)[0]["type"] == protocol.WINDOW
    assert node.end(job) == (0, "", "")
    assert path.exists()
    node.nothing_left()


OTHERS = {
    "msprof": {"PROFILING_MODE": "dynamic"},
    "msprof ": {"PROFILER_SAMPLECONFIG": "{}"},
    "msmonitor": {"MSMONITOR_USE_DAEMON": "1"},
    "msmonitor ": {"KINETO_USE_DAEMON": "1"},
    "dynamic_profile": {"PROF_CONFIG_PATH": "/somewhere"},
    "mspti": {"LD_PRELOAD": "/usr/lib/libother.so:/opt/cann/lib64/libmspti.so"},
    "": {"MSMONITOR_USE_DAEMON": "0", "PROFILING_MODE": "", "LD_PRELOAD": "/usr/lib/libjemalloc.so"},
}


@pytest.mark.parametrize("who", OTHERS)
def test_who_else_profiles(who: str) -> None:
    """Each tool is told by the variable that switches it on, and not by one that does not."""
    assert npu_guard.others(None, OTHERS[who]) == who.strip()


@pytest.mark.parametrize("who", ["msprof", "dynamic_profile"])
def test_beside_another_profiler_there_are_no_windows(node: Node, agent: LittleAgent, who: str) -> None:
    """Told by a variable, or by the call that switches it on: refused with its name, and nothing is begun."""
    call = "from torch_npu.profiler import dynamic_profile\ndynamic_profile.init('/somewhere')\n"
    env = {"PROFILING_MODE": "dynamic"} if who == "msprof" else {}
    job = node.start(TRAIN + (call if who == "dynamic_profile" else "") + LOOP, agent.path, **env)
    refusal, _ = agent.accept().take(steps=2)
    assert (refusal["reason"], refusal["detail"]) == (protocol.OWN_PROFILER, who)
    assert node.end(job) == (0, "", "")
    assert not node.happened("init")


def test_a_graph_capture_ends_a_window_before_it(node: Node, agent: LittleAgent) -> None:
    """A stop inside a capture would break it: ours is closed first, and none opens or closes while it runs."""
    capture = """
while not os.path.exists("go"):
    step()
graph = torch.npu.NPUGraph()
graph.capture_begin()
for _ in range(50):
    step()
graph.capture_end()
print("captured", flush=True)
"""
    job = node.start(TRAIN + capture + LOOP, agent.path)
    assert job.stdout is not None
    connection = agent.accept()
    connection.ask(steps=1000, max_ms=10_000)
    node.until(lambda: node.happened("start"), "our window is open")
    (node.folder / "go").touch()
    assert connection.receive(30)[0]["reason"] == protocol.GRAPH_CAPTURE
    refusal, _ = connection.take(steps=2)
    assert refusal.get("reason") in (protocol.GRAPH_CAPTURE, None)  # still in it, or just after it
    assert job.stdout.readline() == "captured\n"
    order = sorted([line for word in ("synchronize", "capture") for line in node.happened(word)])
    assert [line[3] for line in order[:2]] == ["synchronize", "capture"]
    assert node.end(job) == (0, "", "")
    node.nothing_left()


def test_a_fork_while_the_analysis_runs(node: Node, agent: LittleAgent) -> None:
    """The child of the job ends as it would; what the analysis needs is not kept open by it."""
    fork = """
while not over.is_set():
    step()
    if os.path.exists("go"):
        pid = os.fork()
        if pid == 0:
            os._exit(7)
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
        os.unlink("go")
"""
    job = node.start(TRAIN + fork, agent.path)
    node.fault("slow")
    assert job.stdout is not None
    connection = agent.accept()
    connection.ask(steps=2)
    node.until(lambda: node.happened("slow"), "the analysis runs")
    (node.folder / "go").touch()
    assert job.stdout.readline() == "7\n"
    node.fault()
    answer, _ = connection.receive(30)
    assert answer["type"] in (protocol.WINDOW, protocol.REFUSED)
    ended = node.end(job)
    assert (ended.code, ended.out, ended.err) == (0, "", "")
    node.nothing_left()


def test_where_nothing_can_analyse(node: Node, agent: LittleAgent) -> None:
    """No msprof on the path: refused before anything is recorded. Metrics that do not exist: refused too."""
    job = node.start(TRAIN + LOOP, agent.path, PATH=f"{Path(sys.executable).parent}:/usr/bin:/bin")
    connection = agent.accept()
    refusal, _ = connection.take(steps=2)
    assert (refusal["reason"], refusal["detail"]) == (protocol.ANALYSIS, "no msprof on PATH")
    assert connection.take(steps=2, metrics="Everything")[0]["reason"] == protocol.UNSUPPORTED
    assert node.end(job) == (0, "", "")
    assert not node.happened("init")


def test_a_clock_that_is_set_in_a_window(node: Node, agent: LittleAgent) -> None:
    """The window is refused, and its folder deleted; no child begins to read what nobody will wait for."""
    job = node.start(TRAIN + "from _roofwatch_hook import clock\nclock.was_set = lambda *_: True\n" + LOOP, agent.path)
    assert agent.accept().take(steps=2)[0]["reason"] == protocol.CLOCK_SET
    assert not node.windows()
    log = node.folder / "hook.log"
    assert not log.exists() or "analysis: child" not in log.read_text()
    assert node.end(job) == (0, "", "")


def test_two_jobs_share_a_node(node: Node, agent: LittleAgent) -> None:
    """Their windows are open at once, their analyses run one after the other."""
    jobs = [node.start(SPEAKS, agent.path) for _ in range(2)]
    connections: list[Connection] = [agent.accept() for _ in jobs]
    for connection in connections:
        connection.ask(steps=2)
    analyses = [connection.receive(60)[0]["analysis"] for connection in connections]
    assert [analysis["rows"] for analysis in analyses] == [KERNELS] * 2
    order = sorted(line for word in ("analyse", "done") for line in node.happened(word))
    assert [line[3] for line in order] == ["analyse", "done"] * 2
    assert [node.end(job) for job in jobs] == [SPOKEN] * 2
