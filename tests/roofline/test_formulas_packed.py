"""Packed sequences: bounds of the pairs by hand, against all possible lengths, and in the ops that pack."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from roofwatch.model.formulas.pairs import Packed, band, packed_pairs

BF16, INT, SCALAR = "c10::BFloat16", "int", "Scalar"
EXAMPLES = settings(max_examples=80, deadline=None, derandomize=True)
Limit = int | None


def allowed(queries: int, keys: int, left: Limit, right: Limit, *, bottom_right: bool) -> int:
    """Pairs of a band, counted one by one."""
    shift = keys - queries if bottom_right else 0
    return sum(
        (left is None or j >= i + shift - left) and (right is None or j <= i + shift + right)
        for i in range(queries)
        for j in range(keys)
    )


def lengths(packed: Packed) -> Iterator[tuple[int, ...]]:
    """Every way to share the tokens among the sequences."""
    ways = itertools.product(range(packed.longest + 1), repeat=packed.sequences)
    return (way for way in ways if sum(way) == packed.tokens)


SMALL, LIMIT = st.integers(0, 6), st.none() | st.integers(0, 4)


@EXAMPLES
@given(SMALL, SMALL, LIMIT, LIMIT, st.booleans())
def test_a_band_is_counted_exactly(queries, keys, left, right, bottom_right):
    """Any window, any alignment, more queries than keys or fewer: as many pairs as counting them one by one gives."""
    found = band(queries, keys, left, right, bottom_right=bottom_right)
    assert found == allowed(queries, keys, left, right, bottom_right=bottom_right)


@EXAMPLES
@given(st.integers(1, 3), st.integers(1, 4), st.integers(1, 4), SMALL, SMALL, st.booleans(), st.booleans())
def test_bounds_are_the_best_and_the_worst_lengths(
    sequences, most_queries, most_keys, tokens, keys, causal, bottom_right
):
    """No lengths give more or fewer pairs than the bounds, and some give exactly as many: all of them are tried."""
    a, b = Packed(tokens, sequences, most_queries), Packed(keys, sequences, most_keys)
    found = packed_pairs(a, b, None, 0 if causal else None, bottom_right=bottom_right)
    ways = zip(lengths(a), lengths(a), strict=True) if a == b else itertools.product(lengths(a), lengths(b))
    right = 0 if causal else None
    counts = [
        sum(allowed(q, k, None, right, bottom_right=bottom_right) for q, k in zip(*way, strict=True)) for way in ways
    ]
    assert found == ((min(counts), max(counts)) if counts else None)


@EXAMPLES
@given(st.integers(1, 3), st.integers(1, 5), st.integers(0, 9), LIMIT, LIMIT)
def test_bounds_of_a_window_over_equal_lengths(sequences, longest, tokens, left, right):
    """Self-attention under any window: a window's pairs grow faster and faster with the length, never slower."""
    packed = Packed(tokens, sequences, longest)
    found = packed_pairs(packed, packed, left, right, bottom_right=True)
    counts = [sum(allowed(n, n, left, right, bottom_right=True) for n in way) for way in lengths(packed)]
    assert found == ((min(counts), max(counts)) if counts else None)


def test_bounds_by_hand():
    """64 tokens in 4 sequences of at most 32: least 4·16² = 1,024, most 2·32² = 2,048; causal (Σ L² + 64)/2.

    10 tokens in 4 of at most 7: 3, 3, 2, 2 give 26; 7 and 3 give 58. 6 queries (at most 4) on 5 keys (at most 3) in 3
    sequences: (4,2,0)·(3,2,0) = 16, (4,2,0)·(0,2,3) = 4; causal from the bottom right at most 3+2+1 + 2+1 = 9, at
    least 2: 3 keys where no query is, one beside 4 and one beside 2 queries, the last of which sees it.
    """
    packed = Packed(64, 4, 32)
    assert packed_pairs(packed, packed, None, None, bottom_right=True) == (1_024, 2_048)
    assert packed_pairs(packed, packed, None, 0, bottom_right=True) == (544, 1_056)
    assert packed_pairs(Packed(10, 4, 7), Packed(10, 4, 7), None, None, bottom_right=False) == (26, 58)
    queries, keys = Packed(6, 3, 4), Packed(5, 3, 3)
    assert packed_pairs(queries, keys, None, None, bottom_right=True) == (4, 16)
    assert packed_pairs(queries, keys, None, 0, bottom_right=True) == (2, 9)


