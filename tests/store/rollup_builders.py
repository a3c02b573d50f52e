"""Days of windows drawn from a seed: several nodes, processes, devices, vendors, labels, unequal rates, gaps, ties."""

from __future__ import annotations

import dataclasses
import random

from store_builders import COPY, CPU, GEMM, H100, MI300, NORM, process_of, stat, uid_of

from roofwatch.model.record import (
    Bound,
    Cause,
    Cost,
    Device,
    DeviceWindow,
    Evidence,
    Graph,
    IdleCause,
    KernelStat,
    Ledger,
    Node,
    Padding,
    Process,
    Trigger,
    Window,
)
from roofwatch.store.filter import Filter

HOUR_NS = 3600 * 10**9
DAY_NS = 24 * HOUR_NS
BEGIN_NS = 1_800_000_000_000_000_000 // DAY_NS * DAY_NS  # a midnight
DAYS = 3

OTHER_H100 = dataclasses.replace(H100, uuid="GPU-9", driver="580.2")
NAMELESS = dataclasses.replace(MI300, uuid=None, index=0)
SIGNATURES = [
    GEMM,
    dataclasses.replace(GEMM, shapes="[[16,512],[512,512]]", flops=8_388_608),
    NORM,
    COPY,
    dataclasses.replace(NORM, kernel="other_norm", module="layers.*"),
]
SETS = [(H100,), (H100,), (OTHER_H100,), (NAMELESS,), (CPU,), (H100, CPU), (H100, OTHER_H100), (MI300, NAMELESS)]


def processes(draw: random.Random) -> list[Process]:
    """Processes of two nodes; some of one job, some labelled, one on a labelled node."""
    found = []
    for i in range(6):
        more = {
            "model": draw.choice(("llama", "vit", None)),
            "job": draw.choice(("slurm:1", None)),
            "labels": draw.choice(({}, {"version": "v1"}, {"version": "v2", "team": "x"})),
            "rank": i,
            "world_size": 6,
        }
        process = process_of(f"node-{i % 2}", 100 + i, **more)
        if i == 5:
            process = dataclasses.replace(process, node=Node("node-2", "boot-1", {"version": "v1"}))
        found.append(process)
    return found


def moment(draw: random.Random) -> int:
    """When a window starts: anywhere, or just at, before or after a whole hour or day."""
    if draw.random() < 0.3:
        edge = draw.choice((HOUR_NS, DAY_NS))
        return BEGIN_NS + draw.randrange(0, DAYS * DAY_NS, edge) + draw.choice((-1, 0, 1))
    return BEGIN_NS + draw.randrange(DAYS * DAY_NS)


