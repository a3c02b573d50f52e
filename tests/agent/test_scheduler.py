"""When processes are asked, and which answers count."""

from __future__ import annotations

import asyncio
from itertools import pairwise

from scheduling import MS, Peer, scheduled

from roofwatch.agent import asking
from roofwatch.agent import scheduler as module
from roofwatch.agent.config import Config
from roofwatch.agent.counters import Counters
from roofwatch.agent.plan import Seen, Wish
from roofwatch.agent.schedule import DURATION_MOST_MS, STEPS_MOST
from roofwatch.agent.scheduler import Scheduler
from roofwatch.model.record import Trigger


def test_processes_do_not_fire_at_once(run_loop, eventually):
    """Twelve processes that register together are asked one by one, at least 0.1 s apart less scheduling noise."""

    async def main():
        scheduler, _, members = scheduled(12, interval=4)
        await eventually(lambda: all(member.sent for member in members), 8)
        scheduler.stop()
        times = sorted(member.times[0] for member in members)
        gaps = [b - a for a, b in pairwise(times)]
        assert min(gaps) > 0.095
        assert times[-1] - times[0] < 5

    run_loop(main)


def test_jobs_of_a_node_are_spread_out(run_loop, eventually):
    """Two jobs, 2 s: an eighth of a half of it is 0.125 s, between any two requests of four rounds and more."""

    async def main():
        scheduler, _, members = scheduled(2, interval=2)
        for number in range(4):
            await eventually(lambda: all(len(member.sent) > number for member in members), 8)  # noqa: B023
            for member in members:
                if scheduler.answered(member, member.sent[-1]["request"]):
                    scheduler.learned(member, Seen(50 * MS, 500, None))
        scheduler.stop()
        times = sorted(moment for member in members for moment in member.times)
        assert min(b - a for a, b in pairwise(times)) > 0.12

    run_loop(main)


def test_each_process_is_asked_once_an_interval_with_jitter(run_loop, eventually):
    """0.5 s ± 15 % and at most a spacing of 0.1 s (twice, for one that was due together with another)."""

    async def main():
        scheduler, counters, members = scheduled(1, interval=0.5)
        member = members[0]
        for number in range(6):
            await eventually(lambda: len(member.sent) == number + 1, 3)  # noqa: B023 - awaited here
            scheduler.answered(member, member.sent[-1]["request"])
            scheduler.learned(member, Seen(50 * MS, 500, 1))
        scheduler.stop()
        gaps = [b - a for a, b in pairwise(member.times[2:])]  # settled after two
        assert all(0.42 < gap < 1.5 for gap in gaps)
        assert len({round(gap, 3) for gap in gaps}) > 1
        assert counters.windows == {"requested": 6}

    run_loop(main)


def test_one_request_at_a_time_and_only_its_answer_counts(run_loop):
    """A second request is busy; an answer with another number, a second answer, and one after it has gone are none."""

    async def main():
        scheduler, counters, (member,) = scheduled(1, interval=3600)
        assert scheduler.request(member, Wish(2, 200)) == ""
        assert scheduler.request(member, Wish(2, 200)) == "busy"
        number = member.sent[0]["request"]
        assert scheduler.answered(member, number + 1) is None
        answered = scheduler.answered(member, number)
        assert (answered.trigger, answered.plan.shapes) == (Trigger.REQUESTED, False)
        assert scheduler.answered(member, number) is None
        assert scheduler.request(member, Wish(2, 200)) == ""
        scheduler.remove(member)
        assert scheduler.answered(member, number + 1) is None
        assert scheduler.request(member, Wish(2, 200)) == "gone"
        assert counters.refusals == {"closed": 1}

    run_loop(main)


def test_an_answer_that_does_not_come_is_counted_and_the_next_is_asked(run_loop, eventually, monkeypatch):
    """With a patience of 0.2 s: no_answer, and the process is asked again at its interval."""
    monkeypatch.setattr(asking, "FIRST_STEP_WITHIN_S", 0.1)
    monkeypatch.setattr(asking, "SLACK_S", 0.05)

    async def main():
        scheduler, counters, (member,) = scheduled(1, interval=0.5, budget=50, hard_stop=100)
        await eventually(lambda: len(member.sent) == 2, 5)
        assert counters.refusals["no_answer"] == 1
        assert scheduler.answered(member, member.sent[0]["request"]) is None
        scheduler.stop()

    run_loop(main)


