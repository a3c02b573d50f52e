"""Where a window was taken: the device with its ceilings, the node, the process."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from roofwatch.model.ids import content_id
from roofwatch.model.words import Vendor


@dataclass(frozen=True, slots=True)
class Peak:
    """One ceiling of a device: FLOP/s of a precision on a unit, or bytes/s; ``source`` says where it is from."""

    value: float
    source: str  # measured | reported | datasheet | inferred


@dataclass(frozen=True, slots=True)
class Peaks:
    """The ceilings of a device. ``flops`` is keyed by (precision, unit), e.g. ("bf16", "matrix")."""

    flops: Mapping[tuple[str, str], Peak] = field(default_factory=dict)
    bandwidth: Peak | None = None


@dataclass(frozen=True, slots=True)
class Device:
    """One accelerator, or a node's CPU. ``index`` is logical (eight ranks may all say 0); identity is ``uuid``."""

    vendor: Vendor
    model: str
    uuid: str | None = None
    index: int | None = None
    memory_bytes: int | None = None
    units: int | None = None  # SMs, CUs, AI cores, or threads of a CPU
    driver: str | None = None
    inferred: bool = False  # the model was guessed from unit count and memory
    peaks: Peaks = Peaks()
    # Ascend: vector cores, where the process told them (``units`` are cube cores). A verdict needs them where it is
    # made; they are no part of the record.
    vector_units: int | None = field(default=None, compare=False)
    physical: int | None = field(
        default=None, compare=False
    )  # Ascend: N of /dev/davinciN; the same, of the node's tools


@dataclass(frozen=True, slots=True)
class Node:
    """One machine since its last boot."""

    host: str
    boot_id: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Process:
    """One registered process; (node, pid, start) names it."""

    node: Node
    pid: int
    start_unix_ns: int | None = None
    user: str | None = None
    job: str | None = None  # e.g. "slurm:1234"
    container: str | None = None
    rank: int | None = None
    local_rank: int | None = None
    world_size: int | None = None
    model: str | None = None
    versions: Mapping[str, str] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)

    @property
    def id(self) -> int:
        """63-bit id of the process."""
        return content_id("process", self.node.host, self.node.boot_id, self.pid, self.start_unix_ns)
