"""The record: what a window of a process is in memory; the wire is ``roofwatch.proto``, the tables ``roofwatch.store``.

Times are integer nanoseconds, timestamps Unix time, sizes bytes, rates per second. Unknown is None, never 0.
Sums are stored, never shares, so that merging windows is exact; shares are computed where an answer is made.

Its words are in ``model.words``, device, node and process in ``model.places``, cost and budget in ``model.account``;
all of them are names of this module, too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from roofwatch.model.account import BudgetState, Cost, ProcessState
from roofwatch.model.histogram import Histogram
from roofwatch.model.ids import content_id
from roofwatch.model.kinds import Kind
from roofwatch.model.places import Device, Node, Peak, Peaks, Process
from roofwatch.model.words import Bound, Cause, Evidence, Phase, Trigger, Vendor

__all__ = [
    "Bound",
    "BudgetState",
    "Cause",
    "Collective",
    "Cost",
    "Device",
    "DeviceState",
    "DeviceWindow",
    "Evidence",
    "Graph",
    "IdleCause",
    "KernelStat",
    "Ledger",
    "Node",
    "Padding",
    "Peak",
    "Peaks",
    "Phase",
    "Process",
    "ProcessState",
    "Signature",
    "Trigger",
    "Vendor",
    "Window",
]


@dataclass(frozen=True, slots=True)
class Signature:
    """What a kernel is, apart from when it ran.

    ``shapes``, ``dtypes`` and ``arguments`` are compact JSON text; ``arguments`` holds the concrete inputs, strides and
    formats that the formula reads, or what a collective moved among whom. FLOPs and bytes are of one call; where the
    inputs leave the FLOPs in a range (packed sequences), it reaches from ``flops`` to ``flops_max``.
    """

    kernel: str
    kind: Kind
    op: str | None = None
    phase: Phase = Phase.NONE
    module: str | None = None
    shapes: str | None = None
    dtypes: str | None = None
    arguments: str | None = None
    flops: int | None = None
    bytes: int | None = None
    formula: str | None = None
    precision: str | None = None
    unit: str | None = None  # matrix | vector
    flops_max: int | None = None  # None where ``flops`` is exact

    @property
    def id(self) -> int:
        """63-bit id of the content. What came later than the first version is part of it only where it is known."""
        later = () if self.flops_max is None else (self.flops_max,)
        return content_id(
            "signature", self.kernel, self.kind, self.op, self.phase, self.module, self.shapes, self.dtypes,
            self.arguments, self.flops, self.bytes, self.formula, self.precision, self.unit, *later,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class KernelStat:
    """One signature in one window on one device with one kind of evidence: (signature, device, evidence) is unique."""

    signature: Signature
    device: int  # position in Window.devices
    calls: int
    total_ns: int
    min_ns: int
    max_ns: int
    histogram: Histogram
    bound: Bound
    evidence: Evidence
    roof_ns: float | None = None  # attainable time of one call, max(FLOPs/π, bytes/β)
    ridge: float | None = None  # π/β in FLOP per byte for this precision and unit on this device
    step_calls: int = 0  # the part launched inside the window's steps
    step_ns: int = 0
    formula_bound: Bound | None = None  # the shapes' verdict beside a measured one: both are kept (evidence counters)

    @property
    def roof_fraction(self) -> float | None:
        """Attainable time over measured time; above 1.05 the model is exceeded (and the record kept)."""
        if self.roof_ns is None or self.total_ns <= 0:
            return None
        return self.roof_ns * self.calls / self.total_ns


@dataclass(frozen=True, slots=True)
class IdleCause:
    """One reason for idle time on one device.

    ``startup_ns`` of the total, in ``startup_count`` stretches, is the program's start (loading code, making contexts):
    it does not come back. ``steady_longest_ns`` and ``steady_example`` are of the other stretches, 0 where there are
    none, and None where no stretch is start-up: then they are the longest and the example of all.
    """

    cause: Cause
    total_ns: int
    count: int
    longest_ns: int
    example: str | None = None
    startup_ns: int = 0
    startup_count: int = 0
    steady_longest_ns: int | None = None
    steady_example: str | None = None


@dataclass(frozen=True, slots=True)
class DeviceState:
    """How a device ran during a window: the mean of what was read at its start and end, or over it; None: not read.

    ``throttle`` names what held the clock down, with commas between (``power_cap``, ``thermal``, …), "" for nothing.
    """

    clock_hz: float | None = None  # of the compute units
    clock_max_hz: float | None = None
    power_w: float | None = None
    power_limit_w: float | None = None
    temperature_c: float | None = None
    throttle: str | None = None
    # Errors of memory, of all kinds, since the driver was loaded, as of the window's end.
    ecc_corrected: int | None = None
    ecc_uncorrected: int | None = None


@dataclass(frozen=True, slots=True)
class DeviceWindow:
    """One device in one window: span = busy + idle, and the causes add up to idle exactly."""

    device: Device
    span_ns: int
    busy_ns: int
    causes: tuple[IdleCause, ...] = ()
    exposed_copy_ns: int = 0
    exposed_communication_ns: int = 0
    memory_used_bytes: int | None = None
    memory_peak_bytes: int | None = None
    state: DeviceState | None = None

    @property
    def idle_ns(self) -> int:
        """Span less busy."""
        return self.span_ns - self.busy_ns


@dataclass(frozen=True, slots=True)
class Collective:
    """One collective kernel, told apart so that the windows of several ranks can be laid side by side.

    ``bytes`` is the message: the larger of what a rank puts in and gets out. ``group`` is the same text on every
    rank of the group; ``sequence`` counts that group's collectives from the process's start, where the source tells.
    """

    device: int  # position in Window.devices
    name: str  # all_reduce, all_gather, … (collectives.COLLECTIVES), "" where not told
    group: str  # "" where not told
    start_unix_ns: int
    duration_ns: int
    group_size: int | None = None
    sequence: int | None = None
    bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Graph:
    """All launches of one device graph in a window, and how much of its time could be attributed to ops."""

    device: int  # position in Window.devices
    name: str  # "graph 7": its id where the source tells, else its place among the window's graphs
    launches: int
    records: int
    total_ns: int
    attributed_ns: int = 0
    source: str | None = None  # nodes | capture | log: where the ops are from
    confidence: float | None = None  # share of its records that fit what was captured


@dataclass(frozen=True, slots=True)
class Ledger:
    """What was read and what was not. Device times are sums over device records.

    The ``model_`` sums are over matrix products, convolutions and attention: their device time, the part of it with
    known FLOPs and peak, those FLOPs, and the time that they need at the peak of their precision. ``compared_ns`` is
    of kernels with a measured and a formula's verdict, ``disagreed_ns`` the part where the two differ. ``layout_ns``
    is the layout tax of an Ascend device (None of others): changes of format, order and dtype that other ops needed.
    """

    events_read: int
    device_records: int
    device_time_ns: int
    has_host_events: bool
    linked_ns: int = 0
    backlog_ns: int = 0
    classifiable_ns: int = 0  # device time less communication, copies and backlog that could not borrow
    classified_ns: int = 0
    named_ns: int = 0
    dropped: Mapping[str, int] = field(default_factory=dict)  # reason → count
    model_ns: int = 0
    model_known_ns: int = 0
    model_flops: int = 0
    model_peak_ns: int = 0
    compared_ns: int = 0
    disagreed_ns: int = 0
    layout_ns: int | None = None
    python_events: int | None = None  # Python functions on the host's threads: stacks were switched on
    waits: int | None = None  # the host's blocking calls: synchronizes, and copies that return when they are done
    wait_ns: int | None = None
    longest_wait_ns: int | None = None


@dataclass(frozen=True, slots=True)
class Padding:
    """Real and padded work of the batches seen in the window: sums of L, B·Lmax, L², B·Lmax².

    ``lengths`` are the distinct real lengths, ascending, each with how many sequences had it; () where not told.
    ``shapes`` are the padded batches: (sequences, padded length, how many such batches), ascending; () where not told.
    Of ``coarsened`` sequences the length in ``lengths`` is rounded up (the sums are exact); of ``unread`` batches the
    lengths could not be read, and they are in none of the other figures.
    """

    batches: int
    real_tokens: int
    padded_tokens: int
    real_squared: int
    padded_squared: int
    lengths: tuple[tuple[int, int], ...] = ()
    shapes: tuple[tuple[int, int, int], ...] = ()
    coarsened: int = 0
    unread: int = 0


@dataclass(frozen=True, slots=True)
class Window:
    """One profiler window of one process: the unit that travels, is stored once, and is forgotten as one.

    ``start_unix_ns`` is 0 where an imported trace has no clock base; answers show that as null.
    """

    uid: str  # 32 hex digits
    process: Process
    start_unix_ns: int
    duration_ns: int
    trigger: Trigger
    collector: str
    devices: tuple[DeviceWindow, ...]
    kernels: tuple[KernelStat, ...]
    ledger: Ledger
    steps: int | None = None
    represents_ns: int | None = None
    shapes_recorded: bool = False
    cost: Cost | None = None
    padding: Padding | None = None
    first_step: int | None = None  # optimizer steps of the process before the window: the same on all ranks of a job
    collectives: tuple[Collective, ...] = ()
    graphs: tuple[Graph, ...] = ()
    budget: BudgetState | None = None  # as it stood once this window was paid for

    @property
    def span_ns(self) -> int:
        """Span summed over devices."""
        return sum(d.span_ns for d in self.devices)

    @property
    def busy_ns(self) -> int:
        """Busy time summed over devices."""
        return sum(d.busy_ns for d in self.devices)
