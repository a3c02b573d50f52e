"""How many (query, key) pairs an attention mask leaves: exactly where lengths are known, between bounds where not.

Masks are bands around a diagonal: query i sees the keys j with i + shift - left ≤ j ≤ i + shift + right. The shift is 0
where the mask is aligned to the top left, keys - queries where it is aligned to the bottom right; a causal mask has
right = 0; None is no limit.

**Packed sequences** (``cu_seqlens``). A trace holds how many tokens, sequences and at most how long, not the lengths.
With Σ aᵢ = T, 0 ≤ aᵢ ≤ M over B sequences, every bound below is that of the best and the worst possible lengths,
so no closer bound exists that would still be true.

- *Self-attention* (queries and keys have the same lengths L): a band leaves f(L) pairs, and the step f(L + 1) - f(L) =
  min(L, left) + min(L, right) + 1 never shrinks: f is convex. A sum of a convex function over lengths of a fixed sum is
  least where all lengths are equal (B·⌊T/B⌋ and the rest one longer; without a mask at least T²/B) and greatest at a
  corner of the possible lengths: as many of M as fit and one of the rest, ⌊T/M⌋·f(M) + f(T mod M).
- *Unlike lengths, no mask*: Σ aᵢ·bᵢ is linear in a and in b, so both extremes lie at corners, again "as many of M as
  fit, one of the rest, none for the others": sorted alike it is greatest, sorted against each other least
  (rearrangement inequality). A sequence may have queries and no keys, so the least may be 0.
- *Unlike lengths, causal, bottom right*: c(a, b) = Σⱼ max(0, b - j + 1) over j = 1…a. It is concave in a (each further
  query sees one key less) and convex in b (the b-th key is seen by min(a, b) queries, which never shrinks). So the
  greatest has b at a corner, and then the queries where they see most; the least has a at a corner, and then the
  keys where they are seen least. Filling up step by step (by level, not one by one) is exact for integers.
  Top left is the same with the parts of queries and keys exchanged.

That equal numbers, sums and maxima of queries and keys are equal lengths is taken for granted (self-attention): two
different lists that agree in all three are a coincidence, and without it the lower bound of every training step were 0.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

Lengths = list[tuple[int, int]]  # (how many sequences, of which length), longest first


def band(queries: int, keys: int, left: int | None, right: int | None, *, bottom_right: bool) -> int:
    """Pairs of one sequence that a band leaves. ``left`` and ``right`` count keys beside the diagonal; None: all."""
    shift = keys - queries if bottom_right else 0
    upper = queries * keys if right is None else _up_to(queries, keys, shift + right)
    lower = 0 if left is None else _up_to(queries, keys, shift - left - 1)
    return max(0, upper - lower)


def causal_pairs(queries: int, keys: int, *, bottom_right: bool) -> int:
    """Pairs that a causal mask leaves: keys j ≤ i (top left) or j ≤ i + keys - queries (bottom right)."""
    return band(queries, keys, None, 0, bottom_right=bottom_right)


def _up_to(queries: int, keys: int, offset: int) -> int:
    """Pairs with j ≤ i + offset: the sum of i + offset + 1, kept between 0 and ``keys``, over all queries i."""
    first = min(max(0, -offset), queries)  # from here a query sees at least one key
    full = min(max(keys - offset - 1, first), queries)  # from here it sees all
    ramp = (full - first) * (first + full - 1) // 2 + (full - first) * (offset + 1)
    return ramp + (queries - full) * keys


@dataclass(frozen=True, slots=True)
class Packed:
    """Sequences packed one after another: tokens in all, how many sequences, the longest possible."""

    tokens: int
    sequences: int
    longest: int

    @property
    def possible(self) -> bool:
        """Whether the tokens fit into the sequences."""
        return 0 <= self.tokens <= self.sequences * self.longest

    def equal(self) -> Lengths:
        """As equal lengths as integers can be."""
        short, longer = divmod(self.tokens, self.sequences) if self.sequences else (0, 0)
        return [(longer, short + 1), (self.sequences - longer, short)]

    def extreme(self) -> Lengths:
        """As many of the longest as there are tokens for, one of the rest, none for the others."""
        full, rest = divmod(self.tokens, self.longest) if self.longest else (0, 0)
        return [(full, self.longest), (int(rest > 0), rest), (self.sequences - full - int(rest > 0), 0)]


def packed_pairs(
    queries: Packed, keys: Packed, left: int | None, right: int | None, *, bottom_right: bool
) -> tuple[int, int] | None:
    """The least and the most pairs that packed sequences can have; None where the numbers do not fit.

    A window over unlike lengths is None, too: it has no bound here.
    """
    if queries.sequences != keys.sequences or not queries.possible or not keys.possible:
        return None
    if queries == keys:
        return _alike(queries, lambda n: band(n, n, left, right, bottom_right=bottom_right))
    if left is None and right is None:
        a, b = queries.extreme(), keys.extreme()
        return _paired(a, b[::-1]), _paired(a, b)
    if left is not None or right != 0:
        return None
    first, second = (queries, keys) if bottom_right else (keys, queries)
    return _least_causal(first, second), _most_causal(first, second)


def _alike(packed: Packed, pairs: Callable[[int], int]) -> tuple[int, int]:
    """Bounds of Σ pairs(L) for a convex function."""
    least = sum(n * pairs(length) for n, length in packed.equal())
    return least, sum(n * pairs(length) for n, length in packed.extreme())


def _paired(a: Lengths, b: Lengths) -> int:
    """Σ aᵢ·bᵢ of two lists of lengths in their orders."""
    total, left, right = 0, list(a), list(b)
    while left and right:
        (n, x), (m, y) = left[-1], right[-1]
        both = min(n, m)
        total += both * x * y
        left[-1], right[-1] = (n - both, x), (m - both, y)
        if not left[-1][0]:
            left.pop()
        if not right[-1][0]:
            right.pop()
    return total


def _most_causal(queries: Packed, keys: Packed) -> int:
    """Keys in as few sequences as can be; queries, up to the longest each, where they see most keys."""
    filled = keys.extreme()

    def taken(level: int) -> Lengths:  # queries that see at least ``level`` keys, for each length
        return [(n, min(queries.longest, max(0, length - level + 1))) for n, length in filled]

    level = _least_level(lambda at: sum(n * a for n, a in taken(at)) <= queries.tokens, 1, keys.longest + 1)
    total = sum(n * _seen(a, length) for (n, a), (_, length) in zip(taken(level), filled, strict=True))
    return total + (queries.tokens - sum(n * a for n, a in taken(level))) * (level - 1)


def _least_causal(queries: Packed, keys: Packed) -> int:
    """Queries in as few sequences as can be; keys, up to the longest each, where the fewest queries see them."""
    filled = queries.extreme()
    unseen = sum(n for n, length in filled if not length) * keys.longest
    left = max(0, keys.tokens - unseen)

    def taken(level: int) -> Lengths:  # keys that at most ``level`` queries see, for each length
        return [
            (n, keys.longest if length <= level else min(keys.longest, level)) if length else (0, 0)
            for n, length in filled
        ]

    beyond = _least_level(lambda at: sum(n * b for n, b in taken(at)) > left, 0, queries.longest + 1)
    level = beyond - 1
    if level < 0:
        return 0
    total = sum(n * _seen_by(b, length) for (n, b), (_, length) in zip(taken(level), filled, strict=True))
    return total + (left - sum(n * b for n, b in taken(level))) * beyond


def _least_level(holds: Callable[[int], bool], low: int, high: int) -> int:
    """The least integer in low…high at which a rising condition holds; ``high`` where it never does."""
    while low < high:
        middle = (low + high) // 2
        if holds(middle):
            high = middle
        else:
            low = middle + 1
    return low


def _seen(a: int, b: int) -> int:
    """Pairs of the ``a`` queries that see most of ``b`` keys: b + (b - 1) + … (a ≤ b)."""
    return a * b - a * (a - 1) // 2


def _seen_by(b: int, a: int) -> int:
    """Pairs of the ``b`` keys that ``a`` queries see least: 1 + 2 + … up to a, then a each."""
    rising = min(a, b)
    return rising * (rising + 1) // 2 + (b - rising) * a
