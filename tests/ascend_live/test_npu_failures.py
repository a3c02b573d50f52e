"""What can go wrong with a window of an NPU: each time the job ends as without us, and nothing of ours is left."""

from __future__ import annotations

import os
import shutil
import signal
import time
from pathlib import Path

from little_agent import LittleAgent
from npu_jobs import LOOP, SPEAKS, SPOKEN, TRAIN, Ended, Node

from roofwatch.hook import protocol

SMALL = {"ROOFWATCH_NPU_QUOTA_MB": "64"}  # 8 MiB a window
FAULTS = {
    # what fails: (reason, how the detail begins)
    "fails": (protocol.ANALYSIS, "failed"),  # and marks itself done
    "zero": (protocol.ANALYSIS, "rows"),
    "columns": (protocol.ANALYSIS, "columns"),  # of a version that nobody knows
    "fills": (protocol.DISK, "bytes"),
    "nodata": (protocol.ERROR, "no device data"),
    "start": (protocol.ERROR, "start: Call start failed. Exception: [ERROR] ERR00100 stand-in: start"),
    "begin": (protocol.ERROR, "no device data"),
}


def test_windows_that_come_to_nothing(node: Node, agent: LittleAgent) -> None:
    """Each refused with a reason and a word, and no folder and no process stays.

    What hangs is ended after its time, and with it a process that it has started in a session of its own. Then there
    are windows again; the job prints and ends as ever.
    """
    job = node.start(SPEAKS, agent.path, ROOFWATCH_NPU_ANALYSIS_S="4", **SMALL)
    connection = agent.accept()
    for fault, (reason, detail) in FAULTS.items():
        node.fault(fault)
        refusal, _ = connection.take(steps=2)
        assert (refusal["type"], refusal["reason"]) == (protocol.REFUSED, reason), fault
        assert refusal["detail"].startswith(detail), fault
        node.nothing_left(job.pid)
    node.fault("hangs")
    refusal, _ = connection.take(steps=2)
    assert (refusal["reason"], refusal["detail"]) == (protocol.ANALYSIS, "time")
    ((*_, worker, straggler),) = node.happened("hangs")
    node.nothing_left(job.pid)
    for pid in (worker, straggler):
        assert not Path(f"/proc/{pid}").exists()
    node.fault()
    assert connection.take(steps=2)[0]["type"] == protocol.WINDOW
    assert node.end(job) == SPOKEN


def test_a_profiler_that_does_not_stop_gets_no_second_window(node: Node, agent: LittleAgent) -> None:
    """It may still record: this process is left alone from now on."""
    job = node.start(SPEAKS, agent.path, ASCEND_STAND_IN="stop")
    connection = agent.accept()
    reasons = [connection.take(steps=2)[0]["reason"] for _ in range(3)]
    assert reasons == [protocol.UNSAFE] * 3
    assert len(node.happened("init")) == 1
    node.nothing_left(job.pid)
    assert node.end(job) == SPOKEN


def test_no_window_where_there_is_no_room(node: Node, agent: LittleAgent) -> None:
    """Refused before anything is written.

    The quota is taken by windows in flight, the disk is nearly full, or somebody has put the folder there: open to
    others, or a link to elsewhere.
    """
    base = node.scratch / f"roofwatch-npu-{os.geteuid()}"
    (base / "another").mkdir(parents=True)
    base.chmod(0o700)
    (base / "another" / "raw").write_bytes(b"x" * (60 << 20))
    job = node.start(SPEAKS, agent.path, **SMALL)
    connection = agent.accept()
    refusal, _ = connection.take(steps=2)
    assert (refusal["reason"], refusal["detail"]) == (protocol.DISK, "quota")
    shutil.rmtree(base / "another")
    base.chmod(0o755)
    refusal, _ = connection.take(steps=2)
    assert (refusal["reason"], refusal["detail"]) == (protocol.DISK, "the folder is not ours alone")
    shutil.rmtree(base)
    (node.folder / "elsewhere").mkdir(mode=0o700)
    base.symlink_to(node.folder / "elsewhere")
    refusal, _ = connection.take(steps=2)
    assert (refusal["reason"], refusal["detail"]) == (protocol.DISK, "the folder is not ours alone")
    base.unlink()
    assert node.end(job) == SPOKEN
    huge = {"ROOFWATCH_NPU_QUOTA_MB": str(1 << 40)}  # an eighth of which no disk has
    job = node.start(SPEAKS, agent.path, **huge)
    refusal, _ = agent.accept().take(steps=2)
    assert (refusal["reason"], refusal["detail"]) == (protocol.DISK, "free space")
    assert node.end(job) == SPOKEN
    assert not node.happened("init")


