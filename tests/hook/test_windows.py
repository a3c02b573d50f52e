"""Windows of real torch processes: what is in them, and what the agent is told."""

from __future__ import annotations

import dataclasses
import json
import os
import textwrap
import time
from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hook_jobs import TRAIN, UNTIL_STDIN_CLOSES, UNTIL_STDIN_CLOSES_ALONE, Jobs
from little_agent import LittleAgent, events

from roofwatch.hook import protocol
from roofwatch.hook.paths import choose
from roofwatch.model.record import Cost, Padding

ATTACH = "from roofwatch.hook import attach\nattach(model='tiny', labels={'git': 'abc'})\n"
LOOP = "while not over.is_set():\n    step()\n"
INFER = """
import torch
torch.set_num_threads(1)
model = torch.nn.Linear(8, 8)
with torch.no_grad():
    while not over.is_set():
        model(torch.ones(4, 8))
"""


def names(trace: bytes) -> Counter[str]:
    """How often each op is in a trace."""
    return Counter(event["name"] for event in events(trace) if event.get("cat") == "cpu_op")


def test_hello_says_who(jobs: Jobs, agent: LittleAgent) -> None:
    """Model, labels, rank variables, versions, the CPU, the thread count; pid as the kernel knows it."""
    env = {"RANK": "3", "LOCAL_RANK": "1", "WORLD_SIZE": "4", "SLURM_JOB_ID": "17", "SLURM_STEP_ID": "0"}
    job = jobs.start(ATTACH + TRAIN + UNTIL_STDIN_CLOSES + LOOP, agent.path, **env)
    hello = agent.accept().hello
    assert hello["pid"] == job.pid
    assert (hello["protocol"], hello["model"], hello["labels"]) == (1, "tiny", {"git": "abc"})
    assert (hello["rank"], hello["local_rank"], hello["world_size"], hello["job"]) == (3, 1, 4, "slurm:17.0")
    assert hello["versions"]["torch"].startswith("2.13")
    assert hello["accelerator"] == "cpu"
    (device,) = hello["devices"]
    assert (device["vendor"], device["units"]) == ("cpu", hello["threads"])
    assert device["model"]
    assert device["memory_bytes"] == os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    ended = jobs.end(job)
    assert (ended.code, ended.out, ended.err) == (0, "", "")


@pytest.mark.parametrize("path", ["native", "plain"])
def test_a_window_holds_exactly_its_steps(jobs: Jobs, agent: LittleAgent, path: str) -> None:
    """The model has three linear layers: five steps are 15 addmm, whichever way the window is closed."""
    job = jobs.start(TRAIN + UNTIL_STDIN_CLOSES + LOOP, agent.path, run=True, ROOFWATCH_HOOK_CLOSE=path)
    connection = agent.accept()
    assert connection.hello["close_path"] == path
    connection.stepping()
    for shapes in (True, False):
        before = time.time_ns()
        window, trace = connection.take(steps=5, shapes=shapes)
        assert window["type"] == protocol.WINDOW
        assert (window["steps"], window["shapes"], window["size"]) == (5, shapes, len(trace))
        assert window["format"] == protocol.KINETO_JSON
        assert before < window["start_unix_ns"] < time.time_ns()
        assert 0 < window["duration_ns"] < time.time_ns() - before
        ops = events(trace)
        assert names(trace)["aten::addmm"] == 5 * 3
        assert any("Input Dims" in op.get("args", {}) for op in ops) == shapes
    assert jobs.end(job).code == 0


def test_the_first_window_is_short_and_without_shapes(jobs: Jobs, agent: LittleAgent) -> None:
    """While nobody knows the cost: at most 50 ms, no shapes, steps null; once it is known, as asked."""
    slow = "import time\nwhile not over.is_set():\n    step()\n    time.sleep(0.02)\n"
    job = jobs.start(TRAIN + UNTIL_STDIN_CLOSES + slow, agent.path, run=True)
    connection = agent.accept()
    first, _ = connection.take(steps=20, cost_known=False)
    assert (first["steps"], first["shapes"]) == (None, False)
    assert 50e6 <= first["duration_ns"] < 100e6
    second, trace = connection.stepping().take(steps=20, cost_known=False)
    assert (second["steps"], second["shapes"]) == (20, True)
    assert names(trace)["aten::addmm"] == 20 * 3
    assert second["steps_seen"] >= 20
    assert jobs.end(job).code == 0


def test_a_process_without_steps_is_seen_by_time(jobs: Jobs, agent: LittleAgent) -> None:
    """An inference loop on another thread than ours: about 30 ms of it, steps null, no cost from steps."""
    job = jobs.start(ATTACH + UNTIL_STDIN_CLOSES_ALONE + INFER, agent.path)
    window, trace = agent.accept().take(duration_ms=30, steps=5)
    assert window["steps"] is None
    assert 30e6 <= window["duration_ns"] < 300e6
    assert names(trace)["aten::addmm"] > 0
    assert (window["cost"]["base_step_ns"], window["cost"]["lost_in_ns"]) == (None, None)
    ended = jobs.end(job)
    assert (ended.code, ended.err) == (0, "")


