"""What is asked of agents through a store: windows on request, and the traces that they keep."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from roofwatch.cli import wire
from roofwatch.cli.asking import ask
from roofwatch.model.errors import RoofwatchError, UnreachableError, UsageError
from roofwatch.proto.v1 import roofwatch_pb2 as pb
from roofwatch.proto.v1 import roofwatch_pb2_grpc as rpc
from roofwatch.store.filter import Filter

# isort: split
import grpc

SLACK_S = 60.0  # beyond the time given to the processes: agents and steps are found first, ends are told by agents
LIST_WITHIN_S, FETCH_WITHIN_S = 20.0, 3600.0
STOPPING = "the store is stopping"  # as a store says it
STORED_WITHIN_S, POLL_S = 5.0, 0.25  # a trace is read and sent in a second
BEFORE_NS = 600_000_000_000  # clocks of nodes differ, and the first windows of several may have begun early
WINDOWS_EACH, WINDOWS_BESIDE = 4, 200  # of the latest that are looked at, by process and beside them
SHORTEST_PREFIX, UID_DIGITS = 4, 32
NOT_ITS_OWN = "not_its_own"  # as a store says it of an agent that tells of another node's window
OUTCOMES = {pb.ASKED: "asked", pb.TAKEN: "taken", pb.REFUSED: "refused", pb.TIMED_OUT: "timed_out", pb.LOST: "lost"}

Answer = dict[str, Any]
Told = Callable[[Mapping[str, Any]], None]


@contextmanager
def _control(address: str) -> Iterator[Any]:
    """The store's service; what is too old, or has not got what was asked for, is told as it is."""
    with wire.channel(address) as channel:
        try:
            yield rpc.ControlStub(channel)
        except grpc.RpcError as error:
            code, details = error.code(), error.details() or ""
            if code is grpc.StatusCode.UNIMPLEMENTED:
                told = f"the store at {address} is too old to ask agents for windows and traces: upgrade it."
                raise UnreachableError(told) from None
            if code in {grpc.StatusCode.NOT_FOUND, grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.ABORTED}:
                raise RoofwatchError(f"{details}.") from None
            if code is grpc.StatusCode.UNAVAILABLE and details == STOPPING:
                raise UnreachableError(
                    f"{details}: what was asked of agents goes on, and nobody waits for it."
                ) from None
            raise


def capture(address: str, request: pb.CaptureRequest, found: Told, told: Told) -> Answer:
    """Ask for windows; ``found`` is told once whom, ``told`` what becomes of each. The answer, a row a process.

    Raises:
        UnreachableError: no store answers there, it refuses who asks, or it is too old.
        RoofwatchError: the store could not do it.
    """
    rows: dict[tuple[str, str], Answer] = {}
    coverage: Answer = {}
    with _control(address) as stub:
        for event in stub.Capture(request, timeout=request.within_ms / 1e3 + SLACK_S):
            if event.HasField("found"):
                coverage = _coverage(event.found)
                rows = {(t.node, t.process.process): _row(t) for t in event.found.targets}
                found(coverage | {"rows": list(rows.values())})
                continue
            told_by = event.outcome.node  # an older store does not tell
            for key in [key for key in rows if key[1] == event.outcome.process and told_by in ("", key[0])]:
                rows[key] |= _outcome(event.outcome)
                told(rows[key])
    return {"schema_version": 1, "query": _query(request), "coverage": coverage, "rows": list(rows.values())}


def not_stored(address: str, answer: Answer, begin_ns: int, within_s: float = STORED_WITHIN_S) -> int:
    """How many of the windows taken the store does not have after a while; 0 where it may not be asked.

    An agent tells that a window was taken before it has read the trace; who asks next would not find it.
    """
    wanted = {row["window"] for row in answer["rows"] if row["outcome"] == "taken" and row["window"]}
    given = {name: answer["query"][name] for name in ("job", "process", "model", "node")}
    most = len(answer["rows"]) * WINDOWS_EACH + WINDOWS_BESIDE
    asked = Filter(since_unix_ns=begin_ns - BEFORE_NS, **given)
    end = time.monotonic() + within_s
    while wanted:
        try:
            there = ask("windows", asked, most, store=address, db=None)["rows"]
        except RoofwatchError:
            return 0
        wanted -= {row["uid"] for row in there}
        if time.monotonic() > end:
            break
        time.sleep(POLL_S if wanted else 0)
    return len(wanted)


