"""Ranks laid side by side, against values worked out by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roofwatch.model.peers import SLACK_NS, Communication, Sight, communication, together
from roofwatch.model.record import Collective

MS = 1_000_000
START = 1_700_000_000_000_000_000
GROUP = "0 (0-3)"


def collective(duration_ns: int, start: int = 0, sequence: int | None = None, **more: object) -> Collective:
    """An all_reduce of 4 KiB among four ranks."""
    made = Collective(0, "all_reduce", GROUP, START + start, duration_ns, 4, sequence, 4096)
    return replace(made, **more)  # type: ignore[arg-type]


def test_the_last_to_arrive_waits_least() -> None:
    """Four ranks, one all_reduce of 2 ms; ranks 0, 1, 2 arrive 5, 3, 0.5 ms before rank 3.

    Durations 7, 5, 2.5, 2 ms: moving is 2 ms on each, waiting 5, 3, 0.5, 0; rank 3 caused 8.5 ms.
    """
    ranks = {rank: [collective(ns, sequence=7)] for rank, ns in enumerate((7 * MS, 5 * MS, 2_500_000, 2 * MS))}
    sums = communication(ranks, same_step=False)
    assert [sums[rank].moving_ns for rank in range(4)] == [2 * MS] * 4
    assert [sums[rank].waiting_ns for rank in range(4)] == [5 * MS, 3 * MS, 500_000, 0]
    assert [sums[rank].last_calls for rank in range(4)] == [0, 0, 0, 1]
    assert sums[3].caused_ns == 8_500_000
    assert all(s.complete_calls == s.matched_calls == s.calls == 1 for s in sums.values())


def test_a_missing_rank_leaves_a_lower_bound() -> None:
    """Three of four ranks with 7, 5 and 2.5 ms: the fourth may have waited less. Waiting is at least 4.5, 2.5 and 0."""
    ranks = {rank: [collective(ns, sequence=7)] for rank, ns in enumerate((7 * MS, 5 * MS, 2_500_000))}
    sums = communication(ranks, same_step=False)
    assert [s.waiting_ns for s in sums.values()] == [4_500_000, 2_500_000, 0]
    assert [s.matched_calls for s in sums.values()] == [1, 1, 1]
    assert [s.complete_calls for s in sums.values()] == [0, 0, 0]


def test_a_slow_link_shows_on_one_machine() -> None:
    """Rank 3 arrives 2 ms after the others each time, and needs 5 ms where the others are through 3 ms later.

    By one clock: the others wait 2 ms and move 3, rank 3 waits for nobody and moves 5; it caused 3 × 2 ms. By durations
    all four have 5 ms, and nothing is to be seen.
    """
    ranks = {rank: [collective(5 * MS, 2 * MS if rank == 3 else 0, sequence=7)] for rank in range(4)}
    sums = communication(ranks, same_step=False, clocks=dict.fromkeys(range(4), "here"))
    assert [sums[rank].waiting_ns for rank in range(4)] == [2 * MS, 2 * MS, 2 * MS, 0]
    assert [sums[rank].moving_ns for rank in range(4)] == [3 * MS, 3 * MS, 3 * MS, 5 * MS]
    assert (sums[3].last_calls, sums[3].caused_ns) == (1, 6 * MS)
    apart = communication(ranks, same_step=False, clocks={0: "a", 1: "a", 2: "a", 3: "b"})
    assert [s.waiting_ns for s in apart.values()] == [0] * 4


@pytest.mark.parametrize(("late", "by_clock"), [(9 * MS, False), (7_900_000, True)])
def test_clocks_that_cannot_be_one(late: int, by_clock: bool) -> None:
    """Rank 0 would be through with an all_reduce 2 ms before rank 1 arrives: no clock, then durations tell (7 and 4).

    0.9 ms is what two recorders may be apart: rank 0 waited all of its 7 ms.
    """
    ranks = {0: [collective(7 * MS, group_size=2)], 1: [collective(4 * MS, late, group_size=2)]}
    sums = communication(ranks, same_step=True, clocks={0: "here", 1: "here"})
    assert [sums[0].waiting_ns, sums[1].waiting_ns] == ([7 * MS, 0] if by_clock else [3 * MS, 0])


def test_an_unknown_group_size_is_not_complete() -> None:
    """Both ranks that there are may not be all that there are."""
    ranks = {rank: [collective(ns, sequence=1, group_size=None)] for rank, ns in enumerate((3, 5))}
    assert [s.complete_calls for s in communication(ranks, same_step=False).values()] == [0, 0]


def test_ordinals_match_only_within_one_step() -> None:
    """Without sequence numbers the second 4 KiB all_reduce of each rank is the same, if both begin at the same step.

    Rank 0 has 4 KiB, 8 KiB, 4 KiB of 10, 20, 30 ns; rank 1 4 KiB, 4 KiB of 12, 25 (its 8 KiB was not seen).
    First: moving 10, rank 1 waits 2. Third: moving 25, rank 0 waits 5. The 8 KiB one stays unmatched.
    """
    first = [collective(10, 0), collective(20, 100, bytes=8192), collective(30, 200)]
    second = [collective(25, 210), collective(12, 0)]  # the order in a window is that of the starts
    pair = [replace(c, group_size=2) for c in first], [replace(c, group_size=2) for c in second]
    sums = communication({0: pair[0], 1: pair[1]}, same_step=True)
    assert (sums[0].calls, sums[0].total_ns, sums[0].matched_calls, sums[0].matched_ns) == (3, 60, 2, 40)
    assert (sums[0].moving_ns, sums[0].waiting_ns) == (35, 5)
    assert (sums[1].moving_ns, sums[1].waiting_ns) == (35, 2)
    assert (sums[0].last_calls, sums[0].caused_ns) == (1, 2)
    assert (sums[1].last_calls, sums[1].caused_ns) == (1, 5)
    apart = communication({0: pair[0], 1: pair[1]}, same_step=False)
    assert [s.matched_calls for s in apart.values()] == [0, 0]


def test_uneven_messages_match_by_their_order() -> None:
    """Ranks of an all_to_all put in different sizes, so size does not tell one from another."""
    ranks = {
        rank: [collective(5 + rank, 0, name="all_to_all", group_size=2, bytes=100 + rank)] for rank in range(2)
    }  # fmt: skip
    assert [s.waiting_ns for s in communication(ranks, same_step=True).values()] == [0, 1]
    assert [s.matched_calls for s in communication(ranks, same_step=True).values()] == [1, 1]


@pytest.mark.parametrize("more", [{"name": "send"}, {"name": ""}, {"group": ""}])
def test_what_cannot_be_found_on_another_rank_is_counted_only(more: dict[str, str]) -> None:
    """A message between two ranks, an unknown collective and an unknown group stay unmatched, with all their time."""
    ranks = {rank: [collective(9, sequence=1, **more)] for rank in range(4)}
    sums = communication(ranks, same_step=True)
    assert [(s.calls, s.total_ns, s.matched_ns, s.waiting_ns) for s in sums.values()] == [(1, 9, 0, 0)] * 4


def test_groups_are_told_apart_and_a_rank_alone_waits_for_nobody() -> None:
    """The same number in another group is another collective; a group of one is all moving and never last."""
    ranks = {
        0: [collective(9, sequence=1, group="1 (0)", group_size=1)],
        1: [collective(5, sequence=1, group="2 (1,2)", group_size=2)],
        2: [collective(7, sequence=1, group="2 (1,2)", group_size=2)],
    }
    sums = communication(ranks, same_step=True)
    assert (sums[0].moving_ns, sums[0].complete_calls, sums[0].last_calls) == (9, 1, 0)
    assert (sums[2].waiting_ns, sums[1].caused_ns) == (2, 2)


def test_a_tie_has_no_last_rank() -> None:
    """Durations 5, 5 and 8: two arrived together, and nobody can say which of them was last."""
    ranks = {rank: [collective(ns, sequence=1, group_size=3)] for rank, ns in enumerate((5, 5, 8))}
    sums = communication(ranks, same_step=False)
    assert [s.last_calls for s in sums.values()] == [0, 0, 0]
    assert [s.waiting_ns for s in sums.values()] == [0, 0, 3]


def test_kernels_of_one_sequence_number_match_in_order() -> None:
    """A coalesced call launches several kernels under one number: 3 and 9 ns on one rank, 4 and 8 on the other."""
    ranks = {
        0: [collective(3, 0, 5, group_size=2), collective(9, 10, 5, group_size=2)],
        1: [collective(4, 0, 5, group_size=2), collective(8, 10, 5, group_size=2)],
    }
    sums = communication(ranks, same_step=False)
    assert [(s.moving_ns, s.waiting_ns) for s in sums.values()] == [(11, 1), (11, 1)]


@given(
    st.lists(st.lists(st.integers(0, 10**12), min_size=3, max_size=3), min_size=1, max_size=8),
    st.integers(2, 5),
)
def test_sums_add_up(durations: list[list[int]], size: int) -> None:
    """Matched = moving + waiting, no wait is negative, and somebody caused it unless the last ones arrived together."""
    ranks = {
        rank: [collective(ns[rank], i, i, group_size=size) for i, ns in enumerate(durations)] for rank in range(3)
    }  # fmt: skip
    sums = communication(ranks, same_step=False)
    for s in sums.values():
        assert s.waiting_ns >= 0
        assert s.matched_ns == s.total_ns == s.moving_ns + s.waiting_ns
        assert s.complete_calls == (len(durations) if size == 3 else 0)
    unique = [ns for ns in durations if min(ns) < sorted(ns)[1]]
    assert sum(s.caused_ns for s in sums.values()) == sum(sum(ns) - 3 * min(ns) for ns in unique)


def sight(
    number: int, rank: int, start: int, step: int | None = 100, process: int | None = None, run: str = "a"
) -> Sight:
    """A window of 200 ms."""
    return Sight(number, run, rank if process is None else process, rank, START + start, 200 * MS, step)


def ids(found: list[list[Sight]]) -> list[list[int]]:
    """The windows of each group."""
    return sorted(sorted(s.id for s in group) for group in found)


def test_windows_of_a_step_are_together() -> None:
    """Of two steps and two runs each rank's window goes with those of the same step of its run."""
    found = together(
        [
            sight(1, 0, 0), sight(2, 1, 3 * MS), sight(3, 0, 900 * MS, step=200), sight(4, 1, 905 * MS, step=200),
            sight(5, 1, 0, run="b"),
        ]
    )  # fmt: skip
    assert ids(found.together) == [[1, 2], [3, 4], [5]]
    assert found.ambiguous == 0


