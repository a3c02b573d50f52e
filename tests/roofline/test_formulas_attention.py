"""Attention: FLOPs and bytes worked out by hand."""

from __future__ import annotations

import pytest

F32, BF16, SCALAR, LIST = "float", "c10::BFloat16", "Scalar", "ScalarList"
SDPA = [F32, F32, F32, "", SCALAR, SCALAR, "", SCALAR]


def test_attention(count):
    """q, k, v (2,4,8,16) in fp32: 8 heads × 64 pairs × (16 + 16) × 2 = 32,768 FLOPs.

    Bytes: 4 · (3·1,024 + 1,024) + 8 heads · 8 rows · 4 = 16,384 + 256.
    """
    shapes = [[2, 4, 8, 16]] * 3 + [[]] * 5
    concrete = ["", "", "", "", "0.", "False", "", "False"]
    assert count("aten::scaled_dot_product_attention", shapes, SDPA, concrete) == (32_768, 16_640)


def test_causal_attention_counts_the_triangle(count):
    """The same with a causal mask: 8·9/2 = 36 of 64 pairs: 8 · 36 · 32 · 2 = 18,432 FLOPs; the bytes stay."""
    shapes = [[2, 4, 8, 16]] * 3 + [[]] * 5
    concrete = ["", "", "", "", "0.", "True", "", "False"]
    assert count("aten::scaled_dot_product_attention", shapes, SDPA, concrete) == (18_432, 16_640)


def test_causal_attention_of_unequal_lengths(count):
    """3 queries, 5 keys. aten masks from the top left: 1 + 2 + 3 = 6 pairs.

    Flash-attn from the bottom right: 3 + 4 + 5 = 12.

    One head of 2: FLOPs 6·(2 + 2)·2 = 48 and 12·4·2 = 96.
    """
    q, kv = [1, 1, 3, 2], [1, 1, 5, 2]
    top = ["", "", "", "", "0.", "True", "", "False"]
    assert count("aten::scaled_dot_product_attention", [q, kv, kv] + [[]] * 5, SDPA, top).flops == 48
    q, kv = [1, 3, 1, 2], [1, 5, 1, 2]
    types = [BF16, BF16, BF16, "", "", SCALAR, SCALAR, SCALAR, SCALAR, SCALAR]
    bottom = ["", "", "", "", "", "3", "5", "0.", "True", "False"]
    assert count("aten::_flash_attention_forward", [q, kv, kv] + [[]] * 7, types, bottom).flops == 96


def test_causal_attention_with_more_queries_than_keys(count):
    """5 queries, 3 keys. Top left: 1 + 2 + 3 + 3 + 3 = 12 pairs.

    Bottom right: the last three queries see 1 + 2 + 3 = 6.
    """
    q, kv = [1, 1, 5, 2], [1, 1, 3, 2]
    top = ["", "", "", "", "0.", "True", "", "False"]
    assert count("aten::scaled_dot_product_attention", [q, kv, kv] + [[]] * 5, SDPA, top).flops == 12 * 8
    q, kv = [1, 5, 1, 2], [1, 3, 1, 2]
    types = [BF16, BF16, BF16, "", "", SCALAR, SCALAR, SCALAR, SCALAR, SCALAR]
    bottom = ["", "", "", "", "", "5", "3", "0.", "True", "False"]
    assert count("aten::_flash_attention_forward", [q, kv, kv] + [[]] * 7, types, bottom).flops == 6 * 8


def test_decode_with_grouped_heads(count):
    """One query row, 4 query heads on 2 key heads, 100 keys of 8: 4 · 100 · 16 · 2 = 12,800 FLOPs.

    bf16: (32 + 1,600 + 1,600 + 32)·2 + 4 · 4 B of log-sum-exp = 6,544 B.
    One query row under a mask sees all keys.
    """
    shapes = [[1, 1, 4, 8], [1, 100, 2, 8], [1, 100, 2, 8]] + [[]] * 7
    types = [BF16, BF16, BF16, "", "", SCALAR, SCALAR, SCALAR, SCALAR, SCALAR]
    concrete = ["", "", "", "", "", "1", "100", "0.", "True", "False"]
    assert count("aten::_flash_attention_forward", shapes, types, concrete) == (12_800, 6_544)


def test_keys_in_pages_and_counts_of_valid_keys_are_unknown(count):
    """Key lengths in a tensor (seqused_k at 13), pages (block_table at 15): how many keys there are no trace tells."""
    shapes = [[4, 1, 4, 8], [4, 512, 4, 8], [4, 512, 4, 8]] + [[]] * 14
    types = [BF16, BF16, BF16, "", "", SCALAR, SCALAR, SCALAR, SCALAR, SCALAR, *[""] * 7]
    concrete = ["", "", "", "", "", "1", "512", "0.", "True", "False", *[""] * 7]
    assert count("aten::_flash_attention_forward", shapes, types, concrete).flops == 2 * 4 * 4 * 512 * 16
    for at, extent in ((13, [4]), (15, [4, 32])):
        given, kinds = list(shapes), list(types)
        given[at], kinds[at] = extent, "int"
        assert count("aten::_flash_attention_forward", given, kinds, concrete) is None