def test_a_window_ends_at_max_ms(jobs: Jobs, agent: LittleAgent) -> None:
    """Steps that take too long: the window ends in the middle of one, and its steps are null."""
    slow = "import time\nwhile not over.is_set():\n    step()\n    time.sleep(0.05)\n"
    job = jobs.start(TRAIN + UNTIL_STDIN_CLOSES + slow, agent.path, run=True)
    window, _ = agent.accept().stepping().take(steps=100, max_ms=120)
    assert window["steps"] is None
    assert 120e6 <= window["duration_ns"] < 400e6
    assert jobs.end(job).code == 0


def test_no_window_where_no_step_comes(jobs: Jobs, agent: LittleAgent) -> None:
    """A job that has stepped and now waits: refused after the timeout, and asked again it still lives."""
    job = jobs.start(TRAIN + UNTIL_STDIN_CLOSES + "step()\nover.wait()\n", agent.path, run=True)
    connection = agent.accept().stepping()
    for _ in range(2):
        refusal, _ = connection.take(steps=1, timeout_ms=100)
        assert (refusal["type"], refusal["reason"]) == (protocol.REFUSED, protocol.NO_STEPS)
    assert jobs.end(job).code == 0


@pytest.mark.parametrize("path", ["none", "plain"])
def test_where_windows_are_not_safe_there_are_none(jobs: Jobs, agent: LittleAgent, path: str) -> None:
    """The process is seen, and every window is refused; the plain way takes none without steps beside other threads."""
    job = jobs.start(ATTACH + UNTIL_STDIN_CLOSES + INFER, agent.path, ROOFWATCH_HOOK_CLOSE=path)
    connection = agent.accept()
    assert connection.hello["close_path"] == path
    assert connection.take()[0]["reason"] == protocol.UNSUPPORTED
    assert jobs.end(job).code == 0


def test_the_plain_way_sees_all_of_a_process_with_one_thread(jobs: Jobs, agent: LittleAgent) -> None:
    """Inference without steps on a CPU, nothing else in Python: what the main thread computes is all there is."""
    program = ATTACH + "class over:\n    is_set = staticmethod(lambda: False)\n" + INFER
    job = jobs.start(program, agent.path, ROOFWATCH_HOOK_CLOSE="plain")
    window, trace = agent.accept().take(duration_ms=30, timeout_ms=5000)
    assert (window["type"], window["steps"]) == (protocol.WINDOW, None)
    assert names(trace)["aten::addmm"] > 0
    job.kill()


TIMED = """
from roofwatch.hook import paths
paths.PlainPath.timed = True  # as where a device records: here there is none
"""


def test_the_plain_way_takes_windows_by_time_of_the_main_thread(jobs: Jobs, agent: LittleAgent) -> None:
    """Inference without steps on a build that nobody has tested: opened and closed by the main thread, again and again.

    A window asked for while the main thread is in C is refused after its timeout, and the process goes on.
    """
    program = ATTACH.replace("attach(model", TIMED + "attach(model") + UNTIL_STDIN_CLOSES + INFER
    in_c = "import hashlib\nhashlib.pbkdf2_hmac('sha256', b'', b'', 4_000_000)\n"
    program = program.replace("with torch.no_grad", in_c + "with torch.no_grad")
    job = jobs.start(program, agent.path, ROOFWATCH_HOOK_CLOSE="plain")
    connection = agent.accept()
    refusal, _ = connection.take(duration_ms=30, timeout_ms=300)
    assert (refusal["type"], refusal["reason"]) == (protocol.REFUSED, protocol.NO_STEPS)
    for _ in range(3):
        window, trace = connection.take(duration_ms=30, timeout_ms=5000)
        assert (window["type"], window["steps"]) == (protocol.WINDOW, None)
        assert 30e6 <= window["duration_ns"] < 300e6
        assert names(trace)["aten::addmm"] > 0
    ended = jobs.end(job)
    assert (ended.code, ended.out, ended.err) == (0, "", "")


def test_which_builds_get_which_path() -> None:
    """Without the GIL only where the stress test has passed, and never beside kineto's own daemon."""

    class Named:
        """This torch under the name of another build."""

        def __init__(self, version: str, cuda: str | None) -> None:
            self.__version__, self.version = version, SimpleNamespace(cuda=cuda, hip=None)

        def __getattr__(self, name: str) -> Any:
            return getattr(torch, name)

    assert choose(Named("2.13.0+cpu", None), {}).name == "native"
    assert choose(Named("2.13.0+cu130", "13.0"), {}).name == "plain"
    assert choose(Named("2.99.0+cpu", None), {}).name == "plain"
    assert choose(torch, {}).name == ("plain" if torch.version.cuda or torch.version.hip else "native")
    assert choose(torch, {"KINETO_USE_DAEMON": ""}).name == "none"


