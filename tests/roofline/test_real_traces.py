"""Real traces: how much of the device time gets a verdict, and how little of it beats its roof."""

from __future__ import annotations

from collections import Counter
from functools import lru_cache
from pathlib import Path

import pytest

from roofwatch.collectors.base import Category, WindowContext
from roofwatch.collectors.names import judge_by_name
from roofwatch.collectors.normalize import normalize
from roofwatch.collectors.pipeline import join_devices, window_of
from roofwatch.collectors.registry import read
from roofwatch.model.devices import identify
from roofwatch.model.record import Bound, Evidence, Node, Process, Trigger, Window
from roofwatch.model.roofline import beyond, judge

# File → least classified share: what the file holds (shapes, known ops), as reached and looked through by hand.
SHARES = {
    "h100_Falconsai_nsfw_image_detection": 0.95,
    "h100_Qwen_Qwen1.5-0.5B-Chat": 0.95,
    "h100_facebook_timesformer-base-finetuned-k400": 0.95,
    "h100_gaunernst_bert-small-uncased": 0.95,
    "mi300_Qwen1.5-0.5B": 0.95,
    "mi300_normalization_fwdbwd": 0.95,
    "mi300_inductor_triton_min": 0.95,
    "mi300_xdit_sd35_triton2076": 0.95,
    "mi250_minitoy_rocm62": 0.95,
    "a100_triton_user_kernel": 0.95,
    "a100_cudagraph_triton_nccl_shapes": 0.20,  # CUDA graphs and compiled regions carry no ops with shapes
    "b200_eager": 0.28,  # its mixture-of-experts op does not carry the weights' shapes
}
# File without shapes → least share with a verdict by name and grid.
NAMED = {
    "v100_ddp_profmem_noshapes_int": 0.80,
    "v100_resnet_ns_absolute_ts": 0.70,
    "rtx2080ti_linear_int_ts": 0.70,
    "a100_nccl_args_relative_ts": 0.55,  # tiles of TF32 convolutions alone do not tell
    "a100_alexnet_cuda_sync": 0.70,
    "mi210_gpu_only_no_cpu_ops": 0.20,  # MIOpen's grids count work items, so that only tiles are known
    "sampled_ws128_rank0": 0.60,  # has shapes, but no device: kinds alone tell
    "sampled_ws128_rank1": 0.65,
}
NO_SHAPES = ("v100_resnet_ns_absolute_ts", "rtx2080ti_linear_int_ts", "mi210_gpu_only_no_cpu_ops")
OTHERS = (
    "a100_event_sync_multistream", "cpu_only", "mi300_sglang_decode", "mi300_vllm_decode_fullgraph",
    "mi300_vllm_graph_capture", "oldest_format_Kernel_Runtime",
)  # fmt: skip
ALL = (*SHARES, *NAMED, *OTHERS)