def test_the_job_ends_during_the_analysis(node: Node, agent: LittleAgent) -> None:
    """It is not held back, and what it leaves goes by itself."""
    job = node.start(SPEAKS, agent.path, ASCEND_STAND_IN="hangs")
    agent.accept().ask(steps=2)
    node.until(lambda: node.happened("hangs"), "the analysis runs")
    begun = time.monotonic()
    assert node.end(job) == SPOKEN
    assert time.monotonic() - begun < 8  # an interpreter with torch takes most of a second to end
    node.nothing_left()


def test_the_job_is_killed_during_the_analysis(node: Node, agent: LittleAgent) -> None:
    """SIGKILL: the child sees that its parent has gone."""
    job = node.start(SPEAKS, agent.path, ASCEND_STAND_IN="hangs")
    agent.accept().ask(steps=2)
    node.until(lambda: node.happened("hangs"), "the analysis runs")
    job.kill()
    assert node.end(job) == Ended(-signal.SIGKILL, "begins\n", "")
    node.nothing_left()


def test_the_job_ends_in_an_open_window(node: Node, agent: LittleAgent) -> None:
    """The profiler is stopped before the device is shut down, and the folder goes."""
    job = node.start(SPEAKS, agent.path)
    agent.accept().ask(steps=10_000, max_ms=10_000)
    node.until(lambda: node.happened("start"), "the window is open")
    assert node.end(job) == SPOKEN
    assert node.happened("stop")
    node.nothing_left()


def test_the_child_is_killed(node: Node, agent: LittleAgent) -> None:
    """It, or its analysis, as when memory runs out: refused, and the next window is taken.

    Nothing stays that has not left the analysis's session by itself.
    """
    job = node.start(SPEAKS, agent.path)
    connection = agent.accept()
    node.fault("hangs")
    for count, whose in enumerate(("its analysis", "the child"), 1):
        connection.ask(steps=2)
        node.until(lambda count=count: len(node.happened("hangs")) == count, "the analysis runs")
        analysis = int(node.happened("analyse")[-1][1])
        child = parent(analysis)
        assert parent(child) == job.pid
        os.kill(child if whose == "the child" else analysis, signal.SIGKILL)
        refusal, _ = connection.receive(20)
        detail = "no answer" if whose == "the child" else "failed"
        assert (refusal["reason"], refusal["detail"]) == (protocol.ANALYSIS, detail)
        if whose == "the child":
            os.kill(int(node.happened("hangs")[-1][5]), signal.SIGKILL)  # the straggler
        node.nothing_left(job.pid)
    node.fault()
    assert connection.take(steps=2)[0]["type"] == protocol.WINDOW
    assert node.end(job) == SPOKEN


def parent(pid: int) -> int:
    """The parent of a process."""
    with open(f"/proc/{pid}/stat") as file:  # noqa: PTH123 - a line of the kernel's
        return int(file.read().rpartition(")")[2].split()[1])


def test_the_agent_goes_away_during_the_analysis(node: Node, agent: LittleAgent) -> None:
    """Nobody waits for the window: the analysis ends at once; the next agent gets windows again."""
    job = node.start(SPEAKS, agent.path)
    node.fault("slow")
    agent.accept().ask(steps=2)
    node.until(lambda: node.happened("slow"), "the analysis runs")
    agent.stop()
    begun = time.monotonic()
    node.nothing_left(job.pid)
    assert time.monotonic() - begun < 4.5  # it would have slept for 5 s
    node.fault()
    agent.listen()
    assert agent.accept(20).take(steps=2)[0]["type"] == protocol.WINDOW
    assert node.end(job) == SPOKEN


CLOSES = """
while not os.path.exists("go"):
    step()
os.closerange(3, 4096)
files = [open(os.devnull) for _ in range(600)]
before = [os.fstat(file.fileno()).st_ino for file in files]
end = time.monotonic() + 2
while time.monotonic() < end:
    step()
print(before == [os.fstat(file.fileno()).st_ino for file in files], flush=True)
"""


def test_a_job_that_closes_all_descriptors_during_the_analysis(node: Node, agent: LittleAgent) -> None:
    """What it opens on the numbers that became free stays open; the analysis ends."""
    job = node.start(TRAIN + CLOSES + LOOP, agent.path, ASCEND_STAND_IN="hangs")
    assert job.stdout is not None
    agent.accept().ask(steps=2)
    node.until(lambda: node.happened("hangs"), "the analysis runs")
    (node.folder / "go").touch()
    assert job.stdout.readline() == "True\n"
    node.nothing_left(job.pid)
    assert node.end(job) == (0, "", "")
