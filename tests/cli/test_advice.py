"""Advice by bound, selectors of kernels by name, and the commands, against the tools' documented options."""

from __future__ import annotations

import itertools
import re
import shlex
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roofwatch.model import advice
from roofwatch.model.advice_causes import Wanted
from roofwatch.model.advice_causes import fixes as fixes_of
from roofwatch.model.advice_commands import Launch, launch_of, of_host, of_kernel, of_timeline, selector_of
from roofwatch.model.advice_kernels import helps
from roofwatch.model.advice_selectors import LONGEST, base_name, select
from roofwatch.model.kinds import Kind
from roofwatch.model.record import Bound, Cause, Signature, Vendor

ADD = (
    "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, std::array<char*, 3ul>>(int)"
)
MUL = ADD.replace("CUDAFunctor_add", "BinaryFunctor")
NORM = (
    "std::enable_if<(((8)>(0)))&&vllm::_typeConvert<c10::BFloat16>::exists, void>::type "
    "vllm::fused_add_rms_norm_kernel<c10::BFloat16, 8>(c10::BFloat16*, c10::BFloat16*, float)"
)
CUTLASS = "void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_bf16_{}_tn_align8>(cutlass_80_tensorop_{}::Params)"


@pytest.mark.parametrize(
    ("kernel", "base"),
    [
        (ADD, "vectorized_elementwise_kernel"),
        (NORM, "fused_add_rms_norm_kernel"),
        ("void (anonymous namespace)::softmax_warp_forward<float, 10>(float*)", "softmax_warp_forward"),
        ("ampere_sgemm_128x64_nn", "ampere_sgemm_128x64_nn"),
        ("void flash::k<Traits<128, (Mode)1>, false>(flash::Params)", "k"),
        ("triton_poi_fused_add_0", "triton_poi_fused_add_0"),
        ("_ZN5aiter24add_kernelIDF16bEvPT", "_ZN5aiter24add_kernelIDF16bEvPT"),
        ("void a<b>(int (*)(float), c<d>)", "a"),
        ("", ""),
        ("<<<((", ""),
    ],
)
def test_base_names(kernel: str, base: str) -> None:
    """Without return type, namespaces, template arguments and parameters, also where these hold comparisons."""
    assert base_name(kernel) == base


@pytest.mark.parametrize(
    ("kernel", "others", "expression", "demangled", "exact"),
    [
        (ADD, [], "vectorized_elementwise_kernel", False, True),
        (ADD, [MUL], "vectorized_elementwise_kernel.*CUDAFunctor_add", True, False),
        (CUTLASS.format("128x64", "x"), [CUTLASS.format("64x64", "x")], "Kernel2.*128x64", True, False),
        (NORM, [ADD], "fused_add_rms_norm_kernel", False, True),
        ("Cijk_" + "A" * 44 + "_MT64", [], "Cijk_" + "A" * 43, False, False),
        ("Cijk_" + "A" * 44 + "_MT64_X", ["Cijk_" + "A" * 44 + "_MT32_X"], "Cijk.*MT64", False, False),
        ("核", [], None, None, None),
    ],
)
def test_selectors(kernel: str, others: list[str], expression: str | None, demangled: bool, exact: bool) -> None:
    """The base name where it is enough, else the words that tell the kernel from the others; nothing without words."""
    found = select(kernel, [kernel, *others])
    if expression is None:
        assert found is None
        return
    assert found is not None
    assert (found.expression, found.demangled, found.exact) == (expression, demangled, exact)
    assert found.matches(kernel)
    assert not any(found.matches(other) for other in others)


HOSTILE = st.text(st.sampled_from("ab_01<>(): ,*&;$`'\"\\\n\x1b核|.[]{}^"), max_size=200) | st.text(max_size=60)


@given(HOSTILE, st.lists(HOSTILE, max_size=5))
def test_no_name_gets_through(kernel: str, others: list[str]) -> None:
    """Whatever a kernel is called: a short expression of word characters and ``.*`` that selects it, if any."""
    found = select(kernel, others)
    if found is None:
        return
    assert re.fullmatch(r"[A-Za-z0-9_]+(\.\*[A-Za-z0-9_]+)*", found.expression)
    assert len(found.expression) <= LONGEST
    assert found.matches(kernel)
    looked_in = kernel if found.demangled else base_name(kernel)
    assert re.search(found.expression, looked_in, re.DOTALL)


