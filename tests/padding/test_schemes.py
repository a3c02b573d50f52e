"""Device time of smaller batches, savings of each scheme, and what is recommended: all worked out by hand."""

from __future__ import annotations

import json
from typing import Any

import pytest

from roofwatch.model.answer_rows import StatSum
from roofwatch.model.kinds import Kind
from roofwatch.model.padding import PaddingSum, of_batches
from roofwatch.model.padding_report import ALREADY, BUCKET, FREE, STAY, report
from roofwatch.model.padding_schemes import ROW_KEYS, Seen, rows
from roofwatch.model.padding_split import Batches, Scaling
from roofwatch.model.padding_time import device_time
from roofwatch.model.record import Bound, Evidence, Phase, Signature

# Four sequences, three of 10 and one of 40 tokens, padded to 40: 70 of 160 tokens are real (43.75 %), of their squares
# 3·100 + 1600 = 1900 of 6400 (29.6875 %). A product of the 160 tokens, scores of 40 × 40, an optimizer.
LENGTHS = [[10, 10, 10, 40]]
BATCHES = Batches([(4, 40)])
PRODUCT = Signature(
    "gemm", Kind.MATMUL, "aten::mm", Phase.FORWARD, shapes="[[160,16],[16,16]]", dtypes='["fp32","fp32"]', flops=1,
    bytes=2048,  # of which 16·16·4 = 1024 are weights
)  # fmt: skip
SCORES = Signature("softmax", Kind.SOFTMAX, "aten::_softmax", Phase.FORWARD, shapes="[[4,2,40,40]]", dtypes='["fp32"]')
STEP = Signature("adam", Kind.OPTIMIZER, "aten::_fused_adamw_", Phase.OPTIMIZER)


def stat(signature: Signature, est_ns: float, *, roof: float | None = None, ridge: float | None = None,
         bound: Bound = Bound.MEMORY) -> StatSum:  # fmt: skip
    """Sums of a kernel."""
    return StatSum(signature, "D", 1, int(est_ns), est_ns, 1, 1, bound, Evidence.SHAPES, roof, ridge)


def padding() -> PaddingSum:
    """The sums of the four lengths."""
    found = PaddingSum()
    found.add(of_batches(LENGTHS))
    return found


def seen(product: StatSum, hours: float | None = None, padded: PaddingSum | None = None) -> Seen:
    """600 ns of products, 300 of scores, 100 of the optimizer."""
    sums = [product, stat(SCORES, 300.0), stat(STEP, 100.0)]
    return Seen(padded or padding(), device_time(sums, BATCHES), hours)


def scheme(found: list[dict[str, Any]], name: str, buckets: int | None = None) -> dict[str, Any]:
    """One row."""
    return next(row for row in found if (row["scheme"], row["buckets"]) == (name, buckets))


def test_without_a_roof_time_shrinks_with_the_work() -> None:
    """600·0.4375 + 300·0.296875 = 351.5625 instead of 900: 54.84 % of the 1000 ns; two buckets leave no padding."""
    found = rows(seen(stat(PRODUCT, 600.0), 10.0))
    free = scheme(found, "padding_free")
    assert free["saved_share"] == pytest.approx(0.5484375)
    assert free["saved_device_hours_per_day"] == pytest.approx(5.484375)
    two = scheme(found, "buckets", 2)
    assert two["boundaries"] == [10, 40]
    assert (two["linear_utilisation"], two["quadratic_utilisation"]) == (1.0, 1.0)
    assert two["saved_share"] == pytest.approx(0.5484375)
    assert two["sorted_saved_share"] == pytest.approx(0.5484375)
    as_it_is = scheme(found, "static")
    assert as_it_is["linear_utilisation"] == pytest.approx(0.4375)
    assert as_it_is["quadratic_utilisation"] == pytest.approx(0.296875)
    assert as_it_is["saved_share"] == 0.0
    assert {key for row in found for key in row} == set(ROW_KEYS)


