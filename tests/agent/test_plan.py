"""How long the next window may be; expected values by hand in the docstrings."""

from __future__ import annotations

from roofwatch.agent.plan import Plan, Rates, Seen, Wish, plan

MS = 1_000_000
WISH = Wish(steps=2, duration_ms=200)


def rates(*seen: Seen) -> Rates:
    """Rates after these windows."""
    known = Rates()
    for one in seen:
        known.taken += 1
        known.observe(one)
    return known


def test_the_first_window_is_short_and_without_shapes():
    """Nothing is known: one step or 50 ms, whatever was wished; also after a window that was taken and never read."""
    first = Plan(steps=1, duration_ms=50, max_ms=50, shapes=False)

    assert plan(Rates(), WISH, 60_000) == first
    assert plan(Rates(taken=1), WISH, 60_000) == first
    assert plan(Rates(), Wish(2, 20), 60_000) == Plan(1, 20, 50, shapes=False)


def test_a_known_process_gets_what_was_wished_where_it_fits():
    """The event cap in time and in steps.

    20 ms held one step of 6,000 events: 300 events a ms, so 48,000 events (80 % of the cap) last 160 ms; two steps
    of 6,000 and one to warm up fit. The last window was 20 ms: 16 times that is 320 ms, which does not bind.
    """
    assert plan(rates(Seen(20 * MS, 6_000, 1)), WISH, 60_000) == Plan(2, 160, 160, shapes=True)


def test_steps_shrink_to_the_cap():
    """As many steps as fit, at least one.

    A step of 13,000 events: 48,000 / 13,000 = 3.7, of which one warms up: 2 of the 8 wished. At 20,000 events: 1.
    A step that is larger than the cap is still one step, cut by time: 50 ms held 100,000, so 48,000 last 24 ms.
    """
    assert plan(rates(Seen(100 * MS, 13_000, 1)), Wish(8, 200), 60_000).steps == 2
    assert plan(rates(Seen(100 * MS, 20_000, 1)), Wish(8, 200), 60_000).steps == 1
    assert plan(rates(Seen(50 * MS, 100_000, None)), WISH, 60_000) == Plan(1 + 1, 24, 24, shapes=True)


def test_length_grows_slowly_from_a_quiet_window_and_faster_from_a_typical_one():
    """Four times, or sixteen.

    10 events in 50 ms say little: the next is at most 4 × 50 = 200 ms. 1,000 events: at most 16 × 50 = 800 ms, and
    48,000 events at 20 a ms would last 2,400 ms.
    """
    assert plan(rates(Seen(50 * MS, 10, None)), WISH, 60_000).max_ms == 200
    assert plan(rates(Seen(50 * MS, 1_000, None)), WISH, 60_000).max_ms == 800
    assert plan(rates(Seen(50 * MS, 0, None)), WISH, 60_000).max_ms == 200


def test_the_busiest_of_the_last_four_windows_counts():
    """One burst of 1,000 events a ms bounds the next windows to 48 ms, and the fifth window after it forgets it."""
    burst, quiet = Seen(60 * MS, 60_000, None), Seen(200 * MS, 2_000, None)

    assert plan(rates(burst, quiet, quiet, quiet), WISH, 60_000).max_ms == 48
    assert plan(rates(burst, quiet, quiet, quiet, quiet), WISH, 60_000).max_ms == 3_200  # 16 × 200; 48,000 last 4,800


def test_a_window_never_has_no_length():
    """Ten million events a ms, or a window of no duration: at least 1 ms and one step."""
    assert plan(rates(Seen(MS, 10_000_000, None)), WISH, 60_000) == Plan(2, 1, 1, shapes=True)
    assert plan(rates(Seen(0, 10_000_000, 1)), WISH, 60_000).steps == 1


def test_rates_settle_with_a_second_window_that_has_its_steps_or_after_four():
    """One window is no pattern; two with steps are; a process without steps is known after four."""
    cut, whole = Seen(50 * MS, 5, None), Seen(50 * MS, 5, 1)

    assert not rates().settled
    assert not rates(whole).settled
    assert rates(cut, whole).settled
    assert not rates(cut, cut, cut).settled
    assert rates(cut, cut, cut, cut).settled


def test_steps_that_were_measured_have_time_for_what_is_asked():
    """One step of 18 ms was seen: three get 216 ms, not 72, in which a moment's load would cut them; within the cap."""
    rates = Rates(1)
    rates.observe(Seen(18_000_000, 300, 1))
    assert plan(rates, Wish(3, 200), 10_000).max_ms == 216
    assert plan(rates, Wish(50, 200), 10_000) == Plan(25, 200, 480, True)  # 0.8 x 10,000 events: 25 steps, or 480 ms
