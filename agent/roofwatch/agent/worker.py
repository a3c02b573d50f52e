"""The parse worker: a niced process of its own that reads one trace at a time under limits.

A trace is hostile input: it may be broken, endless, or made to break the reader. Whatever it does ends here, as an
answer with a reason or as the end of this process, and the daemon lives on. The daemon starts a worker when there is a
trace to read and hangs up when there has been none for a while; reading several in one process saves the imports
(0.2 s of CPU, as much as a typical trace takes).
"""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import socket
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from roofwatch.agent import counters, link, sandbox, trace
from roofwatch.collectors.base import Limits, WindowContext
from roofwatch.hook import protocol
from roofwatch.model.errors import RoofwatchError
from roofwatch.model.record import Window

NICE = 10
DESCRIPTORS = 64
HEAVY_BYTES = 160 << 20  # a worker that has grown beyond this gives its memory back by ending
PR_SET_PDEATHSIG = 1
LIMITS = Limits(max_events=2_000_000, max_bytes=1 << 30, max_groups=50_000)  # a window is planned for 60,000 events

Shapes = tuple[bytes, str]  # what a window lends, and what became of borrowing
Record = Callable[[int, str, WindowContext], Window | tuple[Window, Shapes]]


def record(fd: int, form: str, context: WindowContext) -> tuple[Window, Shapes]:
    """Read, normalize and classify. Imported late: the checks before it need none of this."""
    if form not in (protocol.KINETO_JSON, protocol.ASCEND_DB):
        raise RoofwatchError(f"a window of the format {form!r}, which this agent does not read; upgrade the agent")
    from roofwatch.collectors import graph_logs, pipeline, registry  # noqa: PLC0415 - 0.2 s that a refused trace does not cost
    from roofwatch.collectors.kineto import lending  # noqa: PLC0415 - as above

    known, wanted = graph_logs.known_of(context.graphs), None
    if context.steps and (context.lend or context.lent):
        wanted = lending.Wanted(context.steps, context.lend, context.lent)
    raw = registry.read(trace.opened(fd), LIMITS, bounds=context.bounds, known=known, wanted=wanted)
    lent = lending.digest(raw.lent) + raw.lent if raw.lent else b""
    return pipeline.window_of(raw, context), (lent, raw.borrowed)


def confine(memory_bytes: int) -> None:
    """Take the limits that hold for the whole life of the worker."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)  # end with the daemon, even in the middle of a trace
    os.nice(NICE)
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")  # before any job on this node
    limits = (
        (resource.RLIMIT_AS, memory_bytes),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_FSIZE, 0),  # it has nothing to write
        (resource.RLIMIT_NOFILE, DESCRIPTORS),
    )
    for kind, value in limits:
        resource.setrlimit(kind, (value, value))
    # What reads traces is imported first: an interpreter may keep its libraries where nothing can be read afterwards.
    from roofwatch.collectors import graph_logs, pipeline, registry  # noqa: F401, PLC0415
    from roofwatch.proto import codec  # noqa: F401, PLC0415

    with suppress(OSError, RuntimeError):  # no home, for one
        sandbox.confine()


def _cpu_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def handle(task: link.Task, fd: int, read: Record) -> link.Answer:
    """Read one trace; everything that can be told is told as an answer."""
    # The limit is on the process, which reads several: each task gets its own share on top of what is used.
    hard = resource.getrlimit(resource.RLIMIT_CPU)[1]
    resource.setrlimit(resource.RLIMIT_CPU, (int(_cpu_s()) + 1 + task.cpu_seconds, hard))
    began = time.process_time_ns()  # with a CPU limit set the kernel moves this clock by ticks of a few milliseconds
    try:
        checked = trace.checked(fd, task.size, task.most_bytes)
        found = read(fd, task.format, task.context)
        checked.unchanged()
        window, (lent, borrowed) = found if isinstance(found, tuple) else (found, (b"", ""))
        answer = _sealed(window, time.process_time_ns() - began)
        return answer if answer.reason else replace(answer, lent=lent, borrowed=borrowed)
    except trace.TraceRefused as refusal:
        return link.Answer(refusal.reason, str(refusal))
    except MemoryError:
        return link.Answer(counters.PARSE_MEMORY, "the trace does not fit the worker's memory limit")
    except RoofwatchError as error:
        return link.Answer(counters.PARSE_ERROR, str(error))
    except Exception as error:  # noqa: BLE001 - a reader's fault on hostile input must not end the worker unheard
        return link.Answer(counters.PARSE_CRASH, f"{type(error).__name__}: {error}"[:300])
    finally:
        link.close_quietly(fd)


def _sealed(window: Window, cpu_ns: int) -> link.Answer:
    from roofwatch.proto import codec  # noqa: PLC0415 - not before the trace has passed its checks

    if window.cost is not None:
        window = replace(window, cost=replace(window.cost, parse_cpu_ns=cpu_ns + (window.cost.parse_cpu_ns or 0)))
    segment = codec.segment([window]).SerializeToString()
    if len(segment) > link.MAX_ANSWER // 2:
        return link.Answer(counters.PARSE_TOO_LARGE, f"the window has {len(segment)} bytes")
    return link.Answer(events=window.ledger.events_read, segment=segment)


def _resident() -> int:
    """Bytes in memory now. Not ``ru_maxrss``: that begins with the peak of the process that started this one."""
    return int(Path("/proc/self/statm").read_text("ascii").split()[1]) * resource.getpagesize()


def serve(sock: socket.socket, read: Record = record) -> None:
    """Answer tasks until the daemon hangs up, or this process has grown heavy."""
    while (received := link.receive_task(sock)) is not None:
        answer = handle(*received, read)
        answer = replace(answer, last=_resident() > HEAVY_BYTES or answer.reason == counters.PARSE_MEMORY)
        link.send_answer(sock, answer)
        if answer.last:
            return


def main(arguments: list[str], read: Record = record) -> None:
    """Entry of the process: the descriptor of its socket, and its memory limit in bytes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the daemon decides
    with socket.socket(fileno=int(arguments[0])) as sock, suppress(EOFError, OSError):
        confine(int(arguments[1]))
        serve(sock, read)


if __name__ == "__main__":
    main(sys.argv[1:])
