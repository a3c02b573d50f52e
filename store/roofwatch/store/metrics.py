"""What a running store counts and times, for Prometheus: base units, and no label whose values a sender chooses."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from wsgiref.simple_server import WSGIServer

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.gc_collector import GCCollector
from prometheus_client.process_collector import ProcessCollector
from sqlalchemy.exc import DataError, IntegrityError

from roofwatch.model.errors import RoofwatchError
from roofwatch.model.record import Trigger
from roofwatch.proto import pages
from roofwatch.proto.v1 import roofwatch_pb2 as pb
from roofwatch.store.access import Why
from roofwatch.store.budget import Budget
from roofwatch.store.config import Keep, format_address
from roofwatch.store.database import Database
from roofwatch.store.hub import Hub
from roofwatch.store.ingest import Writer
from roofwatch.store.outcome import Outcome
from roofwatch.store.queries.run import ASKED, QUERIES
from roofwatch.store.unpack import Unpacked

FAILED = "failed"  # the database failed; the agent sends it again
OUTCOMES = {pb.STORED: "stored", pb.DUPLICATE: "duplicate", pb.REJECTED: "rejected"}
UNKNOWN = "unknown"  # a query that this store does not have
COMMIT_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
QUERY_S = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
BROKEN_SUMS = ("broken_sums", "Sums that could not be made, or added to, since the start")
FRESH_S = (0.5, 1.0, 2.5, 5.0, 10.0, 15.0, 30.0, 60.0, 300.0, 3600.0, 86_400.0)


class Metrics:
    """The figures of one store, in a registry of their own."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        GCCollector(registry=registry)
        self._segments = _counter(registry, "segments", "Segments received", ["outcome"])
        self._windows = _counter(registry, "windows", "Windows of segments that could be read", ["outcome"])
        self._rows = _counter(registry, "rows", "Kernel rows of segments that could be read", ["outcome"])
        for outcome in (*OUTCOMES.values(), FAILED):  # a series that is not there yet cannot rise
            for counter in (self._segments, self._windows, self._rows):
                counter.labels(outcome)
        self._refused = _counter(registry, "refused", "Calls and segments refused to who sent them", ["reason"])
        for why in Why:
            self._refused.labels(why)
        self._expiry = Gauge(
            "roofwatch_store_certificate_expiry_timestamp_seconds",
            "When a certificate ends",
            ["certificate"],
            registry=registry,
        )
        self._access = _gauge(registry, "access_file_good", "0 while the access file is damaged and not taken")
        self._access.set(1)
        self.commit = _histogram(registry, "commit_seconds", "Time of a transaction of the writer", COMMIT_S)
        self.commit_failures = _counter(registry, "commit_failures", "Transactions that the database failed", [])
        self.freshness = _histogram(registry, "freshness_seconds", "From a window's end to its commit", FRESH_S)
        self._queries = _histogram(registry, "query_seconds", "Time of an answer", QUERY_S, ["query"])
        self._query_failures = _counter(registry, "query_failures", "Questions refused or failed", ["query"])
        for name in (*QUERIES, *ASKED, UNKNOWN):
            self._queries.labels(name)
            self._query_failures.labels(name)
        self._gauges = {
            name: _gauge(registry, name, text)
            for name, text in (
                ("database_bytes", "What the database takes on disk"),
                ("stale_hours", "Hours of processes that are over and not summed up yet"),
                ("upkeep_lag_seconds", "Since the end of the oldest hour that is not summed up yet"),
                ("serving", "1 while the health service says SERVING"),
            )
        }
        self.fresh_when_acknowledged = True  # what is acknowledged can be asked for (ClickHouse: only later)
        self.failed_s = -math.inf  # when the database last failed a commit, by the monotonic clock

    def watch(self, budget: Budget, hub: Hub) -> None:
        """Read these whenever somebody asks."""
        for name, text, value in (
            ("queue_bytes", "Segments received and not yet acknowledged, decompressed", lambda: budget.used_bytes),
            ("queue_segments", "Segments received and not yet acknowledged", lambda: budget.used_count),
            ("connected_agents", "Streams of agents", lambda: len(hub.agents())),
        ):
            _gauge(self.registry, name, text).set_function(value)
        _gauge(self.registry, "queue_limit_bytes", "What the queue may hold").set(budget.limit_bytes)

    def received(self, unpacked: Unpacked | None, outcome: Outcome | None) -> None:
        """Count a segment: None where it could not be read; no outcome where the database failed."""
        name = FAILED if outcome is None else OUTCOMES[outcome.status]
        self._segments.labels(name).inc()
        if unpacked is None:
            return
        self._windows.labels(name).inc(len(unpacked.windows))
        self._rows.labels(name).inc(unpacked.rows)
        if outcome is not None and outcome.status == pb.STORED and self.fresh_when_acknowledged:
            now = time.time_ns()
            for window in (w.window for w in unpacked.windows):
                if window.trigger is not Trigger.IMPORTED:
                    late = now - window.start_unix_ns - window.duration_ns
                    self.freshness.observe(max(0, late) / 1e9)  # another machine's clock may be ahead

    def refused(self, why: Why) -> None:
        """Count a refusal."""
        self._refused.labels(why).inc()

    def trusted(self, expires_unix_s: Mapping[str, float], *, access_file: bool) -> None:
        """Tell when certificates end, and whether the access file is good."""
        for name, moment in expires_unix_s.items():
            self._expiry.labels(name).set(moment)
        self._access.set(access_file)

    @contextmanager
    def answering(self, query: str) -> Iterator[None]:
        """Time an answer."""
        name = query if query in QUERIES or query in ASKED else UNKNOWN
        begin = time.perf_counter()
        try:
            yield
        except Exception:
            self._query_failures.labels(name).inc()
            raise
        finally:
            self._queries.labels(name).observe(time.perf_counter() - begin)

    def watched(self, name: str, text: str, value: Callable[[], float]) -> None:
        """One more figure, read whenever somebody asks."""
        _gauge(self.registry, name, text).set_function(value)

    def gauge(self, name: str, value: float | None) -> None:
        """Set what is looked up now and then; unknown is not a number."""
        self._gauges[name].set(math.nan if value is None else value)


