"""The best boundaries of k buckets over observed lengths, exactly.

A sequence costs what the boundary above it costs, so the cost of k buckets is Σ c(bᵢ)·(sequences in bucket i), and a
boundary of a best answer is always an observed length (else it could be lowered). With prefix sums S of the counts,

    f_k(i) = min over j < i of  f_{k-1}(j) + c(L_i)·(S_i - S_j) = c(L_i)·S_i + min over j of (f_{k-1}(j) - S_j·c(L_i)):

the least of lines in c(L_i), whose slopes -S_j fall with j while c(L_i) grows with i. So the lines that can be least
form a hull that is walked once: O(n) a bucket instead of O(n²). Exact for integers; for floats up to their rounding.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

Line = tuple[float, float, int]  # slope, value at 0, the position j it stands for


def boundaries(lengths: Sequence[tuple[int, float]], cost: Callable[[int], float], most: int) -> list[tuple[int, ...]]:
    """The best boundaries (each bucket's longest length, ascending) of 1, 2, … ``most`` buckets.

    ``lengths`` are distinct, ascending, each with how many sequences have it; ``cost`` of a sequence padded to a length
    must not fall with the length. As many entries as there are lengths, where these are fewer than ``most``.
    """
    count = len(lengths)
    if not count:
        return []
    costs = [cost(length) for length, _ in lengths]
    prefix: list[float] = [0]
    for _, n in lengths:
        prefix.append(prefix[-1] + n)
    best: list[float] = [costs[i] * prefix[i + 1] for i in range(count)]
    came: list[list[int]] = [[0] * count]
    found: list[tuple[int, ...]] = [(lengths[-1][0],)]
    for used in range(1, min(most, count)):
        best, origin = _one_more(best, costs, prefix, used)
        came.append(origin)
        found.append(_walked(came, lengths))
    return found


def _one_more(
    best: Sequence[float], costs: Sequence[float], prefix: Sequence[float], used: int
) -> tuple[list[float], list[int]]:
    """From the least cost with ``used`` buckets up to each length to that with one bucket more.

    ``origin`` is how many lengths the buckets before the last one hold.
    """
    count = len(best)
    least: list[float] = list(best)
    origin = [0] * count
    hull: list[Line] = []
    at = 0
    for i in range(used, count):
        _push(hull, (-prefix[i], best[i - 1], i))  # lengths before i in the earlier buckets
        at = min(at, len(hull) - 1)
        x = costs[i]
        slope, value, place = hull[at]
        lowest = slope * x + value
        while at + 1 < len(hull):
            slope, value, following = hull[at + 1]
            if slope * x + value > lowest:
                break
            at, lowest, place = at + 1, slope * x + value, following
        least[i] = x * prefix[i + 1] + lowest
        origin[i] = place
    return least, origin


def _push(hull: list[Line], new: Line) -> None:
    """Add a line of the least slope; those between its neighbours that are nowhere least go."""
    while len(hull) >= 2:
        (a1, b1, _), (a2, b2, _) = hull[-2:]
        a3, b3, _ = new
        if (b3 - b1) * (a1 - a2) <= (b2 - b1) * (a1 - a3):
            hull.pop()
        else:
            break
    hull.append(new)


def _walked(came: Sequence[Sequence[int]], lengths: Sequence[tuple[int, float]]) -> tuple[int, ...]:
    """Boundaries from the last bucket backwards."""
    found, end = [], len(lengths)
    for origin in reversed(came):
        found.append(lengths[end - 1][0])
        end = origin[end - 1]
    return tuple(reversed(found))
