"""The words of a record that are one of a few: each is told as its text, on the wire and in answers."""

from __future__ import annotations

from enum import StrEnum


class Vendor(StrEnum):
    """Who made the device."""

    NVIDIA = "nvidia"
    ASCEND = "ascend"
    AMD = "amd"
    CPU = "cpu"


class Phase(StrEnum):
    """Which part of a training step launched the kernel."""

    FORWARD = "forward"
    BACKWARD = "backward"
    OPTIMIZER = "optimizer"
    NONE = "none"


class Bound(StrEnum):
    """The roofline verdict of a kernel."""

    COMPUTE = "compute"
    MEMORY = "memory"
    LATENCY = "latency"
    COMMUNICATION = "communication"
    COPY = "copy"
    HOST = "host"
    UNKNOWN = "unknown"


class Evidence(StrEnum):
    """What a verdict rests on, strongest first."""

    COUNTERS = "counters"
    SHAPES = "shapes"
    BORROWED = "borrowed"
    NAME = "name"
    DEFINITION = "definition"
    NONE = "none"


class Trigger(StrEnum):
    """Why a window was taken."""

    PERIODIC = "periodic"
    REQUESTED = "requested"
    SYNCHRONIZED = "synchronized"
    IMPORTED = "imported"


class Cause(StrEnum):
    """Why a device was idle; the causes of a device add up to its idle time exactly."""

    INPUT = "input"
    COPY = "copy"
    SYNC = "sync"
    COMMUNICATION = "communication"
    LAUNCH_BOUND = "launch_bound"
    LAUNCH_GAP = "launch_gap"
    HOST = "host"
    UNKNOWN = "unknown"
