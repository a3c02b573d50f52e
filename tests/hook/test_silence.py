"""A job with the hook ends, prints and forks as one without, whatever the agent does; its own profiler is its own."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import textwrap
import time
import types
from pathlib import Path
from typing import Any

import pytest
from hook_jobs import TRAIN, UNTIL_STDIN_CLOSES, Ended, Jobs
from little_agent import LittleAgent
from stepped_clock import Clock, faketime

from roofwatch.hook import clock, protocol
from roofwatch.hook.session import Session

LOOP = UNTIL_STDIN_CLOSES + "while not over.is_set():\n    step()\n"
# Prints, warns, trains until told to stop, and leaves with a code of its own.
SPEAKS = TRAIN + "print('begins')\n" + LOOP + "print('ends', file=sys.stderr)\nsys.exit(3)\n"


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Ended:
    """What SPEAKS does without the hook."""
    jobs = Jobs(tmp_path_factory.mktemp("alone"))
    job = jobs.start(SPEAKS, None)
    time.sleep(1)
    return jobs.end(job)


def test_without_an_agent(jobs: Jobs, alone: Ended, tmp_path: Path) -> None:
    """Nobody listens: same output, same code."""
    job = jobs.start(SPEAKS, str(tmp_path / "nobody.sock"), run=True)
    time.sleep(4)
    assert alone == Ended(3, "begins\n", "ends\n")
    assert jobs.end(job) == alone


def test_with_windows(jobs: Jobs, agent: LittleAgent, alone: Ended) -> None:
    """Windows by steps, with and without shapes, one of them the first of the process."""
    job = jobs.start(SPEAKS, agent.path, run=True)
    connection = agent.accept()
    assert [connection.take(shapes=shapes)[0]["type"] for shapes in (True, False, True)] == [protocol.WINDOW] * 3
    assert jobs.end(job) == alone


AGENT = """
import sys
sys.path.insert(0, FOLDER)
from pathlib import Path
from typing import Any
from little_agent import LittleAgent
agent = LittleAgent(Path(sys.argv[1]))
print("listens", flush=True)
connection = agent.accept()
connection.ask(steps=40, max_ms=5000)
print("asked", flush=True)
import time
import types
time.sleep(600)
"""


def test_agent_killed_in_a_window_and_started_again(jobs: Jobs, alone: Ended, tmp_path: Path) -> None:
    """SIGKILL while the window is open: the job goes on, and says hello to the next agent, within its 5 s."""
    code = AGENT.replace("FOLDER", repr(str(Path(__file__).parent)))
    first = subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert first.stdout is not None
    assert first.stdout.readline() == "listens\n"
    path = str(tmp_path / "agent.sock")
    job = jobs.start(
        SPEAKS.replace("    step()\n", "    step()\n    time.sleep(0.01)\n").replace(
            "import sys", "import sys, time", 1
        ),
        path,
        run=True,
    )
    assert first.stdout.readline() == "asked\n"
    time.sleep(0.1)
    first.send_signal(signal.SIGKILL)
    first.communicate()
    Path(path).unlink()
    with LittleAgent(tmp_path) as second:
        connection = second.accept(timeout=20)
        assert connection.hello["pid"] == job.pid
        assert connection.take()[0]["type"] == protocol.WINDOW
        assert jobs.end(job) == alone


def test_no_hello_to_an_agent_that_rejected(jobs: Jobs, agent: LittleAgent) -> None:
    """The hook does not come back before 60 s; here, not in the 6 s after which it would after a lost agent."""
    job = jobs.start(TRAIN + LOOP, agent.path, run=True)
    agent.accept().send({"type": protocol.REJECTED, "reason": "not yours"})
    with pytest.raises(TimeoutError):
        agent.accept(timeout=6)
    assert jobs.end(job).code == 0


PHASES = {"armed": (40, 0.0), "open": (40, 0.03), "closing": (15, 0.055)}  # ms of the window, s until the exit


@pytest.mark.parametrize("phase", PHASES)
def test_exit_in_a_window_is_as_fast_as_without(jobs: Jobs, agent: LittleAgent, phase: str) -> None:
    """Told to stop at a moment of a window, the job is held back by the hook for less than 50 ms.

    Measured inside the job, between two atexit functions around the hook's own; the best of six, as other programs
    share the machine. (A close cannot be broken off: one of thousands of events holds an exit back for longer.)
    """
    around = (
        "import atexit, time\nstamps = []\natexit.register(lambda: print((time.monotonic_ns() - stamps[0]) / 1e6))\n"
    )
    code = around + TRAIN + LOOP + "atexit.register(lambda: stamps.append(time.monotonic_ns()))\nsys.exit(5)\n"
    held = []
    while not held or (held[-1] > 50 and len(held) < 6):
        job = jobs.start(code, agent.path, run=True)
        connection = agent.accept()
        connection.take(max_ms=40)
        max_ms, until_exit = PHASES[phase]
        connection.ask(steps=10_000, max_ms=max_ms, shapes=False)
        time.sleep(until_exit)
        ended = jobs.end(job)
        assert (ended.code, ended.err) == (5, "")
        held.append(float(ended.out))
    assert held[-1] < 50, held


PROFILES = """
import json
def profiled(n):
    with torch.profiler.profile(record_shapes=True) as p:
        for _ in range(n):
            step()
    p.export_chrome_trace("own.json")
    events = [e for e in json.load(open("own.json"))["traceEvents"] if e.get("ph") == "X"]
    seen = [(e["name"], e.get("cat"), json.dumps(e.get("args", {}).get("Input Dims"))) for e in events]
    print(json.dumps(sorted(seen)))
