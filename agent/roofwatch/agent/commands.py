"""What the store may ask for: a window now, another schedule."""

from __future__ import annotations

from collections.abc import Iterator

from roofwatch.agent.plan import Wish
from roofwatch.agent.registry import Registry
from roofwatch.agent.scheduler import Scheduler
from roofwatch.proto.v1 import roofwatch_pb2 as pb

NOT_REGISTERED = "not registered"
UNKNOWN = "unknown command"


class Commands:
    """Carries out a command at once; each process it concerns gives one result."""

    def __init__(self, registry: Registry, scheduler: Scheduler) -> None:
        self._registry = registry
        self._scheduler = scheduler

    def __call__(self, command: pb.Command) -> Iterator[pb.CommandResult]:
        """The results, in order; ``accepted`` means that the process was asked."""
        kind = command.WhichOneof("body")
        if kind == "take_window":
            yield from self._take(command.id, command.take_window)
        elif kind == "set_schedule":
            wanted = command.set_schedule
            self._scheduler.set_schedule(wanted.interval_s, wanted.steps, wanted.duration_ms)
            yield pb.CommandResult(id=command.id, accepted=True)
        else:
            yield pb.CommandResult(id=command.id, accepted=False, reason=UNKNOWN)

    def _take(self, identity: str, wanted: pb.TakeWindow) -> Iterator[pb.CommandResult]:
        members = {member.process.pid: member for member in self._registry.members()}
        usual = self._scheduler.wish
        wish = Wish(wanted.steps or usual.steps, wanted.duration_ms or usual.duration_ms, wanted.shapes)
        pids = list(wanted.pids) or sorted(members)
        if not pids:
            yield pb.CommandResult(id=identity, accepted=False, reason=NOT_REGISTERED)
        for pid in pids:
            member = members.get(pid)
            reason = self._scheduler.request(member, wish) if member is not None else NOT_REGISTERED
            yield pb.CommandResult(id=identity, pid=pid, accepted=not reason, reason=reason)
