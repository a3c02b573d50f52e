"""The hook's side: what a window keeps of lengths and masks, and what it counts as unread. Real tensors, no windows."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from roofwatch.agent import messages
from roofwatch.hook import masks, padding, protocol
from roofwatch.model.record import Padding

MASK = torch.tensor([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]])
X = torch.ones(2, 5, 4)


class Model(torch.nn.Module):
    """A module with a mask, as transformers' have it."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(4, 4)

    def forward(
        self, x: torch.Tensor, attention_mask: Any = None, input_ids: Any = None, src_key_padding_mask: Any = None
    ) -> torch.Tensor:
        """One layer; the rest is for the hook."""
        del attention_mask, input_ids, src_key_padding_mask
        return self.layer(x)


@pytest.fixture(autouse=True)
def closed() -> Iterator[None]:
    """No window is left open, and the page-locked memory is as new."""
    yield
    padding.end()
    padding.sums()
    masks.arena.__init__()  # type: ignore[misc]


def window(work: Callable[[], object]) -> dict[str, Any] | None:
    """What a window tells in which this was done."""
    padding.ready()
    padding.start()
    work()
    padding.end()
    return padding.sums()


def followed() -> Model:
    """A module whose mask is watched."""
    model = Model()
    padding.follow(model)
    return model


ADDITIVE = (1 - MASK).float() * -1e9
CAUSAL = torch.full((5, 5), -1e9).triu(1)
SQUARE = torch.minimum(ADDITIVE[:, None, None], CAUSAL)
WINDOWED = torch.minimum(SQUARE, torch.full((5, 5), -1e9).tril(-2))  # a query sees itself and the key before
KINDS = {
    "ints": MASK,
    "bools": MASK.bool(),
    "floats of 0 and 1": MASK.float(),
    "additive": ADDITIVE,
    "additive in half precision": ADDITIVE.clamp(min=-6e4).half(),
    "(B, 1, 1, L) additive": ADDITIVE[:, None, None],
    "(B, 1, 1, L) bools": MASK.bool()[:, None, None],
    "(B, 1, L, L) additive": SQUARE,
    "(B, 1, L, L) bools": SQUARE == 0,
    "not contiguous": MASK.t().contiguous().t(),
    "a part of a larger one": torch.cat([MASK, MASK], 1)[:, 5:],
    "segments of packed rows": MASK * torch.tensor([[1, 2, 2, 2, 3]]),
}


@pytest.mark.parametrize("mask", KINDS.values(), ids=KINDS.keys())
def test_masks_of_every_kind(mask: torch.Tensor) -> None:
    """Three and five of five tokens, whatever the mask is made of."""
    model = followed()
    expected = {
        "batches": 1, "real_tokens": 8, "padded_tokens": 10, "real_squared": 34, "padded_squared": 50,
        "lengths": [[3, 1], [5, 1]], "shapes": [[2, 5, 1]], "coarsened": 0, "unread": 0,
    }  # fmt: skip
    assert window(lambda: model(X, attention_mask=mask)) == expected
    assert window(lambda: model(X, mask)) == expected  # by position
    with torch.inference_mode():
        copy = mask.clone()
        assert window(lambda: model(X, attention_mask=copy)) == expected


def test_torchs_own_masks_mark_what_to_leave_out() -> None:
    """src_key_padding_mask is true where there is padding."""
    model = followed()
    found = window(lambda: model(X, src_key_padding_mask=MASK == 0))
    assert found is not None
    assert found["lengths"] == [[3, 1], [5, 1]]


@pytest.mark.parametrize(
    "mask",
    [WINDOWED, torch.ones(2, 4, 5, 5), torch.ones(2, 1, 3, 5), MASK * 2.0 - 1.0],
    ids=["sliding window", "a mask a head", "queries and keys differ", "neither 0/1 nor additive"],
)
def test_what_no_rule_reads_is_counted(mask: torch.Tensor) -> None:
    """No length is guessed from it."""
    model = followed()
    found = window(lambda: model(X, attention_mask=mask))
    assert found is not None
    assert (found["batches"], found["unread"]) == (0, 1)


def test_a_step_of_decoding_is_no_padded_batch() -> None:
    """One token a sequence, and a mask of all before it: nothing of that is padding of this call."""
    model = followed()
    ids = torch.zeros(2, 1, dtype=torch.int64)
    assert window(lambda: model(X, attention_mask=MASK, input_ids=ids)) is None
    whole = torch.zeros(2, 5, dtype=torch.int64)
    found = window(lambda: model(X, attention_mask=MASK, input_ids=whole))
    assert found is not None
    assert found["batches"] == 1


