"""Which NPUs this process uses, and which versions: what the ``hello`` says of them. Nothing here starts a device."""

import os
from typing import Any, Dict, List, Mapping, Optional

from .npu_names import Vendor

_DRIVER = "/usr/local/Ascend/driver/version.info"  # of the host; containers mount it
_INSTALLED = "/etc/ascend_install.info"  # names another folder for the driver, where there is one
_MOST = 64 * 1024


def devices(vendor: Vendor) -> List[Dict[str, Any]]:
    """The NPUs on which this process holds memory, and the one it is set to. Call once it has initialised torch.npu.

    ``units`` are AI (cube) cores, ``vector_units`` vector cores; a chip that has both in one core tells one number.
    """
    current = vendor.current_device()
    driver = driver_version()
    return [
        _device(vendor, index, driver)
        for index in range(vendor.device_count())
        if index == current or vendor.memory_reserved(index)
    ]


def _device(vendor: Vendor, index: int, driver: Optional[str]) -> Dict[str, Any]:
    properties = vendor.properties(index)
    uuid = getattr(properties, "uuid", None)
    return {
        "vendor": "ascend",
        "model": str(vendor.device_name(index)),
        "uuid": str(uuid) if uuid else None,
        "index": index,
        "memory_bytes": _number(properties, "total_memory"),
        "units": _number(properties, "cube_core_num"),
        "vector_units": _number(properties, "vector_core_num"),
        "physical": physical(index),
        "driver": driver,
    }


def physical(index: int, environ: Mapping[str, str] = os.environ, folder: str = "/dev") -> Optional[int]:
    """N of ``/dev/davinciN``, by which the node's own tools know a device; None where that cannot be told.

    A process numbers the devices that it sees: those of a container in order, and of these the ones that it chose.
    """
    try:
        there = sorted(
            int(name[7:]) for name in os.listdir(folder) if name.startswith("davinci") and name[7:].isdigit()
        )
        chosen = [int(word) for word in environ.get("ASCEND_RT_VISIBLE_DEVICES", "").split(",") if word.strip()]
        return there[chosen[index] if chosen else index]
    except (OSError, ValueError, IndexError):
        return None


def _number(properties: Any, name: str) -> Optional[int]:
    value = getattr(properties, name, None)
    return int(value) if value else None


def versions(torch_npu: Any, vendor: Vendor) -> Dict[str, str]:
    """Versions of torch_npu and CANN, where they can be told."""
    found = {"torch_npu": getattr(torch_npu, "__version__", None), "cann": cann_version(vendor)}
    return {name: str(version) for name, version in found.items() if version}


def cann_version(vendor: Vendor) -> Optional[str]:
    """As torch_npu tells it, else as the toolkit's own file does."""
    try:
        told = vendor.version("CANN") if vendor.version is not None else None
    except Exception:
        told = None
    home = os.environ.get("ASCEND_HOME_PATH") or os.environ.get("ASCEND_TOOLKIT_HOME") or ""
    return told or _value(os.path.join(home, "version.cfg"), "version") or _toolkit(home)


def _toolkit(home: str) -> Optional[str]:
    for machine in ("aarch64-linux", "x86_64-linux", "arm64-linux"):
        found = _value(os.path.join(home, machine, "ascend_toolkit_install.info"), "version") if home else None
        if found:
            return found
    return None


def driver_version() -> Optional[str]:
    """As the driver's own file tells it; None in a container that does not see the file."""
    folder = _value(_INSTALLED, "Driver_Install_Path_Param")
    other = os.path.join(folder, "driver", "version.info") if folder else _DRIVER
    return _value(other, "Version") or _value(_DRIVER, "Version")


def _value(path: str, key: str) -> Optional[str]:
    """The value of ``key=value`` in a small text file, None where there is none."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            for line in file.read(_MOST).splitlines():
                name, equals, value = line.partition("=")
                if equals and name.strip().lower() == key.lower() and value.strip():
                    return value.strip()
    except OSError:
        pass
    return None
