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


def read(fd: int, form: str, context: WindowContext) -> Window:
    """``ok EVENTS``, or a misbehaviour."""
    words = os.pread(fd, 4096, 0).decode().split()
    verb = words[0]
    if verb == "hang":
        time.sleep(600)
    elif verb == "spin":
        while True:
            pass
    elif verb == "memory":
        return bytearray(2 << 30)  # type: ignore[return-value]
    elif verb == "crash":
        os.kill(os.getpid(), signal.SIGSEGV)
    elif verb == "leave":
        os._exit(0)
    elif verb == "sentence":
        raise RoofwatchError("the trace is broken at byte 7")
    elif verb == "fault":
        raise ZeroDivisionError("a fault of the reader")
    elif verb == "change":
        time.sleep(0.5)
    elif verb == "slow":
        time.sleep(float(words[1]))
    return window(int(words[1]) if verb == "ok" else 100, context)


def window(events: int, context: WindowContext) -> Window:
    """One kernel of 5 calls and 1 ms on one CPU."""
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
        devices=(DeviceWindow(Device(Vendor.CPU, "cpu"), 50_000_000, 1_000_000),),
        kernels=(stat,),
        ledger=Ledger(events, 5, 1_000_000, has_host_events=True),
        steps=context.steps,
        represents_ns=context.represents_ns,
        cost=context.cost,
    )


if __name__ == "__main__":
    worker.main(sys.argv[1:], read)
