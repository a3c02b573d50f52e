"""What helps: the texts of a diagnosis, all in one place. ``docs/cli.md`` says when each is given.

They name no vendor's interface; ``advice_vendors`` says the same in a vendor's words.
"""

from __future__ import annotations

from collections.abc import Mapping

# What to do about time that no kernel explains, the usual remedy first.
FIXES: Mapping[str, tuple[str, ...]] = {
    "input": (
        "more DataLoader workers that stay (num_workers, persistent_workers=True)",
        "pin_memory=True and a larger prefetch_factor",
        "decode and augment ahead of time, or on the device",
    ),
    "copy": (
        "keep data on the device between steps",
        "pinned memory and non_blocking=True, on a stream beside the compute",
        "one large copy instead of many small ones",
    ),
    "sync": (
        "no .item(), .cpu(), .tolist(), print or if on a device value in the hot path",
        "add up metrics on the device and read them every N steps",
        "no synchronize() or empty_cache() inside a step",
    ),
    "communication": (
        "overlap it with compute: DDP buckets (bucket_cap_mb), FSDP prefetch",
        "fewer and larger messages; gradients in bf16 or accumulated over steps",
        "look for a late rank: waiting inside a collective is somebody else's slowness",
    ),
    "launch_bound": (
        'graphs: torch.compile(mode="reduce-overhead"), or a captured graph',
        "fewer and larger kernels: torch.compile",
        "fused optimizers (fused=True)",
        "a bigger batch",
    ),
    "launch_gap": (
        "fuse neighbouring kernels: torch.compile",
        "graphs: kernels then follow each other without a launch between them",
    ),
    "dispatch": (
        "many small ops: torch.compile, a bigger batch",
        "vectorize loops over elements, no .item() or .tolist() in them",
    ),
    "host": (
        "see what Python does there: the host's own profile, below",
        "no garbage collection, logging or checkpoints inside a step (gc.freeze(), another thread)",
        "vectorize loops over elements",
    ),
    "unknown": ("the trace does not tell: take a system timeline, below",),
    "kernels": ("the kernels below, from the first on",),
}
# What is said instead, or first, where more is known of the case.
SHORT_WAITS = (
    "the waits themselves are short: launch ahead before them, so that the device has work when they return",
    "fewer waits: read values every N steps; no synchronize() between batches",
    "launch faster after them: graphs, torch.compile, a bigger batch",
)
PREPROCESSING = "input preprocessing on the launching thread: into DataLoader workers, ahead of time, or on the device"
COMPILED = (
    'compiled already: graphs take the launches away (torch.compile(mode="reduce-overhead")); look for graph breaks'
)

NEAR_THE_ROOF = "near its roof: only less work helps, not a better kernel"
COMPUTE: Mapping[str, str] = {
    "vector_fp32": "fp32 on the vector unit: autocast to bf16 or fp16, which the matrix unit takes",
    "matrix_unit": "the matrix unit is not used: sizes that are multiples of 16, a dtype that it takes",
    "lower_precision": "lower precision: bf16 or fp16 autocast",
    "lower_precision_8bit": "lower precision: fp8 or int8, where accuracy allows",
    "occupancy": "occupancy: sizes that fill whole waves of tiles; another tile size or split-K",
    "tuned": 'another kernel: torch.compile(mode="max-autotune"), a newer or the vendor\'s library',
}
MEMORY: Mapping[str, str] = {
    "fusion": "fuse it with its neighbours, so that data is read once: torch.compile",
    "layout": "avoid the relayout: keep one layout (channels_last, contiguous weights)",
    "quantize": "fewer bytes of weights: int8, int4 or fp8; a bigger batch reuses them",
    "batched": "if this is attention: F.scaled_dot_product_attention keeps the scores out of memory",
    "attention": "fused attention: F.scaled_dot_product_attention keeps the scores out of memory",
    "keys_and_values": "fewer or smaller keys and values: grouped heads, an fp8 cache; a bigger batch",
    "optimizer": "a fused optimizer (fused=True), states in bf16",
    "access": "rows that lie together, a smaller dtype",
    "smaller_dtype": "a smaller dtype: half the bytes, half the time",
}
LATENCY: Mapping[str, str] = {
    "batch": "more work a call: a bigger batch, grouped or batched calls",
    "graphs": "graphs hide its launch: capture the calls once, replay them",
    "fusion": "fuse it with its neighbours: torch.compile",
    "split": "more blocks: split-K or another tile, so that the whole device works",
}
CPU: Mapping[str, str] = {
    "threads": "all cores (torch.set_num_threads), threads that stay on theirs",
    "lower_precision": "bf16 where the CPU has it (AMX, AVX512-BF16)",
    "fusion": "fuse it with its neighbours: torch.compile",
    "batch": "more work a call: a bigger batch",
}

