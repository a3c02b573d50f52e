"""At which steps the ranks of a job meet: the same on all nodes, by the job's name alone."""

from __future__ import annotations

from itertools import islice, pairwise

import pytest

from roofwatch.agent.ranks import LISTED, Pace, key_of, level_of, meetings, next_meeting
from roofwatch.cli.render import captures
from roofwatch.proto.v1 import roofwatch_pb2 as pb
from roofwatch.store import capturing
from roofwatch.store.capturing import Target, asking, meeting, renewed, unseen

KEY = key_of(("alice", None, "slurm:7.0", 8))
MS = 1_000_000


def first(level: int, count: int, after: int = -1, key: int = KEY) -> list[int]:
    """The first meetings of a level."""
    return list(islice(meetings(key, level, after), count))


@pytest.mark.parametrize("level", [0, 1, 5, 12])
def test_each_block_has_one_and_gaps_are_less_than_two_blocks(level: int) -> None:
    """Block n is the steps from n·2^level on; level 0 is every step."""
    found = first(level, 500)
    assert [step >> level for step in found] == list(range(500))
    assert max(b - a for a, b in pairwise(found)) < 2 * 2**level
    if level == 0:
        assert found == list(range(500))


def test_meetings_of_a_level_are_among_those_of_the_level_below() -> None:
    """From any step on, over eight levels: who takes fewer windows takes some of the others' steps."""
    below = set(first(3, 1 << 13))
    for level in range(4, 11):
        here = first(level, 1 << (16 - level))
        assert set(here) <= below
        assert first(level, 20, after=here[30]) == here[31:51]  # whoever looks first sees the same
        below = set(here)


def test_no_periodic_work_is_met_always_or_never() -> None:
    """Of 4,000 meetings 64 steps apart, of each remainder modulo 8, 10 and 64 as many as chance gives (± 5 sigma)."""
    found = first(6, 4000)
    for modulus in (8, 10, 64):
        expected = 4000 / modulus
        counts = [sum(step % modulus == remainder for step in found) for remainder in range(modulus)]
        assert max(abs(count - expected) for count in counts) < 5 * expected**0.5


def test_the_key_is_the_job_and_its_size_and_nothing_of_a_node() -> None:
    """Users and containers differ between nodes; other jobs meet elsewhere."""
    assert key_of(("alice", None, "slurm:7.0", 8)) == key_of(("1000", "c" * 64, "slurm:7.0", 8))
    others = [
        key_of((None, None, name, size)) for name, size in (("slurm:7.0", 16), ("slurm:7.1", 8), ("slurm:8.0", 8))
    ]
    assert len({KEY, *others}) == 4
    for other in others:
        assert len(set(first(6, 500)) & set(first(6, 500, key=other))) < 30  # 500 / 64 by chance: 8


@pytest.mark.parametrize(
    ("interval_s", "step_ms", "level"),
    [(60, 100, 9), (60, 10_000, 3), (60, 60_000, 0), (60, 600_000, 0), (1, 20, 6), (600, 0.001, 20)],
)
def test_meetings_are_about_an_interval_apart(interval_s: float, step_ms: float, level: int) -> None:
    """60 s of steps of 0.1 s are 600, and 512 is nearer than 1,024; never less than every step, nor beyond 2^20."""
    assert level_of(interval_s, step_ms * MS) == level


def test_where_a_rank_is_is_reckoned_by_what_passed() -> None:
    """100 steps in 10 s are 100 ms each whatever the usual one; a job that began again tells anew."""
    pace = Pace()
    assert pace.count_at(5.0) is None
    pace.told(50, 10.0, None)
    assert pace.count_at(11.0) is None  # nobody knows how long a step is
    pace.told(51, 10.1, 80 * MS)
    assert pace.count_at(10.9) == 61
    pace.told(151, 20.1, 80 * MS)
    assert pace.count_at(21.15) == 161
    pace.told(3, 30.0, None)
    assert pace.count_at(31.0) is None


