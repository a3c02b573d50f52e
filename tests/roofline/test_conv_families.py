"""Kernels of one convolution: which of them carries which part of its work. The families are those of real traces."""

from __future__ import annotations

import gzip
import json
from typing import Any

import pytest

from roofwatch.collectors.base import Category, RawGroup, RawProfile, WindowContext
from roofwatch.collectors.normalize import normalize
from roofwatch.collectors.pipeline import window_of
from roofwatch.collectors.registry import read
from roofwatch.model.histogram import Histogram
from roofwatch.model.record import Device, Node, Phase, Process, Signature, Trigger, Vendor
from roofwatch.model.roofline import EXCEEDED

# x (2,4,8,8), W (6,4,3,3), padding 1: out (2,6,8,8). 2·2·6·64·4·9 = 55,296 FLOPs, forward and for each gradient;
# x 2,048 B, W 864 B, out 3,072 B in fp32: 5,984 B, forward and for each gradient.
FLOPS, BYTES = 55_296, 5_984
X, W, OUT = [2, 4, 8, 8], [6, 4, 3, 3], [2, 6, 8, 8]
FORWARD = (
    "aten::cudnn_convolution", [X, W, *[[]] * 7], ["float"] * 2 + [""] * 7,
    ["", "", "[1, 1]", "[1, 1]", "[1, 1]", "1", "False", "False", "True"],
)  # fmt: skip


def backward(mask: str = "[True, True, False]") -> tuple[str, list[Any], list[str], list[str]]:
    """(grad, x, W, bias_sizes, stride, padding, dilation, transposed, output_padding, groups, mask)."""
    concrete = ["", "", "", "[0]", "[1, 1]", "[1, 1]", "[1, 1]", "False", "[0, 0]", "1", mask]
    return "aten::convolution_backward", [OUT, X, W, *[[]] * 8], ["float"] * 3 + [""] * 8, concrete


def carried(
    call: tuple[str, list[Any], list[str], list[str]], kernels: dict[str, int], ops: int = 1
) -> dict[str, tuple[int | None, int | None, int | None]]:
    """Kernel → FLOPs, bytes and most FLOPs of one record; ``kernels``: name → records of ``ops`` calls."""
    op, *inputs = call
    texts = [json.dumps(part) for part in inputs]
    groups = [
        RawGroup(
            0, name, Category.KERNEL, op, texts[0], texts[1], None, texts[2], Phase.BACKWARD, None, backlog=False,
            linked=True, calls=n, total_ns=1000 * n, min_ns=1000, max_ns=1000,
            histogram=Histogram.from_values([1000] * n), op_calls=min(n, ops),
        )
        for name, n in kernels.items()
    ]  # fmt: skip
    profile = RawProfile("kineto", [], groups, 0, 1, None, has_host_events=True, shapes_recorded=True, events_read=1)
    found: dict[str, Signature] = {
        one.group.kernel: one.signature for one in normalize(profile, [Device(Vendor.NVIDIA, "")])
    }
    return {name: (s.flops, s.bytes, s.flops_max) for name, s in found.items()}


UNKNOWN = (None, None, None)
ONE = (FLOPS, BYTES, None)


def test_gradients_by_plain_products_and_the_sum_of_a_split_one():
    """Two cuBLAS products are a gradient each; the sum of the second's parts, named after it, is no product."""
    names = ("volta_sgemm_32x128_nt", "volta_sgemm_64x64_tn", "void cudnn::cnn::reduce_wgrad_nchw_helper<float, float>")
    assert carried(backward(), dict.fromkeys(names, 1)) == dict(zip(names, (ONE, ONE, UNKNOWN), strict=True))


def test_a_gradient_that_is_not_named_beside_one_that_is():
    """A "stridedB" kernel beside wgrad_alg0_engine is the input's gradient; offsets carry nothing."""
    names = (
        "void cask_cudnn_infer::computeOffsetsKernel<true, false>", "cask_cudnn_infer::computeBOffsetsKernel",
        "cudnn_infer_volta_scudnn_128x64_stridedB_interior_nn_v1",
        "void wgrad_alg0_engine<float, 128, 6, 7, 3, 3, 5, false, 512>",
    )  # fmt: skip
    assert carried(backward(), dict.fromkeys(names, 1)) == dict(zip(names, (UNKNOWN, UNKNOWN, ONE, ONE), strict=True))


def test_the_sum_of_a_split_gradient_is_not_the_gradient():
    """Of xmma "execute_split_k_kernel" adds up what "execute_kernel" made, in a tenth of its time."""
    stem = "sm80_xmma_wgrad_implicit_gemm_indexed_tf32f32_tf32f32_f32_nhwckrsc_nhwc_tilesize128x128x16"
    names = (
        "void cutlass_cudnn_infer::Kernel<cutlass_tensorop_s1688dgrad_optimized_tf32_128x128_16x4_nhwc_align4>",
        f"{stem}_execute_kernel_cudnn_train", f"{stem}_execute_split_k_kernel_cudnn_train",
    )  # fmt: skip
    assert carried(backward(), dict.fromkeys(names, 2), 2) == dict(zip(names, (ONE, ONE, UNKNOWN), strict=True))