@pytest.fixture(autouse=True)
def _no_calibration(monkeypatch, tmp_path):
    """No calibration of the machine that runs the tests."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def analyzed(traces, name: str) -> Window:
    """The window of one of the traces."""
    return _analyzed(traces / "kineto" / f"{name}.json.gz")


@lru_cache(maxsize=len(ALL))
def _analyzed(path: Path) -> Window:
    return window_of(read(path), WindowContext("0" * 32, Process(Node("n"), 1), Trigger.IMPORTED))


@pytest.mark.parametrize(("name", "least"), SHARES.items())
def test_classified_share(traces, name, least):
    """The share of classifiable device time with a verdict by shapes, or borrowed from records with shapes."""
    ledger = analyzed(traces, name).ledger
    assert ledger.classified_ns >= least * ledger.classifiable_ns


@pytest.mark.parametrize("name", ALL)
def test_little_beats_its_roof(traces, name):
    """At most 1 % of the classified device time has a roof fraction above 1.05."""
    found = analyzed(traces, name)
    over = beyond(found.kernels)
    assert sum(k.total_ns for k in over) <= 0.01 * found.ledger.classified_ns, [k.signature for k in over]


@pytest.mark.parametrize(("name", "least"), NAMED.items())
def test_named_share(traces, name, least):
    """The share of classifiable device time with a verdict by kernel name and grid, where there are no shapes."""
    ledger = analyzed(traces, name).ledger
    assert ledger.named_ns >= least * ledger.classifiable_ns


@pytest.mark.parametrize("name", [*SHARES, "mi300_sglang_decode", "sampled_ws128_rank0", "sampled_ws128_rank1"])
def test_names_agree_with_shapes(traces, name):
    """Where shapes tell the bound, what the name and grid alone would have said is the same, or nothing.

    The samples do not name their device: their A100 is put in.
    """
    raw = read(traces / "kineto" / f"{name}.json.gz")
    devices = join_devices(raw.devices, ())
    if name.startswith("sampled"):
        devices = [identify("", "NVIDIA A100-SXM4-80GB", 108) for _ in devices]
    said = wrong = 0
    for item in normalize(raw, devices):
        group, signature, device = item.group, item.signature, devices[item.group.device]
        if group.category is not Category.KERNEL or signature.flops is None or signature.bytes is None:
            continue
        mean = group.total_ns / group.calls
        shapes = judge(
            signature.flops, signature.bytes, mean, device.peaks,
            precision=signature.precision, unit=signature.unit, blocks=group.blocks, units=device.units,
        )  # fmt: skip
        names = judge_by_name(
            signature.kind, signature.kernel, mean, device.peaks,
            blocks=group.blocks, units=device.units, grid=group.grid,
        )  # fmt: skip
        if Bound.UNKNOWN not in (shapes.bound, names.bound):
            said += group.total_ns
            wrong += group.total_ns * (shapes.bound is not names.bound)
    assert wrong <= 0.001 * said
    assert said > 0 or name == "a100_triton_user_kernel"  # its one kernel is inductor's


@pytest.mark.parametrize("name", NO_SHAPES)
def test_without_shapes_nothing_is_claimed_by_shapes(traces, name):
    """No FLOPs, no bytes but of copies, and no verdict by shapes: only names and definitions."""
    found = analyzed(traces, name)
    assert found.ledger.classified_ns == 0
    assert all(k.signature.flops is None for k in found.kernels)
    assert {k.evidence for k in found.kernels} <= {Evidence.NAME, Evidence.DEFINITION, Evidence.NONE}


@pytest.mark.parametrize("name", ALL)
def test_nothing_is_lost_or_counted_twice(traces, name):
    """Device time of the kernels is the ledger's, the ledger's parts are within it, and stats are unique."""
    found = analyzed(traces, name)
    ledger = found.ledger
    assert sum(k.total_ns for k in found.kernels) == ledger.device_time_ns
    assert sum(k.calls for k in found.kernels) == ledger.device_records
    assert ledger.classified_ns + ledger.named_ns <= ledger.classifiable_ns <= ledger.device_time_ns
    keys = Counter((k.signature.id, k.device, k.evidence) for k in found.kernels)
    assert max(keys.values()) == 1


def test_the_same_model_on_two_vendors(traces):
    """Qwen on H100 and MI300X: its products have the same ops, shapes, dtypes, FLOPs, bytes and precision.

    (Not the same unit: a small fp32 product runs on MI300X's matrix unit, and H100 has none for fp32.)
    """
    work = []
    for name in ("h100_Qwen_Qwen1.5-0.5B-Chat", "mi300_Qwen1.5-0.5B"):
        signatures = [k.signature for k in analyzed(traces, name).kernels if k.evidence is Evidence.SHAPES]
        products = [s for s in signatures if s.formula in ("matmul", "addmm", "attention")]
        work.append({(s.op, s.shapes, s.dtypes, s.flops, s.bytes, s.precision) for s in products})
    assert work[0] == work[1]
    assert ("aten::mm", "[[8944,1024],[1024,2816]]", 2 * 8944 * 1024 * 2816) in {(w[0], w[1], w[3]) for w in work[0]}


def test_a_layer_norm_is_memory_bound_and_a_large_product_compute_bound(traces):
    """Timesformer on H100: (25089,768)·(768,3072) has intensity 600 > 295; its layer norms are below 5."""
    found = analyzed(traces, "h100_facebook_timesformer-base-finetuned-k400")
    product = next(k for k in found.kernels if k.signature.shapes == "[[3072],[25089,768],[768,3072]]")
    assert product.bound is Bound.COMPUTE
    norms = [k for k in found.kernels if k.signature.formula == "layer_norm" and k.total_ns > 10_000 * k.calls]
    assert norms
    assert {k.bound for k in norms} == {Bound.MEMORY}
    assert all((k.signature.flops or 0) < 5 * (k.signature.bytes or 0) for k in norms)
