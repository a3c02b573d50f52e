"""The timelines of real traces, against the slow computation."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest
from slow_timeline import slow_timelines

from roofwatch.collectors.registry import read

NAMES = """
a100_alexnet_cuda_sync a100_cudagraph_triton_nccl_shapes a100_event_sync_multistream a100_nccl_args_relative_ts
a100_triton_user_kernel b200_eager h100_Falconsai_nsfw_image_detection h100_Qwen_Qwen1.5-0.5B-Chat
h100_facebook_timesformer-base-finetuned-k400 h100_gaunernst_bert-small-uncased mi210_gpu_only_no_cpu_ops
mi250_minitoy_rocm62 mi300_Qwen1.5-0.5B mi300_inductor_triton_min mi300_normalization_fwdbwd mi300_sglang_decode
mi300_vllm_decode_fullgraph mi300_vllm_graph_capture mi300_xdit_sd35_triton2076 oldest_format_Kernel_Runtime
rtx2080ti_linear_int_ts sampled_ws128_rank0 sampled_ws128_rank1 v100_ddp_profmem_noshapes_int
v100_resnet_ns_absolute_ts
""".split()  # noqa: SIM905 - a line each would be 25 lines


@pytest.mark.parametrize("name", NAMES)
def test_a_real_timeline(traces: Path, name: str) -> None:
    """Span, busy, exposed times, and each cause's total, count and longest are the slow computation's, exactly."""
    path = traces / "kineto" / f"{name}.json.gz"

    profile = read(path)

    expected = slow_timelines(gzip.decompress(path.read_bytes()))
    assert {device.index for device in profile.devices} == set(expected)
    for device in profile.devices:
        slow = expected[device.index]
        assert sum(c.total_ns for c in device.causes) == device.span_ns - device.busy_ns
        assert {c.cause.value: (c.total_ns, c.count, c.longest_ns) for c in device.causes} == slow.causes
        assert (device.span_ns, device.busy_ns) == (slow.span, slow.busy)
        assert (device.exposed_copy_ns, device.exposed_communication_ns) == (
            slow.exposed_copy,
            slow.exposed_communication,
        )
        assert all(c.example and len(c.example) < 800 for c in device.causes)
