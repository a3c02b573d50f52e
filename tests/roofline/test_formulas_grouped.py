"""Grouped products and mixtures of experts: FLOPs and bytes worked out by hand."""

from __future__ import annotations

import pytest

BF16, F32, INT, FP8 = "c10::BFloat16", "float", "int", "c10::Float8_e4m3fn"
BYTE, SCALAR = "unsigned char", "Scalar"


def test_rows_in_groups(count):
    """(16,32)·(3,32,64) with 3 offsets: whatever the groups, 2·16·64·32 = 65,536 FLOPs.

    1,024 + 3·4,096 + 12 + 2,048 B. Of 100 experts 16 rows meet 16 at most: 16·4,096 B of weights.
    """
    types = [BF16, BF16, INT, "", ""]
    assert count("aten::_grouped_mm", [[16, 32], [3, 32, 64], [3], [], []], types) == (65_536, 1_024 + 12_288 + 2_060)
    found = count("aten::_grouped_mm", [[16, 32], [100, 32, 64], [100], [], []], types)
    assert found == (65_536, 1_024 + 65_536 + 400 + 2_048)


def test_the_other_groupings(count):
    """Columns (3,16,32)·(32,64), K in groups (16,32)·(32,64) → (3,16,64), a product each (3,16,32)·(3,32,64).

    2·16·64·32 twice, and three times that. Operands that do not fit: unknown.
    """
    types = [BF16, BF16, INT, "", ""]
    columns = count("aten::_grouped_mm", [[3, 16, 32], [32, 64], [3], [], []], types)
    assert columns == (65_536, 3_072 + 4_096 + 12 + 2_048)
    inner = count("aten::_grouped_mm", [[16, 32], [32, 64], [3], [], []], types)
    assert inner == (65_536, 1_024 + 4_096 + 12 + 3 * 2_048)
    each = count("aten::_grouped_mm", [[3, 16, 32], [3, 32, 64], [], [], []], [BF16, BF16, "", "", ""])
    assert each == (196_608, 3_072 + 12_288 + 6_144)
    assert count("aten::_grouped_mm", [[16, 31], [3, 32, 64], [3], [], []], types) is None
    assert count("aten::_grouped_mm", [[2, 16, 32], [3, 32, 64], [], [], []], types) is None


def test_scaled_groups(count):
    """fp8 rows in groups with a scale a row and a scale for each expert's column: a bf16 output.

    65,536 FLOPs; 512 + 3·2,048 + 64 + 768 + 12 + 2,048 B. The second version has lists of scales: left out.
    """
    shapes = [[16, 32], [3, 32, 64], [16], [3, 64], [3], [], [], [], []]
    types = [FP8, FP8, F32, F32, INT, "", "", SCALAR, SCALAR]
    concrete = [*[""] * 7, "15", "False"]
    assert count("aten::_scaled_grouped_mm", shapes, types, concrete) == (65_536, 512 + 6_144 + 832 + 12 + 2_048)
    shapes = [[16, 32], [3, 32, 64], *[[]] * 6, [3], [], [], [], []]
    types = [FP8, FP8, "TensorList", *["ScalarList"] * 2, "TensorList", *["ScalarList"] * 2, INT, "", SCALAR, "", ""]
    concrete = [*[""] * 10, "15", "", "True"]
    assert count("aten::_scaled_grouped_mm_v2", shapes, types, concrete) == (65_536, 512 + 6_144 + 12 + 2_048)


@pytest.mark.parametrize("weights", [[3, 32, 64], [3, 64, 32]])
def test_grouped_gemm_of_megablocks(count, weights):
    """GroupedGemm(a (16,32), b, sizes, trans_b), weights either way round: 65,536 FLOPs, 1,024 + 12,288 + 2,048 B."""
    shapes, types = [[16, 32], weights, [3], []], [BF16, BF16, "long int", SCALAR]
    assert count("GroupedGemm", shapes, types, ["", "", "", "False"]) == (65_536, 15_360)


