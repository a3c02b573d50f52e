"""Which kernels work on padding: rules by shapes, and packed attention by what it is told."""

from __future__ import annotations

import json

import pytest

from roofwatch.model.kinds import Kind
from roofwatch.model.padding_split import Batches, Scaling, packed, scaling
from roofwatch.model.record import Bound, Phase, Signature

BATCH = Batches([(8, 512)])  # 4096 tokens
L, Q, N, U, P = Scaling.LINEAR, Scaling.QUADRATIC, Scaling.OTHER, Scaling.UNKNOWN, Scaling.PACKED


def signature(kind: Kind, shapes: object, op: str | None = "aten::x", **more: object) -> Signature:
    """A kernel with these inputs."""
    text = None if shapes is None else json.dumps(shapes)
    return Signature(kernel=str(more.pop("kernel", "k")), kind=kind, op=op, shapes=text, **more)  # type: ignore[arg-type]


RULES = [
    # a product of all tokens with weights, its gradients, a normalisation, an embedding
    (Kind.MATMUL, [[4096, 768], [768, 3072]], L),
    (Kind.MATMUL, [[3072, 4096], [4096, 768]], L),
    (Kind.NORM, [[8, 512, 768], [768]], L),
    (Kind.GATHER_SCATTER, [[30522, 768], [8, 512]], L),
    (Kind.ELEMENTWISE, [[512, 8, 768], [512, 8, 768]], L),  # length first
    (Kind.ROPE, [[8, 12, 512, 64], [1, 1, 512, 64]], L),
    (Kind.ELEMENTWISE, [[96, 512, 64]], L),  # B·heads × L × width
    (Kind.LOSS, [[8 * 511, 32000], [8 * 511]], L),  # over the next tokens
    (Kind.LAYOUT, [[[8, 512, 384], [8, 512, 384]]], L),  # a list of tensors
    # scores: two products, softmax, mask, dropout; as (B, heads, L, L) and as (B·heads, L, L)
    (Kind.MATMUL, [[96, 512, 64], [96, 64, 512]], Q),
    (Kind.MATMUL, [[96, 512, 512], [96, 512, 64]], Q),
    (Kind.SOFTMAX, [[8, 12, 512, 512]], Q),
    (Kind.ELEMENTWISE, [[96, 512, 512], [512, 512]], Q),
    (Kind.ELEMENTWISE, [[1, 1, 512, 512]], Q),
    (Kind.SOFTMAX, [[8, 512, 512]], Q),  # one head
    (Kind.SOFTMAX, [[8, 512, 32000]], L),  # over words, not over keys
    # fused attention of whole batches; a step of decoding has one query
    (Kind.ATTENTION, [[8, 12, 512, 64], [8, 12, 512, 64], [8, 12, 512, 64]], Q),
    (Kind.ATTENTION, [[8, 12, 1, 64], [8, 12, 512, 64], [8, 12, 512, 64]], L),
    # a width that happens to be the length
    (Kind.ELEMENTWISE, [[8, 512, 512]], L),
    (Kind.MATMUL, [[4096, 512], [512, 512]], L),
    # weights alone, whatever their sizes
    (Kind.ELEMENTWISE, [[768, 3072]], N),
    (Kind.CAST, [[512, 512]], N),
    (Kind.ELEMENTWISE, [[512]], N),
    (Kind.LAYOUT, [[]], N),
    (Kind.MATMUL, None, U),
    (Kind.ATTENTION, None, U),
]


@pytest.mark.parametrize(("kind", "shapes", "expected"), RULES)
def test_shapes_tell_how_a_kernel_scales(kind: Kind, shapes: object, expected: Scaling) -> None:
    """Batches of 8 sequences padded to 512."""
    assert scaling(signature(kind, shapes), Bound.COMPUTE, BATCH) is expected


def test_what_is_of_no_batch() -> None:
    """Optimizer, communication and copies are other work, whatever their shapes."""
    shapes = [[8, 512, 768]]
    assert scaling(signature(Kind.OPTIMIZER, shapes), Bound.MEMORY, BATCH) is N
    assert scaling(signature(Kind.ELEMENTWISE, shapes, phase=Phase.OPTIMIZER), Bound.MEMORY, BATCH) is N
    assert scaling(signature(Kind.COMM, None), Bound.COMMUNICATION, BATCH) is N
    assert scaling(signature(Kind.COPY_FILL, None), Bound.COPY, BATCH) is N


