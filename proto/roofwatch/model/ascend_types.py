"""What the types of Ascend's kernels mean: rules from type to kind, first match wins, case ignored.

A type is the operator's name in CANN ("MatMulV3", "RmsNormGrad"). Tables only; ``kinds`` reads them.
"""

from __future__ import annotations

# Where a kernel ran decides first: what the device's own CPU does is no kernel's work, whatever its type.
CORES = (
    ("comm", r"^(HCCL|COMMUNICATION|HCCL_AI_CPU)$"),
    ("aicpu", r"AI_?CPU"),
    ("random", r"^DSA"),
    ("event", r"EVENT|NOTIFY|^Wait|PROFILING|STARS_COMMON|PLACE_HOLDER"),
    ("copy_fill", r"MEMCPY|MEMSET|SDMA|WRITE_?(BACK|VALUE)|Write Value"),
)

# Names of one pass over broadcast inputs, without what may follow: the number of a version, Grad, D (fixed attributes).
_ELEMENTWISE = (
    "abs acos acosh accumulatenv? add addcdiv addcmul addn adds angle asin asinh atan atan2 atanh axpy axpys? "
    "bitwise(and|or|xor|not) ceil clipbyvalue complex conj cos cosh div divnonan divs equal erf erfc erfinv exp exp2 "
    "expm1 floor floordiv floormod fmod greater greaterequal inv invert iscolse? isclose isfinite isinf isnan isneginf "
    "isposinf leftshift lerp less lessequal lgamma log log10 log1p log2 logaddexp logical(and|not|or|xor) "
    "masked(fill|scale) maximum maxn? minimum mod mul mulnonan muls nantonum neg notequal pow pows real realdiv "
    "reciprocal remainder rightshift rint round rsqrt select sign signbit sin sinh sqrt square squareddifference sub "
    "subs tan trunc truncatediv truncatemod xdivy xlogy where"
)

TYPES = (
    ("comm_compute", r"all_?reduce\w*matmul|matmul\w*all_?reduce|allgather\w*matmul|matmul\w*(reducescatter|alltoall)"),
    ("comm_compute", r"alltoall\w*matmul"),
    ("comm", r"^hcom_|^hccl|^moedistribute(dispatch|combine)|^(all_?reduce|all_?gather|reduce_?scatter|all_?to_?all)"),
    ("comm", r"^(hcombroadcast|broadcastcomm|batchsendrecv)"),
    ("grouped_matmul", r"^grouped_?matmul|^groupmatmul|^batchedgroup"),
    ("moe", r"^moe"),
    ("attention", r"flash_?attention|inferattention|pagedattention|^mlaprolog|^ringattention|^nsa|attentionupdate"),
    ("attention", r"attentionscore|^(sparse|floyd|fused)\w*attention|^lightningindexer|^laserattention"),
    ("conv", r"conv[123]d|^depthwiseconv|^conv\w*transpose|^deformableconv|^deconvolution"),
    ("matmul", r"matmul|^gemm|^fullyconnection|^batchgemm|^gemv|^dot$"),
    ("rope", r"rotary|^rope|rope\w*embedding|^interleaverope|kvrmsnormropecache"),
    ("optimizer", r"^(resource)?apply|^foreach|^fused(adam|sgd|ema)|^lamb|^lars|nonfinitecheck|^adam"),
    ("loss", r"nllloss|crossentropy|mseloss|l1loss|smoothl1|bceloss|kldiv|ctcloss|hinge|marginloss|^loss"),
    ("norm", r"(rms|layer|group|batch|instance|deep|weight)norm|^bn(training|infer|update|reduce)|^in(training|infer)"),
    ("softmax", r"softmax"),
    ("random", r"dropout|^dsa|^stateless|^random|^multinomial|bernoulli|^truncatednormal|^philox|^normal$|^uniform$"),
    ("pooling", r"pool"),
    ("sort_topk", r"^sort|topk|^nonzero|^unique|^searchsorted|^bucketize|^argsort|^kthvalue"),
    (
        "gather_scatter",
        (
            r"^gather|^index|^scatter|^embedding|^inplace_?(index|scatter|update)|^masked(select|scatter)|^take|"
            r"^unsortedsegment|^segment|kvcache|reshapeandcache|^linearindex|^one_?hot|^putalong|^batchgather"
        ),
    ),
    (
        "activation",
        (
            r"relu|gelu|geglu|silu|swish|swiglu|swi_?glu|^sigmoid|^tanh|^(s|c)?elu|^softplus|^softsign|^hard(swish|"
            r"sigmoid|tanh|shrink)|^softshrink|^mish|^threshold|^logsigmoid|^glu"
        ),
    ),
    ("cast", r"^cast|quant"),
    (
        "reduction",
        (
            r"^reduce|^arg(max|min)|^lpnorm|^l2loss|^l2normalize|^cum|^bincount|^histogram|^squaresum|^logsumexp|"
            r"^std|^var$|^mean|^isallzero|^cdist|^pdist|^norm$|^trace$"
        ),
    ),
    (
        "copy_fill",
        (
            r"^tensormove|^memset|^memcpy|^zeroslike|^oneslike|^fill|^range|^arange|^linspace|^eye|^identity|"
            r"^atomicaddrclean|^dynamicatomicaddrclean|^assign"
        ),
    ),
    (
        "layout",
        (
            r"^transdata|transpose|^slice|^strided_?slice|^concat|^split|^(un)?pack|^(un)?stack|^tile|^broadcast|"
            r"^asstrided|^viewcopy|^(mirror|constant)?pad|pad(v\d|d)?$|^tri[lu]|^reverse|^roll|^expand|^resize|"
            r"^upsample|^im2col|^col2im|^depthtospace|^spacetodepth|^repeat|^reflection|^replication|^diag|^meshgrid|"
            r"^flatten|^reshape|^squeeze|^unsqueeze|^select(v\d)?view|^crop|^gridsample|^flip"
        ),
    ),
    ("elementwise", r"^(" + "|".join(_ELEMENTWISE.split()) + r")(v\d)?(d|grad|ext2)?$"),
)