def test_stacked_groups_of_fbgemm(count):
    """(16,32) fp8 on (3,64,32): 65,536 FLOPs; 512 + 6,144 + scales 64 + 768, sizes 24, bf16 output 2,048 B."""
    shapes, types = [[16, 32], [3, 64, 32], [16], [3, 64], [3]], [FP8, FP8, F32, F32, "long int"]
    assert count("fbgemm::f8f8bf16_rowwise_grouped_stacked", shapes, types) == (65_536, 512 + 6_144 + 856 + 2_048)


EXPERTS = [[4, 32], [8, 48, 32], [8, 32, 24], [4, 2], [4, 2]]  # 4 tokens, 8 gated experts of 24, 2 for each token
TYPES = [BF16, BF16, BF16, F32, INT]


@pytest.mark.parametrize("op", ["vllm::outplace_fused_experts", "sglang::inplace_fused_experts", "aiter::fused_moe_"])
def test_fused_experts(count, op):
    """8 rows meet an expert: 2·8·(48·32 + 32·24) = 36,864 FLOPs.

    x and output 256 B each, weights of at most 8 experts (3,072 + 1,536 B each), routing 32 + 32 B.
    """
    assert count(op, EXPERTS, TYPES) == (36_864, 512 + 8 * 4_608 + 64)


def test_few_rows_touch_few_experts(count):
    """One token with 2 of 8 experts reads 2 experts' weights and scales (4 B each), not 8."""
    shapes = [[1, 32], *EXPERTS[1:3], [1, 2], [1, 2], [], [8], [8]]
    types = [*TYPES, "", F32, F32]
    found = count("vllm::outplace_fused_experts", shapes, types)
    assert found == (36_864 // 4, 128 + 2 * 4_608 + 16 + 2 * 8)


def test_experts_of_four_bits(count):
    """Two values in a byte: (8,48,16) and (8,32,12) bytes are the same product; 768 + 384 B an expert."""
    shapes = [[4, 32], [8, 48, 16], [8, 32, 12], [4, 2], [4, 2]]
    found = count("vllm::outplace_fused_experts", shapes, [BF16, BYTE, BYTE, F32, INT])
    assert found == (36_864, 512 + 8 * 1_152 + 64)


def test_experts_spread_over_devices_are_unknown(count):
    """With a map of experts part of the tokens is computed elsewhere; sizes that do not fit are unknown too."""
    shapes, types = [*EXPERTS, [], [8]], [*TYPES, "", INT]
    assert count("vllm::outplace_fused_experts", shapes, types) is None
    assert count("vllm::outplace_fused_experts", [[4, 32], [8, 48, 30], *EXPERTS[2:]], TYPES) is None
    assert count("vllm::outplace_fused_experts", [[4, 32], [8, 40, 32], *EXPERTS[2:]], TYPES) is None


def test_routing(count):
    """4 tokens, 8 experts, 2 chosen. Softmax 5·32 FLOPs, all tensors: 32 + 32 + 32 + 64 B.

    The sum of 2 results of 16: 64 FLOPs, 256 + 128 B in bf16. Placing 8 ids: read and written, 32 + 32 B. Rows in
    another order: 8 rows of 32 B read from 4 (128 B) and written (256 B), 32 B of the map.
    """
    shapes, types = [[4, 2], [4, 2], [4, 2], [4, 8]], [F32, INT, INT, BF16]
    assert count("_moe_C::topk_softmax", shapes, types) == (160, 160)
    assert count("_moe_C::moe_sum", [[4, 2, 16], [4, 16]], [BF16, BF16]) == (64, 384)
    shapes, types = [[4, 2], [], [], [72], [9], [1]], [INT, SCALAR, SCALAR, INT, INT, INT]
    assert count("_moe_C::moe_align_block_size", shapes, types, ["", "8", "8"]) == (0, 64)
    assert count("sgl_kernel::shuffle_rows", [[4, 16], [8], [8, 16]], [BF16, INT, BF16]) == (0, 32 + 128 + 256)
