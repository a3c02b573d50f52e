"""Edge shapes and dtypes, each worked by hand: what a careless count gets wrong by more than rounding."""

from __future__ import annotations

import pytest

from roofwatch.collectors.carriers import cpu_formula
from roofwatch.model.formulas import views
from roofwatch.model.shapes import Call

F32, BF16, BOOL, LONG, I32 = "float", "c10::BFloat16", "bool", "long int", "int"
C64, F64, SCALAR, LIST = "c10::complex<float>", "double", "Scalar", "ScalarList"


@pytest.mark.parametrize(
    ("op", "dims", "types", "concrete", "work"),
    [
        # a bool tensor plus the number 1 is int64: 10 + 80 B, no floating-point work
        ("aten::add", [[10], [], []], [BOOL, LONG, SCALAR], ["", "", "1"], (0, 90)),
        # int32 times 0.5 is fp32: 40 + 40 B, 10 FLOPs
        ("aten::mul", [[10], []], [I32, F64], None, (10, 80)),
        # int64 to the power of 0.5 is fp32 (80 + 40 B), to the power of 2 int64
        ("aten::pow", [[10], []], [LONG, SCALAR], ["", "0.5"], (10, 120)),
        ("aten::pow", [[10], []], [LONG, SCALAR], ["", "2"], (0, 160)),
        # int8 and uint8 meet in int16: 10 + 10 + 20 B
        ("aten::maximum", [[10], [10]], ["signed char", "unsigned char"], None, (0, 40)),
        # integers divided give fp32; with a rounding mode (whose text is not recorded) perhaps integers: unknown
        ("aten::div", [[10], [10]], [LONG, LONG], None, (10, 200)),
        ("aten::div", [[10], [10], []], [LONG, LONG, ""], None, None),
        ("aten::div", [[10], [10], []], [F32, F32, ""], None, (10, 120)),
        # a complex product is 6 real operations, a sum 2; 8 B an element; of others the trace does not tell
        ("aten::mul", [[10], [10]], [C64, C64], None, (60, 240)),
        ("aten::add", [[10], [10], []], [C64, C64, SCALAR], None, (20, 240)),
        ("aten::exp", [[10]], [C64], None, None),
        # negations and NaN tests give bools: 40 + 10 B
        ("aten::logical_not", [[10]], [F32], None, (0, 50)),
        ("aten::isnan", [[10]], [F32], None, (0, 50)),
        # clamp between two tensors reads three: 2 FLOPs an element, 4·40 B; between numbers one
        ("aten::clamp", [[10], [10], [10]], [F32, F32, F32], None, (20, 160)),
        ("aten::clamp", [[10], [], []], [F32, SCALAR, SCALAR], ["", "0", "1"], (20, 80)),
        # the backward of prelu writes two gradients of full size
        ("aten::_prelu_kernel_backward", [[4, 3], [1, 3], [4, 3]], [F32, F32, F32], None, (24, 204)),
        # in place, broadcast: the (8,1) operand is read at its own size: 2·(8·5·4) + 32 B
        ("aten::add_", [[8, 5], [8, 1], []], [F32, F32, SCALAR], None, (40, 352)),
        # nothing in, nothing out
        ("aten::add", [[0, 5], [5], []], [F32, F32, SCALAR], None, (0, 20)),
    ],
)
def test_elementwise(count, op, dims, types, concrete, work):
    """Dtypes of results by torch's rules, read from numbers and categories; what the trace does not tell is unknown."""
    assert count(op, dims, types, concrete) == work


def test_complex_products(count):
    """(2,3)·(3,4) complex64: 8·24 real FLOPs, 8 B · (6 + 12 + 8). A product over nothing writes zeros: 4·3·4 B."""
    assert count("aten::mm", [[2, 3], [3, 4]], [C64, C64]) == (192, 208)
    assert count("aten::mm", [[4, 0], [0, 3]], [F32, F32]) == (0, 48)