def test_weights_are_read_once_a_batch() -> None:
    """Half of the product's bytes are weights: at a share x of the tokens it takes 600·(0.5 + 0.5·x).

    Padding-free 600·0.71875 + 89.0625 = 520.3125: 37.97 % saved. Split, the buckets are there with 1 - 0.25⁴ =
    0.99609375 and 1 - 0.75⁴ = 0.68359375: 300·1.6796875 + 300·0.4375 + 89.0625 = 724.21875: 17.58 %.
    """
    found = rows(seen(stat(PRODUCT, 600.0, roof=300.0, ridge=1e9)))
    assert scheme(found, "padding_free")["saved_share"] == pytest.approx(0.3796875)
    two = scheme(found, "buckets", 2)
    assert two["saved_share"] == pytest.approx(0.17578125, abs=1e-4)
    assert two["sorted_saved_share"] == pytest.approx(0.3796875)
    assert scheme(found, "padding_free")["saved_device_hours_per_day"] is None


def test_a_smaller_batch_may_become_bound_by_memory() -> None:
    """Compute is the roof, bytes 0.6 of it (an intensity of 10 against a ridge of 6), half of them weights.

    At a quarter of the tokens: max(0.25, 0.3 + 0.3·0.25) = 0.375 of the time, at nine tenths max(0.9, 0.57) = 0.9.
    """
    signature = Signature(
        "gemm", Kind.MATMUL, "aten::mm", shapes="[[160,16],[16,16]]", dtypes='["fp32","fp32"]', flops=20480, bytes=2048
    )
    found = device_time([stat(signature, 600.0, roof=300.0, ridge=6.0, bound=Bound.COMPUTE)], BATCHES)
    assert found.linear.at(0.25, 0.25) == pytest.approx(0.375 * 600)
    assert found.linear.at(0.9, 0.9) == pytest.approx(0.9 * 600)
    assert found.linear.at(1, 1) == pytest.approx(600)


def test_a_gradient_of_weights_writes_them_whole() -> None:
    """[16, 160]·[160, 16]: of 30,720 bytes 20,480 are the tokens' operands, the output is there in any case."""
    signature = Signature(
        "gemm", Kind.MATMUL, "aten::mm", Phase.BACKWARD, shapes="[[16,160],[160,16]]", dtypes='["fp32","fp32"]',
        flops=1, bytes=30720,
    )  # fmt: skip
    found = device_time([stat(signature, 300.0, roof=100.0, ridge=1e9)], BATCHES)
    assert found.linear.at(0.5, 0.5) == pytest.approx(300 * (1 / 3 + 2 / 3 * 0.5), rel=1e-3)


def test_latency_bound_kernels_take_as_long_as_before() -> None:
    """A launch of any size takes its time; and it is told how much of the time that is."""
    found = device_time([stat(PRODUCT, 600.0, roof=1.0, ridge=1.0, bound=Bound.LATENCY)], BATCHES)
    assert found.shrunk(0.1, 0.01) == pytest.approx(600)
    assert (found.latency_ns, found.unroofed_ns) == (600, 0)


def test_fused_attention_reads_its_tokens_and_computes_their_squares() -> None:
    """Arithmetic is the roof, bytes a tenth of it: at half the tokens max(0.25, 0.1·0.5), at 5 % max(0.0025, 0.005)."""
    attention = Signature(
        "flash", Kind.ATTENTION, "aten::_flash_attention_forward", shapes="[[4,40,2,8],[4,40,2,8],[4,40,2,8]]",
        dtypes='["bf16","bf16","bf16"]', flops=1000, bytes=10,
    )  # fmt: skip
    found = device_time([stat(attention, 500.0, roof=100.0, ridge=10.0, bound=Bound.COMPUTE)], BATCHES)
    assert found.by[Scaling.QUADRATIC] == 500
    assert found.shrunk(0.5, 0.25) == pytest.approx(125)
    assert found.shrunk(0.05, 0.0025) == pytest.approx(500 * 0.005)


def test_kernels_of_other_batches_tell_no_savings() -> None:
    """The product has 160 rows, the batches 4 × 100 tokens: what is told is the lengths', and that it does not fit."""
    padded = PaddingSum()
    padded.add(of_batches([[10, 10, 10, 100]]))
    found = report(Seen(padded, device_time([stat(PRODUCT, 600.0)], Batches(padded.shapes)), 24.0))
    assert found["split"]["fits"] is False
    assert all(row["saved_share"] is None for row in found["rows"])
    assert found["recommendation"]["do"] == BUCKET
    assert found["recommendation"]["free_share"] is None