"""


def own_lines(ended: Ended) -> list[str]:
    """What kineto prints about the job's own profiler, without time and thread."""
    return [re.sub(r"[\d:-]+ \d+:\d+ ", "", line) for line in ended.err.splitlines()]


def test_the_jobs_profiler_gets_its_trace(jobs: Jobs, agent: LittleAgent) -> None:
    """Before, during and after our window: event for event, and line for line on stderr, what it gets without us."""
    alone = jobs.end(jobs.start(TRAIN + "step()\n" + PROFILES + "for _ in range(3): profiled(3)\n", None))
    code = TRAIN + "import time\n" + UNTIL_STDIN_CLOSES + "step()\n" + PROFILES
    code += "from _roofwatch_hook import job\nprofiled(3)\ntaker = job._hook.taker\n"
    code += "while getattr(taker.window, 'steps', 0) < 100_000 or taker.phase != 'open': step(); time.sleep(0.005)\n"
    code += "profiled(3)\nwhile not over.is_set(): step()\nprofiled(3)\n"
    job = jobs.start(code, agent.path, run=True)
    connection = agent.accept()
    while (answer := connection.take(steps=20, max_ms=5000)[0]).get("steps") != 20:
        time.sleep(0.1)  # before its first step, or its first profiler runs
    answers = [answer]
    connection.ask(steps=100_000, max_ms=30_000)  # open when the job's second profiler starts
    answers.append(connection.receive(60)[0])
    while (answer := connection.take(steps=2)[0]).get("reason") == protocol.OWN_PROFILER:
        time.sleep(0.1)  # it has not ended yet
    answers.append(answer)
    ended = jobs.end(job)
    assert (answers[1]["type"], answers[1]["reason"]) == (protocol.REFUSED, protocol.OWN_PROFILER)
    assert answers[2]["type"] == protocol.WINDOW
    assert ended.code == 0
    assert ended.out == alone.out
    assert own_lines(ended) == own_lines(alone)


def test_no_window_while_the_jobs_profiler_runs(jobs: Jobs, agent: LittleAgent) -> None:
    """Refused until it has ended."""
    code = (
        TRAIN
        + UNTIL_STDIN_CLOSES
        + "step()\nwith torch.profiler.profile():\n    while not over.is_set():\n        step()\n"
    )
    job = jobs.start(code, agent.path, run=True)
    connection = agent.accept()
    deadline = time.monotonic() + 20
    while (answer := connection.take(steps=1)[0]).get("reason") != protocol.OWN_PROFILER:
        assert answer["type"] == protocol.WINDOW  # the profiler had not started yet
        assert time.monotonic() < deadline
    assert connection.take(steps=1)[0]["reason"] == protocol.OWN_PROFILER
    assert jobs.end(job).code == 0


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


