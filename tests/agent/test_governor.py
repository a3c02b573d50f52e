"""What profiling may cost: the account of a job, what a window is expected to cost, and a residue that stays."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from roofwatch.agent import governor
from roofwatch.agent.governor import Account, Budget, Spending, event_cap, price
from roofwatch.model.record import Cost

MS = 1_000_000
BUDGET = Budget(0.005, 0.01)


def cost(lost_ms=None, *, path="native", base_ms=10.0, after_ms=0.0, phases_ms=0.0):
    """A window's cost; ``lost_ms`` inside of it, None where no step tells."""
    phase = int(phases_ms * MS)
    if lost_ms is None:
        return Cost(path, 1 * MS, 0, phase, phase, phase)
    return Cost(path, 1 * MS, 0, phase, phase, phase, int(base_ms * MS), None, int(lost_ms * MS), int(after_ms * MS))


def test_a_window_of_300_ms_is_paid_for_in_a_minute():
    """0.5 % of 60 s are 300 ms; what is in the account already need not be waited for."""
    account = Account(BUDGET, opened=1000.0)
    account.pay(1000.0, 1, 300 * MS)
    assert account.wait_s(1000.0, 0) == pytest.approx(60)
    assert account.wait_s(1060.0, 0) == pytest.approx(0)
    assert account.wait_s(1060.0, 300 * MS) == pytest.approx(60)
    assert account.wait_s(1120.0, 300 * MS) == pytest.approx(0)


def test_ten_minutes_are_saved_at_most():
    """After a day without windows the account holds 3 s, 0.5 % of ten minutes; a window of 5 s owes 2 s, so 400 s."""
    account = Account(BUDGET, opened=0.0)
    assert account.wait_s(86_400.0, 5000 * MS) == 0
    account.pay(86_400.0, 1, 5000 * MS)
    assert account.wait_s(86_400.0, 0) == pytest.approx(400)


def test_of_ranks_together_the_dearest_pays():
    """Three ranks at the same steps that lost 100, 250 and 50 ms made the job lose 250; the next batch adds up."""
    account = Account(BUDGET, opened=0.0)
    for lost in (100, 250, 50):
        account.pay(100.0, 7, lost * MS)
    assert account.spent_share(100.0) == pytest.approx(0.0025)
    account.pay(100.0, 8, 100 * MS)
    assert account.spent_share(100.0) == pytest.approx(0.0035)


def test_spend_is_told_of_the_last_hour():
    """What was paid more than an hour ago counts no more; a young job's share is one of a minute."""
    account = Account(BUDGET, opened=0.0)
    account.pay(1.0, 1, 300 * MS)
    assert account.spent_share(1.0) == pytest.approx(0.005)
    assert account.spent_share(3000.0) == pytest.approx(0.0001)
    assert account.spent_share(3602.0) == 0


def test_the_hard_stop_holds_for_any_window():
    """With 0.6 s of the first 100 s spent, 0.3 s more are under 1 %, 0.5 s more are not."""
    account = Account(BUDGET, opened=0.0)
    account.pay(10.0, 1, 600 * MS)
    assert not account.over_hard_stop(100.0, 300 * MS)
    assert account.over_hard_stop(100.0, 500 * MS)


def test_what_steps_do_not_tell_is_estimated():
    """Without steps: 3 µs an event where the job runs on, else as long as closing, saving and freeing took."""
    assert price(cost(), 60_000) == price(cost(phases_ms=400), 60_000)
    assert price(cost(), 60_000).cost_ns == 181 * MS
    assert price(cost(path="plain", phases_ms=100), 60_000).cost_ns == 301 * MS
    assert price(cost(path="npu", phases_ms=20), 0).cost_ns == 21 * MS
    assert not price(cost(), 1).measured
    assert price(cost(12, after_ms=3), 1).cost_ns == 15 * MS


def test_one_outlier_is_not_expected_again():
    """Seven windows of 10 ms and one of 900 (the job wrote a checkpoint in it): 10 ms are expected, 910/8 are paid."""
    spending = Spending()
    for lost in (10, 10, 10, 900, 10, 10, 10, 10):
        spending.observe(cost(lost), 1000, 20)
    assert spending.expected_ns == 10 * MS


def test_events_follow_the_cost():
    """At 10 µs an event, 0.8 of the 300 ms a minute pays are 24,000 events; never below 3,000, never above the cap."""
    dear, cheap = Spending(), Spending()
    dear.observe(cost(100), 10_000, 20)
    cheap.observe(cost(1), 10_000, 20)
    assert event_cap([dear], BUDGET, 60, 60_000) == 24_000
    assert event_cap([cheap], BUDGET, 60, 60_000) == 60_000
    assert event_cap([cheap, dear], BUDGET, 60, 60_000) == 24_000
    assert event_cap([dear], BUDGET, 1, 60_000) == 3_000
    assert event_cap([dear], BUDGET, 1, 500) == 500
    assert event_cap([Spending()], BUDGET, 60, 60_000) == 60_000


