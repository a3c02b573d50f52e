"""Advice speaks each vendor's language: no text of one names what only another has."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator

import pytest

from roofwatch.model import advice, advice_vendors
from roofwatch.model.advice_causes import Wanted, fixes
from roofwatch.model.advice_commands import Launch, of_host, of_kernel, of_timeline
from roofwatch.model.advice_kernels import helps
from roofwatch.model.advice_selectors import select
from roofwatch.model.kinds import Kind
from roofwatch.model.record import Bound, Cause, Signature, Vendor

_CUDA = r"cuda|nvtx|nccl|cudnn|cublas|\bncu\b|\bnsys\b|\bnsight|tensor core|tf32|\bcupti"
_ROCM = r"rocm|\brocprof|\bhip\b|rccl|omnitrace|mfma"
_NPU = (
    r"\bnpu|torch\.npu|torch_npu|ascend|hccl|\bcann\b|msprof|mindstudio|task_queue|hf32|fractal|\bai cores?\b|aclgraph"
)
_DEVICE = r"pin_memory=|pinned|graphs?:|captured graph|synchronize\(|system timeline"
FOREIGN = {
    Vendor.NVIDIA: f"{_ROCM}|{_NPU}",
    Vendor.AMD: f"{_NPU}|{_CUDA.replace('cuda|', '')}",  # torch's ROCm builds say torch.cuda
    Vendor.ASCEND: f"{_CUDA}|{_ROCM}",
    Vendor.CPU: f"{_CUDA}|{_ROCM}|{_NPU}|{_DEVICE}",
    None: f"{_CUDA}|{_ROCM}|{_NPU}",
}


def texts_of(vendor: Vendor | None) -> Iterator[str]:
    """Every text that a diagnosis of this vendor's device can hold."""
    examples = (None, "in Torch-Compiled Region: 0/0, before k", "in images.py(129): preprocess, before a; at 0 ms")
    flags = itertools.product((False, True), (False, True), (False, True), examples)
    for training, in_graphs, short, example in flags:
        wanted = Wanted(vendor, training, in_graphs, short, example)
        for cause in (*Cause, "kernels", "dispatch"):
            yield from fixes(str(cause), wanted)
    kernels = itertools.product(Kind, Bound, ("fp32", "bf16", "tf32", None), ("matrix", "vector", None))
    for kind, bound, precision, unit in kernels:
        for op, fraction, training in itertools.product((None, "aten::bmm"), (None, 0.2, 0.6, 0.9), (False, True)):
            for name in ("k", "paged_attention"):
                of = Signature(name, kind, op, precision=precision, unit=unit)
                yield from helps(of, bound, fraction, vendor=vendor, precisions={"int8"}, training=training)
    selector = select("MatMulV3", [])
    for bound in Bound:
        found = (of_kernel(vendor, "kernel1", bound, selector, Launch(1, 1)), of_timeline(vendor, graphs=True))
        for command in (*found, of_host(None)):
            if command is not None:
                yield f"{command['command']} {command.get('then', '')}"
    yield from advice.MISTAKES.values()


@pytest.mark.parametrize("vendor", [None, *Vendor], ids=str)
def test_no_word_of_another_vendor(vendor: Vendor | None) -> None:
    """CUDA's names on an NPU, an NPU's on a GPU, any device's on a CPU, any vendor's where it is unknown: none."""
    foreign = re.compile(FOREIGN[vendor], re.IGNORECASE)
    texts = set(texts_of(vendor))
    assert len(texts) > 30
    assert not sorted(text for text in texts if foreign.search(text))


def test_an_npu_is_told_what_only_it_has() -> None:
    """Its queue, its compile mode, its graphs, its formats, its fused attention and optimizer, its tools."""
    said = "\n".join(set(texts_of(Vendor.ASCEND)))
    for word in (
        "TASK_QUEUE_ENABLE=2", "jit_compile=False", "torch.npu.NPUGraph", "allow_internal_format", "allow_hf32",
        "npu_fusion_attention", "NpuFusedAdamW", "torch.npu.synchronize()", "msprof op", "MindStudio Insight",
    ):  # fmt: skip
        assert word in said, word


def test_every_word_of_a_vendor_is_of_a_text_that_is_given() -> None:
    """A text that is given nowhere any more leaves no translation behind."""
    given = set(texts_of(None))
    for vendor, words in advice_vendors.WORDS.items():
        assert words.keys() <= given, vendor
