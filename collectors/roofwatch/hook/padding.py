"""Real and padded lengths of the batches seen while a window is open; outside a window nothing is kept."""

import sys
from itertools import islice
from typing import Any, Dict, Iterable, List, Optional, Tuple

from . import masks
from .dynamo import skip_in_dynamo
from .log import failure

# A window with more than this is not worth the job's memory: what goes beyond is counted as unread.
MOST_BATCHES = 4096
MOST_SEQUENCES = 1 << 17
MOST_LENGTH = 1 << 28
MOST_SQUARED = (1 << 50) - 1  # of a batch: a thousand sequences of a million; so many batches still are a 62-bit sum
MOST_LENGTHS = 8192  # distinct ones that are told
MOST_SHAPES = 256
SUMS = ("batches", "real_tokens", "padded_tokens", "real_squared", "padded_squared")

_open = False
_seen: "Seen"


class Seen:
    """What one window saw: lengths of batches with what each was padded to, and what is still to be read."""

    def __init__(self) -> None:
        self.batches: List[Tuple[List[int], int]] = []
        self.sequences = 0
        self.unread = 0
        self.kept: List[masks.Kept] = []

    def add(self, lengths: List[int], padded_to: Optional[int]) -> None:
        """One batch. A sequence that is longer than what it was padded to was cut to it."""
        longest = max(lengths, default=0) if padded_to is None else padded_to
        room = len(self.batches) < MOST_BATCHES and self.sequences + len(lengths) <= MOST_SEQUENCES
        known = min(lengths, default=0) >= 0 and 0 <= longest <= MOST_LENGTH
        if not room or not known or len(lengths) * longest * longest > MOST_SQUARED:
            self.unread += 1
        elif lengths:
            self.batches.append(([min(length, longest) for length in lengths], longest))
            self.sequences += len(lengths)

    def keep(self, kept: Optional[masks.Kept]) -> None:
        """What is to be read after the window; None could not be kept."""
        if kept is None or len(self.kept) >= MOST_BATCHES:
            self.unread += 1
        else:
            self.kept.append(kept)

    def read(self) -> None:
        """Read what was kept."""
        for one in self.kept:
            try:
                found = one.lengths()
            except Exception as error:
                failure("mask", error)
                found = None
            if found is None:
                self.unread += 1
            else:
                self.add(*found)
        self.kept.clear()

    def told(self) -> Optional[Dict[str, Any]]:
        """The keys of ``model.Padding``; None where there was no batch."""
        if not self.batches and not self.unread:
            return None
        told: Dict[str, Any] = dict.fromkeys(SUMS, 0)
        counts: Dict[int, int] = {}
        shapes: Dict[Tuple[int, int], int] = {}
        for real, longest in self.batches:
            rows = len(real)
            told["batches"] += 1
            told["real_tokens"] += sum(real)
            told["padded_tokens"] += rows * longest
            told["real_squared"] += sum(n * n for n in real)
            told["padded_squared"] += rows * longest * longest
            shapes[rows, longest] = shapes.get((rows, longest), 0) + 1
            for length in real:
                counts[length] = counts.get(length, 0) + 1
        lengths, coarsened = coarse(counts, MOST_LENGTHS)
        most = sorted(shapes.items(), key=lambda item: (-item[1], item[0]))[:MOST_SHAPES]
        return dict(
            told,
            lengths=lengths,
            shapes=sorted([rows, longest, batches] for (rows, longest), batches in most),
            coarsened=coarsened,
            unread=self.unread,
        )


_seen = Seen()


def coarse(counts: Dict[int, int], most: int) -> Tuple[List[List[int]], int]:
    """Lengths with their counts, ascending, at most ``most``; and of how many sequences the length was rounded up.

    Rounded to multiples of the least power of two that leaves so few, and never above the longest.
    """
    step, found = 1, dict(counts)
    while len(found) > most:
        step, found, longest = step * 2, {}, max(counts)
        for length, count in counts.items():
            rounded = min(-(-length // step) * step, longest)
            found[rounded] = found.get(rounded, 0) + count
    moved = 0 if step == 1 else sum(n for length, n in counts.items() if length % step and length != longest)
    return [[length, found[length]] for length in sorted(found)], moved


def batch(lengths: Iterable[int], padded_to: Optional[int] = None) -> None:
    """Tell the open window the real lengths of a batch, padded to its longest (or to ``padded_to``). Raises nothing."""
    if _open:
        try:
            width = None if padded_to is None else int(padded_to)
            if masks.is_tensor(lengths):
                _seen.keep(masks.kept_lengths(lengths, width))
            else:
                _seen.add([int(length) for length in islice(lengths, MOST_SEQUENCES + 1)], width)
        except Exception as error:
            _seen.unread += 1
            failure("batch", error)


def follow(module: Any) -> None:
    """Read the lengths off the attention mask that ``module`` is called with, while a window is open. Raises nothing.

    A module that is compiled as a whole calls no hook: there ``batch`` is the way.
    """
    try:
        watched = masks.Watched(module)

        def roofwatch_mask(_module: Any, args: Any, kwargs: Any) -> None:
            # Inside a compiled module this folds to nothing: no break in the job's graph, no guard on our state.
            if not watched.is_compiling():
                _look(watched, args, kwargs)

        skip_in_dynamo(sys.modules["torch"], roofwatch_mask)
        module.register_forward_pre_hook(roofwatch_mask, with_kwargs=True)
    except Exception as error:
        failure("model_module", error)


def _look(watched: "masks.Watched", args: Any, kwargs: Any) -> None:
    if not _open:
        return
    try:
        found = watched.mask(args, kwargs)
        if found is not None:
            _seen.keep(masks.kept_mask(*found))
    except Exception as error:
        _seen.unread += 1
        failure("mask", error)


def ready() -> None:
    """A window is about to be opened, and no graph is being captured: what takes time is done now. Raises nothing."""
    try:
        masks.arena.ready()
    except Exception as error:
        failure("pinned memory", error)


def start() -> None:
    """A window has opened."""
    global _open, _seen
    _seen = Seen()
    _open = True


def end() -> None:
    """The window has been cut."""
    global _open
    _open = False


def sums() -> Optional[Dict[str, Any]]:
    """The keys of ``model.Padding`` for the window that was cut last, None when no batch was told."""
    global _seen
    found, _seen = _seen, Seen()
    try:
        found.read()
        return found.told()
    except Exception as error:
        failure("padding", error)
        return None
