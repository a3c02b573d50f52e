"""What the names of device kernels mean: rules from name to kind, first match wins. Tables only; ``kinds`` reads them.

The names are those of cuBLAS, cuDNN, cutlass, nvjet, MIOpen, Tensile, composable kernel, aten, inductor, Triton
libraries and serving engines, demangled or mangled. All rules ignore case.
"""

from __future__ import annotations

# A word begins after no letter, or as a capital after a small one: twoShotAllReduce, not call_gather or WallReduce.
_ALL = r"(?-i:(?<![A-Za-z])[aA]|(?<=[a-z])A)ll_?"
_REDUCE_SCATTER = r"(?-i:(?<![A-Za-z])[rR]|(?<=[a-z])R)educe_?scatter"

# Libraries and kernels that communicate and do nothing else: the one definition, for rows and timelines alike.
COMMUNICATION = (
    r"(?<![a-z0-9_])[nr]ccl|(?:nccl|rccl)(?:Dev|Sym)?Kernel|(?<![a-z])mscclp*::|(?<![a-z])cross_device_reduce|"
    rf"{_ALL}reduce|(?<![a-z])one_?pcie_?all_?reduce|(?<![a-z])nvls|(?<![a-z])multimem_|(?<![a-z])symmetric_memory::|"
    r"(?<![a-z])(?:nv|roc)shmem|(?<![a-z])(?:deep|hybrid)_?ep::|(?<![a-z])send_?recv|(?<![a-z])lamport|"
    rf"(?<![a-z])k?userbuffers_|^hcom_|^Hccl|moe_?distribute(?:dispatch|combine)|{_ALL}to_?all"
)
# Words that fused kernels have in their names, too; beside a product's they say that it is fused with one.
MOVING = rf"{_ALL}gather|{_REDUCE_SCATTER}"
PRODUCT = r"gemm|mat_?mul|_mm(?![a-z])"
# A fusion of a compiler is named after the ops beside whose results it works: it communicates with nobody.
COMPILED = r"^triton_(?:poi|red|per|tem|for|unk|mm|split_scan)_"

# Kernels whose kind does not depend on the op that launched them: a relayout inside a convolution is layout.
ALWAYS = (
    ("copy_fill", r"^memcpy|^memset|^copybuffer|^fillbuffer|__amd_rocclr_(copy|fill)"),
    (
        "layout",
        (
            r"nchwtonhwc|nhwctonchw|n(chw|hwc)to(folded|fold)|^batched_transpose|im2d?_?2?col|col2im|"
            r"catarraybatchedcopy|transpose_readwrite|tensortransformgeneric|TransData"
        ),
    ),
)

# Inductor's kernels are named after the ops fused in them: templates, reductions, pointwise ones.
INDUCTOR = (
    ("attention", r"^triton_tem_.*attention|^triton_flex_"),
    ("conv", r"^triton_tem_.*conv|^triton_conv"),
    ("grouped_matmul", r"^triton_(tem_.*)?_?grouped_mm"),
    ("matmul", r"^triton_(tem_.*)?(mm|bmm|addmm|baddbmm|scaled_mm|mixed_mm|int_mm)(?![a-z])"),
    ("loss", r"^triton_(red|per)_.*(_loss|cross_entropy)"),
    ("softmax", r"^triton_(red|per)_.*softmax"),
    ("norm", r"^triton_(red|per)_.*((?<!vector)_norm|rsqrt)"),
    ("reduction", r"^triton_(red|per)_"),
    ("random", r"^triton_poi_.*(native_dropout_\d|bernoulli|inductor_(seeds|random)|_rand)"),
    ("activation", r"^triton_poi_.*(gelu|silu|relu|sigmoid|tanh)"),
    (
        "elementwise",
        (
            r"^triton_(poi|for|unk)_.*_(add(mm|cmul|cdiv)?|r?sub|mul|div|pow|r?sqrt|exp2?|log2?|log1p|sin|cos|neg|abs|"
            r"max(imum)?|min(imum)?|clamp(_min|_max)?|where|masked_fill|eq|ne|l[te]|g[te]|bitwise_\w+|logical_\w+|"
            r"reciprocal|square|erf|floor|round|remainder|convolution|mean|sum|\w*norm\w*|\w*backward|\w*softmax)"
            r"(?![a-z])"
        ),
    ),
    ("gather_scatter", r"^triton_(poi|unk)_.*(embedding|index|gather|scatter)"),
    (
        "layout",
        (
            r"^triton_(poi|unk)_.*_(cat|stack|transpose|permute|t|pad|constant_pad_nd|repeat|roll|flip|slice|split\w*|"
            r"unfold|upsample\w*)(?![a-z])"
        ),
    ),
    ("cast", r"^triton_(poi|unk)_.*_to_copy"),
    ("copy_fill", r"^triton_(poi|unk)_.*(clone|copy|zeros|ones|full|fill|empty|arange)"),
    ("elementwise", r"^triton_(poi|for|unk)_|^triton_?_+0d"),
)

