"""Ops that do no device work: views, allocation, and the wrappers whose inner ops do the work (and carry the FLOPs).

On a CPU every op has a record with its self time; for these it is the host's overhead.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from roofwatch.model.formulas.base import Formula, Work, words
from roofwatch.model.shapes import Call

VIEWS = frozenset(
    f"aten::{name}"
    for name in words(
        "view reshape _reshape_alias _unsafe_view view_as transpose transpose_ t t_ permute numpy_T mT expand "
        "expand_as squeeze squeeze_ unsqueeze unsqueeze_ as_strided as_strided_ select slice narrow split "
        "split_with_sizes chunk unbind unfold diagonal detach detach_ alias flatten unflatten ravel movedim "
        "moveaxis swapaxes swapdims real imag view_as_real view_as_complex lift_fresh lift_fresh_copy "
        "resolve_conj resolve_neg _conj conj is_nonzero result_type empty empty_like empty_strided new_empty "
        "new_empty_strided resize_ resize_as_ set_ size stride numel dim set_data requires_grad_ "
        "is_floating_point can_cast broadcast_tensors broadcast_to meshgrid atleast_1d atleast_2d "
        "_has_compatible_shallow_copy_type item _local_scalar_dense is_same_size data _nested_tensor_size "
        "_version tensor_split hsplit vsplit dsplit _use_cudnn_ctc_loss _is_zerotensor is_pinned"
    )
) | {"detach", "detach_"}

# Wrapper → inner ops that do the work. An empty tuple: always a wrapper. Otherwise it is one where the same process
# has such an inner op on the same first operand; without it the wrapper did the work itself.
WRAPPERS: dict[str, tuple[str, ...]] = {
    **{
        f"aten::{name}": ()
        for name in words(
            "_scaled_dot_product_attention_math _native_multi_head_attention _transformer_encoder_layer_fwd "
            "_safe_softmax select_backward slice_backward scalar_tensor linear matmul einsum bilinear conv1d "
            "conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d convolution "
            "scaled_dot_product_attention layer_norm rms_norm group_norm batch_norm instance_norm "
            "_batch_norm_impl_index _batch_norm_impl_index_backward softmax log_softmax dropout feature_dropout "
            "alpha_dropout relu relu_ cross_entropy_loss nll_loss nll_loss_nd nll_loss2d contiguous clone to "
            "_to_copy type_as cpu cuda float half repeat repeat_interleave tile stack hstack vstack concat "
            "concatenate zeros ones zeros_like ones_like full full_like rand randn randint randperm rand_like "
            "randn_like randint_like new_zeros new_ones new_full max_pool1d max_pool2d max_pool3d avg_pool1d "
            "adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d embedding_backward embedding_bag "
            "index_put index_put_ pad _pad_enum mean square selu cosine_similarity normalize masked_fill lstm gru "
            "rnn_tanh rnn_relu linear_backward matmul_backward multi_head_attention_forward tensordot inner outer "
            "kron chain_matmul linalg_matmul norm_except_dim argwhere _foreach_add _foreach_add_ _foreach_mul "
            "_foreach_mul_ _foreach_sub _foreach_sub_ _foreach_div _foreach_div_ _foreach_sqrt _foreach_sqrt_ "
            "_foreach_lerp _foreach_lerp_ _foreach_addcmul _foreach_addcmul_ _foreach_addcdiv _foreach_addcdiv_ "
            "_foreach_neg _foreach_neg_ _foreach_norm _foreach_zero_ _foreach_copy_ _foreach_maximum_ "
            "_foreach_pow _foreach_pow_ _foreach_reciprocal _foreach_reciprocal_ _foreach_exp _foreach_exp_ "
            "_foreach_abs hardtanh hardtanh_ relu6 relu6_ celu celu_ rrelu prelu __and__ __or__ __xor__ isnan isinf "
            "isfinite isclose true_divide true_divide_ rsub mv argsort logsumexp l1_loss soft_margin_loss "
            "constant_pad_nd roll _fused_rms_norm _grouped_mm _scaled_mm_v2"
        )
    },
    "aten::_convolution": (
        "aten::mkldnn_convolution", "aten::_slow_conv2d_forward", "aten::slow_conv3d_forward",
        "aten::slow_conv_dilated2d", "aten::slow_conv_dilated3d", "aten::slow_conv_transpose2d",
        "aten::slow_conv_transpose3d", "aten::_nnpack_spatial_convolution",
    ),
    "aten::convolution_backward": ("aten::_slow_conv2d_backward",),
    "aten::slow_conv3d": ("aten::slow_conv3d_forward",),
    "aten::thnn_conv2d": ("aten::_slow_conv2d_forward",),
    "aten::embedding": ("aten::index_select",),
    "aten::zero_": ("aten::fill_",),
    "aten::index_add_": ("aten::scatter_add_",),
    "aten::isin": ("aten::_unique",),
    "aten::_scaled_mm": ("aten::_to_copy",),  # a CPU without fp8 turns its operands into floats, and multiplies those
    "bitsandbytes::int8_scaled_mm": ("bitsandbytes::int8_linear_matmul",),
}  # fmt: skip

# Autograd's nodes and engine, optimizer and profiler ranges: their inner ops do the work.
_NODES = re.compile(
    r"^(autograd::|torch::autograd::|Optimizer\.|ProfilerStep|enumerate\(DataLoader|nn\.Module|"
    r"(?!Compiled)\w+Backward\d*$|TorchDynamo |Torch-Compiled Region|Pregraph bytecode|AOTDispatcher |## Call Compiled|"
    r"DistributedDataParallel\.forward|torch\.distributed\.ddp\.(?!copy))"
)

# Ops that call themselves once more with a scalar made a tensor: (op, position, type there) marks the outer call.
SCALAR_OVERLOADS = frozenset(f"aten::{n}{s}" for n in ("add", "sub", "mul", "div", "rsub") for s in ("", "_"))
SHORT_OVERLOADS = frozenset({"aten::sum", "aten::prod", "aten::any", "aten::all"})  # (x, dtype) calls (x, dims, …)
# Ops that call themselves with more arguments, mostly the output: how many the call that does the work has.
FULL_OVERLOADS = {
    "aten::abs": 2, "aten::logical_not": 2, "aten::logical_and": 3, "aten::logical_or": 3, "aten::logical_xor": 3,
    "aten::nan_to_num": 5, "aten::sort": 4, "aten::mse_loss_backward": 5, "aten::smooth_l1_loss_backward": 6,
    "aten::huber_loss_backward": 6,
}  # fmt: skip


def nothing(call: Call) -> Work:
    """No device work."""
    del call
    return Work(0, 0)


VIEW = Formula("view", nothing)
WRAPPER = Formula("wrapper", nothing)


def is_node(op: str) -> bool:
    """Whether this is a range around ops rather than an op."""
    return _NODES.match(op) is not None


def is_outer_overload(call: Call) -> bool:
    """Whether this call only forwards to another overload of the same op (or, of max and min, to another op).

    Told by the arguments, so never in a window without shapes.
    """
    op, given = call.op, len(call.arguments)
    rule = _OUTER.get(op)
    if rule is not None:
        return given > 0 and rule(call)
    return 0 < given < FULL_OVERLOADS.get(op, 0) or (op in SHORT_OVERLOADS and given == 2)


def _unbiased(call: Call) -> bool:
    """(x, unbiased) and (x, dims, unbiased, keepdim) call (x, dims, correction, keepdim)."""
    return any(call[i].text in ("True", "False") for i in (1, 2))


def _number(*positions: int) -> Callable[[Call], bool]:
    """A number where the call that does the work has a tensor."""
    return lambda call: any(call[i].type == "Scalar" for i in positions)


_OUTER: dict[str, Callable[[Call], bool]] = {
    **dict.fromkeys(SCALAR_OVERLOADS, _number(1)),
    "aten::where": _number(1, 2),
    "aten::pow": _number(0),  # pow(x, number) is computed as it is
    **{f"aten::{name}": _unbiased for name in ("var", "std", "var_mean", "std_mean")},
    # of two tensors: maximum, minimum
    **{f"aten::{name}": lambda c: len(c.arguments) == 2 and c.tensor(1) is not None for name in ("max", "min")},
    # over some dimensions: a comparison and a sum
    "aten::count_nonzero": lambda c: c[1].type != "ScalarList" or c.integers(1) != (),
    "aten::arange": lambda c: not c.tensors,
}


TABLE: dict[str, Formula] = dict.fromkeys(VIEWS, VIEW)
