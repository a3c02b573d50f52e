"""Random timelines that could be real: what threads do one after another, and what the device makes of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from hypothesis import strategies as st
from timelines import Timeline

# µs; on both sides of 50 µs, 200 µs and 1 ms, and equal often, so that things meet.
LENGTHS = (1, 3, 10, 40, 49, 50, 51, 100, 150, 199, 200, 201, 500, 999, 1000, 1001, 1500)
SHORT = (0, 1, 5, 10, 45, 50, 51, 60, 300)


class Act(NamedTuple):
    """One thing that a thread does: after ``pause`` it takes ``length``; what it launches is late by ``delay``."""

    kind: str
    pause: float
    length: float
    delay: float = 0
    runs: float = 0
    stream: int = 7
    device: int = 0


HOST_KINDS = ("op", "sync", "item_on_host", "loader", "collective_call", "poll")
KINDS = (
    *HOST_KINDS,
    "launch",
    "long_launch",
    "item",
    "blocking",
    "pageable",
    "copy_op",
    "collective",
    "graph",
    "loader_copy",
    "memset",
)


def acts(kinds: Sequence[str], most: int) -> st.SearchStrategy[list[Act]]:
    """What one thread does."""
    return st.lists(
        st.builds(
            Act,
            st.sampled_from(kinds),
            pause=st.sampled_from((0, *LENGTHS)),
            length=st.sampled_from(LENGTHS),
            delay=st.sampled_from(SHORT),
            runs=st.sampled_from((0, *LENGTHS)),
            stream=st.sampled_from((7, 7, 20)),
            device=st.sampled_from((0, 0, 0, 1)),
        ),
        max_size=most,
    )


@dataclass(frozen=True)
class Scene:
    """Threads, records launched before the window, and whether the trace has steps."""

    threads: list[list[Act]]
    backlog: list[tuple[float, float]]
    stepped: bool
    together: bool = False  # kernels begin every 2 ms, several at once

    def timeline(self) -> Timeline:
        """The timeline of the scene; the step begins with it and ends after all else."""
        stage = Stage(Timeline(), together=self.together)
        for pause, runs in self.backlog:
            stage.timeline.backlog("early", stage.next((0, 7), pause, runs))
        for thread, own in enumerate(self.threads):
            play(stage, own, 100 + thread)
        if self.stepped:
            stage.timeline.step(1, (0, self.end(stage.timeline)), thread=90)
        return stage.timeline

    @staticmethod
    def end(timeline: Timeline) -> float:
        """10 after everything."""
        return max((e["end"] for e in timeline.events), default=0) / 1000 + 10


class Stage:
    """A timeline and where its streams are."""

    def __init__(self, timeline: Timeline, *, together: bool = False) -> None:
        self.timeline = timeline
        self.together = together
        self.free: dict[tuple[int, int], float] = {}

    def next(self, stream: tuple[int, int], earliest: float, runs: float) -> tuple[float, float]:
        """The span of the next record of a stream."""
        begin = max(earliest, self.free.get(stream, 0))
        self.free[stream] = begin + runs
        return begin, begin + runs


def play(stage: Stage, own: Sequence[Act], thread: int) -> float:
    """A thread does one thing after another; when it is done."""
    at: float = 0
    for act in own:
        at += act.pause
        begin, at = at, at + max(act.length, 20)
        DO[act.kind](stage, act, (begin, at), thread)
    return at


def _launch(stage: Stage, act: Act, span: tuple[float, float], thread: int) -> None:
    call = (span[0] + 1, span[0] + 6) if act.kind == "launch" else (span[0] + 1, span[1] - 1)
    stream, earliest = (act.device, act.stream), call[0] + act.delay
    if stage.together:
        earliest = max(earliest, stage.free.get(stream, 0)) // 2000 * 2000 + 2000
    runs = stage.next(stream, earliest, act.runs)
    stage.timeline.op("aten::mm", span, thread=thread)
    stage.timeline.launch("gemm", call=call, runs=runs, thread=thread, device=act.device, stream=act.stream)


def _item(stage: Stage, act: Act, span: tuple[float, float], thread: int) -> None:
    runs = stage.next((act.device, 7), span[0] + 2 + act.delay, 2)
    stage.timeline.item(span, runs=runs, thread=thread, device=act.device)


def _copy(stage: Stage, act: Act, span: tuple[float, float], thread: int) -> None:
    api = "Memcpy" if act.kind == "blocking" else "MemcpyAsync"
    runs = stage.next((act.device, act.stream), span[0] + act.delay, act.runs)
    where = {"thread": thread, "device": act.device, "stream": act.stream}
    stage.timeline.copy("HtoD", call=span, runs=runs, api=api, pinned=act.kind != "pageable", **where)


def _copy_op(stage: Stage, act: Act, span: tuple[float, float], thread: int) -> None:
    stage.timeline.op("aten::copy_", span, thread=thread)
    runs = stage.next((act.device, act.stream), span[0] + 1 + act.delay, act.runs)
    where = {"thread": thread, "device": act.device, "stream": act.stream}
    stage.timeline.copy("DtoH", call=(span[0] + 1, span[0] + 6), runs=runs, **where)
    stage.timeline.sync((span[0] + 7, span[1] - 1), what="StreamSynchronize", thread=thread)


def _collective(stage: Stage, act: Act, span: tuple[float, float], thread: int) -> None:
    runs = stage.next((act.device, 30), span[1] - 2 + act.delay, act.runs)
    stage.timeline.collective("all_reduce", span, runs=runs, thread=thread, device=act.device, stream=30)


def _graph(stage: Stage, act: Act, span: tuple[float, float], thread: int) -> None:
    stream = act.device, act.stream
    nodes = [(f"node {n}", stage.next(stream, span[0] + act.delay, act.runs)) for n in (1, 2)]
    nodes.append(("node 3", stage.next(stream, nodes[-1][1][1] + act.delay, 10)))
    stage.timeline.graph(nodes, call=span, thread=thread, device=act.device, stream=act.stream)


def _memset(stage: Stage, act: Act, span: tuple[float, float], thread: int) -> None:
    runs = stage.next((act.device, act.stream), span[0] + act.delay, act.runs)
    stage.timeline.memset(call=span, runs=runs, thread=thread, device=act.device, stream=act.stream)


def _loader(stage: Stage, _act: Act, span: tuple[float, float], thread: int) -> None:
    stage.timeline.loader(span, thread=thread).op("aten::stack", (span[0] + 5, span[0] + 10), thread=thread)


def _loader_copy(stage: Stage, act: Act, span: tuple[float, float], thread: int) -> None:
    stage.timeline.loader(span, thread=thread)
    runs = stage.next((act.device, act.stream), span[0] + 2 + act.delay, act.runs)
    where = {"thread": thread, "device": act.device, "stream": act.stream}
    stage.timeline.copy("HtoD", call=(span[0] + 2, span[1] - 3), runs=runs, pinned=False, **where)


def _item_on_host(stage: Stage, _act: Act, span: tuple[float, float], thread: int) -> None:
    inner = span[0] + 1, span[1] - 1
    stage.timeline.op("aten::item", span, thread=thread).op("aten::_local_scalar_dense", inner, thread=thread)


DO: dict[str, Callable[[Stage, Act, tuple[float, float], int], object]] = {
    "op": lambda stage, _, span, thread: stage.timeline.op("aten::add", span, thread=thread),
    "sync": lambda stage, _, span, thread: stage.timeline.sync(span, thread=thread),
    "poll": lambda stage, _, span, thread: stage.timeline.call("cudaEventQuery", (span[0], span[0]), thread=thread),
    "collective_call": lambda stage, _, span, thread: stage.timeline.note("nccl:barrier", span, thread=thread),
    "item_on_host": _item_on_host,
    "loader": _loader,
    "loader_copy": _loader_copy,
    "launch": _launch,
    "long_launch": _launch,
    "item": _item,
    "blocking": _copy,
    "pageable": _copy,
    "copy_op": _copy_op,
    "collective": _collective,
    "graph": _graph,
    "memset": _memset,
}
early = st.lists(st.tuples(st.sampled_from((0, *LENGTHS)), st.sampled_from(LENGTHS)), max_size=2)


def scenes(*, stepped: bool | None = None) -> st.SearchStrategy[Scene]:
    """Up to three threads; ``stepped`` decides whether there are steps, else either."""
    threads = st.lists(acts(KINDS, 7), min_size=1, max_size=3)
    return st.builds(Scene, threads, early, st.booleans() if stepped is None else st.just(stepped), st.booleans())