# Conv before matmul, since convolutions run on GEMM kernels; attention before both, since cuDNN's are "cudnn".
KERNELS = (
    *INDUCTOR,
    ("copy_fill", r"multi_tensor_apply.*(CopyFunctor|native::Copy<)"),  # _foreach_copy_: nobody trains for that
    (
        "optimizer",
        (
            r"multi_tensor_apply|fusedadam|applyadam|adamfunctor|applymomentum|koptimizer\w*state|kprecondition|"
            r"amp_(non_finite|update_scale)|lambstage"
        ),
    ),
    (
        "grouped_matmul",
        (
            r"deep_gemm::.*GemmType\)[1-9]|grouped_?(gemm|matmul|mm(?![a-z]))|group_?gemm|gemmgrouped|groupproblemshape|moe.*(?<!fb)gemm|"
            r"(?<!fb)gemm.*moe|moefcgemm|marlin_moe|^_?p?_?matmul_ogs|^bmm_\w+_fp32_t\d+x|fused_moe_kernel|fmoe_"
        ),
    ),
    (
        "moe",
        (
            r"moe|topk_?gating|routing|bitmatrix|_finalize_matmul_scatter|grouped_topk|expandinputrows|"
            r"expert_?tokens|expert_first_token"
        ),
    ),
    ("reduction", r"native::reduce_kernel<|reduce_1block_kernel"),
    (
        "norm",
        (
            r"layer_?norm|rms_?norm|batch_?norm|bn_(fw|bw)|gammabeta|group_?norm|instance_?norm|l2_?norm_(fwd|bwd)|"
            r"rowwisemoments|computefusedparams|computeinternalgradients|computebackwardfused|cucomputegradinput|"
            r"cucomputepartgrad|normalization::|welford"
        ),
    ),
    (
        "attention",
        (
            r"flash_?(fwd|bwd|attn|attention|mla)|fmha|sdpa|attention|^attn_|_attn_|attn_(fwd|bwd)|paged_attn|"
            r"(?<![a-z])mha(?![a-z])|mha_(fwd|bwd)|^_?(fwd|bwd)(_grouped)?_kernel(_stage\d|_dk_dv|_dq|_fuse)?$|"
            r"^_?fwd_kernel_(?!ep_)|splitkv|mlaprolog|mqa_logits|flashinfer::\w*(prefill|decode|mergestates)|"
            r"aiter\d+(fwd|bwd|pa|mla)_|gated_delta|chunk_(gla|kda|scan|state)|recompute_w_u|scaled_dot_kkt|"
            r"fused_recurrent|selective_scan|_state_passing|^mla_|gemm_softmax_gemm|kernel_unified"
        ),
    ),
    ("softmax", r"softmax"),
    ("activation", r"act(ivation)?_and_mul|silu_and_mul|gelu_and_mul|swiglu|cudnn::\w+::activation_"),
    ("pooling", r"pooling_(fw|bw)|mlopooling"),
    (
        "elementwise",
        r"op_tensor_kernel|op_generic_tensor|op\dd?tensor|generatednativepointwise|cudnn::ops::(scale|add)",
    ),
    ("matmul", r"cudnn_generated\w*matmul"),
    (
        "conv",
        (
            r"cudnn|implicit_gemm|implicitgemm|winograd|dgrad|wgrad|fprop|conv(?!ert)|^igemm_|^miopen(sp3|cv)|conv2d|"
            r"conv3d|depthwise|fft2d_(r2c|c2r)"
        ),
    ),
    ("rope", r"rotary|(?<![a-z])m?rope|applyrope"),
    ("loss", r"nll_loss|cross_?entropy|_loss|mse_kernel|smooth_l1|huber|kl_div"),
    (
        "cast",
        (
            r"quantize|dequant|quant_kernel|VectorQuant|cast_(mx|nv)?fp[48]|(group|token|tensor|row)_quant|_quant_(fp8|int8|fp4)|cast_transpose|"
            r"cvt_fp16_to_fp4|fp8_?rowwise|fp8_(quantize|qparam)|bfloat16_?(to)?_?(copy|float)|bfloat16tofloat|"
            r"float16_copy|float8\w*_copy|direct_copy.*loadwithcast|_cast(?!_kernel)|hfp8"
        ),
    ),
    (
        "matmul",
        (
            r"(?<!fb)gemm|cutlass::(device_)?kernel|cutlass::gemm|cutlass_(\d|tensorop)|cutlass3x|_zn7cutlass|nvjet|"
            r"xmma|gemv|splitkreduce|reducesplitk|cublas|s16816|wgmma|^cijk_|mat_?mul|mul_mat|wvsplitk|llmm1|"
            r"marlin|scaled_mm|^_?mm_kernel|dot_kernel|epilogue::|_bmm_chunk"
        ),
    ),
    ("gather_scatter", r"token_pool|kv_indices"),
    ("pooling", r"pool(?!_triton)|adaptive_average"),
    (
        "layout",
        (
            r"upsample|reflection_pad|replication_pad|triu_tril|roll_cuda|split_with_sizes|chunk_cat|flip_|"
            r"pixel_shuffle|repeat_interleave|genericReformat"
        ),
    ),
    (
        "sort_topk",
        (
            r"(?<!ten)sort|radix|onesweep|topk|bitonic|nonzero|deviceselect|unique|searchsorted|"
            r"rocprim.*(partition|transform_config)|lookback_scan_state"
        ),
    ),
    ("copy_fill", r"kernel_with_index|arange_cuda|linspace"),
    (
        "gather_scatter",
        (
            r"index|gather|scatter|embedding|reshape_and_cache|kv_?cache|and_cache_mla|permute_\w+_kernel|permute_2d|"
            r"compute_grad_weight|bucketize_sparse|bounds_check|linearize|future_token_ids"
        ),
    ),
    ("random", r"philox|dropout|distribution_|random|multinomial|sampling|masked_scale|bernoulli"),
    ("activation", r"gelu|silu|relu|sigmoid|tanh|threshold|hardswish|leaky|softplus|mish"),
    ("copy_fill", r"fillfunctor|direct_copy|copy_kernel|memset|(?<!masked_)fill_kernel"),
    ("reduction", r"devicereduce|devicescan|reduce|cumsum|cumprod|argmax|kernel_scan|wrapped_scan|scan_config"),
    ("layout", r"transpose|catarray|copy.*permute|nchw|nhwc|concat|split|pad"),
    ("elementwise", r"elementwise|functor|subtensorop|clamp|pointwise"),
)