def test_impossible_and_unbounded_packings_are_unknown():
    """More tokens than fit, unequal numbers of sequences, a window over unlike lengths."""
    fits = Packed(8, 2, 4)
    assert packed_pairs(Packed(9, 2, 4), Packed(9, 2, 4), None, None, bottom_right=True) is None
    assert packed_pairs(fits, Packed(8, 3, 4), None, None, bottom_right=True) is None
    assert packed_pairs(fits, Packed(6, 2, 4), 2, 0, bottom_right=True) is None


def test_bounds_of_long_sequences_are_quick():
    """2⁴⁰ tokens: by level, not token by token; one sequence has no choice, so both ends are its triangle."""
    one = Packed(1 << 40, 1, 1 << 40)
    assert packed_pairs(one, one, None, 0, bottom_right=True) == ((1 << 79) + (1 << 39),) * 2
    least, most = packed_pairs(Packed(1 << 40, 8, 1 << 39), Packed(1 << 41, 8, 1 << 40), None, 0, bottom_right=True)
    assert 0 <= least < most


Q = [64, 4, 8]  # 64 tokens, 4 heads of 8, bf16: 4,096 B
MOVED = 4 * 4_096 + 64 * 4 * 4  # q, k, v, output, and a row of log-sum-exp for each token and head
MOVED_BACK = 8 * 4_096 + 64 * 4 * 4  # q, k, v, output, its gradient, dq, dk, dv
PACKED = {
    # op: (arguments before q, positions of cumulative lengths, of maxima, of booleans before causal, of causal, all)
    "aten::_flash_attention_forward": (0, 3, 5, (), 8, 17),
    "aten::_cudnn_attention_forward": (0, 4, 6, (8,), 10, 12),
    "flash_attn::_flash_attn_varlen_forward": (0, 3, 5, (), 9, 18),
    "flashattn::_flash_attn_varlen_forward": (0, 3, 5, (), 9, 18),
    "flash_attn_3::_flash_attn_forward": (0, 7, 12, (), 24, 34),
    "flash_attn_3::fwd": (0, 7, 12, (), 24, 34),
    "_vllm_fa3_C::fwd": (0, 7, 12, (), 24, 33),
    "sgl_kernel::fwd": (0, 7, 12, (), 24, 34),
    "_vllm_fa2_C::varlen_fwd": (0, 4, 10, (14,), 15, 21),
    "aiter::mha_varlen_fwd": (0, 3, 5, (11,), 12, 27),
    "aiter::fmha_v3_varlen_fwd": (0, 3, 5, (9,), 10, 19),  # before min_seqlen_q and the soft cap came in
    "aten::_scaled_dot_product_flash_attention_backward": (1, 6, 8, (), 11, 14),
    "aten::_flash_attention_backward": (1, 6, 8, (), 11, 17),
    "aten::_cudnn_attention_backward": (1, 9, 11, (), 14, 16),
    "aten::_scaled_dot_product_cudnn_attention_backward": (1, 9, 11, (), 14, 16),
    "aten::_scaled_dot_product_fused_attention_overrideable_backward": (1, 8, 10, (), 13, 17),
    "flash_attn::_flash_attn_varlen_backward": (1, 9, 11, (), 15, 22),
    "flash_attn_3::bwd": (1, 9, 13, (), 16, 22),
    "flash_attn_3::_flash_attn_backward": (1, 6, 10, (), 16, 22),
    "aiter::mha_varlen_bwd": (1, 6, 8, (12,), 13, 23),
    "aiter::fmha_v3_varlen_bwd": (1, 6, 8, (12,), 13, 23),
}


def packed_call(op: str, *, causal: bool) -> tuple[list[list[int]], list[str], list[str]]:
    """Shapes, dtypes and concrete inputs of 64 tokens in 4 sequences of at most 32."""
    first, cumulative, longest, flags, causal_at, count = PACKED[op]
    shapes: list[list[int]] = [[]] * count
    types, concrete = [""] * count, [""] * count
    for at in range(first, first + 3):
        shapes[at], types[at] = Q, BF16
    for at in (cumulative, cumulative + 1):
        shapes[at], types[at] = [5], INT
    for at in (longest, longest + 1):
        types[at], concrete[at] = SCALAR, "32"
    for at in flags:
        types[at], concrete[at] = SCALAR, "False"
    types[causal_at], concrete[causal_at] = SCALAR, str(causal)
    return shapes, types, concrete


@pytest.mark.parametrize("op", PACKED)
def test_packed_attention_in_each_ops_own_order(count, op):
    """Forward 2·4 heads·pairs·16: 1,024 to 2,048 pairs are 131,072 to 262,144 FLOPs, causal 69,632 to 135,168.

    Backward five products of 8 instead of two: 2.5 times that.
    """
    backward = PACKED[op][0] == 1
    shapes, types, concrete = packed_call(op, causal=False)
    times, moved = (2.5, MOVED_BACK) if backward else (1, MOVED)
    assert count(op, shapes, types, concrete) == (131_072 * times, moved, 262_144 * times)
    assert count(op, *packed_call(op, causal=True)) == (69_632 * times, moved, 135_168 * times)