@given(HOSTILE, st.sampled_from(list(Vendor)), st.sampled_from(list(Bound)))
def test_commands_are_one_shell_command(kernel: str, vendor: Vendor, bound: Bound) -> None:
    """A shell reads back exactly the arguments, and no control character is in them."""
    selector, _ = selector_of(kernel, {kernel: 1})
    found = of_kernel(vendor, "k", bound, selector, Launch(5, 1))
    if found is None:
        assert selector is None
        return
    assert shlex.split(found["command"]) == found["arguments"]
    assert found["command"].isprintable()
    assert found["arguments"][-1] == "CMD"


def test_ncu_by_hand() -> None:
    """The kernel among its like, 24 launches a step, ten steps passed over, the sections of a memory bound kernel."""
    selector, selected = selector_of(ADD, {ADD: 48, MUL: 10})
    assert selected == [ADD]
    found = of_kernel(Vendor.NVIDIA, "kernel2", Bound.MEMORY, selector, launch_of(24.0, 48, 1.0))
    assert found is not None
    assert found["command"] == (
        "ncu --target-processes all --kernel-name-base demangled "
        "--kernel-name 'regex:vectorized_elementwise_kernel.*CUDAFunctor_add' --launch-skip 240 --launch-count 1 "
        "--section SpeedOfLight --section MemoryWorkloadAnalysis --section MemoryWorkloadAnalysis_Tables "
        "--section WarpStateStats --export kernel2 CMD"
    )


def test_the_other_vendors_by_hand() -> None:
    """rocprofv3 counts iterations from 1; msprof op takes the beginning of a name; a CPU has perf; nobody: nothing."""
    selector, _ = selector_of("attn_fwd", {"attn_fwd": 48})
    amd = of_kernel(Vendor.AMD, "kernel1", Bound.COMPUTE, selector, Launch(240, 2))
    assert amd is not None
    assert amd["command"] == (
        "rocprofv3 --kernel-include-regex attn_fwd --kernel-iteration-range '[241-242]' --pmc MfmaUtil VALUBusy "
        "--output-format csv --output-directory kernel1 -- CMD"
    )
    ascend = of_kernel(Vendor.ASCEND, "kernel1", Bound.LATENCY, selector, Launch(240, 2))
    assert ascend is not None
    assert ascend["command"] == (
        "msprof op --kernel-name=attn_fwd --launch-count=2 --aic-metrics=PipeUtilization,ResourceConflictRatio "
        "--output=./kernel1 CMD"
    )
    assert ascend["then"] == "open kernel1/OPPROF_*/visualize_data.bin in MindStudio Insight"
    cpu = of_kernel(Vendor.CPU, "kernel1", Bound.COMPUTE, None, Launch(0, 1))
    assert cpu is not None
    assert cpu["command"] == "perf record --call-graph dwarf -- CMD"
    running = of_kernel(Vendor.CPU, "kernel1", Bound.COMPUTE, None, Launch(0, 1), pid=77)
    assert running is not None
    assert running["command"] == "perf record --call-graph dwarf --pid 77 -- sleep 10"
    assert of_kernel(None, "kernel1", Bound.COMPUTE, selector, Launch(0, 1)) is None
    assert of_kernel(Vendor.NVIDIA, "kernel1", Bound.COMPUTE, None, Launch(0, 1)) is None


@pytest.mark.parametrize(
    ("per_step", "seen", "own", "skip", "count"),
    [
        (24.0, 48, 1.0, 240, 1),  # all calls are alike: one is enough
        (24.0, 48, 0.5, 240, 20),  # another sort of calls has the same name: a step of them, 20 at most
        (6.0, 12, 0.5, 60, 6),
        (0.5, 1, 1.0, 5, 1),  # every other step
        (None, 36, 1.0, 36, 1),  # steps unknown: as many as a window saw
        (None, 0, 0.2, 1, 1),
    ],
)
def test_launches(per_step: float | None, seen: int, own: float, skip: int, count: int) -> None:
    """Which launches are looked at."""
    assert launch_of(per_step, seen, own) == Launch(skip, count)