def _query(request: pb.CaptureRequest) -> Answer:
    which = request.which
    words = {"job": which.job, "process": which.process, "model": which.model, "node": request.node}
    return {
        "command": "capture", **{name: word or None for name, word in words.items()}, "ranks": list(request.ranks),
        "all_ranks": request.all_ranks, "steps": request.steps, "duration_ms": request.duration_ms,
        "keep_trace": request.keep_trace, "within_ms": request.within_ms,
    }  # fmt: skip


def _coverage(found: pb.CaptureFound) -> Answer:
    return {
        "agents": found.agents,
        "silent": [{"node": each.node, "reason": each.reason} for each in found.silent],
        "passed_over": found.passed_over,
        "world_size": None if found.world_size < 0 else found.world_size,
    }


def _row(target: pb.CaptureTarget) -> Answer:
    process = target.process
    return {
        "rank": _known(process.rank), "node": target.node, "pid": process.pid, "process": process.process,
        "job": process.job or None, "model": process.model or None, "user": process.user or None,
        "outcome": None, "reason": None, "detail": None, "window": None, "steps": None, "first_step": None,
        "duration_ns": None, "trace_kept": None, "trace_reason": None,
    }  # fmt: skip


def _outcome(told: pb.WindowOutcome) -> Answer:
    taken = told.outcome == pb.TAKEN
    return {
        "outcome": OUTCOMES.get(told.outcome), "reason": told.reason or None, "detail": told.detail or None,
        "window": told.window.hex() or None, "steps": _known(told.steps), "first_step": _known(told.first_step),
        "duration_ns": told.duration_ns if taken else None, "trace_kept": told.kept if taken else None,
        "trace_reason": told.not_kept or None,
    }  # fmt: skip


def _known(value: int) -> int | None:
    return None if value < 0 else value


def traces(address: str, begin: str = "", node: str = "") -> Answer:
    """The traces that agents of a store keep, the latest first."""
    with _control(address) as stub:
        listing = stub.ListTraces(pb.TraceListRequest(window=begin, node=node), timeout=LIST_WITHIN_S)
    rows = [trace_row(each, compared=listing.compared) for each in listing.traces]
    rows.sort(key=lambda row: (-row["kept_unix_ns"], row["window"]))
    silent = [{"node": each.node, "reason": each.reason} for each in listing.silent]
    query = {"command": "trace list", "window": begin or None, "node": node or None}
    return {
        "schema_version": 1, "query": query, "coverage": {"silent": silent, "left_out": listing.left_out}, "rows": rows,
    }  # fmt: skip


def trace_row(kept: pb.KeptTrace, *, compared: bool) -> Answer:
    """A kept trace as a row. ``compared``: the store says whether it has the window under that node."""
    return {
        "window": kept.window.hex(), "kept_unix_ns": kept.kept_unix_ns, "start_unix_ns": kept.start_unix_ns,
        "node": kept.node, "process": kept.process, "pid": kept.pid, "rank": _known(kept.rank), "job": kept.job or None,
        "model": kept.model or None, "user": kept.user or None, "format": kept.format, "bytes": kept.size,
        "sha256": kept.sha256.hex(), "duration_ns": kept.duration_ns if kept.HasField("duration_ns") else None,
        "steps": kept.steps if kept.HasField("steps") else None,
        "first_step": kept.first_step if kept.HasField("first_step") else None,
        "stored": kept.stored if compared else None,
    }  # fmt: skip


