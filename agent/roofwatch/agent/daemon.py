"""The daemon around the agent: what it needs at hand, its signals, its metrics, and how it ends."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from roofwatch.agent.assembly import Agent
from roofwatch.agent.config import MIB, PROGRAM, Config
from roofwatch.agent.counters import Counters
from roofwatch.agent.listener import listen
from roofwatch.agent.log import Log
from roofwatch.agent.parsing import COMMAND
from roofwatch.agent.spool import Spool
from roofwatch.agent.uplink import check_target, is_loopback
from roofwatch.model.errors import RoofwatchError, UsageError
from roofwatch.proto.service_manager import READY, notify, reloading
from roofwatch.proto.settings import unknown
from roofwatch.proto.terminal import Terminal


def run(
    config: Config,
    command: Sequence[str] = COMMAND,
    again: Callable[[], Config] | None = None,
    kind: type[Agent] = Agent,
) -> int:
    """Run an agent until SIGTERM or SIGINT; the exit code.

    ``command`` starts a parse worker, which is given a socket's descriptor and a memory limit. ``again`` reads the
    settings anew: at SIGHUP a running agent takes what it can of them. ``kind`` is what runs, for who watches it.

    Raises:
        RoofwatchError: it cannot start; one sentence says why.
    """
    _check(config)
    log, counters = Log(form=config.log_format, level=config.log_level), Counters()
    for sentence in unknown(PROGRAM):
        log.warning("unknown_variable", detail=sentence)
    spool = Spool(Path(config.state), config.spool_mb * MIB, config.spool_hours * 3600, counters)
    try:
        listener = listen(config.socket, system=config.system)
    except RoofwatchError:
        spool.close()
        raise

    asyncio.run(_live(lambda: kind(config, spool, listener, log, counters, command), config, again, log))
    return 0


def _check(config: Config) -> None:
    """Refuse what is not to be run so."""
    if config.store:
        check_target(config.store, config.trust())
        config.trust().load()
    if config.metrics and not (config.insecure or config.tls_cert) and not is_loopback(config.metrics):
        raise UsageError(
            f"metrics on {config.metrics} can be read from other machines: allow it with --insecure, "
            "or give --tls-cert and --tls-key"
        )


async def _live(make: Callable[[], Agent], config: Config, again: Callable[[], Config] | None, log: Log) -> None:
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: _internal_error(log, context))
    stopping = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, _signalled, stopping)
    agent, terminal = make(), Terminal()
    loop.add_signal_handler(signal.SIGHUP, lambda: stopping.set() if terminal.gone() else _hung_up(agent, again, log))
    shown = _expose(config, agent, log)
    agent.start()
    await stopping.wait()
    await agent.stop()
    if shown is not None:
        shown.shutdown()
        shown.server_close()


def _expose(config: Config, agent: Agent, log: Log) -> Any:
    """The server of metrics, None where none is wanted; over TLS beyond loopback, where there is a certificate."""
    if not config.metrics:
        return None
    from roofwatch.agent import metrics  # noqa: PLC0415 - 0.1 s and 6 MB that an agent without them does not need

    host, _, port = config.metrics.rpartition(":")
    host = host.strip("[]")
    pair = (config.tls_cert, config.tls_key) if config.tls_cert and not is_loopback(config.metrics) else None
    server = metrics.expose(host, int(port), asyncio.get_running_loop(), agent.figures, pair)
    log.info("metrics", host=host, port=server.server_port)
    return server


def _hung_up(agent: Agent, again: Callable[[], Config] | None, log: Log) -> None:
    """SIGHUP: read the settings again; ones that cannot be used change nothing."""
    notify(*reloading())
    try:
        if again is not None:
            agent.reload(again())
    except RoofwatchError as error:
        log.warning("not_reloaded", error=error)
    finally:
        notify(READY)


def _signalled(stopping: asyncio.Event) -> None:
    if stopping.is_set():
        os._exit(1)  # asked twice: at once
    stopping.set()


def _internal_error(log: Log, context: Mapping[str, Any]) -> None:
    """A fault of ours in one callback: told in a line, and the agent lives on."""
    error = context.get("exception")
    where = error.__traceback__ if error is not None else None
    while where is not None and where.tb_next is not None:
        where = where.tb_next
    at = f"{Path(where.tb_frame.f_code.co_filename).name}:{where.tb_lineno}" if where is not None else ""
    log.warning("internal_error", error=f"{type(error).__name__}: {error}" if error else context.get("message"), at=at)
