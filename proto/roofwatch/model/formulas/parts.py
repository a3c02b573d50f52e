"""Ops that launch several kernels: which kernel carries which part of the work.

The rule (see docs/roofline.md): a kernel named here gets its part; of the rest, helpers never carry the op's formula;
what is left is the op's main kernel, and carries all of it. So no FLOP is counted twice.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from roofwatch.model.formulas import conv, sparse
from roofwatch.model.formulas.base import Formula, Work, dense, total_bytes
from roofwatch.model.formulas.elementwise import base_of
from roofwatch.model.shapes import ITEM_BYTES, Call


def _statistics(call: Call) -> Work | None:
    """Mean and variance of x: read once (4 FLOPs an element); the statistics themselves are small."""
    x = call.tensor(0)
    return None if x is None else Work(4 * x.numel, x.bytes)


def _normalize(call: Call) -> Work | None:
    """Y from x and ready statistics: read, written; 2 to 4 FLOPs an element."""
    x = call.tensor(0)
    parameters = [call.tensor(i) for i in (1, 2)]
    if x is None:
        return None
    affine = sum(p is not None for p in parameters)
    return Work((2 + affine) * x.numel, x.bytes + dense(x.shape, x.dtype) + total_bytes(parameters))


def _two_sums(call: Call) -> Work | None:
    """The two sums of a norm's backward over grad and x: both read."""
    grad, x = call.tensor(0), call.tensor(1)
    return None if grad is None or x is None else Work(5 * x.numel, grad.bytes + x.bytes)


def _input_gradient(call: Call) -> Work | None:
    """Dx from grad and x: both read, dx written; 10 FLOPs an element (RMS norm 7)."""
    grad, x = call.tensor(0), call.tensor(1)
    if grad is None or x is None:
        return None
    flops = 7 if "rms" in call.op else 10
    return Work(flops * x.numel, grad.bytes + x.bytes + dense(x.shape, x.dtype))


