"""Stand-in: see README.md."""

import os
import sys

_autoloads = os.environ.get("TORCH_DEVICE_BACKEND_AUTOLOAD", "1")
os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"  # torch would import this package while it is being imported

from torch_npu import _faults, npu, profiler  # noqa: E402 - see above

__all__ = ["npu", "profiler"]
__version__ = "2.1.0" if "old" in _faults.wanted() else "2.13.0"

if "torch" in sys.modules or not os.environ.get("ASCEND_STAND_IN_LIGHT"):
    import torch

    torch.utils.rename_privateuse1_backend("npu")
    torch._register_device_module("npu", npu)


def _autoload() -> None:
    """What torch calls when it is imported."""


os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"] = _autoloads
