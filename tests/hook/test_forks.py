"""A job that forks does so as one without the hook, and its children leave as they would."""

from __future__ import annotations

import textwrap
import types
from typing import Any

import pytest
from hook_jobs import TRAIN, UNTIL_STDIN_CLOSES, Ended, Jobs
from little_agent import LittleAgent

from roofwatch.hook import protocol
from roofwatch.hook.session import Session

FORKS = """
def child(how, profile):
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        if profile:
            with torch.profiler.profile() as p:
                step()
            print(sum(e.name == "aten::addmm" for e in p.events()), flush=True)
        sys.exit(4) if how == "exit" else os._exit(4)
    print(how, profile, os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"""


def test_forked_children_after_and_inside_windows(jobs: Jobs, agent: LittleAgent) -> None:
    """Children that leave by exit() or _exit(), with a profiler of their own or not, while windows are taken."""
    code = TRAIN + UNTIL_STDIN_CLOSES + FORKS
    code += "n = 0\nwhile not over.is_set():\n    step()\n    n += 1\n"
    code += "    if n % 50 == 0: child(('exit', 'exit', '_exit')[n // 50 % 3], n // 50 % 2)\n"
    job = jobs.start(code, agent.path, run=True)
    connection = agent.accept()
    while not connection.take(steps=1)[0].get("steps_seen"):
        pass  # an import that takes long counts as life
    answers = [connection.take(steps=7, max_ms=500)[0]["type"] for _ in range(12)]
    ended = jobs.end(job)
    assert answers == [protocol.WINDOW] * 12
    assert ended.code == 0
    own = ("USDT:", "gpuGetDeviceCount failed")  # of the children's profilers; the second without a GPU
    assert all(any(word in line for word in own) for line in ended.err.splitlines())
    lines = ended.out.split("\n")[:-1]
    children = [line for line in lines if line != "3"]
    assert len(children) >= 4
    assert {line.rsplit(" ", 1)[1] for line in children} == {"4"}
    assert lines.count("3") == sum(line.split()[1] == "1" for line in children) >= 1


def test_a_fork_in_the_seconds_after_a_window(jobs: Jobs, agent: LittleAgent) -> None:
    """Our thread looks at the steps after a window, and ends for a fork all the same: two would share one window.

    A window that was open, and no longer known to the thread that took it, ended the job's children in exit().
    """
    code = """
    import os, sys, time
    TRAIN
    from _roofwatch_hook import job
    taker = job._hook.taker
    ours = []
    def stack(frame):
        while frame is not None:
            yield frame.f_code.co_filename
            frame = frame.f_back
    def fork(leave):
        sys.stdout.flush()
        if os.fork() == 0:
            leave(5)
        print(os.waitstatus_to_exitcode(os.wait()[1]))
    def steps(until):
        while not until():
            step()
            frames = sys._current_frames().values()
            ours.append(sum(any(name.endswith("hook/session.py") for name in stack(frame)) for frame in frames))
            time.sleep(0.15)
    step()
    print("steps", flush=True)
    steps(lambda: taker.windows == 1)
    fork(os._exit)  # of ten steps after the window only the first are over
    steps(lambda: taker.phase == "open")
    taker.window = None
    fork(sys.exit)
    print(max(ours))
    """
    code = textwrap.dedent(code).replace("TRAIN", TRAIN)
    job = jobs.start(code, agent.path, run=True, OPENBLAS_NUM_THREADS="1")
    assert job.stdout is not None
    assert job.stdout.readline() == "steps\n"
    first = agent.accept()
    first.ask(steps=1)
    try:
        agent.accept(timeout=10).ask(steps=60, max_ms=30_000)
    except TimeoutError:  # a thread of kineto's was still there: ours has stayed, too
        first.ask(steps=60, max_ms=30_000)
    assert jobs.end(job) == Ended(0, "5\n5\n1\n", "")


