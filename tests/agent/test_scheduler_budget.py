"""What windows cost a job, and when the next one is paid for."""

from __future__ import annotations

import asyncio

from scheduling import MS, Peer, answer, lost, scheduled

from roofwatch.agent.config import Config
from roofwatch.agent.counters import Counters
from roofwatch.agent.plan import Wish
from roofwatch.agent.scheduler import Scheduler
from roofwatch.model.record import Node, Process


def test_a_job_that_comes_back_has_its_account(run_loop):
    """By run, or by process; a new one where the kernel does not say who it is, and for another job."""

    async def main():
        scheduler = Scheduler(Config(interval=3600, budget=1), Counters(), lambda: 0)
        alone, hidden = Peer(), Peer()
        alone.process = Process(Node("here"), 7, 1_000_000_000)
        for one in (Peer(rank=0), alone):
            scheduler.add(one)
            assert scheduler.request(one, Wish(2, 200)) == ""
            scheduler.remove(one)  # it owes a window of 50 ms at most: five seconds of a budget of 1 %
            again = Peer(rank=1) if one.process.rank == 0 else one
            scheduler.add(again)
            assert scheduler.books.budget_of(again)["balance_ns"] < -45 * MS
            scheduler.remove(again)
            scheduler.add(again)
            assert scheduler.books.budget_of(again)["balance_ns"] < -45 * MS
        for one in (hidden, Peer(rank=0, job="slurm:8.0")):
            scheduler.add(one)
            scheduler.request(one, Wish(2, 200))
            scheduler.remove(one)
            other = one if one is hidden else Peer(rank=0, job="slurm:9.0")
            scheduler.add(other)
            assert abs(scheduler.books.budget_of(other)["balance_ns"]) < MS
        scheduler.stop()

    run_loop(main)


def test_a_window_waits_until_the_job_has_paid_for_the_last_and_for_itself(run_loop, eventually):
    """At 10 % a window of 100 ms is a second of the job: the second comes after two, though the interval is 0.5 s."""

    async def main():
        scheduler, counters, (member,) = scheduled(1, interval=0.5, budget=10, hard_stop=100)
        await eventually(lambda: len(member.sent) == 1, 3)
        answer(scheduler, member, lost(100))
        began = asyncio.get_running_loop().time()
        await eventually(lambda: scheduler.books.budget_of(member)["reason"] == "budget", 2)
        told = scheduler.books.budget_of(member)
        assert told["window_cost_ns"] == 100 * MS
        assert told["measured"] is True
        assert 0 < told["next_s"] < 2.2
        await eventually(lambda: len(member.sent) == 2, 5)
        assert 1.4 < member.times[1] - began < 2.5
        assert counters.held == {"budget": 1}
        # What the budget made longer stands for its time: more than two intervals of half a second.
        assert scheduler.books.represents_ns(member, 10**18) is None
        assert scheduler.books.represents_ns(member, 10**18 + 2_000 * MS) == 2_000 * MS
        scheduler.stop()

    run_loop(main)


def test_windows_get_shorter_before_they_get_rarer(run_loop):
    """20 µs an event and an interval of 60 s: 0.8 of 300 ms are 12,000 events, 2.4 windows of 5,000: longest 0.12 s."""

    async def main():
        scheduler, _, (member,) = scheduled(1, interval=60, budget=0.5, hard_stop=1)
        scheduler.request(member, Wish(2, 200))
        answer(scheduler, member, lost(100))
        scheduler.request(member, Wish(100, 10_000))
        assert member.sent[-1]["max_ms"] == 96  # of 12,000 events 0.8 again, at 5,000 in 50 ms
        scheduler.stop()

    run_loop(main)


def test_not_even_a_window_by_hand_is_taken_over_the_hard_stop(run_loop):
    """A job that lost 700 ms of its first minute is over 1 %."""

    async def main():
        scheduler, counters, (member,) = scheduled(1, interval=3600)
        assert scheduler.request(member, Wish(2, 200)) == ""
        answer(scheduler, member, lost(700))
        assert scheduler.request(member, Wish(2, 200)) == "over_budget"
        assert counters.held == {"hard_stop": 1}
        scheduler.stop()

    run_loop(main)


def test_a_process_whose_steps_stay_slower_is_left_alone(run_loop, eventually):
    """5 % slower after a window and still through the next five: told once, and not asked for an hour."""

    async def main():
        scheduler, counters, (member,) = scheduled(1, interval=0.5, budget=100, hard_stop=100)
        await eventually(lambda: len(member.sent) == 1, 3)
        assert answer(scheduler, member, lost(5, after_ms=10)) is None
        for number in (2, 3, 4, 5):
            await eventually(lambda: len(member.sent) == number, 3)  # noqa: B023 - awaited here
            assert answer(scheduler, member, lost(5, base_ms=10.5)) is None
        await eventually(lambda: len(member.sent) == 6, 3)
        assert answer(scheduler, member, lost(5, base_ms=10.5)) > 0.049
        await eventually(lambda: counters.held["residue"] == 1, 3)
        told = scheduler.books.budget_of(member)
        assert told["reason"] == "residue"
        assert 3590 < told["next_s"] <= 3601
        assert len(member.sent) == 6
        scheduler.stop()

    run_loop(main)


def test_ranks_of_a_job_have_one_account(run_loop):
    """Two ranks asked together lost 200 and 100 ms: the job lost 200 of its first minute, on both."""

    async def main():
        scheduler, _, _ = scheduled(0, interval=3600)
        ranks = [Peer(rank=rank) for rank in range(2)]
        for rank in ranks:
            scheduler.add(rank)
        for rank in ranks:
            scheduler.request(rank, Wish(2, 200), batch=5)
        for rank, ms in zip(ranks, (200, 100), strict=True):
            answer(scheduler, rank, lost(ms))
        assert [round(scheduler.books.budget_of(rank)["spent_share"], 6) for rank in ranks] == [0.003333] * 2
        assert len(scheduler.books.spent_shares()) == 1
        scheduler.stop()

    run_loop(main)
