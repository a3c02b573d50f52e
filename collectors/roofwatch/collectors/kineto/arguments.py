"""The arguments of events that the reader takes, as Kineto names them; shapes and inputs stay as they are written."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Raw, Struct

from roofwatch.collectors.kineto.tables import UNKNOWN


class OpArgs(Struct, gc=False):
    """Of an operator."""

    shapes: Raw = msgspec.field(name="Input Dims", default=Raw(b""))
    dtypes: Raw = msgspec.field(name="Input type", default=Raw(b""))
    strides: Raw = msgspec.field(name="Input Strides", default=Raw(b""))
    concrete: Raw = msgspec.field(name="Concrete Inputs", default=Raw(b""))
    sequence: Any = msgspec.field(name="Sequence number", default=UNKNOWN)


class HostArgs(Struct, gc=False):
    """Of a call of the runtime or the driver."""

    correlation: Any = None
    grid: Any = None
    block: Any = None
    kernel: Any = None


class DeviceArgs(Struct, gc=False):
    """Of a device record."""

    correlation: Any = None
    device: Any = None
    grid: Any = None
    block: Any = None
    bytes: Any = None
    graph: Any = msgspec.field(name="graph id", default=UNKNOWN)
    node: Any = msgspec.field(name="graph node id", default=UNKNOWN)


op_args = msgspec.json.Decoder(list[OpArgs])
host_args = msgspec.json.Decoder(list[HostArgs])
device_args = msgspec.json.Decoder(list[DeviceArgs])