def test_packed_efficient_attention(count):
    """(1, T, H, D) and a mask type instead of a flag: the same range; backward 2.5 times."""
    shapes = [[1, *Q]] * 3 + [[], [5], [5], [], [], [], []]
    types = [BF16] * 3 + ["", INT, INT] + [SCALAR] * 4
    concrete = [""] * 6 + ["32", "32", "0.", "1"]
    assert count("aten::_efficient_attention_forward", shapes, types, concrete) == (69_632, MOVED, 135_168)
    shapes = [[1, *Q]] * 4 + [[], [1, *Q], [5], [5], [], [], [4, 64], [], [], [], []]
    types = [BF16] * 4 + ["", BF16, INT, INT, SCALAR, SCALAR, "float", SCALAR, SCALAR, SCALAR, SCALAR]
    concrete = [""] * 8 + ["32", "32", "", "0.", "", "", "0"]
    found = count("aten::_efficient_attention_backward", shapes, types, concrete)
    assert found == (131_072 * 2.5, MOVED_BACK, 262_144 * 2.5)


def test_packed_without_room_is_exact(count):
    """64 tokens in 4 sequences of at most 16: all are 16 long, and the range closes."""
    shapes, types, concrete = packed_call("aten::_flash_attention_forward", causal=False)
    concrete[5] = concrete[6] = "16"
    assert count("aten::_flash_attention_forward", shapes, types, concrete) == (131_072, MOVED)


def test_packed_window(count):
    """Window (3, 0): of 16 tokens 1 + 2 + 3 + 13·4 = 58 pairs, of 32 122: 232 to 244, and 2·4·16 FLOPs each."""
    shapes, types, concrete = packed_call("flash_attn::_flash_attn_varlen_forward", causal=True)
    types[10:12], concrete[10:12] = [SCALAR] * 2, ["3", "0"]
    found = count("flash_attn::_flash_attn_varlen_forward", shapes, types, concrete)
    assert found == (232 * 128, MOVED, 244 * 128)


def test_unlike_lengths_with_grouped_heads(count):
    """6 queries in 3 sequences (at most 4), 4 heads; 5 keys (at most 3), 2 heads of 8: 4 to 16 pairs.

    2·4 heads·pairs·16: 512 to 2,048 FLOPs; q and output 6·4·8·2 B, k and v 5·2·8·2 B, 24 rows of 4 B.
    """
    shapes, types, concrete = packed_call("flash_attn::_flash_attn_varlen_forward", causal=False)
    shapes = [[6, 4, 8], [5, 2, 8], [5, 2, 8], [4], [4], *shapes[5:]]
    concrete[5:7] = ["4", "3"]
    moved = 2 * 384 + 2 * 160 + 96
    assert count("flash_attn::_flash_attn_varlen_forward", shapes, types, concrete) == (512, moved, 2_048)


@pytest.mark.parametrize(
    ("op", "at", "extents"),
    [
        ("flash_attn::_flash_attn_varlen_forward", 15, [4, 8]),  # pages
        ("flash_attn::_flash_attn_varlen_forward", 17, [4]),  # how many keys are valid
        ("_vllm_fa2_C::varlen_fwd", 8, [4, 8]),
        ("flash_attn_3::fwd", 14, [4, 8]),
        ("flash_attn_3::fwd", 10, [4]),
        ("aiter::mha_varlen_fwd", 20, [4, 8]),
        ("aiter::mha_varlen_fwd", 26, [5]),  # padded: the tokens are not all real
    ],
)
def test_packed_with_hidden_lengths_is_unknown(count, op, at, extents):
    """Keys in pages, numbers of valid keys, padding between sequences: tensors whose values would be needed."""
    shapes, types, concrete = packed_call(op, causal=True)
    assert count(op, shapes, types, concrete) is not None
    shapes[at], types[at] = extents, INT
    assert count(op, shapes, types, concrete) is None


def test_chunked_attention_is_unknown(count):
    """flash-attn 3 with attention_chunk (a number at 27) masks by chunks; a soft cap there is no integer."""
    shapes, types, concrete = packed_call("flash_attn_3::fwd", causal=True)
    types[27], concrete[27] = SCALAR, "128"
    assert count("flash_attn_3::fwd", shapes, types, concrete) is None
    concrete[27] = "0."
    assert count("flash_attn_3::fwd", shapes, types, concrete) is not None