class TimedWriter(Writer):
    """A writer whose transactions are timed."""

    def __init__(self, database: Database, keep: Keep | None, metrics: Metrics) -> None:
        self._metrics = metrics  # before the thread begins
        super().__init__(database, keep)
        metrics.watched(*BROKEN_SUMS, self.broken_sums)

    def _store(self, group: list[Any]) -> list[Outcome]:
        begin = time.perf_counter()
        try:
            outcomes = super()._store(group)
        except (IntegrityError, DataError, OverflowError, ValueError):
            raise  # a segment is at fault, not the database
        except BaseException:
            self._metrics.commit_failures.inc()
            self._metrics.failed_s = time.monotonic()
            raise
        self._metrics.commit.observe(time.perf_counter() - begin)
        self._metrics.failed_s = -math.inf
        return outcomes


def expose(metrics: Metrics, host: str, port: int, files: pages.Files | None = None) -> WSGIServer:
    """Serve ``/metrics`` on threads of its own; give the server, whose ``server_port`` is the port.

    With ``files`` over TLS.

    Raises:
        RoofwatchError: the address cannot be listened on.
    """
    try:
        return pages.serve(metrics.registry, host, port, files)
    except OSError as error:
        raise RoofwatchError(
            f"cannot listen on {format_address(host, port)} for metrics: {error.strerror or error}; "
            "choose another with --metrics"
        ) from error


def _counter(registry: CollectorRegistry, name: str, text: str, labels: list[str]) -> Counter:
    return Counter(f"roofwatch_store_{name}", text, labels, registry=registry)


def _gauge(registry: CollectorRegistry, name: str, text: str) -> Gauge:
    return Gauge(f"roofwatch_store_{name}", text, registry=registry)


def _histogram(
    registry: CollectorRegistry, name: str, text: str, buckets: tuple[float, ...], labels: list[str] | None = None
) -> Histogram:
    return Histogram(f"roofwatch_store_{name}", text, labels or [], buckets=buckets, registry=registry)