def test_reading_a_window_is_paid_by_the_node_it_ran_on():
    """0.6 s of one of six processors are 0.1 s of the node; ranks taken together add up."""
    paid = price(replace(cost(10), parse_cpu_ns=600 * MS), 1)
    assert (paid.cost_ns, paid.whole_ns) == (10 * MS, 10 * MS + 600 * MS / governor.PROCESSORS)
    account = Account(BUDGET, opened=0.0)
    account.pay(100.0, 1, 200 * MS, 100 * MS)
    account.pay(100.0, 1, 150 * MS, 100 * MS)
    assert account.spent_share(100.0) == pytest.approx(400 * MS / (100 * 1e9))


def test_slower_steps_that_stay_are_a_residue():
    """Steps of 10 ms are 5 % slower after a window, and still are through the next five: that stays."""
    spending = Spending()
    spending.observe(cost(5, after_ms=10), 1000, 20)  # 20 steps, 0.5 ms slower each
    for base_ms in (10.5, 10.6, 10.45, 10.5):
        spending.observe(cost(5, base_ms=base_ms), 1000, 20)
        assert spending.residue is None
    spending.observe(cost(5, base_ms=10.5), 1000, 20)
    assert spending.residue == pytest.approx(0.05)


@pytest.mark.parametrize(
    ("after_ms", "steps", "next_base_ms"),
    [(10, 20, 10.0), (0, 20, 11.0), (10, 4, 10.5), (4, 20, 10.5), (10, None, 10.5)],
    ids=["gone again", "a new phase of the job", "too few steps", "too little", "an older hook"],
)
def test_what_is_no_residue(after_ms, steps, next_base_ms):
    """Both must be seen: slower right after a window, and still when the next begins."""
    spending = Spending()
    spending.observe(cost(5, after_ms=after_ms), 1000, steps)
    for _ in range(6):
        spending.observe(cost(5, base_ms=next_base_ms), 1000, steps)
        assert spending.residue is None


@pytest.mark.parametrize("spread", [0.05, 0.2, 0.5])
def test_a_machine_that_others_load_shows_no_residue(spread):
    """A month of a window a minute, steps varying and drifting with load: a few alarms at most."""
    draw, spending, alarms, load = random.Random(7), Spending(), 0, 0.0
    for _ in range(30 * 1440):
        load = 0.95 * load + draw.gauss(0, spread / 3)
        base = 10 * (1 + abs(load) + abs(draw.gauss(0, spread / 3)))
        spending.observe(cost(5, base_ms=base, after_ms=20 * base * draw.gauss(0, spread / 3)), 1000, 20)
        if spending.residue is not None:
            alarms, spending.residue = alarms + 1, None
    assert alarms <= 15


@pytest.mark.parametrize("noise", [0.002, 0.005])
def test_a_residue_is_found_on_a_steady_machine(noise):
    """5 % of a step stay from the third window on: found within an hour of windows, however steps vary by a little."""
    draw, spending = random.Random(3), Spending()
    for window in range(60):
        base = 10 * (1 + draw.gauss(0, noise)) * (1.05 if window >= 3 else 1)
        spending.observe(cost(5, base_ms=base, after_ms=10 if window == 2 else draw.gauss(0, 1)), 1000, 20)
        if spending.residue is not None:
            break
    assert spending.residue == pytest.approx(0.05, abs=0.01)


def drive(window_ms, seconds, *, noise_ms=0.0, interval_s=60.0, seed=1):
    """A job whose windows cost this, whatever we think of it: its share of time really lost, and when windows were."""
    draw, now, taken, lost = random.Random(seed), 0.0, [], 0.0
    account, spending = Account(BUDGET, opened=0.0), Spending()
    now = 5.0
    while now < seconds:
        wait = account.wait_s(now, spending.expected_ns)
        if wait > 1e-6:
            now += wait
            continue
        real = window_ms(len(taken))
        paid = spending.observe(cost(real + draw.gauss(0, noise_ms)), 1000, 20)
        account.pay(now, len(taken) + 1, paid.cost_ns)
        taken.append(now)
        lost += real
        now += interval_s
    return lost / 1e3 / seconds, taken


@pytest.mark.parametrize("noise_ms", [0, 30, 150])
@pytest.mark.parametrize("window_ms", [10, 250, 1000, 5000])
def test_a_day_stays_within_the_budget(window_ms, noise_ms):
    """Whatever a window costs and however badly it is measured, a day of them costs at most 0.5 % and some luck."""
    share, taken = drive(lambda _: window_ms, 86_400, noise_ms=noise_ms)
    assert share <= 0.0052
    wanted = min(60 / 0.06, 86_400 * 0.005 * 1e3 / window_ms)
    assert len(taken) > 0.85 * min(wanted, 1440)


def test_a_cold_start_is_paid_back():
    """A first window of 2 s takes what 400 s pay; windows of 100 ms come once a minute after that."""
    _, taken = drive(lambda n: 2000 if n == 0 else 100, 3600)
    assert taken[1] >= 400
    assert taken[3] - taken[2] == pytest.approx(60, abs=25)
