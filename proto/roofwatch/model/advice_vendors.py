"""The same advice in a vendor's own words: what its PyTorch calls the things, and what only it has.

Of AMD: torch's ROCm builds keep the name ``torch.cuda``. Of Ascend: names as torch_npu 2.13 has them (a test looks them
up in its package); the environment variables as its documentation has them.
"""

from __future__ import annotations

from collections.abc import Mapping

from roofwatch.model.advice import COMPILED, COMPUTE, FIXES, LATENCY, MEMORY, MISTAKES, SHORT_WAITS
from roofwatch.model.record import Vendor

_GRAPHS_CUDA = {
    FIXES["sync"][2]: "no torch.cuda.synchronize() or empty_cache() inside a step",
    FIXES["launch_bound"][0]: 'graphs: torch.compile(mode="reduce-overhead"), or torch.cuda.graph',
    SHORT_WAITS[1]: "fewer waits: read values every N steps; no torch.cuda.synchronize() between batches",
    LATENCY["graphs"]: "graphs hide its launch: torch.cuda.graph",
}
WORDS: Mapping[Vendor, Mapping[str, str]] = {
    Vendor.NVIDIA: {
        **_GRAPHS_CUDA,
        COMPUTE["vector_fp32"]: (
            "fp32 on the vector unit: allow TF32 (torch.set_float32_matmul_precision('high')) or autocast to bf16"
        ),
    },
    Vendor.AMD: _GRAPHS_CUDA,
    Vendor.ASCEND: {
        FIXES["sync"][2]: "no torch.npu.synchronize() or empty_cache() inside a step, ASCEND_LAUNCH_BLOCKING not 1",
        FIXES["launch_gap"][0]: "fuse neighbouring kernels: fused operators of torch_npu, torch.compile",
        SHORT_WAITS[1]: "fewer waits: read values every N steps; no torch.npu.synchronize() between batches",
        SHORT_WAITS[2]: "launch faster after them: TASK_QUEUE_ENABLE=2 or graphs (torch.npu.NPUGraph), a bigger batch",
        COMPILED: 'compiled already: torch.compile(backend="npugraphs") takes launches away; look for graph breaks',
        COMPUTE["lower_precision"]: (
            "lower precision: HF32 (torch.npu.matmul.allow_hf32, torch.npu.conv.allow_hf32), bf16 or fp16 autocast"
        ),
        COMPUTE["lower_precision_8bit"]: "lower precision: int8, or fp8 where the chip has it, if accuracy allows",
        COMPUTE["matrix_unit"]: "the cube is not used: sizes that are multiples of 16, a dtype that it takes",
        COMPUTE["occupancy"]: "occupancy: sizes whose blocks are a multiple of the AI cores, and of 16 in each side",
        COMPUTE["tuned"]: (
            "another kernel: a newer CANN, weights kept in FRACTAL_NZ (torch_npu.npu_format_cast, "
            "torch.npu.config.allow_internal_format)"
        ),
        MEMORY["fusion"]: (
            "fuse it with its neighbours, so that data is read once: fused operators of torch_npu, torch.compile"
        ),
        MEMORY["layout"]: (
            "avoid the relayout: torch.npu.config.allow_internal_format = False, or cast weights once "
            "(torch_npu.npu_format_cast)"
        ),
        MEMORY["quantize"]: "fewer bytes of weights: int8 or int4; a bigger batch reuses them",
        MEMORY["batched"]: "if this is attention: torch_npu.npu_fusion_attention keeps the scores out of memory",
        MEMORY["attention"]: "fused attention: torch_npu.npu_fusion_attention keeps the scores out of memory",
        MEMORY["keys_and_values"]: "fewer or smaller keys and values: grouped heads, an int8 cache; a bigger batch",
        MEMORY["optimizer"]: "a fused optimizer (torch_npu.optim.NpuFusedAdamW), states in bf16",
        MISTAKES["no_ops"]: (
            "no shapes were recorded ({without} of {windows} windows): most kernels have no roof. Record at Level1 "
            "(torch_npu.profiler.ProfilerLevel), which has shapes and pipes"
        ),
        MISTAKES["no_shapes"]: (
            "no kernels' shapes were recorded ({without} of {windows} windows): most have no roof. Record at Level1 "
            "(torch_npu.profiler.ProfilerLevel), which has shapes and pipes"
        ),
        LATENCY["graphs"]: "graphs hide its launch: torch.npu.NPUGraph",
        LATENCY["fusion"]: "fuse it with its neighbours: fused operators of torch_npu, torch.compile",
        LATENCY["split"]: "more blocks: larger or more tiles in a call, so that all AI cores work",
    },
}
# Where a vendor's remedies of a cause are others.
_CPU_WAITS = ("no .item() or .tolist() in the hot path", "the host's own profile, below, tells what is waited for")
FIXES_OF: Mapping[Vendor, Mapping[str, tuple[str, ...]]] = {
    # The CPU is the device: nothing waits for another one, and launching is calling.
    Vendor.CPU: {
        "host": (
            "Python between ops: vectorize loops over elements, no .item() or .tolist() in them",
            "see what Python does there: the host's own profile, below",
        ),
        "communication": ("overlap it with compute; fewer and larger messages", "look for a late rank"),
        "input": FIXES["input"][:1] + FIXES["input"][2:],
        "copy": ("fewer copies between tensors: in-place ops, views", "one large copy instead of many small ones"),
        "sync": _CPU_WAITS,
        "launch_bound": FIXES["dispatch"],
        "launch_gap": FIXES["dispatch"][:1],
        "unknown": ("the trace does not tell: see the host's own profile, below",),
    },
    Vendor.ASCEND: {
        "launch_bound": (
            "TASK_QUEUE_ENABLE=2 (1 with graphs), ASCEND_LAUNCH_BLOCKING not 1, CPU_AFFINITY_CONF=1",
            "no kernels compiled while it runs: torch.npu.set_compile_mode(jit_compile=False)",
            'graphs: torch.npu.NPUGraph, or torch.compile(backend="npugraphs")',
            "fewer and larger kernels: fused operators of torch_npu, torch.compile",
            "fused optimizers (torch_npu.optim.NpuFusedAdamW)",
            "a bigger batch",
        ),
    },
}


def in_words_of(vendor: Vendor | None, text: str) -> str:
    """A text in a vendor's words; as it is where that vendor has no others, or the vendor is unknown."""
    return text if vendor is None else WORDS.get(vendor, {}).get(text, text)
