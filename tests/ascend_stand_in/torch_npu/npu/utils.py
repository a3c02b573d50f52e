"""Versions."""

from torch_npu import _faults


def get_cann_version(module: str = "CANN") -> str:
    """The version of a part of CANN."""
    _faults.fail("old")
    return {"CANN": "8.3.RC1"}.get(module, "")
