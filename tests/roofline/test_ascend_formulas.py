"""FLOPs and bytes of Ascend kernels by type: golden values worked out by hand from the sizes."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from roofwatch.model.formulas.ascend.operands import KernelCall, operands_of, outputs_of, relayouts
from roofwatch.model.formulas.ascend.table import formula_of_type, precision_of_kernel, work_of_kernel
from roofwatch.model.formulas.base import Work
from roofwatch.model.formulas.table import MAX_COUNT

BF16, FP32, I64 = "DT_BF16", "FLOAT", "INT64"


def call(type_, inputs, outputs=(), hf32=None, known=None):
    """A call from (shape, dtype, format) triples; the format may be left out."""

    def texts(operands):
        full = [(*o, "ND")[:3] for o in operands]
        return [
            json.dumps([list(o[0]) for o in full]),
            json.dumps([o[1] for o in full]),
            json.dumps([o[2] for o in full]),
        ]

    told = operands_of(*texts(inputs))
    made = outputs_of("[" + ",".join(texts(outputs)) + "]")
    assert told is not None
    assert made is not None
    return KernelCall(type_, told, made, hf32, known)


def work(type_, inputs, outputs=(), **more):
    """The work of a call, as (FLOPs, bytes) or with the upper end of a range."""
    made = call(type_, inputs, outputs, **more)
    formula = formula_of_type(type_)
    assert formula is not None, f"no formula for {type_}"
    found = work_of_kernel(formula, made)
    return found if found is None or found.flops_max is not None else tuple(found)[:2]


# -- products ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("a", "b", "out"),
    [
        ((64, 32), (32, 48), (64, 48)),
        ((64, 32), (48, 32), (64, 48)),  # b transposed
        ((32, 64), (32, 48), (64, 48)),  # a transposed
        ((32, 64), (48, 32), (64, 48)),
    ],
)
def test_a_product_in_any_orientation(a, b, out):
    """2·64·48·32 = 196,608 FLOPs whichever operand is transposed; 2 B for each of 64·32 + 32·48 + 64·48 elements."""
    assert work("MatMulV3", [(a, BF16), (b, BF16)], [(out, BF16)]) == (196_608, 2 * (2048 + 1536 + 3072))


def test_a_product_that_does_not_fit_is_unknown():
    """Sizes that no orientation explains, and a kernel without outputs."""
    assert work("MatMulV2", [((64, 32), BF16), ((31, 48), BF16)], [((64, 48), BF16)]) is None
    assert work("MatMulV2", [((64, 32), BF16), ((32, 48), BF16)]) is None


def test_a_bias_is_read_and_not_counted():
    """AlexNet's last layer: 2·32·1000·4096 = 262,144,000; 4·(32·4096 + 1000·4096 + 1000 + 32·1000) bytes."""
    found = work("MatMulV2", [((32, 4096), FP32), ((1000, 4096), FP32), ((1000,), FP32)], [((32, 1000), FP32)])
    assert found == (262_144_000, 4 * (131_072 + 4_096_000 + 1000 + 32_000))


def test_a_product_of_tiles():
    """FRACTAL_NZ (N1, M1, 16, 16): 256·16 rows and 9496·16 columns; 2·151936·1024·4096 FLOPs of the Qwen3 set."""
    nz = "FRACTAL_NZ"
    a, b, out = (9496, 256, 16, 16), (64, 256, 16, 16), (64, 9496, 16, 16)
    found = work("MatMulV2", [(a, BF16, nz), (b, BF16, nz)], [(out, BF16, nz)])
    assert found == (2 * 151_936 * 1024 * 4096, 2 * (4096 * 151_936 + 4096 * 1024 + 151_936 * 1024))


