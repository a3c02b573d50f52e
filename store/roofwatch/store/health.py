"""``grpc.health.v1``: SERVING only while the database answers, NOT_SERVING from the moment the store drains."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from sqlalchemy import func, select, text

from roofwatch.model.errors import RoofwatchError
from roofwatch.store.database import Database, revision
from roofwatch.store.metrics import Metrics
from roofwatch.store.rollup import GRACE_NS
from roofwatch.store.rollup_schema import HOUR_S, SECOND_NS
from roofwatch.store.schema import REVISION, rollups

SERVICES = ("", "roofwatch.v1.Ingest", "roofwatch.v1.Query")
PROBE_S = 1.0  # between two questions to the database
PATIENCE_S = 5.0  # with an answer
FAILED_S = 10.0  # after a commit that failed, if none succeeded since
FIGURES_EVERY = 5  # probes
NOTICE_S = 0.1  # between "not serving" and the end of a watcher's stream
SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING
_log = logging.getLogger(__name__)


class Health(health.aio.HealthServicer):  # type: ignore[misc]
    """The service; those who watch it are told of the drain, and then do not hold it up."""

    def __init__(self) -> None:
        super().__init__()
        self._watchers: set[asyncio.Task[None]] = set()
        self._ending = False
        for service in SERVICES:
            self._server_status[service] = NOT_SERVING  # until the database has answered

    async def say(self, status: Any) -> None:
        """Tell a status for every service."""
        for service in SERVICES:
            await self.set(service, status)

    async def Watch(self, request: Any, context: Any) -> None:  # noqa: N802 - gRPC's name
        """Tell each change, until the store drains."""
        watching = asyncio.ensure_future(super().Watch(request, context))
        self._watchers.add(watching)
        try:
            await watching
        except asyncio.CancelledError:
            if not self._ending:
                raise
        finally:
            watching.cancel()
            self._watchers.discard(watching)

    async def end(self) -> None:
        """NOT_SERVING for good; then end the streams of those who watch."""
        await self.enter_graceful_shutdown()
        if self._watchers:
            await asyncio.sleep(NOTICE_S)
        self._ending = True
        for watcher in self._watchers:
            watcher.cancel()


class Monitor:
    """Asks the database whether it is there, and now and then how it is."""

    def __init__(self, database: Database, metrics: Metrics, clock: Callable[[], float] = time.monotonic) -> None:
        self.health = Health()
        self._database, self._metrics, self._clock = database, metrics, clock
        self._pool = ThreadPoolExecutor(1, "roofwatch-health")  # while one question hangs no other is begun
        self._task: asyncio.Task[None] | None = None
        self._said = ""

    def add_to(self, server: Any) -> None:
        """Register the service."""
        health_pb2_grpc.add_HealthServicer_to_server(self.health, server)

    async def start(self) -> None:
        """Ask once, then go on asking."""
        await self._probe()
        self._task = asyncio.create_task(self._run())

    async def drain(self) -> None:
        """Say NOT_SERVING for good and ask no more."""
        self._metrics.gauge("serving", 0)
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task
        await self.health.end()
        self._pool.shutdown(wait=False)

    async def _run(self) -> None:
        count = 0
        while True:
            if count % FIGURES_EVERY == 0:
                await self._look_up()
            await asyncio.sleep(PROBE_S)
            await self._probe()
            count += 1

    async def _probe(self) -> None:
        problem = await self._problem()
        if problem and problem != self._said:
            _log.warning("not serving: %s", problem)
        self._said = problem
        self._metrics.gauge("serving", 0 if problem else 1)
        await self.health.say(NOT_SERVING if problem else SERVING)

    async def _problem(self) -> str:
        """Why not to serve, "" where there is no reason."""
        if self._clock() - self._metrics.failed_s < FAILED_S:
            return "the database failed a commit"
        try:
            found = await self._ask(lambda: _revision(self._database))
        except TimeoutError:
            return f"the database did not answer within {PATIENCE_S:g} s"
        except Exception as error:  # noqa: BLE001 - whatever it is, it is no answer
            return str(error)
        if found != REVISION:
            return f"the database has schema {found}, not {REVISION}: another version of Roofwatch changed it"
        return ""

    async def _look_up(self) -> None:
        names = ("database_bytes", "stale_hours", "upkeep_lag_seconds")
        try:
            found = await self._ask(lambda: _figures(self._database, time.time_ns()))
        except Exception:  # noqa: BLE001 - what is wrong is told by the probe
            found = (None, None, None)
        for name, value in zip(names, found, strict=True):
            self._metrics.gauge(name, value)

    async def _ask(self, question: Callable[[], Any]) -> Any:
        asked = asyncio.get_running_loop().run_in_executor(self._pool, question)
        return await asyncio.wait_for(asked, PATIENCE_S)


def _revision(database: Database) -> str | None:
    with database.read() as connection:
        return revision(connection)


def _figures(database: Database, now_ns: int) -> tuple[float | None, float | None, float | None]:
    """Bytes, hours that are over and stale, seconds since the end of the oldest of them."""
    r = rollups.c
    due_ns = now_ns - GRACE_NS - HOUR_S * SECOND_NS
    query = select(func.count(), func.min(r.bucket_unix_ns)).where(
        r.stale, r.grain == HOUR_S, r.finer, r.bucket_unix_ns <= due_ns
    )
    with database.read() as connection:
        count, oldest = connection.execute(query).one()
        size = _bytes(database, connection)
    lag = 0.0 if oldest is None else (now_ns - int(oldest)) / SECOND_NS - HOUR_S
    return size, int(count), lag


def _bytes(database: Database, connection: Any) -> float | None:
    backend, name = database.engine.url.get_backend_name(), database.engine.url.database
    if backend == "postgresql":
        return float(connection.execute(text("SELECT pg_database_size(current_database())")).scalar_one())
    if backend != "sqlite" or not name:
        return None
    files = [Path(name), Path(f"{name}-wal")]
    try:
        return float(sum(file.stat().st_size for file in files if file.exists()))
    except OSError as error:
        raise RoofwatchError(f"cannot tell the size of {name}") from error