def the_one(address: str, begin: str, node: str = "") -> Answer:
    """The kept trace whose window's uid begins so.

    A window that the store has goes before one that only its agent tells of: that is not taken unless ``node`` names
    whose word is to be believed.

    Raises:
        UsageError: it is no begin of a uid.
        RoofwatchError: there is none, there are several, or nothing but its agent's word says whose it is.
    """
    if not SHORTEST_PREFIX <= len(begin) <= UID_DIGITS or set(begin) - set("0123456789abcdef"):
        raise UsageError(f"'{begin}' is no window: give the first digits of its uid, as 'roofwatch trace list' shows.")
    answer = traces(address, begin, node)
    rows: Sequence[Answer] = [row for row in answer["rows"] if row["stored"]] or answer["rows"]
    if not rows:
        away = answer["coverage"]["silent"]
        also = "".join(f"; {told}" for told in _away(away))
        where = f"of node '{node}' " if node else ""
        raise RoofwatchError(
            f"no agent {where}that is connected keeps a trace of window {begin}{also}: see 'roofwatch trace list'."
        )
    if len({row["window"] for row in rows}) > 1:
        raise RoofwatchError(f"{len(rows)} kept traces begin with {begin}: give more digits of the window's uid.")
    hosts = sorted({row["node"] for row in rows})
    if rows[0]["stored"] is False and not node:
        raise RoofwatchError(
            f"the store does not have window {begin}, so nothing but an agent's word says that it is of node "
            f"{' or '.join(hosts[:3])}: wait until it is stored, or name the node you believe with --node."
        )
    return rows[0]


def _away(silent: Sequence[Answer]) -> list[str]:
    """Who was not heard, in a few words."""
    false = [each["node"] for each in silent if each["reason"] == NOT_ITS_OWN]
    mute = [each["node"] for each in silent if each["reason"] != NOT_ITS_OWN]
    told = [f"{', '.join(mute[:3])} did not answer"] if mute else []
    return told + ([f"{', '.join(false[:3])} is not believed, for it is another node's window"] if false else [])


@dataclass(frozen=True, slots=True)
class Fetched:
    """A trace that is here now."""

    path: Path
    size: int
    format: str


def fetch(address: str, window: str, path: Path, progress: Callable[[int, int], None], node: str = "") -> Fetched:
    """Write a kept trace to a file: whole, of the right hash and readable by its owner only, or not at all.

    Raises:
        RoofwatchError: it is not kept any more, came damaged, or cannot be written.
    """
    draft = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        fd, named = _draft(draft)
        with os.fdopen(fd, "wb") as file, _control(address) as stub:
            wanted = pb.GetTraceRequest(window=bytes.fromhex(window), node=node)
            chunks = stub.GetTrace(wanted, timeout=FETCH_WITHIN_S)
            head = _written(chunks, file.write, progress)
            file.flush()
            if not named:
                # With a descriptor it is linkat, which follows /proc's link; without one, link does not.
                os.link(f"/proc/self/fd/{fd}", draft, src_dir_fd=fd, follow_symlinks=True)
            draft.replace(path)
    except OSError as error:
        raise RoofwatchError(f"{path} cannot be written: {error.strerror or error}.") from error
    finally:
        with suppress(OSError):
            draft.unlink()
    return Fetched(path, head.size, head.format)


def _draft(path: Path) -> tuple[int, bool]:
    """A new file, and whether it has this name; where it has none, nothing is left of it whoever ends this program."""
    with suppress(OSError):  # a file system that does not know of such files
        return os.open(path.parent, os.O_WRONLY | os.O_TMPFILE, 0o600), False
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600), True


def _written(chunks: Any, write: Callable[[bytes], Any], progress: Callable[[int, int], None]) -> pb.KeptTrace:
    """What the first chunk says; the others are written and are what it says."""
    head, digest, size = pb.KeptTrace(), hashlib.sha256(), 0
    for chunk in chunks:
        if chunk.HasField("head"):
            head = chunk.head
            continue
        size += len(chunk.data)
        if size > head.size:
            break  # what is told ends there: a sender without end must not fill this disk
        write(chunk.data)
        digest.update(chunk.data)
        progress(size, head.size)
    if size != head.size or digest.digest() != head.sha256:
        raise RoofwatchError("the trace came damaged (its size or hash is another): fetch it again.")
    return head
