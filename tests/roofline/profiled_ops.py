"""Live ops on the CPU, as a real trace records them."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from roofwatch.model.shapes import Call, call_of

torch = pytest.importorskip("torch")


def profiled(work: Callable[[], None]) -> list[Call]:
    """The ops that a piece of work calls, as a real trace records them."""
    activities = [torch.profiler.ProfilerActivity.CPU]
    with torch.profiler.profile(activities=activities, record_shapes=True, acc_events=True) as profile:
        work()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        profile.export_chrome_trace(str(path))
        events = json.loads(path.read_text())["traceEvents"]
    calls = []
    for event in events:
        if event.get("cat") == "cpu_op":
            args = event["args"]
            keys = ("Input Dims", "Input type", "Input Strides", "Concrete Inputs")
            call = call_of(event["name"], *(json.dumps(args[k]) if k in args else None for k in keys))
            calls.append(call or Call(event["name"]))
    return calls
