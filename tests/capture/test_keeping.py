"""Traces that are kept: by a process of their own, whole or not at all, within a quota, for their owner only."""

from __future__ import annotations

import asyncio
import gzip
import hashlib
import json
import os
import stat
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from roofwatch.agent import keeping
from roofwatch.agent.config import Config
from roofwatch.agent.connection import Connection
from roofwatch.agent.counters import Counters
from roofwatch.agent.keeping import FULL, OFF, Keeping
from roofwatch.agent.log import Log
from roofwatch.agent.messages import WindowMessage
from roofwatch.agent.registry import Member
from roofwatch.agent.traces import Note, Traces
from roofwatch.model.record import Node, Process

BODY = b'{"traceEvents": [' + b",".join(b'{"ph": "X", "name": "op %d"}' % n for n in range(20_000)) + b"]}"
MIB = 1 << 20


def member() -> Member:
    """A process; its connection is not asked for anything."""
    process = Process(Node("here"), 4711, user="alice", job="slurm:7.0", rank=3, model="llama")
    return Member(Connection.__new__(Connection), process, None, 0.0)  # type: ignore[arg-type]


def arrived(size: int) -> WindowMessage:
    """What its process tells of a window."""
    return WindowMessage(1, "kineto-json", 5, 7_000, 3, size, True, None, None, 50, first_step=44)


def uid(number: int) -> str:
    """The uid of a window."""
    return f"{number:032x}"


def memfd(content: bytes) -> int:
    """A memfd that holds the bytes."""
    fd = os.memfd_create("trace")
    os.write(fd, content)
    return fd


def kept(state: Path, *jobs: tuple[int, int], most: int = 64 * MIB, hours: float = 1.0) -> tuple[list[str], Counters]:
    """What becomes of traces (descriptor, announced size) that an agent is to keep: why not, "" where it is."""
    counters = Counters()

    async def main() -> list[str]:
        traces = Traces(state, most, hours * 3600, counters)
        keeper = Keeping(Config(trace_mb=8), traces, counters, Log())
        verdicts: dict[int, asyncio.Future[str]] = {}
        for number, (fd, size) in enumerate(jobs):
            verdicts[number] = asyncio.get_running_loop().create_future()
            keeper.keep(uid(number), fd, arrived(size), member())
            os.close(fd)  # the copy has one of its own
            keeper.settled(uid(number), verdicts[number].set_result)
        found = [await verdict for verdict in verdicts.values()]
        await keeper.stop()
        return found

    return asyncio.run(asyncio.wait_for(main(), 60)), counters


def test_a_kept_trace_is_whole_compressed_and_its_owners(tmp_path: Path) -> None:
    """What the profiler wrote, byte for byte; what is gzip already stays as it is; a new agent finds both."""
    packed = gzip.compress(BODY)
    verdicts, counters = kept(tmp_path, (memfd(BODY), len(BODY)), (memfd(packed), len(packed)))
    assert (verdicts, counters.traces) == (["", ""], {"kept": 2})
    found = Traces(tmp_path, 64 * MIB, 3600, Counters())
    notes = {note.window: note for note in found.found("")}
    assert set(notes) == {uid(0), uid(1)}
    assert [note.window for note in found.found(uid(1)[:31])] == [n.window for n in found.found("0")]
    for number in range(2):
        data = found.read(uid(number), 0, 1 << 30)
        note = notes[uid(number)]
        assert gzip.decompress(data) == BODY
        assert (note.bytes, note.sha256) == (len(data), hashlib.sha256(data).hexdigest())
        assert (note.pid, note.user, note.job, note.rank, note.start_unix_ns) == (4711, "alice", "slurm:7.0", 3, 5)
        assert (note.duration_ns, note.steps, note.first_step) == (7_000, 3, 44)
        assert found.read(uid(number), 10, 7) == data[10:17]
    assert found.read(uid(1), 0, 1 << 30) == packed
    assert found.path(uid(0)).stat().st_size < len(BODY) / 5
    folder = tmp_path / "traces"
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()} == {0o600}
    assert len(list(folder.iterdir())) == 4


