"""Attention of libraries beside aten, dense: positions of each op's arguments, and flash-attn's autograd functions."""

from __future__ import annotations

import pytest

from roofwatch.model.formulas.precision import precision_of
from roofwatch.model.formulas.table import formula_of
from roofwatch.model.record import Vendor
from roofwatch.model.shapes import Argument, Call, Tensor

BF16, FP8, INT, SCALAR = "c10::BFloat16", "c10::Float8_e4m3fn", "int", "Scalar"
X = [2, 8, 4, 16]  # 2 batches, 8 long, 4 heads of 16: 1,024 elements, 2,048 B in bf16
MOVED, MOVED_BACK = 4 * 2_048 + 64 * 4, 8 * 2_048 + 64 * 4
DENSE = {
    # op: (arguments before q, position of causal, of the window or None, how many arguments)
    "flash_attn::_flash_attn_forward": (0, 5, 6, 11),
    "flashattn::_flash_attn_forward": (0, 5, 6, 11),
    "flash_attn::_flash_attn_backward": (1, 11, 12, 18),
    "flash_attn_3::fwd": (0, 24, 25, 34),
    "flash_attn_3::_flash_attn_forward": (0, 24, 25, 34),
    "flash_attn_3::bwd": (1, 16, 17, 22),
    "flash_attn_3::_flash_attn_backward": (1, 16, 17, 22),
    "_vllm_fa2_C::fwd_kvcache": (0, 14, 15, 20),
    "aiter::mha_fwd": (0, 5, 6, 20),
    "aiter::fmha_v3_fwd": (0, 5, 6, 15),
    "aiter::mha_bwd": (1, 8, 9, 18),
    "aiter::fmha_v3_bwd": (1, 8, 9, 20),
    "aten::_flash_attention_forward_no_dropout_inplace": (1, 9, 12, 18),
}


def dense_call(op: str, causal: str, window: tuple[str, str]) -> tuple[list[list[int]], list[str], list[str]]:
    """Shapes, dtypes and concrete inputs of the same q, k and v."""
    first, causal_at, window_at, arguments = DENSE[op]
    shapes: list[list[int]] = [[]] * arguments
    types, concrete = [""] * arguments, [""] * arguments
    for at in range(first, first + 3):
        shapes[at], types[at] = X, BF16
    for at, text in ((causal_at, causal), (window_at, window[0]), (window_at + 1, window[1])):
        types[at], concrete[at] = SCALAR, text
    return shapes, types, concrete


@pytest.mark.parametrize("op", DENSE)
def test_dense_attention_in_each_ops_own_order(count, op):
    """8 heads · 64 pairs · 32 · 2 = 32,768 FLOPs; causal 36 pairs, 18,432; a window (1, 0) 15 pairs, 7,680.

    Backward 2.5 times.
    """
    backward = "backward" in op or op.endswith("bwd")
    times, moved = (2.5, MOVED_BACK) if backward else (1, MOVED)
    assert count(op, *dense_call(op, "False", ("-1", "-1"))) == (32_768 * times, moved)
    assert count(op, *dense_call(op, "True", ("-1", "-1"))) == (18_432 * times, moved)
    assert count(op, *dense_call(op, "True", ("1", "0"))) == (7_680 * times, moved)


@pytest.mark.parametrize("at", [3, 5, 8, 10])
def test_a_cache_of_unknown_length_is_unknown(count, at):
    """New keys, numbers of valid keys, slots of the cache, pages: how many keys a query sees no trace tells."""
    shapes, types, concrete = dense_call("_vllm_fa2_C::fwd_kvcache", "True", ("-1", "-1"))
    shapes[at], types[at] = [2, 8], INT
    assert count("_vllm_fa2_C::fwd_kvcache", shapes, types, concrete) is None


def test_one_query_over_a_cache(count):
    """Decoding without a number of valid keys: 1 query of 8 heads on 100 keys of 2 heads of 64, all of them seen.

    4·8·100·64 = 204,800 FLOPs; q and output 1,024 B each, k and v 25,600 B each, 8 rows of 4 B.
    """
    shapes, types, concrete = dense_call("_vllm_fa2_C::fwd_kvcache", "True", ("-1", "-1"))
    shapes[:3] = [[1, 1, 8, 64], [1, 100, 2, 64], [1, 100, 2, 64]]
    assert count("_vllm_fa2_C::fwd_kvcache", shapes, types, concrete) == (204_800, 53_280)