def test_recommendations() -> None:
    """Small variance: stay. Large and a low rate: buckets. Large and a high rate: padding-free, with its demands."""
    plain = stat(PRODUCT, 600.0)
    even = PaddingSum()
    even.add(of_batches([[38, 39, 40, 40]]))
    assert report(seen(plain, 100.0, even))["recommendation"]["do"] == STAY
    cheap = report(seen(plain, 1.0))["recommendation"]
    assert (cheap["do"], cheap["buckets"], cheap["demands"]) == (BUCKET, 2, [])
    # split saves 17.58 %, sorted and padding-free 37.97 %: of few buckets nothing is lost, so buckets do
    heavy = stat(PRODUCT, 600.0, roof=300.0, ridge=1e9)
    assert report(seen(heavy, 100.0))["recommendation"]["do"] == BUCKET
    # 40 lengths from 1 to 40: of 16 buckets some padding is left, and of 1000 device-hours a day that is worth it
    many = PaddingSum()
    many.add(of_batches([[*range(1, 40), 400]]))
    rich = Seen(many, device_time([stat(_product(16000), 900.0)], Batches(many.shapes)), 10_000.0)
    found = report(rich)["recommendation"]
    assert found["do"] == FREE
    assert any("cu_seqlens" in one for one in found["demands"])
    assert any("cache" in one for one in found["demands"])
    assert any("loss and masks" in one for one in found["demands"])
    assert found["extra_device_hours_per_day"] >= 2.4
    poor = Seen(rich.padding, rich.time, 0.5)
    assert report(poor)["recommendation"]["do"] == BUCKET


def _product(tokens: int) -> Signature:
    return Signature(
        "gemm", Kind.MATMUL, "aten::mm", shapes=json.dumps([[tokens, 16], [16, 16]]), dtypes='["fp32","fp32"]'
    )


def test_a_job_on_packed_sequences_is_left_alone() -> None:
    """All attention varlen, products of 70 packed tokens: nothing has the padded batch's shapes."""
    varlen = Signature("flash_fwd_varlen", Kind.ATTENTION, "flash_attn::_flash_attn_varlen_forward")
    found = report(Seen(padding(), device_time([stat(varlen, 400.0), stat(_product(70), 600.0)], BATCHES), 24.0))
    assert found["recommendation"]["do"] == ALREADY
    assert found["split"]["packed_attention_share"] == 1.0


def test_packed_attention_beside_padded_products() -> None:
    """Attention is unpadded, the layers are not: their 600 of 1000 ns shrink to 262.5, the attention's 400 do not."""
    varlen = Signature("flash_fwd_varlen", Kind.ATTENTION, "flash_attn::_flash_attn_varlen_forward")
    found = report(Seen(padding(), device_time([stat(varlen, 400.0), stat(PRODUCT, 600.0)], BATCHES), 24.0))
    assert scheme(found["rows"], "padding_free")["saved_share"] == pytest.approx(0.3375)
    assert found["recommendation"]["do"] in {BUCKET, FREE}


def test_lengths_alone() -> None:
    """Without kernels utilisation is told and no savings; the recommendation rests on the tokens."""
    found = report(Seen(padding()))
    assert found["split"] is None
    assert [row["saved_share"] for row in found["rows"]] == [None] * len(found["rows"])
    assert scheme(found["rows"], "buckets", 2)["linear_utilisation"] == 1.0
    assert found["recommendation"]["do"] == BUCKET
    assert report(Seen(PaddingSum()))["recommendation"] is None


def test_one_length_and_a_longer_padding() -> None:
    """All of 10 tokens, padded to 40: one bucket of 10 is what padding to the longest would be."""
    padded = PaddingSum()
    padded.add(of_batches([[10, 10]], 40))
    found = rows(Seen(padded))
    assert [(row["scheme"], row["buckets"]) for row in found] == [
        ("static", None), ("buckets", 1), ("padding_free", None)
    ]  # fmt: skip
