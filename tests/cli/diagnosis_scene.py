"""A window made by hand of which timeline and diagnosis can be worked out, and of which golden/diagnose_80.txt is."""

from __future__ import annotations

from roofwatch.model.histogram import Histogram
from roofwatch.model.kinds import Kind
from roofwatch.model.record import (
    Bound,
    Cause,
    Device,
    DeviceWindow,
    Evidence,
    IdleCause,
    KernelStat,
    Ledger,
    Node,
    Peak,
    Peaks,
    Process,
    Signature,
    Trigger,
    Vendor,
    Window,
)

H100 = Device(
    Vendor.NVIDIA,
    "NVIDIA H100 80GB HBM3",
    index=0,
    units=132,
    peaks=Peaks(
        {("bf16", "matrix"): Peak(989e12, "datasheet"), ("fp8", "matrix"): Peak(1979e12, "datasheet")},
        Peak(3.35e12, "datasheet"),
    ),
)
MS = 1_000_000


def stat(signature: Signature, calls: int, total_ns: int, bound: Bound, fraction: float | None = None) -> KernelStat:
    """A kernel all of whose calls take the same time, at this part of its roof."""
    mean = total_ns // calls
    return KernelStat(
        signature, 0, calls, total_ns, mean, mean, Histogram.from_values([mean] * calls), bound, Evidence.SHAPES,
        roof_ns=None if fraction is None else fraction * mean, step_calls=calls, step_ns=total_ns,
    )  # fmt: skip


def window(kernels: tuple[KernelStat, ...] | None = None, **figures: int) -> Window:
    """100 ms of one H100: 40 ms busy (30 compute, 10 exposed communication), 60 ms idle; two steps.

    Kernels: a product 16 ms at a half of its roof (8 to win), a norm 10 ms at a tenth (9 to win), one of unknown roof 4
    ms, and 10 ms of communication. So the system takes 70 %, kernels 30, of the whole time 17 % can be won.
    """
    gemm = Signature(
        "nvjet_tst_128x256_64x4_1x2_h_bz_TNT", Kind.MATMUL, "aten::addmm", shapes="[[4096],[4096,4096],[4096,4096]]",
        precision="bf16", unit="matrix",
    )  # fmt: skip
    norm = Signature("void at::native::vectorized_layer_norm_kernel<float, float>(int)", Kind.NORM, "aten::layer_norm")
    mine = Signature("my_kernel", Kind.OTHER)
    comm = Signature("ncclDevKernel_AllReduce_Sum_bf16_RING_LL", Kind.COMM)
    told = (
        IdleCause(
            Cause.LAUNCH_BOUND, 40 * MS, 800, 2 * MS, "in aten::linear, before nvjet; at 7.560 ms, a gap of 2 ms"
        ),
        IdleCause(Cause.INPUT, 17 * MS, 2, 9 * MS, "in enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"),
        IdleCause(Cause.LAUNCH_GAP, 3 * MS, 900, 20_000, None),
    )
    found = kernels or (
        stat(gemm, 20, 16 * MS, Bound.COMPUTE, 0.5),
        stat(norm, 40, 10 * MS, Bound.MEMORY, 0.1),
        stat(mine, 2, 4 * MS, Bound.UNKNOWN),
        stat(comm, 4, 10 * MS, Bound.COMMUNICATION),
    )
    return Window(
        uid="0" * 32,
        process=Process(Node("imported"), 4711),
        start_unix_ns=1_770_000_000_000_000_000,
        duration_ns=100 * MS,
        trigger=Trigger.IMPORTED,
        collector="kineto",
        devices=(
            DeviceWindow(
                H100,
                span_ns=figures.get("span_ns", 100 * MS),
                busy_ns=figures.get("busy_ns", 40 * MS),
                causes=told,
                exposed_communication_ns=10 * MS,
            ),
        ),
        kernels=found,
        ledger=Ledger(
            1000, 66, 40 * MS, has_host_events=True, model_ns=16 * MS, model_known_ns=16 * MS, model_flops=10**12,
            model_peak_ns=8 * MS,
        ),
        steps=2,
    )  # fmt: skip