def test_fp8_attention_of_flash_3(count):
    """fp8 q, k, v of 1,024 B each, a bf16 output; measured against the fp8 peak, though the output is bf16."""
    shapes, types, concrete = dense_call("flash_attn_3::fwd", "False", ("-1", "-1"))
    types[:3] = [FP8] * 3
    assert count("flash_attn_3::fwd", shapes, types, concrete) == (32_768, 3 * 1_024 + 2_048 + 256)
    q, out = (Argument(Tensor(tuple(X), dtype)) for dtype in ("fp8_e4m3", "bf16"))
    call = Call("flash_attn_3::fwd", (q, q, q, Argument(), Argument(), Argument(), out), "flash_fwd_kernel")
    formula = formula_of("flash_attn_3::fwd")
    assert formula is not None
    assert precision_of(formula, call, Vendor.NVIDIA) == ("fp8", "matrix")


FUNCTION = ["", "", "", "0.", "", "True", "", "0.", "", "False", "False", "True"]  # as an autograd function is recorded


def test_flash_attentions_function_is_a_range(count):
    """Its window is a tuple, which is not recorded: from one key a query (8 pairs) to the causal 36.

    8·8·32·2 = 4,096 to 18,432 FLOPs.
    """
    types = [BF16] * 3 + [SCALAR if text else "" for text in FUNCTION[3:]]
    shapes = [X] * 3 + [[]] * 9
    assert count("FlashAttnFunc", shapes, types, FUNCTION) == (4_096, MOVED, 18_432)


def test_flash_attentions_function_of_packed_tensors(count):
    """Q, k and v in one tensor (B, S, 3, H, D), or k and v in one: the same range, the bytes of each apart."""
    types = [BF16, *[SCALAR if text else "" for text in FUNCTION[3:]]]
    whole = [[2, 8, 3, 4, 16], *[[]] * 9]
    assert count("FlashAttnQKVPackedFunc", whole, types, ["", *FUNCTION[3:]]) == (4_096, MOVED, 18_432)
    two = [X, [2, 8, 2, 4, 16], *[[]] * 9]
    assert count("FlashAttnKVPackedFunc", two, [BF16, *types], ["", "", *FUNCTION[3:]]) == (4_096, MOVED, 18_432)
    assert count("FlashAttnQKVPackedFunc", [X, *[[]] * 9], types, ["", *FUNCTION[3:]]) is None


def test_flash_attentions_function_over_packed_sequences(count):
    """64 tokens, 4 sequences of at most 32, 4 heads of 8: from 64 pairs (one key each) to the causal 1,056.

    2·4·64·16 = 8,192 to 135,168 FLOPs; with one list of lengths for q, k and v likewise. Unlike lengths: unknown,
    since a sequence may have fewer keys than queries.
    """
    moved = 4 * 4_096 + 1_024
    rest = [INT, INT, SCALAR, SCALAR, *[SCALAR if text else "" for text in FUNCTION[3:]]]
    texts = ["", "", "32", "32", *FUNCTION[3:]]
    shapes = [[64, 4, 8]] * 3 + [[5], [5], *[[]] * 11]
    assert count("FlashAttnVarlenFunc", shapes, [BF16] * 3 + rest, ["", "", "", *texts]) == (8_192, moved, 135_168)
    whole = [[64, 3, 4, 8], [5], *[[]] * 10]
    found = count("FlashAttnVarlenQKVPackedFunc", whole, [BF16, *rest[1:3], *rest[4:]], ["", *texts[1:3], *texts[4:]])
    assert found == (8_192, moved, 135_168)
    unlike = [[64, 4, 8], [60, 4, 8], [60, 4, 8], *shapes[3:]]
    assert count("FlashAttnVarlenFunc", unlike, [BF16] * 3 + rest, ["", "", "", *texts]) is None
