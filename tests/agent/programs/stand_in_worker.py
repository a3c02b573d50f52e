"""A parse worker whose reader does what the trace's first word says: the ways in which a reader can end."""

from __future__ import annotations

import os
import signal
import sys
import time

from roofwatch.agent import worker
from roofwatch.collectors.base import WindowContext
from roofwatch.model.errors import RoofwatchError
from roofwatch.model.histogram import Histogram
from roofwatch.model.kinds import Kind
from roofwatch.model.record import (
    Bound,
    Device,
    DeviceWindow,
    Evidence,
    KernelStat,
    Ledger,
    Signature,
    Vendor,
    Window,
)


def _spin() -> None:
    while True:
        pass


def _sentence() -> None:
    raise RoofwatchError("the trace is broken at byte 7")


def _fault() -> None:
    raise ZeroDivisionError("a fault of the reader")


VERBS = {
    "ok": lambda: None,
    "hang": lambda: time.sleep(600),
    "slow": lambda: time.sleep(0.6),
    "spin": _spin,
    "memory": lambda: bytearray(2 << 30),
    "crash": lambda: signal.raise_signal(signal.SIGSEGV),
    "leave": lambda: os._exit(0),
    "sentence": _sentence,
    "fault": _fault,
}


def read(fd: int, form: str, context: WindowContext) -> Window:  # noqa: ARG001 - the signature of a reader
    """``VERB [EVENTS]``."""
    verb, events = (os.pread(fd, 4096, 0).decode() + " 100").split()[:2]
    VERBS[verb]()
    return window(int(events), context)


def window(events: int, context: WindowContext) -> Window:
    """One kernel of 5 calls and 1 ms on the process's accelerator, else on a CPU."""
    device = next((d for d in context.devices if d.vendor is not Vendor.CPU), Device(Vendor.CPU, "cpu"))
    signature = Signature("aten::mm", Kind.MATMUL, op="aten::mm")
    stat = KernelStat(
        signature, 0, 5, 1_000_000, 100_000, 300_000, Histogram.from_values([200_000] * 5), Bound.UNKNOWN, Evidence.NONE
    )
    return Window(
        uid=context.uid,
        process=context.process,
        start_unix_ns=time.time_ns(),
        duration_ns=50_000_000,
        trigger=context.trigger,
        collector="stand-in",
        devices=(DeviceWindow(device, 50_000_000, 1_000_000),),
        kernels=(stat,),
        ledger=Ledger(events, 5, 1_000_000, has_host_events=True),
        steps=context.steps,
        represents_ns=context.represents_ns,
        cost=context.cost,
    )


if __name__ == "__main__":
    worker.main(sys.argv[1:], read)
