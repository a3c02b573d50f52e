"""Times as text, histograms, nesting, self times and sets of time, against plain and slow counterparts."""

from __future__ import annotations

from collections import defaultdict
from decimal import ROUND_HALF_EVEN, Decimal
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Raw

from roofwatch.collectors.kineto import tables
from roofwatch.collectors.kineto.groups import buckets_of
from roofwatch.collectors.kineto.intervals import Layers, joined, length, outside, union
from roofwatch.collectors.kineto.nesting import nest
from roofwatch.collectors.kineto.selftime import self_times
from roofwatch.collectors.kineto.tables import Extents
from roofwatch.collectors.kineto.times import NO_TIME, text_to_ns, texts_to_ns
from roofwatch.model.histogram import bucket_of

Events = list[tuple[int, int, int]]  # thread, start, end

events = st.lists(
    st.tuples(st.integers(0, 2), st.integers(0, 40), st.integers(0, 15)).map(lambda e: (e[0], e[1], e[1] + e[2])),
    max_size=25,
)
spans = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 12)).map(lambda s: (s[0], s[0] + s[1])), max_size=12)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1683564901942124", 1683564901942124000),
        ("1712195498123456.789", 1712195498123456789),  # a float64 would be off by up to 125 ns
        ("2915996737853.82", 2915996737853820),
        ("0.140", 140),
        ("0.0005", 0),  # half a nanosecond, to the even one
        ("0.0015", 2),
        ("-1", -1000),
        ("1.5e3", 1_500_000),
        ('"3603029046213.755"', 3603029046213755),
        ('" 7 "', 7000),
        ("7.", 7000),
        ("null", NO_TIME),
        ("NaN", NO_TIME),
        ("1e999", NO_TIME),
        ("99999999999999999999", NO_TIME),
        ("", NO_TIME),
        ("1,2", NO_TIME),
        ("{}", NO_TIME),
    ],
)
def test_one_time(text: str, expected: int) -> None:
    """Microseconds as text become nanoseconds exactly, everything else no time."""
    assert text_to_ns(text.encode()) == expected
    assert texts_to_ns([Raw(text.encode())]).tolist() == [expected]


numbers = st.one_of(
    st.integers(0, 2**50).map(str),
    st.integers(-(2**40), 2**40).map(str),
    st.decimals(0, 2**45, places=3).map(str),
    st.decimals(0, 2**45, places=2).map(str),
    st.decimals(0, 1000, places=6).map(str),
    st.floats(0, 1e15, allow_nan=False).map(repr),
)


@given(st.lists(numbers, min_size=1, max_size=20))
def test_many_times_agree_with_decimal_arithmetic(texts: list[str]) -> None:
    """Many at once give what decimal arithmetic gives one by one."""
    expected = [int((Decimal(t) * 1000).quantize(Decimal(1), ROUND_HALF_EVEN)) for t in texts]

    assert texts_to_ns([Raw(t.encode()) for t in texts]).tolist() == expected


@given(st.lists(st.integers(0, 7 * 86_400 * 10**9), max_size=50))
def test_buckets_are_those_of_the_model(values: list[int]) -> None:
    """Buckets found by table are the model's own."""
    assert buckets_of(np.array(values, dtype=np.int64)).tolist() == [bucket_of(v) for v in values]


def test_buckets_at_their_edges() -> None:
    """At every edge between buckets, and one beside it, the table and the model agree."""
    edges = {v for b in range(870) for base in (int(1.04**b),) for v in range(max(0, base - 2), base + 3)}
    values = sorted(edges)

    assert buckets_of(np.array(values, dtype=np.int64)).tolist() == [bucket_of(v) for v in values]


def nested(found: Events):
    """The events as a nest."""
    thread, start, end = (np.array(column, dtype=np.int64) for column in zip(*found, strict=True))
    return nest(thread, start, end)


@given(events)
def test_self_times_add_up_to_the_union(found: Events) -> None:
    """On each thread self times add up to the union of its events, nested or not, and none is negative."""
    if not found:
        return
    ops = nested(found)
    own = self_times(ops)

    covered = defaultdict(set)
    for thread, start, end in found:
        covered[thread] |= set(range(start, end))
    for thread in covered:
        assert own[ops.thread == thread].sum() == len(covered[thread])
    assert (own >= 0).all()


@given(events)
def test_each_instant_belongs_to_the_op_begun_last(found: Events) -> None:
    """Self time counts the instants at which no event begun later is running."""
    if not found:
        return
    ops = nested(found)
    own = self_times(ops).tolist()

    rows = list(zip(ops.thread.tolist(), ops.start.tolist(), ops.end.tolist(), strict=True))
    expected = [0] * len(rows)
    for thread in {row[0] for row in rows}:
        for instant in range(60):
            running = [i for i, (t, s, e) in enumerate(rows) if t == thread and s <= instant < e]
            if running:
                expected[max(running)] += 1
    assert own == expected