def test_refusals_are_counted_and_lasting_ones_are_asked_less_often(run_loop):
    """Busy: the next interval (0.5 s). Unsafe: eight times that, so not within 1.2 s."""

    async def main():
        scheduler, counters, (busy, unsafe) = scheduled(2, interval=0.5)
        for member, reason in ((busy, "busy"), (unsafe, "unsafe")):
            scheduler.request(member, Wish(1, 10))
            scheduler.answered(member, member.sent[0]["request"], refused=reason)
        await asyncio.sleep(1.2)
        assert counters.refusals == {"busy": 1, "unsafe": 1}
        assert (len(busy.sent), len(unsafe.sent)) == (2, 1)
        scheduler.stop()

    run_loop(main)


def test_no_window_is_taken_that_would_be_thrown_away(run_loop, eventually):
    """While four traces wait to be read nobody is asked; when they are read, the process is."""
    waiting = [4]

    async def main():
        scheduler, counters, (member,) = scheduled(1, lambda: waiting[0], interval=0.5)
        await asyncio.sleep(1)
        assert member.sent == []
        assert counters.windows["deferred"] >= 1
        waiting[0] = 0
        await eventually(lambda: member.sent, 3)
        scheduler.stop()

    run_loop(main)


def test_a_window_represents_the_time_since_the_one_before(run_loop):
    """First: unknown. 7 s later: 7 s. 100 s later, interval 10 s: 20 s. After the clock went back: unknown."""

    async def main():
        scheduler, _, (member,) = scheduled(1, interval=10)
        second = 1_000_000_000
        assert scheduler.books.represents_ns(member, 1000 * second) is None
        assert scheduler.books.represents_ns(member, 1007 * second) == 7 * second
        assert scheduler.books.represents_ns(member, 1107 * second) == 20 * second
        assert scheduler.books.represents_ns(member, 1100 * second) is None
        assert scheduler.books.represents_ns(member, 1101 * second) == 1 * second
        scheduler.stop()

    run_loop(main)


def test_the_schedule_can_be_changed_and_wild_wishes_are_bounded(run_loop, eventually):
    """From an hour to a second; 0 leaves a value as it is; a million steps become what is allowed."""

    async def main():
        scheduler, _, (member,) = scheduled(1, interval=3600, steps=3)
        scheduler.set_schedule(0, 0, 70)
        assert (scheduler.schedule.interval_s, scheduler.schedule.wish.steps, scheduler.schedule.wish.duration_ms) == (
            3600,
            3,
            70,
        )
        scheduler.set_schedule(1, 1_000_000, 1_000_000)
        assert (scheduler.schedule.interval_s, scheduler.schedule.wish) == (1, Wish(STEPS_MOST, DURATION_MOST_MS))
        await eventually(lambda: member.sent, 3)
        scheduler.stop()

    run_loop(main)


def test_an_npu_has_time_for_its_analysis_and_its_metrics_in_turn(run_loop, monkeypatch):
    """A process whose windows are analysed beside it is waited for as long as that may take; others are not."""
    monkeypatch.setattr(asking, "FIRST_STEP_WITHIN_S", 0)
    monkeypatch.setattr(asking, "SLACK_S", 0)

    async def main():
        names = ("PipeUtilization", "MemoryAccess")
        scheduler = Scheduler(Config(interval=3600, npu_metrics=names), Counters(), lambda: 0)
        npu, other = Peer("npu"), Peer()
        for peer in (npu, other):
            scheduler.add(peer)
        asked = []
        for _ in range(3):
            assert scheduler.request(npu, Wish(2, 200)) == ""
            asked.append(npu.sent[-1]["metrics"])
            await asyncio.sleep(0.12)  # more than the patience with others: 50 ms, the first window's length
            assert scheduler.answered(npu, npu.sent[-1]["request"]) is not None
            scheduler.learned(npu, Seen(50 * MS, 500, 1))
        assert asked == ["PipeUtilization", "MemoryAccess", "PipeUtilization"]
        assert scheduler.request(other, Wish(2, 200)) == ""
        assert "metrics" not in other.sent[-1]
        await asyncio.sleep(0.12)
        assert scheduler.answered(other, other.sent[-1]["request"]) is None
        scheduler.stop()

    run_loop(main)