def endless(folder: Path) -> tuple[int, int]:
    """A FIFO nobody writes to: reading it would wait for ever."""
    os.mkfifo(folder / "fifo")
    return os.open(folder / "fifo", os.O_RDWR), 100


def hole(folder: Path) -> tuple[int, int]:
    """4 MiB of nothing on disk."""
    (folder / "hole").touch()
    os.truncate(folder / "hole", 4 * MIB)
    return os.open(folder / "hole", os.O_RDONLY), 4 * MIB


@pytest.mark.parametrize(
    ("trace", "why"),
    [
        (endless, "trace_not_regular"),
        (hole, "trace_sparse"),
        (lambda _: (memfd(b""), 0), "trace_empty"),
        (lambda _: (memfd(BODY), 7), "trace_changed"),
        (lambda _: (memfd(bytes(9 * MIB)), 9 * MIB), "trace_too_large"),
        (lambda _: (memfd(os.urandom(2 * MIB)), 2 * MIB), "too_large"),  # beyond the quota of 1 MiB
    ],
)
def test_what_is_no_trace_is_not_kept(tmp_path: Path, trace: Callable[[Path], tuple[int, int]], why: str) -> None:
    """Nothing is left of it, and the agent waits for nobody."""
    state = tmp_path / "state"
    state.mkdir()
    verdicts, counters = kept(state, trace(tmp_path), most=MIB)
    assert (verdicts, counters.traces) == ([why], {"not_kept": 1})
    assert list((state / "traces").iterdir()) == []


