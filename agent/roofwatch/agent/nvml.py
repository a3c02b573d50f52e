"""How NVIDIA devices run: clock, power, temperature and what holds the clock down, asked of the driver's library.

A library that is not there is normal: then nothing is read, and nothing is said but one line. The driver may answer
slowly or never, so it is asked on a thread that nobody waits for.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any

from roofwatch.agent.log import Log
from roofwatch.model.record import DeviceState

States = dict[str, DeviceState]  # by the device's uuid, as its process told it
WAITING_MOST = 32  # readings asked for and not made yet; a driver that hangs gets no more to do
STOP_WITHIN_S = 1.0
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


def together(readings: Iterable[Mapping[str, DeviceState]]) -> States:
    """One state a device: means of what was read, the highest clock and limit, every reason seen; None: never read."""
    found: dict[str, list[DeviceState]] = {}
    for reading in readings:
        for uuid, state in reading.items():
            found.setdefault(uuid, []).append(state)
    return {uuid: _mean(states) for uuid, states in found.items()}


def _mean(states: list[DeviceState]) -> DeviceState:
    def mean(name: str) -> float | None:
        known = [value for s in states if (value := getattr(s, name)) is not None]
        return sum(known) / len(known) if known else None

    read = [s.throttle for s in states if s.throttle is not None]
    names = dict.fromkeys(name for text in read for name in text.split(",") if name)
    values = {name: mean(name) for name in ("clock_hz", "clock_max_hz", "power_w", "power_limit_w", "temperature_c")}
    return DeviceState(**values, throttle=",".join(names) if read else None)


class Nvml:
    """Reads on a thread of its own, from the first reading that is asked for until ``stop``."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._waiting: queue.Queue[tuple[tuple[str, ...], Callable[[States], None]] | None] = queue.Queue(WAITING_MOST)
        self._thread: threading.Thread | None = None

    def ask(self, uuids: Iterable[str], told: Callable[[States], None]) -> None:
        """Have these devices read and ``told``, on the thread; it is not told where too many readings wait."""
        wanted = tuple(uuids)
        if not wanted:
            return
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="roofwatch-nvml", daemon=True)
            self._thread.start()
        with suppress(queue.Full):
            self._waiting.put_nowait((wanted, told))

    def stop(self) -> None:
        """End the thread; one that hangs in the driver ends with the process."""
        if self._thread is None:
            return
        with suppress(queue.Full):
            self._waiting.put_nowait(None)
        self._thread.join(STOP_WITHIN_S)

    def _run(self) -> None:
        import pynvml  # noqa: PLC0415 - 6,000 lines, for machines with such devices only

        try:
            pynvml.nvmlInit()
        except pynvml.NVMLError as error:
            self._log.info("no_nvml", detail=error)
            return
        handles: dict[str, Any] = {}
        while (asked := self._waiting.get()) is not None:
            uuids, told = asked
            told({uuid: state for uuid in uuids if (state := _read(pynvml, handles, uuid)) is not None})
        with suppress(pynvml.NVMLError):
            pynvml.nvmlShutdown()


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