def _input_gradient_from_sums(call: Call) -> Work | None:
    """Dx from grad, x and ready sums: 5 FLOPs an element."""
    work = _input_gradient(call)
    return None if work is None else Work(work.flops // 2, work.bytes)


def _parameter_gradients(call: Call) -> Work | None:
    """dγ and dβ over grad and x: both read; 5 FLOPs an element (x̂ 2, product and sum 2, sum 1)."""
    return _two_sums(call)


def _small(call: Call) -> Work | None:
    """A kernel over statistics and parameters only: two fp32 values a channel, latency by nature."""
    x = next((t for t in call.tensors if len(t.shape) > 1), None)
    return None if x is None else Work(0, 2 * x.shape[1] * ITEM_BYTES["fp32"])


def _addend(call: Call) -> Work | None:
    """The addend of addmm and its like copied into the output before the product."""
    addend, a, b = call.tensor(0), call.tensor(1), call.tensor(2)
    if addend is None or a is None or b is None or len(a.shape) < 2 or len(b.shape) < 2:
        return None
    return Work(0, addend.bytes + dense((*a.shape[:-1], b.shape[-1]), addend.dtype))


def _epilogue(call: Call) -> Work | None:
    """Bias (and activation) applied to a product's output: output read and written, bias read."""
    addend, a, b = call.tensor(0), call.tensor(1), call.tensor(2)
    if addend is None or a is None or b is None or len(a.shape) < 2 or len(b.shape) < 2:
        return None
    outputs = math.prod(a.shape[:-1]) * b.shape[-1]
    return Work(outputs, addend.bytes + 2 * outputs * addend.item)


def _normalize_groups(call: Call) -> Work | None:
    """The group norm of aiter from ready sums: x and both parameters (at 2 and 3) read, y written."""
    x, parameters = call.tensor(0), (call.tensor(2), call.tensor(3))
    if x is None:
        return None
    affine = sum(p is not None for p in parameters)
    return Work((2 + affine) * x.numel, x.bytes + dense(x.shape, x.dtype) + total_bytes(parameters))


def _experts_input(call: Call) -> Work | None:
    """A mixture's input in 8 bits, a scale byte for each 32: the largest (1) and a product an element."""
    x = call.tensor(0)
    return None if x is None else Work(2 * x.numel, x.bytes + x.numel + x.numel // 32)


def _routing_scores(call: Call) -> Work | None:
    """A router's logits (tokens, experts) read once and compared; the few chosen for each token are left out."""
    logits = call.tensor(1)
    return None if logits is None else Work(logits.numel, logits.bytes)


def _routing_entries(call: Call) -> Work | None:
    """Counting and placing a router's choices: an entry of 4 B for each token at least.

    How many experts a token has is not in the trace. Even with all of them these kernels would move for less than a
    tenth of the time that they take: whatever the number, they are latency.
    """
    logits = call.tensor(1)
    return None if logits is None or not logits.shape else Work(0, 4 * logits.shape[0])


@dataclass(frozen=True, slots=True)
class _Part:
    ops: re.Pattern[str]  # over the base name
    kernel: re.Pattern[str]
    formula: Formula
    covers: bool = True  # the op's parts are all named; without: the kernel comes on top of the op's main kernel


def _part(ops: str, kernel: str, formula: Formula, *, covers: bool = True) -> _Part:
    return _Part(re.compile(ops), re.compile(kernel), formula, covers)


_STATISTICS = Formula("norm_statistics", _statistics)
_NORMALIZE = Formula("norm_apply", _normalize)
_SUMS = Formula("norm_backward_sums", _two_sums)
_DX = Formula("norm_backward_input", _input_gradient)
_DX_FROM_SUMS = Formula("norm_backward_apply", _input_gradient_from_sums)
_DPARAMETERS = Formula("norm_backward_parameters", _parameter_gradients)
_SMALL = Formula("norm_small", _small)

_MXFP8 = r"quantize_with_block_size<\(\S*BlockScaleQuantizationType\)2, \w+, 32,"  # 2: half to 8 bits, blocks of 32

_PRODUCTS = r"^(_?addmm|baddbmm|addmv|addbmm)"
_CONVOLUTION_BACKWARD = r"^(convolution_backward|_conv_depthwise2d_backward)$"

PARTS: tuple[_Part, ...] = (
    _part(_PRODUCTS, r"elementwise_kernel", Formula("addend_copy", _addend), covers=False),
    _part(_PRODUCTS, r"epilogue::", Formula("epilogue", _epilogue), covers=False),
    _part(_CONVOLUTION_BACKWARD, r"(?i:wgrad)|_wrw_|bwd_weight|BwdWeight|grad_weight", conv.BACKWARD_WEIGHT),
    _part(_CONVOLUTION_BACKWARD, r"(?i:dgrad)|_bwd_|bwd_data|BwdData|conv_depthwise2d_backward", conv.BACKWARD_INPUT),
    _part(r"^convolution_backward$", r"reduce_kernel|bwd_?bias|bias_?grad", conv.BACKWARD_BIAS),
    _part(r"batch_norm", r"batch_norm_backward_reduce|BwdSpatial.*(DScale|Final|Mean)", _SUMS),
    _part(r"batch_norm", r"batch_norm_backward_elemt|BwdSpatialDX", _DX_FROM_SUMS),
    _part(r"batch_norm", r"FinalMeanVariance|_kernel_elemt_stats|batch_norm_(update|calc)", _SMALL),
    _part(r"batch_norm(?!.*backward)", r"collect_statistics|SpatialMeanVariance|welford", _STATISTICS),
    _part(r"batch_norm(?!.*backward)", r"transform_input|TrainSpatialNorm|InferSpatial|InfSpatial", _NORMALIZE),
    _part(r"group_norm$", r"RowwiseMoments", _STATISTICS),
    _part(r"group_norm$", r"ComputeFusedParams", _SMALL),
    _part(r"group_norm$", r"elementwise_kernel|Group ?Norm1d", _NORMALIZE),
    _part(r"group_norm_backward", r"ComputeInternalGradients", _SUMS),
    _part(r"group_norm_backward", r"ComputeBackwardFusedParams|GammaBeta", _SMALL),
    _part(r"group_norm_backward", r"elementwise_kernel", _DX_FROM_SUMS),
    _part(r"^_groupnorm_run$", r"groupnorm_kernel_dispatch_up", _STATISTICS),
    _part(r"^_groupnorm_run$", r"groupnorm_kernel_dispatch_down", Formula("norm_apply", _normalize_groups)),
    # (hidden, logits, layer): the experts' weights are not among the arguments, their products stay unknown
    _part(r"^moe_forward$", _MXFP8, Formula("quantize", _experts_input)),
    _part(r"^moe_forward$", r"routingIndicesHistogramScoresKernel", Formula("routing", _routing_scores)),
    _part(r"^moe_forward$", r"routingIndices(Histogram|Offsets)Kernel", Formula("routing", _routing_entries)),
    _part(r"^block_bucketize_sparse_features", r"_cuda_kernel1<", sparse.BUCKET_COUNTS),
    _part(r"^block_bucketize_sparse_features", r"_cuda_kernel2<", sparse.BUCKET_MOVES),
    _part(r"^block_bucketize_sparse_features", r"DeviceScanKernel", sparse.BUCKET_SCANS),
    _part(r"^permute_(2D_sparse_data|sparse_features)$", r"permute_2D_lengths_kernel", sparse.PERMUTED_LENGTHS),
    _part(r"^permute_(2D_sparse_data|sparse_features)$", r"DeviceScanKernel", sparse.PERMUTED_SCANS),
    _part(r"^asynchronous_\w+_cumsum$", r"DeviceScanKernel", sparse.RUNNING_SUM),
    _part(r"permute_pooled_embs", r"permute_pooled_embs_kernel", sparse.PERMUTED_ROWS),
    _part(r"(layer|rms)_norm_backward", r"grad_input", _DX),
    _part(r"(layer|rms)_norm_backward", r"cuComputeGradGammaBeta", _SMALL),
    _part(r"(layer|rms)_norm_backward", r"GammaBeta", _DPARAMETERS),
)

# Kernels that prepare or finish the work of another: relayout, padding, transforms, workspace, partial sums.
HELPERS = re.compile(
    r"nchwToNhwc|nhwcToNchw|nchwToFold|batched_transpose|transpose_?(?:readWrite|Kernel)|Im2d?[_2]?2?[Cc]ol|Col2Im|im2col|col2im|fft[12]d|"
    r"splitKreduce|splitK_reduce|reduce_splitk|SubTensorOp|OpTensor(?:Fwd|Leading)|kern_precomp|cudnn::ops::|scale_?[Tt]ensor|PostGSU|"
    r"BetaOnly|copy_kernel|FillFunctor|elementwise_kernel|reduce_kernel|Memset|set_workspace|dot_do_o|convert_dq|"
    r"compute_dot|reduce_segments|flash_bwd_convert|flash_bwd_dot|combine|"
    # of convolutions: offsets of an implicit product, the transforms of Winograd's, sums of partial gradients
    r"compute\w*Offsets|winograd_nonfused|generateWinogradTiles|WinogradXform|reduce_wgrad|ReduceSplitK|"
    r"execute_split_k_kernel"
)


def part_of(op: str, kernel: str) -> tuple[Formula, bool] | None:
    """The part of an op's work that a kernel named so does, and whether parts cover the op; None if none is known."""
    base = base_of(op)
    helps = is_helper(kernel)  # a sum of partial gradients has its gradient's name, and none of its products
    found = next(
        (p for p in PARTS if p.ops.search(base) and p.kernel.search(kernel) and not (helps and p.formula.matrix)), None
    )
    return None if found is None else (found.formula, found.covers)


def is_helper(kernel: str) -> bool:
    """Whether a kernel beside others of its op only helps."""
    return HELPERS.search(kernel) is not None
