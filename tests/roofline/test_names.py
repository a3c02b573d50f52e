"""Verdicts by kernel name alone."""

from __future__ import annotations

import pytest

from roofwatch.collectors.base import Grid
from roofwatch.collectors.names import elementwise_bytes, judge_by_name, tile_of
from roofwatch.model.devices import identify
from roofwatch.model.kinds import Kind
from roofwatch.model.record import Bound


def test_a_plain_gemm_is_compute_bound_by_its_tile():
    """128×128 tiles in fp32 have 2·128·128 / (256·4) = 32 FLOP/B.

    V100's fp32 ridge is 15.7e12 / 0.9e12 = 17.4; 64×64: 16.
    """
    peaks = identify("", "Tesla V100-SXM2-32GB").peaks
    big = judge_by_name(Kind.MATMUL, "volta_sgemm_128x128_nt", 50_000, peaks, blocks=200, units=80)
    small = judge_by_name(Kind.MATMUL, "volta_sgemm_64x64_tn", 50_000, peaks, blocks=200, units=80)
    narrow = judge_by_name(Kind.MATMUL, "volta_sgemm_128x128_nt", 50_000, peaks, blocks=20, units=80)
    assert [v.bound for v in (big, small, narrow)] == [Bound.COMPUTE, Bound.UNKNOWN, Bound.UNKNOWN]


V100 = identify("", "Tesla V100-SXM2-32GB").peaks  # 15.7 TFLOP/s in fp32, 0.9 TB/s


def of_grid(kind, kernel, mean_ns, grid, units=80):
    """The bound of a kernel on V100 by its name and grid."""
    return judge_by_name(kind, kernel, mean_ns, V100, blocks=grid.blocks, units=units, grid=grid).bound


@pytest.mark.parametrize(
    ("kernel", "x", "y", "mean_ns", "bound"),
    [
        # 128×32 tiles, 2 by 221: M ≥ 128, N ≥ 7040. A long K has 2·128·7040 / (7168·4) = 62.9 FLOP/B > 17.4; compute
        # bound from K = 48.3 on, which takes 2·442·4096·48.3 / 15.7e12 = 11.1 µs: surely reached at 37 µs and more.
        ("volta_sgemm_128x32_nt", 2, 221, 100_000, Bound.COMPUTE),
        ("volta_sgemm_128x32_nt", 2, 221, 30_000, Bound.UNKNOWN),
        # M may be 32 only: 2·32·51072 / (51104·4) = 16.0 FLOP/B
        ("volta_sgemm_32x128_nn", 1, 400, 1_000_000, Bound.UNKNOWN),
        # cutlass may have swizzled 8 by 50 into 1 by 400: then M may be 128 only, and of half types 64 FLOP/B < 139
        (
            "void cutlass::Kernel<cutlass_70_tensorop_f16_s884gemm_f16_128x128_32x2_nn_align8>",
            8,
            50,
            1e6,
            Bound.UNKNOWN,
        ),
        (
            "void cutlass::Kernel<cutlass_70_tensorop_f16_s884gemm_f16_128x128_32x2_nn_align8>",
            64,
            50,
            1e6,
            Bound.COMPUTE,
        ),
    ],
)
def test_a_product_by_tile_and_grid(kernel, x, y, mean_ns, bound):
    """All tiles but the last in each direction are full, so tile and grid bound the output's sides from below."""
    assert of_grid(Kind.MATMUL, kernel, mean_ns, Grid(x * y, 256, x, y)) is bound


VECTORIZED = "void at::native::vectorized_elementwise_kernel<"
FLOATS = VECTORIZED + "4, at::native::CUDAFunctor_add<float>, at::detail::Array<char*, 3> >(int)"
HALVES = VECTORIZED + "8, at::native::CUDAFunctor_add<c10::Half>, std::array<char*, 3ul> >(int)"
STRIDED = (
    "void at::native::elementwise_kernel<128, 2, at::native::gpu_kernel_impl<at::native::BinaryFunctor<float, float, "
    "float, at::native::binary_internal::MulFunctor<float> > > >(int)"
)
CAST = VECTORIZED + (
    "4, at::native::bfloat16tofloat32_copy_kernel_cuda(at::TensorIteratorBase&)::{lambda(c10::BFloat16)#1}, "
    "std::array<char*, 2ul> >(int)"
)


