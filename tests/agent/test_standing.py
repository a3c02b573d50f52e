"""Budget, spend, interval and its reason: in windows, of processes, in metrics; and that every window is charged."""

from __future__ import annotations

import dataclasses
import os
import re
import time
import urllib.request

import pytest

from roofwatch.agent import asking, standing
from roofwatch.agent.config import Config
from roofwatch.agent.counters import Counters
from roofwatch.agent.messages import hello_of
from roofwatch.agent.plan import Seen, Wish
from roofwatch.agent.scheduler import Scheduler
from roofwatch.model.record import Cost, Node, Process, Trigger
from roofwatch.proto import codec
from roofwatch.store.unpack import Unpacker

MS = 1_000_000
COST = {"close_path": "native", "open_ns": 1, "quiesce_ns": 2, "close_ns": 3, "save_ns": 4, "free_ns": 5}


class Peer:
    """A registered process's end of the conversation: keeps what it is sent."""

    def __init__(self, rank: int) -> None:
        self.connection = self
        self.process = Process(Node("here"), 100 + rank, job="slurm:7.0", rank=rank, world_size=8)
        self.hello = hello_of({"protocol": 1, "close_path": "native"})
        self.sent: list[dict] = []

    def send(self, message) -> bool:
        self.sent.append(message)
        return True


def scheduled(peers: int, **settings):
    """A scheduler, its counters, and so many ranks of one job."""
    counters = Counters()
    scheduler = Scheduler(Config(**settings), counters, lambda: 0)
    members = [Peer(rank) for rank in range(peers)]
    for member in members:
        scheduler.add(member)
    return scheduler, counters, members


def window(scheduler, member, ms: float) -> None:
    """A process is asked for a window and hands it in; it cost so much, by the steps."""
    scheduler.request(member, Wish(1, 10), Trigger.PERIODIC)
    asked = scheduler.answered(member, member.sent[-1]["request"])
    scheduler.books.paid(member, asked, lost(ms), 5000, 20)
    scheduler.learned(member, Seen(50 * MS, 5000, 2, 10 * MS))


def lost(ms: float) -> Cost:
    """What a window cost."""
    return Cost("native", MS, 0, 0, 0, 0, 10 * MS, None, int(ms * MS), 0)


def scrape(agent):
    """Every sample by its name with labels."""
    port = re.search(r"event=metrics .*port=(\d+)", agent.log.read_text())[1]
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as page:
        lines = page.read().decode().splitlines()
    return {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in lines if not line.startswith("#")}


def cost_of(ms: float) -> dict[str, object]:
    """A window that cost so much, by the steps around it."""
    return COST | {"base_step_ns": 10 * MS, "lost_in_ns": int(ms * MS), "after_steps": 9, "lost_after_ns": 0}


def test_windows_and_processes_carry_the_account(agents, job, wait):
    """A cold start of 9 ms, one of 4 ms while the process is being learned, one that is refused."""
    agent = agents("--interval", "0.5", "--budget", "50", "--metrics", "127.0.0.1:0")
    before = time.time_ns()
    client = job(agent.socket, model="llama")
    client.answer(client.receive(), cost=cost_of(9))
    client.answer(client.receive(), cost=cost_of(4))
    request = client.receive()
    client.channel.send({"type": "refused", "request": request["request"], "reason": "own_profiler"})
    wait(lambda: agent.status()["refusals"].get("own_profiler") == 1, "a refusal")
    wait(lambda: agent.status()["windows"].get("recorded") == 2, "two windows read")
    (listed,) = agent.status()["process_list"]
    assert listed["budget"]["skipped"] == {"own_profiler": 1}
    found = scrape(agent)
    pid = os.getpid()
    assert found[f'roofwatch_agent_process_spent_ratio{{process_pid="{pid}"}}'] >= 0.013 / 60
    assert found[f'roofwatch_agent_process_interval_seconds{{process_pid="{pid}",reason="schedule"}}'] == 0.5
    assert found[f'roofwatch_agent_process_skipped_total{{process_pid="{pid}",reason="own_profiler"}}'] == 1
    assert found['roofwatch_agent_processes_by_reason{reason="schedule"}'] == 1
    assert found['roofwatch_agent_asked_total{reason="cold_start"}'] == 1
    assert found['roofwatch_agent_asked_total{reason="learning"}'] >= 1
    bounds = [found[f"roofwatch_agent_{name}"] for name in ("budget_ratio", "hard_stop_ratio", "interval_seconds")]
    assert bounds == [0.5, 1.0, 0.5]
    assert agent.stop() == 0

    segments = agent.segments()
    windows = [window for segment in segments for window in codec.windows(segment)]
    first, second = (window.budget for window in windows)
    # By their steps, and what reading them took of the node's processors.
    due = [ms * MS + round(w.cost.parse_cpu_ns / os.cpu_count()) for ms, w in zip((9, 4), windows, strict=True)]
    assert (first.reason, first.measured, first.interval_ns) == ("cold_start", True, MS * 500)
    assert [first.charged_ns, second.charged_ns] == pytest.approx(due, abs=1)
    assert (first.budget_share, first.hard_stop_share) == (0.5, 1.0)
    assert first.spent_share == pytest.approx(due[0] / 60e9)
    assert first.event_cap == 60_000
    assert (second.reason, second.spent_share) == ("learning", pytest.approx(sum(due) / 60e9))
    states = [state for segment in segments for state in codec.states(segment)]
    assert {state.process.pid for state in states} == {pid}
    last = states[-1]
    assert (dict(last.skipped), last.budget.charged_ns) == ({"own_profiler": 1}, second.charged_ns)
    assert before < last.since_unix_ns < last.unix_ns <= time.time_ns()


