"""A small fleet's last day, in a store on Postgres: two nodes, chips of two makers, jobs with steps, idle time."""

from __future__ import annotations

import dataclasses
import random

from rollup_builders import HOUR_NS, window
from store_builders import GEMM, H100, MI300, NORM, process_of, segment_of, stat

from roofwatch.model.record import Bound, BudgetState, Cause, Cost, DeviceState, DeviceWindow, IdleCause, Window
from roofwatch.store import rollup
from roofwatch.store.database import Database
from roofwatch.store.ingest import Writer
from roofwatch.store.unpack import Unpacker

HOURS = 6
STEADY = dataclasses.replace(NORM, kernel="steady_norm")  # takes as long wherever it runs
CALL_NS, CALLS, REPRESENTS_NS = 90_000, 3, 60 * 10**9


def of_job(name: str, draw: random.Random, start: int, rank: int) -> Window:
    """A window of a training job on a device that tells its state; its cost is known."""
    made = window(draw, name, process_of(f"gpu-0{rank}", 200, job="slurm:7", model="llama", rank=rank), start)
    kernels = [
        stat(GEMM, [400_000 + draw.randrange(9999)] * 5, bound=Bound.COMPUTE, roof_ns=300_000.0, ridge=295.0),
        stat(STEADY, [CALL_NS] * CALLS, bound=Bound.MEMORY, roof_ns=CALL_NS / 2, ridge=295.0),
    ]
    busy = sum(kernel.total_ns for kernel in kernels)
    causes = (IdleCause(Cause.LAUNCH_BOUND, busy // 4, 7, 900), IdleCause(Cause.INPUT, busy // 5, 1, 800))
    told = DeviceWindow(
        H100 if rank else MI300, busy * 2, busy, causes, 10, 20, memory_used_bytes=1 << 33, memory_peak_bytes=1 << 34,
        state=DeviceState(clock_hz=1.7e9, clock_max_hz=1.98e9, power_w=612.0, power_limit_w=700.0, temperature_c=61.0),
    )  # fmt: skip
    cost = Cost(
        "native", 1000, 2000, 3000, 4000, 5000, base_step_ns=10**8, longest_step_ns=12 * 10**7, lost_in_ns=70_000,
        lost_after_ns=8000, parse_cpu_ns=10**8,
    )  # fmt: skip
    return dataclasses.replace(
        made,
        devices=(told,),
        kernels=tuple(kernels),
        cost=cost,
        represents_ns=REPRESENTS_NS,
        steps=2,
        graphs=(),
        budget=BudgetState("schedule", 0.005, 0.01, 0.002, 10**9, 78_000, True, REPRESENTS_NS, 60_000),
    )


def windows(now_ns: int, seed: int = 5) -> list[Window]:
    """Of every ten minutes one of each of two ranks, and some of everything that a window can hold."""
    draw = random.Random(seed)
    begin = now_ns // HOUR_NS * HOUR_NS - (HOURS - 1) * HOUR_NS
    found = []
    for number, start in enumerate(range(begin, now_ns - HOUR_NS // 60, HOUR_NS // 6)):
        found += [of_job(f"job {number} {rank}", draw, start, rank) for rank in (0, 1)]
        found.append(window(draw, f"any {number}", process_of("gpu-01", 300, model="vit"), start))
    return found


def fill(db: Database, now_ns: int) -> None:
    """Store them, and sum up what is over."""
    writer, unpacker = Writer(db), Unpacker()
    try:
        assert writer.submit(unpacker.unpack(segment_of(windows(now_ns), 1))).result(60).reason == ""
    finally:
        writer.close()
    with db.write() as connection:
        while rollup.sweep(connection, now_ns):
            pass
