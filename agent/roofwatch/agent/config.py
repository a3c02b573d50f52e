"""Settings of the agent, each declared once; where their values come from: ``roofwatch.proto.settings``."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from roofwatch.hook.npu_names import METRICS
from roofwatch.hook.protocol import socket_path
from roofwatch.model.errors import UsageError
from roofwatch.proto.lines import FORMATS, LEVELS
from roofwatch.proto.settings import Given, Program, Settled, add_arguments, flag, one_of, settle
from roofwatch.proto.settings import setting as _setting
from roofwatch.proto.trust import VARIABLES, Trust

ENVIRONMENT = "ROOFWATCH_AGENT_"  # ROOFWATCH_AGENT_INTERVAL for --interval, unless the setting names another variable
MIB = 1 << 20


def default_state(environ: Mapping[str, str] = os.environ) -> str:
    """Where the spool lives: the user's state folder (XDG), or the system's for ``--system``."""
    base = environ.get("XDG_STATE_HOME") or str(Path(environ.get("HOME") or "~").expanduser() / ".local" / "state")
    return str(Path(base) / "roofwatch")


def _labels(text: str) -> dict[str, str]:
    pairs = [part.partition("=") for part in text.split(",") if part.strip()]
    if any(not equals or not key.strip() for key, equals, _ in pairs):
        raise ValueError("must be key=value, several joined by commas")
    return {key.strip(): value.strip() for key, _, value in pairs}


def _metrics(text: str) -> tuple[str, ...]:
    names = tuple(part.strip() for part in text.split(",") if part.strip())
    if not names or not set(names) <= set(METRICS):
        raise ValueError(f"must be one or more of {', '.join(METRICS)}, joined by commas")
    return names


def _address(text: str) -> str:
    host, colon, port = text.rpartition(":")
    if text and not (colon and host and port.isascii() and port.isdigit() and int(port) <= 0xFFFF):
        raise ValueError("must be HOST:PORT")
    return text


def _at_least(least: float, kind: Callable[[str], Any]) -> Callable[[str], Any]:
    def parse(text: str) -> Any:
        value = kind(text)
        if not least <= value < float("inf"):
            raise ValueError(f"must be at least {least:g}")
        return value

    return parse


@dataclass(frozen=True, slots=True)
class Config:
    """How an agent runs. Sizes are bytes unless a name says otherwise."""

    socket: str = _setting(
        socket_path, str, "Unix socket on which hooks register", metavar="PATH", env="ROOFWATCH_SOCKET"
    )
    state: str = _setting(default_state, str, "folder of the spool", metavar="DIR")
    store: str = _setting(
        "",
        str,
        "store to send windows to; without one they stay in the spool",
        metavar="HOST:PORT",
        env="ROOFWATCH_STORE",
    )
    insecure: bool = _setting(False, flag, "allow plain text to a store, and metrics, that are not on loopback")
    tls_ca: str = _setting(
        "", str, "the store speaks TLS; its certificate is of this CA", metavar="FILE", env=VARIABLES["ca"]
    )
    tls_cert: str = _setting(
        "", str, "this agent's certificate; also of its metrics beyond loopback", metavar="FILE", env=VARIABLES["cert"]
    )
    tls_key: str = _setting("", str, "its key", metavar="FILE", env=VARIABLES["key"])
    token_file: str = _setting("", str, "token, where the store wants one", metavar="FILE", env=VARIABLES["token_file"])
    system: bool = _setting(False, flag, "let any user's processes register (default: only this user's)")
    interval: float = _setting(60.0, _at_least(0.5, float), "seconds between two windows of a process", metavar="S")
    budget: float = _setting(
        0.5, _at_least(0.001, float), "per cent of a job's time that windows may cost; they get rarer to fit",
        metavar="PERCENT",
    )  # fmt: skip
    hard_stop: float = _setting(
        1.0, _at_least(0.001, float), "per cent that not even a window asked for by hand may exceed", metavar="PERCENT"
    )
    steps: int = _setting(2, _at_least(1, int), "optimizer steps a window covers")
    duration_ms: int = _setting(200, _at_least(1, int), "length of a window of a process without steps", metavar="MS")
    max_events: int = _setting(60_000, _at_least(100, int), "profiler events a window may hold; windows are cut to fit")
    light_windows: int = _setting(
        3, _at_least(0, int), "windows in a row that may go without shapes, and borrow them, where the budget is short"
    )
    npu_metrics: tuple[str, ...] = _setting(
        METRICS[:1], _metrics, f"metric sets of an NPU's windows, in turn: {', '.join(METRICS)}", metavar="NAME,…"
    )
    max_processes: int = _setting(1024, _at_least(1, int), "processes registered at once")
    worker_memory_mb: int = _setting(500, _at_least(200, int), "memory a parse worker may map", metavar="MIB")
    worker_seconds: int = _setting(
        60, _at_least(1, int), "CPU time to parse one window; wall time is twice that", metavar="S"
    )
    trace_mb: int = _setting(256, _at_least(1, int), "size of a trace file", metavar="MIB")
    spool_mb: int = _setting(256, _at_least(1, int), "bytes of finished windows kept for the store", metavar="MIB")
    spool_hours: float = _setting(
        168.0, _at_least(0.001, float), "age of finished windows kept for the store", metavar="H"
    )
    keep_traces_mb: int = _setting(
        1024, _at_least(0, int), "bytes of traces kept on request, the oldest go first; 0 keeps none", metavar="MIB"
    )
    keep_traces_hours: float = _setting(72.0, _at_least(0.001, float), "age of traces kept on request", metavar="H")
    metrics: str = _setting("", _address, "serve /metrics for Prometheus there; off by default", metavar="HOST:PORT")
    node_name: str = _setting(
        "", str, "name of this node; default: its host name, which in a container is not the node's",
        metavar="NAME", env="ROOFWATCH_NODE_NAME",
    )  # fmt: skip
    job_map: str = _setting(
        "", str, "folder in which a batch system's prolog writes who each job is; none by default", metavar="DIR"
    )
    pod_map: str = _setting(
        "/var/log/pods", str, "kubelet's folder with a folder a pod (NAMESPACE_NAME_UID): names of pods",
        metavar="DIR",
    )  # fmt: skip
    labels: Mapping[str, str] = _setting(
        dict, _labels, "labels of this node, such as cluster and rack", metavar="K=V,…"
    )
    log_format: str = _setting("text", one_of(*FORMATS), "lines of the log: text or json", metavar="FORMAT")
    log_level: str = _setting("info", one_of(*LEVELS), "from which level on: info or warning", metavar="LEVEL")

    def trust(self) -> Trust:
        """Whom to believe and what to show."""
        return Trust(self.tls_ca, self.tls_cert, self.tls_key, self.token_file, self.insecure)


PROGRAM = Program("agent", ENVIRONMENT, Config)
# What a running agent takes when it is told to read its settings again (SIGHUP); the rest needs a restart.
HOT = frozenset(
    {
        "interval", "budget", "hard_stop", "steps", "duration_ms", "max_events", "light_windows", "npu_metrics",
        "max_processes", "worker_memory_mb", "worker_seconds", "trace_mb", "spool_mb", "spool_hours", "keep_traces_mb",
        "keep_traces_hours", "tls_ca", "tls_cert", "tls_key",
        "token_file", "job_map", "pod_map", "log_format", "log_level",
    }
)  # fmt: skip


def variable_of(name: str) -> str:
    """The environment variable of a setting."""
    return PROGRAM.variable(name)


def typed(arguments: Sequence[str], prog: str = "roofwatch agent") -> dict[str, str | None]:
    """What a command line gives.

    Raises:
        SystemExit: the arguments are not the agent's (argparse has told why), or help was asked for.
    """
    parser = argparse.ArgumentParser(
        prog=prog,
        description="Take short profiler windows from the processes of this node and send them to a store.",
        epilog="Each flag can be set by the variable in brackets, or in a file: roofwatch config show --help.",
        allow_abbrev=False,
    )
    parser.add_argument("--user", dest="system", action="store_const", const="0", help=argparse.SUPPRESS)
    add_arguments(parser, PROGRAM)
    return vars(parser.parse_args(list(arguments)))


def parse(arguments: Sequence[str], environ: Mapping[str, str] = os.environ, prog: str = "roofwatch agent") -> Config:
    """Settings from a command line, an environment and the file they name.

    Raises:
        UsageError: a value is not what its setting takes.
        SystemExit: see ``typed``.
    """
    return resolve(typed(arguments, prog), environ)


def resolve(given: Given, environ: Mapping[str, str] = os.environ) -> Config:
    """Settings from flag values (None where absent), an environment and a file.

    Raises:
        UsageError: a value is not what its setting takes.
    """
    return settled(given, environ)[0]


def settled(given: Given, environ: Mapping[str, str] = os.environ) -> tuple[Config, Settled]:
    """The same, and where each value came from.

    Raises:
        UsageError: a value is not what its setting takes.
    """
    found = settle(PROGRAM, given, environ)
    config = Config(**{"socket": socket_path(environ), "state": default_state(environ), **found.values})
    if config.hard_stop < config.budget:
        raise UsageError(
            f"--hard-stop {config.hard_stop:g} is below --budget {config.budget:g}: no window could use the budget"
        )
    return config, found