def test_a_window_that_had_begun_is_charged(agents, job, wait):
    """Given up because of a checkpoint: like others; refused before it began: nothing. Both are skipped windows."""
    agent = agents("--interval", "0.5")
    client = job(agent.socket)
    client.answer(client.receive(), cost=cost_of(30))
    wait(lambda: agent.status()["windows"].get("recorded") == 1, "a window read")
    for number, opened in enumerate((False, True), 1):
        request = client.receive()
        before = agent.status()["process_list"][0]["budget"]["spent_share"]
        refusal = {"type": "refused", "request": request["request"], "reason": "checkpoint", "opened": opened}
        client.channel.send(refusal)
        wait(lambda: agent.status()["refusals"].get("checkpoint") == number, "a refusal")  # noqa: B023
        spent = agent.status()["process_list"][0]["budget"]["spent_share"] - before
        assert spent == pytest.approx(0.03 / 60 if opened else 0, abs=0.003 / 60)


def test_where_windows_cost_nothing_one_given_up_costs_nothing(agents, job, wait):
    """By its steps the last window was free or less: one that is given up is not charged with all its time."""
    agent = agents("--interval", "0.5")
    client = job(agent.socket)
    client.answer(client.receive(), cost=cost_of(-5))  # noise: the steps inside were faster
    wait(lambda: agent.status()["windows"].get("recorded") == 1, "a window read")
    request = client.receive()
    client.channel.send({"type": "refused", "request": request["request"], "reason": "checkpoint", "opened": True})
    wait(lambda: agent.status()["refusals"].get("checkpoint") == 1, "a refusal")
    assert agent.status()["process_list"][0]["budget"]["spent_share"] < 0.02 / 60  # what reading took


def test_a_window_that_cannot_be_used_is_charged(agents, job, wait):
    """A message without a length, one without a descriptor, one of another day: each by what it says that it cost."""
    agent = agents("--interval", "0.5")
    client = job(agent.socket)
    client.answer(client.receive(), duration_ns="x", cost=cost_of(9))
    wait(lambda: agent.status()["drops"].get("bad_window") == 1, "a bad window")
    request = client.receive()
    client.channel.send({"type": "window", "request": request["request"], "start_unix_ns": time.time_ns(), "size": 9,
                         "duration_ns": 5, "cost": cost_of(5)})  # fmt: skip
    wait(lambda: agent.status()["drops"].get("trace_missing") == 1, "no trace")
    client.answer(client.receive(), start_unix_ns=5, cost=cost_of(2))
    wait(lambda: agent.status()["drops"].get("bad_window") == 2, "another day")
    (listed,) = agent.status()["process_list"]
    assert listed["budget"]["spent_share"] == pytest.approx(0.016 / 60)
    client.answer(client.receive(), duration_ns="x")  # nothing is told: as the dearest half of the others
    wait(lambda: agent.status()["drops"].get("bad_window") == 3, "the third")
    (listed,) = agent.status()["process_list"]
    assert listed["budget"]["spent_share"] == pytest.approx((0.016 + 0.005) / 60)