def test_a_run_that_starts_over_is_another_one() -> None:
    """The same steps, new processes, a minute later: nothing of the first run is laid beside the second."""
    again = [sight(3, 0, 60_000 * MS, process=10), sight(4, 1, 60_001 * MS, process=11)]
    assert ids(together([sight(1, 0, 0), sight(2, 1, 0), *again]).together) == [[1, 2], [3, 4]]


def test_two_processes_of_one_rank_at_once_are_left_out() -> None:
    """Two runs that nothing tells apart: none of their windows is compared, and that is counted."""
    found = together([sight(1, 0, 0), sight(2, 1, 0), sight(3, 0, MS, process=10), sight(4, 1, 900 * MS, step=200)])
    assert ids(found.together) == [[4]]
    assert found.ambiguous == 3


def test_windows_without_steps_must_overlap() -> None:
    """Timed windows of 200 ms: at 0 and 150 ms they overlap, at 0 and 250 they do not; a step may begin later."""
    assert ids(together([sight(1, 0, 0, None), sight(2, 1, 150 * MS, None)]).together) == [[1, 2]]
    assert ids(together([sight(1, 0, 0, None), sight(2, 1, 250 * MS, None)]).together) == [[1], [2]]
    assert ids(together([sight(1, 0, 0), sight(2, 1, 250 * MS)]).together) == [[1, 2]]
    assert ids(together([sight(1, 0, 0), sight(2, 1, 201 * MS + SLACK_NS)]).together) == [[1], [2]]


def test_a_window_without_a_time_is_compared_with_none() -> None:
    """An imported trace whose clock counts from nowhere could be of any run."""
    assert together([replace(sight(1, 0, 0), start_unix_ns=0), sight(2, 1, 0)]).together == [[sight(2, 1, 0)]]


def test_a_rank_with_windows_close_together_begins_a_new_group() -> None:
    """Rank 0 at 0 and 180 ms, rank 1 at 10 and 190: two pairs, and no group with a rank twice."""
    found = together(
        [sight(1, 0, 0, None), sight(2, 1, 10 * MS, None), sight(3, 0, 180 * MS, None), sight(4, 1, 190 * MS, None)]
    )
    assert ids(found.together) == [[1, 2], [3, 4]]


def test_sums_of_windows_add() -> None:
    """Every field adds."""
    total = Communication(1, 2, 3, 4, 5, 6, 7, 8, 9, 10)
    total.add(Communication(10, 20, 30, 40, 50, 60, 70, 80, 90, 100))
    assert total == Communication(11, 22, 33, 44, 55, 66, 77, 88, 99, 110)
