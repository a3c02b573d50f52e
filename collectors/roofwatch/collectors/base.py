"""What every reader hands on: a raw profile, grouped but not yet judged.

A reader knows a source's format; it does not know formulas, peaks or the wire. ``normalize`` turns its groups into
signatures, ``classify`` gives the verdicts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from roofwatch.model.histogram import Histogram
from roofwatch.model.record import (
    Collective,
    Cost,
    Device,
    Graph,
    IdleCause,
    Padding,
    Phase,
    Process,
    Trigger,
)

BORROWED, CHANGED = "borrowed", "changed"  # what became of a window that was to borrow shapes


class Category(StrEnum):
    """What sort of device record a group holds."""

    KERNEL = "kernel"
    MEMCPY = "memcpy"
    MEMSET = "memset"
    CPU_OP = "cpu_op"


@dataclass(frozen=True, slots=True)
class Limits:
    """How much of a hostile or huge input a reader takes before it stops and counts the rest as dropped."""

    max_events: int = 20_000_000
    max_bytes: int = 8 << 30  # decompressed
    max_groups: int = 200_000
    max_name: int = 16_384  # characters of a kernel name, of which real ones have up to 5,200; longer ones are cut


@dataclass(frozen=True, slots=True)
class Grid:
    """How a kernel was launched. ``x`` and ``y`` are None where the source counts work items instead of blocks."""

    blocks: int
    threads: int | None = None  # of a block
    x: int | None = None
    y: int | None = None


@dataclass(frozen=True, slots=True)
class Pipes:
    """What an Ascend core's pipes were busy with: sums of ratio × duration over a group's calls, in ns.

    ``measured_ns`` is the duration of the calls that have metrics. Pipes overlap, so the parts may exceed it. ``cube``
    parts are of AI cores (or fused cores), ``vector`` parts of vector cores; None where the metric set has no such
    column. ``occupied_ns`` is cube utilisation × duration: how much of the time cores were taken, not used. Where that
    is not told, ``core_ns`` is: the time of all cube cores together (cycles ÷ clock). ``moved_bytes`` is the measured
    traffic with the device's memory, what L2 answered left out.
    """

    measured_ns: int
    mac_ns: float | None = None
    cube_scalar_ns: float | None = None
    mte1_ns: float | None = None
    cube_mte2_ns: float | None = None
    fixpipe_ns: float | None = None
    vec_ns: float | None = None
    vector_scalar_ns: float | None = None
    vector_mte2_ns: float | None = None
    mte3_ns: float | None = None
    occupied_ns: float | None = None
    core_ns: float | None = None
    moved_bytes: float | None = None


@dataclass(slots=True)
class RawGroup:
    """Device records that share kernel, op, phase, inputs and place. Texts are as the source wrote them (JSON).

    Records without inputs, and those launched before the window, share their grid as well.
    """

    device: int  # position in RawProfile.devices
    kernel: str
    category: Category
    op: str | None
    shapes: str | None  # JSON text of "Input Dims"
    dtypes: str | None  # JSON text of "Input type"
    strides: str | None  # JSON text of "Input Strides"
    concrete: str | None  # JSON text of "Concrete Inputs"
    phase: Phase
    module: str | None
    backlog: bool  # launched before the window
    linked: bool  # tied to an op (always true for cpu_op groups)
    calls: int
    total_ns: int
    min_ns: int
    max_ns: int
    histogram: Histogram
    step_calls: int = 0  # launched inside the source's steps, or inside the bounds of a live window
    step_ns: int = 0
    blocks: int | None = None  # smallest launch grid, in blocks
    grid: Grid | None = None  # of all records, where they share one
    moved_bytes: int | None = None  # of all calls, for copies where the source tells
    graph: int | None = None  # position in RawProfile.graphs of the graph that launched these records
    arguments: str | None = None  # of a collective, compact JSON: collective, group, group_size, dtype
    type: str | None = None  # Ascend: what sort of kernel it is (MatMulV3); ``shapes`` and ``dtypes`` are its inputs'
    core: str | None = None  # Ascend: AI_CORE | AI_VECTOR_CORE | MIX_AIC | MIX_AIV | AI_CPU | …, as the source names it
    formats: str | None = None  # JSON list of the inputs' formats
    outputs: str | None = None  # JSON [shapes, dtypes, formats] of the outputs
    pipes: Pipes | None = None
    hf32: bool | None = None  # Ascend: whether fp32 products may be done in HF32, where the source tells
    inserted: bool = False  # Ascend: another operator needed it (a relayout of its operand), nobody called it by itself
    op_calls: int | None = None  # calls of the op behind these records; fewer where one op launches several


@dataclass(slots=True)
class RawDevice:
    """A device as the source describes it; "" and None where it does not."""

    vendor: str  # nvidia | amd | ascend | cpu | "" where the source does not tell
    name: str
    index: int | None = None
    units: int | None = None
    memory_bytes: int | None = None
    clock_hz: float | None = None
    span_ns: int = 0
    busy_ns: int = 0
    causes: tuple[IdleCause, ...] = ()
    exposed_copy_ns: int = 0
    exposed_communication_ns: int = 0


@dataclass(slots=True)
class RawProfile:
    """One capture of one process, read."""

    collector: str
    devices: list[RawDevice]
    groups: list[RawGroup]
    start_unix_ns: int  # 0 where the source does not tell what its clock counts from
    duration_ns: int
    steps: int | None
    has_host_events: bool
    shapes_recorded: bool
    events_read: int
    pid: int | None = None
    rank: int | None = None
    world_size: int | None = None
    dropped: dict[str, int] = field(default_factory=dict)
    problem: str | None = None  # one sentence when the input was damaged but part of it could be read
    collectives: list[Collective] = field(default_factory=list)  # start 0 at the profile's start; bounded
    graphs: list[Graph] = field(default_factory=list)
    waits: tuple[int, int, int] | None = None  # the host's blocking calls: count, total and longest in ns
    python_events: int = 0  # Python functions recorded on the host's threads: stacks were switched on
    step_ns: tuple[int, ...] = ()  # lengths of the source's own steps, in order, the first thousand of them
    unused: RawDevice | None = None  # an accelerator over the window, where nothing was launched for any
    lent: bytes = b""  # its step, for windows that recorded no shapes (``kineto.lending``)
    borrowed: str = ""  # ``BORROWED`` or ``CHANGED`` where another's was offered


@dataclass(frozen=True, slots=True)
class Found:
    """What was read at a path, and from which files: in a folder those that hold the device records."""

    profile: RawProfile
    files: tuple[Path, ...]


@dataclass(frozen=True, slots=True)
class WindowContext:
    """What the agent (or the importer) knows about a window beside the trace itself."""

    uid: str
    process: Process
    trigger: Trigger
    devices: tuple[Device, ...] = ()  # as the hook registered them, with measured peaks where calibrated
    steps: int | None = None
    first_step: int | None = None
    represents_ns: int | None = None
    cost: Cost | None = None
    padding: Padding | None = None
    peaks_files: tuple[str, ...] = ()  # calibrated peaks beside the data file
    extra: Mapping[str, str] = field(default_factory=dict)
    bounds: tuple[int, int] | None = None  # begin and end in Unix nanoseconds, from who took the window
    graphs: bytes = b""  # what the hook told of graphs, for ``graph_logs``: untrusted JSON
    lend: bool = False  # tell the window's step, for others that go without shapes
    lent: bytes = b""  # the step of such a window, as it was told
