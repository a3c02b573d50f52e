"""Vector ops of serving engines and of jagged tensors, and the parts of their larger ops: worked out by hand."""

from __future__ import annotations

import json

import pytest

from roofwatch.model.formulas import parts
from roofwatch.model.formulas.table import work_of
from roofwatch.model.shapes import call_of

BF16, F32, INT, LONG, FP8, SCALAR = "c10::BFloat16", "float", "int", "long int", "c10::Float8_e4m3fn", "Scalar"
X, W = [4, 16], [16]  # 64 elements, 128 B in bf16, 64 B in fp8; a weight of 32 B


@pytest.mark.parametrize(
    ("op", "shapes", "types", "work"),
    [
        ("sgl_kernel::rmsnorm", [X, X, W], [BF16] * 3, (256, 288)),
        ("aiter::rms_norm", [X, W], [BF16] * 2, (256, 288)),  # the output is fresh
        ("vllm::rocm_aiter_rms_norm", [X, W], [BF16] * 2, (256, 288)),
        ("sgl_kernel::fused_add_rmsnorm", [X, X, W], [BF16] * 3, (320, 544)),  # both read and written
        ("aiter::rmsnorm2d_fwd_with_add_ck", [X] * 4 + [W], [BF16] * 5, (320, 544)),
        ("vllm::rocm_aiter_rmsnorm2d_fwd_with_add", [X, X, W], [BF16] * 3, (320, 544)),  # two fresh outputs
        # into fp8: out 64, x 128, weight 32, a scale 4 B; 5 an element
        ("_C::rms_norm_static_fp8_quant", [X, X, W, []], [FP8, BF16, BF16, F32], (320, 228)),
        ("_C::fused_add_rms_norm_static_fp8_quant", [X, X, X, W, []], [FP8, BF16, BF16, BF16, F32], (384, 484)),
        # a scale for each of 4 rows; with a residual, read and written: 256 B and 64 FLOPs more
        ("_C::rms_norm_dynamic_per_token_quant", [X, X, W, [4, 1]], [FP8, BF16, BF16, F32], (384, 240)),
        ("_C::rms_norm_dynamic_per_token_quant", [X, X, W, [4, 1], [], [], X],
         [FP8, BF16, BF16, F32, SCALAR, "", BF16], (448, 496)),
        # a gate: half the width out, 5 FLOPs each
        ("sgl_kernel::silu_and_mul", [[4, 8], X], [BF16] * 2, (160, 192)),
        ("aiter::gelu_tanh_and_mul", [[4, 8], X], [BF16] * 2, (160, 192)),
        ("_C::swigluoai_and_mul", [[4, 8], X], [BF16] * 2, (160, 192)),
        ("_C::silu_and_mul_quant", [[4, 8], X, []], [FP8, BF16, F32], (192, 164)),
        ("_C::gelu_quick", [X, X], [BF16] * 2, (320, 256)),
        ("_C::gelu_new", [X, X], [BF16] * 2, (576, 256)),
        ("_C::static_scaled_int8_quant", [X, X, []], ["signed char", BF16, F32], (64, 196)),
        ("_C::dynamic_per_token_scaled_fp8_quant", [X, X, [4, 1]], [FP8, BF16, F32], (128, 208)),
        ("sgl_kernel::sgl_per_token_group_quant_fp8", [X, X, [4, 2]], [BF16, FP8, F32], (128, 224)),
        # attention over two parts put together: (out, -, a, its sums, b, its sums)
        ("_C::merge_attn_states", [X, [], X, [4, 4], X, [4, 4]], [BF16, "", BF16, F32, BF16, F32], (192, 512)),
        ("sgl_kernel::merge_state_v2", [X, [4, 4], X, [4, 4], X, [4, 4]], [BF16, F32] * 3, (192, 576)),
        # latent 4 × 12 and rotary 4 × 4 bf16 (128 B) into an fp8 cache (64 B), 4 slots of 8 B
        ("_C_cache_ops::concat_and_cache_mla", [[4, 12], [4, 4], [9, 16, 16], [4]], [BF16, BF16, FP8, LONG], (0, 224)),
        ("aiter::reshape_and_cache", [X, X, [9, 16, 16], [9, 16, 16], [4]], [BF16] * 4 + [LONG], (0, 512)),
        # q of 2 heads, k of 1, half of each of 8 rotated: 3·(32 + 16); q and k in and out 2·(128 + 64) B, 4 rows of
        # 4 fp32 cosines and sines, 4 positions of 8 B
        ("sgl_kernel::apply_rope_pos_ids_cos_sin_cache", [[4, 2, 8], [4, 1, 8], [4, 2, 8], [4, 1, 8], [99, 4], [4]],
         [BF16] * 4 + [F32, LONG], (144, 480)),
        ("vllm::rocm_unquantized_gemm", [X, [8, 16], []], [BF16, BF16, ""], (1_024, 128 + 256 + 64)),
        ("aiter::_groupnorm_run", [[1, 4, 16], [], [4], [4], []], [BF16, SCALAR, BF16, BF16, SCALAR], (512, 272)),
        # jagged: 10 tables, 100 indices and 41 offsets of 8 B
        ("fbgemm::bounds_check_indices", [[10], [100], [41]], [LONG] * 3, (0, 1_208)),
        ("fbgemm::FloatToHFP8Quantized", [[64]], [F32], (256, 320)),
        ("fbgemm::HFP8QuantizedToFloat", [[64]], ["unsigned char"], (64, 320)),
        ("fbgemm::FloatToFP8RowwiseQuantized", [[4, 14]], [F32], (112, 224 + 4 * 24)),
    ],
)  # fmt: skip
def test_vector_ops_of_engines(count, op, shapes, types, work):
    """X (4,16) bf16 is 64 elements of 128 B; each line's figures: FLOPs an element, and every tensor once."""
    assert count(op, shapes, types) == work


