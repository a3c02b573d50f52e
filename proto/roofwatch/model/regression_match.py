"""Which kernels of two sides are the same work: a signature is itself, a renamed kernel is what its op's kernel became.

Signatures are named by their content, so most are on both sides. What is on one side only is matched by the work it
does (op, phase, module, shapes, dtypes), then by what a profile without modules or shapes still tells.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from roofwatch.model.record import Signature

Key = Callable[[Signature], Hashable]
Told = Callable[[Signature], bool]


@dataclass(frozen=True, slots=True)
class Piece:
    """A piece of work: the signatures (ids, ascending) that do it on either side; one side may be empty."""

    before: tuple[int, ...]
    after: tuple[int, ...]

    @property
    def changed(self) -> bool:
        """Whether other kernels do the work on the two sides."""
        return bool(self.before and self.after) and self.before != self.after


def _work(s: Signature) -> Hashable:
    return None if s.op is None or s.shapes is None else (s.op, s.phase, s.module, s.shapes, s.dtypes)


def _unplaced(s: Signature) -> Hashable:
    return None if s.op is None or s.shapes is None else (s.kernel, s.op, s.shapes, s.dtypes)


def _name(s: Signature) -> Hashable:
    return s.kernel


# A key that makes signatures the same work, and what must be true of one that is on one side only for the key to hold.
_PASSES: tuple[tuple[Key, Told], ...] = (
    (_work, lambda _: True),
    (_unplaced, lambda s: s.module is None),  # modules are told on the other side only
    (_name, lambda s: s.shapes is None),  # shapes are told on the other side only
)


def pieces(known: Mapping[int, Signature], before: AbstractSet[int], after: AbstractSet[int]) -> list[Piece]:
    """Every signature of either side in exactly one piece."""
    found: list[Piece] = []
    left = set(before | after)
    for key, holds in _PASSES:
        for members in _groups(known, left, key):
            alone = {i for i in members if (i in before) != (i in after)}
            if not any(holds(known[i]) for i in alone):
                continue
            if key is not _name and alone & before and alone & after:
                members = alone  # noqa: PLW2901 - what is on both sides is still itself
            own = Piece(tuple(sorted(members & before)), tuple(sorted(members & after)))
            if own.before and own.after:
                found.append(own)
                left -= members
    rest = [Piece((i,) if i in before else (), (i,) if i in after else ()) for i in sorted(left)]
    return found + rest


def _groups(known: Mapping[int, Signature], ids: AbstractSet[int], key: Key) -> list[set[int]]:
    groups: dict[Hashable, set[int]] = defaultdict(set)
    for i in sorted(ids):
        if (name := key(known[i])) is not None:
            groups[name].add(i)
    return list(groups.values())