def test_eight_bit_attention(count):
    """fp8 with scales (10 to 12) comes before the flag that plain attention has at 4: causal is at 7; output in bf16.

    (1,2,4,16): 2 heads · 10 pairs · 32 · 2 = 1,280 FLOPs; q, k, v 128 B each, output 256 B, 8 rows of 4 B.
    """
    fp8 = "c10::Float8_e4m3fn"
    shapes, types = [[1, 2, 4, 16]] * 3 + [[]] * 6, [fp8] * 3 + [F32] * 3 + [SCALAR] * 3
    concrete = [""] * 6 + ["0.", "True", "False"]
    assert count("aten::_scaled_dot_product_flash_attention", shapes, types, concrete) == (1_280, 3 * 128 + 256 + 32)


def test_a_local_window_of_efficient_attention(count):
    """window_size 2 (at 13) under a causal mask: itself and the key before: 1 + 2·7 = 15 of 36 pairs.

    8 heads · 15 · 32 · 2 = 7,680 FLOPs. A causal mask from the bottom right (2) with 3 queries on 5 keys: 12 pairs.
    """
    types = [F32] * 3 + ["", "", "", SCALAR, SCALAR, SCALAR, SCALAR, SCALAR, "", "", SCALAR]
    shapes = [[2, 8, 4, 16]] * 3 + [[]] * 11
    concrete = [""] * 6 + ["8", "8", "0.", "1", "False", "", "", "2"]
    assert count("aten::_efficient_attention_forward", shapes, types, concrete) == (7_680, 16_640)
    shapes = [[1, 3, 1, 2], [1, 5, 1, 2], [1, 5, 1, 2]] + [[]] * 7
    concrete = [""] * 6 + ["3", "5", "0.", "2"]
    assert count("aten::_efficient_attention_forward", shapes, types[:10], concrete).flops == 12 * 8


@pytest.mark.parametrize(
    ("op", "after", "heads_first"),
    [
        ("aten::_scaled_dot_product_flash_attention", ["0.", "False"], True),
        ("aten::_scaled_dot_product_flash_attention_for_cpu", ["0.", "False"], True),
        ("aten::_scaled_dot_product_efficient_attention", ["", "True", "0.", "False"], True),
        ("aten::_scaled_dot_product_cudnn_attention", ["", "True", "0.", "False"], True),
        ("aten::_scaled_dot_product_attention_math", ["", "0.", "False"], True),
        ("aten::_scaled_dot_product_fused_attention_overrideable", ["", "0.", "False"], True),
        ("aten::_cudnn_attention_forward", ["", "", "", "8", "8", "True", "0.", "False"], True),
        ("aten::_efficient_attention_forward", ["", "", "", "8", "8", "0.", "0"], False),
        ("flash_attn::_flash_attn_forward", ["0.", "0.25", "False"], False),
    ],
)
def test_attention_in_each_ops_own_order(count, op, after, heads_first):
    """(2,4,8,16) attention without a mask in every op that does it: 32,768 FLOPs and 16,640 B in fp32, as above."""
    shape = [2, 4, 8, 16] if heads_first else [2, 8, 4, 16]
    types = [F32] * 3 + [SCALAR if text else "" for text in after]
    assert count(op, [shape] * 3 + [[]] * len(after), types, ["", "", "", *after]) == (32_768, 16_640)


@pytest.mark.parametrize(
    ("op", "rest", "heads_first"),
    [
        ("aten::_scaled_dot_product_flash_attention_for_cpu_backward", ["0.", "False"], True),
        ("aten::_scaled_dot_product_flash_attention_backward", ["", "", "8", "8", "0.", "False"], True),
        ("aten::_scaled_dot_product_cudnn_attention_backward", [*[""] * 5, "8", "8", "0.", "False"], True),
        ("aten::_cudnn_attention_backward", [*[""] * 5, "8", "8", "0.", "False"], True),
        ("aten::_flash_attention_backward", ["", "", "8", "8", "0.", "False"], False),
    ],
)
def test_attention_backward(count, op, rest, heads_first):
    """(2,4,8,16) backward: 8 heads × 64 pairs × 5 products of 16 × 2 = 81,920 FLOPs (2.5 × forward).

    Bytes in fp32: reads q, k, v, out, dout (5·1,024) and the log-sum-exp (64), writes dq, dk, dv (3·1,024):
    8,256·4 = 33,024.
    """
    shape = [2, 4, 8, 16] if heads_first else [2, 8, 4, 16]
    types = [F32] * 6 + [SCALAR if text else "" for text in rest]
    shapes = [shape] * 5 + [[2, 4, 8]] + [[]] * len(rest)
    assert count(op, shapes, types, [""] * 6 + rest) == (81_920, 33_024)


def test_efficient_attention_backward(count):
    """The same 81,920 FLOPs where the bias stands between value and output: (grad, q, k, v, bias, out, …)."""
    first, second = [2, 4, 8, 16], [2, 8, 4, 16]
    types = [F32] * 4 + ["", F32, F32, SCALAR, SCALAR, SCALAR, LIST, SCALAR]
    shapes = [first] * 4 + [[], first, [2, 4, 8]] + [[]] * 5
    concrete = [""] * 9 + ["0.", "[True, True, True, False]", "False"]
    assert count("aten::_scaled_dot_product_efficient_attention_backward", shapes, types, concrete) == (81_920, 33_024)
    types = [F32] * 4 + ["", F32, "", "", SCALAR, SCALAR, F32, SCALAR, SCALAR, SCALAR, SCALAR]
    shapes = [second] * 4 + [[], second, [], [], [], [], [2, 4, 8], [], [], [], []]
    concrete = [""] * 8 + ["8", "8", "", "0.", "", "", "0"]
    assert count("aten::_efficient_attention_backward", shapes, types, concrete) == (81_920, 33_024)