def test_padding_of_a_tiled_operand_moves_and_is_not_counted():
    """A weight of 1000 columns in tiles of 16 is 1008 wide: its bytes are those of 1008, its FLOPs those of 1000."""
    weight = ((63, 256, 16, 16), BF16, "FRACTAL_NZ")
    found = work("MatMulV2", [((32, 4096), BF16), weight], [((32, 1000), BF16)])
    assert found == (2 * 32 * 1000 * 4096, 2 * (32 * 4096 + 1008 * 4096 + 32 * 1000))


def test_a_logical_shape_in_a_tiled_format_is_padded():
    """(4096, 1000) told as FRACTAL_NZ takes 4096 · 1008 elements."""
    found = work("MatMulV2", [((32, 4096), BF16), ((4096, 1000), BF16, "FRACTAL_NZ")], [((32, 1000), BF16)])
    assert found == (2 * 32 * 1000 * 4096, 2 * (32 * 4096 + 4096 * 1008 + 32 * 1000))


def test_batched_and_quantised_products():
    """Batches multiply; int8 operands are a byte each, a scale is read; four-bit weights half a byte, packed or not."""
    batched = work("BatchMatMulV3", [((8, 64, 32), BF16), ((8, 32, 48), BF16)], [((8, 64, 48), BF16)])
    assert batched == (8 * 196_608, 8 * 2 * (2048 + 1536 + 3072))
    inputs = [((64, 32), "INT8"), ((32, 48), "INT8"), ((48,), FP32)]
    assert work("QuantBatchMatmulV3", inputs, [((64, 48), "FLOAT16")]) == (196_608, 2048 + 1536 + 192 + 2 * 3072)
    plain = work("WeightQuantBatchMatmulV2", [((64, 32), BF16), ((32, 48), "INT4")], [((64, 48), BF16)])
    packed = work("WeightQuantBatchMatmulV2", [((64, 32), BF16), ((32, 6), "INT32")], [((64, 48), BF16)])
    assert plain == packed == (196_608, 2 * 2048 + 768 + 2 * 3072)


def test_a_transposed_batch():
    """TransposeBatchMatMul (M, B, K) · (B, K, N) → (M, B, N): 2·M·B·K·N."""
    found = work("TransposeBatchMatMul", [((5, 3, 8), BF16), ((3, 8, 4), BF16)], [((5, 3, 4), BF16)])
    assert found == (2 * 5 * 3 * 8 * 4, 2 * (120 + 96 + 60))


def test_grouped_products():
    """100 rows over 8 experts: 2·100·64·32; of 8 weights all are read, of 200 no more than 100."""
    x, out = ((100, 32), BF16), ((100, 64), BF16)
    few = work("GroupedMatmul", [x, ((8, 32, 64), BF16), ((8,), I64)], [out])
    assert few == (409_600, 2 * (3200 + 8 * 2048 + 6400) + 64)
    many = work("GroupedMatmul", [x, ((200, 32, 64), BF16)], [out])
    assert many == (409_600, 2 * (3200 + 100 * 2048 + 6400))
    gate = work("GroupedMatmulSwigluQuant", [((100, 32), "INT8"), ((8, 32, 64), "INT8")], [((100, 32), "INT8")])
    assert gate == (409_600, 3200 + 8 * 2048 + 3200)
    gradient = work("GroupedMatmul", [((32, 100), BF16), ((100, 64), BF16)], [((8, 32, 64), BF16)])
    assert gradient == (409_600, 2 * (3200 + 6400 + 8 * 2048))


# -- convolutions ------------------------------------------------------------------------------------------------------

X = ((32, 24, 13, 13, 8), FP32, "NC1HWC0")  # 192 channels in 24 tiles of 8
W = ((216, 24, 16, 8), FP32, "FRACTAL_Z")  # 24·3·3, 384/16, 16, 8
Y = ((32, 48, 13, 13, 8), FP32, "NC1HWC0")
SIZE = ((4,), "INT32", "NCHW")
FLOPS = 2 * 32 * 169 * 384 * 192 * 9  # 7,176,978,432
MOVED = 4 * (32 * 192 * 169 + 384 * 192 * 9 + 32 * 384 * 169)
PLAIN = relayouts(
    [
        call("TransData", [((384, 192, 3, 3), FP32, "NCHW")], [W]),
        call("TransData", [((32, 192, 13, 13), FP32, "NCHW")], [X]),
    ]
)


