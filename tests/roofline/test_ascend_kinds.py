"""Kinds of Ascend kernels: by where they ran, then by type."""

from __future__ import annotations

import pytest

from roofwatch.model.formulas.ascend.table import formula_of_type
from roofwatch.model.kinds import Kind, kind_of_type

# Types of real captures, by the kind that their operator documentation gives them.
TYPES = {
    Kind.MATMUL: "MatMul MatMulV2 MatMulV3 BatchMatMul BatchMatMulV2 QuantBatchMatmulV3 WeightQuantBatchMatmulV2",
    Kind.GROUPED_MATMUL: "GroupedMatmul GroupedMatmulSwigluQuant GroupedMatmulFinalizeRouting",
    Kind.CONV: "Conv2D Conv2DBackpropFilter Conv2DBackpropInput DepthwiseConv2D Conv3DV2 Conv2DTransposeD",
    Kind.ATTENTION: (
        "FlashAttentionScore FlashAttentionScoreGrad FusedInferAttentionScore PromptFlashAttention "
        "IncreFlashAttention PagedAttention MlaProlog UnpadFlashAttentionBF16NdKernel"
    ),
    Kind.NORM: "RmsNorm RmsNormGrad AddRmsNorm InplaceAddRmsNorm LayerNormV3 LayerNormV4 GroupNormSilu BNInfer",
    Kind.SOFTMAX: "SoftmaxV2 SoftmaxGrad LogSoftmaxV2 LogSoftmaxGrad ScaledMaskedSoftmax MaskedSoftmaxWithRelPosBias",
    Kind.ACTIVATION: "Relu ReluGrad Gelu FastGelu Swish Silu SwiGlu SwiGluGrad Sigmoid Tanh DequantSwigluQuant",
    Kind.ROPE: "RotaryPositionEmbedding RotaryPositionEmbeddingGrad RotaryMul InterleaveRope ApplyRotaryPosEmb",
    Kind.ELEMENTWISE: (
        "Abs Add Adds Sub Mul Muls RealDiv Div Pows Exp Sqrt Rsqrt Maximum SelectV2 Equal Less Log LogicalNot "
        "LogicalOr Axpy Addcmul Neg Cos Sin Square Reciprocal Greater GreaterEqual NotEqual"
    ),
    Kind.REDUCTION: (
        "ReduceSum ReduceSumD ReduceMeanD ReduceMax ArgMaxWithValue LpNormV2 LpNormReduceV2 LpNormUpdateV2 Cumsum"
    ),
    Kind.POOLING: "MaxPoolWithArgmaxV1 MaxPoolGradWithArgmaxV1 AdaptiveAvgPool3d AdaptiveAvgPool3dGrad AvgPoolV2",
    Kind.GATHER_SCATTER: (
        "GatherV2 GatherV3 Index IndexPutV2 ScatterElements EmbeddingDenseGradV2 InplaceIndexAdd GatherElements"
    ),
    Kind.SORT_TOPK: "Sort TopKV2 NonZero UniqueWithCountsAndSorting",
    Kind.LAYOUT: (
        "TransData Transpose TransposeD Slice StridedSliceD ConcatD SplitVD Pack Tile BroadcastTo AsStrided ViewCopy "
        "PadV3 Tril"
    ),
    Kind.CAST: "Cast AscendQuantV2 DynamicQuant AscendDequant",
    Kind.COPY_FILL: "TensorMove MemSet ZerosLike OnesLike Fill Range",
    Kind.RANDOM: "DSAGenBitMask DSAStatelessGenBitMask DropOutDoMask DropOutDoMaskV3 StatelessRandomUniformV2",
    Kind.LOSS: "NLLLoss NLLLossGrad SoftmaxCrossEntropyWithLogits CrossEntropyLoss",
    Kind.OPTIMIZER: "ApplyAdamW ApplyAdamWV2 ApplyMomentum ForeachAddList ForeachMulScalar",
    Kind.MOE: "MoeGatingTopK MoeInitRoutingV2 MoeFinalizeRoutingV2 MoeTokenPermute MoeTokenUnpermute",
    Kind.COMM: (
        "hcom_allReduce_ hcom_allGather_ hcom_reduceScatter_ hcom_broadcast_ hcom_batchSendRecv_ HcclAllReduce "
        "MoeDistributeDispatch MoeDistributeCombineV2"
    ),
    Kind.COMM_COMPUTE: "MatmulAllReduce AllGatherMatmul MatmulReduceScatter AlltoAllAllGatherBatchMatMul",
}
CASES = [(name, kind) for kind, names in TYPES.items() for name in names.split()]


@pytest.mark.parametrize(("name", "kind"), CASES)
def test_types(name, kind):
    """Every type of the real captures and of the operators that models use, in any case."""
    assert kind_of_type(name) is kind
    assert kind_of_type(name.upper(), "AI_VECTOR_CORE") is kind


def test_every_kind_is_told():
    """All kinds but those of where a kernel ran, and of no rule."""
    assert set(TYPES) == set(Kind) - {Kind.AICPU, Kind.EVENT, Kind.OTHER}


@pytest.mark.parametrize(
    ("core", "kind"),
    [
        ("AI_CPU", Kind.AICPU),
        ("KERNEL_AICPU", Kind.AICPU),
        ("HCCL", Kind.COMM),
        ("COMMUNICATION", Kind.COMM),
        ("HCCL_AI_CPU", Kind.COMM),
        ("DSA_SQE", Kind.RANDOM),
        ("EVENT_RECORD", Kind.EVENT),
        ("EVENT_WAIT", Kind.EVENT),
        ("Notify Wait", Kind.EVENT),
        ("MEMCPY_ASYNC", Kind.COPY_FILL),
        ("SDMA", Kind.COPY_FILL),
        ("Write Value", Kind.COPY_FILL),
    ],
)
def test_where_it_ran_comes_first(core, kind):
    """A cast on the device's CPU is the host's, a task of another engine its own, whatever the type."""
    assert kind_of_type("Cast", core) is kind


def test_no_rule():
    """A type that nobody knows, and an absurdly long one."""
    assert kind_of_type("FrobnicateV3") is None
    assert kind_of_type("x" * 100_000) is None


@pytest.mark.parametrize(
    "name",
    [
        n
        for n, k in CASES
        if k not in {Kind.COMM, Kind.COMM_COMPUTE, Kind.MOE}
        and n not in {"PagedAttention", "MlaProlog", "UnpadFlashAttentionBF16NdKernel"}
    ],
)
def test_types_have_a_formula(name):
    """All but those whose sizes their operands hide (pages, expert routing) and what waits for other ranks inside."""
    assert formula_of_type(name) is not None
