"""The stream to the store: segments up in order, acks and commands down, and patience while the store is away."""

from __future__ import annotations

import asyncio
import ipaddress
import random
import time
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from typing import Any

from roofwatch.agent.counters import Counters
from roofwatch.agent.log import Log
from roofwatch.agent.spool import Spool
from roofwatch.agent.trusting import Credentials
from roofwatch.model.errors import UsageError
from roofwatch.proto.codec import MAX_SEGMENT_BYTES
from roofwatch.proto.trust import Trust
from roofwatch.proto.v1 import roofwatch_pb2 as pb

UNACKED_MOST = 8  # segments on their way; more would only lie in the store's queue
RESULTS_MOST = 4096  # one a process and command
BACKOFF_LEAST_S, BACKOFF_MOST_S = 0.5, 30.0
HELLO_WITHIN_S = 10.0
RENEW_WITHIN_S = 5.0  # for acks, before a stream ends because there are new credentials
ACK_WITHIN_S = 60.0  # a store that accepts and never commits is treated as gone
OPTIONS = (
    ("grpc.enable_http_proxy", 0),  # the store is in our network; a proxy set for the web is not meant
    ("grpc.keepalive_time_ms", 300_000),  # servers take more frequent pings for an attack
    ("grpc.keepalive_timeout_ms", 20_000),
    ("grpc.initial_reconnect_backoff_ms", int(BACKOFF_LEAST_S * 1000)),  # else the channel waits longer than we do
    ("grpc.max_reconnect_backoff_ms", 2_000),
    ("grpc.max_receive_message_length", MAX_SEGMENT_BYTES),
)