def _causes(draw: random.Random, idle: int) -> tuple[IdleCause, ...]:
    left, found = idle, []
    for cause in draw.sample(list(Cause), draw.randrange(4)):
        total = draw.randrange(1, left + 1) if left > 0 else 0
        if not total:
            break
        left -= total
        longest = draw.choice((total, max(1, total // 2), min(total, 1000)))  # ties between windows
        begun = draw.choice((0, total // 3))
        steady = {"steady_longest_ns": longest // 2, "steady_example": draw.choice(("c", None))} if begun else {}
        found.append(
            IdleCause(cause, total, 3, longest, draw.choice(("a", "b", None)), begun, int(begun > 0), **steady)  # type: ignore[arg-type]
        )
    return tuple(found)


def _kernels(draw: random.Random, devices: int, steps: int | None) -> list[KernelStat]:
    found = {}
    for _ in range(draw.randrange(1, 7)):
        signature, device = draw.choice(SIGNATURES), draw.randrange(devices)
        evidence = draw.choice((Evidence.SHAPES, Evidence.NAME)) if signature is not COPY else Evidence.DEFINITION
        bound = Bound.COPY if signature is COPY else draw.choice((Bound.COMPUTE, Bound.MEMORY))
        calls = [draw.randrange(1, 10**6) for _ in range(draw.randrange(1, 5))]
        made = stat(signature, calls, device=device, evidence=evidence, bound=bound, roof_ns=700.5, ridge=295.25)
        inside = draw.randrange(len(calls) + 1) if steps else 0
        made = dataclasses.replace(
            made, step_calls=inside, step_ns=sum(calls[:inside]), formula_bound=draw.choice((None, Bound.MEMORY))
        )
        found[signature.id, device, evidence] = made
    return list(found.values())


def window(draw: random.Random, name: str, process: Process, start: int | None = None) -> Window:
    """A window of everything that a window can hold."""
    devices: tuple[Device, ...] = draw.choice(SETS)
    steps = draw.choice((None, 0, 2, 3))
    kernels = _kernels(draw, len(devices), steps)
    told = []
    for i, device in enumerate(devices):
        busy = sum(k.total_ns for k in kernels if k.device == i)
        idle = draw.randrange(10**7)
        told.append(DeviceWindow(device, busy + idle, busy, _causes(draw, idle), busy // 7, busy // 9))
    time = sum(k.total_ns for k in kernels)
    part = time // draw.randrange(1, 4)
    padding = Padding(1, 10, 20, 100, 400) if draw.random() < 0.3 else None
    cost = Cost("native", 1, 2, 3, 4, 5, lost_in_ns=draw.choice((None, 70, -5)), lost_after_ns=draw.choice((None, 8)))
    return Window(
        uid=uid_of(name),
        process=process,
        start_unix_ns=moment(draw) if start is None else start,
        duration_ns=draw.randrange(1, 10**8),
        trigger=draw.choice((Trigger.PERIODIC, Trigger.REQUESTED)),
        collector="kineto",
        devices=tuple(told),
        kernels=tuple(kernels),
        ledger=Ledger(
            events_read=100, device_records=sum(k.calls for k in kernels), device_time_ns=time,
            has_host_events=draw.random() < 0.8, linked_ns=part, backlog_ns=time // 10, classifiable_ns=part,
            classified_ns=part // draw.randrange(1, 5), dropped=draw.choice(({}, {"unfinished": 2}, {"x": 1, "y": 3})),
            model_ns=part, model_known_ns=draw.choice((0, part // 2)), model_flops=draw.randrange(1 << 50),
            model_peak_ns=part // 3, compared_ns=part // 4, disagreed_ns=part // 8,
            layout_ns=draw.choice((None, part // 5)), waits=draw.choice((None, 3)), wait_ns=draw.choice((None, 11)),
            longest_wait_ns=draw.choice((None, 7, 9)), python_events=draw.choice((None, 40)),
        ),
        steps=steps,
        represents_ns=draw.choice((None, 0, 60 * 10**9, draw.randrange(1, HOUR_NS))),
        shapes_recorded=draw.random() < 0.5,
        cost=draw.choice((None, cost)),
        padding=padding,
        first_step=draw.choice((None, 3, 500)),
        graphs=(Graph(0, "graph 1", 1, 1, time // 6, time // 12),) if draw.random() < 0.3 else (),
    )  # fmt: skip


def scope(draw: random.Random) -> Filter:
    """A filter of any kind; its times are as the windows' are."""
    times = sorted((moment(draw), moment(draw)))
    since, until = draw.choice(((None, None), (times[0], None), (None, times[1]), (times[0], times[1])))
    more = {
        "node": draw.choice(("node-0", "node-1", "nobody")),
        "process": draw.choice(("100", "103")),
        "model": draw.choice(("llama", "vit")),
        "device": draw.choice(("h100", "cpu", "mi300")),
        "labels": {"version": draw.choice(("v1", "v2"))},
        "vendor": draw.choice(("nvidia", "amd", "cpu")),
        "job": "slurm:1",
    }
    chosen = {name: more[name] for name in draw.sample(sorted(more), draw.choice((0, 0, 1, 1, 2)))}
    return Filter(since, until, **chosen)