@pytest.mark.parametrize("path", ["native", "plain"])
def test_a_child_leaves_by_exit_after_a_window(jobs: Jobs, agent: LittleAgent, path: str) -> None:
    """Kineto's own thread is not in the child, whose exit would wait for it in C++, and the job for the child."""
    code = TRAIN + UNTIL_STDIN_CLOSES + FORKS + "while not over.is_set():\n    step()\nchild('exit', 0)\n"
    job = jobs.start(code, agent.path, run=True, ROOFWATCH_HOOK_CLOSE=path)
    connection = agent.accept()
    assert connection.hello["close_path"] == path
    while not connection.take(steps=1)[0].get("steps_seen"):
        pass
    assert connection.take(steps=2)[0]["type"] == protocol.WINDOW
    assert jobs.end(job) == Ended(0, "exit 0 4\n", "")


def test_a_job_without_threads_forks_without_threads(jobs: Jobs, agent: LittleAgent) -> None:
    """Our thread is gone while the job forks (else os.fork warns from Python 3.12 on), and back at the next step."""
    code = """
    import os, time
    def threads():
        print(len(os.listdir("/proc/self/task")), flush=True)
    os.register_at_fork(before=threads)  # runs after the hook's own
    TRAIN
    for _ in range(2):
        step()
        time.sleep(1)
        threads()
        if os.fork() == 0:
            os._exit(0)
        os.wait()
    step()
    os.read(0, 1)
    """
    code = textwrap.dedent(code).replace("TRAIN", TRAIN)
    job = jobs.start(code, agent.path, run=True, OPENBLAS_NUM_THREADS="1")
    first = agent.accept()
    for _ in range(2):
        connection = agent.accept()
        assert connection.hello["pid"] == first.hello["pid"] == job.pid
    assert jobs.end(job) == Ended(0, "2\n1\n2\n1\n", "")


def test_a_process_without_steps_is_seen_after_it_has_forked(jobs: Jobs, agent: LittleAgent) -> None:
    """Our thread is gone while it forks, and back just after it: no step would bring it.

    Not before the parent's handlers have run, after which Python 3.13 counts threads and warns of them.
    """
    code = """
    import functools, os, select, torch
    torch.set_num_threads(1)
    x = torch.ones(64, 64)
    seen = []  # filled without a bytecode, as os.fork counts
    looks = functools.partial(seen.extend, map(os.listdir, ["/proc/self/task"]))
    os.register_at_fork(after_in_parent=looks)
    if os.fork() == 0:
        os._exit(0)
    os.wait()
    print(len(seen[0]))
    while not select.select([0], [], [], 0)[0]:
        x @ x
    """
    job = jobs.start(code, agent.path, run=True, OPENBLAS_NUM_THREADS="1")
    connection = agent.accept(timeout=30)
    assert connection.hello["pid"] == job.pid
    assert connection.take(duration_ms=20)[0]["type"] == protocol.WINDOW
    assert jobs.end(job) == Ended(0, "1\n", "")


class EndsMeanwhile:
    """The lock of a thread of ours that ends just after somebody found it alive."""

    def __init__(self) -> None:
        self.session: Any = None
        self.held = True

    def acquire(self, _wait: bool) -> bool:
        """As a lock's."""
        if self.session is None:
            self.held, had = True, self.held
            return not had
        session, self.session = self.session, None
        session._run(object(), self)
        return False

    def release(self) -> None:
        """As a lock's."""
        self.held = False


def test_a_thread_that_ends_while_another_is_begun() -> None:
    """It is found alive, and ends before it can be told to begin anew: somebody begins all the same."""
    taker: Any = types.SimpleNamespace(exiting=False, hurry=False)
    session = Session(taker, dict, lambda: False)
    over: Any = EndsMeanwhile()
    over.session, session.over, session.alive = session, over, True
    session.begin()
    assert session.running is not None
    session.running = None