def test_one_sequence_needs_no_second_size() -> None:
    """A batch of one: (1, L, D), (L, D), and an Ascend's (L, 1, D)."""
    one = Batches([(1, 300)])
    for shapes in ([[1, 300, 768]], [[300, 768], [768, 768]], [[300, 1, 768]]):
        assert scaling(signature(Kind.ELEMENTWISE, shapes), Bound.MEMORY, one) is L
    assert scaling(signature(Kind.ELEMENTWISE, [[16, 300, 300]]), Bound.MEMORY, one) is Q


def test_tiled_formats_are_unknown() -> None:
    """FRACTAL_NZ holds tiles: that no size of the batch is in it says nothing."""
    tiled = signature(Kind.MATMUL, [[48, 256, 16, 16]], None, arguments='{"formats":["FRACTAL_NZ"]}')
    assert scaling(tiled, Bound.COMPUTE, BATCH) is U


QKV = [[3000, 12, 64]] * 3
PACKED = [
    signature(Kind.ATTENTION, None, "flash_attn::_flash_attn_varlen_forward"),
    signature(Kind.ATTENTION, None, None, kernel="void flash_fwd_varlen_kernel<128>"),
    signature(Kind.ELEMENTWISE, None, "aten::_nested_from_padded"),
    signature(Kind.GATHER_SCATTER, None, "fbgemm::jagged_to_padded_dense"),
    signature(
        Kind.ATTENTION, [*QKV, [9], [9]], "aten::_flash_attention_forward",
        dtypes='["bf16","bf16","bf16","int32","int32"]',
    ),
    signature(
        Kind.ATTENTION, [*QKV, [], [9], [9]], "xformers::efficient_attention_forward_cutlass",
        dtypes='["bf16","bf16","bf16","","int32","int32"]',
    ),
    # Ascend in the TND layout: statistics (T, N, 8) beside queries (T, N, D)
    signature(
        Kind.ATTENTION, QKV, None, kernel="FlashAttentionScore", dtypes='["bf16","bf16","bf16"]',
        arguments='{"outputs":[[[3000,12,8],[3000,12,8],[],[3000,12,64]],["fp32","fp32","bf16","bf16"],[]]}',
    ),
    # …or told the lengths
    signature(
        Kind.ATTENTION, [*QKV, [], [8]], None, kernel="FusedInferAttentionScore",
        dtypes='["bf16","bf16","bf16","bf16","int64"]',
    ),
]  # fmt: skip
PLAIN = [
    signature(
        Kind.ATTENTION, [[8, 512, 12, 64]] * 3, "aten::_flash_attention_forward", dtypes='["bf16","bf16","bf16"]'
    ),
    # Ascend, (S, B, H): statistics (B, N, S, 8)
    signature(
        Kind.ATTENTION, [[512, 8, 768]] * 3, None, kernel="FlashAttentionScore", dtypes='["bf16","bf16","bf16"]',
        arguments='{"outputs":[[[8,12,512,8],[8,12,512,8],[],[512,8,768]],["fp32","fp32","bf16","bf16"],[]]}',
    ),
    signature(Kind.MATMUL, [[4096, 768], [768, 768]], "aten::mm", dtypes='["bf16","bf16"]'),
]  # fmt: skip


@pytest.mark.parametrize("found", PACKED, ids=lambda s: s.op or s.kernel)
def test_packed_sequences_are_known(found: Signature) -> None:
    """By the name, by the list where sequences begin, by Ascend's layout: no padding is in them."""
    assert packed(found)
    assert scaling(found, Bound.COMPUTE, BATCH) is P


@pytest.mark.parametrize("found", PLAIN, ids=lambda s: s.op or s.kernel)
def test_padded_attention_is_not_packed(found: Signature) -> None:
    """The same ops without such a list."""
    assert not packed(found)


def test_damaged_texts_are_unknown() -> None:
    """Shapes and arguments are untrusted."""
    for text in ("[[8,", "{}", "[" * 5000, '[["8",512]]'):
        assert scaling(Signature("k", Kind.NORM, "aten::x", shapes=text), Bound.MEMORY, BATCH) in {U, N}
    odd = Signature("FlashAttentionScore", Kind.ATTENTION, shapes="[[4,4,4]]", dtypes='["bf16"]', arguments="[1,")
    assert not packed(odd)