def test_a_rank_is_asked_before_the_meeting_and_told_the_next_ones() -> None:
    """Steps of 0.1 s, an interval of 60 s: blocks of 512. It may be slower than reckoned: earlier ones are told too."""
    pace = Pace(10_000, 100.0, 100.0 * MS)
    for now in (100.0, 130.0, 400.0):
        found = next_meeting(KEY, pace, 60.0, now)
        assert found is not None
        count = 10_000 + int((now - 100) / 0.1)
        ahead = first(9, LISTED + 1, after=count)
        at = now + (ahead[0] - count) * 0.1
        assert found.wait_s == pytest.approx(max(0.0, at - now - min(15.0, 2 + 0.1 * (at - 100))), abs=0.2)
        assert found.apart_s == pytest.approx(51.2)
        assert ahead[0] in found.steps[:3]
        assert found.steps[0] > 10_000
        assert list(found.steps) == first(9, LISTED, after=found.steps[0] - 1)
    assert next_meeting(KEY, Pace(), 60.0, 1.0) is None


def found(rank: int, steps: int = -1, step_ns: int = -1, job: str = "j", size: int = 4, agent: str = "a") -> Target:
    """A process that an agent has."""
    process = pb.FoundProcess(
        process=f"{rank:016x}", pid=100 + rank, job=job, rank=rank, world_size=size, steps=steps, step_ns=step_ns
    )
    return Target(agent, f"host-{agent}", process)


def test_whom_a_capture_asks() -> None:
    """The lowest rank, those named, or all; a process that is no rank of several is one of its own."""
    ranks = [found(rank, agent="ab"[rank % 2]) for rank in (3, 1, 2)]
    alone = found(0, job="", size=1)

    def pids(**how) -> tuple[list[list[int]], int]:
        asked = asking([*ranks, alone], how.pop("ranks", ()), all_ranks=how.pop("all_ranks", False))
        return [[target.process.pid for target in job] for job in asked.jobs], asked.passed_over

    assert pids() == ([[101], [100]], 2)
    assert pids(all_ranks=True) == ([[101, 102, 103], [100]], 0)
    assert pids(ranks=[2, 9]) == ([[102]], 3)


def test_more_than_is_asked_at_once_is_passed_over() -> None:
    """Of two jobs of three ranks four are asked; of those that were left out before, one."""
    jobs = [[Target("a", "node", pb.FoundProcess(process=f"{job}{rank}")) for rank in range(3)] for job in range(2)]
    some = capturing.first(capturing.Asking(jobs, 1), 4)
    assert [target.process.process for target in some.targets] == ["00", "01", "02", "10"]
    assert some.passed_over == 3


def test_a_job_that_claims_two_billion_ranks_is_told_of_in_a_line() -> None:
    """Which of them have no agent is not listed in memory."""
    query = {"ranks": [], "all_ranks": True, "node": None, "process": None}
    rows = [{"rank": 1, "outcome": "taken", "reason": None, "trace_reason": None}]
    answer = {"query": query, "coverage": {"world_size": 2_000_000_000, "silent": []}, "rows": rows}
    (told,) = captures.notes(answer)
    assert told.startswith("ranks 0, 2, 3, 4 and 1,999,999,995 more of 2,000,000,000: registered with no agent")
    assert captures.code(answer) == 4


def test_ranks_of_which_nothing_is_known_are_asked_first() -> None:
    """Not one that steps, nor one whose windows tell that it does not; nor a process alone, which meets nobody."""
    idle = found(2)
    idle.process.windows = 3
    job = [found(0, 1000, 50 * MS), found(1), idle]
    assert unseen(job) == [job[1]]
    assert unseen(job[1:2]) == []
    asked = asking(job, (), all_ranks=True)
    now = renewed(asked, [found(1, 7, 50 * MS), found(9, 1, 1)])
    assert [target.process.steps for target in now.targets] == [1000, 7, -1]


def test_ranks_are_told_a_remainder_half_a_modulus_ahead_of_the_furthest() -> None:
    """Steps of 50 ms: 80 in 4 s, so modulo 128; the furthest is at 1,010, so they open at 1,074."""
    told = [found(rank, steps, 50 * MS).process for rank, steps in ((0, 1000), (1, 1010))]
    assert meeting(told) == (128, 1074 % 128)
    assert meeting(told[:1]) == (0, 0)  # alone it opens at its next step
    assert meeting([found(0).process, found(1).process]) == (1, 0)  # nobody has seen them step
    modulus, remainder = meeting([*told, found(2).process])
    assert (modulus, 0 <= remainder < 128) == (128, True)
