"""Against which ceiling a product is measured."""

from __future__ import annotations

import json

import pytest

from roofwatch.model.formulas.precision import precision_of
from roofwatch.model.formulas.table import formula_of
from roofwatch.model.record import Vendor
from roofwatch.model.shapes import call_of


@pytest.mark.parametrize(
    ("kernel", "dtype", "vendor", "expected"),
    [
        ("volta_sgemm_128x64_nn", "float", "nvidia", ("fp32", "vector")),
        (
            "void cutlass::Kernel<cutlass_80_tensorop_s1688gemm_256x128_32x3_nn_align4>",
            "float",
            "nvidia",
            ("tf32", "matrix"),
        ),
        ("sm80_xmma_gemm_f32f32_tf32f32_f32_nn_n_tilesize64x64", "float", "nvidia", ("tf32", "matrix")),
        ("cutlass_75_tensorop_bf16_s1688gemm_bf16_128x128_nn_align1", "c10::BFloat16", "nvidia", ("bf16", "matrix")),
        ("cutlass_80_simt_hgemm_128x32_8x5_nn_align1", "c10::Half", "nvidia", ("fp16", "vector")),
        ("gemv2T_kernel_val<int, __half, float>", "c10::Half", "nvidia", ("fp32", "vector")),  # the op-math type
        ("volta_fp16_sgemm_fp16_128x64_nn", "c10::Half", "nvidia", ("fp32", "vector")),
        ("volta_fp16_s884gemm_fp16_128x128_ldg8_f2f_nn", "c10::Half", "nvidia", ("fp16", "matrix")),
        ("volta_hgemm_128x64_nn", "c10::Half", "nvidia", ("fp16", "vector")),
        ("nvjet_sss_128x128_64x4_2x1_v_bz_TNN", "float", "nvidia", ("tf32", "matrix")),
        ("fmha_cutlassF_f32_aligned_64x64_rf_sm80(PyTorchMemEffAttention)", "float", "nvidia", ("tf32", "matrix")),
        ("fmha_cutlassF_f32_aligned_64x64_rf_sm75(PyTorchMemEffAttention)", "float", "nvidia", ("fp32", "vector")),
        ("Cijk_Alik_Bljk_SB_Bias_AS_SAV_UserArgs_MT64x16x32_MI16x16x1_SN", "float", "amd", ("fp32", "matrix")),
        ("Cijk_Ailk_Bljk_SB_MT64x64x8_SE_K1", "float", "amd", ("fp32", "vector")),
        ("void conv2d_c1_k1_nhwc_kernel<__half, __half, float, 3>", "c10::Half", "nvidia", ("fp32", "vector")),
        ("naive_conv_ab_nonpacked_fwd_nchw_half_double_half", "c10::Half", "amd", ("fp32", "vector")),
        (
            "_ZN7cutlass13device_kernelINS_4gemm6kernel13GemmUniversalINS_10tfloat32_tE",
            "float",
            "nvidia",
            ("tf32", "matrix"),
        ),
        ("ampere_dgemm_64x64_nn", "double", "nvidia", ("fp64", "vector")),
        ("cutlass_80_tensorop_d884gemm_64x32_16x4_nn_align1", "double", "nvidia", ("fp64", "matrix")),
    ],
)
def test_precision_and_unit_by_kernel_name(kernel, dtype, vendor, expected):
    """TF32, matrix instructions and their absence are told by the kernel's name only.

    Half types on the vector unit are converted to fp32, except by kernels that accumulate in half.
    """
    call = call_of("aten::mm", "[[4096,4096],[4096,4096]]", json.dumps([dtype, dtype]), kernel=kernel)
    formula = formula_of("aten::mm")
    assert call is not None
    assert formula is not None
    assert precision_of(formula, call, Vendor(vendor)) == expected