def test_outside_a_window_nothing_is_kept() -> None:
    """Masks and lengths before and after."""
    model = followed()
    model(X, attention_mask=MASK)
    padding.batch([1, 2])
    assert window(lambda: None) is None
    model(X, attention_mask=MASK)
    assert padding.sums() is None


def test_a_mask_that_is_written_to_is_what_it_was() -> None:
    """A buffer refilled for the next batch: copied as it was. Too large to copy and written to since: not read."""
    model = followed()
    small = MASK.clone()

    def work() -> None:
        model(X, attention_mask=small)
        small.zero_()

    found = window(work)
    assert found is not None
    assert found["real_tokens"] == 8
    large = torch.ones(2, masks.COPIED // 8, dtype=torch.int64)
    tokens = torch.ones(2, large.shape[1], 4)
    found = window(lambda: model(tokens, attention_mask=large))
    assert found is not None
    assert (found["real_tokens"], found["unread"]) == (large.numel(), 0)

    def written() -> None:
        model(tokens, attention_mask=large)
        large.zero_()

    found = window(written)
    assert found is not None
    assert (found["batches"], found["unread"]) == (0, 1)


def test_no_op_of_ours_is_in_the_window() -> None:
    """The profiler of torch itself sees the layer's ops, and not one more."""
    model, lengths = followed(), torch.tensor([3, 5])
    with torch.profiler.profile() as plain:
        model(X, attention_mask=SQUARE)
    padding.start()
    with torch.profiler.profile() as watched:
        model(X, attention_mask=SQUARE)
        padding.batch(lengths)
    padding.end()
    assert [e.name for e in watched.events()] == [e.name for e in plain.events()]
    found = padding.sums()
    assert found is not None
    assert found["batches"] == 2


def test_compiled_modules_are_not_broken() -> None:
    """One graph, no break, no second compilation when a window opens; the compiled module's mask is seen."""
    counters = torch._dynamo.utils.counters
    compiled = torch.compile(Model(), backend="eager", fullgraph=True)
    whole = Model()
    whole.compile(backend="eager", fullgraph=True)  # in place: its hooks may be compiled with it
    for module in (compiled, whole):
        padding.follow(module)
        module(X, attention_mask=MASK)
        graphs = counters["stats"]["unique_graphs"]
        found = window(lambda called=module: called(X, attention_mask=MASK))
        assert found is not None
        assert found["real_tokens"] == 8
        assert counters["stats"]["unique_graphs"] == graphs
        assert not counters["graph_break"]


def test_lengths_of_every_kind() -> None:
    """A list, a tensor, a generator; to what it was padded; what cannot be is counted and raises nothing."""

    def work() -> None:
        padding.batch([3, 5])
        padding.batch(torch.tensor([3, 5], dtype=torch.int32), padded_to=6)
        padding.batch((n for n in (3, 5)), padded_to=4)
        padding.batch([])
        for wrong in ([-1, 2], ["x"], [1 << 40], None, torch.ones(2), torch.ones(2, 2, dtype=torch.int64)):
            padding.batch(wrong)  # type: ignore[arg-type]

    found = window(work)
    assert found is not None
    assert (found["batches"], found["real_tokens"], found["padded_tokens"]) == (3, 8 + 8 + 7, 10 + 12 + 8)
    assert found["shapes"] == [[2, 4, 1], [2, 5, 1], [2, 6, 1]]
    assert found["lengths"] == [[3, 3], [4, 1], [5, 2]]
    assert found["unread"] == 6


def test_a_window_keeps_no_more_than_it_may() -> None:
    """Beyond the sequences of a window batches are counted as unread."""

    def work() -> None:
        for _ in range(3):
            padding.batch([7] * (padding.MOST_SEQUENCES // 2))

    found = window(work)
    assert found is not None
    assert (found["batches"], found["unread"]) == (2, 1)
    assert found["lengths"] == [[7, padding.MOST_SEQUENCES]]


def test_lengths_that_are_none_spoil_no_others() -> None:
    """Garbage of a job, and a generator without end: counted, and what other batches told still fits an agent."""

    def work() -> None:
        padding.batch([3, 5])
        padding.batch([1 << 28] * 100)  # squares of 7e18 tokens
        padding.batch(itertools.count(1))

    found = window(work)
    assert found is not None
    assert (found["batches"], found["real_tokens"], found["unread"]) == (1, 8, 2)
    assert padding.MOST_BATCHES * padding.MOST_SQUARED <= messages.MOST_SUM


def test_many_lengths_are_rounded_up() -> None:
    """1 to 19 in at most five: multiples of 4, and 19, the longest, which stays; 14 of the 19 are rounded."""
    found, moved = padding.coarse(dict.fromkeys(range(1, 20), 1), 5)
    assert found == [[4, 4], [8, 4], [12, 4], [16, 4], [19, 3]]
    assert moved == 14
    assert padding.coarse({3: 2, 5: 1}, 5) == ([[3, 2], [5, 1]], 0)
    told = window(lambda: padding.batch(range(1, 20_001)))
    assert told is not None
    assert len(told["lengths"]) <= padding.MOST_LENGTHS
    assert told["coarsened"] == sum(1 for n in range(1, 20_001) if n % 4 and n != 20_000)
    assert told["real_tokens"] == 20_000 * 20_001 // 2  # the sums are exact


def test_the_largest_answer_fits_a_message() -> None:
    """8,192 long lengths with large counts and 256 shapes, in the JSON of the protocol; and an agent reads it whole."""
    lengths = [[(1 << 28) - 8192 + i, padding.MOST_SEQUENCES] for i in range(padding.MOST_LENGTHS)]
    shapes = [[padding.MOST_SEQUENCES, (1 << 28) - 256 + i, 4096] for i in range(padding.MOST_SHAPES)]
    sums = dict.fromkeys(padding.SUMS, (1 << 62) - 1)
    told = {**sums, "lengths": lengths, "shapes": shapes, "coarsened": 1 << 17, "unread": 4096}
    assert len(protocol.encode({"padding": told}, protocol.MAX_FROM_JOB)) < protocol.MAX_FROM_JOB - 64 * 1024
    assert len(messages._padding(told).lengths) == padding.MOST_LENGTHS


def test_counts_of_a_device_that_are_not_there_yet() -> None:
    """Slots that nobody has written to are unread, and the memory is not used again; those that are there are read."""
    arena = masks.arena
    arena.memory = torch.empty(masks.SLOTS, dtype=torch.int32)  # as page-locked memory is, but for the device
    arena.wanted = True
    arena.ready()
    slots = arena.copy([torch.tensor([3, 5]), torch.tensor([3, 5])])
    assert slots is not None
    assert slots.read() == [[3, 5], [3, 5]]
    memory = arena.memory
    later = arena.copy([torch.tensor([7, 7])])
    assert later is not None
    assert later.begin == 4
    memory[later.begin + 1] = -1  # the device has written one of two
    assert later.read() is None
    assert arena.memory is None
    assert slots.read() == [[3, 5], [3, 5]]


def test_a_device_without_page_locked_memory_is_unread_once() -> None:
    """Its first window only says that such memory is wanted; none is taken where it is not."""
    assert masks.arena.copy([torch.tensor([1])]) is None
    assert masks.arena.wanted
    fresh = masks.Arena()
    fresh.ready()
    assert fresh.memory is None


GOOD = {"batches": 1, "real_tokens": 8, "padded_tokens": 10, "real_squared": 34, "padded_squared": 50}


def test_an_agent_takes_it_as_it_is() -> None:
    """Through JSON; an older hook's message has sums only."""
    told = window(lambda: padding.batch([3, 5]))
    assert messages._padding(json.loads(json.dumps(told))) == Padding(1, 8, 10, 34, 50, ((3, 1), (5, 1)), ((2, 5, 1),))
    assert messages._padding(GOOD) == Padding(1, 8, 10, 34, 50)
    assert messages._padding({**GOOD, "batches": None}) is None


@pytest.mark.parametrize(
    "lengths",
    [
        [[5, 1], [3, 1]], [[3, 1], [3, 1]], [[3, 0]], [[3]], [[3, 1, 1]], [3, 1], "[[3,1]]", [[3.0, 1]], [[True, 1]],
        [[-1, 1]], [[1 << 40, 1]], [[3, 1 << 60]], [[i, 1] for i in range(8193)], {"3": 1},
    ],
)  # fmt: skip
def test_an_agent_believes_no_lengths_that_cannot_be(lengths: Any) -> None:
    """Unordered, repeated, empty, of another type, too large, too many: the sums stay, the lengths are not told."""
    assert messages._padding({**GOOD, "lengths": lengths}) == Padding(1, 8, 10, 34, 50)
