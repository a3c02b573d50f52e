"""Kinds of real op and kernel names."""

from __future__ import annotations

import pytest

from roofwatch.model.kinds import Kind, communicates, kind_of, kind_of_kernel


@pytest.mark.parametrize(
    ("op", "kernel", "kind"),
    [
        ("aten::addmm", "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64", Kind.MATMUL),
        ("aten::mm", "Cijk_Alik_Bljk_BBS_BH_Bias_HA_S_SAV_UserArgs_MT256x192x64_MI16x16x1_SN", Kind.MATMUL),
        (
            "aten::cudnn_convolution",
            "void cutlass__5x_cudnn::Kernel<cutlass_tensorop_bf16_s16816fprop_optimized>",
            Kind.CONV,
        ),
        ("aten::cudnn_convolution", "void cudnn::ops::nchwToNhwcKernel<float, float, float, false>", Kind.LAYOUT),
        ("aten::convolution_backward", "volta_sgemm_64x64_nt", Kind.CONV),
        ("aten::_flash_attention_forward", "attn_fwd", Kind.ATTENTION),
        ("aten::native_layer_norm", "vectorized_layer_norm_kernel<float>", Kind.NORM),
        ("aten::cudnn_batch_norm", "void cudnn::bn_fw_tr_1C11_kernel_NCHW<float>", Kind.NORM),
        ("aten::_softmax", "cunn_SoftMaxForward<8, c10::BFloat16>", Kind.SOFTMAX),
        ("aten::add_", "vectorized_elementwise_kernel<4, CUDAFunctor_add<float>>", Kind.ELEMENTWISE),
        ("aten::threshold_backward", "vectorized_elementwise_kernel<4, …>", Kind.ACTIVATION),
        ("aten::copy_", "void at::native::elementwise_kernel<128, 4, direct_copy>", Kind.COPY_FILL),
        ("aten::_to_copy", "aten::_to_copy", Kind.CAST),
        ("aten::cat", "CatArrayBatchedCopy<float>", Kind.LAYOUT),
        ("aten::embedding", "indexSelectLargeIndex<float>", Kind.GATHER_SCATTER),
        ("aten::max_pool2d_with_indices", "max_pool_forward_nchw<float>", Kind.POOLING),
        ("aten::nll_loss_forward", "nll_loss_forward_reduce_cuda_kernel_2d", Kind.LOSS),
        ("aten::_foreach_add_", "multi_tensor_apply_kernel<…>", Kind.OPTIMIZER),
        ("aten::_foreach_copy_", "multi_tensor_apply_kernel<…>", Kind.COPY_FILL),
        ("aten::_foreach_zero_", "multi_tensor_apply_kernel<…>", Kind.COPY_FILL),
        (None, "multi_tensor_apply_kernel<TensorListMetadata<2>, CopyFunctor<int, long>>", Kind.COPY_FILL),
        (None, "multi_tensor_apply_kernel<UnaryOpFunctor<long>, at::native::Copy<long, long> >", Kind.COPY_FILL),
        (None, "multi_tensor_apply_kernel<UnaryOpFunctor<float>, std::plus<float>>", Kind.OPTIMIZER),
        ("aten::native_dropout", "fused_dropout_kernel_vec<float>", Kind.RANDOM),
        ("aten::topk", "gatherTopK<float>", Kind.SORT_TOPK),
        ("aten::sum", "reduce_kernel<512, 1>", Kind.REDUCTION),
        ("vllm::moe_forward", "bmm_MxE4m3_MxE2m1MxE4m3_Fp32_t128x16x256u2", Kind.MOE),
        ("_C::rotary_embedding", "rotary_embedding_kernel<c10::BFloat16, true>", Kind.ROPE),
        ("record_param_comms", "ncclKernel_AllReduce_RING_LL_Sum_float", Kind.COMM),
        ("aten::copy_", "ncclDevKernel_AllGather_RING_LL", Kind.COMM),
        ("fbgemm::permute_2D_sparse_data", "fbgemm_gpu::permute_2D_data_kernel<int>", Kind.GATHER_SCATTER),
        # a Python function of autograd does several things; what its kernels do not tell, it does
        ("_LayerNormLinear", "nvjet_tst_128x256_64x4_2x1_v_bz_coopA_TNT", Kind.MATMUL),
        ("_LayerNormLinear", "void transformer_engine::normalization::rmsnorm_fwd_tuned_kernel<T1>", Kind.NORM),
        ("SoftmaxFunction", "my_kernel", Kind.SOFTMAX),
        # without an op the kernel's name alone; conv before matmul
        (None, "sm80_xmma_fprop_implicit_gemm_indexed_tf32f32_tf32f32_f32", Kind.CONV),
        (None, "void cutlass::Kernel<cutlass_80_tensorop_s1688gemm_256x64_16x4_tn_align1>", Kind.MATMUL),
        (None, "nvjet_tst_64x64_64x16_2x1_2cta_v_bz_bias_TNT", Kind.MATMUL),
        (None, "void pytorch_flash::flash_fwd_kernel<…>", Kind.ATTENTION),
        (None, "triton_poi_fused__scaled_dot_product_flash_attention_cat_3", Kind.LAYOUT),
        (None, "triton_red_fused_add_mean_mul_pow_rsqrt_0", Kind.NORM),
        (None, "batched_transpose_16x64_pack_1x4_ediv_1x2_half", Kind.LAYOUT),
        (None, "SubTensorOpWithScalar1d", Kind.ELEMENTWISE),
        (None, "a_kernel_nobody_knows", Kind.OTHER),
    ],
)
def test_kind_of_real_names(op, kernel, kind):
    """The op decides, but for kernels that are always the same (communication, relayout); then the kernel's name."""
    assert kind_of(op, kernel) is kind