def is_loopback(target: str) -> bool:
    """Whether a HOST:PORT cannot leave this machine."""
    host = target.rpartition(":")[0].strip("[]")
    if host == "localhost" or target.startswith("unix:"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def check_target(target: str, trust: Trust) -> None:
    """Refuse what is not HOST:PORT, and plain text off this machine unless allowed.

    Raises:
        UsageError: with what to do.
    """
    port = target.rpartition(":")[2]
    if not target.startswith("unix:") and not (port.isdigit() and 0 < int(port) < 65536 and target.rpartition(":")[0]):
        raise UsageError(f"--store {target!r}: must be HOST:PORT")
    trust.check(target, loopback=is_loopback(target))


class _Lost(Exception):  # noqa: N818 - the end of one connection, not a fault
    """The connection is of no more use; the text says why."""


class _Renewed(Exception):  # noqa: N818 - see _Lost
    """There are new credentials: the next connection shows them."""


class Uplink:
    """One stream at a time, for as long as the agent runs."""

    def __init__(
        self,
        target: str,
        credentials: Credentials,
        hello: pb.AgentHello,
        spool: Spool,
        counters: Counters,
        log: Log,
        command: Callable[[pb.Command], Iterable[pb.CommandResult | pb.AgentMessage]],
    ) -> None:
        self._target = target
        self._credentials = credentials
        self._renewing = False  # nothing more is sent on this stream
        self._refused = ""  # why the store was last refused or refuses, as logged
        self._hello = hello
        self._spool = spool
        self._counters = counters
        self._log = log
        self._command = command
        self._more = asyncio.Event()  # something to send, or room to send it
        self._progress = asyncio.Event()  # an ack came
        self._results: list[pb.AgentMessage] = []
        self._unacked: dict[tuple[str, int], tuple[int, int]] = {}  # (boot, sequence) → (row, windows)
        self._sent_to = 0
        self.connected = False
        self.last_error = ""

    def in_flight(self) -> frozenset[int]:
        """Rows of the spool that are on their way."""
        return frozenset(row for row, _ in self._unacked.values())

    def wake(self) -> None:
        """The spool has a new segment."""
        self._more.set()

    def tell(self, message: pb.AgentMessage) -> None:
        """Send what became of a command; nobody waits for it where the store is away."""
        if self.connected and len(self._results) < RESULTS_MOST:
            self._results.append(message)
            self._more.set()

    async def drained(self) -> None:
        """Wait until the spool is empty."""
        while self._spool.segments:
            self._progress.clear()
            await self._progress.wait()

    async def run(self) -> None:
        """Keep a stream open until cancelled."""
        pause = BACKOFF_LEAST_S
        while True:
            committed = self._counters.uplink["acks"]
            try:
                await self._converse()
            except _Renewed:
                self._log.info("credentials_renewed", store=self._target)
                continue
            except Exception as error:  # noqa: BLE001 - whatever ends one stream, the next is tried
                await self._tell(error)
            finally:
                self.connected = self._renewing = False
                self._unacked.clear()
            if self._counters.uplink["acks"] > committed:
                pause = BACKOFF_LEAST_S
            self._counters.uplink["disconnects"] += 1
            try:  # new credentials may be what was missing
                await asyncio.wait_for(self._credentials.changed(), pause * random.uniform(0.5, 1.0))
                pause = BACKOFF_LEAST_S
            except TimeoutError:
                pause = min(BACKOFF_MOST_S, pause * 2)

    async def _tell(self, error: Exception) -> None:
        """Log why a stream ended; what somebody has to put right is said once, until it is."""
        code = _code(error)
        problem = await self._credentials.problem() if code in {"UNAVAILABLE", ""} else ""
        self.last_error = problem or _told(error)
        if not problem and code not in {"UNAUTHENTICATED", "PERMISSION_DENIED"}:
            self._log.warning("store_unreachable", store=self._target, error=self.last_error)
        elif self.last_error != self._refused:
            self._refused = self.last_error
            self._log.warning("store_refused", store=self._target, error=self.last_error, spool="kept")

    async def _converse(self) -> None:
        from roofwatch.proto import channel as channels  # noqa: PLC0415 - before grpc, which it keeps quiet

        # isort: split
        import grpc.aio  # noqa: PLC0415 - 10 MB that an agent without a store does not need

        from roofwatch.proto.v1 import roofwatch_pb2_grpc  # noqa: PLC0415 - see _converse

        material = self._credentials.load()
        async with channels.open_aio(self._target, material, OPTIONS) as channel:
            stream = roofwatch_pb2_grpc.IngestStub(channel).Stream(metadata=material.metadata)
            try:
                async with asyncio.timeout(HELLO_WITHIN_S):
                    await stream.write(pb.AgentMessage(hello=self._hello))
                    greeting = await stream.read()
                if greeting is grpc.aio.EOF or greeting.WhichOneof("body") != "hello":
                    raise _Lost(await _status(stream) or "the store did not greet")
                self.connected = True
                self.last_error = self._refused = ""
                self._counters.uplink["connects"] += 1
                self._log.info("store_connected", store=self._target, version=greeting.hello.version)
                self._sent_to = 0  # whatever was not acked is sent again, in order
                self._more.set()
                await _first_of(self._send(stream), self._receive(stream), self._watch(), self._renew())
            finally:
                stream.cancel()

    async def _send(self, stream: Any) -> None:
        while True:
            self._more.clear()
            while self._results:
                await stream.write(self._results.pop(0))
            while self._room() and (spooled := self._spool.after(self._sent_to)) is not None:
                self._sent_to = spooled.row
                envelope = pb.SegmentEnvelope.FromString(spooled.envelope)
                self._unacked[envelope.id.boot, envelope.id.sequence] = (spooled.row, spooled.windows)
                await stream.write(pb.AgentMessage(segment=envelope))
                self._counters.uplink["segments_sent"] += 1
                self._counters.uplink["bytes_sent"] += len(spooled.envelope)
            await self._more.wait()

    def _room(self) -> bool:
        return len(self._unacked) < UNACKED_MOST and not self._renewing

    async def _renew(self) -> None:
        """When there are new credentials, end this stream, after the acks of what is on its way."""
        await self._credentials.changed()
        self._renewing = True
        until = time.monotonic() + RENEW_WITHIN_S
        while self._unacked and time.monotonic() < until:
            self._progress.clear()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._progress.wait(), RENEW_WITHIN_S / 10)
        raise _Renewed

    async def _receive(self, stream: Any) -> None:
        import grpc.aio  # noqa: PLC0415 - see _converse

        while (message := await stream.read()) is not grpc.aio.EOF:
            kind = message.WhichOneof("body")
            if kind == "ack":
                self._acked(message.ack)
            elif kind == "command":
                self._results.extend(map(_message, self._command(message.command)))
                if len(self._results) > RESULTS_MOST:
                    raise _Lost("the store sends commands faster than it takes their results")
                self._more.set()
        raise _Lost(await _status(stream) or "the store closed the stream")

    async def _watch(self) -> None:
        """Give up on a store that takes segments and acks none."""
        seen = -1
        while True:
            await asyncio.sleep(ACK_WITHIN_S)
            acks = self._counters.uplink["acks"]
            if self._unacked and acks == seen:
                raise _Lost(f"no ack within {ACK_WITHIN_S:.0f} s")
            seen = acks if self._unacked else -1

    def _acked(self, ack: pb.Ack) -> None:
        known = self._unacked.pop((ack.id.boot, ack.id.sequence), None) if ack.id.agent == self._spool.agent else None
        if known is None or ack.status == pb.ACK_STATUS_UNSPECIFIED:
            raise _Lost(f"an ack for segment {ack.id.sequence} that was not sent, or without a status")
        row, windows = known
        if ack.status == pb.REJECTED:
            self._spool.reject(row)
        else:
            self._spool.delete(row)
        self._counters.uplink["acks"] += 1
        if ack.status == pb.REJECTED:
            self._log.warning("segment_rejected", sequence=ack.id.sequence, windows=windows, reason=ack.reason)
        else:
            self._counters.windows["stored" if ack.status == pb.STORED else "duplicate"] += windows
        self._progress.set()
        self._more.set()


def _message(answer: pb.CommandResult | pb.AgentMessage) -> pb.AgentMessage:
    return answer if isinstance(answer, pb.AgentMessage) else pb.AgentMessage(result=answer)


async def _first_of(*work: Awaitable[None]) -> None:
    """Run all until one ends, cancel the rest, raise what it raised."""
    tasks = [asyncio.ensure_future(one) for one in work]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    for task in done:
        task.result()


async def _status(stream: Any) -> str:
    code = await stream.code()
    return "" if code is None or code.value[0] == 0 else f"{code.name}: {await stream.details()}"


def _code(error: BaseException) -> str:
    """The name of gRPC's status, "" where it is none of its errors."""
    if isinstance(error, _Lost):
        return str(error).partition(":")[0] if str(error).partition(":")[0].isupper() else "LOST"
    code = getattr(error, "code", None)
    return code().name if callable(code) else ""


def _told(error: BaseException) -> str:
    code = getattr(error, "code", None)
    details = getattr(error, "details", None)
    if callable(code) and callable(details):
        return f"{code().name}: {details()}"
    return str(error) or type(error).__name__