def test_timelines_and_hosts() -> None:
    """Nsys opens graphs where there are any; a running process is attached to, another one started."""
    plain, graphs = of_timeline(Vendor.NVIDIA), of_timeline(Vendor.NVIDIA, graphs=True)
    assert plain is not None
    assert graphs is not None
    assert plain["command"].startswith("nsys profile --trace=cuda,nvtx,osrt --delay=60 --duration=10 --kill=none ")
    assert "--cuda-graph-trace=node" in graphs["arguments"]
    assert of_timeline(Vendor.CPU) is None
    assert of_host(4711)["command"] == (
        "py-spy record --subprocesses --output host.svg --duration 30 --pid 4711"
    )  # fmt: skip
    assert of_host(None)["command"] == "py-spy record --subprocesses --output host.svg -- CMD"


def signature(kind: Kind, precision: str | None = None, unit: str | None = None, op: str | None = None) -> Signature:
    """What advice depends on."""
    return Signature("k", kind, op, precision=precision, unit=unit)


@pytest.mark.parametrize(
    ("of", "bound", "fraction", "more", "first"),
    [
        (signature(Kind.MATMUL, "fp32", "vector"), Bound.COMPUTE, 0.7, {}, advice.COMPUTE["vector_fp32"]),
        (signature(Kind.CONV, "fp16", "vector"), Bound.COMPUTE, 0.7, {}, advice.COMPUTE["matrix_unit"]),
        (signature(Kind.MATMUL, "tf32", "matrix"), Bound.COMPUTE, 0.7, {}, advice.COMPUTE["lower_precision"]),
        (
            signature(Kind.MATMUL, "bf16", "matrix"), Bound.COMPUTE, 0.7, {"precisions": {"fp8"}},
            advice.COMPUTE["lower_precision_8bit"],
        ),
        (signature(Kind.MATMUL, "bf16", "matrix"), Bound.COMPUTE, 0.7, {}, advice.COMPUTE["occupancy"]),
        (signature(Kind.MATMUL, "bf16", "matrix"), Bound.COMPUTE, 0.4, {}, advice.COMPUTE["tuned"]),
        (signature(Kind.MATMUL, "bf16", "matrix"), Bound.MEMORY, 0.7, {}, advice.MEMORY["quantize"]),
        (signature(Kind.MATMUL, "bf16", "matrix", "aten::bmm"), Bound.MEMORY, 0.7, {}, advice.MEMORY["batched"]),
        (signature(Kind.ELEMENTWISE, "fp32", "vector"), Bound.MEMORY, 0.7, {}, advice.MEMORY["fusion"]),
        (signature(Kind.LAYOUT), Bound.MEMORY, 0.7, {}, advice.MEMORY["layout"]),
        (signature(Kind.ATTENTION, "bf16", "matrix"), Bound.MEMORY, 0.7, {}, advice.MEMORY["attention"]),
        (signature(Kind.OPTIMIZER), Bound.MEMORY, 0.7, {}, advice.MEMORY["optimizer"]),
        (signature(Kind.NORM), Bound.LATENCY, 0.1, {}, advice.LATENCY["fusion"]),
        (signature(Kind.MATMUL), Bound.LATENCY, 0.1, {}, advice.LATENCY["batch"]),
        (signature(Kind.NORM), Bound.MEMORY, 0.85, {}, advice.NEAR_THE_ROOF),
        (signature(Kind.MATMUL, "fp32", "matrix"), Bound.COMPUTE, 0.4, {"vendor": Vendor.CPU}, advice.CPU["threads"]),
        (signature(Kind.NORM), Bound.LATENCY, 0.1, {"vendor": Vendor.CPU}, advice.CPU["batch"]),
    ],
)  # fmt: skip
def test_what_helps_first(of: Signature, bound: Bound, fraction: float, more: dict, first: str) -> None:  # type: ignore[type-arg]
    """fp32 off the tensor cores, layouts, weights, small kernels, kernels at their roof: each its own advice."""
    assert helps(of, bound, fraction, **more)[0] == first


