"""Kinds of the ops of serving engines, quantisation and attention libraries."""

from __future__ import annotations

import pytest

from roofwatch.model.kinds import Kind, kind_of_op

KINDS = {
    Kind.ATTENTION: (
        "flash_attn::_flash_attn_varlen_backward", "FlashAttnVarlenFunc", "flash_attn_3::fwd",
        "_vllm_fa2_C::varlen_fwd", "_vllm_fa2_C::fwd_kvcache",
        "_vllm_fa3_C::fwd", "sgl_kernel::fwd", "aiter::mha_fwd", "aiter::fmha_v3_bwd",
        "_C::paged_attention_v2", "_rocm_C::paged_attention", "vllm::unified_attention_with_output",
        "_C::merge_attn_states", "sgl_kernel::merge_state_v2", "sgl_kernel::cutlass_mla_decode",
    ),
    Kind.GROUPED_MATMUL: (
        "aten::_grouped_mm", "aten::_scaled_grouped_mm_v2", "GroupedGemm", "fbgemm::bf16bf16bf16_grouped_stacked",
        "mslk::f8f8bf16_rowwise_grouped_dynamic", "mslk::bf16bf16bf16_grouped",
    ),
    Kind.MOE: (
        "vllm::moe_forward", "vllm::outplace_fused_experts", "sgl_kernel::topk_softmax", "_moe_C::moe_sum",
        "aiter::fused_moe_",
    ),
    Kind.MATMUL: (
        "aten::_scaled_mm_v2", "aten::_mixed_dtypes_linear", "aten::_dyn_quant_matmul_4bit",
        "aten::_sparse_semi_structured_linear", "_C::machete_mm", "_C::marlin_gemm", "_C::ggml_mul_mat_a8",
        "_C::cutlass_scaled_fp4_mm", "_rocm_C::wvSplitKQ", "_rocm_C::LLMM1", "bitsandbytes::gemv_4bit",
        "bitsandbytes::int8_linear_matmul", "fbgemm::f8f8bf16_rowwise", "mslk::bf16i4bf16_rowwise", "fbgemm::i8i8bf16",
        "torchao::rowwise_scaled_linear_cutlass_s8s4",
    ),
    Kind.ACTIVATION: ("_C::silu_and_mul", "_C::mul_and_silu", "_C::fatrelu_and_mul", "aiter::gelu_tanh_and_mul"),
    Kind.REDUCTION: ("aten::var_mean", "aten::var"),  # "varlen" is none
    Kind.CAST: ("fbgemm::FloatToHFP8Quantized", "bitsandbytes::dequantize_4bit"),
}  # fmt: skip


@pytest.mark.parametrize(("op", "kind"), [(op, kind) for kind, ops in KINDS.items() for op in ops])
def test_kinds_of_engine_ops(op, kind):
    """What an op of a library is, by its name alone."""
    assert kind_of_op(op) is kind