def test_copies_are_copies_by_category():
    """A memcpy or memset is one whatever launched it."""
    assert kind_of("aten::addmm", "Memset (Device)", "memset") is Kind.COPY_FILL
    assert kind_of("aten::copy_", "Memcpy HtoD (Pinned -> Device)", "memcpy") is Kind.COPY_FILL


def test_an_endless_name_costs_nothing():
    """Names are untrusted: a megabyte of one is looked at by its beginning only."""
    assert kind_of(None, "gemm" + "a" * 1_000_000) is Kind.MATMUL


@pytest.mark.parametrize(
    "kernel",
    [
        "void deep_ep::intranode::combine<__nv_bfloat16, 8, 768, 4096>(T1)",
        "_ZN4aiter26cross_device_reduce_1stageI14__hip_bfloat16Li8EEEvv",
        "void vllm::cross_device_reduce_2stage<__nv_bfloat16, 4>(T1)",
        "(anonymous namespace)::multimem_all_gather_kernel",
        "mscclpp::allreduce_kernel",
        "void foo::twoShotAllReduceKernel<1>",
        "aiter::reduce_scatter_cross_device_store",
        "hcom_allReduce__123_0_1",
        "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)",
    ],
)
def test_kernels_that_communicate(kernel: str) -> None:
    """Their name alone says so, whatever launched them: rows and timelines ask the same question."""
    assert communicates(kernel)
    assert kind_of("aten::copy_", kernel) is kind_of_kernel(kernel) is Kind.COMM


@pytest.mark.parametrize(
    ("kernel", "kind"),
    [
        ("triton_poi_fused_add_all_gather_into_tensor_0", Kind.ELEMENTWISE),
        ("triton_red_fused_all_reduce_sum_1", Kind.REDUCTION),
        ("call_gather_kernel", Kind.GATHER_SCATTER),
        ("cub::WallReduce", Kind.REDUCTION),
        ("small_reduce", Kind.REDUCTION),
        ("smallreduce_kernel", Kind.REDUCTION),
        ("pre_scatter_reduce", Kind.GATHER_SCATTER),
        ("all_gather_matmul_kernel", Kind.MATMUL),
        ("gemm_reduce_scatter_kernel", Kind.MATMUL),
    ],
)
def test_kernels_that_only_sound_like_communication(kernel: str, kind: Kind) -> None:
    """Parts of longer words, fusions named after the ops around a collective, and products fused with one."""
    assert not communicates(kernel)
    assert kind_of_kernel(kernel) is kind
