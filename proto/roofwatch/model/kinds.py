"""Kernel kinds: the coarse families in which work is compared across vendors."""

from __future__ import annotations

import re
from enum import StrEnum
from functools import lru_cache

from roofwatch.model import ascend_types, kernel_rules

_LONGEST = 512  # characters of a name that rules look at: a template's tail tells nothing more, and names are untrusted


class Kind(StrEnum):
    """The family of a kernel."""

    MATMUL = "matmul"
    GROUPED_MATMUL = "grouped_matmul"
    CONV = "conv"
    ATTENTION = "attention"
    NORM = "norm"
    SOFTMAX = "softmax"
    ACTIVATION = "activation"
    ROPE = "rope"
    ELEMENTWISE = "elementwise"
    REDUCTION = "reduction"
    POOLING = "pooling"
    GATHER_SCATTER = "gather_scatter"
    SORT_TOPK = "sort_topk"
    LAYOUT = "layout"
    CAST = "cast"
    COPY_FILL = "copy_fill"
    RANDOM = "random"
    LOSS = "loss"
    OPTIMIZER = "optimizer"
    MOE = "moe"
    COMM = "comm"
    COMM_COMPUTE = "comm_compute"
    AICPU = "aicpu"
    EVENT = "event"
    OTHER = "other"


# By the op's base name, first match wins.
_OPS = (
    (
        Kind.COMM_COMPUTE,
        (r"allgathermatmul|matmulallreduce|matmulreducescatter|all_gather_matmul|matmul_reduce_scatter"),
    ),
    (
        Kind.COMM,
        (
            r"^record_param_comms|^c10d::|^gloo:|nccl|hccl|^hcom|"
            r"(?-i:(?<![A-Za-z])[aA]|(?<=[a-z])A)ll_?(reduce|gather|to_?all)|(?<![a-z])reduce_scatter|^broadcast_$"
        ),
    ),
    (Kind.MOE, r"moe|topk_gating|topk_softmax|fused_experts"),
    (Kind.GROUPED_MATMUL, r"grouped_?(mm|gemm|matmul)|group_gemm|_grouped_(stacked|dynamic|cat)$|bf16_grouped$"),
    (Kind.CONV, r"conv(olution)?(_|$|[123]d)|^_?conv|convolution|conv_depthwise|thnn_conv"),
    (Kind.ATTENTION, r"attention|attn|paged|fmha|mha_|mla_|(_fa\d_C|sgl_kernel)::\w*fwd|merge_state"),
    (
        Kind.OPTIMIZER,
        (
            r"^_foreach_(?!(copy|zero)$)|^_fused_(adam|adamw|sgd|adagrad)|_amp_(foreach|update)|^optimizer\.|"
            r"fused_?adam"
        ),
    ),
    (Kind.ROPE, r"rotary|rope"),
    (Kind.SOFTMAX, r"softmax"),
    (Kind.LOSS, r"_loss|cross_entropy|^ctc|kl_div"),
    (Kind.NORM, r"layer_?norm|rms_?norm|batch_norm|group_?norm|instance_norm|weight_norm|renorm"),
    (
        Kind.MATMUL,
        (
            r"^(_?addmm(_activation)?|b?mm|mm|baddbmm|addbmm|matmul|linear(_backward)?|addmv|mv|dot|vdot|einsum|"
            r"_int_mm|_scaled_mm|_weight_int\w+|addr|ger|_linear_pointwise|mkldnn_linear|tensordot|"
            r"cutlass_scaled_mm|gemm\w*|awq_\w+|gptq_\w+|marlin\w*)$|scaled_(fp4_)?mm|(?<!fb)gem[mv]|wvsplitk|llmm1|"
            r"machete_mm|ggml_mul_mat|matmul_4bit|_linear_matmul|_(dtypes|structured)_linear|_linear_(sparse_)?cutlass|"
            r"^(bf16|f8|i8)(bf16|f8|i8|i4)bf16"
        ),
    ),
    (Kind.POOLING, r"_pool(\d|_|$)|pool\dd"),
    (
        Kind.RANDOM,
        (
            r"dropout|^(normal|uniform|random|bernoulli|exponential|multinomial|randperm|rand\w*)$|masked_scale|"
            r"philox"
        ),
    ),
    (Kind.SORT_TOPK, r"^(sort|argsort|topk|msort|nonzero|unique\w*|_unique\w*|kthvalue|searchsorted|bucketize)$"),
    (
        Kind.GATHER_SCATTER,
        (
            r"^_?(index\w*|_index_put_impl|gather|scatter\w*|embedding\w*|_embedding\w*|take\w*|masked_select|"
            r"masked_scatter|put)$|embedding|reshape_and_cache|lookup|permute_\w*sparse|permute_pooled"
        ),
    ),
    (Kind.CAST, r"^(to|_to_copy|type_as|half|float|double)$|quant|cast_"),
    (
        Kind.ACTIVATION,
        (
            r"^(relu\w*|gelu\w*|silu\w*|sigmoid\w*|tanh\w*|hardtanh\w*|leaky_relu\w*|elu\w*|selu|celu|mish\w*|"
            r"glu\w*|hardswish\w*|hardsigmoid\w*|softplus\w*|threshold\w*|prelu\w*|_prelu\w*|log_sigmoid\w*|"
            r"silu_and_mul|gelu_and_mul|logit_backward)$|swiglu|act_and_mul|relu_and_mul|mul_and_silu"
        ),
    ),
    (
        Kind.REDUCTION,
        (
            r"^(sum|mean|prod|amax|amin|max|min|any|all|argmax|argmin|var\w*|std\w*|norm|linalg_vector_norm|"
            r"logsumexp|cumsum|cumprod|nansum|count_nonzero|_local_scalar_dense|item|aminmax)$"
        ),
    ),
    (
        Kind.LAYOUT,
        (
            r"^(cat|_cat|stack|concat\w*|split\w*|chunk|transpose|t|permute|contiguous|view\w*|reshape\w*|"
            r"_reshape\w*|_unsafe_view|expand\w*|squeeze|unsqueeze|as_strided|select|slice\w*|narrow|unbind|"
            r"flatten|unfold\w*|repeat\w*|tile|pad|constant_pad_nd|reflection_pad\w*|replication_pad\w*|flip|roll|"
            r"tril|triu|upsample\w*|pixel_shuffle|im2col|col2im|diagonal\w*|movedim|swapaxes|meshgrid|resize|"
            r"triangle|detach|alias)$"
        ),
    ),
    (
        Kind.COPY_FILL,
        (
            r"^(copy|clone|fill|zero|zeros\w*|ones\w*|full\w*|empty\w*|new_\w+|arange|linspace|eye|lift_fresh\w*|"
            r"_foreach_copy|_foreach_zero|set)$"
        ),
    ),
    (
        Kind.ELEMENTWISE,
        (
            r"^(abs|neg|reciprocal|square|sqrt|rsqrt|exp\w*|log\w*|sin|cos|tan|a?sinh?|a?cosh?|atan\w*|erf\w*|"
            r"floor\w*|ceil|round|trunc|frac|signbit|sign|sgn|clamp\w*|add|sub|rsub|mul|div|true_divide|remainder|"
            r"fmod|pow|maximum|minimum|fmax|fmin|lerp|addcmul|addcdiv|eq|ne|lt|le|gt|ge|isnan|isinf|isfinite|"
            r"logical_\w+|bitwise_\w+|__\w+__|where|masked_fill|nan_to_num|result_type|xlogy|hypot|copysign|isin|"
            r"isclose|lgamma|digamma|polar)$"
        ),
    ),
)


