"""Hand-built raw profiles, and the windows that they become."""

from __future__ import annotations

from dataclasses import replace

from roofwatch.collectors.base import Category, RawDevice, RawGroup, RawProfile, WindowContext
from roofwatch.collectors.pipeline import window_of
from roofwatch.model.histogram import Histogram
from roofwatch.model.record import (
    KernelStat,
    Node,
    Phase,
    Process,
    Trigger,
    Window,
)

H100 = RawDevice("nvidia", "NVIDIA H100 80GB HBM3", 0, 132, 85_018_279_936, span_ns=10_000_000, busy_ns=5_000_000)
GEMM = "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_cublas"
ADD = "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>>"
MM = {"op": "aten::mm", "shapes": "[[4096,4096],[4096,4096]]", "dtypes": '["c10::BFloat16","c10::BFloat16"]'}
ADDS = {"op": "aten::add", "shapes": "[[16777216],[16777216],[]]", "dtypes": '["float","float","Scalar"]'}


def group(kernel: str, mean_ns: int, calls: int = 1, **changes) -> RawGroup:
    """Records alike: a kernel on device 0, linked, unless told otherwise."""
    base = RawGroup(
        device=0, kernel=kernel, category=Category.KERNEL, op=None, shapes=None, dtypes=None, strides=None,
        concrete=None,
        phase=Phase.FORWARD, module=None, backlog=False, linked=True, calls=calls, total_ns=mean_ns * calls,
        min_ns=mean_ns, max_ns=mean_ns, histogram=Histogram.from_values([mean_ns] * calls),
    )  # fmt: skip
    return replace(base, **changes)


def window(*groups: RawGroup, device: RawDevice = H100, context: WindowContext | None = None) -> Window:
    """The window of these groups."""
    raw = RawProfile("kineto", [device], list(groups), 7, 10_000_000, 1, True, True, 100, dropped={"unfinished": 2})
    return window_of(raw, context or CONTEXT)


CONTEXT = WindowContext("0" * 32, Process(Node("n"), 1), Trigger.IMPORTED)


def only(found: Window) -> KernelStat:
    """The window's one kernel."""
    assert len(found.kernels) == 1
    return found.kernels[0]


CPU = RawDevice("cpu", "", span_ns=1_000_000, busy_ns=900_000)


def cpu_op(op: str, mean_ns: int, shapes: str, dtypes: str, **changes) -> RawGroup:
    """Records of an op on a CPU with their self time."""
    return group(op, mean_ns, op=op, shapes=shapes, dtypes=dtypes, category=Category.CPU_OP, **changes)
