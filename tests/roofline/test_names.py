"""Verdicts by kernel name alone."""

from __future__ import annotations

import pytest

from roofwatch.collectors.names import judge_by_name, tile_of
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


@pytest.mark.parametrize(
    ("kernel", "tile"),
    [
        ("sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_cublas", (128, 128)),
        ("Cijk_Alik_Bljk_BBS_BH_Bias_HA_S_SAV_UserArgs_MT320x224x64_MI16x16x1", (320, 224)),
        ("nvjet_tst_144x128_64x6_2x1_v_bz_bias_TNN", (144, 128)),
        ("volta_sgemm_128x32_nt", (128, 32)),
        ("void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_relu_bf16_128x64_64x6_tn_align8>", (128, 64)),
        ("cutlass_80_tensorop_s1688gemm_256x64_16x4_tn_align1", (256, 64)),
        ("attn_fwd", None),
    ],
)
def test_tiles_in_names(kernel, tile):
    """xmma, Tensile, nvjet, cuBLAS and cutlass each write the tile their own way."""
    assert tile_of(kernel) == tile