def test_a_convolution_whose_filter_is_known():
    """A TransData kernel of the capture told the filter: exact, forward and both gradients alike."""
    assert FLOPS == 7_176_978_432
    assert work("Conv2D", [X, W], [Y], known=PLAIN) == (FLOPS, MOVED)
    assert work("Conv2DBackpropInput", [SIZE, W, Y], [X], known=PLAIN) == (FLOPS, MOVED + 16)
    assert work("Conv2DBackpropFilter", [X, SIZE, Y], [W], known=PLAIN) == (FLOPS, MOVED + 16)
    plain = [((32, 192, 13, 13), FP32, "NCHW"), ((384, 192, 3, 3), FP32, "NCHW")]
    assert work("Conv2D", plain, [((32, 384, 13, 13), FP32, "NCHW")]) == (FLOPS, MOVED)


def test_a_convolution_in_tiles_is_a_range():
    """24 tiles of 8 hold 185 to 192 channels, 48 tiles 377 to 384."""
    found = work("Conv2D", [X, W], [Y])
    assert found == Work(FLOPS * 377 * 185 // (384 * 192), MOVED, FLOPS)


def test_channels_that_are_padded_to_a_tile():
    """AlexNet's first layer: 3 channels in a tile of 8. Known, its FLOPs are those of 3."""
    x = ((32, 1, 224, 224, 8), FP32, "NC1HWC0")
    w = ((121, 4, 16, 8), FP32, "FRACTAL_Z")
    y = ((32, 8, 55, 55, 8), FP32, "NC1HWC0")
    known = relayouts([call("TransData", [((64, 3, 11, 11), FP32, "NCHW")], [w])])
    found = work("Conv2D", [x, w, ((64,), FP32, "NCHW")], [y], known=known)
    assert found is not None
    assert found[0] == 2 * 32 * 55 * 55 * 64 * 3 * 121
    unknown = work("Conv2D", [x, w], [y])
    assert unknown is not None
    assert unknown.flops_max == 2 * 32 * 55 * 55 * 64 * 8 * 121


def test_tiles_of_two_plain_shapes_tell_nothing():
    """One stored shape that two tensors of different sizes have says nothing of either."""
    stored = ((121, 4, 16, 8), FP32, "FRACTAL_Z")
    calls = [call("TransData", [((64, n, 11, 11), FP32, "NCHW")], [stored]) for n in (3, 4)]
    assert relayouts(calls) == {}


# -- attention ---------------------------------------------------------------------------------------------------------

Q, KV = ((4096, 1, 2048), BF16), ((4096, 1, 1024), BF16)  # 16 heads of 128 over 8, one batch, rows first
NONE = ((), FP32)
STATISTICS = ((1, 16, 4096, 8), FP32)
COMPRESSED = ((2048, 2048), "BOOL")
PAIRS = 4096 * 4097 // 2


def forward(mask, q=Q, kv=KV, statistics=STATISTICS, out=None):
    """A FlashAttentionScore call."""
    inputs = [q, kv, kv, NONE, NONE, NONE, mask, NONE]
    return work("FlashAttentionScore", inputs, [statistics, statistics, NONE, out or q])


def test_causal_attention_with_the_compressed_mask():
    """2·pairs·(N·D + N·D): 68,736,253,952 of the Qwen3 set; q, k, v, mask, two statistics, out."""
    moved = 2 * (2 * 4096 * 2048 + 2 * 4096 * 1024) + 2048 * 2048 + 2 * 4 * 16 * 4096 * 8
    assert forward(COMPRESSED) == (2 * PAIRS * 4096, moved)
    assert 2 * PAIRS * 4096 == 68_736_253_952


def test_attention_without_a_mask_and_with_one_of_all_pairs():
    """Without a mask all pairs; a mask of all pairs may be causal or not: a range."""
    full = forward(NONE)
    assert full is not None
    assert full[0] == 2 * 4096 * 4096 * 4096
    found = forward(((1, 1, 4096, 4096), "BOOL"))
    assert found is not None
    assert (found.flops, found.flops_max) == (2 * PAIRS * 4096, 2 * 4096 * 4096 * 4096)


def test_attention_in_other_layouts():
    """(B, S, H), (B, N, S, D) and (B, S, N, D) of one problem: two batches, 16 heads of 128, 512 rows."""
    statistics = ((2, 16, 512, 8), FP32)
    expected = 2 * 2 * 512 * 512 * (2048 + 2048)
    batch_first = forward(NONE, ((2, 512, 2048), BF16), ((2, 512, 1024), BF16), statistics)
    heads_first = forward(NONE, ((2, 16, 512, 128), BF16), ((2, 8, 512, 128), BF16), statistics)
    rows_first = forward(NONE, ((2, 512, 16, 128), BF16), ((2, 512, 8, 128), BF16), statistics)
    assert [found and found[0] for found in (batch_first, heads_first, rows_first)] == [expected] * 3


def test_attention_that_hides_its_pairs():
    """Packed sequences (T, N, D), and a mask that fits neither rows nor the compressed one."""
    packed = ((8192, 16, 128), BF16)
    assert forward(COMPRESSED, packed, packed, ((8192, 16, 8), FP32)) is None
    assert forward(((100, 100), "BOOL")) is None
    unlike = forward(COMPRESSED, Q, ((8192, 1, 1024), BF16))
    assert unlike is None  # which corner is it aligned to?


def test_the_gradient_of_attention():
    """Five products: 2·pairs·(3·N·D + 2·N·D) = 171,840,634,880."""
    inputs = [Q, KV, KV, Q, COMPRESSED, STATISTICS, STATISTICS, NONE, Q]
    found = work("FlashAttentionScoreGrad", inputs, [Q, KV, KV])
    assert found is not None
    assert found[0] == 2 * PAIRS * 5 * 2048 == 171_840_634_880


# -- vector kernels ----------------------------------------------------------------------------------------------------

ROWS = ((4096, 1, 1024), BF16)
N = 4096 * 1024


@pytest.mark.parametrize(
    ("type_", "inputs", "outputs", "flops", "moved"),
    [
        ("RmsNorm", [ROWS, ((1024,), BF16)], [ROWS, ((4096, 1, 1), FP32)], 4 * N, 4 * N + 2048 + 16_384),
        ("AddRmsNorm", [ROWS, ROWS, ((1024,), BF16)], [ROWS, ROWS], 5 * N, 8 * N + 2048),
        ("RmsNormGrad", [ROWS, ROWS, ((1024,), BF16)], [ROWS], 9 * N, 6 * N + 2048),
        ("LayerNormV3", [ROWS], [ROWS], 8 * N, 4 * N),
        ("LogSoftmaxV2", [((32, 1000), FP32)], [((32, 1000), FP32)], 160_000, 256_000),
        ("SwiGlu", [((64, 32), BF16)], [((64, 16), BF16)], 5 * 1024, 2 * (2048 + 1024)),
        ("SwiGluGrad", [((64, 16), BF16), ((64, 32), BF16)], [((64, 32), BF16)], 10 * 1024, 2 * (1024 + 4096)),
        ("Add", [ROWS, ROWS], [ROWS], N, 6 * N),
        ("Muls", [ROWS], [ROWS], N, 4 * N),
        ("Add", [((), FP32), ((), FP32)], [((), FP32)], 1, 4),  # scalars: the output's element
        ("Equal", [((8,), FP32), ((), FP32)], [((8,), "BOOL")], 0, 40),
        ("Add", [((8,), I64), ((8,), I64)], [((8,), I64)], 0, 192),
        ("ReduceSum", [((32, 1000), FP32), ((1,), I64)], [((1, 1000), FP32)], 32_000, 128_000 + 8 + 4000),
        ("LpNormV2", [((1000,), FP32)], [((), FP32)], 2000, 4000),
        ("RotaryPositionEmbedding", [((8, 16), BF16), ((8, 16), BF16)], [((8, 16), BF16)], 384, 768),
        ("Cast", [((1000,), FP32)], [((1000,), BF16)], 0, 6000),
        ("TransData", [((8, 16, 13, 13), FP32, "NCHW")], [((8, 2, 13, 13, 8), FP32, "NC1HWC0")], 0, 8 * 21_632),
        ("Slice", [((4096, 8, 512), BF16), ((3,), I64)], [((4096, 8, 128), BF16)], 0, 2 * 2 * 4096 * 1024),
        ("ZerosLike", [((1000,), FP32)], [((1000,), FP32)], 0, 4000),
        ("DSAGenBitMask", [], [((36_864,), "UINT8")], 0, 36_864),
        ("DropOutDoMask", [((32, 64), FP32), ((256,), "UINT8"), ((1,), FP32)], [((32, 64), FP32)], 2048, 16_644),
        # a row for each of 4096 indices: 4096·1024 elements read and written, and the indices
        ("GatherV2", [((151_936, 1024), BF16), ((1, 4096), I64)], [((1, 4096, 1024), BF16)], 0, 4 * N + 32_768),
        ("GatherV2", [((10, 4), FP32), ((100,), I64)], [((100, 4), FP32)], 0, 160 + 1600 + 800),  # the table once
        ("IndexPutV2", [((1000, 8), FP32), ((5,), FP32), ((5,), I64)], [((1000, 8), FP32)], 0, 20 + 40 + 2 * 20),
        ("EmbeddingDenseGradV2", [((7, 4), FP32), ((7,), "INT32")], [((1000, 4), FP32)], 28, 112 + 28 + 2 * 112),
        # weight, two moments and the gradient read, all but it written: 7 arrays
        ("ApplyAdamWV2", [((100,), FP32)] * 4 + [((1,), I64)], [], 1500, 2800),
        ("ForeachAddList", [((10,), FP32), ((20,), FP32)] * 2, [((10,), FP32), ((20,), FP32)], 30, 360),
        ("ForeachNorm", [((10,), FP32), ((20,), FP32)], [((), FP32), ((), FP32)], 60, 120),
        ("NLLLoss", [((32, 1000), FP32), ((32,), I64), ((1000,), FP32)], [((), FP32)], 32, 256 + 128),
        ("MaxPoolWithArgmaxV1", [((2, 8, 8), FP32)], [((2, 4, 4), FP32)], 128, 640),
    ],
)
def test_vector_kernels(type_, inputs, outputs, flops, moved):
    """FLOPs an element as of the same op elsewhere; what is moved of each operand, once."""
    assert work(type_, inputs, outputs) == (flops, moved)


def test_the_argmax_of_a_pooling_gradient_is_left_out():
    """Its shape in the tables holds more elements than the tensor has: dy read, dx written."""
    inputs = [((2, 8), FP32), ((2, 4), FP32), ((2, 99, 99), "UINT16")]
    assert work("MaxPoolGradWithArgmaxV1", inputs, [((2, 8), FP32)]) == (8, 4 * (8 + 16))


def test_an_unknown_dtype_is_no_size():
    """Bytes of a dtype that nobody knows are unknown; an absent operand of such a dtype is no matter."""
    assert work("Add", [((8,), "FOO"), ((8,), FP32)], [((8,), FP32)]) is None
    assert work("Add", [((8,), FP32), ((), "DT_UNDEFINED")], [((8,), FP32)]) == (8, 64)


@pytest.mark.parametrize(
    ("type_", "dtype", "hf32", "expected"),
    [
        ("MatMulV3", BF16, None, ("bf16", "matrix")),
        ("MatMulV3", "FLOAT16", None, ("fp16", "matrix")),
        ("MatMulV3", FP32, None, ("fp32", "matrix")),  # torch_npu allows HF32 in convolutions by default, not here
        ("MatMulV3", FP32, True, ("hf32", "matrix")),
        ("Conv2D", FP32, None, ("hf32", "matrix")),
        ("Conv2D", FP32, False, ("fp32", "matrix")),
        ("QuantBatchMatmulV3", "INT8", None, ("int8", "matrix")),
        ("Add", BF16, None, ("fp32", "vector")),
        ("Add", I64, None, (None, None)),
    ],
)
def test_precision_and_unit(type_, dtype, hf32, expected):
    """The cube takes the dtype that is multiplied; vector arithmetic is measured in fp32."""
    formula = formula_of_type(type_)
    assert formula is not None
    operands = [((16, 16), dtype), ((16, 16), dtype)]
    assert precision_of_kernel(formula, call(type_, operands, operands[:1], hf32)) == expected


TYPES = (
    "MatMulV3", "BatchMatMulV2", "GroupedMatmul", "TransposeBatchMatMul", "Conv2D", "Conv2DBackpropInput",
    "Conv2DBackpropFilter", "Conv2DTranspose", "FlashAttentionScore", "FlashAttentionScoreGrad", "PromptFlashAttention",
    "RmsNorm", "SwiGlu", "SwiGluGrad", "GatherV2", "ScatterElements", "EmbeddingDenseGradV2", "ApplyAdamWV2", "Slice",
    "ForeachAddList", "NLLLoss", "NLLLossGrad", "TransData", "ZerosLike", "MaxPoolGradWithArgmaxV1", "Add", "Pows",
)  # fmt: skip
shapes = st.lists(st.lists(st.integers(0, 1 << 50), max_size=6), max_size=9)
dtypes = st.sampled_from([BF16, FP32, I64, "INT4", "BOOL", "X", ""])
formats = st.sampled_from(["ND", "NCHW", "NC1HWC0", "NC1HWC0:1", "FRACTAL_NZ", "FRACTAL_Z", "NDC1HWC0", "?"])


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(TYPES), shapes, shapes, st.data())
def test_damaged_operands_are_unknown_and_never_a_crash(type_, inputs, outputs, data):
    """Whatever a table says, a count is None or within bounds; the upper end of a range is above the lower."""
    parts = []
    for dims in (inputs, outputs):
        kinds = data.draw(st.lists(dtypes, min_size=len(dims), max_size=len(dims)))
        layouts = data.draw(st.lists(formats, max_size=len(dims)))
        parts.append([json.dumps(part) for part in (dims, kinds, layouts)])
    made = KernelCall(type_, operands_of(*parts[0]) or (), outputs_of("[" + ",".join(parts[1]) + "]") or ())
    formula = formula_of_type(type_)
    assert formula is not None
    found = work_of_kernel(formula, made)
    if found is not None:
        assert 0 <= found.flops <= MAX_COUNT
        assert 0 <= found.bytes <= MAX_COUNT
        assert found.flops_max is None or found.flops < found.flops_max <= MAX_COUNT
    precision_of_kernel(formula, made)


@pytest.mark.parametrize("text", [None, "", "{", "[1", '["a"]', "[[1.5]]", "[[-1]]", "[[true]]", "[null]", "3"])
def test_texts_that_are_none(text):
    """A damaged list gives no operands; lists of unlike lengths do not belong together."""
    assert operands_of(text, '["FLOAT"]', None) is None
    assert operands_of("[[1],[2]]", '["FLOAT"]', None) is None
    assert outputs_of(text) is None