@given(events, st.lists(st.tuples(st.integers(-1, 3), st.integers(-2, 60)), min_size=1, max_size=10))
@settings(max_examples=300)
def test_innermost_at_a_time(found: Events, asked: list[tuple[int, int]]) -> None:
    """The event running at a time is the last begun of those whose range holds it, ends included."""
    if not found:
        return
    ops = nested(found)
    thread, time = (np.array(column, dtype=np.int64) for column in zip(*asked, strict=True))

    rows = list(zip(ops.thread.tolist(), ops.start.tolist(), ops.end.tolist(), strict=True))
    expected = [
        max((i for i, (t, s, e) in enumerate(rows) if t == one and s <= when <= e), default=-1) for one, when in asked
    ]
    assert ops.at(thread, time).tolist() == expected


def arrays(found: list[tuple[int, int]]):
    """Starts and ends as arrays."""
    return (
        np.array([s for s, _ in found], dtype=np.int64),
        np.array([e for _, e in found], dtype=np.int64),
    )


def instants(found: list[tuple[int, int]]) -> set[int]:
    """Every instant that one of the spans holds."""
    return {t for s, e in found for t in range(s, e)}


@given(spans, spans)
def test_unions_and_what_they_leave(first: list[tuple[int, int]], second: list[tuple[int, int]]) -> None:
    """Unions hold every instant once, are disjoint and in order; the rest of a range is what they do not hold."""
    one = union(*arrays(first))
    both = joined([arrays(first), arrays(second)])
    rest = outside(both, 5, 45)

    assert instants(list(zip(*both, strict=True))) == instants(first) | instants(second)
    assert length(both) == len(instants(first) | instants(second))
    assert (one[0][1:] > one[1][:-1]).all()
    assert instants(list(zip(*rest, strict=True))) == set(range(5, 45)) - instants(first) - instants(second)


@given(spans, spans, spans, st.lists(st.tuples(st.integers(-3, 60), st.integers(0, 20)), min_size=1, max_size=6))
def test_layers_give_each_instant_to_the_first(
    first: list[tuple[int, int]],
    second: list[tuple[int, int]],
    third: list[tuple[int, int]],
    gaps: list[tuple[int, int]],
) -> None:
    """Of each gap a layer gets the instants that it holds and no earlier layer does."""
    layers = Layers([union(*arrays(s)) for s in (first, second, third)])
    start = np.array([s for s, _ in gaps], dtype=np.int64)
    end = start + np.array([n for _, n in gaps], dtype=np.int64)

    before: set[int] = set()
    for index, layer in enumerate((first, second, third)):
        own = instants(layer) - before
        before |= own
        expected = [len(own & set(range(s, e))) for s, e in zip(start.tolist(), end.tolist(), strict=True)]
        assert layers.within(index, start, end).tolist() == expected


sides = st.integers(-2, 5) | st.just(1 << 40) | st.floats(0, 3) | st.text(max_size=2) | st.lists(st.none(), max_size=1)


@given(st.lists(st.none() | st.integers() | st.text(max_size=3) | st.lists(sides, max_size=4), max_size=30))
def test_extents_of_grids(found: list[Any]) -> None:
    """Volume, x and y of three positive whole numbers below 2⁶² in all, -1 for whatever else a trace holds there."""
    extents = Extents()

    def plain(value: Any) -> tuple[int, int, int]:
        whole = isinstance(value, list) and len(value) == 3 and all(type(v) is int and v > 0 for v in value)
        volume = value[0] * value[1] * value[2] if whole else 1 << 62
        return (volume, value[0], value[1]) if volume < 1 << 62 else (-1, -1, -1)

    # 1.0 and 1 are one key, so that of two equal grids the first may stand for the other
    found = [v for v in found if not (isinstance(v, list) and any(isinstance(side, float) for side in v))]
    rows = [plain(value) for value in found]
    assert list(zip(*(column.tolist() for column in extents.sides(extents.ids(found))), strict=True)) == rows
    assert extents.volumes(found).tolist() == [volume for volume, _, _ in rows]


def test_the_number_of_different_grids_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """What comes after the last that is kept is unknown; those before stay known."""
    monkeypatch.setattr(tables, "MAX_EXTENTS", 4)
    assert Extents().volumes([[n, 1, 1] for n in range(1, 9)] + [[2, 1, 1]]).tolist() == [1, 2, 3, 4, *[-1] * 4, 2]