def test_cutlass_names_a_gradient_in_its_types():
    """A mangled implicit product is a weight's gradient by its iterators; the product beside it the input's."""
    iterator = "Conv2dWgradOutputGradientTileAccessIteratorOptimizedINS_11MatrixShapeILi128ELi32EEE"
    names = (
        f"_ZN19cutlass_cudnn_train6KernelINS_4conv6kernel23ImplicitGemmConvolutionINS1_11threadblock_52{iterator}",
        "void cutlass::Kernel<cutlass_80_tensorop_s1688gemm_256x64_16x4_nt_align4>",
        "void cutlass_cudnn_train::Kernel<cutlass_cudnn_train::reduction::kernel::ReduceSplitK<cutlass_cudnn_train>>",
    )
    assert carried(backward(), dict.fromkeys(names, 1)) == dict(zip(names, (ONE, ONE, UNKNOWN), strict=True))


def test_both_gradients_by_one_kernel():
    """Twice the records of a name that makes both: each has one gradient's FLOPs, and half of the bytes of both.

    Both read grad (3,072 B) once: 3,072 + 864 + 2,048 + 2,048 + 864 = 8,896 B, 4,448 each.
    """
    assert carried(backward(), {"volta_sgemm_64x64_nt": 4}, 2) == {"volta_sgemm_64x64_nt": (FLOPS, 4_448, None)}


@pytest.mark.parametrize(
    "kernels",
    [
        {"volta_sgemm_64x64_nt": 1},  # where is the other gradient?
        {"volta_sgemm_64x64_nt": 1, "volta_sgemm_32x128_nt": 1, "volta_sgemm_128x32_nt": 1},  # which are parts of one?
    ],
)
def test_numbers_that_do_not_fit_leave_gradients_unknown(kernels):
    """Two gradients by one kernel, or by three: nothing says what each does."""
    assert set(carried(backward(), kernels).values()) == {UNKNOWN}


def test_one_gradient_asked_for():
    """A first layer has no gradient of its input: the one kernel makes the weight's."""
    assert carried(backward("[False, True, False]"), {"volta_sgemm_64x64_nt": 1}) == {"volta_sgemm_64x64_nt": ONE}


def test_winograd_in_parts_forward():
    """F(4 × 4, 3 × 3): the product in the middle does (4 + 3 - 1)² of 4²·3² products, 55,296 · 36 / 144 = 13,824."""
    stem = "void cudnn::winograd_nonfused::winogradForward"
    names = (f"{stem}Data4x4<float, float>", f"{stem}Filter4x4<float, float>", "volta_sgemm_64x64_nt",
             f"{stem}Output4x4<float, float>")  # fmt: skip
    expected = (UNKNOWN, UNKNOWN, (13_824, BYTES, FLOPS), UNKNOWN)
    assert carried(FORWARD, dict.fromkeys(names, 1)) == dict(zip(names, expected, strict=True))


def test_winograd_in_parts_backward():
    """Both gradients by products between transforms, one named, one not: a quarter of the nominal FLOPs at least."""
    stem = "void cudnn::winograd_nonfused::winograd"
    transforms = [
        f"{stem}{part}4x4<float, float>" for part in ("ForwardData", "ForwardOutput", "WgradData", "WgradOutput")
    ]
    found = carried(backward(), dict.fromkeys([*transforms, "volta_sgemm_64x64_nt", "volta_sgemm_32x128_nt"], 1))
    assert found == {
        **dict.fromkeys(transforms, UNKNOWN),
        **dict.fromkeys(["volta_sgemm_64x64_nt", "volta_sgemm_32x128_nt"], (13_824, BYTES, FLOPS)),
    }


@pytest.mark.parametrize(
    "kernel",
    [
        "ampere_scudnn_winograd_128x128_ldg1_ldg4_relu_tile148t_nt_v1",
        "miopenSp3AsmConv_v21_1_3_gfx9_fp32_f3x2_stride1",
    ],
)
def test_fused_winograd(kernel):
    """F(2 × 2, 3 × 3): (2 + 3 - 1)² of 2²·3², 55,296 · 16 / 36 = 24,576."""
    assert carried(FORWARD, {kernel: 1}) == {kernel: (24_576, BYTES, FLOPS)}


def test_what_an_fft_saves_is_unknown():
    """The product between the transforms works on complex tiles of a size that nothing tells."""
    names = ("void fft2d_r2c_32x32<float, false, 5u, false>", "volta_gcgemm_32x32_nt", "void fft2d_c2r_32x32<float>")
    assert set(carried(FORWARD, dict.fromkeys(names, 1)).values()) == {UNKNOWN}