@pytest.mark.parametrize(
    ("kernel", "blocks", "threads", "expected"),
    [
        (FLOATS, 10, 128, ((9 * 512 + 1) * 12, 10 * 512 * 12)),  # 512 elements a block, 3 · 4 B each
        (HALVES, 10, 128, (0, 10 * 128 * 16 * 6)),  # 4, 8 or 16 elements a thread by version
        (STRIDED, 10, 128, (0, 10 * 256 * 12)),  # an input may be a broadcast one
        (CAST, 10, 256, (0, 10 * 256 * 16 * 2 * 8)),  # the output's type is not in the name
        ("void vllm::rms_norm_kernel<float>(float*)", 10, 128, None),
    ],
)
def test_bytes_of_an_elementwise_kernel(kernel, blocks, threads, expected):
    """Name and grid bound the elements, arrays and types of aten's elementwise kernels."""
    assert elementwise_bytes(kernel, Grid(blocks, threads)) == expected


@pytest.mark.parametrize(
    ("kernel", "blocks", "mean_ns", "bound"),
    [
        (FLOATS, 1000, 8_000, Bound.MEMORY),  # 6.14 MB are 6.8 µs of 0.9 TB/s
        (FLOATS, 10, 3_000, Bound.LATENCY),  # 61 kB are 0.07 µs
        (FLOATS, 10, 30_000, Bound.LATENCY),  # long, but for 10 of 80 units
        (FLOATS, 250, 5_000, Bound.MEMORY),  # 1.5 MB are 1.7 µs of 5
        (HALVES, 100, 3_000, Bound.UNKNOWN),  # at most 1.2 MB, 1.4 µs of 3: it may be either
        (HALVES, 100, 5_000, Bound.LATENCY),
    ],
)
def test_short_elementwise_kernels(kernel, blocks, mean_ns, bound):
    """What even the most bytes cannot explain is latency; what the least explain is memory bound, however short."""
    assert of_grid(Kind.ELEMENTWISE, kernel, mean_ns, Grid(blocks, 128, blocks, 1)) is bound


def test_threads_that_walk_lists_are_bound_by_neither_ceiling():
    """A bucketizing kernel of fbgemm gathers and scatters, but one list after the other."""
    kernel = "void fbgemm_gpu::_block_bucketize_sparse_features_cuda_kernel2<false, false, false, int, int>(int, int)"
    assert of_grid(Kind.GATHER_SCATTER, kernel, 300_000, Grid(352, 1024, 352, 1)) is Bound.UNKNOWN


@pytest.mark.parametrize(
    ("kernel", "tile"),
    [
        ("sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_cublas", (128, 128)),
        ("Cijk_Alik_Bljk_BBS_BH_Bias_HA_S_SAV_UserArgs_MT320x224x64_MI16x16x1", (320, 224)),
        ("nvjet_tst_144x128_64x6_2x1_v_bz_bias_TNN", (144, 128)),
        ("volta_sgemm_128x32_nt", (128, 32)),
        ("void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_relu_bf16_128x64_64x6_tn_align8>", (128, 64)),
        ("cutlass_80_tensorop_s1688gemm_256x64_16x4_tn_align1", (256, 64)),
        ("nvjet_sm90_tst_128x16_64x11_4x1_v_bz_TNT", (128, 16)),
        ("ampere_fp16_s16816gemm_fp16_64x64_sliced1x2_ldg8_f2f_stages_64x5_tn", (64, 64)),
        ("ampere_fp16_s16816cudnn_fp16_256x128_ldg8_relu_f2f_exp_small_nhwc_tn_v1", (256, 128)),
        ("cudnn_infer_volta_scudnn_winograd_128x128_ldg1_ldg4_relu_tile148t_nt_v1", (128, 128)),
        (
            "void cutlass_cudnn_infer::Kernel<cutlass_tensorop_s1688fprop_optimized_tf32_64x256_32x4_nhwc_align4>",
            (64, 256),
        ),
        ("attn_fwd", None),
    ],
)
def test_tiles_in_names(kernel, tile):
    """xmma, Tensile, nvjet, cuBLAS and cutlass each write the tile their own way."""
    assert tile_of(kernel) == tile
