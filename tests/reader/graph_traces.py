"""Graph launches and captures for synthetic traces: what both test modules of graphs write."""

from __future__ import annotations

from typing import Any

from roofwatch.collectors import pipeline
from roofwatch.collectors.base import RawProfile, WindowContext
from roofwatch.model.record import Node, Process, Trigger, Window

GEMM, ADD, NORM = "ampere_bf16_gemm_128x64", "vectorized_elementwise_kernel<CUDAFunctor_add>", "layer_norm_kernel"
GEMM_INPUTS = [[64, 32], [32, 16]]


def launch(trace: Any, correlation: int, at: float, *kernels: str, tid: Any = 101, **args: Any) -> None:
    """A graph launch at ``at`` and its kernels, 10 µs each, one after the other."""
    trace.call("cudaGraphLaunch", at, 5, correlation, tid=tid)
    run(trace, correlation, at + 20, *kernels, **args)


def run(trace: Any, correlation: int, at: float, *kernels: str, nodes: tuple[int, ...] = (), **args: Any) -> None:
    """The kernels of a launch that was before the window."""
    for i, kernel in enumerate(kernels):
        more = {"graph node id": nodes[i]} if nodes else {}
        trace.kernel(kernel, at + 12 * i, 10, correlation, **args, **more)


def capture(trace: Any, at: float, *launches: tuple[str, str | None, Any], tid: Any = 101, first: int = 900) -> None:
    """A capture: (op, kernel, shapes) one after the other, 10 µs each; a kernel of None is not told, as on CUDA."""
    trace.call("hipStreamBeginCapture", at, 1, first, tid=tid)
    for i, (op, kernel, shapes) in enumerate(launches):
        begun = at + 10 * (i + 1)
        trace.op(op, begun, 8, tid=tid, shapes=shapes)
        more = {} if kernel is None else {"kernel": kernel}
        trace.call("hipLaunchKernel", begun + 2, 2, first + 1 + i, tid=tid, **more)
    trace.call("hipStreamEndCapture", at + 10 * (len(launches) + 1), 1, first + 500, tid=tid)


LAYER = (("aten::mm", GEMM, GEMM_INPUTS), ("aten::add", ADD, [[64, 16], [64, 16]]), ("aten::layer_norm", NORM, [[64]]))


def ops(profile: RawProfile) -> dict[str, str | None]:
    """Op by kernel."""
    return {g.kernel: g.op for g in profile.groups}


def window(profile: RawProfile) -> Window:
    """A profile judged."""
    return pipeline.window_of(profile, WindowContext("0" * 32, Process(Node("n"), 1), Trigger.IMPORTED))