@pytest.mark.parametrize(
    ("moved_ns", "length_ns", "told"),
    [(0, 0, False), (500_000, 0, False), (2_000_000, 0, True), (-2_000_000, 0, True),
     (5_000_000, 10**10, False), (-5_000_000, 10**10, False), (30_000_000, 10**10, True)],
)  # fmt: skip
def test_a_clock_that_is_adjusted_was_not_set(moved_ns: int, length_ns: int, told: bool) -> None:
    """At most 500 µs a second are an adjustment's, which in 10 s is 5 ms; what is more is a clock that was set."""
    assert clock.was_set(clock.offset_ns() - moved_ns, length_ns) is told


CLOCK_BACK_S = 100


@pytest.mark.parametrize("path", ["native", "plain"])
def test_a_clock_that_is_set_in_a_window(jobs: Jobs, agent: LittleAgent, tmp_path: Path, path: str) -> None:
    """Its times are wrong, so it is refused; torch, for which ops then end before they begin, does not say so."""
    library = faketime()
    if not library:
        pytest.skip("libfaketime is neither installed nor to be had")
    faked = Clock(tmp_path / "clock", library)
    faked.set(0)
    code = TRAIN + UNTIL_STDIN_CLOSES + "import time\nwhile not over.is_set():\n    step()\n    time.sleep(0.01)\n"
    job = jobs.start(code, agent.path, run=True, ROOFWATCH_HOOK_CLOSE=path, **faked.env())
    connection = agent.accept().stepping()
    answers = [connection.take(steps=5)[0]["type"]]
    connection.ask(steps=50, max_ms=10_000)
    time.sleep(0.3)
    faked.set(-CLOCK_BACK_S)
    refused = connection.receive(20)[0]
    answers.append(connection.take(steps=5)[0]["type"])
    assert jobs.end(job) == Ended(0, "", "")
    assert (refused["type"], refused["reason"], refused["opened"]) == (protocol.REFUSED, protocol.CLOCK_SET, True)
    assert answers == [protocol.WINDOW] * 2


WARNS = """
import ctypes, gc, os, torch, weakref
from _roofwatch_hook.muted import Muted
core = ctypes.CDLL(os.path.join(os.path.dirname(torch.__file__), "lib", "libc10.so"))
name = "RKNS_14SourceLocationENSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEEb"
make = core["_ZN3c107WarningC1ESt7variantIJNS0_11UserWarningENS0_18DeprecationWarningEEE" + name]
make.restype, make.argtypes = None, [ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_bool]
tell = core["_ZN3c104warnERKNS_7WarningE"]
tell.argtypes = [ctypes.c_void_p]
class Location(ctypes.Structure):
    _fields_ = [("function", ctypes.c_char_p), ("file", ctypes.c_char_p), ("line", ctypes.c_uint32)]
class String(ctypes.Structure):
    _fields_ = [("text", ctypes.c_char_p), ("size", ctypes.c_size_t), ("own", ctypes.c_char * 16)]
def warn(text):
    warning, where = ctypes.create_string_buffer(512), Location(b"f", b"f.cpp", 1)
    string = String(text, len(text), b"")
    make(ctypes.addressof(warning), 0, ctypes.addressof(where), ctypes.addressof(string), True)
    tell(ctypes.addressof(warning))
warn(b"before")
with Muted():
    warn(b"inside")
    thread = __import__("threading").Thread(target=warn, args=(b"another",))
    thread.start()
    thread.join()
    # As if another thread had made its own at the same time: torch has the address of ours until the end.
    from _roofwatch_hook import muted
    ours, muted._warnings = weakref.ref(muted._warnings[0]), None
    gc.collect()
    assert ours() is not None
warn(b"after")
"""


