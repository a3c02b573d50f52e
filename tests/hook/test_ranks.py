"""What ranks of one job are laid side by side by: windows that open at the same steps, and the name of their group."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hook_jobs import TRAIN, UNTIL_STDIN_CLOSES, Jobs
from little_agent import LittleAgent

from roofwatch.hook import protocol
from roofwatch.hook.request import Window

LOOP = "while not over.is_set():\n    step()\n"
ALONE = """
import torch.distributed as dist
dist.init_process_group("gloo", init_method="file://" + __file__ + ".rendezvous", rank=0, world_size=1)
"""


@pytest.mark.parametrize("path", ["native", "plain"])
def test_a_window_opens_at_a_step_of_the_remainder(jobs: Jobs, agent: LittleAgent, path: str) -> None:
    """Modulo 64 at 5, then at 17; what is no alignment is as none."""
    job = jobs.start(TRAIN + UNTIL_STDIN_CLOSES + LOOP, agent.path, run=True, ROOFWATCH_HOOK_CLOSE=path)
    connection = agent.accept()
    for remainder in (5, 17, 64 + 5):
        window, _ = connection.take(steps=2, align=[64, remainder])
        assert (window["type"], window["steps"]) == (protocol.WINDOW, 2)
        assert window["first_step"] % 64 == remainder % 64
    for wrong in ("64", [64], [0, 1], [-64, 1], [64, 1.5], [True, False], [1 << 40, 1], None, {}):
        window, _ = connection.take(steps=1, align=wrong)
        assert (window["type"], window["steps"]) == (protocol.WINDOW, 1)
    assert jobs.end(job).code == 0


def test_a_window_opens_at_the_first_listed_step_that_has_not_passed(jobs: Jobs, agent: LittleAgent) -> None:
    """Step 1 has passed, so it is one of the others; where all have passed it is told at once, with the count."""
    job = jobs.start(TRAIN + UNTIL_STDIN_CLOSES + LOOP, agent.path, run=True)
    connection = agent.accept()
    seen = connection.take(steps=1)[0]["steps_seen"]
    listed = list(range(seen + 50, seen + 5000, 50))[:60]
    window, _ = connection.take(steps=2, at_steps=[1, *listed])
    assert (window["type"], window["steps"]) == (protocol.WINDOW, 2)
    assert window["first_step"] in listed
    refused, _ = connection.take(steps=2, at_steps=[1, 2, seen])
    assert (refused["type"], refused["reason"], refused["detail"]) == (protocol.REFUSED, protocol.NO_STEPS, "passed")
    assert refused["steps_seen"] >= window["steps_seen"]
    for wrong in ([], [1.5], "7", list(range(100))):
        window, _ = connection.take(steps=1, at_steps=wrong)
        assert (window["type"], window["steps"]) == (protocol.WINDOW, 1)
    assert jobs.end(job).code == 0


@pytest.mark.parametrize(
    ("count", "align", "warm", "boundary"),
    [
        (10, [8, 4], 0, 12),
        (12, [8, 4], 0, 20),
        (10, [8, 4], 1, 11),
        (11, [8, 4], 1, 19),
        (10, None, 1, 11),
        (7, [8, 0], 1, 15),
    ],
)
def test_the_warm_up_comes_before_the_step(count: int, align: Any, warm: int, boundary: int) -> None:
    """The next of 4, 12, 20 …, and one before where a step is for warming up; after step 7 it is too late for 8."""
    window = Window({"align": align}, first=False, by_steps=True)
    assert window.first_boundary(count, warm) == boundary


@pytest.mark.parametrize(("count", "warm", "boundary"), [(10, 0, 12), (11, 1, 19), (10, 1, 11), (12, 0, 20)])
def test_listed_steps_leave_room_for_the_warm_up(count: int, warm: int, boundary: int) -> None:
    """Of 12 and 20, in any order; a remainder beside them is for older hooks."""
    window = Window({"at_steps": [20, 12], "align": [1 << 20, 12]}, first=False, by_steps=True)
    assert window.first_boundary(count, warm) == boundary


@pytest.mark.parametrize(
    ("path", "groups", "count"),
    [("native", "", None), ("native", ALONE, 1), ("plain", ALONE + "dist.new_group([0])\n", 2)],
)
def test_the_trace_names_the_group(jobs: Jobs, agent: LittleAgent, path: str, groups: str, count: int | None) -> None:
    """The one group of a job that has one; a second one is counted, and none is told where there is none."""
    code = TRAIN + groups + UNTIL_STDIN_CLOSES + LOOP
    job = jobs.start(code, agent.path, run=True, ROOFWATCH_HOOK_CLOSE=path)
    _, trace = agent.accept().take(steps=2)
    told = json.loads(trace).get("distributedInfo")
    if count is None:
        assert told is None
    else:
        assert (told["rank"], told["world_size"], told["backend"], told["pg_count"]) == (0, 1, "gloo", count)
        assert told["pg_config"] == [{"pg_name": "0", "pg_desc": "default_pg", "pg_size": 1, "ranks": [0]}]
    ended = jobs.end(job)
    assert (ended.code, ended.err) == (0, "")


def test_gloos_threads_are_waited_for_at_exit(jobs: Jobs, agent: LittleAgent) -> None:
    """A thread of that name which still runs is waited for, at most a second; one that sleeps, and none, are not."""
    code = """
import ctypes, threading, time
from roofwatch.hook import groups
def took():
    begun = time.monotonic()
    groups.leave()
    return time.monotonic() - begun
print(took() < 0.1)
over, named = threading.Event(), threading.Semaphore(0)
def work(seconds):
    ctypes.CDLL(None).prctl(15, groups.WORKER.encode(), 0, 0, 0)  # PR_SET_NAME
    named.release()
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        sum(range(1000))
    over.wait()
for seconds, least, most in ((0, 0, 0.9), (0.5, 0.2, 2), (60, 1, 5)):
    threading.Thread(target=work, args=(seconds,), daemon=True).start()
    named.acquire()
    print(least <= took() < most)
import os, sys
sys.stdout.flush()
os._exit(0)
"""
    ended = jobs.end(jobs.start(code, agent.path))
    assert (ended.code, ended.out.split()) == (0, ["True"] * 4), ended