def test_cost_and_padding_have_the_keys_of_the_record(jobs: Jobs, agent: LittleAgent) -> None:
    """Lengths 120 … 90 of design §7: ΣL = 3128 of 8 * 2048 (19.1 %), ΣL² = 4395376 of 8 * 2048² (13.1 %)."""
    padded = "from roofwatch.hook import batch\nwhile not over.is_set():\n"
    padded += "    batch([120, 2048, 96, 310, 64, 180, 220, 90])\n    step()\n"
    job = jobs.start(TRAIN + UNTIL_STDIN_CLOSES + padded, agent.path, run=True)
    connection = agent.accept().stepping()
    time.sleep(0.5)  # some steps without a window
    window, _ = connection.take(steps=4)
    cost: dict[str, Any] = window["cost"]
    assert set(cost) == {f.name for f in dataclasses.fields(Cost)} - {"parse_cpu_ns"} | {"after_steps"}
    known = ("open_ns", "quiesce_ns", "close_ns", "save_ns", "free_ns", "base_step_ns", "longest_step_ns")
    assert all(cost[key] > 0 for key in known)
    assert cost["longest_step_ns"] >= cost["base_step_ns"]
    squares = 120**2 + 2048**2 + 96**2 + 310**2 + 64**2 + 180**2 + 220**2 + 90**2
    lengths = tuple((length, 4) for length in (64, 90, 96, 120, 180, 220, 310, 2048))
    expected = Padding(4, 4 * 3128, 4 * 8 * 2048, 4 * squares, 4 * 8 * 2048**2, lengths, ((8, 2048, 4),))
    assert window["padding"] == json.loads(json.dumps(dataclasses.asdict(expected)))
    assert (round(3128 / (8 * 2048), 3), round(squares / (8 * 2048**2), 3)) == (0.191, 0.131)
    assert jobs.end(job).code == 0


def test_the_attention_mask_says_what_is_padding(jobs: Jobs, agent: LittleAgent) -> None:
    """attach(model_module=…): a mask of 3 and 5 ones in rows of 5, and no op of ours in the window."""
    code = """
    import torch
    from roofwatch.hook import attach
    class Model(torch.nn.Linear):
        def forward(self, x, attention_mask=None):
            return super().forward(x)
    model = Model(8, 8)
    attach(model_module=model)
    mask = torch.tensor([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]])
    while not over.is_set():
        model(torch.ones(4, 8), attention_mask=mask)
    """
    job = jobs.start(UNTIL_STDIN_CLOSES_ALONE + textwrap.dedent(code), agent.path)
    window, trace = agent.accept().take(duration_ms=20)
    padding = window["padding"]
    n = padding["batches"]
    assert n > 0
    assert padding == {
        "batches": n,
        "real_tokens": 8 * n,
        "padded_tokens": 10 * n,
        "real_squared": 34 * n,
        "padded_squared": 50 * n,
        "lengths": [[3, n], [5, n]],
        "shapes": [[2, 5, n]],
        "coarsened": 0,
        "unread": 0,
    }
    assert names(trace)["aten::sum"] == 0
    assert jobs.end(job).code == 0


CUT_AT_ANY_MOMENT = """
import signal
class Late(Exception): pass
def late(*_): raise Late
step()  # torch imports parts of itself in a first step, and keeps what is raised there
signal.signal(signal.SIGALRM, late)
seen = 0
while not over.is_set():
    signal.setitimer(signal.ITIMER_REAL, 0.03)
    try:
        while not over.is_set():
            for _ in range(40): model(torch.ones(4, 8))
            step()
    except Late:
        seen += 1
signal.setitimer(signal.ITIMER_REAL, 0)
print(seen > 10)
"""


def test_a_plain_window_that_ends_in_its_own_cut(jobs: Jobs, agent: LittleAgent) -> None:
    """Windows whose time is over about when their last step cuts them, in a job whose alarms raise at any moment.

    The main thread is asked to cut while it cuts; every alarm is still the job's: it counts them all.
    """
    job = jobs.start(TRAIN + UNTIL_STDIN_CLOSES + CUT_AT_ANY_MOMENT, agent.path, run=True, ROOFWATCH_HOOK_CLOSE="plain")
    connection = agent.accept().stepping()
    first, _ = connection.take(steps=4, max_ms=5000, timeout_ms=10_000)
    assert first["type"] == protocol.WINDOW, first
    length = first["duration_ns"] / 1e6
    answers = Counter[str]()
    for n in range(20):
        asked = time.monotonic()
        answer, _ = connection.take(steps=4, max_ms=max(1, round(length + n % 5 * 10)), timeout_ms=5000)
        answers[answer["type"]] += 1
        assert time.monotonic() - asked < 12
    assert answers[protocol.WINDOW] > 10, answers
    ended = jobs.end(job)
    assert (ended.code, ended.out, ended.err) == (0, "True\n", "")
