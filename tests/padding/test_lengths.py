"""Utilisation, what lengths are like, and the best boundaries of buckets, by hand and against all there are."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from itertools import combinations

import pytest

from roofwatch.model.padding import PaddingSum, of_batches, quantile
from roofwatch.model.padding_buckets import boundaries
from roofwatch.model.record import Padding

EIGHT = [120, 2048, 96, 310, 64, 180, 220, 90]

Lengths = Sequence[tuple[int, float]]


def told(*windows: tuple[Padding, float]) -> PaddingSum:
    """The sums of windows with their weights."""
    found = PaddingSum()
    for padding, weight in windows:
        found.add(padding, weight)
    return found


def test_the_eight_lengths_of_the_design() -> None:
    """ΣL = 3128 of 8·2048 = 16384: 19.1 %; ΣL² = 4,407,016 of 8·2048² = 33,554,432: 13.1 %."""
    found = told((of_batches([EIGHT]), 1.0))
    assert found.linear == pytest.approx(3128 / 16384)
    assert found.quadratic == pytest.approx(4_407_016 / 33_554_432)
    assert (round(found.linear or 0, 3), round(found.quadratic or 0, 3)) == (0.191, 0.131)


def test_batches_are_padded_each_to_its_longest_or_to_what_was_said() -> None:
    """(3, 5) and (2, 2) pad to 2·5 + 2·2 = 14 tokens; to 6 they pad to 24; what is longer than 4 was cut to 4."""
    own, fixed, cut = (of_batches([[3, 5], [2, 2]], to) for to in (None, 6, 4))
    assert (own.batches, own.real_tokens, own.padded_tokens, own.padded_squared) == (2, 12, 14, 2 * 25 + 2 * 4)
    assert own.shapes == ((2, 2, 1), (2, 5, 1))
    assert (fixed.real_tokens, fixed.padded_tokens, fixed.shapes) == (12, 24, ((2, 6, 2),))
    assert (cut.real_tokens, cut.real_squared, cut.lengths) == (11, 9 + 16 + 4 + 4, ((2, 2), (3, 1), (4, 1)))


def test_windows_weigh_as_much_as_they_stand_for() -> None:
    """A window of one half-full batch that stands for three, and a full one: (3·4 + 8) of (3·8 + 8) tokens."""
    half, full = of_batches([[4]], 8), of_batches([[8]], 8)
    found = told((half, 3.0), (full, 1.0))
    assert found.linear == pytest.approx(20 / 32)
    assert found.quadratic == pytest.approx((3 * 16 + 64) / (4 * 64))
    assert (found.windows, found.seen, found.sequences_seen) == (2, 2, 2)
    told_of = found.as_json()
    assert (told_of["shortest"], told_of["p50"], told_of["longest"], told_of["mean"]) == (4, 4, 8, 5.0)
    # the variance of three 4s and one 8 is 3: √3 ÷ 5
    assert told_of["variation"] == pytest.approx(3**0.5 / 5)
    assert told_of["padded_length"] == pytest.approx(8)


def test_nothing_told_is_nothing_known() -> None:
    """Without a batch, and with batches that could not be read, no share is 0 or 1."""
    assert told().linear is None
    unread = told((Padding(0, 0, 0, 0, 0, unread=3), 1.0))
    assert (unread.linear, unread.quadratic, unread.windows, unread.unread) == (None, None, 0, 3)
    assert unread.as_json()["p50"] is None
    assert quantile([], 0.5) is None


def cost_of(lengths: Lengths, cost: Callable[[int], float], bounds: Sequence[int]) -> float:
    """What all sequences cost, each at the least boundary that holds it."""
    return sum(count * cost(min(b for b in bounds if b >= length)) for length, count in lengths)


def every_way(lengths: Lengths, cost: Callable[[int], float], count: int) -> float:
    """The least cost over all choices of ``count`` boundaries among the lengths."""
    values = [length for length, _ in lengths]
    return min(cost_of(lengths, cost, (*chosen, values[-1])) for chosen in combinations(values[:-1], count - 1))


def test_boundaries_are_the_best_there_are() -> None:
    """Against all choices of boundaries, for 600 random sets of up to nine lengths; whole numbers, so exactly."""
    rng = random.Random(7)
    for _ in range(600):
        size = rng.randint(1, 9)
        lengths = [(length, rng.randint(1, 9)) for length in sorted(rng.sample(range(40), size))]
        linear, quadratic = rng.randint(0, 3), rng.randint(0, 3)

        def cost(length: int, a: int = linear, b: int = quadratic) -> int:
            return a * length + b * length * length

        found = boundaries(lengths, cost, 6)
        assert len(found) == min(6, size)
        for count, bounds in enumerate(found, 1):
            assert len(bounds) == count
            assert list(bounds) == sorted(bounds)
            assert bounds[-1] == lengths[-1][0]
            assert cost_of(lengths, cost, bounds) == every_way(lengths, cost, count)


def test_boundaries_of_the_eight_lengths() -> None:
    """Two: 7·310 + 2048 = 4218 tokens; four: 4·120 + 2·220 + 310 + 2048 = 3278."""
    lengths = [(length, 1) for length in sorted(EIGHT)]
    found = boundaries(lengths, lambda length: length, 16)
    assert found[1] == (310, 2048)
    assert found[3] == (120, 220, 310, 2048)
    assert found[7] == tuple(sorted(EIGHT))
    assert len(found) == 8
    assert boundaries([], lambda length: length, 4) == []


def test_many_lengths_take_no_second() -> None:
    """8,192 lengths and 16 buckets in less than a second of CPU (0.1 s where nothing else runs)."""
    rng = random.Random(1)
    lengths = [(length, rng.random()) for length in range(1, 8193)]
    begin = time.process_time()
    found = boundaries(lengths, lambda length: 0.7 * length + 1e-4 * length * length, 16)
    assert time.process_time() - begin < 1.0
    assert len(found[15]) == 16