def test_scatters_touch_no_more_than_there_is(count):
    """scatter_add_ of 1,000 fp32 into 10: 1,000 sums; 8,000 of index, 4,000 of source, 2·40 of the target.

    An index of (2,3) takes 6 of the source's 30 elements: 6 sums, 48 + 24 + 2·24 B. Integers: no FLOPs.
    index_put_ of one value may write any number of elements: unknown.
    """
    types = [F32, SCALAR, LONG, F32]
    assert count("aten::scatter_add_", [[10], [], [1000], [1000]], types) == (1_000, 12_080)
    assert count("aten::scatter_add_", [[10, 3], [], [2, 3], [10, 3]], types) == (6, 120)
    assert count("aten::scatter_add_", [[6], [], [6], [6]], [I32, SCALAR, LONG, I32]) == (0, 120)
    assert count("aten::_index_put_impl_", [[100], [], []], [F32, "", F32]) is None


def test_reductions_by_their_results_dtype(count):
    """(8,4) reduced along dim 1: bools sum to int64, 32 + 8·8 B; bf16 to fp32 where asked (type 6), 64 + 8·4 B.

    var_mean writes two results: 128 + 2·32 B. A maximum of integers is no floating-point work: 256 + 8·(8 + 8) B.
    Scans: bools to int64, 32 + 256 B.
    """
    dim = ["", "[1]", "False", ""]
    types = [BOOL, LIST, SCALAR, ""]
    assert count("aten::sum", [[8, 4], [], [], []], types, dim) == (0, 96)
    assert count("aten::sum", [[8, 4], [], [], []], [BF16, LIST, SCALAR, SCALAR], ["", "[1]", "False", "6"]) == (32, 96)
    moments = ["", "[1]", "1", "False"]
    assert count("aten::var_mean", [[8, 4], [], [], []], [F32, LIST, SCALAR, SCALAR], moments) == (128, 192)
    assert count("aten::max", [[8, 4], [], []], [LONG, SCALAR, SCALAR], ["", "1", "False"]) == (0, 384)
    assert count("aten::cumsum", [[8, 4], [], []], [BOOL, SCALAR, ""], ["", "1", ""]) == (0, 288)


def test_mixed_dtypes_of_norms(count):
    """Softmax's backward from fp32 to a bf16 input (type 15): 10·(4 + 4 + 2) B, 40 FLOPs.

    Layer norm's backward in bf16, (2,8), with an fp32 weight, all three gradients: 13·16 FLOPs; 32 + 32 read,
    statistics 2·8, weight 32, 32 written, and two gradients of 8 fp32, 64 B.
    """
    types = [F32, F32, SCALAR, SCALAR]
    assert count("aten::_softmax_backward_data", [[10], [10], [], []], types, ["", "", "0", "15"]) == (40, 100)
    shapes = [[2, 8], [2, 8], [], [2, 1], [2, 1], [8], [8], []]
    dtypes = [BF16, BF16, LIST, F32, F32, F32, F32, ""]
    concrete = ["", "", "[8]", "", "", "", "", "[True, True, True]"]
    assert count("aten::native_layer_norm_backward", shapes, dtypes, concrete) == (208, 208)


def test_pooling_backward_and_interpolation(count):
    """avg_pool2d backward of (1,1,4,4) by 2×2: 4 gradients to 4 elements each, 16 + 64 B.

    Bilinear (1,1,2,2) → (4,4): three steps of 3 FLOPs on 16 elements, 16 + 64 B; nearest only moves.
    A window given as one number is square: 4 outputs of 4 elements, 64 + 4·(4 + 8) B.
    """
    shapes, types = [[1, 1, 2, 2], [1, 1, 4, 4], []], [F32, F32, LIST]
    assert count("aten::avg_pool2d_backward", shapes, types, ["", "", "[2, 2]"]) == (16, 80)
    up = [[1, 1, 2, 2], []]
    assert count("aten::upsample_bilinear2d", up, [F32, LIST], ["", "[4, 4]"]) == (144, 80)
    assert count("aten::upsample_nearest2d", up, [F32, LIST], ["", "[4, 4]"]) == (0, 80)
    pool = ["", "[2]", "[]", "[0]", "[1]", "False"]
    dims, kinds = [[1, 1, 4, 4], [], [], [], [], []], [F32, LIST, LIST, LIST, LIST, SCALAR]
    assert count("aten::max_pool2d_with_indices", dims, kinds, pool) == (16, 112)


