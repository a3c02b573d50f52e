"""Moving and waiting by the clock: collectives that overlap count once, and never make more than the time there is."""

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from roofwatch.model.peers import communication
from roofwatch.model.peers_clock import by_clock, covered
from roofwatch.model.record import Collective


def collective(start, duration, *, sequence, device=0, group="g", size=2, name="all_reduce"):
    """One that is found on other ranks by its group and number."""
    return Collective(device, name, group, start, duration, size, sequence)


def test_side_by_side_counts_once():
    """Two collectives at the same time, both waited for from 0 to 60 and moving to 100: 60 and 40, not 120 and 80."""
    early = [collective(0, 100, sequence=1), collective(0, 100, sequence=1, group="h")]
    late = [collective(60, 40, sequence=1), collective(60, 40, sequence=1, group="h")]
    clocks = {0: "node", 1: "node"}
    found = by_clock({0: early, 1: late}, same_step=True, clocks=clocks)
    assert (found[0].total_ns, found[0].waiting_ns, found[0].moving_ns) == (100, 60, 40)
    assert (found[1].total_ns, found[1].waiting_ns, found[1].moving_ns) == (40, 0, 40)
    assert (found[1].last_calls, found[1].caused_ns) == (2, 60)
    assert communication({0: early, 1: late}, same_step=True, clocks=clocks)[0].waiting_ns == 120  # adds up calls


def test_moving_beside_waiting_is_moving():
    """One waits from 0 to 80, another moves from 20 to 50 beside it: 30 moving and 50 waiting, then 20 moving."""
    ours = [collective(0, 100, sequence=1), collective(20, 30, sequence=1, group="h")]
    theirs = [collective(80, 20, sequence=1), collective(20, 30, sequence=1, group="h")]
    found = by_clock({0: ours, 1: theirs}, same_step=True, clocks={0: "node", 1: "node"})
    assert (found[0].moving_ns, found[0].waiting_ns, found[0].matched_ns) == (50, 50, 100)
    assert found[1].caused_ns == 50


def test_what_is_on_no_other_rank_is_neither():
    """Of a rank alone only the time in collectives is known; devices add up."""
    found = by_clock({0: [collective(0, 70, sequence=1), collective(0, 50, sequence=2, device=1)]}, same_step=True)
    assert (found[0].calls, found[0].total_ns, found[0].matched_ns, found[0].moving_ns) == (2, 120, 0, 0)


spans = st.lists(
    st.tuples(st.integers(0, 60), st.integers(1, 30), st.sampled_from("gh"), st.integers(0, 3), st.integers(0, 1)),
    max_size=8,
)


def moves_from(ranks, shared):
    """(rank, collective) and when it begins to move, of those that both ranks saw."""
    same = {}
    for rank, found in ranks.items():
        seen = Counter()
        for c in sorted(found, key=lambda c: c.start_unix_ns):
            key = (c.group, c.sequence)
            same.setdefault((*key, seen[key]), []).append((rank, c))
            seen[key] += 1
    for members in same.values():
        last = max(c.start_unix_ns for _, c in members)
        shortest = min(c.duration_ns for _, c in members)
        for rank, c in members if len(members) > 1 else ():
            end = c.start_unix_ns + c.duration_ns
            yield rank, c, min(last, end) if shared else end - shortest


def slow(ranks, shared):
    """Instant by instant: in any collective, moving, waiting, of each rank."""
    marks = {rank: {} for rank in ranks}
    for rank, found in ranks.items():
        for c in found:
            for t in range(c.start_unix_ns, c.start_unix_ns + c.duration_ns):
                marks[rank].setdefault((c.device, t), set())
    for rank, c, moves in moves_from(ranks, shared):
        for t in range(c.start_unix_ns, c.start_unix_ns + c.duration_ns):
            marks[rank][c.device, t].add("moving" if t >= moves else "waiting")
    return {
        rank: (
            len(of),
            sum("moving" in kinds for kinds in of.values()),
            sum(kinds == {"waiting"} for kinds in of.values()),
        )
        for rank, of in marks.items()
    }


@given(spans, spans, st.booleans())
@settings(max_examples=150, deadline=None)
def test_as_instant_by_instant(one, other, shared):
    """The sums are those of looking at every nanosecond; none is more than the time that a rank was in collectives."""
    ranks = {
        rank: [collective(start, took, sequence=n, group=g, device=d) for start, took, g, n, d in found]
        for rank, found in enumerate((one, other))
    }
    found = by_clock(ranks, same_step=True, clocks={0: "node", 1: "node"} if shared else None)
    for rank, expected in slow(ranks, shared).items():
        s = found[rank]
        assert (s.total_ns, s.moving_ns, s.waiting_ns) == expected
        assert s.moving_ns + s.waiting_ns == s.matched_ns <= s.total_ns <= 2 * 90


def test_covered_by_hand():
    """Nested, touching and apart; nothing at all is nothing."""
    assert covered([(0, 10), (2, 5), (10, 12), (20, 21), (20, 25)]) == 17
    assert covered([]) == 0