def test_only_our_own_calls_of_torch_are_muted(jobs: Jobs) -> None:
    """A warning of torch's C++ is heard before, after, and from another thread meanwhile, but not from ours."""
    ended = jobs.end(jobs.start(WARNS, None, run=True))
    assert ended.code == 0, ended.err
    assert re.findall("before|inside|another|after", ended.err) == ["before", "another", "after"]


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


def test_compiled_optimizers(jobs: Jobs, agent: LittleAgent) -> None:
    """torch.compile of an optimizer's step, whole graph or not: same graphs, same breaks, same output as without us."""
    code = """
    import torch
    from torch._dynamo.utils import counters
    torch.manual_seed(0)
    model = torch.nn.Linear(4, 4)
    class Own(torch.optim.Optimizer):
        def __init__(self, parameters):
            super().__init__(parameters, {})
        @torch.no_grad()
        def step(self):
            for p in self.param_groups[0]["params"]:
                p.sub_(p.grad * 0.1)
    for kind, whole in ((torch.optim.SGD, False), (Own, False), (Own, True)):
        torch._dynamo.reset()
        counters.clear()
        optimizer = kind(model.parameters())
        step = torch.compile(optimizer.step, backend="eager", fullgraph=whole)
        for _ in range(3):
            optimizer.zero_grad()
            model(torch.ones(2, 4)).sum().backward()
            step()
        graphs = counters["stats"].get("unique_graphs"), len(counters["graph_break"])
        print(kind.__name__, whole, *graphs, float(model.weight.sum()))
    """
    alone = jobs.end(jobs.start(code, None))
    with_hook = jobs.end(jobs.start(code, agent.path, run=True))
    assert (alone.code, len(alone.out.splitlines())) == (0, 3)
    strip = re.compile(r"\d{4} [\d:.]+ \d+ ")  # date, time and pid of torch's own lines
    assert (with_hook.code, with_hook.out, strip.sub("", with_hook.err)) == (0, alone.out, strip.sub("", alone.err))


def wakes(pid: int) -> dict[str, int]:
    """How often each thread of a process has been switched to or away from."""
    found = {}
    for task in Path(f"/proc/{pid}/task").iterdir():
        status = (task / "status").read_text()
        found[task.name] = sum(int(n) for n in re.findall(r"ctxt_switches:\s+(\d+)", status))
    return found


def test_nobody_wakes(jobs: Jobs, tmp_path: Path) -> None:
    """Without an agent one thread more than without the hook, and none that wakes twice in 5 s (in 6 s: at most 2)."""
    code = "import torch\nimport os\nprint(len(os.listdir('/proc/self/task')), flush=True)\nos.read(0, 1)\n"
    job = jobs.start(code, str(tmp_path / "nobody"), run=True)
    assert job.stdout is not None
    threads = int(job.stdout.readline())
    time.sleep(1)
    before = wakes(job.pid)
    time.sleep(6)
    after = wakes(job.pid)
    assert all(after[tid] - before[tid] <= 2 for tid in after), (before, after)
    assert sum(after.values()) - sum(before.values()) >= 1  # ours has looked whether the job computes
    assert jobs.end(job).code == 0
    assert threads == int(jobs.end(jobs.start(code, None)).out) + 1


def test_an_exception_inside_the_hook_is_noted_once(jobs: Jobs, agent: LittleAgent, tmp_path: Path) -> None:
    """A hook whose step fails: the job's output is its own, and the log says it once."""
    log = tmp_path / "hook.log"
    broken = "import _roofwatch_hook.job as j\ndef fails(count): raise ValueError('broken')\n"
    broken += "j._hook.steps.boundary = fails\n"
    code = TRAIN + broken + "for _ in range(5):\n    j._hook.steps.at = 0\n    step()\n"
    ended = jobs.end(jobs.start(code, agent.path, run=True, ROOFWATCH_HOOK_LOG=str(log)))
    assert ended == Ended(0, "", "")
    assert log.read_text().count("broken") == 1
    assert json.dumps(log.read_text()).count("step: ValueError") == 1