# The classic mistakes. Names in braces are figures, which the answer has under the same name.
MISTAKES: Mapping[str, str] = {
    "host_time": (
        "sorted by host time, waits come first: {count} blocking calls of the host took {total_ns} (longest "
        "{longest_ns}), and it works in none of them"
    ),
    "raw_time": (
        "sorted by raw time, {kernel} comes first ({time_share} of kernel time), but reaching its roof wins "
        "back {winnable_share} of it"
    ),
    "slow_calls": (
        "#{rank} {kernel}: {share} of its winnable time is in calls of 4 medians and more (median {median_ns}, longest "
        "{longest_ns}), so its rank is theirs. Something held them up (preemption, a shared device): no better kernel "
        "helps against that"
    ),
    "one_iteration": "only one step was recorded: nothing tells whether it is typical. Record 3 to 5 after the warm-up",
    "no_warm_up": "the first step took {first_ns}, the others {median_ns}: warm-up is inside",
    "early_windows": "{early} of {windows} windows began in the first {steps} steps: warm-up is inside",
    "one_gap": "one stretch of {longest_ns} is {share} of the time: start-up or a pause, not a steady state",
    "stacks": (
        "Python stacks were recorded ({python_events} of {events} events): they slow the host, so idle time is "
        "overstated"
    ),
    "padding": (
        "{share} of the tokens are padding: its work is in the kernels' time and their FLOPs; 'roofwatch padding' says "
        "how much that is and what would save it"
    ),
    "overhead": (
        "profiling took {share} of the job's time, as measured in {measured} of {windows} windows: idle time is "
        "overstated"
    ),
    "graphs": (
        "{share} of device time is in graphs that could not be tied to ops: a profile of their capture ties a file's "
        "(--graph-capture), the hook a job's if it was attached before"
    ),
    "no_peaks": (
        "what {device} can do was never measured ({share} of device time): its kernels have no roof and no rank. "
        "'roofwatch devices calibrate' on its node measures it, for the windows after"
    ),
    "peaks_since": (
        "{share} of device time was taken before {device} was measured, or with another number of threads: there "
        "kernels have no roof, and rows that mix both tell of the rest"
    ),
    "no_ops": (
        "no operators were recorded ({without} of {windows} windows): kernels have no shapes and no roof. Profile the "
        "CPU too (ProfilerActivity.CPU), with record_shapes=True"
    ),
    "no_shapes": (
        "no input shapes were recorded ({without} of {windows} windows): most kernels have no roof. Profile with "
        "record_shapes=True"
    ),
    "no_shapes_live": (
        "no input shapes were recorded ({without} of {windows} windows): most of their kernels have no roof. A "
        "process's first window goes without, and others where the budget is short: wait for more windows, or give "
        "the agent a larger --budget or --light-windows 0"
    ),
    "backlog": (
        "{share} of device time was launched before the window: what launched it, and its shapes, are not known. A "
        "synchronize before the window, or a longer one, has less of it"
    ),
}