def _compiled(rules: tuple[tuple[str, str], ...]) -> tuple[tuple[Kind, re.Pattern[str]], ...]:
    return tuple((Kind(kind), re.compile(pattern, re.IGNORECASE)) for kind, pattern in rules)


_ALWAYS_RULES, _OP_RULES = _compiled(kernel_rules.ALWAYS), _compiled(_OPS)
_KERNEL_RULES = _compiled(kernel_rules.KERNELS)
_COMMUNICATION, _MOVING, _PRODUCT, _COMPILED = (
    re.compile(pattern, re.IGNORECASE)
    for pattern in (kernel_rules.COMMUNICATION, kernel_rules.MOVING, kernel_rules.PRODUCT, kernel_rules.COMPILED)
)
_CORE_RULES, _TYPE_RULES = _compiled(ascend_types.CORES), _compiled(ascend_types.TYPES)


def _first(rules: tuple[tuple[Kind, re.Pattern[str]], ...], *texts: str) -> Kind | None:
    return next((kind for kind, pattern in rules if any(pattern.search(t) for t in texts)), None)


@lru_cache(maxsize=8192)
def communicates(kernel: str) -> bool:
    """Whether a kernel moves data between devices and does nothing else, by its name. Of a row its op tells, too."""
    name = kernel[:_LONGEST]
    if _COMPILED.match(name):
        return False
    moving = _MOVING.search(name) is not None and _PRODUCT.search(name) is None
    return moving or _COMMUNICATION.search(name) is not None


def _always(kernel: str) -> Kind | None:
    """The kind that a kernel has whatever launched it."""
    return Kind.COMM if communicates(kernel) else _first(_ALWAYS_RULES, kernel[:_LONGEST])


@lru_cache(maxsize=8192)
def kind_of(op: str | None, kernel: str, category: str = "kernel") -> Kind:
    """The kind of a record: by what is always true of the kernel, then by the op, then by the kernel's name.

    A Python function of autograd (a name without namespace) may do several things: there the kernel's name comes first.
    ``category`` is the source's sort of record (kernel, memcpy, memset, cpu_op). Names that no rule knows are OTHER.
    """
    if category in ("memcpy", "memset"):
        return Kind.COPY_FILL
    if category != "cpu_op":
        found = _always(kernel)
        if found is not None:
            return found
        if op is not None and "::" not in op and (of_kernel := kind_of_kernel(kernel)) is not Kind.OTHER:
            return of_kernel
    if op is not None:
        found = kind_of_op(op)
        if found is not None:
            return found
    return kind_of_kernel(kernel)


@lru_cache(maxsize=8192)
def kind_of_op(op: str) -> Kind | None:
    """The kind of an op by its name, or None: "aten::add_" and "add" are the same; a bare kernel name is no op."""
    name = op[:_LONGEST]
    base = name.rpartition("::")[2]
    if base.endswith("_") and not base.endswith("__"):
        base = base[:-1]
    if "::" in name or base.isidentifier():
        return _first(_OP_RULES, base, name) if not base.startswith("triton_") else None
    return None


@lru_cache(maxsize=8192)
def kind_of_type(type_: str, core: str | None = None) -> Kind | None:
    """The kind of an Ascend kernel by where it ran, then by its type ("MatMulV3"); None where no rule knows either."""
    found = None if core is None else _first(_CORE_RULES, core[:_LONGEST])
    return found or _first(_TYPE_RULES, type_[:_LONGEST])


@lru_cache(maxsize=8192)
def kind_of_kernel(kernel: str) -> Kind:
    """The kind of a kernel by its name alone."""
    return _always(kernel) or _first(_KERNEL_RULES, kernel[:_LONGEST]) or Kind.OTHER