def test_ranks_of_a_job_are_asked_together_for_the_same_steps(run_loop, eventually):
    """Three ranks of one job, one of another, one process without a rank: each job has its own steps, the last none.

    Steps of 20 ms, counted by the test's own clock. A fresh process is asked four times as often as every 2 s: about
    every 0.5 s, 25 steps, so a meeting in each block of 32 (the nearest power of two). Told are the meetings ahead.
    """

    async def main():
        scheduler, _, _ = scheduled(0, interval=2)
        clock = asyncio.get_running_loop().time
        begun = clock()
        ranks = [Peer(rank=rank) for rank in range(3)]
        others = [Peer(rank=1, job="slurm:8.0"), Peer()]
        for member in (*ranks, *others):
            scheduler.add(member)
        rounds = []
        for number in range(3):
            await eventually(lambda: all(len(m.sent) == number + 1 for m in (*ranks, *others)), 8)  # noqa: B023
            rounds.append([member.sent[-1].get("at_steps") for member in (*ranks, *others)])
            assert max(m.times[-1] for m in ranks) - min(m.times[-1] for m in ranks) < 0.05
            count = 1000 + int((clock() - begun) / 0.02)
            for member in (*ranks, *others):
                scheduler.stepped(member, count, 20 * MS)
                scheduler.answered(member, member.sent[-1]["request"])
                scheduler.learned(member, Seen(50 * MS, 500, 2 if number else None, 20 * MS))
        scheduler.stop()
        assert rounds[0] == [None] * 5  # nobody knows yet where the steps are
        for at in rounds[1:]:
            assert at[0] == at[1] == at[2] != at[3]
            assert at[4] is None
            assert at[0] == sorted(set(at[0]))
            assert len({step // 32 for step in at[0]}) == len(at[0]) == 16
        own = [m for m in ranks[0].sent if "at_steps" in m]
        assert [m["align"] for m in own] == [[1 << 20, m["at_steps"][0]] for m in own]
        assert [m["trigger"] for m in ranks[0].sent] == ["synchronized"] * 3
        assert {m["trigger"] for m in others[1].sent} == {"periodic"}

    run_loop(main)


def test_a_rank_waits_for_the_others_but_not_for_ever(run_loop, eventually, monkeypatch):
    """One rank's window is still being read, so the other is not asked alone; after two waits it is."""
    monkeypatch.setattr(module, "RANKS_WAIT", 2)

    async def main():
        scheduler, counters, _ = scheduled(0, interval=1)
        first, second = Peer(rank=0), Peer(rank=1)
        for member in (first, second):
            scheduler.add(member)
        await eventually(lambda: first.sent and second.sent, 5)
        for member in (first, second):
            scheduler.answered(member, member.sent[-1]["request"])
        scheduler.learned(first, Seen(50 * MS, 500, 2, 10 * MS))
        await eventually(lambda: len(first.sent) == 2, 8)
        assert len(second.sent) == 1
        assert counters.windows["deferred"] >= 2
        assert "align" not in first.sent[-1]
        scheduler.stop()

    run_loop(main)


def test_nobody_waits_for_a_rank_that_cannot_take_windows(run_loop, eventually):
    """A rank refuses for good: the other two go on together, and it is not asked with them."""

    async def main():
        scheduler, counters, _ = scheduled(0, interval=0.5)
        ranks = [Peer(rank=rank) for rank in range(3)]
        for member in ranks:
            scheduler.add(member)
        await eventually(lambda: all(member.sent for member in ranks), 5)
        scheduler.answered(ranks[2], ranks[2].sent[-1]["request"], refused="unsupported")
        for number in range(2):
            for member in ranks[:2]:
                scheduler.stepped(member, 1000 + 50 * number, 10 * MS)
                scheduler.answered(member, member.sent[-1]["request"])
                scheduler.learned(member, Seen(50 * MS, 500, 2, 10 * MS))
            await eventually(lambda: all(len(m.sent) == number + 2 for m in ranks[:2]), 3)  # noqa: B023
        assert len(ranks[2].sent) == 1
        assert ranks[0].sent[-1]["at_steps"] == ranks[1].sent[-1]["at_steps"]
        assert counters.windows.get("deferred", 0) == 0
        scheduler.stop()

    run_loop(main)
