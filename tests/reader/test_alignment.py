"""Alignment against every assignment there is, tried one by one."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator

import numpy as np
import pytest

from roofwatch.collectors import alignment
from roofwatch.collectors.alignment import Costs, assign


def scored(kernels, elements, costs: Costs) -> Iterator[tuple[int, tuple[int | None, ...]]]:
    """Every assignment that keeps the order, with its sum: the definition, without any cleverness."""
    for chosen in itertools.product([None, *range(len(elements))], repeat=len(kernels)):
        total, last, before = 0, -1, None
        for kernel, element in zip(kernels, chosen, strict=True):
            if element is None:
                total += int(costs.unmatched[kernel])
            elif element > last:
                total += int(costs.first[kernel, elements[element]])
            elif element == last == before:
                total += int(costs.again[kernel, elements[element]])
            else:
                break
            last, before = (last if element is None else element), element
        else:
            unused = set(range(len(elements))) - set(chosen)
            yield total + sum(int(costs.skip[elements[j]]) for j in unused), chosen


def puzzle(rng: random.Random):
    """Random sequences of up to four, with random scores."""

    def scores(*shape: int):
        return np.array([rng.randint(-3, 5) for _ in range(int(np.prod(shape)))], dtype=np.int32).reshape(shape)

    costs = Costs(scores(3, 3), scores(3, 3) - 2, -abs(scores(3)), -abs(scores(3)))
    kernels, elements = (np.array([rng.randrange(3) for _ in range(rng.randint(1, 4))]) for _ in range(2))
    return kernels, elements, np.array([rng.randrange(2) for _ in elements]), costs


@pytest.mark.parametrize("seed", range(200))
def test_the_best_assignment_and_what_another_costs(seed: int) -> None:
    """The path is one of the best; a margin is the best sum less the best where that kernel means something else."""
    kernels, elements, group, costs = puzzle(random.Random(seed))
    found = assign(kernels, elements, group, costs)
    every = list(scored(kernels, elements, costs))
    best = max(total for total, _ in every)
    path = tuple(None if e < 0 else e for e in found.element.tolist())
    assert path in {chosen for total, chosen in every if total == best}
    for i, margin in enumerate(found.margin.tolist()):
        by_meaning: dict[object, int] = {}
        for total, chosen in every:
            meaning = None if chosen[i] is None else int(group[chosen[i]])
            by_meaning[meaning] = max(by_meaning.get(meaning, total), total)
        tied = [value for meaning, value in by_meaning.items() if meaning is not None]
        first = max(tied)
        others = sorted(by_meaning.values(), reverse=True)
        others.remove(first)
        if others:
            assert margin == first - others[0]


def test_a_narrow_band_finds_what_the_whole_plane_finds(monkeypatch: pytest.MonkeyPatch) -> None:
    """300 kernels of 300 ops, a few missing on either side: within 64 columns of the diagonal it is the same answer."""
    rng = random.Random(5)
    elements = np.array([rng.randrange(40) for _ in range(300)])
    kernels = np.delete(elements, [10, 80, 81, 200])
    same = np.where(np.eye(40, dtype=bool), 8, alignment.FORBIDDEN).astype(np.int32)
    four = np.full(40, -4, dtype=np.int32)
    costs = Costs(same, np.full_like(same, alignment.FORBIDDEN), four, four)
    whole = assign(kernels, elements, elements, costs)
    monkeypatch.setattr(alignment, "CELLS", 0)
    banded = assign(kernels, elements, elements, costs)
    assert (elements[whole.element] == kernels).all()
    assert whole.element.tolist() == banded.element.tolist()
    assert whole.margin.tolist() == banded.margin.tolist()


def test_nothing_to_lay_along() -> None:
    """Without kernels or without elements nothing is tied."""
    one, none = np.zeros(1, dtype=np.int64), np.zeros(0, dtype=np.int64)
    costs = Costs(*(np.zeros((1, 1), dtype=np.int32),) * 2, *(np.zeros(1, dtype=np.int32),) * 2)
    assert assign(one, none, none, costs).element.tolist() == [-1]
    assert assign(none, one, one, costs).element.tolist() == []
