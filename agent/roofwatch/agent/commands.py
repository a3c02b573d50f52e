"""What the store may ask for: a window now, another schedule, which processes there are, and kept traces."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from roofwatch.agent.capture import Captures
from roofwatch.agent.log import Log
from roofwatch.agent.plan import Wish
from roofwatch.agent.registry import Member, Registry
from roofwatch.agent.scheduler import Scheduler
from roofwatch.agent.traces import Note, Traces
from roofwatch.proto.v1 import roofwatch_pb2 as pb

NOT_REGISTERED = "not registered"
UNKNOWN = "unknown command"
PROCESSES_MOST, TRACES_MOST = 1024, 1000  # listed in one answer
PART_MOST = 1 << 19  # bytes of a trace in one answer
GONE = "the trace is not kept any more"

Answer = pb.CommandResult | pb.AgentMessage


class Commands:
    """Carries out a command at once; windows on request are told of later, by ``captures``."""

    def __init__(self, registry: Registry, scheduler: Scheduler, captures: Captures, traces: Traces, log: Log) -> None:
        self._registry, self._log = registry, log
        self._scheduler = scheduler
        self._captures = captures
        self._traces = traces

    def __call__(self, command: pb.Command) -> Iterator[Answer]:
        """The answers, in order."""
        kind = command.WhichOneof("body")
        if kind == "take_window" and command.take_window.processes:
            self._captures.take(command.id, command.take_window, self._registry.members())
        elif kind == "take_window":
            yield from self._take(command.id, command.take_window)
        elif kind == "set_schedule":
            wanted = command.set_schedule
            self._scheduler.set_schedule(wanted.interval_s, wanted.steps, wanted.duration_ms)
            yield pb.CommandResult(id=command.id, accepted=True)
        elif kind == "find_processes":
            yield pb.AgentMessage(processes=self._find(command.id, command.find_processes))
        elif kind == "find_traces":
            yield pb.AgentMessage(traces=self._listed(command.id, command.find_traces.window))
        elif kind == "read_trace":
            yield pb.AgentMessage(part=self._part(command.id, command.read_trace))
        else:
            yield pb.CommandResult(id=command.id, accepted=False, reason=UNKNOWN)

    def _take(self, identity: str, wanted: pb.TakeWindow) -> Iterator[pb.CommandResult]:
        """One result a process; ``accepted`` means that it was asked."""
        members = {member.process.pid: member for member in self._registry.members()}
        usual = self._scheduler.schedule.wish
        wish = Wish(wanted.steps or usual.steps, wanted.duration_ms or usual.duration_ms, wanted.shapes)
        pids = list(wanted.pids) or sorted(members)
        if not pids:
            yield pb.CommandResult(id=identity, accepted=False, reason=NOT_REGISTERED)
        for pid in pids:
            member = members.get(pid)
            reason = self._scheduler.request(member, wish) if member is not None else NOT_REGISTERED
            yield pb.CommandResult(id=identity, pid=pid, accepted=not reason, reason=reason)

    def _find(self, identity: str, wanted: pb.FindProcesses) -> pb.ProcessList:
        found = [member for member in self._registry.members() if _matches(member, wanted)]
        listed = [self._told(member) for member in found[:PROCESSES_MOST]]
        return pb.ProcessList(id=identity, processes=listed, left_out=len(found) - len(listed))

    def _told(self, member: Member) -> pb.FoundProcess:
        process = member.process
        steps, step_ns, windows = self._scheduler.reckoned(member)
        return pb.FoundProcess(
            process=f"{process.id:016x}", pid=process.pid, job=process.job or "", model=process.model or "",
            user=process.user or "", rank=_or(process.rank), world_size=_or(process.world_size), step_ns=_or(step_ns),
            steps=_or(steps), windows=windows,
        )  # fmt: skip

    def _listed(self, identity: str, begin: str) -> pb.TraceList:
        found = self._traces.found(begin)
        listed = [kept(note) for note in islice(found, TRACES_MOST)]
        return pb.TraceList(id=identity, traces=listed, left_out=sum(1 for _ in found))

    def _part(self, identity: str, wanted: pb.ReadTrace) -> pb.TracePart:
        if not wanted.offset:
            self._log.audit("trace_read", by=wanted.asked_by or None, window=wanted.window.hex())
        try:
            data = self._traces.read(wanted.window.hex(), wanted.offset, min(wanted.most, PART_MOST))
        except (OSError, OverflowError):
            return pb.TracePart(id=identity, offset=wanted.offset, reason=GONE)
        return pb.TracePart(id=identity, offset=wanted.offset, data=data)


def kept(note: Note) -> pb.KeptTrace:
    """A kept trace as the wire tells it."""
    return pb.KeptTrace(
        window=bytes.fromhex(note.window), format=note.format, size=note.bytes, sha256=bytes.fromhex(note.sha256),
        kept_unix_ns=note.kept_unix_ns, start_unix_ns=note.start_unix_ns, process=note.process, pid=note.pid,
        job=note.job, model=note.model, user=note.user, rank=note.rank, duration_ns=note.duration_ns, steps=note.steps,
        first_step=note.first_step,
    )  # fmt: skip


def _matches(member: Member, wanted: pb.FindProcesses) -> bool:
    process = member.process
    names = (str(process.pid), f"{process.id:016x}")
    return (
        (not wanted.job or wanted.job == process.job)
        and (not wanted.model or wanted.model == process.model)
        and (not wanted.process or wanted.process.lower() in names)
    )


def _or(value: int | None) -> int:
    return -1 if value is None else value
