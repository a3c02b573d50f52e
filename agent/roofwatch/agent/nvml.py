"""How NVIDIA devices run, by the driver's library: clock, power, temperature, throttling, errors of memory.

A library that is not there is normal: then nothing is read, and nothing is said but one line.
"""

from __future__ import annotations

import atexit
from contextlib import suppress
from typing import Any

from roofwatch.agent.log import Log
from roofwatch.agent.readings import Read
from roofwatch.model.record import DeviceState

# Bits of nvmlDeviceGetCurrentClocksEventReasons (nvml.h). Idle is no reason, a clock somebody set is told as one.
REASONS = {
    0x002: "user_clocks",
    0x004: "power_cap",
    0x008: "hardware",
    0x010: "sync_boost",
    0x020: "thermal",
    0x040: "thermal",
    0x080: "power_brake",
    0x100: "display_clocks",
}


def throttle_of(bits: int) -> str:
    """The reasons' names with commas between, "" for none."""
    return ",".join(dict.fromkeys(name for bit, name in REASONS.items() if bits & bit))


def begin(log: Log) -> Read | None:
    """What reads a device by its uuid; None on a machine without the library, or without such devices."""
    import pynvml  # noqa: PLC0415 - 6,000 lines, for machines with such devices only

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        log.info("no_nvml", detail=error)
        return None

    def close() -> None:
        with suppress(pynvml.NVMLError):
            pynvml.nvmlShutdown()

    atexit.register(close)
    handles: dict[str, Any] = {}
    return lambda uuid: _read(pynvml, handles, uuid)


def _read(nvml: Any, handles: dict[str, Any], uuid: str) -> DeviceState | None:
    """A device's state; None where the driver does not know it."""
    handle = handles.get(uuid)
    if handle is None:
        handle = _handle(nvml, uuid)
        if handle is None:
            return None
        handles[uuid] = handle  # only what there is: what a job makes up is not remembered

    def read(name: str, *arguments: Any, scale: float = 1.0) -> float | None:
        try:
            return float(getattr(nvml, name)(handle, *arguments)) * scale
        except nvml.NVMLError:  # this device, or this driver, does not tell
            return None

    def count(kind: int) -> int | None:
        found = read("nvmlDeviceGetTotalEccErrors", kind, nvml.NVML_VOLATILE_ECC)
        return None if found is None else int(found)

    bits = read("nvmlDeviceGetCurrentClocksEventReasons")
    if bits is None:  # its name before driver 535
        bits = read("nvmlDeviceGetCurrentClocksThrottleReasons")
    return DeviceState(
        clock_hz=read("nvmlDeviceGetClockInfo", nvml.NVML_CLOCK_SM, scale=1e6),
        clock_max_hz=read("nvmlDeviceGetMaxClockInfo", nvml.NVML_CLOCK_SM, scale=1e6),
        power_w=read("nvmlDeviceGetPowerUsage", scale=1e-3),
        power_limit_w=read("nvmlDeviceGetEnforcedPowerLimit", scale=1e-3),
        temperature_c=read("nvmlDeviceGetTemperature", nvml.NVML_TEMPERATURE_GPU),
        throttle=None if bits is None else throttle_of(int(bits)),
        ecc_corrected=count(nvml.NVML_MEMORY_ERROR_TYPE_CORRECTED),
        ecc_uncorrected=count(nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED),
    )


def _handle(nvml: Any, uuid: str) -> Any:
    """A process's runtime tells a uuid without the prefix that the driver wants. A slice's device is its card."""
    names = (uuid,) if uuid.startswith(("GPU-", "MIG-")) else (f"GPU-{uuid}", f"MIG-{uuid}")
    for name in names:
        try:
            handle = nvml.nvmlDeviceGetHandleByUUID(name.encode())
            return nvml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(handle) if name.startswith("MIG-") else handle
        except nvml.NVMLError:
            continue
    return None