MOE = ("vllm::moe_forward", [[888, 3072], [888, 128], []], [BF16, BF16, ""])
QUANTIZE = (
    "void kernels::quantize_with_block_size<(kernels::BlockScaleQuantizationType)2, __nv_bfloat16, 32, true>(int)"
)
BUCKETS = ("fbgemm::block_bucketize_sparse_features", [[40], [100], [], [], [4]], [INT, INT, SCALAR, SCALAR, INT])
WEIGHTED = (BUCKETS[0], [*BUCKETS[1], [], [100]], [*BUCKETS[2], SCALAR, F32])
PERMUTE = ("fbgemm::permute_2D_sparse_data", [[6], [8, 10], [500]], [INT, INT, INT])
GROUPS = ("aiter::_groupnorm_run", [[1, 4, 16], [], [4], [4], []], [BF16, SCALAR, BF16, BF16, SCALAR])


@pytest.mark.parametrize(
    ("call", "kernel", "work"),
    [
        # the input in 8 bits and a scale byte for 32: 2,727,936 elements · (2 + 1 + 1/32) B, 2 FLOPs each
        (MOE, QUANTIZE, (5_455_872, 8_269_056)),
        # 113,664 logits of 2 B, each compared; an entry of 4 B for each of 888 tokens
        (MOE, "void moe::routing::routingIndicesHistogramScoresKernel<P>(P)", (113_664, 227_328)),
        (MOE, "void moe::routing::routingIndicesHistogramKernel<P>(P)", (0, 3_552)),
        (MOE, "void moe::routing::routingIndicesOffsetsKernel<P>(P)", (0, 3_552)),
        # 40 lengths of 4 B (offsets read, new lengths written), 100 indices of 4 B
        (BUCKETS, "void _block_bucketize_sparse_features_cuda_kernel1<int, int>(int)", (0, 720)),
        # old and new offsets, every index read and written
        (BUCKETS, "void _block_bucketize_sparse_features_cuda_kernel2<false, false, false, int, int>(int)", (0, 1_120)),
        # where from: one index more; a weight of 4 B each read and written
        (WEIGHTED, "void _block_bucketize_sparse_features_cuda_kernel2<true, true, false, int, int>(int)", (0, 2_320)),
        # two running sums of at least 40 each, read and written
        (BUCKETS, "void cub::DeviceScanKernel<cub::AgentScanPolicy<128>>(int)", (0, 640)),
        # 6 of 8 rows of 10 lengths read and written, 6 entries; sums over 80 old and 60 new lengths
        (PERMUTE, "void fbgemm_gpu::permute_2D_lengths_kernel<int>(int)", (0, 24 + 480)),
        (PERMUTE, "void cub::DeviceScanKernel<cub::AgentScanPolicy<128>>(int)", (0, 1_120)),
        (("fbgemm::asynchronous_complete_cumsum", [[40]], [INT]), "void cub::DeviceScanKernel<P>(int)", (0, 324)),
        (("fbgemm::permute_pooled_embs_auto_grad", [[4, 16], [3]], [F32, LONG]),
         "void fbgemm_gpu::permute_pooled_embs_kernel<float>(float)", (0, 512)),
        # 64 elements: sums 4 each, read; then applied with both parameters, 4 each, read and written
        (GROUPS, "void groupnorm_kernel_dispatch_up<__hip_bfloat16, 1024u>(unsigned)", (256, 128)),
        (GROUPS, "void groupnorm_kernel_dispatch_down<__hip_bfloat16, 1024u>(unsigned)", (256, 272)),
    ],
)  # fmt: skip
def test_parts_of_larger_ops(call, kernel, work):
    """Kernels of a mixture of experts, of jagged tensors, of a group norm: each its part of what its op was given."""
    op, shapes, types = call
    found, made = parts.part_of(op, kernel), call_of(op, json.dumps(shapes), json.dumps(types), kernel=kernel)
    assert found is not None
    assert made is not None
    assert work_of(found[0], made) == (*work, None)


def test_the_experts_products_stay_unknown():
    """vllm::moe_forward has the input and the router's logits, not the weights: no part fits its matrix products."""
    assert parts.part_of("vllm::moe_forward", "bmm_MxE4m3_MxE2m1MxE4m3_Fp32_t128x16x256u2_s3") is None
    assert parts.part_of("vllm::moe_forward", "void moe::dev::finalize::finalizeKernelVecLoad<P>(P)") is None
