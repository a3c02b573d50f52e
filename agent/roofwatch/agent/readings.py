"""How a node's devices run, asked of their drivers' own tools on a thread that nobody waits for.

A tool that is not there is normal, one may answer slowly or never, and what a job says of its devices is believed only
as far as naming one: a name that the tool does not know is not read.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import fields, replace

from roofwatch.agent.log import Log
from roofwatch.model.record import Device, DeviceState, Vendor

States = dict[str, DeviceState]  # by ``name_of`` the device
Read = Callable[[str], DeviceState | None]  # by name; None where the tool does not know the device
WAITING_MOST = 32  # readings asked for and not made yet; a driver that hangs gets no more to do
STOP_WITHIN_S = 1.0
_COUNTS = ("ecc_corrected", "ecc_uncorrected")  # counters, which only grow: the last is told


def name_of(device: Device) -> str | None:
    """What a tool knows a device by: a uuid, or of an Ascend device the number in ``/dev/davinciN``; None: nothing."""
    if device.vendor is Vendor.NVIDIA:
        return device.uuid or None
    if device.vendor is Vendor.ASCEND and device.physical is not None:
        return str(device.physical)
    return None


def together(readings: Iterable[Mapping[str, DeviceState]]) -> States:
    """One state a device: means of what was read, every reason seen, the last of what is counted; None: never read."""
    found: dict[str, list[DeviceState]] = {}
    for reading in readings:
        for name, state in reading.items():
            found.setdefault(name, []).append(state)
    return {name: _one(states) for name, states in found.items()}


def _one(states: list[DeviceState]) -> DeviceState:
    def known(name: str) -> list[float]:
        return [value for s in states if (value := getattr(s, name)) is not None]

    def mean(name: str) -> float | None:
        values = known(name)
        return sum(values) / len(values) if values else None

    read = [s.throttle for s in states if s.throttle is not None]
    names = dict.fromkeys(name for text in read for name in text.split(",") if name)
    means = {name: mean(name) for name in ("clock_hz", "clock_max_hz", "power_w", "power_limit_w", "temperature_c")}
    corrected, uncorrected = (int(max(values)) if (values := known(name)) else None for name in _COUNTS)
    throttle = ",".join(names) if read else None
    return DeviceState(**means, throttle=throttle, ecc_corrected=corrected, ecc_uncorrected=uncorrected)


def filled(own: DeviceState | None, read: DeviceState) -> DeviceState:
    """What a profile tells of its device, and what was read of the rest."""
    if own is None:
        return read
    return replace(own, **{f.name: getattr(read, f.name) for f in fields(own) if getattr(own, f.name) is None})


class Readings:
    """Reads on a thread of its own, from the first reading that is asked for until ``stop``."""

    def __init__(self, name: str, begin: Callable[[Log], Read | None], log: Log) -> None:
        """``begin`` finds the tool, on the thread; None where there is none, which it has told."""
        self._name, self._begin, self._log = name, begin, log
        self._waiting: queue.Queue[tuple[tuple[str, ...], Callable[[States], None]] | None] = queue.Queue(WAITING_MOST)
        self._thread: threading.Thread | None = None

    def ask(self, names: Iterable[str], told: Callable[[States], None]) -> None:
        """Have these devices read and ``told``, on the thread; it is not told where too many readings wait."""
        wanted = tuple(dict.fromkeys(names))  # a job may say that it has one device many times
        if not wanted:
            return
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name=f"roofwatch-{self._name}", daemon=True)
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
        read = self._begin(self._log)
        if read is None:
            return
        while (asked := self._waiting.get()) is not None:
            names, told = asked
            told({name: state for name in names if (state := read(name)) is not None})
