"""A device that computes nothing: the job's tensors stay on the CPU."""

from __future__ import annotations

import time
from types import SimpleNamespace

from torch_npu import _faults
from torch_npu.npu import utils

__all__ = ["NPUGraph", "utils"]

_state = {"initialized": False, "device": 0, "capturing": False}


def is_available() -> bool:
    """Whether there is an NPU."""
    return True


def is_initialized() -> bool:
    """Whether this process has begun to use it."""
    return _state["initialized"]


def _lazy_init() -> None:
    _state["initialized"] = True


def set_device(device: int) -> None:
    """Use it."""
    _lazy_init()
    _state["device"] = device


def current_device() -> int:
    """The device in use."""
    _lazy_init()
    return _state["device"]


def device_count() -> int:
    """Devices of the node."""
    return 8


def memory_reserved(device: int | None = None) -> int:
    """Bytes of this process on a device."""
    return 1 << 30 if device in (None, _state["device"]) and _state["initialized"] else 0


def get_device_name(device: int | None = None) -> str:
    """The chip."""
    del device
    return "Ascend910B2"


def get_device_properties(device: int | None = None) -> SimpleNamespace:
    """Its cores and memory."""
    del device
    _lazy_init()
    return SimpleNamespace(name="Ascend910B2", total_memory=64 << 30, cube_core_num=24, vector_core_num=48)


def synchronize() -> None:
    """Wait for the device; an error inside a capture, as on a real one."""
    if _state["capturing"]:
        raise RuntimeError("[ERROR] ERR00100 the stream is capturing: 107027")
    time.sleep(0.005)
    _faults.happened("synchronize")


def is_current_stream_capturing() -> bool:
    """Whether a graph is being captured."""
    return _state["capturing"]


class NPUGraph:
    def capture_begin(self, pool: object = None, capture_error_mode: str = "global") -> None:
        del pool, capture_error_mode
        _state["capturing"] = True
        _faults.happened("capture")

    def capture_end(self) -> None:
        _state["capturing"] = False

    def replay(self) -> None:
        pass