def test_stride_beyond_the_filter_reads_a_part(count):
    """1 × 1, stride 2 over x (1,4,8,8), W (2,4,1,1): a quarter of x, 64 elements, is read. out (1,2,4,4).

    (64 + 8 + 32)·4 = 416 B; 2·32·4 = 256 FLOPs.
    """
    concrete = ["", "", "[0, 0]", "[2, 2]", "[1, 1]", "1"]
    types = ["float", "float", *[""] * 4]
    assert count("aten::cudnn_convolution", [[1, 4, 8, 8], [2, 4, 1, 1], *[[]] * 4], types, concrete) == (256, 416)


def test_depthwise_gradients():
    """(grad, x, W, kernel, stride, padding, dilation, mask): grad and x (1,2,4,4), W (2,1,3,3).

    2·1·16·18 = 576 FLOPs a gradient; (32 + 32 + 18)·4 = 328 B.
    """
    dims = [[1, 2, 4, 4], [1, 2, 4, 4], [2, 1, 3, 3], *[[]] * 5]
    concrete = ["", "", "", "[3, 3]", "[1, 1]", "[1, 1]", "[1, 1]", "[True, True]"]
    names = [
        f"void at::native::(anonymous namespace)::conv_depthwise2d_{part}_kernel<float, int>"
        for part in ("backward", "grad_weight")
    ]
    call = ("aten::_conv_depthwise2d_backward", dims, ["float"] * 3 + [""] * 5, concrete)
    assert carried(call, dict.fromkeys(names, 1)) == dict.fromkeys(names, (576, 328, None))


# -- a ResNet-50's own kernels and times, with the shapes that it is known to have -------------------------------------


def resnet50(batch: int) -> list[tuple[list[int], list[int], list[int], int, int]]:
    """(x, W, out, stride, padding) of its 53 convolutions in the order of the forward pass."""
    found = []

    def add(into: int, out: int, kernel: int, stride: int, side: int) -> None:
        shape = [batch, out, side // stride, side // stride]
        found.append(([batch, into, side, side], [out, into, kernel, kernel], shape, stride, kernel // 2))

    add(3, 64, 7, 2, 224)
    channels, side = 64, 56
    for planes, blocks, first in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
        for block in range(blocks):
            stride = 1 if block else first
            add(channels, planes, 1, 1, side)
            add(planes, planes, 3, stride, side)
            add(planes, 4 * planes, 1, 1, side // stride)
            if not block:
                add(channels, 4 * planes, 1, stride, side)
            channels, side = 4 * planes, side // stride
    return found


def shaped(document: dict[str, Any], batch: int) -> None:
    """Gives the convolutions of a recording of a ResNet-50 their shapes."""
    layers = resnet50(batch)

    def calls(name: str) -> list[dict[str, Any]]:
        found = [e for e in document["traceEvents"] if e.get("cat") == "cpu_op" and e["name"] == name]
        return sorted(found, key=lambda event: float(event["ts"]))

    def write(event: dict[str, Any], dims: list[Any], concrete: list[str]) -> None:
        dims += [[]] * (len(concrete) - len(dims))
        types = ["float" if d else "" for d in dims]
        event["args"] |= {"Input Dims": dims, "Input type": types, "Concrete Inputs": concrete}

    forward, back = calls("aten::cudnn_convolution"), calls("aten::convolution_backward")
    assert len(forward) == len(back)
    assert len(forward) % len(layers) == 0
    for i, event in enumerate(forward):
        x, w, _, s, p = layers[i % len(layers)]
        write(event, [x, w], ["", "", f"[{p}, {p}]", f"[{s}, {s}]", "[1, 1]", "1", "False", "False", "True"])
    for i, event in enumerate(back):
        x, w, out, s, p = layers[-1 - i % len(layers)]
        rest = [f"[{s}, {s}]", f"[{p}, {p}]", "[1, 1]", "False", "[0, 0]", "1", f"[{x[1] != 3}, True, False]"]
        write(event, [out, x, w], ["", "", "", "[0]", *rest])


@pytest.mark.parametrize(("name", "least"), [("v100_resnet_ns_absolute_ts", 0.9), ("a100_nccl_args_relative_ts", 0.95)])
def test_no_kernel_of_a_training_step_beats_its_roof(traces, tmp_path, monkeypatch, name, least):
    """Real kernels and times of 8 training steps on two devices, with the shapes of their 53 convolutions.

    No kernel may do more than its device can, and of their device time nearly all has known FLOPs.
    """
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    document = json.loads(gzip.decompress((traces / "kineto" / f"{name}.json.gz").read_bytes()))
    shaped(document, 32)
    path = tmp_path / "shaped.json"
    path.write_text(json.dumps(document))
    window = window_of(read(path), WindowContext("0" * 32, Process(Node("n"), 1), Trigger.IMPORTED))
    fractions = {k.signature.kernel: k.roof_fraction for k in window.kernels if k.roof_fraction is not None}
    assert {kernel: f for kernel, f in fractions.items() if f > EXCEEDED} == {}
    assert window.ledger.model_known_ns >= least * window.ledger.model_ns
