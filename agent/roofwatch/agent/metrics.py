"""The agent's counters for Prometheus, read in the event loop's thread whenever somebody asks; base units.

No label has values that a job chooses: reasons are our own words.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from typing import Any
from wsgiref.simple_server import WSGIServer

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector

from roofwatch.model.errors import RoofwatchError
from roofwatch.proto import pages

WITHIN_S = 5.0  # the loop answers, or the page fails
STATES = ("requested", "recorded", "sealed", "stored", "duplicate")
_COUNTS = (  # key of the status, name, label, what
    ("windows", "windows", "state", "Windows by how far they came"),
    ("asked", "asked", "reason", "Windows by why they were asked for then"),
    ("refusals", "refusals", "reason", "Windows that a process did not take"),
    ("shapes", "borrowed", "outcome", "Windows without shapes by whether they could borrow them"),
    ("held", "held", "reason", "Windows that were due and would have cost too much"),
    ("drops", "drops", "reason", "Windows lost after they were taken, or before they were sent"),
    ("captures", "captures", "outcome", "Windows on request by what became of them"),
    ("traces", "traces", "state", "Traces on request: kept, not kept, dropped since"),
)
_UPLINK = (
    ("acks", "acks", "Segments that the store acknowledged"),
    ("disconnects", "disconnects", "Streams that ended"),
    ("bytes_sent", "sent_bytes", "Bytes of segments sent"),
)


class Figures(Collector):
    """Turns what the agent says of itself into samples."""

    def __init__(self, loop: asyncio.AbstractEventLoop, status: Callable[[], Mapping[str, Any]]) -> None:
        self._loop, self._status = loop, status

    def collect(self) -> Iterator[Metric]:
        """Ask the agent, in its own thread."""
        asked: Future[Mapping[str, Any]] = Future()
        self._loop.call_soon_threadsafe(lambda: asked.set_result(self._status()))
        return samples(asked.result(WITHIN_S))


def samples(status: Mapping[str, Any]) -> Iterator[Metric]:
    """The agent's status as ``roofwatch_agent_…``."""
    for key, name, label, text in _COUNTS:
        family = CounterMetricFamily(f"roofwatch_agent_{name}", text, labels=[label])
        counts = {**(dict.fromkeys(STATES, 0) if key == "windows" else {}), **status[key]}
        for value, count in counts.items():
            family.add_metric([value], count)
        yield family
    for key, name, text in _UPLINK:
        yield CounterMetricFamily(f"roofwatch_agent_{name}", text, value=status["uplink"].get(key, 0))
    spent = _or_nan(status["cost"]["spent_share"])
    for name, text, value in (
        ("processes", "Registered processes", status["processes"]),
        ("spool_bytes", "Finished windows that wait for the store", status["spool"]["bytes"]),
        ("spool_windows", "Finished windows that wait for the store", status["spool"]["windows"]),
        ("kept_traces_bytes", "Traces kept on request", status["kept"]["bytes"]),
        ("kept_traces", "Traces kept on request", status["kept"]["traces"]),
        ("store_connected", "1 while the stream to the store stands", int(status["uplink"]["connected"])),
        ("lost_seconds", "Time that windows cost their jobs, where it was measured", status["cost"]["lost_ns"] / 1e9),
        ("represented_seconds", "Time for which these windows stand", status["cost"]["represented_ns"] / 1e9),
        ("budget_ratio", "What windows may cost a job, of its time", status["settings"]["budget"]),
        ("hard_stop_ratio", "What not even one asked for may exceed", status["settings"]["hard_stop"]),
        ("interval_seconds", "Of the schedule, between two windows of a process", status["settings"]["interval_s"]),
        ("spent_ratio", "What they cost the job they cost most, over its last hour", spent),
        ("cost_ratio", "The one over the other; not a number while nothing is known", _ratio(status["cost"])),
    ):
        yield GaugeMetricFamily(f"roofwatch_agent_{name}", text, value=value)
    ends = GaugeMetricFamily(
        "roofwatch_agent_certificate_expiry_timestamp_seconds", "When a certificate ends", labels=["certificate"]
    )
    for which, moment in status["uplink"]["certificates"].items():
        ends.add_metric([which], moment)
    yield ends
    yield from _processes(status)


def _processes(status: Mapping[str, Any]) -> Iterator[Metric]:
    """How processes stand: all of them counted, and the first of them (``status.PROCESSES_MOST``) one by one."""
    reasons = GaugeMetricFamily(
        "roofwatch_agent_processes_by_reason", "Processes by why their interval is what it is", labels=["reason"]
    )
    for reason, count in status["reasons"].items():
        reasons.add_metric([reason], count)
    spent = GaugeMetricFamily(
        "roofwatch_agent_process_spent_ratio", "What windows cost its job, of the last hour", labels=["process_pid"]
    )
    interval = GaugeMetricFamily(
        "roofwatch_agent_process_interval_seconds", "Between two of its windows", labels=["process_pid", "reason"]
    )
    skipped = CounterMetricFamily(
        "roofwatch_agent_process_skipped", "Windows of it that were not taken", labels=["process_pid", "reason"]
    )
    for process in status["process_list"]:
        pid, budget = str(process["pid"]), process["budget"]
        spent.add_metric([pid], budget["spent_share"])
        interval.add_metric([pid, budget["reason"]], budget["interval_s"])
        for reason, count in budget["skipped"].items():
            skipped.add_metric([pid, reason], count)
    yield from (reasons, spent, interval, skipped)


def _or_nan(share: float | None) -> float:
    return float("nan") if share is None else share


def _ratio(cost: Mapping[str, int]) -> float:
    return cost["lost_ns"] / cost["represented_ns"] if cost["represented_ns"] else float("nan")


def expose(
    host: str,
    port: int,
    loop: asyncio.AbstractEventLoop,
    status: Callable[[], Mapping[str, Any]],
    pair: tuple[str, str] | None = None,
) -> WSGIServer:
    """Serve ``/metrics`` on threads of its own; give the server, whose ``server_port`` is the port.

    ``pair``: files of a certificate and its key, with which it speaks TLS.

    Raises:
        RoofwatchError: the address cannot be listened on.
    """
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    registry.register(Figures(loop, status))
    try:
        return pages.serve(registry, host, port, None if pair is None else pages.Files(*pair))
    except OSError as error:
        raise RoofwatchError(
            f"cannot listen on {host}:{port} for metrics: {error.strerror or error}; choose another with --metrics"
        ) from error