@pytest.mark.parametrize(
    ("causal", "window", "flops"),
    [
        ("True", ("-1", "-1"), 4 * 6 * 8),  # bottom right: 3 queries see 1, 2, 3 of 3 keys
        ("True", ("-1", "0"), 4 * 6 * 8),  # the same in other words
        ("False", ("-1", "-1"), 4 * 9 * 8),
        ("False", ("-1", "0"), 4 * 6 * 8),  # right of the diagonal nothing: causal in other words
        ("True", ("0", "0"), 4 * 3 * 8),  # each query sees itself only
        ("True", ("1", "1"), 4 * 5 * 8),  # itself and the one before: 1 + 2 + 2; causal cuts the right side
        ("False", ("1", "1"), 4 * 7 * 8),  # one on either side: 2 + 3 + 2
        ("False", ("2", "2"), 4 * 9 * 8),  # as wide as the sequence
    ],
)
def test_windows_of_flash_attention(count, causal, window, flops):
    """(1,3,1,8): 2·pairs·(8 + 8) FLOPs; the pairs that a sliding window leaves of 9 are counted exactly."""
    dims = [[1, 3, 1, 8]] * 3 + [[]] * 5
    types = [BF16] * 3 + [SCALAR] * 5
    work = count("flash_attn::_flash_attn_forward", dims, types, ["", "", "", "0.", "0.35", causal, *window])
    assert (None if work is None else work.flops) == flops


def test_decoding_one_query(count):
    """One query on 100 keys, 8 heads of 64 that share 2 heads of keys and values, bf16, no mask.

    4·8·100·64 FLOPs; q and output 1,024 B each, k and v 25,600 B each, 8 fp32 of log-sum-exp: 53,280 B.
    """
    dims = [[1, 1, 8, 64], [1, 100, 2, 64], [1, 100, 2, 64], [], [], [], [], [], [], []]
    types = [BF16] * 3 + [""] * 2 + [SCALAR] * 5
    concrete = ["", "", "", "", "", "1", "100", "0.", "False", "False"]
    assert count("aten::_flash_attention_forward", dims, types, concrete) == (204_800, 53_280)


def test_a_fused_kernel_reads_no_more_than_it_has_elements(count):
    """Two rows of 8 out of a (1000,8) table, fp32: 16 elements read of it, 16 written, 2 indices: 64 + 64 + 16 B.

    Without the element count it is unknown.
    """
    op, dims, types = "triton_poi_fused_embedding_0", [[2], [1000, 8], [2, 8], []], [LONG, F32, F32, SCALAR]
    assert count(op, dims, types, ["", "", "", "16"]) == (0, 144)
    assert count(op, dims[:3], types[:3]) is None


@pytest.mark.parametrize(
    "op",
    ["TorchDynamo Cache Lookup", "Torch-Compiled Region: 0/0", "Pregraph bytecode", "DistributedDataParallel.forward",
     "torch.distributed.ddp.reducer::search_unused_parameters"],
)  # fmt: skip
def test_ranges_of_the_framework_do_no_work(op):
    """What torch records around ops of its own is the host's time; what copies or computes inside stays an op."""
    assert cpu_formula(Call(op), {}) is views.WRAPPER
    assert cpu_formula(Call("torch.distributed.ddp.copy_bucket_to_grad"), {}) is None
    assert cpu_formula(Call("CompiledFunction"), {}) is None
