"""Whatever a trace holds: what the reader lets through is taken by a store's checks, and what it changed is counted."""

from __future__ import annotations

import io
from collections.abc import Callable

import pytest

from roofwatch.collectors import registry
from roofwatch.collectors.base import RawProfile, WindowContext
from roofwatch.collectors.pipeline import window_of
from roofwatch.model.record import Node, Process, Trigger, Window
from roofwatch.proto import codec
from roofwatch.store.unpack import Unpacker

DAY_US = 86_400e6
BASE = 1_700_000_000_000_000_000
H100 = {"id": 0, "name": "NVIDIA H100 80GB HBM3", "numSms": 132, "totalGlobalMem": 85_000_000_000}


@pytest.fixture(autouse=True)
def _no_calibration(monkeypatch, tmp_path):
    """No calibration of the machine that runs the tests."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def stored(raw: RawProfile) -> Window:
    """The window of a profile, sealed and unpacked as by agent and store."""
    window = window_of(raw, WindowContext("0" * 32, Process(Node("n"), 1), Trigger.PERIODIC))
    Unpacker().unpack(codec.seal(codec.segment([window]), "agent", "boot", 1))
    return window


def sound(trace) -> None:
    """A step with an op, its launch and its kernel."""
    trace.note("ProfilerStep#1", 0, 200)
    trace.op("aten::mm", 0, 20, shapes=[[4, 4], [4, 4]]).call("cudaLaunchKernel", 5, 3, 1)
    trace.kernel("gemm", 30, 50, 1, grid=[1, 2, 3], block=[32, 1, 1])


def launched(trace, op: str, kernel: str, shapes=((4, 4), (4, 4)), **args) -> None:
    """An op with a launch and a kernel after the sound ones."""
    trace.op(op, 100, 20, shapes=[list(s) for s in shapes], **args).call("cudaLaunchKernel", 105, 3, 9)
    trace.kernel(kernel, 130, 5, 9)


NAMES = {
    "NUL in a kernel's name": lambda t: t.kernel("a\0b", 100, 5, 3),
    "a kernel's name of 64 KB": lambda t: t.kernel("x" * 70_000, 100, 5, 3),
    "a kernel without a name": lambda t: t.kernel("", 100, 5, 3),
    "a kernel's name of blanks": lambda t: t.kernel(" \n", 100, 5, 3),
    "NUL in an op's name": lambda t: launched(t, "aten::\0mm", "k"),
    "an op without a name": lambda t: launched(t, "", "k"),
    "NUL in a module": lambda t: t.add("python_function", "nn.Module: A\0B_0", 0, 60),
    "NUL in an annotation": lambda t: t.note("a\0b", 0, 60),
    "NUL in a call": lambda t: t.call("cudaLaunch\0Kernel", 500, 3, 9).kernel("k", 620, 5, 9),
}


@pytest.mark.parametrize("change", NAMES.values(), ids=NAMES)
def test_names(trace, read_trace, change):
    """A name that no column takes is changed, and the event counted."""
    sound(trace)
    change(trace)
    window = stored(read_trace(trace))
    assert window.ledger.dropped["changed_name"] == 1
    assert all(k.signature.kernel.strip() and len(k.signature.kernel) <= 16_384 for k in window.kernels)


TIMES = {
    "a kernel 104 days later": (lambda t: t.kernel("k", 104 * DAY_US, 5, 9), "bad_time", 1),
    "a kernel 104 days before": (lambda t: t.kernel("k", -104 * DAY_US, 5, 9), "bad_time", 1),
    "an op 104 days later": (lambda t: t.op("aten::x", 104 * DAY_US, 5), "bad_time", 1),
    "a step 104 days later": (lambda t: t.note("ProfilerStep#2", 104 * DAY_US, 5), "bad_time", 1),
    "five kernels of six days": (
        lambda t: [t.kernel(f"k{i}", i, 6 * DAY_US, 100 + i) for i in range(5)], "bad_duration", 4,
    ),
}  # fmt: skip


@pytest.mark.parametrize(("change", "reason", "count"), TIMES.values(), ids=TIMES)
def test_times(trace, read_trace, change, reason, count):
    """What lies days from the middle of a trace, or lasts longer than all can, is left out and counted.

    Of five kernels of 6 days and one of 50 µs the limit of 2⁴⁹ ns, 6.5 days, holds the short one and one other.
    """
    sound(trace)
    change(trace)
    window = stored(read_trace(trace))
    assert {r: n for r, n in window.ledger.dropped.items() if r.startswith("bad")} == {reason: count}
    assert window.ledger.device_time_ns >= 50_000


def test_a_device_whose_clock_is_another_one(trace, read_trace):
    """Three host events and one kernel 104 days on: the kernel is what the trace is about, so it stays."""
    trace.op("aten::mm", 0, 20).op("aten::mm", 30, 20).call("cudaLaunchKernel", 5, 3, 1)
    trace.kernel("gemm", 104 * DAY_US, 50, 1)
    window = stored(read_trace(trace))
    assert window.ledger.dropped == {"bad_time": 3}
    assert window.ledger.device_time_ns == 50_000


def test_ops_of_a_cpu_104_days_apart(trace, read_trace):
    """One of them stays."""
    trace.op("aten::mm", 0, 10).op("aten::mm", 104 * DAY_US, 10)
    window = stored(read_trace(trace))
    assert window.ledger.dropped == {"bad_time": 1}
    assert window.ledger.device_time_ns == 10_000


def test_ops_of_a_cpu_that_last_for_days(trace, read_trace):
    """Six ops of 2 days on six threads: 2⁴⁹ ns hold three of them."""
    for tid in range(6):
        trace.op("aten::mm", tid, 2 * DAY_US, tid)
    window = stored(read_trace(trace))
    assert window.ledger.dropped == {"bad_duration": 3}


FIELDS = {
    "a clock of the year 2262": {"baseTimeNanoseconds": (1 << 63) - 1},
    "a clock of the year 2116": {"baseTimeNanoseconds": 1 << 62},
    "a device as large as can be": {"deviceProperties": [H100 | {"numSms": 1 << 62, "totalGlobalMem": 1 << 62}]},
    "a device's name of 64 KB with NUL": {"deviceProperties": [H100 | {"name": "NVIDIA \0" + "N" * 70_000}]},
    "a clock rate without bound": {"deviceProperties": [H100 | {"clockRate": 1e300}]},
    "a rank of 63 bits": {"distributedInfo": {"rank": (1 << 63) - 1, "world_size": (1 << 63) - 1}},
}


@pytest.mark.parametrize("fields", FIELDS.values(), ids=FIELDS)
def test_fields(trace, read_trace, fields):
    """Figures of a device or a rank that cannot be count as not told; a clock that cannot be as no clock."""
    sound(trace)
    trace.fields.update(fields)
    window = stored(read_trace(trace))
    assert window.start_unix_ns in (0, BASE)
    assert window.process.rank is None
    assert len(window.devices[0].device.model) <= 256


HUGE = [(1 << 20, 1 << 20)] * 2  # 2⁶¹ FLOPs a product
RECORDS: dict[str, Callable[..., object]] = {
    "a device's index of 62 bits": lambda t: t.kernel("k", 100, 5, 3, device=1 << 61),
    "a negative device": lambda t: t.kernel("k", 100, 5, 3, device=-5),
    "copies of 2⁶² bytes": lambda t: [t.copy("Memcpy DtoD", 100 + i, 5, 30 + i, bytes=1 << 61) for i in range(9)],
    "a grid of 2⁶¹ blocks": lambda t: t.kernel("k", 100, 5, 3, grid=[1 << 40, 1 << 10, 1 << 11], block=[1 << 40, 1, 1]),
    "shapes that are no numbers": lambda t: launched(
        t, "aten::mm", "k", (), **{"Input Dims": [[float("nan"), 1e400], [4, 4]], "Input type": ["float", "float"]}
    ),
    "NUL among inputs": lambda t: launched(
        t, "aten::sum", "k", (),
        **{"Input Dims": [[4, 4]], "Input type": ["fl\0oat", "float"], "Concrete Inputs": ["\0", "[0]\0"]},
    ),
    "a message of 2⁶³ bytes": lambda t: t.kernel(
        "ncclDevKernel_AllReduce", 120, 5, 9, **{"Collective name": "all\0reduce", "In msg nelems": 1 << 61,
        "Out msg nelems": 1 << 61, "Group size": 1 << 60, "dtype": "Float", "Process Group Name": "a\0" * 500},
    ),
    "graphs of 62 bits": lambda t: [t.call("cudaGraphLaunch", 100, 5, 77)] + [
        t.kernel(f"k{i}", 110 + i, 1, 77, **{"graph id": (1 << 61) + i, "graph node id": -(1 << 61)}) for i in range(5)
    ],
    "waits of days on many threads": lambda t: [
        t.call("cudaDeviceSynchronize", i, 6 * DAY_US, 900 + i, tid=i) for i in range(60)
    ],
    "two thousand devices": lambda t: [t.kernel("k", 100 + i, 5, 1000 + i, device=i) for i in range(2000)],
    "products of 2⁶¹ FLOPs": lambda t: [
        t.op("aten::mm", 1000 + 50 * i, 40, shapes=HUGE).call("cudaLaunchKernel", 1010 + 50 * i, 3, 900 + i)
        .kernel("k", 1020 + 50 * i, 5, 900 + i) for i in range(30)
    ],
}  # fmt: skip


@pytest.mark.parametrize("change", RECORDS.values(), ids=RECORDS)
def test_records(trace, read_trace, change):
    """Ids, sizes, shapes and sums without bound."""
    sound(trace)
    trace.fields["deviceProperties"] = [H100]
    change(trace)
    window = stored(read_trace(trace))
    assert any(k.signature.kernel == "gemm" for k in window.kernels)


def test_names_of_an_ascend_table_are_made_storable():
    """NUL in the name of a kernel called twice: the name is readable, both calls are counted, the times stay."""
    table = (
        b"Device_id,Name,Type,Accelerator Core,Start Time(us),Duration(us),Block Dim,Input Shapes,Input Data Types\n"
        + b'0,aclnnMm,Mat\0Mul,AI_CORE,"1700000000000.123",12.5,20,"""4,4;4,4""",FLOAT16;FLOAT16\n' * 2
        + b'0,add,Add,AI_VECTOR_CORE,"1700000000100.123",2.5,20,"""4,4;4,4""",FLOAT16;FLOAT16\n'
    )
    window = stored(registry.read(io.BytesIO(table)))
    assert {k.signature.kernel: (k.calls, k.total_ns) for k in window.kernels} == {
        "Mat\N{REPLACEMENT CHARACTER}Mul": (2, 25_000), "Add": (1, 2_500),
    }  # fmt: skip
    assert window.ledger.dropped["changed_name"] == 2