def test_nothing_helps_what_is_unknown() -> None:
    """No verdict, no advice."""
    assert helps(signature(Kind.OTHER), Bound.UNKNOWN, None) == []


def test_every_cause_has_a_fix() -> None:
    """On a device and on a CPU, in inference and in graphs, and the verdict's words for kernels and dispatch too."""
    for cause in (*Cause, "kernels", "dispatch"):
        for vendor, training, in_graphs in itertools.product((None, *Vendor), (False, True), (False, True)):
            assert fixes(str(cause), vendor=vendor, training=training, in_graphs=in_graphs), cause


def fixes(cause: str, **known: Any) -> str:
    """The fixes as one text."""
    return " | ".join(fixes_of(cause, Wanted(**known)))


def test_no_fix_that_does_not_fit() -> None:
    """No optimizer in inference; no torch.compile for what is compiled; no graphs where graphs launch it already."""
    assert "optimizers" in fixes("launch_bound")
    assert "optimizers" not in fixes("launch_bound", training=False)
    compiled = fixes("launch_bound", example="in Torch-Compiled Region: 0/0, before triton_poi_fused_0; at 1 ms")
    assert "fewer and larger kernels: torch.compile" not in compiled
    assert "graph breaks" in compiled
    assert "torch.cuda.graph" not in fixes("launch_bound", vendor=Vendor.NVIDIA, in_graphs=True)
    assert ".item()" in fixes("sync")
    assert ".item()" not in fixes("sync", waits_short=True)
    assert "DataLoader" in fixes("host", example="in images.py(129): preprocess, before a; at 0 ms")
    assert "DataLoader" not in fixes("host", example="in modeling_transformer.py(5): forward, before a; at 0 ms")


@pytest.mark.parametrize(
    ("kernel", "shapes", "known", "expected"),
    [
        ("flash_fwd_kernel", "[[2,512,16,64]]", {}, advice.MEMORY["smaller_dtype"]),  # fused already, many queries
        ("flash_fwd_splitkv", "[[2,1,16,64],[2,512,16,64]]", {}, advice.MEMORY["keys_and_values"]),
        ("paged_attention_v2", None, {}, advice.MEMORY["keys_and_values"]),
        ("softmax_warp_forward", "hostile [", {}, advice.MEMORY["attention"]),
    ],
)
def test_attention_that_is_fused_is_not_to_be_fused(
    kernel: str, shapes: str | None, known: dict[str, Any], expected: str
) -> None:
    """Fewer keys and values help where each has one row of queries; nothing advises another mask."""
    of = Signature(kernel, Kind.ATTENTION, "aten::_attention", shapes=shapes, precision="bf16", unit="matrix")
    assert helps(of, Bound.MEMORY, 0.5, **known) == [expected]
    assert not any("causal" in one for one in helps(of, Bound.COMPUTE, 0.2))


def test_weights_in_training_are_not_quantised() -> None:
    """Nor on a CPU; in inference they are."""
    of = Signature("gemm", Kind.MATMUL, "aten::mm", precision="fp32", unit="vector")
    assert helps(of, Bound.MEMORY, 0.5) == [advice.MEMORY["quantize"]]
    assert helps(of, Bound.MEMORY, 0.5, training=True) == [advice.MEMORY["smaller_dtype"]]
    assert helps(of, Bound.MEMORY, 0.5, vendor=Vendor.CPU) == [advice.MEMORY["smaller_dtype"]]


def test_no_graph_for_what_a_graph_launches() -> None:
    """A latency bound kernel inside device graphs: batch or fuse."""
    of = Signature("k", Kind.NORM)
    assert advice.LATENCY["graphs"] in helps(of, Bound.LATENCY, 0.1)
    assert advice.LATENCY["graphs"] not in helps(of, Bound.LATENCY, 0.1, in_graphs=True)