def test_bounds_of_what_waits_and_none_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So many at once and no more; an agent that keeps none makes no folder."""
    monkeypatch.setattr(keeping, "WAITING_MOST", 2)
    verdicts, _ = kept(tmp_path, *((memfd(b"[]"), 2) for _ in range(4)))
    assert verdicts == ["", "", FULL, FULL]
    verdicts, _ = kept(tmp_path / "none", (memfd(b"[]"), 2), most=0)
    assert verdicts == [OFF]
    assert not (tmp_path / "none").exists()


def test_a_descriptor_that_cannot_be_doubled_is_a_trace_not_kept(tmp_path: Path) -> None:
    """Where descriptors run out the window must not be lost with it, nor its process wait for ever."""
    keeper = Keeping(Config(), Traces(tmp_path, MIB, 3600, Counters()), Counters(), Log())
    keeper.keep(uid(0), -1, arrived(9), member())
    verdicts: list[str] = []
    keeper.settled(uid(0), verdicts.append)
    assert verdicts == ["Bad file descriptor"]


def test_limits_change_while_it_runs(tmp_path: Path) -> None:
    """A trace of 9 MiB: too large, then not, then none is kept."""

    async def main() -> list[str]:
        keeper = Keeping(Config(trace_mb=8), Traces(tmp_path, 64 * MIB, 3600, Counters()), Counters(), Log())
        verdicts = []
        for number, config in enumerate((Config(trace_mb=8), Config(trace_mb=10), Config(keep_traces_mb=0))):
            keeper.configure(config)
            verdict = asyncio.get_running_loop().create_future()
            fd = memfd(bytes(9 * MIB))
            keeper.keep(uid(number), fd, arrived(9 * MIB), member())
            os.close(fd)
            keeper.settled(uid(number), verdict.set_result)
            verdicts.append(await asyncio.wait_for(verdict, 30))
        return verdicts

    assert asyncio.run(main()) == ["trace_too_large", "", OFF]


def put(traces: Traces, number: int, data: bytes, kept_unix_ns: int) -> None:
    """A trace, as the daemon adds one."""
    fd = traces.draft(uid(number))
    os.write(fd, data)
    os.close(fd)
    digest = hashlib.sha256(data).hexdigest()
    traces.add(Note(uid(number), "kineto-json", len(data), digest, kept_unix_ns, 0, "0" * 16, 1))


def test_the_oldest_go_first_and_are_counted(tmp_path: Path) -> None:
    """10 kB hold three of 3 kB; an hour holds what is younger; the file system says the same."""
    counters, now = Counters(), time.time_ns()
    traces = Traces(tmp_path, 10_000, 3600, counters)
    put(traces, 0, bytes(3000), now - 3599 * 10**9)
    for number in range(1, 5):
        put(traces, number, bytes(3000), now - (10 - number) * 10**9)
    assert [note.window for note in traces.found("")] == [uid(4), uid(3), uid(2)]
    assert counters.traces == {"kept": 5, "dropped_bytes": 2}
    traces.limit(10_000, 7.5)
    traces.tidy()
    assert [note.window for note in traces.found("")] == [uid(4), uid(3)]
    assert counters.traces["dropped_age"] == 1
    assert sorted(path.name for path in (tmp_path / "traces").iterdir()) == sorted(
        f"{uid(n)}.{end}" for n in (3, 4) for end in ("gz", "json")
    )
    with pytest.raises(FileNotFoundError):
        traces.read(uid(0), 0, 10)


def test_what_is_not_whole_goes_at_the_start(tmp_path: Path) -> None:
    """Killed while it was copied, or between its two files; a note that lies; files of nobody."""
    traces = Traces(tmp_path, 100_000, 3600, Counters())
    for number in range(6):
        put(traces, number, b"x" * 100, time.time_ns())
    folder = tmp_path / "traces"
    (folder / f"{uid(1)}.json").unlink()
    (folder / f"{uid(2)}.gz").write_bytes(b"short")
    (folder / f"{uid(3)}.json").write_text(json.dumps({"window": "../../etc/passwd"}))
    for number, change in ((4, {"kept_unix_ns": None}), (5, {"sha256": "no hash"})):
        note = folder / f"{uid(number)}.json"
        note.write_text(json.dumps(json.loads(note.read_text()) | change))
    for name in (f"{uid(9)}.part", "stray"):
        (folder / name).write_bytes(b"x")
    again = Traces(tmp_path, 100_000, 3600, Counters())
    assert [note.window for note in again.found("")] == [uid(0)]
    assert sorted(path.name for path in folder.iterdir()) == [f"{uid(0)}.gz", f"{uid(0)}.json"]


def test_what_cannot_be_kept_leaves_nothing(tmp_path: Path) -> None:
    """The disk fails at the last moment: neither draft nor note stays until the next start."""
    traces = Traces(tmp_path, 100_000, 3600, Counters())
    (tmp_path / "traces" / f"{uid(0)}.gz").mkdir(parents=True)  # no file can take its name
    with pytest.raises(OSError, match="directory"):
        put(traces, 0, b"x" * 100, time.time_ns())
    assert [path.name for path in (tmp_path / "traces").iterdir()] == [f"{uid(0)}.gz"]
    assert len(traces) == 0


def test_notes_of_older_and_newer_agents(tmp_path: Path) -> None:
    """One knew less of a window, one knows more; both traces stay over an upgrade and a downgrade."""
    traces = Traces(tmp_path, 100_000, 3600, Counters())
    for number in range(2):
        put(traces, number, b"x" * 100, time.time_ns())
    older, newer = (tmp_path / "traces" / f"{uid(number)}.json" for number in range(2))
    known = json.loads(older.read_text())
    older.write_text(json.dumps({k: v for k, v in known.items() if k not in {"duration_ns", "steps", "first_step"}}))
    newer.write_text(json.dumps(json.loads(newer.read_text()) | {"steps": 3, "colour": "green"}))
    again = {note.window: note.steps for note in Traces(tmp_path, 100_000, 3600, Counters()).found("")}
    assert again == {uid(0): None, uid(1): 3}