def test_a_window_that_comes_late_or_never_is_charged(run_loop, eventually, monkeypatch):
    """Never: as the last ones cost (20 ms). Late: the 70 ms it cost, of which 20 are paid. Never asked: nothing."""
    monkeypatch.setattr(asking, "FIRST_STEP_WITHIN_S", 0)
    monkeypatch.setattr(asking, "SLACK_S", 0)

    async def main():
        scheduler, counters, (member,) = scheduled(1, interval=3600, budget=100, hard_stop=100)
        window(scheduler, member, 20)
        scheduler.request(member, Wish(1, 10))
        await eventually(lambda: counters.refusals["no_answer"], 5)
        spent = scheduler.books.budget_of(member)["spent_share"]
        assert spent == pytest.approx(0.040 / 60)
        number = member.sent[-1]["request"]
        assert scheduler.late(member, number + 1) is None
        late = scheduler.late(member, number)
        assert late is not None
        assert scheduler.late(member, number) is None
        scheduler.books.paid(member, late, lost(70), 100, 9)
        assert scheduler.books.budget_of(member)["spent_share"] == pytest.approx(0.090 / 60)
        assert scheduler.books.state_of_window(member, late).reason == "requested"
        scheduler.stop()

    run_loop(main)


def test_a_rank_that_goes_leaves_its_window_to_the_others(run_loop):
    """It was asked, and is gone: the account that two ranks share pays for the 50 ms that it might have taken."""

    async def main():
        scheduler, _, ranks = scheduled(2, interval=3600, budget=100, hard_stop=100)
        scheduler.request(ranks[0], Wish(1, 10))
        scheduler.remove(ranks[0])
        assert scheduler.books.budget_of(ranks[1])["spent_share"] == pytest.approx(0.050 / 60)
        told = scheduler.books.states(())
        assert [(s.process.rank, s.budget.charged_ns) for s in told] == [(0, 50 * MS), (1, None)]
        assert [s.budget.reason for s in told] == ["cold_start", "cold_start"]
        scheduler.stop()

    run_loop(main)


def test_what_a_job_makes_up_spoils_no_segment(run_loop):
    """A window that cost 2⁵¹ ns, by its own word, at the smallest budget: the store takes what is told of it."""

    async def main():
        scheduler, _, (member, other) = scheduled(2, interval=60, budget=0.001, hard_stop=1e300)
        scheduler.request(member, Wish(1, 10))
        asked = scheduler.answered(member, member.sent[-1]["request"])
        huge = (1 << 50) - 1
        scheduler.books.paid(member, asked, Cost("native", MS, 0, 0, 0, 0, 1, None, huge, huge), 1 << 40, 9)
        states = scheduler.books.states(())
        assert states[0].budget == dataclasses.replace(
            states[0].budget, charged_ns=huge, balance_ns=-huge, interval_ns=huge, hard_stop_share=1e6
        )
        envelope = codec.seal(codec.segment([], {}, states), "a", "b", 1)
        assert {state.process.id for _, state in Unpacker().unpack(envelope).states} == {
            member.process.id, other.process.id
        }  # fmt: skip
        scheduler.stop()

    run_loop(main)


def test_the_interval_in_force_and_when_it_is_told(run_loop, monkeypatch):
    """At 0.5 % 300 ms are paid in a minute, 600 ms in two. A refusal for good: eight times. Told when it changes."""

    async def main():
        scheduler, _, (member, other) = scheduled(2, interval=60)
        assert [s.budget.interval_ns for s in scheduler.books.states(())] == [60 * 10**9] * 2
        assert scheduler.books.states(()) == []
        window(scheduler, member, 300)
        (state,) = scheduler.books.states({member.process.id})
        assert (state.budget.reason, state.budget.interval_ns) == ("learning", 60 * 10**9)
        for _ in range(2):  # expected is the median: 600
            scheduler.books.slots[member].account.payments.clear()  # or the hard stop would hold
            window(scheduler, member, 600)
        (state,) = scheduler.books.states({member.process.id})
        assert (state.budget.interval_ns, state.budget.balance_ns < 0) == (120 * 10**9, True)
        scheduler.set_schedule(600, 0, 0)
        (state,) = scheduler.books.states({member.process.id})
        assert (state.budget.reason, state.budget.interval_ns) == ("schedule", 600 * 10**9)
        scheduler.set_schedule(60, 0, 0)
        scheduler.request(other, Wish(1, 10))
        scheduler.answered(other, other.sent[-1]["request"], refused="unsupported")
        monkeypatch.setattr(standing, "AGAIN_S", 0)
        told = {s.process.id: s for s in scheduler.books.states(())}
        refused = told[other.process.id]
        assert refused.budget.reason == "unsupported"
        assert refused.budget.interval_ns / 1e9 == pytest.approx(480, rel=0.001)
        assert dict(refused.skipped) == {"unsupported": 1}
        assert scheduler.books.states(()) == []
        scheduler.stop()

    run_loop(main)
